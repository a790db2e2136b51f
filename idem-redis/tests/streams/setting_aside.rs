//! Dead letters.

use std::error::Error as _;

use idem_core::{Certainty, Error, ErrorKind, consumer::Queue};
use idem_redis::{streams::StreamQueue, testing::Server};

use crate::setup::*;

/// The fields of the dead letters, as text.
async fn letters(server: &Server, stream: &str) -> Vec<Vec<(String, String)>> {
    let queue = StreamQueue::builder(stream, "clerk").open(&server.url()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let received = queue.receive(100).await.unwrap().into_iter();
    let fields = received.map(|letter| letter.message.fields);
    fields.map(|fields| fields.iter().map(|(n, v)| (text(n), text(v))).collect()).collect()
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[tokio::test]
async fn a_dead_letter_has_the_entry_its_id_and_the_reason() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let id = queue.send([("b", "1"), ("a", "2"), ("b", "3")]).await.unwrap();
    one(&queue).await;
    age(&server, &id);
    let delivery = one(&queue).await;
    let cause = std::fmt::Error;
    let reason = Error::nothing_done(ErrorKind::Work).with_source(cause);
    queue.set_aside(&delivery.tag, &reason).await.unwrap();
    assert!(in_flight(&server).is_empty());
    nothing_comes(&queue).await;
    let expected = fields(&[
        ("idem:reason", &format!("{reason}: {}", reason.source().unwrap())),
        ("idem:id", &id),
        ("idem:group", "billing"),
        ("idem:attempts", "2"),
        ("b", "1"),
        ("a", "2"),
        ("b", "3"),
    ]);
    assert_eq!(letters(&server, "orders:dead").await, [expected]);
}

#[tokio::test]
async fn dead_letters_go_where_they_were_told_to() {
    let server = Server::start().unwrap();
    let queue = builder().dead_letters("undone").open(&server.url()).await.unwrap();
    send(&queue, 1).await;
    queue.set_aside(&one(&queue).await.tag, &reason()).await.unwrap();
    assert_eq!(letters(&server, "undone").await.len(), 1);
    assert!(!server.query::<bool>(&["EXISTS", "orders:dead"]).unwrap());
}

#[tokio::test]
async fn of_an_entry_that_was_deleted_the_rest_is_kept() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    server.command(&["XDEL", "orders", &id]).unwrap();
    queue.set_aside(&delivery.tag, &reason()).await.unwrap();
    let expected = fields(&[
        ("idem:reason", &reason().to_string()),
        ("idem:id", &id),
        ("idem:group", "billing"),
        ("idem:attempts", "1"),
    ]);
    assert_eq!(letters(&server, "orders:dead").await, [expected]);
}

#[tokio::test]
async fn an_entry_of_many_fields_is_set_aside() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    queue.send((0..3_900).map(|number| (number.to_string(), "1"))).await.unwrap();
    queue.set_aside(&one(&queue).await.tag, &reason()).await.unwrap();
    assert_eq!(letters(&server, "orders:dead").await[0].len(), 4 + 3_900);
    // More is refused as a whole.
    queue.send((0..4_000).map(|number| (number.to_string(), "1"))).await.unwrap();
    let delivery = one(&queue).await;
    let error = queue.set_aside(&delivery.tag, &reason()).await.unwrap_err();
    assert!(matches!(kind_of(&error), ErrorKind::Store), "{error:?}");
    assert_eq!(in_flight(&server).len(), 1);
    queue.ack(&delivery.tag).await.unwrap();
}

/// A script does not roll back: an entry is set aside and acked, or stays in flight.
#[tokio::test]
async fn what_cannot_be_set_aside_stays_in_flight() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    send(&queue, 1).await;
    let delivery = one(&queue).await;
    let fails = async |expected: fn(&ErrorKind) -> bool| {
        let error = queue.set_aside(&delivery.tag, &reason()).await.unwrap_err();
        assert!(expected(kind_of(&error)), "{error:?}");
        let certainty = error.downcast_ref::<Error>().unwrap().certainty();
        assert_eq!(certainty, Certainty::NothingDone);
        assert_eq!(in_flight(&server).len(), 1);
    };

    server.command(&["SET", "orders:dead", "text"]).unwrap();
    fails(|kind| matches!(kind, ErrorKind::Damaged { .. })).await;
    server.command(&["DEL", "orders:dead"]).unwrap();

    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    fails(|kind| matches!(kind, ErrorKind::Full)).await;
    queue.extend(&delivery.tag).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();

    for right in ["xack", "xadd", "xrange", "xpending", "evalsha"] {
        server.command(&["ACL", "SETUSER", "default", &format!("-{right}")]).unwrap();
        let error = queue.set_aside(&delivery.tag, &reason()).await.unwrap_err();
        assert!(matches!(kind_of(&error), ErrorKind::Denied), "{right}: {error:?}");
        server.command(&["ACL", "SETUSER", "default", "+@all"]).unwrap();
        assert_eq!(in_flight(&server).len(), 1, "{right}");
        assert!(!server.query::<bool>(&["EXISTS", "orders:dead"]).unwrap(), "{right}");
    }
    queue.set_aside(&delivery.tag, &reason()).await.unwrap();
    assert_eq!(letters(&server, "orders:dead").await.len(), 1);
}
