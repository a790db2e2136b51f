//! Keeps an effect from ending the store's transaction and from writing to the store's own tables.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use idem_core::locks::Mutex;
use rusqlite::{
    Connection, ErrorCode,
    config::DbConfig,
    hooks::{AuthAction, AuthContext, Authorization},
    limits::Limit,
};

use crate::{refusal::refusal, schema::PREFIX};

/// What may be prepared and committed on a connection right now.
///
/// The authorizer and the hook are set once and look here: setting an authorizer anew expires every
/// prepared statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// The store's own statements; no commit. The first, since a guard starts so.
    #[default]
    Store,
    /// An effect's statements; no commit.
    Effect,
    /// The store's own commit.
    Commit,
}

/// The guard of one connection.
#[derive(Clone, Default)]
pub(crate) struct Guard(Arc<Shared>);

#[derive(Default)]
struct Shared {
    mode: AtomicU8,
    /// An effect has tried to control the transaction.
    defied: AtomicBool,
    /// An effect has made what may run in the store's own statements.
    has_trigger: AtomicBool,
    /// What was refused last, and what to do instead.
    refusal: Mutex<Option<String>>,
}

impl Guard {
    /// Guards `connection` for as long as it is open.
    pub(crate) fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self::default();
        let authorizer = guard.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            // A trigger of the user's runs in the store's statements too, where a reference cascades.
            let is_stores = !authorizer.is(Mode::Effect) && context.accessor.is_none();
            if is_stores || may_effect(&context) {
                if makes_a_trigger(&context) {
                    authorizer.0.has_trigger.store(true, Ordering::SeqCst);
                }
                return Authorization::Allow;
            }
            *authorizer.0.refusal.lock() = Some(refusal(&context));
            if controls_transaction(&context) {
                authorizer.0.defied.store(true, Ordering::SeqCst);
            }
            Authorization::Deny
        }))?;
        let hook = guard.clone();
        connection.commit_hook(Some(move || !hook.is(Mode::Commit)))?;
        Ok(guard)
    }

    /// Does something in a mode, and goes back to the one before.
    pub(crate) fn within<T>(&self, mode: Mode, work: impl FnOnce() -> T) -> T {
        let before = self.0.mode.swap(mode as u8, Ordering::SeqCst);
        let restore = Restore { mode: &self.0.mode, before };
        let result = work();
        drop(restore);
        result
    }

    /// Whether an effect has tried to control the transaction since this was asked last.
    ///
    /// It was refused, but an effect that swallows the refusal may believe that it has committed.
    pub(crate) fn take_defied(&self) -> bool {
        self.0.defied.swap(false, Ordering::SeqCst)
    }

    /// What was refused last, and what to do instead, unless it was told since.
    pub(crate) fn take_refusal(&self) -> Option<String> {
        self.0.refusal.lock().take()
    }

    /// The same error; if it says that a statement was refused, it also says what of it.
    pub(crate) fn explain(&self, error: rusqlite::Error) -> rusqlite::Error {
        match error {
            rusqlite::Error::SqliteFailure(code, message)
                if code.code == ErrorCode::AuthorizationForStatementDenied =>
            {
                // Kept, because an effect that swallows the error is told by its caller's.
                let refusal = self.0.refusal.lock().clone();
                rusqlite::Error::SqliteFailure(code, refusal.or(message))
            }
            error => error,
        }
    }

    /// Whether an effect has made a trigger, or a reference, which acts as one, since this was asked last.
    pub(crate) fn take_trigger(&self) -> bool {
        self.0.has_trigger.swap(false, Ordering::SeqCst)
    }

    fn is(&self, mode: Mode) -> bool {
        self.0.mode.load(Ordering::SeqCst) == mode as u8
    }
}

/// Also when an effect panics.
struct Restore<'g> {
    mode: &'g AtomicU8,
    before: u8,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.mode.store(self.before, Ordering::SeqCst);
    }
}

/// Pragmas that only read, or that are part of the transaction.
const PRAGMAS: [&str; 13] = [
    "application_id",
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "table_info",
    "table_list",
    "table_xinfo",
];

fn controls_transaction(context: &AuthContext<'_>) -> bool {
    matches!(context.action, AuthAction::Transaction { .. } | AuthAction::Savepoint { .. })
}

fn makes_a_trigger(context: &AuthContext<'_>) -> bool {
    matches!(
        context.action,
        AuthAction::CreateTrigger { .. }
            | AuthAction::CreateTable { .. }
            | AuthAction::AlterTable { .. }
    )
}

