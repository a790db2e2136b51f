//! What a change makes of a record, and what writing a record down makes of it.

use std::time::Duration;

use bytes::Bytes;
use idem_core::{Change, Error, Fingerprint, Record, Retention, Span, State, Timestamp, Token};
use uuid::Uuid;

use crate::faults::Fault;

/// The record after `change`.
pub(crate) fn stamped(
    fault: Option<Fault>,
    change: Change,
    before: Option<&Record>,
    now: Timestamp,
    token: impl Fn() -> Token,
) -> Result<Option<Record>, Error> {
    let (is_claim, is_keep) =
        (matches!(change, Change::Claim { .. }), matches!(change, Change::Keep));
    let (is_extend, is_completion) =
        (matches!(change, Change::Extend { .. }), matches!(change, Change::Complete { .. }));
    let is_end = matches!(change, Change::End);
    match (fault, &change) {
        (Some(Fault::EndRemoves), Change::End) => return Ok(None),
        (Some(Fault::RemoveEnds), Change::Remove) => {
            return Change::End.stamp(before, now, || Ok(token()));
        }
        (Some(Fault::KeepRemoves), Change::Keep) => return Ok(None),
        (Some(Fault::ExtendFromOldEnd), Change::Extend { .. }) => {
            let until = before.and_then(until).unwrap_or(now);
            return change.stamp(before, until, || Ok(token()));
        }
        (Some(Fault::EndLeavesUntil), Change::End) => return Ok(before.cloned()),
        (Some(Fault::EndMovesToStart), Change::End) => {
            let start = before.map_or(now, |claim| claim.created_at);
            return change.stamp(before, start, || Ok(token()));
        }
        _ => {}
    }
    let mut after = change.stamp(before, now, || Ok(token()))?;
    let Some(record) = &mut after else { return Ok(after) };
    match fault {
        Some(Fault::ExtendMovesStart) if is_extend => record.created_at = now,
        Some(Fault::KeepMovesStart) if is_keep => record.created_at = now,
        Some(Fault::AttemptLost) => record.attempt = Uuid::nil(),
        Some(Fault::AttemptOfClaimStays) if is_completion => {
            if let Some(claim) = before.filter(|record| until(record).is_some()) {
                record.attempt = claim.attempt;
            }
        }
        Some(Fault::CompletionKeepsStart) if is_completion => {
            if let Some(claim) = before.filter(|record| until(record).is_some()) {
                record.created_at = claim.created_at;
            }
        }
        Some(Fault::ReplacementKeepsStart) if is_completion => {
            if let Some(expired) = before.filter(|record| until(record).is_none()) {
                record.created_at = expired.created_at;
            }
        }
        Some(Fault::FingerprintOfExpiredStays) if is_completion => {
            if let Some(expired) = before.filter(|record| until(record).is_none()) {
                record.fingerprint = expired.fingerprint;
            }
        }
        Some(Fault::AttemptOfBeforeStays) if is_claim => {
            record.attempt = before.map_or(record.attempt, |before| before.attempt);
        }
        Some(Fault::CompletionCountsFromClaim) if is_completion => {
            if let Some(claim) = before.filter(|record| until(record).is_some()) {
                record.state = earlier(record, now.since(claim.created_at));
            }
        }
        Some(Fault::FingerprintLostAtCompletion) if is_completion => record.fingerprint = None,
        Some(Fault::FingerprintLostAtClaim) if is_claim => record.fingerprint = None,
        Some(Fault::FingerprintLostAtEnd) if is_end => record.fingerprint = None,
        Some(Fault::FingerprintOfBeforeStays) if is_claim => {
            if let Some(before) = before {
                record.fingerprint = before.fingerprint;
            }
        }
        _ => {}
    }
    let kept = |millis| Span::from_millis(millis).map_or(Retention::Forever, Retention::For);
    if let State::Claimed { token: held, took_over, until, is_ended, keep } = &mut record.state {
        match fault {
            Some(Fault::ExtendNeverShortens) if is_extend => {
                *until = (*until).max(before.and_then(self::until).unwrap_or(*until));
            }
            Some(Fault::ExtendTakesToken) if is_extend => *held = token(),
            Some(Fault::ClaimLosesItsKeep) if is_claim => *keep = Retention::Forever,
            Some(Fault::ClaimKeptAsLease) if is_claim => *keep = kept(1),
            Some(Fault::KeptOneLess) if is_claim => *keep = kept(millis_of(*keep) - 1),
            Some(Fault::KeptFromAnEndBeforeTheClaim) if *until < record.created_at => {
                let lost = record.created_at.as_millis() - until.as_millis();
                *keep = kept((millis_of(*keep) - lost).max(1));
            }
            // The shortest retention of the case at hand is a millisecond.
            Some(Fault::KeptAsTheTakerSays) if is_claim && took_over.is_some() => *keep = kept(1),
            // What was written at the claim stays, and is read as an instant.
            Some(Fault::KeptFromTheClaim) if is_extend || is_end => {
                let was = before.and_then(self::until).unwrap_or(*until);
                let gone = was.as_millis() + millis_of(*keep);
                *keep = kept((gone - until.as_millis()).max(1));
            }
            Some(Fault::LeaseIsRetention) if is_claim => {
                *until = now.after(Span::from_millis(millis_of(*keep)).unwrap()).unwrap();
            }
            Some(Fault::EndIsAnInstant) => *is_ended = false,
            Some(Fault::TookOverLost) => *took_over = None,
            _ => {}
        }
    }
    Ok(after)
}

