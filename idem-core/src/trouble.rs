//! What an error of the store says beyond its call.

use crate::{Certainty, Error, ErrorKind};

/// What a call of the store carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The caller's effect, which may itself be what the store cannot commit.
    Effect,
    /// Nothing of the caller's.
    Nothing,
}

/// What an error says beyond its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The store fails, as likely as not for every call, until somebody mends it.
    Store,
    /// The key is in use; it will not be for ever.
    Key,
    /// The store was closed, or it is another process's.
    Closed,
    /// The call fails, and would again.
    Call,
}

impl Trouble {
    pub(crate) fn of(error: &Error, load: Load) -> Self {
        match error.kind() {
            ErrorKind::Closed | ErrorKind::OtherProcess { .. } => Self::Closed,
            ErrorKind::InProgress { .. } | ErrorKind::Contended { .. } => Self::Key,
            ErrorKind::Busy { .. }
            | ErrorKind::Unreachable { .. }
            | ErrorKind::ReadOnly
            | ErrorKind::Full
            | ErrorKind::Denied => Self::Store,
            // A commit that fails in the engine's own way may do so for what the effect wrote.
            ErrorKind::Store if load == Load::Nothing => Self::Store,
            // What became of it is settled by asking again.
            _ if error.certainty() != Certainty::NothingDone => Self::Store,
            _ => Self::Call,
        }
    }
}

/// Whether an error that is [`Trouble::Call`] may be the store's all the same: only another call can tell.
pub(crate) fn may_be_the_stores(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Store
            | ErrorKind::Damaged { .. }
            | ErrorKind::CannotOpen { .. }
            | ErrorKind::SchemaNewer { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use std::time::Duration;

    #[test]
    fn what_passes_is_told_from_what_is_the_calls_own() {
        let of = |kind| Error::nothing_done(kind);
        let waited = Duration::ZERO;
        let until = Timestamp::from_millis(1);
        for (error, with_effect, without) in [
            (of(ErrorKind::Busy { waited }), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Unreachable { waited }), Trouble::Store, Trouble::Store),
            (of(ErrorKind::ReadOnly), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Full), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Denied), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Store), Trouble::Call, Trouble::Store),
            (Error::new(ErrorKind::Store, Certainty::Unknown), Trouble::Store, Trouble::Store),
            (of(ErrorKind::Contended { attempts: 9 }), Trouble::Key, Trouble::Key),
            (of(ErrorKind::InProgress { until, retry_after: waited }), Trouble::Key, Trouble::Key),
            (of(ErrorKind::Closed), Trouble::Closed, Trouble::Closed),
            (of(ErrorKind::OtherProcess { opened_in: 1 }), Trouble::Closed, Trouble::Closed),
            (of(ErrorKind::Work), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Effect), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Panicked(String::new())), Trouble::Call, Trouble::Call),
            (of(ErrorKind::ResultTooLarge { length: 2, limit: 1 }), Trouble::Call, Trouble::Call),
            (of(ErrorKind::Damaged { problem: String::new() }), Trouble::Call, Trouble::Call),
        ] {
            assert_eq!(Trouble::of(&error, Load::Effect), with_effect, "{error:?}");
            assert_eq!(Trouble::of(&error, Load::Nothing), without, "{error:?}");
        }
    }
}