/// Whether an effect may prepare this: anything but transaction control, other databases, pragmas that
/// outlive it, and changes of the store's own tables.
fn may_effect(context: &AuthContext<'_>) -> bool {
    // What is temporary would outlive the effect on the store's connection, and hide tables from others.
    let is_temporary = context.database_name.is_some_and(|name| name.eq_ignore_ascii_case("temp"));
    match context.action {
        _ if controls_transaction(context) => false,
        AuthAction::Attach { .. } | AuthAction::Detach { .. } | AuthAction::Unknown { .. } => false,
        AuthAction::Pragma { pragma_name, pragma_value } => may_use(pragma_name, pragma_value),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::CreateVtable { table_name, .. }
        | AuthAction::DropTable { table_name }
        | AuthAction::DropTempTable { table_name }
        | AuthAction::DropVtable { table_name, .. } => !is_temporary && !is_own(table_name),
        AuthAction::CreateIndex { table_name, index_name }
        | AuthAction::DropIndex { table_name, index_name }
        | AuthAction::DropTempIndex { table_name, index_name } => {
            !is_own(table_name) && !is_own(index_name)
        }
        AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::DropTrigger { table_name, .. }
        | AuthAction::DropTempTrigger { table_name, .. } => !is_own(table_name),
        AuthAction::CreateView { view_name }
        | AuthAction::DropView { view_name }
        | AuthAction::DropTempView { view_name } => !is_own(view_name),
        _ => true,
    }
}

fn may_use(pragma: &str, value: Option<&str>) -> bool {
    let is = |allowed: &str| allowed.eq_ignore_ascii_case(pragma);
    // The user's own version number is part of the transaction, read or written.
    is("user_version") || (PRAGMAS.iter().any(|allowed| is(allowed)) && !sets(pragma, value))
}

fn sets(pragma: &str, value: Option<&str>) -> bool {
    pragma.eq_ignore_ascii_case("application_id") && value.is_some()
}

fn is_own(name: &str) -> bool {
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// What an effect can change on a connection without a statement, by
/// [`SqliteTransaction::connection`](crate::SqliteTransaction::connection); kept to set it back.
pub(crate) struct Settings {
    limits: Vec<(Limit, i32)>,
    configs: Vec<(DbConfig, bool)>,
}

const LIMITS: [Limit; 15] = [
    Limit::SQLITE_LIMIT_LENGTH,
    Limit::SQLITE_LIMIT_SQL_LENGTH,
    Limit::SQLITE_LIMIT_COLUMN,
    Limit::SQLITE_LIMIT_EXPR_DEPTH,
    Limit::SQLITE_LIMIT_COMPOUND_SELECT,
    Limit::SQLITE_LIMIT_VDBE_OP,
    Limit::SQLITE_LIMIT_FUNCTION_ARG,
    Limit::SQLITE_LIMIT_ATTACHED,
    Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH,
    Limit::SQLITE_LIMIT_VARIABLE_NUMBER,
    Limit::SQLITE_LIMIT_TRIGGER_DEPTH,
    Limit::SQLITE_LIMIT_WORKER_THREADS,
    Limit::SQLITE_LIMIT_PARSER_DEPTH,
    Limit::SQLITE_LIMIT_SCHEMA,
    Limit::SQLITE_LIMIT_TRIGGER_STEPS,
];

const CONFIGS: [DbConfig; 20] = [
    DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY,
    DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
    DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER,
    DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
    DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
    DbConfig::SQLITE_DBCONFIG_TRIGGER_EQP,
    DbConfig::SQLITE_DBCONFIG_RESET_DATABASE,
    DbConfig::SQLITE_DBCONFIG_DEFENSIVE,
    DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA,
    DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE,
    DbConfig::SQLITE_DBCONFIG_DQS_DML,
    DbConfig::SQLITE_DBCONFIG_DQS_DDL,
    DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
    DbConfig::SQLITE_DBCONFIG_LEGACY_FILE_FORMAT,
    DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    DbConfig::SQLITE_DBCONFIG_STMT_SCANSTATUS,
    DbConfig::SQLITE_DBCONFIG_REVERSE_SCANORDER,
    DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE,
    DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE,
    DbConfig::SQLITE_DBCONFIG_ENABLE_COMMENTS,
];

impl Settings {
    pub(crate) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let limits = LIMITS.into_iter().map(|limit| Ok((limit, connection.limit(limit)?)));
        let configs = CONFIGS.into_iter().map(|config| Ok((config, connection.db_config(config)?)));
        Ok(Self {
            limits: limits.collect::<rusqlite::Result<_>>()?,
            configs: configs.collect::<rusqlite::Result<_>>()?,
        })
    }

    pub(crate) fn restore(&self, connection: &Connection) -> rusqlite::Result<()> {
        for &(limit, value) in &self.limits {
            connection.set_limit(limit, value)?;
        }
        for &(config, value) in &self.configs {
            connection.set_db_config(config, value)?;
        }
        Ok(())
    }
}
