//! Connections that only read, on the caller's thread.

use std::{sync::Arc, time::Duration};

use idem_core::locks::{Mutex, RwLock};
use idem_core::{Error, ErrorKind};
use rusqlite::{Connection, ErrorCode};

use crate::{failure::failed, options::Config, schema, sql::Sql, tables::Tables};

/// Connections kept open when nobody reads.
const KEPT: usize = 16;

/// The reading side of a store on a file: as many connections as threads read at the same time.
pub(crate) struct Readers {
    config: Arc<Config>,
    sql: Sql,
    /// None once closed. Reading shares the lock, closing waits for it.
    idle: RwLock<Option<Mutex<Vec<Connection>>>>,
}

impl Readers {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let idle = RwLock::new(Some(Mutex::new(Vec::new())));
        Self { config, sql: Sql::new(), idle }
    }

    /// Reads one state of the committed tables.
    ///
    /// It never waits for another process: if one is in the way, the answer is [`ErrorKind::Busy`] at once.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(Tables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let idle = self.idle.read();
        let Some(idle) = &*idle else { return Err(Error::nothing_done(ErrorKind::Closed)) };
        let kept = idle.lock().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open().map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::CannotOpen) => {
                    schema::explain(&self.config.location, error, Duration::ZERO)
                }
                _ => failed(error),
            })?,
        };
        let result = work(Tables { connection: &connection, sql: &self.sql });
        if result.is_ok() {
            let mut idle = idle.lock();
            if idle.len() < KEPT {
                idle.push(connection);
            }
        }
        result
    }

    /// Does something with the connection that reads next.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(crate) fn borrow(&self, work: impl FnOnce(&mut Connection, &Sql)) {
        let mut connection = self.open().unwrap();
        work(&mut connection, &self.sql);
        self.idle.read().as_ref().unwrap().lock().push(connection);
    }

    /// Waits for those who read, and closes all connections.
    pub(crate) fn close(&self) {
        *self.idle.write() = None;
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let connection = self.config.connect()?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }
}
