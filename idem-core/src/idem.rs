//! The typed front of a store.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Committed, Cursor, EffectError, Error, ErrorKind, Filter, Guarantees, Key, Outcome, Page,
    Phase, Purged, Purger, Receipt, Request, Space, Step, Store,
    json::{decode_result, encode_result},
    protocol::{Execute, Read},
    waiting::{Waiting, ask_patiently},
};

/// Runs operations so that each takes effect once, over any [`Store`].
///
/// A clone is cheap and shares the store. To choose the store at run time, give it an
/// `Arc<`[`DynStore`](crate::DynStore)`>`.
pub struct Idem<S> {
    store: Arc<S>,
    waiting: Arc<Waiting>,
    result_limit: usize,
}

impl<S> fmt::Debug for Idem<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idem").field("result_limit", &self.result_limit).finish_non_exhaustive()
    }
}

impl<S> Clone for Idem<S> {
    fn clone(&self) -> Self {
        let (store, waiting) = (Arc::clone(&self.store), Arc::clone(&self.waiting));
        Self { store, waiting, result_limit: self.result_limit }
    }
}

impl<S: Store> Idem<S> {
    /// The longest result unless told otherwise: 1 MiB.
    pub const RESULT_LIMIT: usize = 1 << 20;

    /// A front of `store`.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), waiting: Arc::default(), result_limit: Self::RESULT_LIMIT }
    }

    /// The same with another limit, in bytes, of what an effect may return.
    #[must_use]
    pub fn with_result_limit(mut self, bytes: usize) -> Self {
        self.result_limit = bytes;
        self
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Runs `effect` unless the key is completed, and commits what it wrote together with its result.
    ///
    /// The result is stored as JSON, and every later call with the same key and the same fingerprint gets
    /// it until the receipt expires.
    ///
    /// # The effect
    /// It must touch nothing but its transaction: the store may run it more than once before one run
    /// commits, and rolls back all but that one; so it clones what it would move out of itself. An error or a
    /// panic in it leaves neither effect nor receipt, and the next call runs. A refusal that must be
    /// remembered is a result, not an error.
    ///
    /// It is not async, and it runs while the future is polled, on the caller's thread or on one of the store's. It blocks
    /// that thread for as long as it takes, and a timeout around the call does not interrupt it. Count on no runtime and
    /// no task-locals in it: on the store's thread there are none. What lies outside the store, such as a call to a
    /// payment provider, has no place in it.
    ///
    /// # What the compiler says
    /// | error | cause | remedy |
    /// | --- | --- | --- |
    /// | E0373, E0597, "may outlive the current function" | the effect borrows: the store may run it on another thread | write `move \|tx\|`, and clone what is needed afterwards |
    /// | E0507, "cannot move out of" | the effect gives away what it owns, and may run again | clone it inside |
    /// | E0308, "expected `Result`, found `async` block"; E0282 for `async \|tx\|` | the effect is async | await before the call; what must be awaited under the key is [`Idem::run_leased`]'s |
    /// | E0599, "no method named `execute` found for `&mut dyn Transaction`" | SQL on a store that was chosen by its URL, whose effects write bytes under names | open the store by its own type, such as `SqliteStore` |
    /// | E0599, "no method named `put` found" | the trait is not in scope | `use` [`Transaction`](crate::Transaction) |
    /// | E0282, "type annotations needed", on the effect's argument | the closure is not written in the call | name the type: `\|tx: &mut SqliteTransaction\|` |
    /// | E0283 or E0282 on `Ok(())` | the effect's error has no type | return what `?` converts: [`EffectError`] |
    ///
    /// # The result
    /// It is what the receipt holds, also for the first caller. A later version of the program must still be
    /// able to read it: change its type as you would change a stored format.
    ///
    /// # A key in progress
    /// While a live lease holds the key, the outcome is [`Outcome::InProgress`], at once or after the request
    /// has [waited](Request::wait_for).
    ///
    /// # Errors
    /// - the effect's own error ([`Error::effect_error`]) or its panic;
    /// - a retention that is zero or too long, before the effect;
    /// - a result that is over the limit, or that JSON would not give back, before the commit;
    /// - a stored result that is no `T`: the key is completed, and nothing runs;
    /// - the store's own errors; [`Error::certainty`] tells whether the call took effect.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the key untouched or committed.
    // That the future is Send is said here, where the store is any store: of `Arc<DynStore>`, whose transaction
    // is a trait object, the compiler cannot prove it where the future is used.
    pub fn execute<T, F>(
        &self,
        request: &Request,
        mut effect: F,
    ) -> impl Future<Output = Result<Outcome<T>, Error>> + Send
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut S::Transaction) -> Result<T, EffectError> + Send + 'static,
    {
        async move {
            let outcome = self.run(request, move |tx| encode_result(&effect(tx)?)).await?;
            outcome.try_map(|stored| decode_result(&stored))
        }
    }

    /// As [`Idem::execute`], with a result of bytes that is stored and replayed as it is.
    ///
    /// # Errors
    /// As [`Idem::execute`], but for what concerns JSON.
    ///
    /// # Cancel safety
    /// As [`Idem::execute`].
    pub fn execute_bytes<F>(
        &self,
        request: &Request,
        mut effect: F,
    ) -> impl Future<Output = Result<Outcome<Bytes>, Error>> + Send
    where
        F: FnMut(&mut S::Transaction) -> Result<Bytes, EffectError> + Send + 'static,
    {
        self.run(request, move |tx| Ok(effect(tx)?))
    }

    fn run<F>(
        &self,
        request: &Request,
        mut effect: F,
    ) -> impl Future<Output = Result<Outcome<Bytes>, Error>> + Send
    where
        F: FnMut(&mut S::Transaction) -> Result<Bytes, Error> + Send + 'static,
    {
        async move {
            let committed = if request.wait().is_none() {
                self.ask(request, effect).await?
            } else {
                // Each time that the key is asked for it takes an effect along.
                let effect = Arc::new(Mutex::new(move |tx: &mut S::Transaction| effect(tx)));
                ask_patiently(self.store(), self.waiting(), request, || {
                    let effect = Arc::clone(&effect);
                    // After a panic the effect is as the panic left it, as in any store that runs it again.
                    let run = move |tx: &mut S::Transaction| {
                        (effect.lock().unwrap_or_else(PoisonError::into_inner))(tx)
                    };
                    self.ask(request, run)
                })
                .await?
            };
            Outcome::of(&committed, request.fingerprint_value())
        }
    }

    fn ask<F>(
        &self,
        request: &Request,
        effect: F,
    ) -> impl Future<Output = Result<Committed, Error>> + Send
    where
        F: FnMut(&mut S::Transaction) -> Result<Bytes, Error> + Send + 'static,
    {
        let step = Execute::new(request, self.result_limit, effect);
        async move { self.transact(request.key(), step?).await }
    }

    /// The live receipt of a key. Reading changes nothing.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn receipt(&self, key: &Key) -> Result<Option<Receipt>, Error> {
        let Committed { before, now, .. } = self.transact(key, Read).await?;
        Ok(before.and_then(|record| Receipt::live(&record, now)))
    }

    /// A page of at most `limit` keys with what is recorded for them: live receipts, and leases live or
    /// ended. Pass [`Page::next`] on to go on; a page may hold less than `limit` and still have a next.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a limit of zero; [`ErrorKind::Unsupported`] if the store cannot
    /// list; the store's own.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        self.list_where(&Filter::all(), after, limit).await
    }

    /// As [`Idem::list`], but only keys that match `filter`, which the store applies.
    ///
    /// A store looks at a bounded number of records for one page, so a page may be empty and still have a next: only a
    /// page without a next is the last. Use one filter for all pages of a listing. With another filter a cursor shows no
    /// key that does not match, but keys may be left out, or the cursor may be refused.
    ///
    /// # Errors
    /// As [`Idem::list`].
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// # Examples
    /// ```
    /// use idem_core::{Error, Filter, Idem, Key, KeyState, Store};
    ///
    /// /// The charges of a tenant that nobody knows the outcome of.
    /// async fn unsettled<S: Store>(idem: &Idem<S>, tenant: &str) -> Result<Vec<Key>, Error> {
    ///     let filter = Filter::all().tenant(tenant)?.operation("charge")?.state(KeyState::Ended);
    ///     let (mut keys, mut after) = (Vec::new(), None);
    ///     loop {
    ///         let page = idem.list_where(&filter, after.as_ref(), 100).await?;
    ///         keys.extend(page.records.into_iter().map(|(key, _)| key));
    ///         match page.next {
    ///             Some(next) => after = Some(next),
    ///             None => return Ok(keys),
    ///         }
    ///     }
    /// }
    /// ```
    pub async fn list_where(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        not_zero("limit", limit)?;
        let mut page = self.store.list(filter, after, limit).await?;
        let now = page.now;
        page.records.retain(|(_, record)| record.phase(now) != Phase::Gone);
        Ok(page)
    }

    /// Removes at most `limit` expired receipts, and ended leases whose retention has passed. Effects stay,
    /// and no key runs that would not have run without it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a limit of zero; the store's own, if nothing was removed. What fails later is told
    /// by the next purge.
    ///
    /// # Cancel safety
    /// What was removed until then stays removed.
    pub async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        not_zero("limit", limit)?;
        self.store.purge(limit).await
    }

    /// Purges every `every` by the store's clock, the first time after that long, `limit` records at a time
    /// until none is left, until the returned handle is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDuration`] for an interval of zero, [`ErrorKind::InvalidSetting`] for a limit of
    /// zero, [`ErrorKind::OtherProcess`] in a child that was forked since.
    pub fn spawn_purge(&self, every: Duration, limit: usize) -> Result<Purger, Error>
    where
        S: 'static,
    {
        self.spawn_purge_with(every, limit, |_| ())
    }

    /// As [`Idem::spawn_purge`], and tells `on_failure` of each purge that fails; the next one comes after the interval.
    /// When the store is closed, `on_failure` gets [`ErrorKind::Closed`] once, and purging ends.
    ///
    /// It is called in the background, and must not block: other background work of the process waits for it. Its panic is
    /// caught.
    ///
    /// # Errors
    /// As [`Idem::spawn_purge`].
    pub fn spawn_purge_with<F>(
        &self,
        every: Duration,
        limit: usize,
        on_failure: F,
    ) -> Result<Purger, Error>
    where
        S: 'static,
        F: Fn(&Error) + Send + Sync + 'static,
    {
        not_zero("limit", limit)?;
        self.waiting.home.check()?;
        Purger::spawn(Arc::clone(&self.store), every, limit, on_failure)
    }

    /// The committed value that effects left under `name` in `space`.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn value(&self, space: &Space, name: &[u8]) -> Result<Option<Bytes>, Error> {
        self.store.value(space, name).await
    }

    /// Waits for what is under way and closes the store, for all who share it. Leases that were dropped here, or
    /// through a clone, are ended before.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancel safety
    /// The store is closed, or closes in the background.
    pub async fn close(&self) -> Result<(), Error> {
        // What is being ended in another process is ended there, and never here.
        self.waiting.home.check()?;
        self.waiting.all_ended().await;
        let closed = self.store.close().await;
        // Who waits for a key is told.
        self.waiting.all_changed();
        closed
    }

    /// What the store promises.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    pub(crate) fn waiting(&self) -> &Arc<Waiting> {
        &self.waiting
    }

    /// The longest result that an effect may return, in bytes.
    #[must_use]
    pub fn result_limit(&self) -> usize {
        self.result_limit
    }

    pub(crate) fn transact(
        &self,
        key: &Key,
        step: impl Step<S::Transaction> + Send + 'static,
    ) -> impl Future<Output = Result<Committed, Error>> + Send {
        async move { self.store.transact(key, Box::new(step)).await }
    }
}

fn not_zero(field: &'static str, value: usize) -> Result<(), Error> {
    if value > 0 {
        return Ok(());
    }
    let problem = "it is zero: give at least one".to_string();
    Err(Error::nothing_done(ErrorKind::InvalidSetting { field, problem }))
}
