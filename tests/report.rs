//! What each backend passes of the suite, what it is not asked for and why, and what it promises:
//! `cargo test --all-features --test report -- --nocapture` prints it.

#![cfg(any(feature = "memory", feature = "sqlite", feature = "sled", feature = "redis"))]

#[cfg(feature = "memory")]
#[path = "../idem-memory/tests/fixture/mod.rs"]
mod memory;
#[cfg(feature = "redis")]
#[path = "../idem-redis/tests/fixture/server.rs"]
mod redis;
#[cfg(feature = "redis-cluster")]
#[path = "../idem-redis/tests/fixture/cluster.rs"]
mod redis_cluster;
#[cfg(feature = "sled")]
#[path = "../idem-sled/tests/fixture/mod.rs"]
mod sled;
#[cfg(feature = "sqlite")]
#[path = "../idem-sqlite/tests/fixture/mod.rs"]
mod sqlite;

use idem_conformance::Report;

/// The backends that are compiled in, each with its report.
fn reports() -> Vec<(&'static str, Report)> {
    let mut reports = Vec::new();
    #[cfg(feature = "memory")]
    {
        use memory::Memory;
        reports.push(("memory", memory::memory!(idem_conformance::report)));
    }
    #[cfg(feature = "sqlite")]
    {
        use sqlite::{InMemory, OnFile};
        reports.push(("SQLite", sqlite::on_file!(idem_conformance::report)));
        let dedicated = sqlite::dedicated_writer!(idem_conformance::report);
        reports.push(("SQLite, a writer thread", dedicated));
        reports.push(("SQLite, in memory", sqlite::in_memory!(idem_conformance::report)));
    }
    #[cfg(feature = "sled")]
    {
        use sled::Folder;
        reports.push(("sled", sled::folder!(idem_conformance::report)));
    }
    #[cfg(feature = "redis")]
    {
        use redis::OnServer;
        reports.push(("Redis", redis::on_server!(idem_conformance::report)));
        reports.push(("Redis, speculative", redis::speculative!(idem_conformance::report)));
    }
    #[cfg(feature = "redis-cluster")]
    {
        use redis_cluster::OnCluster;
        reports.push(("Redis, a cluster", redis_cluster::on_cluster!(idem_conformance::report)));
    }
    reports
}

/// A line of the table in the README.
fn line(name: &str, report: &Report) -> String {
    let (passed, omitted, promises) =
        (report.passed.len(), report.omitted.len(), report.guarantees);
    let (durability, sharing) = (promises.durability, promises.sharing);
    format!(
        "| {name} | {passed} | {omitted} | {durability:?} | {sharing:?} | {:?} |",
        promises.delays
    )
}

#[test]
fn every_backend_passes_what_it_is_asked_and_the_readme_says_so() {
    println!("What panics below does so on purpose, in the cases; the report follows.");
    let reports = reports();
    for (name, report) in &reports {
        println!("\n== {name}\n{report}");
    }
    for (name, report) in &reports {
        assert!(report.failed.is_empty(), "{name} fails {:?}", report.failed);
        let line = line(name, report);
        assert!(
            include_str!("../README.md").contains(&line),
            "the README must have the line\n{line}"
        );
    }
}
