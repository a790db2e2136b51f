//! Looks for an order of a history's calls that the rules allow: whether it is linearisable.
//!
//! It is the search of Wing and Gong, with Lowe's memory of where it has been in vain. No published checker takes all of
//! what is asked here: a call goes by a clock that others move, so that it may have several right answers, and a purge
//! counts over keys. Where a history has neither, the tests here hold the search to the tester of stateright, which has
//! no memory and brings a web server, and so is no part of the kit itself.
//!
//! # What is loosened, and why
//!
//! - A call goes by one reading of the clock and takes effect at one instant, both between its question and its answer;
//!   the two need not be the same. A store reads the clock before it commits, or after it has read a record, and in
//!   between the clock may move: idem promises one time per attempt, not that time stands still for it. So the clock
//!   is no part of the state: its moves are points of the history, and each call may go by any that it could have read.
//! - A listing and a purge are for each key a call of their own, all within the same bounds: idem promises nothing of
//!   several keys at one instant. The count of a purge must be right in all.
//! - What was not answered, or with "unknown", may have happened at any later time, or not at all; and so may the end of
//!   a lease whose guard was dropped, or whose claim was not answered.

use std::collections::HashSet;

use super::{
    calls::{Answer, Call, LeaseNo, Millis},
    history::{History, Op},
    rules::Rules,
};

/// Which calls are done, by bits.
type Done = u128;

/// An order that the rules allow, or why there is none.
pub(super) fn find(mut history: History) -> Result<(), String> {
    let tokens = Tokens(history.name_leases());
    assert!(history.ops.len() <= 128, "a history is short");
    let mut search =
        Search { history: &history, tokens, seen: HashSet::new(), path: vec![], best: vec![] };
    let counts = vec![0; history.purges.len()];
    if search.goes_on(0, &Rules::default(), &counts) {
        return Ok(());
    }
    Err(search.explanation())
}

struct Search<'h> {
    history: &'h History,
    tokens: Tokens,
    /// Where it has been.
    seen: HashSet<(Done, Rules, Vec<usize>)>,
    /// The order so far, with the time that each call goes by.
    path: Vec<(usize, Millis)>,
    /// The longest order found.
    best: Vec<(usize, Millis)>,
}

/// The token of each call's lease, if anybody was told it.
struct Tokens(Vec<Option<u64>>);

impl Tokens {
    /// Whether the token of a claim is larger than that of the key's last lease.
    fn grow(&self, number: usize, call: Call, before: &Rules) -> bool {
        let Call::Claim { key, .. } = call else { return true };
        let last = before.granted(key).and_then(|lease| self.of(lease));
        last.is_none_or(|last| self.0[number] > Some(last))
    }

    /// The answer with no name for leases whose claims were never answered: nobody knows their tokens.
    fn as_answered(&self, answer: Answer) -> Answer {
        answer.renamed(|lease| if self.of(lease).is_some() { lease } else { LeaseNo::MAX })
    }

    fn of(&self, lease: LeaseNo) -> Option<u64> {
        self.0.get(usize::try_from(lease).ok()?).copied().flatten()
    }
}

/// A call that may come next, the time that it goes by, and what is kept after it.
struct Next {
    number: usize,
    now: Millis,
    after: Rules,
    counts: Vec<usize>,
}

