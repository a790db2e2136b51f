//! What both hand-written sides on sled have: trees of receipts and of orders, and a commit to them.

use std::{fs::File, path::Path, sync::Arc};

use idem_core::{BoxError, Outcome, consumer::Marked};
use sled::{
    Config, Db, IVec, Transactional, Tree,
    transaction::{ConflictableTransactionError, TransactionError, TransactionalTree},
};

use super::receipt;
use crate::{Order, Placed, shop, side::Stored};

/// An open database.
#[derive(Clone)]
pub(super) struct Database {
    db: Db,
    receipts: Tree,
    orders: Tree,
    /// The engine's log.
    log: Arc<File>,
}

/// A receipt, or a mark, to be written unless the key has one, and an order to be written with it.
pub(super) struct Work {
    pub(super) key: Vec<u8>,
    receipt: Vec<u8>,
    order: Option<u64>,
}

/// The receipt that a key had before; none if it is written now.
pub(super) type Before = Option<IVec>;

impl Database {
    pub(super) fn open(folder: &Path) -> Result<Self, BoxError> {
        let db = Config::new().path(folder).open()?;
        let (receipts, orders) = (db.open_tree("receipts")?, db.open_tree("orders")?);
        let log = Arc::new(File::options().read(true).write(true).open(folder.join("db"))?);
        Ok(Self { db, receipts, orders, log })
    }

    /// What there is by now, durable or not.
    pub(super) fn look(&self, key: &[u8]) -> Result<Before, BoxError> {
        Ok(self.receipts.get(key)?)
    }

    /// One transaction for all, and one flush. The engine's own flush empties no cache of the disk.
    pub(super) fn commit(&self, work: &[Work]) -> Result<Vec<Before>, BoxError> {
        let trees = (&self.receipts, &self.orders);
        let before = trees.transaction(|(receipts, orders)| {
            work.iter().map(|work| write(receipts, orders, work)).collect::<Result<Vec<_>, _>>()
        });
        let before = before.map_err(|error| match error {
            TransactionError::Abort(error) | TransactionError::Storage(error) => error,
        })?;
        if before.iter().any(Option::is_none) {
            self.db.flush()?;
            self.log.sync_data()?;
        }
        Ok(before)
    }

    pub(super) fn count(&self) -> Stored {
        Stored { orders: self.orders.len(), receipts: self.receipts.len() }
    }
}

fn write(
    receipts: &TransactionalTree,
    orders: &TransactionalTree,
    work: &Work,
) -> Result<Before, ConflictableTransactionError<sled::Error>> {
    if let Some(before) = receipts.get(&work.key)? {
        return Ok(Some(before));
    }
    receipts.insert(&work.key[..], &work.receipt[..])?;
    if let Some(number) = work.order {
        orders.insert(&number.to_be_bytes(), b"three of them")?;
    }
    Ok(None)
}

impl Work {
    /// To place an order.
    pub(super) fn place(order: &Order) -> Result<Self, BoxError> {
        let key = order.request.key();
        let key = format!("{}:{}:{}", key.tenant(), key.operation(), key.request());
        let receipt = receipt::completed(order, placed(order))?;
        Ok(Self { key: key.into_bytes(), receipt, order: Some(order.number) })
    }

    /// To mark its event.
    pub(super) fn mark(order: &Order) -> Self {
        let key = format!("{}:{}", shop::CONSUMER, order.event());
        Self { key: key.into_bytes(), receipt: Vec::new(), order: None }
    }
}

/// The answer to who placed an order.
pub(super) fn answer(order: &Order, before: Before) -> Result<Outcome<Placed>, BoxError> {
    match before {
        None => Ok(Outcome::Created(placed(order))),
        Some(before) => {
            receipt::answer(order, &before)?.ok_or_else(|| "a receipt has no result".into())
        }
    }
}

/// The answer to who marked an event.
pub(super) fn marked(before: Option<IVec>) -> Marked {
    if before.is_none() { Marked::First } else { Marked::Again }
}

fn placed(order: &Order) -> Placed {
    Placed { id: 0, number: order.number }
}
