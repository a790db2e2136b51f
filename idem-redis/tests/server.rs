//! The servers that tests start: they run, they obey, and nothing of them stays behind.

mod common;

use std::{
    io::{self, BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use common::eventually;
use idem_redis::testing::Server;

/// Whether a server listens there.
fn is_alive(address: SocketAddr) -> bool {
    match TcpStream::connect(address) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            false
        }
    }
}

fn ping(url: &str) -> redis::RedisResult<String> {
    redis::cmd("PING").query(&mut redis::Client::open(url)?.get_connection()?)
}

#[test]
fn it_answers_at_both_addresses() {
    let server = Server::start().unwrap();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    assert_eq!(ping(&server.unix_url()).unwrap(), "PONG");
    assert!(server.url().starts_with("redis://127.0.0.1:"));
    assert!(server.socket().starts_with(server.folder()));
    assert!(server.log().contains("Ready to accept connections"), "{}", server.log());
}

#[test]
fn a_command_has_its_reply_or_error() {
    let server = Server::start().unwrap();
    server.command(&["SET", "name", "some value"]).unwrap();
    assert_eq!(server.query::<String>(&["GET", "name"]).unwrap(), "some value");
    assert!(server.command(&["NO-SUCH-COMMAND"]).is_err());
    assert!(server.query::<i64>(&["GET", "name"]).is_err());
}

#[test]
fn a_setting_of_the_caller_overrides() {
    let server = Server::builder().arg("--appendonly", "yes").start().unwrap();
    let found: Vec<String> = server.query(&["CONFIG", "GET", "appendonly"]).unwrap();
    assert_eq!(found, ["appendonly", "yes"]);
}

#[test]
fn a_setting_that_the_server_refuses_is_an_error_with_its_words() {
    let error = Server::builder().arg("--no-such-setting", "yes").start().unwrap_err();
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}

#[test]
fn a_password_is_asked_for_and_is_in_the_urls() {
    let server = Server::builder().password("secret").start().unwrap();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
    assert_eq!(ping(&server.unix_url()).unwrap(), "PONG");
    let error = ping(&format!("redis://{}", server.address())).unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"));
}

#[test]
fn many_start_at_the_same_time() {
    let servers: Vec<Server> = thread::scope(|scope| {
        let started: Vec<_> = (0..16).map(|_| scope.spawn(Server::start)).collect();
        started.into_iter().map(|server| server.join().unwrap().unwrap()).collect()
    });
    for (number, server) in servers.iter().enumerate() {
        server.command(&["SET", "number", &number.to_string()]).unwrap();
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.query::<usize>(&["GET", "number"]).unwrap(), number);
    }
}

#[test]
fn a_dropped_server_is_gone_with_its_folder() {
    let server = Server::start().unwrap();
    let (address, folder) = (server.address(), server.folder().to_path_buf());
    assert!(is_alive(address) && folder.exists());
    drop(server);
    assert!(!is_alive(address) && !folder.exists());
}

#[test]
fn a_restart_keeps_the_address_and_what_was_to_be_kept() {
    for graceful in [true, false] {
        let builder = Server::builder().arg("--appendonly", "yes").arg("--appendfsync", "always");
        let mut server = builder.start().unwrap();
        let (address, id) = (server.address(), server.process_id());
        server.command(&["SET", "name", "value"]).unwrap();
        if graceful { server.stop() } else { server.kill() }.unwrap();
        assert_eq!(server.process_id(), None);
        assert!(ping(&server.url()).is_err() && ping(&server.unix_url()).is_err());
        server.restart().unwrap();
        assert_eq!(server.address(), address);
        assert_ne!(server.process_id(), id);
        assert_eq!(server.query::<String>(&["GET", "name"]).unwrap(), "value");
        assert_eq!(ping(&server.url()).unwrap(), "PONG");
    }
}

#[test]
fn without_a_file_a_restart_forgets() {
    let mut server = Server::start().unwrap();
    server.command(&["SET", "name", "value"]).unwrap();
    server.restart().unwrap();
    assert_eq!(server.query::<Option<String>>(&["GET", "name"]).unwrap(), None);
}

#[test]
fn a_server_that_ended_by_itself_can_be_stopped_and_restarted() {
    let mut server = Server::start().unwrap();
    assert!(server.command(&["SHUTDOWN"]).is_err());
    server.stop().unwrap();
    server.restart().unwrap();
    assert!(server.command(&["SHUTDOWN"]).is_err());
    server.restart().unwrap();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
}

#[test]
fn a_paused_server_answers_nothing_until_it_is_resumed() {
    let server = Server::start().unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    server.pause().unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = redis::cmd("PING").query::<String>(&mut connection).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    server.resume().unwrap();
    assert_eq!(ping(&server.url()).unwrap(), "PONG");
}

/// In one test: the other tests of this program do not use the shared server.
#[test]
fn the_shared_server_lives_as_long_as_somebody_holds_it() {
    let first = Server::shared().unwrap();
    let second = Server::shared().unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let (address, id) = (first.address(), first.process_id());
    drop(first);
    assert!(is_alive(address));
    drop(second);
    assert!(!is_alive(address));
    let third = Server::shared().unwrap();
    assert_ne!(third.process_id(), id);
}

/// What [`killing_the_program_ends_its_servers`] runs in a process of its own: for itself it does nothing.
#[test]
fn program_to_be_killed() {
    if std::env::var_os("IDEM_TO_BE_KILLED").is_none() {
        return;
    }
    let server = Server::start().unwrap();
    println!("\nSERVER {} {}", server.address(), server.folder().display());
    // It is killed before the other end is closed; and if the test dies first, this ends too.
    let read = io::stdin().read_line(&mut String::new()).unwrap();
    panic!("it must be killed before {read} bytes come");
}

#[test]
fn killing_the_program_ends_its_servers() {
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program_to_be_killed", "--nocapture"])
        .env("IDEM_TO_BE_KILLED", "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let found = lines.map(Result::unwrap).find(|line| line.starts_with("SERVER ")).unwrap();
    let words: Vec<&str> = found.split(' ').collect();
    let (address, folder) = (words[1].parse().unwrap(), Path::new(words[2]));
    assert!(is_alive(address) && folder.exists());
    program.kill().unwrap();
    program.wait().unwrap();
    eventually("the server to end", || !is_alive(address));
    eventually("its folder to go", || !folder.exists());
}
