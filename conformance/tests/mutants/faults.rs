//! What a store may get wrong, and the case that says so.

/// Makes the faults and the table of the cases that must fail for each.
macro_rules! faults {
    ($( $(#[$real:meta])* $fault:ident: $($case:ident)+, )*) => {
        /// One way in which a store is broken; each stands for what a real one gets wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fault {
            $( $(#[$real])* $fault, )*
        }

        /// Every fault with the cases that must catch it.
        pub(crate) const CAUGHT_BY: &[(Fault, &[&str])] = &[
            $( (Fault::$fault, &[$( stringify!($case) ),+]), )*
        ];
    };
}

// What core decides (that a fingerprint counts on a replay, and while its key is claimed) no store can get wrong:
// `scripts/mutants` changes that.
faults! {
    // Keys.
    /// The tenant is no part of the primary key.
    ScopeWithoutTenant: every_part_of_a_key_tells_it_apart,
    /// The operation is no part of the primary key: clients reuse a request key for another endpoint.
    ScopeWithoutOperation: every_part_of_a_key_tells_it_apart,
    /// The consumer is no part of a mark: what one has handled, none will.
    ConsumersShareMarks: consumers_do_not_see_each_others_marks,
    /// The parts are joined by a separator that they may hold themselves.
    ScopeJoined: keys_that_look_alike_are_distinct,
    /// The parts are joined by nothing, as in a hash of one part after the other.
    ScopeConcatenated: keys_that_look_alike_are_distinct,
    /// The column's collation ignores case.
    ScopeFolded: keys_that_look_alike_are_distinct,
    /// The column pads, so that trailing spaces do not count.
    ScopeTrimmed: keys_that_look_alike_are_distinct,
    /// The engine, or the driver, normalises Unicode.
    ScopeComposed: keys_that_look_alike_are_distinct,
    /// The column is shorter than a part may be, and the engine cuts.
    ScopeCut: parts_of_255_bytes_are_kept_whole,
    /// The column's affinity makes a number of what looks like one.
    ScopeAsNumber: keys_that_look_alike_are_distinct,
    /// The default tenant is stored as the text that stands for nothing.
    EmptyTenantIsNull: owners_that_look_alike_have_spaces_of_their_own,
    /// A record is removed by a pattern, and a part with a wildcard is not quoted.
    RemovesByPattern: keys_that_look_alike_are_distinct,
    /// All effects write into one space.
    SpaceWithoutOwner: owners_that_look_alike_have_spaces_of_their_own an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// A consumer has the space of the tenant of its name.
    SpaceWithoutKind: owners_that_look_alike_have_spaces_of_their_own a_consumer_is_no_tenant_of_its_name,
    /// Owners of spaces are compared without case.
    SpaceFolded: owners_that_look_alike_have_spaces_of_their_own,
    /// A value's name is joined to its owner's by nothing.
    SpaceJoined: values_and_their_names_are_kept_to_the_byte,
    /// A value's name ends at its first zero.
    NameCutAtNul: values_and_their_names_are_kept_to_the_byte,
    /// Names of values are compared without case.
    NamesFolded: values_and_their_names_are_kept_to_the_byte,
    /// Names of values are text, and what is none is replaced.
    NamesAsText: values_and_their_names_are_kept_to_the_byte,
    /// A value is deleted by a pattern, and a name with a wildcard is not quoted.
    ValuesDeletedByPattern: values_and_their_names_are_kept_to_the_byte,

    // Time.
    /// The store has an expiry of its own, and checks it with `<=`.
    ExpiresLate: at_its_end_a_receipt_has_expired_and_the_key_runs_again,
    /// The store ends a lease by itself, one millisecond late.
    LeaseEndsLate: at_its_end_a_lease_is_taken_over_and_the_taker_is_told,
    /// The engine's own expiry is a millisecond early.
    ExpiresEarly: one_millisecond_before_its_end_a_receipt_replays,
    /// The read filters by `WHERE expires_at > now`: a step does not see the lease that it takes over.
    ReadsHideTheEnded: a_taken_over_claim_is_shown_and_its_token_is_smaller,
    /// Expiry is checked where a key runs, while a read goes by an old time.
    ReadsByTheTimeOfOpening: every_path_agrees_on_the_end,
    /// A listing goes by an old time.
    ListsByTheTimeOfOpening: every_path_agrees_on_the_end,
    /// Times are kept in seconds.
    SecondsForMillis: retention_is_exact_in_milliseconds,
    /// Times are kept without a sign.
    TimesUnsigned: a_clock_that_steps_back_loses_nothing times_compare_as_numbers,
    /// "Never" is stored as the last instant.
    ForeverIsTheLastInstant: forever_outlives_any_clock,
    /// The time is cached, and refreshed once a second.
    ClockAskedNowAndThen: retention_is_exact_in_milliseconds,
    /// The time is taken when the call begins, and not again when it has waited and tries again.
    NowOncePerCall: the_run_that_is_committed_says_when_it_started,
    /// The record is stamped by the commit, after an effect that took its time.
    StampsAtCommit: the_life_counts_from_the_runs_start,
    /// A replay extends the life, as in a cache.
    ReplayExtends: what_does_not_run_does_not_extend_the_life,

    // Fingerprints.
    /// Completing a key does not write its fingerprint.
    FingerprintLostAtCompletion: a_fingerprint_is_kept_exactly,
    /// Claiming a key does not write its fingerprint.
    FingerprintLostAtClaim: a_claim_is_stored_exactly a_lease_keeps_others_out_until_its_end,
    /// Taking over updates token and times, and leaves the fingerprint.
    FingerprintOfBeforeStays: a_fingerprint_is_kept_exactly,
    /// Replacing an expired receipt leaves its fingerprint.
    FingerprintOfExpiredStays: an_expired_receipt_behaves_as_a_purged_one,
    /// The fingerprint is written as text that ends at its first zero.
    FingerprintCutAtNul: a_fingerprint_is_kept_exactly,
    /// The column is `NOT NULL`, and the fingerprint of nothing stands for none.
    AbsentFingerprintOfNothing: an_absent_fingerprint_equals_only_an_absent_one,

    // Results.
    /// The result is text that ends at its first zero.
    ResultCutAtNul: empty_and_falsy_results_replay_as_what_they_were a_replay_is_byte_identical_through_every_handle,
    /// The column holds 64 KiB, and the engine cuts.
    ResultCutAt64KiB: a_result_over_the_limit_is_refused_with_its_effect,
    /// The column holds the usual limit, and a result under a raised one is cut.
    ResultCutAt1MiB: a_result_over_the_limit_is_refused_with_its_effect,
    /// The result is kept as text, and what is none is replaced.
    ResultAsText: empty_and_falsy_results_replay_as_what_they_were,
    /// The result is parsed and written again.
    ResultAsNumber: empty_and_falsy_results_replay_as_what_they_were,
    /// The result is trimmed.
    ResultTrimmed: empty_and_falsy_results_replay_as_what_they_were,
    /// An empty result is taken for none.
    EmptyResultIsNone: empty_and_falsy_results_replay_as_what_they_were,

    // Effect and receipt.
    /// The effect is committed on its own, and its receipt after it.
    EffectBeforeReceipt: an_error_between_effect_and_receipt_leaves_neither a_caller_dropped_at_any_await_leaves_the_key_whole,
    /// The receipt is committed on its own, and the effect after it.
    ReceiptBeforeEffect: a_caller_dropped_at_any_await_leaves_the_key_whole,
    /// The receipt is committed, and the effect in a second transaction, while the store is locked.
    ReceiptThenEffectLocked: an_effect_and_its_receipt_are_seen_together,
    /// The effect is committed, and its receipt in a second transaction, while the store is locked.
    EffectThenReceiptLocked: an_effect_and_its_receipt_are_seen_together,
    /// A row is inserted and committed before the effect, and an error leaves it.
    PlaceholderBeforeEffect: a_retry_after_an_error_creates_one_effect,
    /// A receipt is written whatever the effect ended with.
    FailureLeavesReceipt: an_effects_error_reaches_its_caller_and_leaves_nothing,
    /// Each write of an effect commits itself: an error takes nothing back.
    ErrorNotRolledBack: an_error_after_many_writes_leaves_everything_as_before,
    /// Only an error rolls back, a panic does not.
    PanicNotRolledBack: a_panic_is_rolled_back_and_told_to_its_caller_alone,
    /// A panic leaves a poisoned lock.
    PanicPoisons: a_panic_is_rolled_back_and_told_to_its_caller_alone,
    /// The buffer of writes is not emptied by a failure: the next commit takes them along.
    FailedWritesLeak: an_error_after_many_writes_leaves_everything_as_before,
    /// The store's own error takes the place of the effect's.
    EffectErrorHidden: an_effects_error_reaches_its_caller_and_leaves_nothing,
    /// A receipt that cannot be written is only logged.
    RefusalSwallowed: an_error_between_effect_and_receipt_leaves_neither,
    /// A refused write is reported as one whose end is unknown.
    RefusalIsVague: an_error_between_effect_and_receipt_leaves_neither,
    /// The cache is written before the commit, which then fails.
    CachedBeforeCommit: an_error_between_effect_and_receipt_leaves_neither,
    /// The writes are committed by a batch that takes all but the last.
    LastWriteLost: an_effect_run_again_leaves_one_set_of_writes,
    /// A batch takes a hundred writes, and the rest is not sent.
    WritesCutAtAHundred: an_effect_of_many_writes_is_committed_whole,
    /// Only a completion commits what its step wrote.
    WritesOnlyWithReceipt: a_steps_writes_are_committed_with_its_change,
    /// A delete is not carried out.
    DeleteIgnored: an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// Deleting what is not there is an error.
    DeleteOfNothingFails: an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// All deletes of a commit are carried out after all its puts.
    PutAfterDeleteLost: an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// An empty value is taken for none.
    EmptyValueIsAbsent: an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// A value is text that ends at its first zero.
    ValueCutAtNul: values_and_their_names_are_kept_to_the_byte,
    /// The column of values holds 64 KiB, and the engine cuts.
    ValueCutAt64KiB: values_and_their_names_are_kept_to_the_byte,
    /// A value is kept as text, and what is none is replaced.
    ValueAsText: values_and_their_names_are_kept_to_the_byte,
    /// An effect reads what is committed, not what it wrote itself.
    OwnWritesUnseen: an_effect_reads_its_own_tenants_values_and_its_own_writes,
    /// An effect reads what it has deleted itself.
    OwnDeletesUnseen: an_error_after_many_writes_leaves_everything_as_before,
    /// Others read what is not committed.
    WritesSeenBeforeCommit: an_effect_that_reads_its_own_store_never_hangs,
    /// An effect commits by the engine's own means, and what it wrote stays.
    EffectCommits: an_effect_that_ends_the_transaction_harms_only_itself,
    /// An effect that ended its transaction is taken for one that did not.
    EndNotNoticed: an_effect_that_ends_the_transaction_harms_only_itself,
    /// A duplicate runs its effect before anybody has looked, and this is not declared.
    DuplicateRuns: an_effect_runs_on_neither_replay_nor_conflict,
    /// A commit whose answer seemed lost is done once more, without a look.
    RunsAgainAfterCommit: a_new_key_runs_and_stores_an_exact_receipt,

    // Races.
    /// What an effect read is not compared at its commit.
    ReadsNotCompared: an_effect_run_again_leaves_one_set_of_writes a_counter_shared_by_many_keys_is_exact,
    /// What an effect found absent is not compared at its commit.
    AbsenceNotCompared: an_effect_run_again_leaves_one_set_of_writes,
    /// What an effect read is compared with what there is of it, and so not if it was deleted.
    DeletionNotCompared: an_effect_does_not_go_by_what_was_deleted_meanwhile,
    /// Of what an effect read only that is compared which it also wrote.
    OnlyWrittenCompared: effects_that_read_what_the_other_writes_take_turns,
    /// The record is not compared at the commit: two may win.
    RecordNotCompared: callers_of_one_key_create_once_and_replay_alike of_many_claims_one_wins of_many_marks_one_is_first,
    /// Of the record only its attempt's id is compared, which a renewal leaves as it is.
    AttemptComparedAlone: a_lease_renewed_meanwhile_is_not_taken_over,
    /// Of a claim only its token is compared, which a renewal leaves as it is.
    TokenComparedAlone: a_lease_renewed_meanwhile_is_not_taken_over,
    /// After a lost race the step runs again without being asked whether it may.
    NotAskedAgain: callers_of_one_key_create_once_and_replay_alike,
    /// A commit that changed no row is taken for one that did.
    LoserToldItWon: callers_of_one_key_create_once_and_replay_alike,
    /// A lost race is an error.
    LoserToldAnError: callers_of_one_key_create_once_and_replay_alike,
    /// A run that lost its race leaves its writes to the next.
    RunsShareWrites: an_effect_run_again_leaves_one_set_of_writes,
    /// An error is believed though what the effect read was not one state.
    MisreadBelieved: an_error_of_an_effect_that_misread_is_never_told a_panic_of_an_effect_that_misread_is_never_told,
    /// What an effect read is compared one by one, while others go on.
    ReadsComparedOneByOne: no_error_of_a_misread_is_told_while_others_write,
    /// A call that is dropped does not give back the lock of its key.
    DroppedCallKeepsItsLock: a_caller_dropped_at_any_await_leaves_the_key_whole,
    /// A lock is held while an effect runs, and this is not declared.
    LockHeldWhileAnEffectRuns: an_effect_that_runs_its_own_key_never_hangs,
    /// Records are cached by each handle, and another one's writes are not seen.
    RecordsCached: a_fingerprint_is_kept_exactly,
    /// Values are cached by each handle, and nothing is seen of later writes.
    ValuesCached: a_days_calls_leave_seven_effects_and_six_receipts,

    // Leases.
    /// The holder's own claim is believed, and the record is overwritten unseen.
    HolderBelieved: a_stale_holder_changes_nothing a_stale_holder_is_refused_whatever_became_of_its_key,
    /// A claim, and a mark, are written as if the key were free.
    FreedomBelieved: a_live_claim_is_in_progress_and_another_fingerprint_conflicts,
    /// A holder's claim must be there as it was taken, so that a renewed lease is not held.
    ExpectedOrNothing: a_holder_acts_until_its_leases_last_millisecond,
    /// A claim, and a mark, need a key without a record: one that has ended is in the way.
    AbsentOrNothing: at_its_end_a_lease_is_taken_over_and_the_taker_is_told,
    /// Ending a lease removes its record: the next holder is not told.
    EndRemoves: ending_a_lease_keeps_its_record a_dropped_lease_ends_and_is_taken_over,
    /// Ending a lease leaves its end as it is.
    EndLeavesUntil: ending_a_lease_keeps_its_record,
    /// Ending a lease moves its end to its start.
    EndMovesToStart: ending_a_lease_keeps_its_record every_path_agrees_when_an_ended_lease_is_gone,
    /// That a lease was ended is kept as an instant, and not as a state: a clock that is set back brings it to life.
    EndIsAnInstant: a_lease_that_was_ended_stays_so_when_the_clock_is_set_back no_renewal_revives_a_lease_that_was_ended,
    /// Ending a lease forgets its parameters.
    FingerprintLostAtEnd: an_ended_lease_keeps_its_parameters_until_it_is_gone,
    /// The token of the lease before is not stored: whoever takes over is not told.
    TookOverLost: a_released_lease_that_took_over_is_ended a_lost_claim_that_took_over_is_ended,
    /// Releasing a key only ends its lease: the next holder is told that it takes over.
    RemoveEnds: a_released_lease_frees_its_key_at_once,
    /// What leaves a record as it is removes it.
    KeepRemoves: keeping_and_removing_do_what_they_say,
    /// What leaves a record as it is moves its start.
    KeepMovesStart: keeping_and_removing_do_what_they_say,
    /// Renewing moves the start of the lease.
    ExtendMovesStart: extending_moves_only_the_leases_end,
    /// Renewing takes a new token.
    ExtendTakesToken: renewing_extends_from_now,
    /// Renewing counts from the old end.
    ExtendFromOldEnd: renewing_extends_from_now,
    /// Renewing never makes a lease shorter.
    ExtendNeverShortens: a_ceiling_below_the_lease_cuts_it_short,
    /// A claim is kept forever once its lease has ended.
    ClaimLosesItsKeep: a_claim_is_stored_exactly,
    /// A claim is kept a millisecond less than it must be.
    KeptOneLess: every_path_agrees_when_an_ended_lease_is_gone a_claim_is_stored_exactly,
    /// How long a claim is kept counts from an end that a clock which was set back wrote.
    KeptFromAnEndBeforeTheClaim: a_clock_that_was_set_back_loses_no_evidence,
    /// Taking over keeps the record only as long as the new request says.
    KeptAsTheTakerSays: a_takeover_keeps_the_evidence_as_long_as_before,
    /// How long a claim is kept counts from the claim: renewing and ending it do not move that.
    KeptFromTheClaim: a_renewed_lease_is_kept_as_long_from_its_end every_path_agrees_when_an_ended_lease_is_gone,
    /// A claim is kept no longer than its lease.
    ClaimKeptAsLease: a_claim_is_stored_exactly,
    /// A crashed holder blocks its key for the retention.
    LeaseIsRetention: a_lease_is_not_the_retention,
    /// A completion keeps the start of the claim.
    CompletionKeepsStart: a_completed_lease_replays,
    /// A receipt's life counts from the claim.
    CompletionCountsFromClaim: a_completed_lease_replays,
    /// A receipt that replaces an expired one keeps its start.
    ReplacementKeepsStart: at_its_end_a_receipt_has_expired_and_the_key_runs_again,
    /// The id of the call is not stored.
    AttemptLost: a_claim_whose_answer_was_lost_frees_its_key,
    /// A completion keeps the id of the claim.
    AttemptOfClaimStays: a_completion_whose_answer_was_lost_is_found_again,
    /// Taking over leaves the id of the call before.
    AttemptOfBeforeStays: a_taken_over_claim_is_shown_and_its_token_is_smaller,
    /// A step runs without the record that it was asked about.
    RunSeesNoRecord: a_lease_is_kept_alive_through_long_work,
    /// A step runs by another time than it was asked with.
    RunSeesTheTimeOfOpening: keeping_alive_stops_at_its_ceiling,

    // Tokens.
    /// A token counts on from its record, and begins again when that is gone.
    TokenFromRecord: tokens_grow_strictly,
    /// A token is the time.
    TokenFromClock: tokens_grow_strictly,
    /// Tokens count from zero, and from zero again after the counter is lost.
    TokenFromZero: tokens_grow_strictly,
    /// Tokens pass through a double.
    TokenAsFloat: tokens_grow_strictly,
    /// A token is taken before the record is looked at: the winner's may be the smaller.
    TokenBeforeLook: tokens_grow_from_holder_to_holder,
    /// The counter of tokens does not survive a purge.
    PurgeTakesTokens: tokens_grow_strictly,

    // Purging.
    /// A purge compares with `<`.
    PurgeLeavesTheEdge: every_path_agrees_on_the_end,
    /// A purge comes one millisecond early.
    PurgeComesEarly: every_path_agrees_on_the_end,
    /// A purge compares times as text.
    PurgeComparesText: times_compare_as_numbers,
    /// A purge takes what never expires, since no time is before all others.
    PurgeTakesForever: forever_outlives_any_clock,
    /// A purge goes by the machine's clock, not by the store's.
    PurgeByTheWallClock: every_path_agrees_on_the_end,
    /// A purge takes a live lease whose retention has passed.
    PurgeTakesLiveLeases: a_purge_removes_no_live_lease,
    /// A purge takes a lease as soon as it has ended.
    PurgeTakesEndedLeases: a_purge_leaves_claims_until_their_retention_has_passed a_renewed_lease_is_kept_as_long_from_its_end,
    /// A purge never takes a lease.
    PurgeLeavesLeases: a_purge_leaves_claims_until_their_retention_has_passed,
    /// A purge never takes a mark.
    PurgeLeavesMarks: a_mark_lives_forever_unless_told,
    /// A purge has no limit.
    PurgeWithoutLimit: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge takes its limit for how many records it looks at.
    PurgeLimitsItsLooks: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge takes one more than its limit.
    PurgeTakesOneMore: a_purge_removes_only_the_expired_and_counts_exactly,
    /// The largest limit overflows.
    LimitOverflows: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge takes effects along.
    PurgeTakesEffects: a_purge_leaves_effects_alone,
    /// A purge removes what it saw, whatever has taken its place.
    PurgeRemovesWhatItSaw: a_purge_never_removes_what_took_an_expired_ones_place,
    /// A purge counts what it looked at.
    PurgeCountsAll: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge counts what another one has removed meanwhile.
    PurgesCountTwice: purges_at_the_same_time_count_each_record_once,
    /// A purge that finds gone what it was to remove leaves the rest.
    PurgeLeavesTheRest: purges_at_the_same_time_count_each_record_once,
    /// A purge never says that there may be more.
    PurgeNeverSaysMore: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge always says that there may be more.
    PurgeAlwaysSaysMore: a_purge_removes_only_the_expired_and_counts_exactly,
    /// A purge takes a hundred, and says that there is no more.
    PurgeCutAtAHundred: many_keys_are_listed_and_purged_to_the_last,

    // Consuming.
    /// An event is marked when it is looked at, before its handler runs: a failure is taken for a success.
    MarkedBeforeHandler: a_failure_is_not_marked_and_a_success_is a_queue_with_a_failure_and_a_duplicate_ends_at_its_sum,
    /// What an atomic handler did is told as committed before it is, and lost: its delivery is acked for nothing.
    AckedBeforeCommit: an_atomic_handler_takes_effect_once_whatever_its_store_could_tell of_many_deliveries_to_an_atomic_handler_one_takes_effect,

    // Answering.
    /// Whoever asks is told to ask again, which is never wrong and never right.
    AlwaysBusy: a_new_key_runs_and_stores_an_exact_receipt,

    // Listing.
    /// A page begins one record after the last page's end.
    ListSkipsBetweenPages: listing_in_pages_shows_each_key_once,
    /// A page begins with the last page's end.
    ListRepeatsBetweenPages: listing_in_pages_shows_each_key_once,
    /// A page has no next.
    ListEndsAfterAPage: listing_in_pages_shows_each_key_once,
    /// A page may be longer than its limit.
    ListOverItsLimit: listing_in_pages_shows_each_key_once,
    /// A page holds a hundred, and says that it is the last.
    ListCutAtAHundred: many_keys_are_listed_and_purged_to_the_last,
    /// A page begins where as many were shown: what was removed meanwhile moves the rest out of sight.
    ListByOffset: a_listing_shows_what_was_there_all_along,
    /// A listing hides what has ended.
    ListHidesTheEnded: a_claim_is_no_receipt,
    /// A listing hides claims.
    ListHidesClaims: a_claim_is_no_receipt,
    /// A listing hides marks.
    ListHidesMarks: keys_that_look_alike_are_distinct,
    /// A listing shows keys as they are compared, not as they were given.
    ListFoldsKeys: listing_in_pages_shows_each_key_once,
    /// A listing does not read the fingerprints.
    ListLeavesOutFingerprints: a_claim_is_stored_exactly,

    // Filters of a listing.
    /// The filter is taken and forgotten.
    FilterIgnored: a_filter_shows_its_namespace_alone a_filter_shows_its_operation_alone a_filter_shows_each_state_to_the_millisecond filters_combine_and_their_pages_show_each_key_once,
    /// Names under which a tenant's records lie are found by how they begin, and the tenant's does not end there.
    FilterTenantByPrefix: a_filter_shows_its_namespace_alone,
    /// A tenant is put into a pattern as it is.
    FilterTenantByPattern: a_filter_shows_its_namespace_alone,
    /// The column's collation ignores case.
    FilterTenantWithoutCase: a_filter_shows_its_namespace_alone,
    /// The default tenant is no condition.
    FilterEmptyTenantIsAll: a_filter_shows_its_namespace_alone,
    /// A consumer's events are shown as the requests of the tenant of its name.
    FilterWithoutKind: a_filter_shows_its_namespace_alone,
    /// Names under which an operation's records lie are found by how they begin.
    FilterOperationByPrefix: a_filter_shows_its_operation_alone,
    /// The operation is the second part of an index, and is looked at only behind the first.
    FilterOperationNeedsATenant: a_filter_shows_its_operation_alone,
    /// An event, which has no operation, is shown with any.
    FilterShowsEventsOfAnyOperation: a_filter_shows_its_operation_alone,
    /// States are those when the store was opened.
    FilterStateByTheTimeOfOpening: a_filter_shows_each_state_to_the_millisecond,
    /// A state lasts through the millisecond at which it ends.
    FilterStateLate: a_filter_shows_each_state_to_the_millisecond,
    /// A state ends a millisecond too early.
    FilterStateEarly: a_filter_shows_each_state_to_the_millisecond,
    /// What has expired has the state that it had.
    FilterShowsWhatIsGone: a_filter_shows_each_state_to_the_millisecond,
    /// A lease that was ended by name is held again when the clock is set back.
    FilterGoesByTheLeasesEnd: a_filter_shows_each_state_to_the_millisecond,
    /// What is no receipt is held.
    FilterTakesTheEndedForHeld: a_filter_shows_each_state_to_the_millisecond,
    /// The limit is applied first: a page of what does not match is short, and says that it is the last.
    FilterAfterTheLimit: filters_combine_and_their_pages_show_each_key_once,
    /// A cursor stands for the filter that made it, and so for none.
    FilterOnTheFirstPageAlone: a_cursor_of_another_filter_shows_no_wrong_key,

    // Reports.
    /// A step that did not run is reported as one that did.
    AlwaysSaysItRan: a_completed_key_is_claimed_only_after_its_receipt,
    /// A step that ran is reported as one that did not.
    NeverSaysItRan: a_new_key_runs_and_stores_an_exact_receipt,
    /// The record before is read after the change.
    BeforeIsAfter: a_forgotten_key_runs_again,
    /// The record before is not read.
    BeforeNotRead: a_taken_over_claim_is_shown_and_its_token_is_smaller,
    /// The record afterwards is read before the change.
    AfterIsBefore: a_new_key_runs_and_stores_an_exact_receipt,
    /// The record is not reported if the step did not run.
    KeptShowsNothing: a_repeated_key_is_replayed_and_says_so,
    /// No record is reported as left if the step did not run.
    KeptLeavesNothing: a_completed_key_is_claimed_only_after_its_receipt,
    /// The time of a commit is reported wrongly.
    RanAtTheTimeOfOpening: extending_moves_only_the_leases_end,

    // Closing, reopening, background.
    /// Receipts do not survive reopening.
    ReceiptsNotDurable: what_is_kept_survives_reopening_exactly,
    /// Effects do not survive reopening.
    EffectsNotDurable: what_is_kept_survives_reopening_exactly,
    /// Leases do not survive reopening.
    LeasesNotDurable: leases_and_their_results_survive_reopening,
    /// Marks do not survive reopening.
    MarksNotDurable: what_is_kept_survives_reopening_exactly,
    /// The counter of tokens does not survive reopening.
    TokensNotDurable: tokens_and_claims_survive_reopening,
    /// A closed store goes on.
    ClosingIsIgnored: a_closed_store_says_so,
    /// A closed store still reads.
    ReadsAfterClose: a_closed_store_says_so,
    /// A closed store's error does not say that it is closed.
    ClosedIsUntyped: a_closed_store_says_so,
    /// Closing twice is an error.
    ClosingTwiceFails: a_closed_store_says_so,
    /// A call that was under way at the closing commits after it.
    CommitsAfterClose: what_runs_at_the_closing_is_committed_before_its_end_or_never,
    /// What commits after the closing is lost, and told as committed.
    LostAfterClose: what_an_effect_did_that_closed_its_store_is_found_again,
    /// What is to run on its own does not run.
    DetachedTaskDropped: a_dropped_lease_ends_and_is_taken_over,
    /// What is to run on its own runs in the runtime of whoever asks, if there is one.
    DetachedInTheCallersRuntime: a_dropped_lease_ends_without_its_droppers_runtime,
    /// What is to run on its own needs a runtime of whoever asks.
    DetachNeedsARuntime: a_dropped_lease_ends_without_its_droppers_runtime,
    /// Closing waits for every call that is under way, also for the one that asks for it.
    CloseWaitsForItself: an_effect_that_closes_its_own_store_never_hangs,
    /// The end of a sleep overflows what counts the time.
    SleepOverflows: a_wait_beyond_time_is_a_wait,
    /// A sleep ends a millisecond early.
    SleepEndsEarly: a_sleep_counts_from_when_it_was_asked_for a_waiter_gives_up_at_its_deadline,
    /// A sleep counts from when it is first asked.
    SleepCountsFromItsFirstPoll: a_sleep_counts_from_when_it_was_asked_for,
}
