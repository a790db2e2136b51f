//! Which server a URL names.

use idem_core::{Error, ErrorKind};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError,
    RedisResult, io::tcp::TcpSettings,
};

use crate::link::{Timeouts, Wire};

/// A server, or the servers of a cluster.
#[derive(Clone)]
pub(crate) enum Target {
    Single {
        client: Box<Client>,
        config: Box<AsyncConnectionConfig>,
    },
    #[cfg(feature = "cluster")]
    Cluster {
        client: Box<redis::cluster::ClusterClient>,
        first_host: String,
    },
}

/// What a connection is opened with, besides its URL.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) timeouts: Timeouts,
    #[cfg(feature = "tls")]
    pub(crate) root_certificates: Option<Vec<u8>>,
}

impl Target {
    /// The target of a URL.
    ///
    /// No error shows the URL: it may hold a password.
    pub(crate) fn of(url: &str, options: &Options) -> Result<Self, Error> {
        if url.chars().any(char::is_control) || url.trim() != url {
            return Err(invalid(
                "it has a control character, or begins or ends with a space: leave it out",
            ));
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("begin it with `redis://` or one of its kind"))?;
        if scheme.starts_with("rediss") && cfg!(not(feature = "tls")) {
            return Err(invalid(
                "build with the feature `tls` of idem-redis, or `redis-tls` of idem-store, to use TLS",
            ));
        }
        if scheme != "redis+unix" {
            check_authority(rest)?;
        }
        match scheme {
            "redis" | "rediss" | "redis+unix" => Self::single(url, options),
            "redis+cluster" => Self::cluster("redis", rest, options),
            "rediss+cluster" => Self::cluster("rediss", rest, options),
            _ => Err(invalid(
                "its scheme is none of `redis`, `rediss`, `redis+unix`, `redis+cluster` and \
                 `rediss+cluster`",
            )),
        }
    }

    fn single(url: &str, options: &Options) -> Result<Self, Error> {
        let info = info(url)?;
        let client = client(info, options).map_err(|error| unusable(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.timeouts.connection))
            .set_response_timeout(Some(options.timeouts.response));
        Ok(Self::Single { client: Box::new(client), config: Box::new(config) })
    }

    #[cfg(feature = "cluster")]
    fn cluster(scheme: &str, rest: &str, options: &Options) -> Result<Self, Error> {
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), rest),
        };
        if user.contains(',') {
            return Err(invalid(
                "a cluster has one user and password: name them before its first host",
            ));
        }
        if hosts.contains(['/', '?']) {
            return Err(invalid("a cluster has one database and no path: name hosts alone"));
        }
        let nodes = hosts.split(',').map(|host| info(&format!("{scheme}://{user}{host}")));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let first_host = match nodes.first().map(ConnectionInfo::addr) {
            Some(ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => {
                host.clone()
            }
            _ => return Err(invalid("a cluster is named by hosts")),
        };
        let Timeouts { connection, response } = options.timeouts;
        let builder = redis::cluster::ClusterClientBuilder::new(nodes)
            .tcp_settings(tcp())
            .connection_timeout(connection)
            .response_timeout(response)
            .overall_response_timeout(Some(response))
            // It would send a commit again without our knowing. It learns where slots are all the same.
            .retries(0);
        #[cfg(feature = "tls")]
        let builder = match (scheme, certificates(options)) {
            ("rediss", certificates) => {
                choose_cryptography();
                certificates.into_iter().fold(builder, |builder, given| builder.certs(given))
            }
            _ => builder,
        };
        let client = builder.build().map_err(|error| unusable(&error))?;
        Ok(Self::Cluster { client: Box::new(client), first_host })
    }

    #[cfg(not(feature = "cluster"))]
    fn cluster(_: &str, _: &str, _: &Options) -> Result<Self, Error> {
        Err(invalid(
            "build with the feature `cluster` of idem-redis, or `redis-cluster` of idem-store, to open a \
             cluster",
        ))
    }

    pub(crate) fn first_host(&self) -> &str {
        match self {
            Self::Single { .. } => "",
            #[cfg(feature = "cluster")]
            Self::Cluster { first_host, .. } => first_host,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self, Self::Single { .. })
    }

    pub(crate) async fn connect(&self) -> RedisResult<Wire> {
        match self {
            Self::Single { client, config } => {
                client.get_multiplexed_async_connection_with_config(config).await.map(Wire::Single)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster { client, .. } => client.get_async_connection().await.map(Wire::Cluster),
        }
    }
}

