//! Servers with TLS: they start with certificates of their own and speak nothing else at their address.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use idem_redis::testing::{Certificates, Proxy, Server};

#[test]
fn a_server_with_tls_listens_and_says_so() {
    let certificates = Certificates::for_localhost().unwrap();
    let server = Server::builder().tls(&certificates).password("secret").start().unwrap();
    let port = server.address().port();
    assert_eq!(server.url(), format!("rediss://:secret@localhost:{port}"));
    assert_eq!(server.query::<String>(&["PING"]).unwrap(), "PONG");
    let log = server.log();
    assert!(log.contains("Ready to accept connections") && !log.contains("Failed"), "{log}");
    let found: Vec<String> = server.query(&["CONFIG", "GET", "tls-port"]).unwrap();
    assert_eq!(found, ["tls-port".to_string(), port.to_string()]);

    let proxy = Proxy::before(&server).unwrap();
    assert_eq!(proxy.url(), format!("rediss://:secret@localhost:{}", proxy.address().port()));
}

#[test]
fn a_client_without_tls_gets_no_reply() {
    let certificates = Certificates::for_localhost().unwrap();
    let server = Server::builder().tls(&certificates).start().unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = Vec::new();
    // The connection may end by a reset.
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"+PONG"), "{reply:?}");
}

#[test]
fn certificates_are_pem_and_their_key_is_not_shown() {
    let certificates = Certificates::for_localhost().unwrap();
    for pem in [certificates.authority(), certificates.certificate()] {
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    }
    assert!(certificates.key().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert_eq!(format!("{certificates:?}"), "Certificates { .. }");
}
