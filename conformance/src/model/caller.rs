//! Carries calls out on a store, and says what was answered in the words of the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    panic::resume_unwind,
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::Bytes;
use idem_core::{
    Certainty, Claim, DynStore, EffectError, Error, ErrorKind, Fingerprint, Idem, Key, Lease,
    LeaseError, Outcome, Request, Retention, Settlement, Timestamp, Token, Transaction,
    consumer::{Marked, Recorder},
    decode_result, encode_result,
};

use super::{
    calls::{Answer, Call, Effect, Held, K, LeaseNo, Millis, Name, Record, Reply, Retain, State},
    names::{Names, fingerprint},
};
use crate::setup::START;

/// A handle on a store.
pub(super) type Handle = Idem<Arc<DynStore>>;

/// The leases that are held, by the numbers of their calls.
pub(super) type Leases = BTreeMap<LeaseNo, Lease<Arc<DynStore>, Reply>>;

/// The transaction of a store behind `DynStore`.
pub(super) type Tx = dyn Transaction;

/// What an effect fails with.
#[derive(Debug)]
struct AsAsked;

impl fmt::Display for AsAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as it was asked to")
    }
}

impl std::error::Error for AsAsked {}

/// One who calls: what it needs for that besides a handle.
pub(super) struct Caller {
    pub(super) names: Names,
    pub(super) leases: Leases,
    /// Those of them of which a completion may have been committed: of these no later error is certain of more.
    in_doubt: BTreeSet<LeaseNo>,
    /// How often an effect lets other threads go on between what it reads and what it writes.
    pub(super) pauses: usize,
}

impl Caller {
    pub(super) fn new(names: Names, pauses: usize) -> Self {
        Self { names, leases: Leases::new(), in_doubt: BTreeSet::new(), pauses }
    }

    /// Carries out the call of that number. Leases in the answer are named by their tokens.
    pub(super) async fn call(&mut self, idem: &Handle, call: Call, number: u64) -> Answer {
        let answer = match call {
            Call::Execute { key, print, retain, effect } => {
                let request = self.request(key, print, retain);
                let executed = idem.execute(&request, self.effect(effect)).await;
                executed.map(|outcome| match outcome {
                    Outcome::Created(reply) => Answer::Created(reply),
                    Outcome::Replayed(reply) => Answer::Replayed(reply),
                    Outcome::Conflict => Answer::Conflict,
                    Outcome::InProgress { until, retry_after } => in_progress(until, retry_after),
                })
            }
            Call::Claim { key, print, retain, lease, refuses } => {
                let request = self.request(key, print, retain);
                let request = if refuses { request.refuse_takeover() } else { request };
                let claimed = idem.claim(&request, span(lease)).await;
                claimed.map(|claim| self.claimed(claim, number))
            }
            Call::Complete(held, count) => {
                let Some(lease) = self.leases.remove(&held.lease) else { return gone() };
                let completed = lease.complete(Reply::Count(count)).await;
                self.spent(held, completed.map(Answer::Completed))
            }
            Call::CompleteWith(held, effect) => {
                let Some(lease) = self.leases.remove(&held.lease) else { return gone() };
                let completed = lease.complete_with(self.effect(effect)).await;
                self.spent(held, completed.map(Answer::Completed))
            }
            Call::Renew(held, by) => {
                let Some(lease) = self.leases.get_mut(&held.lease) else { return gone() };
                let renewed = lease.renew(span(by)).await;
                renewed.map(|()| Answer::Renewed { until: millis(lease.until()) })
            }
            Call::Release(held) => {
                let Some(lease) = self.leases.remove(&held.lease) else { return gone() };
                let released = lease.release().await;
                self.spent(held, released.map(|()| Answer::Released))
            }
            Call::End(held) => {
                let Some(lease) = self.leases.remove(&held.lease) else { return gone() };
                let ended = lease.end().await;
                self.spent(held, ended.map(|()| Answer::Ended))
            }
            Call::Mark => {
                let marked = idem.mark_processed(self.names.consumer(), "event").await;
                marked.map(|marked| match marked {
                    Marked::First => Answer::MarkedFirst,
                    Marked::Again => Answer::MarkedAgain,
                })
            }
            Call::IsProcessed => {
                let processed = idem.is_processed(self.names.consumer(), "event").await;
                processed.map(Answer::Processed)
            }
            Call::Receipt(key) => {
                let receipt = idem.receipt(&self.names.key(key)).await;
                receipt.map(|receipt| {
                    Answer::Receipt(receipt.map(|receipt| {
                        shown(
                            receipt.fingerprint,
                            receipt.created_at,
                            idem_core::State::Completed {
                                result: receipt.result,
                                expires_at: receipt.expires_at,
                            },
                        )
                    }))
                })
            }
            Call::Forget(key) => idem.forget(&self.names.key(key)).await.map(Answer::Forgotten),
            Call::Value(owner, name) => {
                let value = idem.value(&self.names.space(owner), name.as_bytes()).await;
                value.map(|value| match value.as_deref().map(count) {
                    None => Answer::Value(None),
                    Some(Some(count)) => Answer::Value(Some(count)),
                    Some(None) => Answer::Unexpected(format!("the value {value:?}")),
                })
            }
            Call::Settle(key, count) => {
                let settlement = match count {
                    Some(count) => Settlement::Completed(
                        encode_result(&Reply::Count(count)).expect("a count is JSON"),
                    ),
                    None => Settlement::NothingHappened,
                };
                idem.settle(&self.names.key(key), settlement).await.map(Answer::Settled)
            }
            Call::EndHeld(key) => {
                let ended = idem.end_held(&self.names.key(key)).await;
                ended.map(|token| Answer::EndedHeld(token.map(Token::as_u64)))
            }
            Call::List(_) | Call::Purge(_) => {
                unreachable!("they are for many keys at once: see `list` and `purge`")
            }
            Call::TakeBack(_) => unreachable!("nobody asks for it"),
        };
        answer.unwrap_or_else(|error| self.told_of(call, &error))
    }

