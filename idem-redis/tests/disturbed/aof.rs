//! An append-only file whose end was cut: a commit is in it as a whole or not at all.

use std::{fs, path::PathBuf};

use idem_core::Outcome;
use idem_redis::testing::Server;

use crate::setup::*;

fn file_of(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.folder().join("appendonlydir")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|file| file.to_str().unwrap().ends_with(".incr.aof")).unwrap()
}

fn length_of(server: &Server) -> usize {
    usize::try_from(fs::metadata(file_of(server)).unwrap().len()).unwrap()
}

#[tokio::test]
async fn of_a_commit_whose_end_was_cut_off_neither_effect_nor_receipt_is_left() {
    let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let mut server = builder.start().unwrap();
    let idem = open(&server.url()).await;
    assert_eq!(added(&idem, "early").await.unwrap(), Outcome::Created(1));
    let start = length_of(&server);
    assert_eq!(added(&idem, "late").await.unwrap(), Outcome::Created(1));
    let end = length_of(&server);
    server.kill().unwrap();
    let whole = fs::read(file_of(&server)).unwrap();
    // The last byte alone, the first alone, and many between.
    let between = (start + 1..end - 1).step_by(((end - start) / 25).max(1));
    for length in between.chain([start, end - 1, end]) {
        server.kill().unwrap();
        fs::write(file_of(&server), &whole[..length]).unwrap();
        server.restart().unwrap();
        let is_whole = length == end;
        assert_eq!(has_record(&server, "late"), is_whole, "{length} of {start} to {end}");
        assert_eq!(value_of(&server, "late").is_some(), is_whole, "{length} of {start} to {end}");
        assert_eq!(added(&idem, "early").await.unwrap(), Outcome::Replayed(1));
        let again = if is_whole { Outcome::Replayed(1) } else { Outcome::Created(1) };
        assert_eq!(added(&idem, "late").await.unwrap(), again);
        assert_eq!(count(&idem, "late").await, 1);
    }
}