/// How long a claim is kept; no case that looks keeps one for ever.
fn millis_of(keep: Retention) -> i64 {
    match keep {
        Retention::For(span) => span.as_millis(),
        Retention::Forever => i64::from(i32::MAX),
    }
}

/// The state of a receipt that expires by so much earlier.
fn earlier(record: &Record, by: Duration) -> State {
    let mut state = record.state.clone();
    if let State::Completed { expires_at: Some(expires_at), .. } = &mut state {
        let by = i64::try_from(by.as_millis()).unwrap();
        *expires_at = Timestamp::from_millis(expires_at.as_millis() - by);
    }
    state
}

fn until(record: &Record) -> Option<Timestamp> {
    match record.state {
        State::Claimed { until, .. } => Some(until),
        State::Completed { .. } => None,
    }
}

/// The record as it is read back after it was written down.
pub(crate) fn written(fault: Option<Fault>, mut record: Record) -> Record {
    record.fingerprint = match (fault, record.fingerprint) {
        (Some(Fault::FingerprintCutAtNul), Some(fingerprint)) => Some(cut_at_nul(fingerprint)),
        (Some(Fault::AbsentFingerprintOfNothing), None) => Some(Fingerprint::of_bytes("")),
        (_, fingerprint) => fingerprint,
    };
    let time = |time: Timestamp| match fault {
        Some(Fault::SecondsForMillis) => {
            Timestamp::from_millis(time.as_millis().div_euclid(1000) * 1000)
        }
        Some(Fault::TimesUnsigned) => Timestamp::from_millis(time.as_millis().max(0)),
        _ => time,
    };
    record.created_at = time(record.created_at);
    let forever =
        (fault == Some(Fault::ForeverIsTheLastInstant)).then_some(Timestamp::from_millis(i64::MAX));
    match &mut record.state {
        State::Claimed { until, .. } => *until = time(*until),
        State::Completed { result, expires_at } => {
            *result = result_written(fault, result);
            *expires_at = expires_at.map(time).or(forever);
        }
    }
    record
}

fn result_written(fault: Option<Fault>, result: &Bytes) -> Bytes {
    match fault {
        Some(Fault::ResultCutAtNul) => {
            let end = result.iter().position(|byte| *byte == 0).unwrap_or(result.len());
            result.slice(..end)
        }
        Some(Fault::ResultCutAt64KiB) => result.slice(..result.len().min(65_535)),
        Some(Fault::ResultCutAt1MiB) => result.slice(..result.len().min(1 << 20)),
        Some(Fault::ResultAsText) => String::from_utf8_lossy(result).into_owned().into(),
        Some(Fault::ResultTrimmed) => Bytes::copy_from_slice(result.trim_ascii()),
        Some(Fault::ResultAsNumber) => {
            let number = std::str::from_utf8(result).ok().and_then(|text| text.parse::<i64>().ok());
            number.map_or(result.clone(), |number| number.to_string().into())
        }
        _ => result.clone(),
    }
}

/// A value of an effect as it is read back.
pub(crate) fn value_written(fault: Option<Fault>, value: &Bytes) -> Bytes {
    match fault {
        Some(Fault::ValueCutAtNul) => {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            value.slice(..end)
        }
        Some(Fault::ValueCutAt64KiB) => value.slice(..value.len().min(65_535)),
        Some(Fault::ValueAsText) => String::from_utf8_lossy(value).into_owned().into(),
        _ => value.clone(),
    }
}

fn cut_at_nul(fingerprint: Fingerprint) -> Fingerprint {
    let mut bytes = fingerprint.to_bytes();
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes[end..].fill(b' ');
    }
    Fingerprint::from_bytes(&bytes).unwrap_or(fingerprint)
}
