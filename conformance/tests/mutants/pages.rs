//! Purging and listing.

use idem_core::{
    Cursor, Error, Filter, Key, KeyState, Kind, Page, Phase, Purged, Record, State, Timestamp,
};

use crate::{
    engine::{Disk, Engine},
    faults::Fault,
    scope,
};

fn is_due(fault: Option<Fault>, (key, record): &(Key, Record), now: Timestamp) -> bool {
    let at = record.gone_at();
    let millis = |time: Timestamp| time.as_millis();
    match (fault, &record.state) {
        (Some(Fault::PurgeLeavesTheEdge), _) => at.is_some_and(|at| at < now),
        (Some(Fault::PurgeComesEarly), _) => at.is_some_and(|at| millis(at) - 1 <= millis(now)),
        (Some(Fault::PurgeComparesText), _) => {
            at.is_some_and(|at| millis(at).to_string() <= millis(now).to_string())
        }
        (Some(Fault::PurgeTakesForever), _) => at.is_none_or(|at| at <= now),
        (Some(Fault::PurgeTakesLiveLeases), State::Claimed { keep, .. }) => {
            matches!(keep.expires_at(record.created_at), Ok(Some(at)) if at <= now)
        }
        (Some(Fault::PurgeTakesEndedLeases), State::Claimed { until, .. }) => *until <= now,
        (Some(Fault::PurgeLeavesLeases), State::Claimed { .. }) => false,
        (Some(Fault::PurgeLeavesMarks), _) if key.kind() == Kind::Event => false,
        _ => record.is_purgeable(now),
    }
}

/// Removes at most `limit` records that may go.
pub(crate) async fn purge(engine: &Engine, limit: usize) -> Result<Purged, Error> {
    engine.check_open()?;
    let now = match engine.fault {
        Some(Fault::PurgeByTheWallClock) => std::time::SystemTime::now().into(),
        _ => engine.now(),
    };
    let most = match engine.fault {
        Some(Fault::PurgeWithoutLimit) => usize::MAX,
        Some(Fault::PurgeTakesOneMore) => limit.saturating_add(1),
        Some(Fault::PurgeCutAtAHundred) => limit.min(100),
        Some(Fault::LimitOverflows) => limit.checked_add(1).unwrap() - 1,
        _ => limit,
    };
    let looks = if engine.has(Fault::PurgeLimitsItsLooks) { limit } else { usize::MAX };
    let is_torn = matches!(
        engine.fault,
        Some(Fault::PurgeRemovesWhatItSaw | Fault::PurgesCountTwice | Fault::PurgeLeavesTheRest)
    );
    let due = {
        let mut disk = engine.disk();
        let looked_at = disk.records.iter().take(looks);
        let due = looked_at.filter(|(_, record)| is_due(engine.fault, record, now));
        let due: Vec<_> = due.map(|(scope, _)| scope.clone()).take(most).collect();
        if !is_torn {
            return Ok(remove(engine, &mut disk, &due, now, limit));
        }
        due
    };
    engine.purge_is_overtaken(&due, now).await;
    Ok(remove(engine, &mut engine.disk(), &due, now, limit))
}

/// Removes what is due, if it still is.
fn remove(
    engine: &Engine,
    disk: &mut Disk,
    due: &[Vec<u8>],
    now: Timestamp,
    limit: usize,
) -> Purged {
    let mut removed = 0;
    for scope in due {
        let is_still_due = disk.records.get(scope).is_some_and(|record| {
            engine.has(Fault::PurgeRemovesWhatItSaw) || is_due(engine.fault, record, now)
        });
        if is_still_due {
            disk.records.remove(scope);
        }
        removed += usize::from(is_still_due || engine.has(Fault::PurgesCountTwice));
    }
    if removed > 0 {
        match engine.fault {
            Some(Fault::PurgeTakesEffects) => disk.clear_values(),
            Some(Fault::PurgeTakesTokens) => disk.last_token = None,
            _ => {}
        }
    }
    match engine.fault {
        Some(Fault::PurgeCountsAll) => Purged::new(disk.records.len() + removed, removed == limit),
        Some(Fault::PurgeNeverSaysMore) => Purged::new(removed, false),
        Some(Fault::PurgeAlwaysSaysMore) => Purged::new(removed, true),
        _ => Purged::new(removed, removed >= limit),
    }
}

