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
    /// Cuts the client's connection at a request: the one of that number from now on, the first is 1. Then it is
    /// [`Mode::Pass`], or [`Mode::Down`] if it lasts.
    CutAt {
        /// Which request.
        request: usize,
        /// At which moment.
        moment: Moment,
        /// Whether nothing passes any more afterwards.
        lasts: bool,
    },
    /// Passes no request on, and cuts the connection of whoever sends one.
    Down,
    /// Passes each reply on so much later.
    DelayReplies(Duration),
    /// Passes each request on so much later, even if the client has gone.
    HoldRequests(Duration),
    /// Passes each message on so much later, in both directions, as a slow network does: messages under way
    /// do not wait for each other.
    DelayAll(Duration),
}

/// When a connection is cut, as its request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server gets nothing of the request.
    BeforeRequest,
    /// The server gets the request, the client nothing of the reply.
    AfterRequest,
    /// The client gets one half of the reply.
    WithinReply,
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

    /// When to cut at this request, if at all: if so, it is one less.
    pub(super) fn take_cut(&mut self, message: &[u8]) -> Option<Moment> {
        match self {
            Self::CutAfterRequest { times, containing } => {
                if *times == 0 || !contains(message, containing) {
                    return None;
                }
                *times -= 1;
                if *times == 0 {
                    *self = Self::Pass;
                }
                Some(Moment::AfterRequest)
            }
            Self::CutAt { request: 0 | 1, moment, lasts } => {
                let moment = *moment;
                *self = if *lasts { Self::Down } else { Self::Pass };
                Some(moment)
            }
            Self::CutAt { request, .. } => {
                *request -= 1;
                None
            }
            Self::Down => Some(Moment::BeforeRequest),
            _ => None,
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
