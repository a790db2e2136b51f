//! The suite on the sled store.

mod fixture;

use fixture::Folder;

fixture::folder!(idem_conformance::suite);

#[test]
fn what_the_suite_omits_is_known() {
    let fault = (
        "an_error_between_effect_and_receipt_leaves_neither",
        "the engine refuses no single write: what keeps it from one keeps it from all",
    );
    let case = "an_effect_that_ends_the_transaction_harms_only_itself";
    let buffered = (case, "its transaction is buffered: there is nothing to end");
    let portable = (case, "a portable transaction has nothing to end");
    assert_eq!(concrete::OMITTED, [fault, buffered]);
    assert_eq!(dynamic::OMITTED, [fault, portable]);
}
