//! How a server is to be started.

use std::io;

use super::{Certificates, Server};

/// What a [`Server`] is started with.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub(crate) args: Vec<String>,
    pub(crate) password: Option<String>,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) is_cluster: bool,
}

impl Builder {
    /// A setting of `redis-server`, such as `("--appendonly", "yes")`. It overrides the harness's own.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_string(), value.to_string()]);
        self
    }

    /// The password that clients must give. The server's URLs contain it as it is: no reserved characters.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_string());
        self
    }

    /// With TLS on the loopback address, and nothing else there. Clients need no certificate: to ask for one,
    /// add `("--tls-auth-clients", "yes")`.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// As a node of a cluster.
    pub(crate) fn cluster(mut self) -> Self {
        self.is_cluster = true;
        self
    }

    /// Starts the server and returns when it answers.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no program `redis-server`; others if the server ends, with what it printed, or
    /// does not answer in 20 seconds.
    pub fn start(self) -> io::Result<Server> {
        Server::start_with(self)
    }
}
