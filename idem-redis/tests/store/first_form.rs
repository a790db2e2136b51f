//! Records that the first version of this library wrote.

use idem_conformance::first_form::{RECORDS, is_still_purged, is_still_read};
use idem_core::{ManualClock, Timestamp};
use idem_redis::{RedisStore, testing::Server};

use crate::setup::*;

async fn stored(server: &Server) -> (Front, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(0));
    let idem = open_with(RedisStore::builder().clock(clock.clone()), &server.url()).await;
    for (name, record) in RECORDS {
        server.command(&["SET", &record_name(name), record]).unwrap();
    }
    (idem, clock)
}

#[tokio::test]
async fn records_in_the_first_form_are_read_and_replaced() {
    let server = Server::start().unwrap();
    let (idem, clock) = stored(&server).await;
    is_still_read(&idem, &clock).await;
}

#[tokio::test]
async fn records_in_the_first_form_are_purged() {
    let server = Server::start().unwrap();
    let (idem, clock) = stored(&server).await;
    is_still_purged(&idem, &clock).await;
}
