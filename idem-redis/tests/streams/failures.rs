//! Connections, servers, streams and groups that go: the queue goes on.

use std::time::Duration;

use idem_core::{ErrorKind, consumer::Queue};
use idem_redis::testing::Server;

use crate::setup::*;

fn kill_connections(server: &Server) {
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
}

#[tokio::test]
async fn a_connection_that_was_killed_is_replaced() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    for number in 0..3 {
        server.command(&["XADD", "orders", "*", "number", &number.to_string()]).unwrap();
        kill_connections(&server);
        let delivery = one(&queue).await;
        kill_connections(&server);
        queue.extend(&delivery.tag).await.unwrap();
        kill_connections(&server);
        match number {
            0 => queue.ack(&delivery.tag).await.unwrap(),
            1 => queue.set_aside(&delivery.tag, &reason()).await.unwrap(),
            _ => queue.nack(&delivery.tag, &reason()).await.unwrap(),
        }
    }
    assert_eq!(one(&queue).await.attempt, 2);
}

#[tokio::test]
async fn who_waits_on_a_connection_that_is_killed_waits_on_another() {
    let server = Server::start().unwrap();
    let queue = builder().block(Duration::from_secs(3_600)).open(&server.url()).await.unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { one(&queue).await }
    });
    for _ in 0..3 {
        eventually("it to wait", || is_waited_for(&server)).await;
        kill_connections(&server);
    }
    eventually("it to wait again", || is_waited_for(&server)).await;
    let id: String = server.query(&["XADD", "orders", "*", "number", "1"]).unwrap();
    assert_eq!(joined("who waits", waiting).await.message.id, id);
}

#[tokio::test]
async fn after_a_restart_of_the_server_it_goes_on() {
    for by_kill in [false, true] {
        let durable = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
        let mut server = durable.start().unwrap();
        let queue = open(&server).await;
        let (acked, kept, new) =
            (send(&queue, 1).await, send(&queue, 2).await, send(&queue, 3).await);
        let received = queue.receive(2).await.unwrap();
        assert_eq!(ids(&received), [acked, kept.clone()]);
        queue.ack(&received[0].tag).await.unwrap();
        if by_kill { server.kill() } else { server.stop() }.unwrap();
        server.restart().unwrap();
        queue.extend(&received[1].tag).await.unwrap();
        assert_eq!(one(&queue).await.message.id, new);
        age(&server, &kept);
        let again = one(&queue).await;
        assert_eq!((&again.message.id, again.attempt), (&kept, 2));
        queue.ack(&again.tag).await.unwrap();
        assert_eq!(ids_in_flight(&server), [new]);
    }
}

fn ids_in_flight(server: &Server) -> Vec<String> {
    in_flight(server).into_iter().map(|entry| entry.0).collect()
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_until_it_is_back() {
    let durable = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
    let mut server = durable.start().unwrap();
    let hasty = builder().response_timeout(Duration::from_millis(1_000));
    let queue = hasty.open(&server.url()).await.unwrap();
    let id = send(&queue, 1).await;
    let delivery = one(&queue).await;
    server.kill().unwrap();
    let reason = reason();
    let (receive, send_one) = (queue.receive(1), queue.send([("number", "2")]));
    let (ack, nack) = (queue.ack(&delivery.tag), queue.nack(&delivery.tag, &reason));
    let (aside, extend) = (queue.set_aside(&delivery.tag, &reason), queue.extend(&delivery.tag));
    let answers = tokio::join!(receive, send_one, ack, nack, aside, extend);
    let errors = [
        answers.0.unwrap_err(),
        answers.1.unwrap_err().into(),
        answers.2.unwrap_err(),
        answers.3.unwrap_err(),
        answers.4.unwrap_err(),
        answers.5.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(kind_of(&error), ErrorKind::Unreachable { .. }), "{error:?}");
    }
    server.restart().unwrap();
    queue.ack(&delivery.tag).await.unwrap();
    assert!(in_flight(&server).is_empty());
    let new = send(&queue, 3).await;
    assert_ne!(id, new);
    assert_eq!(one(&queue).await.message.id, new);
}

#[tokio::test]
async fn a_stream_or_a_group_that_is_gone_is_made_again() {
    for command in [&["DEL", "orders"][..], &["XGROUP", "DESTROY", "orders", "billing"]] {
        let server = Server::start().unwrap();
        let queue = open(&server).await;
        let before = send(&queue, 1).await;
        queue.ack(&one(&queue).await.tag).await.unwrap();
        server.command(command).unwrap();
        let after = send(&queue, 2).await;
        let received = ids(&queue.receive(10).await.unwrap());
        // A group that is new begins at the start.
        let expected = if command[0] == "DEL" { vec![after] } else { vec![before, after] };
        assert_eq!(received, expected);
    }
}

#[tokio::test]
async fn who_waits_for_a_stream_that_is_deleted_waits_for_a_new_one() {
    for command in [&["DEL", "orders"][..], &["XGROUP", "DESTROY", "orders", "billing"]] {
        let server = Server::start().unwrap();
        let queue = builder().block(Duration::from_secs(3_600)).open(&server.url()).await.unwrap();
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { one(&queue).await }
        });
        eventually("it to wait", || is_waited_for(&server)).await;
        server.command(command).unwrap();
        let id = send(&queue, 1).await;
        assert_eq!(joined("who waits", waiting).await.message.id, id);
    }
}

#[tokio::test]
async fn a_right_that_is_lacking_is_told() {
    let server = Server::start().unwrap();
    let queue = open(&server).await;
    for right in ["xreadgroup", "xautoclaim", "evalsha"] {
        server.command(&["ACL", "SETUSER", "default", &format!("-{right}")]).unwrap();
        let error = queue.receive(1).await.unwrap_err();
        assert!(matches!(kind_of(&error), ErrorKind::Denied), "{right}: {error:?}");
        server.command(&["ACL", "SETUSER", "default", "+@all"]).unwrap();
    }
    // All that the docs name, and no more.
    let rights = [
        "+eval",
        "+evalsha",
        "+info",
        "+time",
        "+xgroup|create",
        "+xgroup|delconsumer",
        "+xreadgroup",
        "+xautoclaim",
        "+xpending",
        "+xclaim",
        "+xack",
        "+xadd",
        "+xrange",
    ];
    let mut user = vec!["ACL", "SETUSER", "shop", "on", ">pw", "~orders", "~orders:dead"];
    user.extend(rights);
    server.command(&user).unwrap();
    let url = format!("redis://shop:pw@{}", server.address());
    let queue = builder().open(&url).await.unwrap();
    send(&queue, 1).await;
    for action in 0..3 {
        let delivery = one(&queue).await;
        queue.extend(&delivery.tag).await.unwrap();
        match action {
            0 => queue.nack(&delivery.tag, &reason()).await.unwrap(),
            1 => queue.set_aside(&delivery.tag, &reason()).await.unwrap(),
            _ => queue.ack(&delivery.tag).await.unwrap(),
        }
        if action > 0 {
            send(&queue, 2).await;
        }
    }
}