impl Search<'_> {
    /// Whether the calls that are not done have an order, after those that are.
    fn goes_on(&mut self, done: Done, rules: &Rules, counts: &[usize]) -> bool {
        let history = self.history;
        let left = || {
            history
                .ops
                .iter()
                .enumerate()
                .filter(|(number, op)| done >> number & 1 == 0 && !op.is_void)
        };
        // One that began after another was over comes after it.
        let Some(end) = left().filter_map(|(_, op)| op.over).min() else { return true };
        if !self.seen.insert((done, rules.clone(), counts.to_vec())) {
            return false;
        }
        if self.path.len() > self.best.len() {
            self.best.clone_from(&self.path);
        }
        let mut nexts = Vec::new();
        for (number, op) in left().filter(|(_, op)| op.asked < end) {
            for now in history.times(op) {
                let Ok((after, counts)) = self.step(number, op, now, done, rules, counts) else {
                    continue;
                };
                let next = Next { number, now, after, counts };
                // That there is nothing to forget is said of an expired receipt, too, and that one goes.
                let is_only_seen = !matches!(op.call, Call::Forget(..));
                if next.after == *rules && is_only_seen && self.is_settled(op, &next.counts) {
                    // It changes nothing: if it can come later, it can come now.
                    return self.takes(done, &next);
                }
                nexts.push(next);
            }
        }
        // Who was answered first is most likely the first; what may not have happened is tried last.
        nexts.sort_by_key(|next| history.ops[next.number].over.unwrap_or(usize::MAX));
        nexts.iter().any(|next| self.takes(done, next))
    }

    fn takes(&mut self, done: Done, next: &Next) -> bool {
        self.path.push((next.number, next.now));
        let goes_on = self.goes_on(done | 1 << next.number, &next.after, &next.counts);
        self.path.pop();
        goes_on
    }

    /// Whether what the call does now it would do later, too: a part of a purge that removes nothing may only if the
    /// purge has removed all that it did.
    fn is_settled(&self, op: &Op, counts: &[usize]) -> bool {
        op.purge.is_none_or(|purge| counts[purge] == self.history.purges[purge].removed)
    }

    /// What is kept after the call, and what each purge has removed, if the rules allow it to be the next; else what they want.
    fn step(
        &self,
        number: usize,
        op: &Op,
        now: Millis,
        done: Done,
        before: &Rules,
        counts: &[usize],
    ) -> Result<(Rules, Vec<usize>), String> {
        let (mut rules, mut counts) = (before.clone(), counts.to_vec());
        if let (Call::Purge(key), Some(purge)) = (op.call, op.purge) {
            if op.answer.is_some() {
                return Err("a count".to_string());
            }
            let (count, purge_of) = (&mut counts[purge], self.history.purges[purge]);
            if *count < purge_of.limit && rules.apply(op.call, 0, now) == Answer::Purged(true) {
                *count += 1;
            }
            let is_part = |other: &Op| other.purge == Some(purge);
            let is_last = self
                .history
                .ops
                .iter()
                .enumerate()
                .all(|(n, other)| n == number || !is_part(other) || done >> n & 1 == 1);
            let (count, removed) = (counts[purge], purge_of.removed);
            return if is_last && count != removed {
                Err(format!("{count} to be purged, {key:?} the last"))
            } else {
                Ok((rules, counts))
            };
        }
        let expected = self.tokens.as_answered(rules.apply(op.call, number as u64, now));
        match &op.answer {
            Some(answer) if *answer != expected => Err(format!("{expected:?}")),
            Some(Answer::Acquired { .. }) if !self.tokens.grow(number, op.call, before) => {
                Err("a token that is larger than that of the key's last lease".to_string())
            }
            // What is not known to have happened, and would change nothing, need not have.
            None if rules == *before => Err("nothing".to_string()),
            _ => Ok((rules, counts)),
        }
    }

    fn explanation(&self) -> String {
        use std::fmt::Write as _;
        let history = self.history;
        let mut text =
            format!("no order of its calls is right:\n{history}the longest order that is:\n");
        let (mut done, mut rules, mut counts) =
            (0, Rules::default(), vec![0; history.purges.len()]);
        for (number, now) in &self.best {
            let op = &history.ops[*number];
            let _ = writeln!(text, "      #{number} {:?} at {now}", op.call);
            if let Ok(next) = self.step(*number, op, *now, done, &rules, &counts) {
                (rules, counts) = next;
            }
            done |= 1 << number;
        }
        let left = history
            .ops
            .iter()
            .enumerate()
            .filter(|(number, op)| done >> number & 1 == 0 && !op.is_void);
        let end = left.clone().filter_map(|(_, op)| op.over).min().unwrap_or(usize::MAX);
        let _ = writeln!(
            text,
            "after which each of those that could come next would have to be told otherwise:"
        );
        for (number, op) in left.filter(|(_, op)| op.asked < end && op.over.is_some()) {
            let told = op
                .answer
                .as_ref()
                .map_or_else(|| "a part of its purge".to_string(), |a| format!("{a:?}"));
            let _ = writeln!(text, "      #{number} {:?}, was told {told}", op.call);
            for now in history.times(op) {
                if let Err(expected) = self.step(number, op, now, done, &rules, &counts) {
                    let _ = writeln!(text, "          at {now}: {expected}");
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
