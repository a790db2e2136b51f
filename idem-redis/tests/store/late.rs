//! Commits that reach the server after their time: nobody may wait for them any more, so they do nothing and
//! are sent anew with the time that the server told.

use std::sync::{Arc, Mutex};

use idem_core::{
    Certainty, ErrorKind,
    consumer::{Marked, Recorder},
};

use crate::{
    fake::{Fake, bulk},
    setup::*,
};

/// What the commits said: until when they may come into force.
type Times = Arc<Mutex<Vec<i64>>>;

/// A server whose clock is ahead of what each of the first `late` commits allows for by `ahead` milliseconds.
fn server(late: usize, ahead: i64) -> (Fake, Times) {
    let times = Times::default();
    let noted = times.clone();
    let fake = Fake::answering("7.0.15", move |command| {
        let keys: usize = command[2].parse().unwrap();
        let question = &command[3 + keys];
        let not_after = question[..13].parse::<i64>().unwrap();
        let mut times = noted.lock().unwrap();
        times.push(not_after);
        let (status, now) =
            if times.len() <= late { ("late", not_after + ahead) } else { ("done", not_after) };
        bulk(&format!("{question} {status} {now}")).trim_end().to_string()
    });
    (fake, times)
}

#[tokio::test]
async fn a_late_commit_is_sent_anew_with_the_time_it_was_told() {
    const HOUR: i64 = 3_600_000;
    let (server, times) = server(1, HOUR);
    let idem = open_with(hasty(5_000), server.url()).await;
    assert_eq!(idem.mark_processed("billing", "7").await.unwrap(), Marked::First);
    // The next one knows the time already.
    assert_eq!(idem.mark_processed("billing", "8").await.unwrap(), Marked::First);
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 3);
    assert_eq!(times[1] - times[0], HOUR + 1_000, "it is the time told, and a second more");
    assert!(times[2] >= times[1], "{times:?}");
}

#[tokio::test]
async fn a_commit_that_is_late_each_time_is_given_up() {
    let (server, times) = server(usize::MAX, 1);
    let idem = open_with(hasty(5_000), server.url()).await;
    let error = idem.mark_processed("billing", "7").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    // Each of them said that it did nothing.
    assert_eq!(error.certainty(), Certainty::NothingDone);
    assert_eq!(times.lock().unwrap().len(), 9);
}
