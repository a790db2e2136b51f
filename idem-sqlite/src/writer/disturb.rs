//! How tests have a writer's engine fail.

use rusqlite::Connection;

use super::Writer;
use crate::countdown::{Countdown, Lasts, engine_error};

pub(super) type Fault = Box<dyn FnOnce(&mut Writer) -> rusqlite::Result<()> + Send>;

impl Writer {
    /// Has the next commit end with this error, after it was done or instead of it.
    pub(crate) fn fail_commit(&mut self, code: i32, after: bool) {
        self.fail_commits(Countdown::armed(1, Lasts::Once), code, after);
    }

    /// As [`Writer::fail_commit`], of the commits that the countdown strikes.
    pub(crate) fn fail_commits(&mut self, countdown: Countdown, code: i32, after: bool) {
        self.fault = Some(Box::new(move |writer| {
            let strikes = countdown.strikes();
            writer.fail_commits(countdown, code, after);
            if after || !strikes {
                writer.run_own_commit()?;
            }
            if strikes { Err(engine_error(code)) } else { Ok(()) }
        }));
    }

    /// The write connection, to disturb it.
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.transaction.connection
    }

    /// Lets the file grow by so many pages at most.
    pub(crate) fn bound_pages(&mut self, more: i64) {
        let pages = "PRAGMA page_count";
        let pages: i64 = self.connection().query_row(pages, [], |row| row.get(0)).unwrap();
        let bound = format!("PRAGMA max_page_count = {}", pages.saturating_add(more));
        self.connection().query_row(&bound, [], |_| Ok(())).unwrap();
    }
}