/// Refuses what a reader of URLs would take to end in the midst of a password, so that the rest would pass for something
/// else.
fn check_authority(rest: &str) -> Result<(), Error> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if rest[end..].contains('@') {
        return Err(invalid(
            "it has an `@` after a `/`, a `?` or a `#`: in a user's name and password write these as %2F, %3F and %23",
        ));
    }
    Ok(())
}

/// The error of a URL that the driver refuses.
fn unusable(error: &RedisError) -> Error {
    let told = error.to_string();
    // It may quote the URL at its end.
    let told = told.strip_suffix(error.detail().unwrap_or_default()).unwrap_or(error.category());
    invalid(&format!("the driver cannot use it: {}", told.trim_end_matches(": ")))
}

fn info(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|error| unusable(&error))?;
    if url.contains('#') && !url.starts_with("rediss:") {
        return Err(invalid("it has a `#`, and what follows would be ignored: write it as %23"));
    }
    if url.contains('?') && !matches!(info.addr(), ConnectionAddr::Unix(_)) {
        return Err(invalid(
            "it has options that would be ignored: leave out the `?` and the rest, and set them on the builder, or \
             open by `idem_store::open`",
        ));
    }
    let settings = info.redis_settings();
    if settings.username().is_some() && settings.password().is_none() {
        return Err(invalid(
            "it names a user without a password, whom nobody would log in: a user of `nopass` takes any",
        ));
    }
    Ok(info.set_tcp_settings(tcp()))
}

/// Without Nagle's algorithm (`TCP_NODELAY`): with it the second of two callers on a connection would wait until the
/// first one's command is acknowledged, which is when its reply comes.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _: &Options) -> RedisResult<Client> {
    Client::open(info)
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, options: &Options) -> RedisResult<Client> {
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Client::open(info);
    }
    choose_cryptography();
    match certificates(options) {
        Some(certificates) => Client::build_with_tls(info, certificates),
        None => Client::open(info),
    }
}

/// The TLS library panics where a program has more than one provider of cryptography built in, by whatever else
/// it depends on, and has chosen none.
#[cfg(feature = "tls")]
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails if another thread has chosen one meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn certificates(options: &Options) -> Option<redis::TlsCertificates> {
    let root_cert = options.root_certificates.clone()?;
    Some(redis::TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
}

fn invalid(problem: &str) -> Error {
    let kind = ErrorKind::InvalidSetting { field: "URL", problem: problem.to_string() };
    Error::nothing_done(kind)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn target(url: &str) -> Target {
        of(url).unwrap()
    }

    fn of(url: &str) -> Result<Target, Error> {
        let second = Duration::from_secs(1);
        let options = Options {
            timeouts: Timeouts { connection: second, response: second },
            #[cfg(feature = "tls")]
            root_certificates: None,
        };
        Target::of(url, &options)
    }

    #[test]
    fn a_command_does_not_wait_for_the_acknowledgement_of_another() {
        let urls: &[&str] = if cfg!(feature = "tls") {
            &["redis://localhost:1", "rediss://localhost:1"]
        } else {
            &["redis://localhost:1"]
        };
        for url in urls {
            let Target::Single { client, .. } = target(url) else { panic!("{url} is one server") };
            assert!(client.get_connection_info().tcp_settings().nodelay(), "{url}");
        }
    }

    #[test]
    fn what_the_driver_would_leave_out_is_refused() {
        for url in [
            "redis://bob@localhost:1",
            "redis+unix:///tmp/socket?user=bob",
            "redis://local\nhost:1",
            "redis://localhost:1\t",
            "redis://localhost:1 ",
            " redis://localhost:1",
        ] {
            let error = of(url).err().unwrap();
            let is_url = matches!(error.kind(), ErrorKind::InvalidSetting { field: "URL", .. });
            assert!(is_url, "{url:?}: {error:?}");
        }
        for url in ["redis://bob:x@localhost:1", "redis://:x@localhost:1", "redis://localhost:1"] {
            assert!(of(url).is_ok(), "{url:?}");
        }
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn nor_does_one_to_a_cluster() {
        let Target::Cluster { client, .. } = target("redis+cluster://localhost:1,localhost:2")
        else {
            panic!("a cluster")
        };
        let shown = format!("{client:?}");
        assert!(shown.contains("nodelay: true") && !shown.contains("nodelay: false"), "{shown}");
    }
}
