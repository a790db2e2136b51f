//! How a server is to be started.

use std::io;

use super::Server;

/// What a [`Server`] is started with.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub(crate) args: Vec<String>,
    pub(crate) password: Option<String>,
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
