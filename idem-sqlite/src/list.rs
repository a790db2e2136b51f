//! Listing: a page of the records that a filter shows.

use idem_core::{Cursor, Error, Filter, Key, KeyState, Kind, Page, Timestamp};

use crate::{
    failure::{damaged, failed},
    record::{WIDTH, column_of, damaged_at, key_of_row, of_row},
    sql::Sql,
    tables::Tables,
};

/// Where in the table a page begins, and by which statement.
struct Start<'f> {
    statement: &'f str,
    kind: &'f str,
    tenant: &'f str,
    operation: &'f str,
    request: &'f str,
}

impl<'f> Start<'f> {
    /// The first place after `after` in the part of the table that the filter shows; none if that part lies before.
    fn of(sql: &'f Sql, filter: &'f Filter, after: Option<&'f Key>) -> Option<Self> {
        let (mut kind, mut tenant, mut operation, mut request) = match after {
            Some(key) => (key.kind().as_str(), key.tenant(), key.operation(), key.request()),
            None => ("", "", "", ""),
        };
        let Some(space) = filter.only_namespace() else {
            let statement = &sql.list_all;
            return Some(Self { statement, kind, tenant, operation, request });
        };
        let namespace = (space.kind().as_str(), space.owner());
        if (kind, tenant) != namespace {
            if (kind, tenant) > namespace {
                return None;
            }
            (kind, tenant, operation, request) = (namespace.0, namespace.1, "", "");
        }
        let Some(only) = filter.only_operation() else {
            let statement = &sql.list_namespace;
            return Some(Self { statement, kind, tenant, operation, request });
        };
        if operation != only {
            if operation > only || space.kind() == Kind::Event {
                return None;
            }
            (operation, request) = (only, "");
        }
        Some(Self { statement: &sql.list_operation, kind, tenant, operation, request })
    }
}

/// The name of a state in the statements.
fn name_of(state: KeyState) -> &'static str {
    match state {
        KeyState::Completed => "completed",
        KeyState::Held => "held",
        KeyState::Ended => "ended",
    }
}

