//! The store's own statements.

use std::fmt::Write;

use uuid::Uuid;

use crate::record::COLUMNS;

/// The texts of the statements that run on a guarded connection.
///
/// An effect that prepares a text which the store has prepared gets the cached statement, already
/// authorised; so every text ends with a salt that no effect can know.
pub(crate) struct Sql {
    pub(crate) begin: String,
    pub(crate) commit: String,
    pub(crate) rollback: String,
    pub(crate) savepoint: String,
    pub(crate) release: String,
    pub(crate) rollback_to: String,
    pub(crate) select: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) remove: String,
    pub(crate) last_token: String,
    pub(crate) set_token: String,
    pub(crate) due: String,
    pub(crate) list_all: String,
    pub(crate) list_namespace: String,
    pub(crate) list_operation: String,
    pub(crate) get: String,
    pub(crate) put: String,
    pub(crate) delete: String,
    /// Which of them fail when they are to run.
    #[cfg(test)]
    fault: std::sync::OnceLock<crate::countdown::Countdown>,
}

impl Sql {
    pub(crate) fn new() -> Self {
        let salt = Uuid::new_v4().simple();
        let salted = |text: &str| {
            let mut salted = text.to_string();
            write!(salted, " /* {salt} */").expect("a string takes what is written");
            salted
        };
        let of_key = "kind = ?1 AND tenant = ?2 AND operation = ?3 AND key = ?4";
        let of_value = "kind = ?1 AND tenant = ?2 AND name = ?3";
        let list = |of_part| salted(&listing(of_part));
        Self {
            begin: salted("BEGIN IMMEDIATE"),
            commit: salted("COMMIT"),
            rollback: salted("ROLLBACK"),
            savepoint: salted(&format!("SAVEPOINT idem_{salt}")),
            release: salted(&format!("RELEASE idem_{salt}")),
            rollback_to: salted(&format!("ROLLBACK TO idem_{salt}")),
            // The key as well: the order of a damaged table may lead to another key's row.
            select: salted(&format!(
                "SELECT {COLUMNS}, kind, tenant, operation, key FROM main.idem_records WHERE {of_key}"
            )),
            insert: salted(&format!(
                "INSERT INTO main.idem_records (kind, tenant, operation, key, {COLUMNS}) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
            )),
            update: salted(&format!(
                "UPDATE main.idem_records SET ({COLUMNS}) = \
                 (?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) WHERE {of_key}"
            )),
            remove: salted(&format!("DELETE FROM main.idem_records WHERE {of_key}")),
            last_token: salted("SELECT last FROM main.idem_token"),
            set_token: salted("UPDATE main.idem_token SET last = ?1"),
            due: salted(
                "SELECT kind, tenant, operation, key, expires_at FROM main.idem_records
                 WHERE expires_at <= ?1
                 AND (expires_at, kind, tenant, operation, key) > (?3, ?4, ?5, ?6, ?7)
                 ORDER BY expires_at, kind, tenant, operation, key LIMIT ?2",
            ),
            list_all: list("(kind, tenant, operation, key) > (?1, ?2, ?3, ?4)"),
            list_namespace: list("kind = ?1 AND tenant = ?2 AND (operation, key) > (?3, ?4)"),
            list_operation: list("kind = ?1 AND tenant = ?2 AND operation = ?3 AND key > ?4"),
            get: salted(&format!(
                "SELECT value, kind, tenant, name FROM main.idem_values WHERE {of_value}"
            )),
            put: salted(
                "INSERT INTO main.idem_values (kind, tenant, name, value) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (kind, tenant, name) DO UPDATE SET value = excluded.value",
            ),
            delete: salted(&format!("DELETE FROM main.idem_values WHERE {of_value}")),
            #[cfg(test)]
            fault: std::sync::OnceLock::new(),
        }
    }

    /// Has them fail when the countdown strikes; they count it down.
    #[cfg(test)]
    pub(crate) fn fail_at(&self, countdown: &crate::countdown::Countdown) {
        assert!(self.fault.set(countdown.clone()).is_ok(), "one fault is enough");
    }

    /// Fails in the place of a statement, if it is the turn of that one: as the engine does when the disk fails,
    /// which ends the transaction.
    #[cfg(test)]
    pub(crate) fn fail(&self, connection: &rusqlite::Connection) -> rusqlite::Result<()> {
        if !self.fault.get().is_some_and(crate::countdown::Countdown::strikes) {
            return Ok(());
        }
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        Err(crate::countdown::engine_error(rusqlite::ffi::SQLITE_IOERR_READ))
    }

    /// The statements on idem's own tables.
    pub(crate) fn on_tables(&self) -> [&str; 13] {
        [
            &self.select,
            &self.insert,
            &self.update,
            &self.remove,
            &self.last_token,
            &self.set_token,
            &self.due,
            &self.list_all,
            &self.list_namespace,
            &self.list_operation,
            &self.get,
            &self.put,
            &self.delete,
        ]
    }
}

/// The statement that goes through the records of a part of the table, in the order of keys.
///
/// ?5 is the operation and ?6 the state that is shown, or NULL; ?7 is the time. Of a record that is not shown it reads
/// neither the result, which may be long, nor whether the rest is sound. A record without a state is damaged: it is
/// shown, so that somebody is told.
fn listing(of_part: &str) -> String {
    let is_shown = "(?5 IS NULL OR operation = ?5) AND (?6 IS NULL OR ?6 IS coalesce(CASE
        WHEN state = 'claimed' AND lease_end > ?7 THEN 'held'
        WHEN expires_at <= ?7 THEN 'gone'
        WHEN state = 'completed' THEN 'completed'
        WHEN state = 'ended' OR state = 'claimed' AND lease_end <= ?7 THEN 'ended'
        END, ?6))";
    let columns = COLUMNS.replace("result", &format!("CASE WHEN {is_shown} THEN result END"));
    format!(
        "SELECT {columns}, kind, tenant, operation, key, {is_shown} FROM main.idem_records
         WHERE {of_part} ORDER BY kind, tenant, operation, key"
    )
}
