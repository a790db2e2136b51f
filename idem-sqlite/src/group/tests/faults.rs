//! What the engine fails with: a full disk, a commit that fails.

use idem_core::Transaction as _;

use super::*;

#[test]
fn a_full_disk_fails_only_those_who_do_not_fit() {
    let bench = Bench::new();
    let mut lead_in = bench.insert(1);
    bench.take_turns();
    assert!(ran(&mut lead_in));
    // The engine's own bound on the file's size answers as a full disk does.
    bench.queue.borrow_writer(|writer| writer.bound_pages(4));
    let mut small = bench.insert(2);
    let mut large = bench.queue("large", |tx| {
        tx.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
             INSERT INTO parent SELECT i FROM n",
            [],
        )?;
        Ok(())
    });
    let mut other = bench.insert(3);
    bench.take_turns();
    assert!(ran(&mut small) && ran(&mut other));
    let error = refused(&mut large);
    let engine = error.effect_error::<rusqlite::Error>().unwrap();
    assert_eq!(engine.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
    assert_eq!(error.certainty(), idem_core::Certainty::NothingDone);
    assert_eq!(bench.orders(), ["1", "2", "3"]);
    bench.queue.borrow_writer(|writer| writer.bound_pages(i32::MAX.into()));
    let mut again = bench.queue("large", |tx| {
        tx.execute("INSERT INTO parent VALUES (7)", [])?;
        Ok(())
    });
    bench.take_turns();
    assert!(ran(&mut again), "after room was made the key runs");
}

/// Does not fit.
const LARGE: &str = "INSERT INTO large VALUES (zeroblob(1000000))";

#[test]
fn an_effect_that_swallows_a_full_disk_is_told_of_the_disk() {
    let effects: [(&str, Effect); 4] = [
        ("the transaction is gone", |tx| {
            drop(tx.execute(LARGE, []));
            Ok(())
        }),
        ("the next statement finds none", |tx| {
            drop(tx.execute(LARGE, []));
            Ok(tx.execute_batch("INSERT INTO orders VALUES (9)")?)
        }),
        ("a value", |tx| {
            drop(tx.put(b"large", &[7; 1_000_000]));
            Ok(())
        }),
        ("what it misses shows at the commit", |tx| {
            drop(tx.execute(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
                 INSERT INTO parent SELECT i FROM n",
                [],
            ));
            Ok(tx.execute("INSERT INTO child VALUES (1)", []).map(drop)?)
        }),
    ];
    for (name, effect) in effects {
        let bench = Bench::new();
        let mut tables =
            bench.queue("tables", |tx| Ok(tx.execute_batch("CREATE TABLE large (b)")?));
        bench.take_turns();
        assert!(ran(&mut tables));
        bench.queue.borrow_writer(|writer| writer.bound_pages(4));
        let mut answer = bench.queue(name, effect);
        bench.take_turns();
        let error = refused(&mut answer);
        assert!(matches!(error.kind(), ErrorKind::Full), "{name}: {error:?}");
        assert_eq!(error.certainty(), idem_core::Certainty::NothingDone, "{name}");
        let mut next = bench.insert(2);
        bench.take_turns();
        assert!(ran(&mut next), "{name}: the disk is not full for what fits");
    }
}

#[test]
fn an_effect_that_does_with_less_when_the_disk_is_full_is_committed() {
    let bench = Bench::new();
    bench.queue.borrow_writer(|writer| writer.bound_pages(4));
    let mut answer = bench.queue("less", |tx| {
        let large = tx.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
             INSERT INTO parent SELECT i FROM n",
            [],
        );
        assert!(large.is_err());
        Ok(tx.execute("INSERT INTO orders VALUES (1)", []).map(drop)?)
    });
    bench.take_turns();
    assert!(ran(&mut answer));
    assert_eq!(bench.orders(), ["1"]);
}