/// Whether the filter shows a record.
fn matches(
    engine: &Engine,
    filter: &Filter,
    (key, record): &(Key, Record),
    now: Timestamp,
) -> bool {
    let fault = engine.fault;
    let is_in_namespace = filter.only_namespace().is_none_or(|space| {
        let (tenant, owner) = (key.tenant(), space.owner());
        let is_owner = match fault {
            Some(Fault::FilterTenantByPrefix) => tenant.starts_with(owner),
            Some(Fault::FilterTenantByPattern) => {
                let (head, rest) = owner.split_once('*').unwrap_or((owner, ""));
                tenant == owner
                    || owner.contains('*') && rest.is_empty() && tenant.starts_with(head)
            }
            Some(Fault::FilterTenantWithoutCase) => tenant.eq_ignore_ascii_case(owner),
            Some(Fault::FilterEmptyTenantIsAll) => tenant == owner || owner.is_empty(),
            _ => tenant == owner,
        };
        is_owner && (key.kind() == space.kind() || fault == Some(Fault::FilterWithoutKind))
    });
    let is_operation = filter.only_operation().is_none_or(|operation| match fault {
        Some(Fault::FilterOperationByPrefix) => key.operation().starts_with(operation),
        Some(Fault::FilterOperationNeedsATenant) if filter.only_namespace().is_none() => true,
        Some(Fault::FilterShowsEventsOfAnyOperation) if key.kind() == Kind::Event => true,
        _ => key.operation() == operation,
    });
    let millis = now.as_millis();
    let now = match fault {
        Some(Fault::FilterStateByTheTimeOfOpening) => engine.opened_at,
        Some(Fault::FilterStateLate) => Timestamp::from_millis(millis - 1),
        Some(Fault::FilterStateEarly) => Timestamp::from_millis(millis + 1),
        _ => now,
    };
    let state = match (fault, &record.state) {
        (Some(Fault::FilterShowsWhatIsGone), State::Completed { .. }) => Some(KeyState::Completed),
        (Some(Fault::FilterShowsWhatIsGone), State::Claimed { .. }) => {
            KeyState::of(record, now).or(Some(KeyState::Ended))
        }
        (Some(Fault::FilterGoesByTheLeasesEnd), State::Claimed { until, .. }) if now < *until => {
            Some(KeyState::Held)
        }
        (Some(Fault::FilterTakesTheEndedForHeld), State::Claimed { .. }) => {
            KeyState::of(record, now).and(Some(KeyState::Held))
        }
        _ => KeyState::of(record, now),
    };
    is_in_namespace && is_operation && filter.only_state().is_none_or(|only| state == Some(only))
}

/// A page of records in the order of their scopes.
pub(crate) fn list(
    engine: &Engine,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page, Error> {
    if !engine.has(Fault::ReadsAfterClose) {
        engine.check_open()?;
    }
    let now = match engine.fault {
        Some(Fault::ListsByTheTimeOfOpening) => engine.opened_at,
        _ => engine.now(),
    };
    if engine.has(Fault::ListByOffset) {
        return by_offset(engine, after, limit, now);
    }
    let is_ignored = engine.has(Fault::FilterIgnored)
        || engine.has(Fault::FilterOnTheFirstPageAlone) && after.is_some();
    let is_late = engine.has(Fault::FilterAfterTheLimit);
    let is_wanted = |record: &(Key, Record)| is_ignored || matches(engine, filter, record, now);
    let last = after.map(Cursor::key).transpose()?;
    let scope = last.as_ref().map(|key| engine.scope(key));
    let disk = engine.disk();
    let is_shown = |(key, record): &(Key, Record)| match (engine.fault, &record.state) {
        (Some(Fault::ListHidesTheEnded), _) => record.phase(now) == Phase::Live,
        (Some(Fault::ListHidesClaims), State::Claimed { .. }) => false,
        (Some(Fault::ListHidesMarks), _) => key.kind() != Kind::Event,
        _ => true,
    };
    let shown = |(key, record): &(Key, Record)| {
        let mut record = record.clone();
        if engine.has(Fault::ListLeavesOutFingerprints) {
            record.fingerprint = None;
        }
        (scope::listed(engine.fault, key), record)
    };
    let again = scope.as_ref().and_then(|scope| disk.records.get(scope));
    let again = again.filter(|_| engine.has(Fault::ListRepeatsBetweenPages) && limit > 1);
    let skipped = usize::from(scope.is_some() && engine.has(Fault::ListSkipsBetweenPages));
    let most = match engine.fault {
        Some(Fault::ListOverItsLimit) => usize::MAX,
        Some(Fault::ListCutAtAHundred) => limit.min(100),
        _ => limit,
    };
    let found = disk.after(scope.as_deref()).filter(|record| is_shown(record));
    let mut found = found.filter(|record| is_late || is_wanted(record));
    let fresh = found.by_ref().skip(skipped).take(most - usize::from(again.is_some()));
    let mut page: Vec<_> = again.into_iter().chain(fresh).collect();
    let is_cut = engine.has(Fault::ListCutAtAHundred) && page.len() == 100;
    page.retain(|record| is_wanted(record));
    let is_cut = is_cut || is_late && page.len() < limit;
    let has_more = found.next().is_some() && !engine.has(Fault::ListEndsAfterAPage) && !is_cut;
    let next = page.last().filter(|_| has_more).map(|(key, _)| Cursor::after(key));
    Ok(Page::new(page.into_iter().map(shown).collect(), next, now))
}

/// A page that begins after as many records as were shown before.
fn by_offset(
    engine: &Engine,
    after: Option<&Cursor>,
    limit: usize,
    now: Timestamp,
) -> Result<Page, Error> {
    let offset = |Cursor(offset): &Cursor| std::str::from_utf8(offset).unwrap().parse().unwrap();
    let before: usize = after.map_or(0, offset);
    let disk = engine.disk();
    let records: Vec<_> = disk.after(None).skip(before).take(limit).cloned().collect();
    let shown = before + records.len();
    let next = (shown < disk.records.len()).then(|| Cursor(shown.to_string().into()));
    Ok(Page::new(records, next, now))
}
