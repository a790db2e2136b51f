//! The list of the suite against the cases that exist: none is forgotten, none is named twice.

use std::collections::BTreeSet;

/// The case functions of a group's source.
fn written(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next())
}

#[test]
fn every_case_is_listed_once() {
    let suite = include_str!("../src/suite.rs");
    let groups = [
        include_str!("../src/cases/changes.rs"),
        include_str!("../src/cases/claims.rs"),
        include_str!("../src/cases/concurrency.rs"),
        include_str!("../src/cases/consumers.rs"),
        include_str!("../src/cases/consumers_disturbed.rs"),
        include_str!("../src/cases/consumers_failing.rs"),
        include_str!("../src/cases/disturbed.rs"),
        include_str!("../src/cases/consumers_queue.rs"),
        include_str!("../src/cases/effects.rs"),
        include_str!("../src/cases/holding.rs"),
        include_str!("../src/cases/keeping_alive.rs"),
        include_str!("../src/cases/keys.rs"),
        include_str!("../src/cases/leases.rs"),
        include_str!("../src/cases/lifecycle.rs"),
        include_str!("../src/cases/purge.rs"),
        include_str!("../src/cases/rollback.rs"),
        include_str!("../src/cases/ttl.rs"),
        include_str!("../src/cases/waiting.rs"),
    ];
    let written: Vec<&str> = groups.into_iter().flat_map(written).collect();
    assert!(written.len() > 80, "the cases must be found: {written:?}");
    for case in &written {
        let listed = suite.lines().filter(|line| line.trim() == *case).count();
        assert_eq!(listed, 1, "{case} must be listed once");
    }
    let distinct: BTreeSet<&str> = written.iter().copied().collect();
    assert_eq!(distinct.len(), written.len(), "a case's name must be its own");
}

#[test]
fn every_group_is_looked_at() {
    let modules = include_str!("../src/cases/mod.rs");
    let declared = modules.lines().filter(|line| line.starts_with("pub mod ")).count();
    assert_eq!(declared, 18, "a new group must be added to this file's list");
}