#[test]
fn an_input_output_error_at_the_commit_is_unknown_and_the_same_key_tells() {
    for is_committed in [false, true] {
        let bench = Bench::new();
        let mut first = bench.insert(1);
        let mut failed = bench.queue("failed", |tx| {
            tx.execute("INSERT INTO orders VALUES (900)", [])?;
            Err("declined".into())
        });
        let mut second = bench.insert(2);
        let mut lead = bench.queue.lead().unwrap();
        lead.writer().fail_commit(rusqlite::ffi::SQLITE_IOERR_FSYNC, is_committed);
        assert_eq!(turn(&mut lead, Wait::Yes), Turn::Done);
        drop(lead);
        for answer in [&mut first, &mut second] {
            let error = refused(answer);
            assert_eq!(error.certainty(), idem_core::Certainty::Unknown, "{error:?}");
        }
        let declined = refused(&mut failed);
        assert_eq!(declined.certainty(), idem_core::Certainty::NothingDone, "it was undone");
        // The same key tells, on a connection of its own; nothing is there twice.
        let mut again = bench.insert(1);
        bench.take_turns();
        assert_eq!(ran(&mut again), !is_committed);
        let orders: &[&str] = if is_committed { &["1", "2"] } else { &["1"] };
        assert_eq!(bench.orders(), orders);
    }
}

#[test]
fn a_commit_that_certainly_failed_is_run_again_alone() {
    let bench = Bench::new();
    let mut answers = [bench.insert(1), bench.insert(2)];
    let mut lead = bench.queue.lead().unwrap();
    lead.writer().fail_commit(rusqlite::ffi::SQLITE_FULL, false);
    assert_eq!(turn(&mut lead, Wait::Yes), Turn::Done);
    drop(lead);
    assert_eq!(bench.take_turns(), 2);
    assert!(answers.iter_mut().all(ran));
    assert_eq!(bench.orders(), ["1", "2"]);
}

#[test]
fn a_failed_commit_is_certain_only_where_the_log_cannot_hold_it() {
    use idem_core::Certainty::{NothingDone, Unknown};
    use rusqlite::ffi;
    let failures = [
        (ffi::SQLITE_BUSY, NothingDone, "busy"),
        (ffi::SQLITE_LOCKED, NothingDone, "busy"),
        (ffi::SQLITE_FULL, NothingDone, "full"),
        (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, NothingDone, "effect"),
        (ffi::SQLITE_INTERRUPT, NothingDone, "store"),
        (ffi::SQLITE_READONLY, NothingDone, "store"),
        (ffi::SQLITE_IOERR, Unknown, "store"),
        (ffi::SQLITE_IOERR_WRITE, Unknown, "store"),
        (ffi::SQLITE_IOERR_FSYNC, Unknown, "store"),
        (ffi::SQLITE_IOERR_SHORT_READ, Unknown, "store"),
        (ffi::SQLITE_CORRUPT, Unknown, "store"),
        (ffi::SQLITE_NOMEM, Unknown, "store"),
        (ffi::SQLITE_PROTOCOL, Unknown, "store"),
    ];
    for (code, certainty, kind) in failures {
        let bench = Bench::new();
        let mut answer = bench.insert(1);
        let mut lead = bench.queue.lead().unwrap();
        lead.writer().fail_commit(code, false);
        assert_eq!(turn(&mut lead, Wait::Yes), Turn::Done);
        drop(lead);
        let error = refused(&mut answer);
        assert_eq!(error.certainty(), certainty, "{code}: {error:?}");
        let is_kind = match kind {
            "busy" => matches!(error.kind(), ErrorKind::Busy { .. }),
            "full" => matches!(error.kind(), ErrorKind::Full),
            "effect" => matches!(error.kind(), ErrorKind::Effect),
            _ => matches!(error.kind(), ErrorKind::Store),
        };
        assert!(is_kind, "{code}: {error:?}");
        let mut again = bench.insert(1);
        bench.take_turns();
        assert!(ran(&mut again), "{code}: nothing was kept");
        assert_eq!(bench.orders(), ["1"]);
    }
}

#[test]
fn a_damaged_record_is_no_matter_of_its_neighbours_in_a_group() {
    for place in 0..3 {
        let bench = Bench::new();
        let mut first = bench.insert(0);
        bench.take_turns();
        assert!(ran(&mut first));
        let path = bench.folder.path().join("store.db");
        let damage = "UPDATE idem_records SET state = 'gone'";
        rusqlite::Connection::open(path).unwrap().execute_batch(damage).unwrap();
        let mut order = vec![1, 2];
        order.insert(place, 0);
        let mut answers: Vec<_> = order.iter().map(|q| bench.insert(*q)).collect();
        bench.take_turns();
        for (q, answer) in order.iter().zip(&mut answers) {
            if *q == 0 {
                let error = refused(answer);
                assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "{error:?}");
                assert_eq!(error.certainty(), idem_core::Certainty::NothingDone);
            } else {
                assert!(ran(answer), "{q} with the damaged one at {place}");
            }
        }
        assert_eq!(bench.orders(), ["0", "1", "2"]);
    }
}
