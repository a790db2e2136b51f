//! The faulty network: each fault does what it says, and is counted.

mod common;

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use common::eventually;
use idem_redis::testing::{Mode, Moment, Proxy, Server};
use redis::{Connection, RedisResult};

fn connect(proxy: &Proxy) -> Connection {
    let client = redis::Client::open(proxy.url()).expect("a URL");
    let connection = client.get_connection().expect("a connection");
    connection.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    connection
}

fn set(connection: &mut Connection, value: &str) -> RedisResult<()> {
    redis::cmd("SET").arg("name").arg(value).query(connection)
}

fn found(server: &Server) -> Option<String> {
    server.query(&["GET", "name"]).expect("a reply")
}

#[test]
fn it_passes_everything_on_and_counts() {
    let server = Server::builder().password("secret").start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    assert_ne!(proxy.address(), server.address());
    let mut connection = connect(&proxy);
    let before = proxy.counts();
    assert_eq!(before.connections, 1);
    set(&mut connection, "value").unwrap();
    assert_eq!(found(&server).as_deref(), Some("value"));
    let after = proxy.counts();
    assert_eq!((after.requests, after.replies), (before.requests + 1, before.replies + 1));
    assert_eq!((after.delayed, after.swallowed, after.cut), (0, 0, 0));
}

#[test]
fn a_long_message_arrives_whole() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    proxy.set(Mode::DelayAll(Duration::from_millis(1)));
    let long: String = (0..1_000_000).map(|index| char::from(b'a' + (index % 23) as u8)).collect();
    let mut connection = connect(&proxy);
    set(&mut connection, &long).unwrap();
    let read: String = redis::cmd("GET").arg("name").query(&mut connection).unwrap();
    assert!(read == long);
}

#[test]
fn a_swallowed_reply_does_not_come_but_the_request_counts() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connection = connect(&proxy);
    proxy.set(Mode::SwallowReplies);
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(set(&mut connection, "value").unwrap_err().is_timeout());
    assert_eq!(found(&server).as_deref(), Some("value"));
    assert_eq!(proxy.counts().swallowed, 1);
    proxy.set(Mode::Pass);
    set(&mut connect(&proxy), "other").unwrap();
}

#[test]
fn a_cut_comes_after_the_request_and_before_the_reply() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    for round in 0..50 {
        let mut connection = connect(&proxy);
        let replies = proxy.counts().replies;
        proxy.set(Mode::CUT_ONCE);
        let value = round.to_string();
        let error = set(&mut connection, &value).unwrap_err();
        assert!(error.is_connection_dropped(), "{error}");
        eventually("the request to be worked on", || found(&server).as_ref() == Some(&value));
        assert_eq!((proxy.counts().cut, proxy.counts().replies), (round + 1, replies));
        assert_eq!(proxy.mode(), Mode::Pass);
    }
}

#[test]
fn a_cut_can_be_for_certain_requests_so_many_times() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    proxy.set(Mode::CutAfterRequest { times: 2, containing: b"name" });
    for expected in [1, 2] {
        let mut connection = connect(&proxy);
        redis::cmd("PING").query::<String>(&mut connection).unwrap();
        set(&mut connection, "value").unwrap_err();
        assert_eq!(proxy.counts().cut, expected);
    }
    set(&mut connect(&proxy), "value").unwrap();
    assert_eq!(proxy.counts().cut, 2);
}

#[test]
fn a_cut_can_come_at_each_moment_of_a_request_of_that_number() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    for (moment, arrives) in
        [(Moment::BeforeRequest, false), (Moment::AfterRequest, true), (Moment::WithinReply, true)]
    {
        for number in 1..=3 {
            let mut stream = TcpStream::connect(proxy.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let before = proxy.counts();
            proxy.set(Mode::CutAt { request: number, moment, lasts: false });
            for passed in 1..number {
                let value = passed.to_string();
                stream.write_all(format!("SET name {value}\r\n").as_bytes()).unwrap();
                let mut reply = [0; b"+OK\r\n".len()];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(found(&server), Some(value));
            }
            let last = format!("{moment:?}-{number}");
            stream.write_all(format!("SET name {last}\r\n").as_bytes()).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            let half = if moment == Moment::WithinReply { "+O" } else { "" };
            assert_eq!(rest, half.as_bytes());
            if arrives {
                eventually("the request to arrive", || found(&server).as_ref() == Some(&last));
            }
            let counts = proxy.counts();
            assert_eq!(counts.cut, before.cut + 1);
            let arrived = number as u64 - u64::from(!arrives);
            assert_eq!(counts.requests, before.requests + arrived);
            assert_eq!(found(&server).as_ref() == Some(&last), arrives);
            assert_eq!(proxy.mode(), Mode::Pass);
        }
    }
}