    /// The error of a call in the words of the rules.
    fn told_of(&mut self, call: Call, error: &Error) -> Answer {
        let (held, completes) = match call {
            Call::Complete(held, _) | Call::CompleteWith(held, _) => (held, true),
            Call::Renew(held, _) | Call::Release(held) | Call::End(held) => (held, false),
            _ => return told(error, Certainty::NothingDone),
        };
        let was_in_doubt = self.in_doubt.contains(&held.lease);
        if completes && error.certainty() == Certainty::Unknown {
            self.in_doubt.insert(held.lease);
        }
        told(error, if was_in_doubt { Certainty::Unknown } else { Certainty::NothingDone })
    }

    /// Drops a lease, which ends it in the background.
    pub(super) fn drop_lease(&mut self, held: Held) {
        drop(self.leases.remove(&held.lease));
    }

    /// Leaves a lease to its end.
    pub(super) fn abandon(&mut self, lease: LeaseNo) {
        if let Some(lease) = self.leases.remove(&lease) {
            lease.abandon();
        }
    }

    /// Leaves all leases to their ends.
    pub(super) fn abandon_all(&mut self) {
        for (_, lease) in mem::take(&mut self.leases) {
            lease.abandon();
        }
    }

    /// All that is listed in pages of `limit`, in the order that it was shown.
    pub(super) async fn list(
        &self,
        idem: &Handle,
        limit: usize,
    ) -> Result<Vec<(Key, Record)>, Answer> {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = idem
                .list(after.as_ref(), limit)
                .await
                .map_err(|error| told(&error, Certainty::NothingDone))?;
            if page.records.len() > limit {
                let count = page.records.len();
                return Err(Answer::Unexpected(format!(
                    "a page of {count}, and {limit} was the limit"
                )));
            }
            let records = page.records.into_iter();
            listed.extend(records.map(|(key, record)| {
                (key, shown(record.fingerprint, record.created_at, record.state))
            }));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(listed),
            }
        }
    }

    pub(super) async fn purge(&self, idem: &Handle, limit: usize) -> Answer {
        match idem.purge(limit).await {
            Ok(purged) => Answer::PurgedInAll { removed: purged.removed, more: purged.more },
            Err(error) => told(&error, Certainty::NothingDone),
        }
    }

    fn request(&self, key: K, print: Option<u8>, retain: Retain) -> Request {
        let request = Request::new(self.names.key(key));
        let request = match print {
            Some(number) => request.with_fingerprint(fingerprint(number)),
            None => request,
        };
        match retain {
            Retain::For(millis) => request.retain(span(millis)),
            Retain::Forever => request.retain_forever(),
            Retain::Zero => request.retain(Duration::ZERO),
            Retain::Overflowing => request.retain(span(Millis::MAX)),
        }
    }

    fn effect(
        &self,
        effect: Effect,
    ) -> impl FnMut(&mut Tx) -> Result<Reply, EffectError> + Send + use<> {
        let pauses = self.pauses;
        move |tx| {
            let read = |tx: &mut Tx, name: Name| -> Result<u64, EffectError> {
                let value = tx.get(name.as_bytes())?;
                for _ in 0..pauses {
                    thread::yield_now();
                }
                Ok(value.as_deref().and_then(count).unwrap_or(0))
            };
            let write = |tx: &mut Tx, name: Name, value: u64| {
                tx.put(name.as_bytes(), value.to_string().as_bytes()).map(|()| Reply::Count(value))
            };
            Ok(match effect {
                Effect::Add(name) => {
                    let value = read(tx, name)? + 1;
                    write(tx, name, value)?
                }
                Effect::Follow(name) => {
                    let value = read(tx, name.other())? + 1;
                    write(tx, name, value)?
                }
                Effect::Put(name, value) => write(tx, name, value)?,
                Effect::Delete(name) => {
                    tx.delete(name.as_bytes())?;
                    Reply::Count(0)
                }
                Effect::Refuse(name) => Reply::Refused(read(tx, name)?),
                Effect::Fail(name) => {
                    write(tx, name, 1_000)?;
                    return Err(AsAsked.into());
                }
                Effect::Panic(name) => {
                    write(tx, name, 2_000)?;
                    // As a panic, without its words on the screen.
                    resume_unwind(Box::new("as it was asked to"))
                }
            })
        }
    }

    fn claimed(&mut self, claim: Claim<Arc<DynStore>, Reply>, number: u64) -> Answer {
        match claim {
            Claim::Acquired(lease) => {
                let answer = Answer::Acquired {
                    lease: lease.token().as_u64(),
                    until: millis(lease.until()),
                    took_over: lease.took_over().map(Token::as_u64),
                };
                self.leases.insert(number, lease);
                answer
            }
            Claim::Replayed(reply) => Answer::Replayed(reply),
            Claim::Conflict => Answer::Conflict,
            Claim::InProgress { until, retry_after } => in_progress(until, retry_after),
            Claim::Unfinished { token, ended_at } => {
                Answer::Unfinished { lease: token.as_u64(), ended_at: millis(ended_at) }
            }
        }
    }

    /// Takes the lease back if it is not spent.
    fn spent(
        &mut self,
        held: Held,
        answer: Result<Answer, LeaseError<Arc<DynStore>, Reply>>,
    ) -> Result<Answer, Error> {
        answer.map_err(|failed| {
            let (error, lease) = failed.into_parts();
            self.leases.insert(held.lease, lease);
            error
        })
    }
}

