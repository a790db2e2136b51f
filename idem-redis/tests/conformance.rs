//! The suite on the Redis store: as it is, speculative, and on a cluster of three servers.

mod fixture {
    #[cfg(feature = "cluster")]
    pub(crate) mod cluster;
    pub(crate) mod server;
}

mod on_server {
    use super::fixture::server::OnServer;
    super::fixture::server::on_server!(idem_conformance::suite);
}

mod speculative {
    use super::fixture::server::OnServer;
    super::fixture::server::speculative!(idem_conformance::suite);
}

#[cfg(feature = "cluster")]
mod on_cluster {
    use super::fixture::cluster::OnCluster;
    super::fixture::cluster::on_cluster!(idem_conformance::suite);
}

const NATIVE: &str = "an_effect_that_ends_the_transaction_harms_only_itself";
const BUFFERED: (&str, &str) = (NATIVE, "its transaction is buffered: there is nothing to end");
const PORTABLE: (&str, &str) = (NATIVE, "a portable transaction has nothing to end");

#[test]
fn what_the_suite_omits_is_known() {
    assert_eq!(on_server::concrete::OMITTED, [BUFFERED]);
    assert_eq!(on_server::dynamic::OMITTED, [PORTABLE]);
    assert_eq!(speculative::concrete::OMITTED, [BUFFERED]);
    assert_eq!(speculative::dynamic::OMITTED, [PORTABLE]);
}

#[cfg(feature = "cluster")]
#[test]
fn what_the_suite_omits_on_a_cluster_is_known() {
    let fault = "an_error_between_effect_and_receipt_leaves_neither";
    let shared = (fault, "all cases share the cluster's memory");
    assert_eq!(on_cluster::concrete::OMITTED, [shared, BUFFERED]);
    assert_eq!(on_cluster::dynamic::OMITTED, [shared, PORTABLE]);
}