#[test]
fn a_cut_that_lasts_is_the_end_until_something_passes_again() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut before = connect(&proxy);
    proxy.set(Mode::CutAt { request: 1, moment: Moment::AfterRequest, lasts: true });
    set(&mut before, "value").unwrap_err();
    assert_eq!(proxy.mode(), Mode::Down);
    let requests = proxy.counts().requests;
    for _ in 0..2 {
        assert!(redis::Client::open(proxy.url()).unwrap().get_connection().is_err());
    }
    assert_eq!(proxy.counts().requests, requests);
    proxy.set(Mode::Pass);
    set(&mut connect(&proxy), "other").unwrap();
}

#[test]
fn a_delayed_reply_comes_later_than_the_effect() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connection = connect(&proxy);
    let delay = Duration::from_millis(300);
    proxy.set(Mode::DelayReplies(delay));
    let start = Instant::now();
    thread::scope(|scope| {
        let setting = scope.spawn(|| set(&mut connection, "value"));
        eventually("the effect", || found(&server).is_some());
        assert!(!setting.is_finished());
        setting.join().unwrap().unwrap();
    });
    assert!(start.elapsed() >= delay);
    assert_eq!(proxy.counts().delayed, 1);
}

#[test]
fn a_held_request_arrives_after_its_client_has_gone() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connection = connect(&proxy);
    let delay = Duration::from_millis(300);
    proxy.set(Mode::HoldRequests(delay));
    let start = Instant::now();
    connection.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert!(set(&mut connection, "value").unwrap_err().is_timeout());
    drop(connection);
    assert_eq!(found(&server), None);
    eventually("the request to arrive", || found(&server).is_some());
    assert!(start.elapsed() >= delay);
    assert_eq!(proxy.counts().delayed, 1);
}

#[test]
fn a_short_delay_is_kept_closely() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connection = connect(&proxy);
    let delay = Duration::from_micros(500);
    proxy.set(Mode::DelayAll(delay));
    let mut times: Vec<Duration> = (0..101)
        .map(|_| {
            let start = Instant::now();
            set(&mut connection, "value").unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("{:?} to {:?}, median {:?}", times[0], times[100], times[50]);
    assert!(times[0] >= 2 * delay, "{:?}", times[0]);
    // Wide, for machines that are busy with other tests.
    assert!(times[50] < 20 * delay, "{:?}", times[50]);
}

#[test]
fn delayed_messages_travel_at_the_same_time() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let delay = Duration::from_millis(200);
    proxy.set(Mode::DelayAll(delay));
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let start = Instant::now();
    for sent in 1..=20 {
        stream.write_all(b"PING\r\n").unwrap();
        // A message of its own.
        eventually("the proxy to have it", || proxy.counts().delayed >= sent);
    }
    let mut replies = [0; 20 * b"+PONG\r\n".len()];
    stream.read_exact(&mut replies).unwrap();
    let took = start.elapsed();
    assert_eq!(replies.as_slice(), b"+PONG\r\n".repeat(20));
    // One after the other they would take 8 seconds.
    assert!(took >= 2 * delay && took < 10 * delay, "{took:?}");
}

#[test]
fn a_closed_proxy_refuses_and_an_open_one_accepts_again() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut before = connect(&proxy);
    proxy.close();
    proxy.close();
    let error = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    set(&mut before, "value").unwrap();
    proxy.open().unwrap();
    proxy.open().unwrap();
    set(&mut connect(&proxy), "value").unwrap();
    assert_eq!(proxy.counts().connections, 2);
}

#[test]
fn clients_can_be_disconnected() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connections = [connect(&proxy), connect(&proxy)];
    proxy.disconnect();
    for connection in &mut connections {
        let error = set(connection, "value").unwrap_err();
        assert!(error.is_connection_dropped(), "{error}");
    }
    set(&mut connect(&proxy), "value").unwrap();
}

#[test]
fn a_server_that_is_down_or_restarted_looks_so() {
    let mut server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let mut connection = connect(&proxy);
    server.kill().unwrap();
    assert!(set(&mut connection, "value").unwrap_err().is_connection_dropped());
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.restart().unwrap();
    set(&mut connect(&proxy), "value").unwrap();
}

#[test]
fn a_dropped_proxy_leaves_no_connection() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(&server).unwrap();
    let (mut connection, address) = (connect(&proxy), proxy.address());
    drop(proxy);
    assert!(set(&mut connection, "value").is_err());
    assert!(TcpStream::connect(address).is_err());
}
