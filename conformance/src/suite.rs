//! The one list of cases, and the macro that makes tests of it.

/// Expands to a test for each case of the suite: for the fixture's store as it is (`concrete`) and behind
/// `Arc<DynStore>` (`dynamic`), each with its omitted cases and their reasons in a constant `OMITTED`.
///
/// Every capability is declared, with `yes` or with `no("the reason")`:
///
/// - `reopen`: the store finds its data again after its last handle was closed;
/// - `receipt_faults`: [`Fixture::refuse_receipts`](crate::Fixture::refuse_receipts) works;
/// - `hostile_effects`: native effects can try to end the store's transaction.
///
/// ```ignore
/// idem_conformance::suite! {
///     fixture: MyFixture,
///     reopen: yes,
///     receipt_faults: no("the engine has no way to refuse a write"),
///     hostile_effects: no("the transaction is portable"),
/// }
/// ```
#[macro_export]
macro_rules! suite {
    (
        fixture: $fixture:ty,
        reopen: $reopen:ident $(($no_reopen:literal))?,
        receipt_faults: $faults:ident $(($no_faults:literal))?,
        hostile_effects: $hostile:ident $(($no_hostile:literal))? $(,)?
    ) => {
        /// The suite on the store as it is.
        mod concrete {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases! {
                $fixture,
                [$reopen $($no_reopen)?] [$faults $($no_faults)?] [$hostile $($no_hostile)?]
            }
        }
        /// The suite on the store behind `Arc<DynStore>`.
        mod dynamic {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases! {
                $crate::Dynamic<$fixture>,
                [$reopen $($no_reopen)?] [$faults $($no_faults)?]
                [no "a portable transaction has nothing to end"]
            }
        }
    };
}

/// The list. A case is named once, here; the kit's own tests compare it with the functions that exist.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($fixture:ty, $reopen:tt $faults:tt $hostile:tt) => {
        $crate::__group! { $fixture, lifecycle, current_thread,
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
            reading_a_receipt_changes_nothing
            a_forgotten_key_runs_again
            effects_of_two_keys_on_one_value_both_count
            an_effect_reads_its_own_tenants_values_and_its_own_writes
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __group {
    ($fixture:ty, $group:ident, current_thread, $($case:ident)*) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[$crate::tokio::test(crate = "idem_conformance::tokio")]
                async fn $case() {
                    $crate::cases::$group::$case::<$fixture>().await;
                }
            )*
        }
    };
    ($fixture:ty, $group:ident, multi_thread, $($case:ident)*) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[$crate::tokio::test(
                    crate = "idem_conformance::tokio",
                    flavor = "multi_thread",
                    worker_threads = 4
                )]
                async fn $case() {
                    $crate::cases::$group::$case::<$fixture>().await;
                }
            )*
        }
    };
}
