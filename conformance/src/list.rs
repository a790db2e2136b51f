//! The one list of cases.

/// The list. A case is named once, here; the kit's own tests compare it with the functions that exist.
///
/// It is handed to the macro of the kit that is named first, after the fixture and how its store is run: as it is
/// (`concrete`) or behind `DynStore` (`dynamic`).
///
/// An entry is `group as module, runtime, [yes] { cases }`, the runtime being `current_thread`, `multi_thread` or
/// `both_runtimes`; in the place of `[yes]` stands the capability that its cases need. Where an effect blocks its thread until
/// another caller has got on, one thread would drive neither.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($to:ident $fixture:tt, $reopen:tt $faults:tt $hostile:tt) => {
        $crate::$to! { $fixture
            lifecycle as lifecycle, current_thread, [yes] {
                a_new_key_runs_and_stores_an_exact_receipt
                a_repeated_key_is_replayed_and_says_so
                a_replay_is_byte_identical_through_every_handle
                another_fingerprint_conflicts_and_changes_nothing
                an_absent_fingerprint_equals_only_an_absent_one
                every_part_of_a_key_tells_it_apart
                an_effect_runs_on_neither_replay_nor_conflict
                empty_and_falsy_results_replay_as_what_they_were
                a_result_over_the_limit_is_refused_with_its_effect
                a_result_that_does_not_decode_is_never_a_new_run
                a_result_that_would_not_read_back_is_refused
                absent_and_empty_results_are_told_apart
                reading_a_receipt_changes_nothing
                a_forgotten_key_runs_again
                a_closed_store_says_so
                effects_of_two_keys_on_one_value_both_count
                an_effect_reads_its_own_tenants_values_and_its_own_writes
                values_and_their_names_are_kept_to_the_byte
                an_effect_of_many_writes_is_committed_whole
            }
            rollback as rollback_of_dropped_callers, multi_thread, [yes] {
                a_caller_dropped_at_any_await_leaves_the_key_whole
            }
            rollback as rollback, both_runtimes, [yes] {
                an_effects_error_reaches_its_caller_and_leaves_nothing
                a_retry_after_an_error_creates_one_effect
                an_error_after_many_writes_leaves_everything_as_before
                a_panic_is_rolled_back_and_told_to_its_caller_alone
                a_panic_with_any_payload_is_rolled_back
                a_refused_result_takes_back_what_its_effect_wrote
                many_cancelled_callers_leave_each_key_whole
                a_refusal_returned_as_a_result_is_remembered
            }
            rollback as rollback_of_refused_receipts, both_runtimes, $faults {
                an_error_between_effect_and_receipt_leaves_neither
            }
            rollback as rollback_of_hostile_effects, both_runtimes, $hostile {
                an_effect_that_ends_the_transaction_harms_only_itself
            }
            effects as effects, multi_thread, [yes] {
                an_effect_run_again_leaves_one_set_of_writes
                the_run_that_is_committed_says_when_it_started
                effects_that_read_what_the_other_writes_take_turns
                an_effect_does_not_go_by_what_was_deleted_meanwhile
                an_effect_and_its_receipt_are_seen_together
                an_error_of_an_effect_that_misread_is_never_told
                a_panic_of_an_effect_that_misread_is_never_told
                no_error_of_a_misread_is_told_while_others_write
                an_effect_that_always_misreads_ends_in_a_typed_error
                an_effect_that_runs_another_key_never_hangs
                an_effect_that_runs_its_own_key_never_hangs
                an_effect_that_reads_its_own_store_never_hangs
                an_effect_that_closes_its_own_store_never_hangs
            }
            effects as effects_after_reopening, multi_thread, $reopen {
                what_an_effect_did_that_closed_its_store_is_found_again
            }
            concurrency as concurrency, multi_thread, [yes] {
                callers_of_one_key_create_once_and_replay_alike
                of_two_fingerprints_only_the_winners_side_is_served
                callers_of_many_keys_do_not_disturb_each_other
                a_counter_shared_by_many_keys_is_exact
                the_loser_of_a_race_never_sees_an_error
                an_expired_key_under_contention_runs_once_more
                after_a_winner_rolls_back_one_of_the_others_runs
                a_slow_effect_delays_no_more_than_declared
                what_runs_at_the_closing_is_committed_before_its_end_or_never
            }
            concurrency as concurrency_on_one_thread, current_thread, [yes] {
                two_callers_of_one_key_on_one_thread_both_finish
            }
            ttl as ttl, current_thread, [yes] {
                one_millisecond_before_its_end_a_receipt_replays
                at_its_end_a_receipt_has_expired_and_the_key_runs_again
                one_millisecond_after_its_end_a_receipt_has_expired
                a_days_calls_leave_seven_effects_and_six_receipts
                every_path_agrees_on_the_end
                an_expired_receipt_behaves_as_a_purged_one
                what_does_not_run_does_not_extend_the_life
                the_life_counts_from_the_runs_start
                retention_is_exact_in_milliseconds
                a_retention_of_zero_or_beyond_time_is_refused_before_the_effect
                forever_outlives_any_clock
                a_clock_that_steps_back_loses_nothing
                times_compare_as_numbers
                a_purge_leaves_effects_alone
            }
            purge as purge, current_thread, [yes] {
                a_purge_removes_only_the_expired_and_counts_exactly
                many_keys_are_listed_and_purged_to_the_last
                a_background_purge_keeps_its_interval_and_ends_with_its_handle
                a_background_purge_of_nothing_is_refused
            }
            purge as purge_in_parallel, multi_thread, [yes] {
                a_purge_never_removes_what_took_an_expired_ones_place
                purges_at_the_same_time_count_each_record_once
            }
            keys as keys, current_thread, [yes] {
                keys_that_look_alike_are_distinct
                owners_that_look_alike_have_spaces_of_their_own
                what_is_no_key_is_refused_alike
                parts_of_255_bytes_are_kept_whole
                listing_in_pages_shows_each_key_once
                a_listing_shows_what_was_there_all_along
                equal_fingerprints_replay_and_different_ones_conflict
                a_fingerprint_is_kept_exactly
            }
            keys as keys_after_reopening, current_thread, $reopen {
                what_is_kept_survives_reopening_exactly
            }
            listing as listing, current_thread, [yes] {
                a_filter_shows_its_namespace_alone
                a_filter_shows_its_operation_alone
                a_filter_shows_each_state_to_the_millisecond
                filters_combine_and_their_pages_show_each_key_once
                a_cursor_of_another_filter_shows_no_wrong_key
            }
            claims as claims, current_thread, [yes] {
                a_live_claim_is_in_progress_and_another_fingerprint_conflicts
                a_claim_holds_until_its_last_millisecond
                a_taken_over_claim_is_shown_and_its_token_is_smaller
                a_completed_key_is_claimed_only_after_its_receipt
                a_live_claim_is_not_forgotten_and_an_ended_one_is
                a_claim_is_no_receipt
                a_purge_leaves_claims_until_their_retention_has_passed
                a_claimed_event_is_neither_processed_nor_marked
                a_holder_acts_until_its_leases_last_millisecond
                a_stale_holder_changes_nothing
                tokens_grow_strictly
            }
            claims as claims_in_parallel, multi_thread, [yes] {
                tokens_grow_from_holder_to_holder
                of_many_claims_one_wins
                a_lease_renewed_meanwhile_is_not_taken_over
            }
            claims as claims_after_reopening, current_thread, $reopen {
                tokens_and_claims_survive_reopening
            }
            leases as leases, both_runtimes, [yes] {
                a_lease_keeps_others_out_until_its_end
                a_completed_lease_replays
                a_lease_completes_with_bytes
                a_released_lease_frees_its_key_at_once
                an_ended_lease_is_taken_over_at_once
                at_its_end_a_lease_is_taken_over_and_the_taker_is_told
                a_stale_holder_is_refused_whatever_became_of_its_key
                a_holder_acts_until_the_last_millisecond
                renewing_extends_from_now
                tokens_grow_whatever_ended_the_lease
                a_lease_is_not_the_retention
                complete_with_commits_its_writes_with_the_receipt
                a_result_that_cannot_be_stored_leaves_the_lease_held
                a_lease_of_zero_or_beyond_time_is_refused
                of_many_who_take_over_one_lease_one_wins
                a_purge_removes_no_live_lease
                a_lease_moves_to_another_task
                a_clock_that_steps_back_makes_no_lease_longer
            }
            leases as leases_after_reopening, current_thread, $reopen {
                leases_and_their_results_survive_reopening
                a_dropped_lease_is_ended_before_its_store_closes
            }
            unfinished as unfinished, current_thread, [yes] {
                an_ended_lease_keeps_its_parameters_until_it_is_gone
                every_path_agrees_when_an_ended_lease_is_gone
                a_renewed_lease_is_kept_as_long_from_its_end
                a_lease_that_was_ended_stays_so_when_the_clock_is_set_back
                a_clock_that_was_set_back_loses_no_evidence
                a_takeover_keeps_the_evidence_as_long_as_before
                no_renewal_revives_a_lease_that_was_ended
                a_released_lease_that_took_over_is_ended
                a_claim_that_refuses_to_take_over_writes_nothing
                a_lost_claim_that_took_over_is_ended
                an_unknown_outcome_is_settled
                a_live_lease_is_ended_by_its_key
                an_ended_lease_of_an_event_stops_no_mark
            }
            holding as holding, both_runtimes, [yes] {
                a_dropped_lease_ends_and_is_taken_over
                a_dropped_lease_ends_without_its_droppers_runtime
                a_dropped_stale_lease_leaves_its_successor_alone
                an_abandoned_lease_stays_until_its_end
                a_cancelled_claim_leaves_its_key_free
                what_runs_with_a_lease_is_done_once
                a_failure_with_a_lease_follows_its_policy
                work_that_outlives_its_lease_is_reported
                a_panic_with_a_lease_ends_it
            }
            keeping_alive as keeping_alive, both_runtimes, [yes] {
                a_lease_is_kept_alive_through_long_work
                keeping_alive_stops_at_its_ceiling
                a_ceiling_below_the_lease_cuts_it_short
                a_longer_lease_is_not_cut_by_keeping_it_alive
                a_lease_lost_while_kept_alive_is_reported
                what_cannot_be_kept_alive_is_refused_before_the_work
                a_renewal_that_fails_is_tried_again
            }
            disturbed as disturbed, both_runtimes, [yes] {
                a_completion_whose_answer_was_lost_is_found_again
                what_was_completed_stays_when_its_lease_is_dropped
                a_doubt_stays_until_it_is_settled
                a_claim_whose_answer_was_lost_frees_its_key
                what_was_done_is_recorded_when_the_store_is_back
                what_cannot_be_recorded_is_reported
            }
            waiting as waiting, both_runtimes, [yes] {
                a_waiter_is_woken_by_a_completion_and_asks_nothing_before
                a_waiter_runs_when_the_holder_lets_go
                a_waiter_gives_up_at_its_deadline
                a_waiter_runs_when_the_lease_ends
                a_waiter_looks_again_when_the_lease_is_made_shorter
                a_waiter_elsewhere_gets_the_result_and_asks_now_and_then
                a_cancelled_waiter_strands_nobody
                of_many_waiters_one_runs
                only_a_live_lease_is_waited_for
                holders_take_turns_and_nobody_is_stranded
                a_sleep_counts_from_when_it_was_asked_for
                a_wait_beyond_time_is_a_wait
            }
            changes as changes, current_thread, [yes] {
                a_claim_is_stored_exactly
                extending_moves_only_the_leases_end
                ending_a_lease_keeps_its_record
                keeping_and_removing_do_what_they_say
                a_steps_writes_are_committed_with_its_change
                a_failed_step_leaves_neither_write_nor_change
            }
            consumers as consumers, both_runtimes, [yes] {
                a_marked_event_is_processed_and_marking_again_says_so
                consumers_do_not_see_each_others_marks
                of_many_marks_one_is_first
                a_failure_is_not_marked_and_a_success_is
                a_recorded_event_is_a_duplicate_to_a_handler
                an_atomic_handler_that_failed_leaves_no_write
                a_handler_does_not_run_on_a_claimed_event
                a_handler_whose_mark_cannot_be_made_does_not_run
                a_mark_lives_forever_unless_told
                a_consumer_is_no_tenant_of_its_name
                of_many_deliveries_to_an_atomic_handler_one_takes_effect
                a_repeated_event_with_another_payload_is_a_conflict_if_asked
                a_payload_without_a_fingerprint_does_not_run
            }
            consumers_queue as queues, both_runtimes, [yes] {
                a_queue_with_a_failure_and_a_duplicate_ends_at_its_sum
                a_delivery_that_was_not_acked_takes_no_second_effect
                duplicates_are_acked_without_running
                a_poisoned_message_is_set_aside_while_others_go_on
                a_late_ack_settles_nothing
                a_panicking_handler_is_a_failed_delivery
                deliveries_of_one_event_at_the_same_time_run_once
                many_deliveries_are_handled_at_the_same_time
                many_loops_on_one_queue_handle_each_event_once
                a_loop_that_is_ended_finishes_what_it_began_and_begins_no_more
                a_delivery_is_kept_in_flight_while_it_is_in_hand
                a_queue_that_fails_for_a_while_is_asked_again
                a_claimed_event_waits_for_its_leases_end_and_costs_no_attempt
                a_conflict_is_set_aside_at_once
            }
            consumers_failing as queues_failing, both_runtimes, [yes] {
                an_event_is_in_progress_until_its_lease_ends_whatever_its_payload
                a_pause_does_not_last_beyond_the_lease
                handlers_that_fail_in_a_row_slow_the_loop_down
                a_message_that_comes_too_often_is_set_aside_without_running
                a_delivery_that_was_lost_before_it_began_is_dropped
                troubles_are_told
                more_deliveries_than_asked_for_wait_for_their_places
                an_end_that_takes_too_long_is_cut
                a_visibility_of_zero_is_refused
                marks_that_may_expire_too_early_are_refused
                a_closed_store_ends_the_loop_and_gives_back
                a_queue_that_fails_once_stalls_nobody
                an_effect_that_races_against_itself_is_set_aside
            }
            consumers_disturbed as queues_disturbed, both_runtimes, [yes] {
                while_a_mark_cannot_be_made_it_alone_is_tried_again
                a_mark_in_doubt_is_asked_for_again
                a_look_that_fails_is_made_again_before_the_handler_runs
                an_atomic_handler_takes_effect_once_whatever_its_store_could_tell
                what_is_wrong_with_one_delivery_costs_it_an_attempt
                a_store_that_cannot_be_read_costs_no_attempt
                a_key_in_use_is_in_no_other_deliverys_way
                a_loop_that_is_ended_while_its_store_fails_asks_once_more
                a_look_that_succeeds_after_the_end_begins_nothing
                a_mark_is_tried_on_after_the_end
                a_store_that_does_not_answer_does_not_hold_up_the_end
            }
        }
    };
}