impl Answer {
    /// The same with other names of its leases.
    pub(super) fn renamed(mut self, name: impl Fn(LeaseNo) -> LeaseNo) -> Self {
        match &mut self {
            Self::Acquired { lease, took_over, .. } => {
                *lease = name(*lease);
                *took_over = took_over.map(&name);
            }
            Self::Listed(Some(Record {
                state: State::Claimed { lease, took_over, .. }, ..
            })) => {
                *lease = name(*lease);
                *took_over = took_over.map(&name);
            }
            Self::Unfinished { lease, .. } | Self::EndedHeld(Some(lease)) => *lease = name(*lease),
            _ => {}
        }
        self
    }
}

/// An instant as the rules count: from the start on, so that a failure reads well.
fn millis(at: Timestamp) -> Millis {
    at.as_millis().saturating_sub(START.as_millis())
}

fn span(millis: Millis) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

fn gone() -> Answer {
    Answer::Unexpected("the lease is not held here".to_string())
}

fn in_progress(until: Timestamp, retry_after: Duration) -> Answer {
    let retry_after = Millis::try_from(retry_after.as_millis()).unwrap_or(Millis::MAX);
    Answer::InProgress { until: millis(until), retry_after }
}

fn count(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// What is shown of a record, in the words of the rules.
fn shown(print: Option<Fingerprint>, created_at: Timestamp, state: idem_core::State) -> Record {
    let number = |print: Fingerprint| (0..u8::MAX).find(|number| fingerprint(*number) == print);
    let state = match state {
        idem_core::State::Claimed { token, took_over, until, is_ended, keep } => State::Claimed {
            lease: token.as_u64(),
            took_over: took_over.map(Token::as_u64),
            until: millis(until),
            is_ended,
            keep: match keep {
                Retention::For(span) => Some(span.as_millis()),
                Retention::Forever => None,
            },
        },
        idem_core::State::Completed { result, expires_at } => {
            State::Completed { result: reply(&result), expires_at: expires_at.map(millis) }
        }
    };
    // One that is none of those that were given is not absent.
    let print = print.map(|print| number(print).unwrap_or(u8::MAX));
    Record { print, created_at: millis(created_at), state }
}

fn reply(result: &Bytes) -> Reply {
    match decode_result(result) {
        Ok(reply) => reply,
        Err(_) if result.is_empty() => Reply::Mark,
        Err(_) => Reply::Refused(u64::MAX),
    }
}

/// An error in the words of the rules; what did nothing is to say so with that certainty.
fn told(error: &Error, of_nothing: Certainty) -> Answer {
    let is_nothing_done = error.certainty() == of_nothing;
    match error.kind() {
        ErrorKind::Effect if is_nothing_done && error.effect_error::<AsAsked>().is_some() => {
            Answer::Failed
        }
        ErrorKind::Panicked(_) if is_nothing_done => Answer::Panicked,
        ErrorKind::InvalidDuration { .. } if is_nothing_done => Answer::Invalid,
        ErrorKind::ResultUndecodable { .. } => Answer::Undecodable,
        ErrorKind::InProgress { until, retry_after } if is_nothing_done => {
            in_progress(*until, *retry_after)
        }
        // After a completion that may have been committed this is not certain of it.
        ErrorKind::LeaseLost { .. } => Answer::Lost,
        ErrorKind::Contended { .. } | ErrorKind::Busy { .. } | ErrorKind::Unreachable { .. } => {
            match error.certainty() {
                Certainty::NothingDone => Answer::NotDone,
                Certainty::Unknown => Answer::Unknown,
                Certainty::Done => unexpected(error),
            }
        }
        _ => unexpected(error),
    }
}

fn unexpected(error: &Error) -> Answer {
    Answer::Unexpected(format!("{:?}: {}", error.certainty(), error.with_causes()))
}
