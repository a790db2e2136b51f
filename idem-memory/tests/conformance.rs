//! The suite on the memory store.

mod fixture;

use fixture::Memory;

fixture::memory!(idem_conformance::suite);

#[test]
fn what_the_suite_omits_is_known() {
    let case = "an_effect_that_ends_the_transaction_harms_only_itself";
    let reason = "its transaction is portable: there is nothing to end";
    let gone = "nothing survives the process";
    let reopened = [
        ("what_an_effect_did_that_closed_its_store_is_found_again", gone),
        ("what_is_kept_survives_reopening_exactly", gone),
        ("tokens_and_claims_survive_reopening", gone),
        ("leases_and_their_results_survive_reopening", gone),
        ("a_dropped_lease_is_ended_before_its_store_closes", gone),
    ];
    let portable = "a portable transaction has nothing to end";
    assert_eq!(
        concrete::OMITTED,
        [(case, reason), reopened[0], reopened[1], reopened[2], reopened[3], reopened[4]]
    );
    assert_eq!(
        dynamic::OMITTED,
        [(case, portable), reopened[0], reopened[1], reopened[2], reopened[3], reopened[4]]
    );
}
