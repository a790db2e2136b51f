//! Processes that open the same new files at once.

use std::path::Path;

use idem_conformance::child::{Child, hear, say};
use idem_core::Outcome;
use idem_sqlite::Synchronous;
use tempfile::TempDir;

use crate::{column, opened, orders, request, variables};

const FILES: usize = 30;
const PROCESSES: usize = 4;

fn file(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("{number}.db"))
}

/// The child of the test below; nothing without it.
#[tokio::test]
async fn child() {
    let Some((folder, me)) = orders() else { return };
    for number in 0..FILES {
        say("ready");
        hear();
        let idem = opened(&file(&folder, number), Synchronous::Full).await;
        let mine = me.clone();
        match idem.execute(&request("a"), move |_| Ok(mine.clone())).await.unwrap() {
            Outcome::Created(result) => say(&format!("created {result}")),
            Outcome::Replayed(result) => say(&format!("replayed {result}")),
            other => panic!("{other:?}"),
        }
        // While others open it.
        idem.close().await.unwrap();
    }
}

#[test]
fn of_processes_that_open_a_new_file_at_once_one_creates_and_the_others_replay() {
    let folder = TempDir::new().unwrap();
    let start =
        |number: usize| Child::start("fresh::child", variables(folder.path(), &number.to_string()));
    let mut children: Vec<_> = (0..PROCESSES).map(start).collect();
    for number in 0..FILES {
        for child in &children {
            child.said("ready");
        }
        children.iter_mut().for_each(|child| child.go_on());
        let answers = children.iter().map(|child| {
            loop {
                let line = child.line().expect("the child answers");
                if let Some((how, result)) =
                    line.split_once(' ').filter(|(how, _)| how.ends_with("ed"))
                {
                    return (how.to_string(), result.to_string());
                }
            }
        });
        let answers: Vec<_> = answers.collect();
        let created = answers.iter().filter(|(how, _)| how == "created");
        assert_eq!(created.count(), 1, "file {number}: {answers:?}");
        assert!(
            answers.iter().all(|(_, result)| *result == answers[0].1),
            "file {number}: {answers:?}"
        );
        let path = file(folder.path(), number);
        assert_eq!(column::<i64>(&path, "SELECT version FROM idem_version"), [2]);
        assert_eq!(column::<i64>(&path, "SELECT count(*) FROM idem_token"), [1]);
        assert_eq!(column::<String>(&path, "SELECT key FROM idem_records"), ["a"]);
    }
    children.into_iter().for_each(|child| drop(child.ends()));
}
