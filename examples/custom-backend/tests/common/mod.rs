//! Orders in a redb database.

use idem_core::{
    Error, Idem, Key, ManualClock, Outcome, Request, Space, Store, Timestamp, Transaction,
};
use idem_example_redb::RedbStore;
use redb::Database;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);

pub(crate) fn on(database: Database) -> Idem<RedbStore> {
    Idem::new(RedbStore::new(database, ManualClock::at(NOW)).unwrap())
}

pub(crate) fn request(name: &str) -> Request {
    Request::new(Key::new("north", "order", name).unwrap())
}

/// Counts the orders, and returns how many there are.
pub(crate) async fn order(idem: &Idem<RedbStore>, name: &str) -> Result<Outcome<u8>, Error> {
    let effect = |tx: &mut <RedbStore as Store>::Transaction| {
        let count = tx.get(b"orders")?.map_or(0, |count| count[0]) + 1;
        tx.put(b"orders", &[count])?;
        Ok(count)
    };
    idem.execute(&request(name), effect).await
}

pub(crate) async fn orders(idem: &Idem<RedbStore>) -> Option<u8> {
    let value = idem.value(&Space::tenant("north").unwrap(), b"orders").await.unwrap();
    value.map(|count| count[0])
}