/// At most `limit` records after that key which the filter shows, in the order of keys.
pub(crate) fn list(
    tables: Tables<'_>,
    filter: &Filter,
    after: Option<&Key>,
    limit: usize,
    now: Timestamp,
) -> Result<Page, Error> {
    let Some(start) = Start::of(tables.sql, filter, after) else {
        return Ok(Page::new(Vec::new(), None, now));
    };
    let mut list = tables.prepare(start.statement).map_err(failed)?;
    let (operation, state) = (filter.only_operation(), filter.only_state().map(name_of));
    let Start { kind, tenant, operation: first, request, .. } = start;
    let wanted = (kind, tenant, first, request, operation, state, now.as_millis());
    let mut rows = list.query(wanted).map_err(failed)?;
    let (mut records, mut skipped, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next().map_err(failed)? {
        if records.len() == limit || skipped == Filter::MAX_SKIPPED {
            // One more is there, which the next page looks at, and tells if it is damaged.
            return Ok(Page::new(records, last, now));
        }
        let is_shown: bool = column_of(row, WIDTH + 4)?;
        skipped += usize::from(!is_shown);
        if !is_shown && skipped < Filter::MAX_SKIPPED {
            continue;
        }
        let key = key_of_row(row, WIDTH)?;
        last = Some(Cursor::after(&key));
        if !is_shown {
            continue;
        }
        if !filter.matches_key(&key) {
            return Err(damaged("another key's record lies among those that were asked for"));
        }
        let record = of_row(row).map_err(|error| damaged_at(error, &key))?;
        records.push((key, record));
    }
    Ok(Page::new(records, None, now))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::create_tables;
    use idem_core::{ErrorKind, Space};
    use rusqlite::Connection;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn tables() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        create_tables(&mut connection).unwrap();
        connection
    }

    /// So many receipts of a tenant, which never expire.
    fn fill(connection: &Connection, tenant: &str, count: usize) {
        let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
            INSERT INTO idem_records (kind, tenant, operation, key, state, created_at, attempt, result)
            SELECT 'request', ?1, 'order', printf('%06d', i), 'completed', 0, zeroblob(16), '1' FROM n";
        connection.execute(sql, (tenant, i64::try_from(count).unwrap())).unwrap();
    }

    fn page(connection: &Connection, filter: &Filter, after: Option<&Key>) -> Result<Page, Error> {
        let sql = Sql::new();
        list(Tables { connection, sql: &sql }, filter, after, 10, NOW)
    }

    fn of_tenant(tenant: &str) -> Filter {
        Filter::all().tenant(tenant).unwrap()
    }

    #[test]
    fn a_page_searches_its_part_of_the_table_by_the_primary_key() {
        let connection = tables();
        let sql = Sql::new();
        for (statement, condition) in [
            (&sql.list_all, "((kind,tenant,operation,key)>(?,?,?,?))"),
            (&sql.list_namespace, "(kind=? AND tenant=? AND (operation,key)>(?,?))"),
            (&sql.list_operation, "(kind=? AND tenant=? AND operation=? AND key>?)"),
        ] {
            let mut explain =
                connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let count = explain.parameter_count();
            let nothing = rusqlite::params_from_iter(vec![rusqlite::types::Null; count]);
            let plan = explain.query_map(nothing, |row| row.get("detail")).unwrap();
            let plan: Vec<String> = plan.map(Result::unwrap).collect();
            // One step: no sorting either.
            assert_eq!(plan.len(), 1, "{plan:?}");
            let is_search = plan[0].starts_with("SEARCH ");
            assert!(
                is_search && plan[0].ends_with(&format!("PRIMARY KEY {condition}")),
                "{plan:?}"
            );
        }
    }

    #[test]
    fn a_page_passes_over_a_bounded_number_of_records() {
        let connection = tables();
        fill(&connection, "a", Filter::MAX_SKIPPED + 5);
        fill(&connection, "b", 1);
        let held = Filter::all().state(KeyState::Held);
        let first = page(&connection, &held, None).unwrap();
        assert_eq!(first.records, []);
        let next = first.next.unwrap().key().unwrap();
        assert_eq!((next.tenant(), next.request()), ("a", "010000"));
        let second = page(&connection, &held, Some(&next)).unwrap();
        assert_eq!((second.records.len(), second.next), (0, None));
        // Those of other tenants are not even passed over.
        let of_b = page(&connection, &of_tenant("b"), None).unwrap();
        assert_eq!((of_b.records.len(), of_b.next), (1, None));
    }

    #[test]
    fn a_page_begins_at_its_part_wherever_its_cursor_is() {
        let connection = tables();
        for tenant in ["a", "b", "c"] {
            fill(&connection, tenant, 3);
        }
        let of = |tenant, operation, request| Key::new(tenant, operation, request).unwrap();
        let orders = of_tenant("b").operation("order").unwrap();
        let events = Filter::all().in_namespace(&Space::consumer("b").unwrap());
        for (filter, after, shown) in [
            (&of_tenant("b"), of("a", "order", "000003"), 3),
            (&of_tenant("b"), of("b", "a", "000003"), 3),
            (&of_tenant("b"), of("b", "order", "000001"), 2),
            (&of_tenant("b"), of("b", "z", "000000"), 0),
            (&of_tenant("b"), of("c", "order", "000000"), 0),
            (&orders, of("b", "a", "z"), 3),
            (&orders, of("b", "order", "000002"), 1),
            (&orders, of("b", "orders", "000000"), 0),
            (&orders, Key::event("z", "z").unwrap(), 3),
            (&events, of("b", "order", "000000"), 0),
            (&events.clone().operation("order").unwrap(), Key::event("b", "a").unwrap(), 0),
        ] {
            let page = page(&connection, filter, Some(&after)).unwrap();
            assert_eq!(page.records.len(), shown, "{filter:?} after {after:?}");
            assert_eq!(page.next, None);
            assert!(page.records.iter().all(|(key, _)| key.tenant() == "b"));
        }
    }

    #[test]
    fn a_record_whose_state_cannot_be_told_is_damaged_in_every_state_of_its_tenant() {
        let connection = tables();
        fill(&connection, "a", 1);
        fill(&connection, "b", 1);
        for odd in ["state = 'odd'", "state = 'claimed', lease_end = NULL, token = 7"] {
            let sql = format!("UPDATE idem_records SET {odd} WHERE tenant = 'a'");
            connection.execute(&sql, ()).unwrap();
            for state in KeyState::ALL {
                let error = page(&connection, &of_tenant("a").state(state), None).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{odd}: {error:?}");
                let of_b = page(&connection, &of_tenant("b").state(state), None).unwrap();
                assert_eq!(of_b.records.len(), usize::from(state == KeyState::Completed));
            }
        }
    }
}
