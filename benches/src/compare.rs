//! Pairs of rounds.

use std::time::Duration;

use idem_core::BoxError;

use crate::{
    Backend, Load, Open, Workload,
    report::{Figures, Row},
    side::measure,
    stats::median,
};

/// How many pairs of rounds there are, besides the one that warms up.
pub const ROUNDS: usize = 7;

/// How long a round of one side is meant to take.
const ROUND: Duration = Duration::from_millis(500);

/// Long enough for a first guess at how many calls fill a round.
const GUESS: Duration = Duration::from_millis(80);

/// No round has fewer calls per caller.
const LEAST: usize = 16;

/// No round has more calls than these where each brings a key of its own, which must be stored.
const MAX_KEYS: usize = 300_000;

/// No round has more calls than these.
const MAX_CALLS: usize = 5_000_000;

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What callers ask for.
    pub workload: Workload,
    /// The backend.
    pub backend: Backend,
    /// How many callers at once.
    pub callers: usize,
}

/// Compares idem, or what is measured in its place, with the hand-written side in pairs of rounds, and reports every pair as it ends.
///
/// Each side has its own fixed number of calls, so that its rounds are long enough to measure however the
/// two differ. The two take turns in going first.
///
/// # Errors
/// A call that failed, or an answer or data that are wrong, on either side.
pub fn compare(plan: Plan, mut progress: impl FnMut(&str)) -> Result<Row, BoxError> {
    let pair = plan.backend.pair();
    progress("calibrates");
    let calls = [calibrate(plan, pair.subject)?, calibrate(plan, pair.baseline)?];
    let (mut subjects, mut baselines) = (Figures::default(), Figures::default());
    let (mut ratios, mut steady_ratios) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let side = |open, calls| measure(open, Load::new(plan.workload, plan.callers, calls)?);
        let (subject, other);
        if round % 2 == 0 {
            subject = side(pair.subject, calls[0])?;
            other = side(pair.baseline, calls[1])?;
        } else {
            other = side(pair.baseline, calls[1])?;
            subject = side(pair.subject, calls[0])?;
        }
        let ratio = subject.throughput() / other.throughput();
        if round == 0 {
            progress(&format!("warms up: ratio {ratio:.2}"));
            continue;
        }
        progress(&format!("round {round} of {ROUNDS}: ratio {ratio:.2}"));
        ratios.push(ratio);
        steady_ratios.push(subject.steady_throughput() / other.steady_throughput());
        subjects.add(subject);
        baselines.add(other);
    }
    let (ratio, steady_ratio) = (median(&mut ratios), median(&mut steady_ratios));
    let (subject, baseline) = (subjects, baselines);
    Ok(Row { plan, pair, subject, baseline, ratio, ratios, steady_ratio })
}

/// How many calls of this side fill a round.
fn calibrate(plan: Plan, open: Open) -> Result<usize, BoxError> {
    let most = match plan.workload {
        Workload::Replay | Workload::Conflict => MAX_CALLS,
        Workload::Create | Workload::Mark => MAX_KEYS,
        Workload::Contended => MAX_KEYS.saturating_mul(plan.callers).min(MAX_CALLS),
    };
    let least = LEAST * plan.callers;
    let mut calls = least;
    loop {
        let sample = measure(open, Load::new(plan.workload, plan.callers, calls)?)?;
        let fill = sample.steady_throughput() * ROUND.as_secs_f64();
        if sample.elapsed >= GUESS || calls >= most {
            return Ok((fill as usize).clamp(least, most));
        }
        calls = (fill as usize).clamp(2 * calls, 8 * calls).min(most);
    }
}
