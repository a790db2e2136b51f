//! The suite on the SQLite store: on a file, on a file with a writer thread of its own, and in memory.

mod fixture;

mod on_file {
    use super::fixture::OnFile;
    super::fixture::on_file!(idem_conformance::suite);
}

mod dedicated_writer {
    use super::fixture::OnFile;
    super::fixture::dedicated_writer!(idem_conformance::suite);
}

mod in_memory {
    use super::fixture::InMemory;
    super::fixture::in_memory!(idem_conformance::suite);
}

const NATIVE: (&str, &str) = (
    "an_effect_that_ends_the_transaction_harms_only_itself",
    "a portable transaction has nothing to end",
);

#[test]
fn what_the_suite_omits_is_known() {
    assert_eq!(on_file::concrete::OMITTED, []);
    assert_eq!(on_file::dynamic::OMITTED, [NATIVE]);
    assert_eq!(dedicated_writer::concrete::OMITTED, []);
    assert_eq!(dedicated_writer::dynamic::OMITTED, [NATIVE]);
    let fault = "an_error_between_effect_and_receipt_leaves_neither";
    let no_fault = (fault, "there is no second connection to make a trigger by");
    let gone = "nothing survives the store";
    let reopened = [
        ("what_an_effect_did_that_closed_its_store_is_found_again", gone),
        ("what_is_kept_survives_reopening_exactly", gone),
        ("tokens_and_claims_survive_reopening", gone),
        ("leases_and_their_results_survive_reopening", gone),
        ("a_dropped_lease_is_ended_before_its_store_closes", gone),
    ];
    let omitted = [no_fault, reopened[0], reopened[1], reopened[2], reopened[3], reopened[4]];
    assert_eq!(in_memory::concrete::OMITTED, omitted);
    assert_eq!(
        in_memory::dynamic::OMITTED,
        [no_fault, NATIVE, reopened[0], reopened[1], reopened[2], reopened[3], reopened[4]]
    );
}
