//! The random programs and histories find faults, too.

use idem_conformance::model::{self, Options};

use crate::{
    faults::Fault::{self, *},
    place::{Place, set_fault},
};

/// How much is tried before a fault counts as not found: far more than the rarest takes, which is some hundreds.
const TRIES: usize = 20_000;

/// What one caller after the other finds.
const FOUND_BY_PROGRAMS: [Fault; 28] = [
    ScopeWithoutTenant,
    SpaceWithoutKind,
    ExpiresEarly,
    ExpiresLate,
    LeaseEndsLate,
    ReadsHideTheEnded,
    ReplayExtends,
    FingerprintLostAtClaim,
    FingerprintOfBeforeStays,
    FingerprintOfExpiredStays,
    PlaceholderBeforeEffect,
    FailedWritesLeak,
    PanicNotRolledBack,
    ValuesCached,
    EndRemoves,
    RemoveEnds,
    ExtendFromOldEnd,
    ExtendMovesStart,
    LeaseIsRetention,
    CompletionCountsFromClaim,
    ReplacementKeepsStart,
    TokenFromRecord,
    TokenFromClock,
    PurgeTakesEndedLeases,
    PurgeTakesLiveLeases,
    PurgeTakesOneMore,
    ListSkipsBetweenPages,
    ReceiptsNotDurable,
];

/// What several clients at once find; most of it nobody can see alone. Others they find now and then: what is here takes
/// a tenth of the tries or less.
const FOUND_BY_HISTORIES: [Fault; 13] = [
    RecordNotCompared,
    ReadsNotCompared,
    AbsenceNotCompared,
    OnlyWrittenCompared,
    NotAskedAgain,
    LoserToldItWon,
    RunsShareWrites,
    EffectBeforeReceipt,
    ReceiptBeforeEffect,
    TokenBeforeLook,
    FreedomBelieved,
    RecordsCached,
    AttemptLost,
];

#[test]
fn random_programs_and_histories_find_faults() {
    let options = Options::default().reopens().programs(TRIES).histories(TRIES).fixed();
    let by_programs = FOUND_BY_PROGRAMS.into_iter().filter(|fault| {
        set_fault(*fault);
        model::sequential::<Place>(options).is_ok()
    });
    let by_histories = FOUND_BY_HISTORIES.into_iter().filter(|fault| {
        set_fault(*fault);
        model::histories::<Place>(options).is_ok()
    });
    let missed: Vec<_> = by_programs.chain(by_histories).collect();
    assert!(missed.is_empty(), "what was not found: {missed:?}");
}

#[test]
fn a_store_that_answers_nothing_is_found() {
    set_fault(AlwaysBusy);
    assert!(
        model::histories::<Place>(Options::default().reopens().histories(100).fixed()).is_err()
    );
}

#[test]
fn random_programs_and_histories_find_nothing_where_nothing_is_wrong() {
    let options = Options::default().reopens().histories(500);
    model::sequential::<Place>(options).unwrap();
    model::histories::<Place>(options).unwrap();
}
