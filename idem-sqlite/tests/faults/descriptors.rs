//! A process that may open no more files.

use std::{fs::File, iter, process::Command};

use idem_conformance::child::{Child, say};
use idem_core::{Certainty, ErrorKind};
use idem_sqlite::SqliteStore;
use tempfile::TempDir;

use crate::{orders, request, variables};

/// The child of the test below; nothing without it.
#[tokio::test]
async fn child() {
    let Some((path, _)) = orders() else { return };
    let open = idem_core::Idem::new(SqliteStore::open(&path).await.unwrap());
    let taken: Vec<File> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let refused = [
        SqliteStore::open(path.with_extension("other")).await.map(drop).unwrap_err(),
        // Its first look opens a connection.
        open.receipt(request("a").key()).await.unwrap_err(),
    ];
    drop(taken);
    for error in refused {
        assert!(matches!(error.kind(), ErrorKind::CannotOpen { .. }), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NothingDone);
        assert!(error.to_string().contains("too many files are open"), "{error}");
    }
    assert_eq!(open.receipt(request("a").key()).await.unwrap(), None);
    say("told");
}

#[test]
fn a_process_without_a_descriptor_left_is_told_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let mut shell = Command::new("sh");
    let script = "ulimit -n 64; exec \"$0\" \"$@\"";
    shell.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
    let child = Child::start_by(&mut shell, "descriptors::child", variables(&path, ""));
    child.said("told");
    child.ends();
}
