//! What an effect writes through, whatever the store.

use bytes::Bytes;

use crate::Error;

/// The portable part of a store's transaction: bytes under byte names, in the key's own
/// [`Space`](crate::Space).
///
/// It is synchronous on purpose: an effect is what can be rolled back, so it must not await. It runs on the caller's thread
/// or on one of the store's, where there is neither a runtime nor a task-local. What it does
/// besides the transaction is not rolled back, and may happen more than once: a store may run an effect
/// again before one run commits. So an effect must touch nothing but its transaction.
///
/// It has no SQL: a store that is chosen by its URL may have none. With a store's own type, such as `SqliteStore`, the
/// effect gets that store's own transaction, with its native methods besides these.
///
/// A failure of the store itself, such as [`ErrorKind::Full`](crate::ErrorKind::Full), reaches the caller as
/// what it is if the effect passes it on with `?`. Whoever implements this marks such an error by
/// [`Error::of_transaction`].
pub trait Transaction {
    /// The value under `name`: what this effect wrote last, or else what is committed.
    ///
    /// # Errors
    /// Whatever keeps the store from reading; pass it on with `?`.
    fn get(&mut self, name: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Sets the value under `name`.
    ///
    /// # Errors
    /// Whatever keeps the store from writing; pass it on with `?`.
    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error>;

    /// Removes the value under `name`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from writing; pass it on with `?`.
    fn delete(&mut self, name: &[u8]) -> Result<(), Error>;
}
