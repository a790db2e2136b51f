//! What was asked and answered, and when: the record of one concurrent run.

use std::fmt;

use super::calls::{Answer, Call, LeaseNo, Millis};

/// One call. Of what is for many keys at once there is one for each key.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) client: usize,
    pub(super) call: Call,
    /// The position in the history at which it was asked for.
    pub(super) asked: usize,
    /// The position at which it was over; none if it may have happened, or may yet happen, or never.
    pub(super) over: Option<usize>,
    /// What was answered, if that is known of it alone.
    pub(super) answer: Option<Answer>,
    /// The purge that it is a part of.
    pub(super) purge: Option<usize>,
    /// It certainly has not happened.
    pub(super) is_void: bool,
}

/// A purge of all keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purge {
    /// How many it may remove; any number, if it says that it has left none.
    pub(super) limit: usize,
    pub(super) removed: usize,
}

/// A concurrent run, in the order in which things were seen to happen.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) ops: Vec<Op>,
    pub(super) purges: Vec<Purge>,
    /// The clock, and the positions from which on it showed that.
    clock: Vec<(usize, Millis)>,
    length: usize,
    /// How many calls gave up though nothing was in their way.
    pub(super) gave_up: usize,
}

impl History {
    /// A history whose clock stands at `now`.
    pub(super) fn at(now: Millis) -> Self {
        Self { clock: vec![(0, now)], ..Self::default() }
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.last().map_or(0, |(_, now)| *now)
    }

    /// From here on the clock shows `now`.
    pub(super) fn clock_is(&mut self, now: Millis) {
        let at = self.next();
        self.clock.push((at, now));
    }

    /// Somebody asks for these calls at once; returns the number of the first.
    pub(super) fn asks(&mut self, client: usize, calls: &[Call], purge: Option<usize>) -> u64 {
        let (asked, first) = (self.next(), self.ops.len());
        self.ops.extend(calls.iter().map(|call| Op {
            client,
            call: *call,
            asked,
            over: None,
            answer: None,
            purge,
            is_void: false,
        }));
        first as u64
    }

    /// With that call, and by it, another was asked for.
    pub(super) fn asks_with(&mut self, number: u64, call: Call) {
        let by = self.op(number).clone();
        self.ops.push(Op { call, ..by });
    }

    /// The calls from that number on are over, with these answers.
    pub(super) fn is_told(&mut self, first: u64, answers: Vec<Option<Answer>>) {
        let over = self.next();
        for (number, answer) in (first..).zip(answers) {
            let op = self.op(number);
            (op.over, op.answer) = (Some(over), answer);
        }
    }

    /// The call certainly has not happened.
    pub(super) fn is_void(&mut self, number: u64) {
        self.op(number).is_void = true;
    }

    /// What the clock showed while the call was under way.
    pub(super) fn times(&self, op: &Op) -> impl Iterator<Item = Millis> {
        let (asked, over) = (op.asked, op.over.unwrap_or(usize::MAX));
        let first = self.clock.iter().rposition(|(at, _)| *at <= asked).unwrap_or(0);
        self.clock[first..].iter().take_while(move |(at, _)| *at < over).map(|(_, now)| *now)
    }

    /// Names leases by the numbers of their calls, where they were named by tokens; returns the token of each call.
    pub(super) fn name_leases(&mut self) -> Vec<Option<u64>> {
        let token = |op: &Op| match (op.call, &op.answer) {
            (Call::Claim { .. }, Some(Answer::Acquired { lease, .. })) => Some(*lease),
            _ => None,
        };
        let tokens: Vec<_> = self.ops.iter().map(token).collect();
        let keys: Vec<_> = self.ops.iter().map(|op| op.call.key()).collect();
        for op in &mut self.ops {
            // A token is a key's own: those of two tenants may be alike.
            let key = op.call.key();
            let is_its =
                |number: &usize, token| keys[*number] == key && tokens[*number] == Some(token);
            let name = |token| {
                let number = (0..keys.len()).find(|number| is_its(number, token));
                // That of a claim whose answer never came.
                number.map_or(LeaseNo::MAX, |number| number as u64)
            };
            op.answer = op.answer.take().map(|answer| answer.renamed(name));
        }
        tokens
    }

    /// What was answered last to that call.
    pub(super) fn last(&self, call: Call) -> Option<&Answer> {
        self.ops.iter().rfind(|op| op.call == call)?.answer.as_ref()
    }

    fn op(&mut self, number: u64) -> &mut Op {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        &mut self.ops[number]
    }

    fn next(&mut self) -> usize {
        self.length += 1;
        self.length
    }
}

impl fmt::Display for History {
    /// A line for each thing that happened, in the order in which it was seen to, by client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in 0..=self.length {
            for (_, now) in self.clock.iter().filter(|(when, _)| *when == at) {
                writeln!(f, "{at:4}            the clock shows {now}")?;
            }
            for (number, op) in self.ops.iter().enumerate() {
                let Op { client, call, .. } = op;
                if op.asked == at {
                    let end = match (op.is_void, op.over) {
                        (true, _) => ", which did not happen",
                        (_, None) => ", and what becomes of it is not known",
                        _ => "",
                    };
                    writeln!(f, "{at:4}  client {client}  #{number} asks: {call:?}{end}")?;
                }
                if op.over == Some(at) {
                    write!(f, "{at:4}  client {client}  #{number} is told: ")?;
                    match (&op.answer, op.purge) {
                        (Some(answer), _) => writeln!(f, "{answer:?}")?,
                        (None, Some(purge)) => {
                            writeln!(f, "{:?}", self.purges[purge])?;
                        }
                        (None, None) => writeln!(f, "nothing")?,
                    }
                }
            }
        }
        Ok(())
    }
}
