//! When a record is stamped, and by whom.

use idem_core::{Change, Draft, Error, Moment, Record, Retention, Span, Timestamp};

use crate::script::Becomes;

/// A script, whose numbers are doubles, adds spans of fewer milliseconds to the server's time exactly.
const MOST_EXACT: i64 = 1 << 52;

/// When a record is stamped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamping {
    At(Timestamp),
    /// At the commit, by the server's clock.
    ByServer,
}

/// What `change` makes of the record; none if the server cannot stamp it exactly.
pub(crate) fn becomes(
    before: Option<&Record>,
    change: &Change,
    stamping: Stamping,
) -> Result<Option<Becomes>, Error> {
    let draft = match (change, stamping) {
        (Change::Remove, _) => return Ok(Some(Becomes::Removed)),
        (Change::Keep, _) => None,
        (change, Stamping::At(now)) => change.draft_at(before, now)?,
        (change, Stamping::ByServer) => match change.draft(before) {
            Some(draft) if !is_exact(&draft) => return Ok(None),
            draft => draft,
        },
    };
    Ok(Some(draft.map_or(Becomes::Kept, Becomes::Set)))
}

fn is_exact(draft: &Draft) -> bool {
    let is_short = |span: Span| span.as_millis() < MOST_EXACT;
    // From a start that is known already, the script counts on by its own time.
    let is_near = |moment| match moment {
        Moment::At(time) => time.as_millis().unsigned_abs() < MOST_EXACT.unsigned_abs(),
        _ => true,
    };
    let counts_exactly = match draft.ends_at {
        Moment::In(span) => is_short(span) && is_near(draft.created_at),
        Moment::Now => is_near(draft.created_at),
        Moment::At(_) | Moment::Never => true,
    };
    let keeps_exactly = match draft.keep {
        Retention::For(span) => is_short(span),
        Retention::Forever => true,
    };
    counts_exactly && keeps_exactly
}
