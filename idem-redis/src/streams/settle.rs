//! Settling a delivery, and keeping it in flight.

use std::sync::LazyLock;

use idem_core::{BoxError, Certainty, Error, consumer::NotInFlight};
use redis::Cmd;

use super::{GIVEN_BACK, Tag, inner::Inner, reply};
use crate::{
    failure::{Failure, Meaning},
    script::Script,
};

/// Writes a dead letter: refused as a whole if there is no memory for it.
static SET_ASIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua", include_str!("settle.lua")));

/// Needs no memory.
static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("settle.lua")));

/// Needs no memory.
static LEAVE: LazyLock<Script> =
    LazyLock::new(|| Script::new("#!lua flags=allow-oom", include_str!("leave.lua")));

/// What is to become of a delivery.
pub(super) enum Action {
    Ack,
    GiveBack,
    /// With the reason.
    SetAside(String),
    Extend,
}

/// Where the entry was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// In flight here, and the action is done.
    Here,
    /// In flight in another delivery, or given back.
    Elsewhere,
    /// Not in flight.
    Gone,
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::GiveBack => "give back",
            Self::SetAside(_) => "set aside",
            Self::Extend => "extend",
        }
    }

    /// Whether there is nothing left to do, if the answer to an earlier try was lost.
    fn is_done(&self, found: Found) -> bool {
        match (self, found) {
            (_, Found::Here) => true,
            // It was settled by that try, or by another consumer.
            (Self::Ack | Self::SetAside(_), Found::Gone) => true,
            // It was given back by that try, or taken over by another consumer.
            (Self::GiveBack, Found::Elsewhere | Found::Gone) => true,
            _ => false,
        }
    }
}

impl Inner {
    /// Deletes the consumer, if nothing is pending with it; whether it is gone. Asking twice is harmless.
    pub(super) async fn leave(&self) -> Result<bool, Error> {
        let mut patience = self.commands.patience();
        loop {
            match self.try_to_leave().await {
                Ok(is_gone) => return Ok(is_gone),
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }

    async fn try_to_leave(&self) -> Result<bool, Failure> {
        let nonce = self.next_nonce();
        let fill = |command: &mut Cmd| {
            command.arg(1).arg(&self.stream).arg(nonce).arg(&self.group).arg(&self.consumer);
        };
        let answer = match self.commands.eval(&LEAVE, fill).await {
            Err(failure) if failure.cause.code() == Some("NOGROUP") => return Ok(true),
            answer => answer?,
        };
        match reply::settled(answer, nonce).as_deref() {
            Some("gone") => Ok(true),
            Some("pending") => Ok(false),
            _ => Err(self.commands.misunderstood()),
        }
    }

    pub(super) async fn settle(&self, tag: &Tag, action: Action) -> Result<(), BoxError> {
        self.commands.check_process()?;
        let mut patience = self.commands.patience();
        let mut lost = false;
        loop {
            let failure = match self.try_to_settle(tag, &action).await {
                Ok(Found::Here) => return Ok(()),
                Ok(found) if lost && action.is_done(found) => return Ok(()),
                Ok(_) => {
                    let Tag { id, attempt } = tag;
                    return Err(NotInFlight::new(format!("{attempt} of the entry {id}")).into());
                }
                Err(failure) => failure,
            };
            lost |= failure.meaning == Meaning::Lost;
            patience.bear(failure).await.map_err(|error| {
                if lost { error.with_certainty(Certainty::Unknown) } else { error }
            })?;
        }
    }

    async fn try_to_settle(&self, tag: &Tag, action: &Action) -> Result<Found, Failure> {
        let nonce = self.next_nonce();
        let fill = |command: &mut Cmd| {
            match action {
                Action::SetAside(_) => command.arg(2).arg(&self.stream).arg(&self.dead_letters),
                _ => command.arg(1).arg(&self.stream),
            };
            command.arg(nonce).arg(action.name()).arg(&self.group).arg(&self.consumer);
            command.arg(&tag.id).arg(tag.attempt);
            match action {
                Action::GiveBack => drop(command.arg(GIVEN_BACK)),
                Action::SetAside(reason) => drop(command.arg(reason)),
                Action::Ack | Action::Extend => {}
            }
        };
        let script = if matches!(action, Action::SetAside(_)) { &SET_ASIDE } else { &SETTLE };
        let answer = match self.commands.eval(script, fill).await {
            Err(failure) if failure.cause.code() == Some("NOGROUP") => return Ok(Found::Gone),
            answer => answer?,
        };
        match reply::settled(answer, nonce).as_deref() {
            Some("done") => Ok(Found::Here),
            Some("elsewhere") => Ok(Found::Elsewhere),
            Some("gone") => Ok(Found::Gone),
            _ => Err(self.commands.misunderstood()),
        }
    }
}
