//! TLS: it works without any preparation by the user, and what is wrong has a kind.

use idem_core::{Error, ErrorKind, Outcome};
use idem_redis::{
    RedisBuilder,
    testing::{Certificates, Server},
};

use crate::setup::*;

fn start() -> (Certificates, Server) {
    let certificates = Certificates::for_localhost().unwrap();
    let server = Server::builder().tls(&certificates).password("secret").start().unwrap();
    (certificates, server)
}

async fn refused(builder: RedisBuilder, url: &str) -> Error {
    let error = builder.open(url).await.map(|_| panic!("{url} was opened")).unwrap_err();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    error
}

#[tokio::test]
async fn a_server_is_reached_by_tls() {
    let (certificates, server) = start();
    let builder = hasty(5_000).root_certificates(certificates.authority());
    let idem = open_with(builder, &server.url()).await;
    assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Created(1));
    assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Replayed(1));
    // Also by the connection after the first.
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap_or_default();
    assert_eq!(added(&idem, "k").await.unwrap(), Outcome::Replayed(1));
}

/// Where several providers of cryptography are built in, the TLS library wants one to be chosen, and panics
/// if none is: a user who opens a store should not have to know.
#[tokio::test]
async fn a_provider_of_cryptography_is_chosen() {
    let (certificates, server) = start();
    open_with(hasty(5_000).root_certificates(certificates.authority()), &server.url()).await;
    assert!(rustls::crypto::CryptoProvider::get_default().is_some());
}

#[tokio::test]
async fn an_authority_that_is_not_trusted_is_an_error() {
    let (_, server) = start();
    let error = refused(hasty(100), &server.url()).await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    let other = Certificates::for_localhost().unwrap();
    let error = refused(hasty(100).root_certificates(other.authority()), &server.url()).await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("ertificate"), "it says why: {source}");
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_bear_is_an_error() {
    let (certificates, server) = start();
    let url = server.url().replace("localhost", "127.0.0.2");
    let error = refused(hasty(100).root_certificates(certificates.authority()), &url).await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn certificates_that_are_none_are_refused() {
    let (_, server) = start();
    for pem in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "odd"] {
        let error = refused(hasty(100).root_certificates(pem), &server.url()).await;
        let is_refused = matches!(
            error.kind(),
            ErrorKind::InvalidSetting { .. } | ErrorKind::Unreachable { .. }
        );
        assert!(is_refused, "{pem:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_port_with_the_other_protocol_is_an_error() {
    let (certificates, server) = start();
    let plain = server.url().replace("rediss", "redis");
    let error = refused(hasty(100), &plain).await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
    let server = Server::start().unwrap();
    let url = server.url().replace("redis", "rediss").replace("127.0.0.1", "localhost");
    let error = refused(hasty(100).root_certificates(certificates.authority()), &url).await;
    assert!(matches!(error.kind(), ErrorKind::Unreachable { .. }), "{error:?}");
}
