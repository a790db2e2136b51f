//! What an effect is told of a statement that the guard refuses.

use rusqlite::hooks::{AuthAction, AuthContext, TransactionOperation};

const TRANSACTION: &str =
    "the store commits when the effect returns `Ok`, and rolls back when it returns an error";

const DATABASES: &str = "use tables of the store's own database";

const PRAGMA: &str = "it would outlive the effect: set it in `SqliteBuilder::on_connect`, or use a connection of your own";

const TEMPORARY: &str =
    "it would outlive the effect: use a table of your own, or a common table expression";

const OWN: &str = "names that begin with `idem_` are the store's: use the methods of `Idem` for receipts, and other \
                   names for tables of your own";

/// What an effect may not do, and what to do instead.
pub(crate) fn refusal(context: &AuthContext<'_>) -> String {
    let in_trigger = match context.accessor {
        Some(trigger) => format!(" in the trigger or view `{trigger}`"),
        None => String::new(),
    };
    let (action, instead) = refused(context);
    format!("an effect may not {action}{in_trigger}: {instead}")
}

fn refused(context: &AuthContext<'_>) -> (String, &'static str) {
    let is_temporary = context.database_name.is_some_and(|name| name.eq_ignore_ascii_case("temp"));
    let on = |verb: &str, name: &str| match is_temporary {
        // The engine's own table of what is temporary.
        true if name.starts_with("sqlite_") => ("make what is temporary".to_string(), TEMPORARY),
        true => (format!("{verb} `{name}`"), TEMPORARY),
        false => (format!("{verb} `{name}`"), OWN),
    };
    match context.action {
        AuthAction::Transaction { operation } => {
            let name = match operation {
                TransactionOperation::Begin => "BEGIN",
                TransactionOperation::Rollback => "ROLLBACK",
                _ => "COMMIT",
            };
            (name.to_string(), TRANSACTION)
        }
        AuthAction::Savepoint { savepoint_name, .. } => {
            (format!("use a savepoint (`{savepoint_name}`)"), TRANSACTION)
        }
        AuthAction::Attach { .. } => ("ATTACH".to_string(), DATABASES),
        AuthAction::Detach { .. } => ("DETACH".to_string(), DATABASES),
        AuthAction::Pragma { pragma_name, .. } => (format!("use PRAGMA {pragma_name}"), PRAGMA),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => on("write to", table_name),
        AuthAction::AlterTable { table_name, .. } => on("alter", table_name),
        AuthAction::CreateTable { table_name } | AuthAction::CreateVtable { table_name, .. } => {
            on("create", table_name)
        }
        AuthAction::DropTable { table_name } | AuthAction::DropVtable { table_name, .. } => {
            on("drop", table_name)
        }
        AuthAction::CreateIndex { index_name, .. } => on("create the index", index_name),
        AuthAction::DropIndex { index_name, .. } => on("drop the index", index_name),
        AuthAction::CreateTrigger { trigger_name, .. } => on("create the trigger", trigger_name),
        AuthAction::DropTrigger { trigger_name, .. } => on("drop the trigger", trigger_name),
        AuthAction::CreateView { view_name } => on("create the view", view_name),
        AuthAction::DropView { view_name } => on("drop the view", view_name),
        AuthAction::CreateTempTable { table_name } => (format!("create `{table_name}`"), TEMPORARY),
        AuthAction::CreateTempView { view_name } => (format!("create `{view_name}`"), TEMPORARY),
        AuthAction::CreateTempTrigger { trigger_name, .. } => {
            (format!("create `{trigger_name}`"), TEMPORARY)
        }
        AuthAction::CreateTempIndex { index_name, .. } => {
            (format!("create `{index_name}`"), TEMPORARY)
        }
        ref other => (format!("do this: {other:?}"), "use tables of your own"),
    }
}
