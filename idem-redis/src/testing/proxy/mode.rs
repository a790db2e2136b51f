//! What can go wrong between a client and a server.

use std::time::Duration;

/// What a [`Proxy`](super::Proxy) does to messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Passes them on.
    #[default]
    Pass,
    /// Passes requests on and drops replies. A connection that lost one is of no use afterwards.
    SwallowReplies,
    /// Passes a request on and cuts the client's connection before there can be a reply: so many times, then
    /// it is [`Mode::Pass`].
    CutAfterRequest {
        /// How many requests.
        times: usize,
        /// Only requests that contain these bytes, such as the name of a key: empty for any. Beware of the
        /// command `SET`, which is also in the `CLIENT SETINFO` of new connections.
        containing: &'static [u8],
    },
    /// Passes each reply on so much later.
    DelayReplies(Duration),
    /// Passes each request on so much later, even if the client has gone.
    HoldRequests(Duration),
    /// Passes each message on so much later, in both directions, as a slow network does: messages under way
    /// do not wait for each other.
    DelayAll(Duration),
}

impl Mode {
    /// Cuts after the next request, whatever it is.
    pub const CUT_ONCE: Self = Self::CutAfterRequest { times: 1, containing: b"" };

    pub(super) fn delay_of_requests(self) -> Duration {
        match self {
            Self::HoldRequests(delay) | Self::DelayAll(delay) => delay,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn delay_of_replies(self) -> Duration {
        match self {
            Self::DelayReplies(delay) | Self::DelayAll(delay) => delay,
            _ => Duration::ZERO,
        }
    }

    /// Whether to cut after this request: if so, it is one less.
    pub(super) fn take_cut(&mut self, request: &[u8]) -> bool {
        let Self::CutAfterRequest { times, containing } = self else { return false };
        if *times == 0 || !contains(request, containing) {
            return false;
        }
        *times -= 1;
        if *times == 0 {
            *self = Self::Pass;
        }
        true
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
