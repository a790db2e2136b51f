//! Commits by compare-and-set: many in one transaction of the engine, each of which holds or fails alone.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use idem_core::{Change, Error, Look, Record, Timestamp, Token, Turn};
use sled::{
    IVec, Tree,
    transaction::{
        ConflictableTransactionError, TransactionError, Transactional, TransactionalTree,
        UnabortableTransactionError, abort,
    },
};
use tokio::sync::oneshot;

use crate::{
    database::{Database, Place},
    expiry::{Expiry, Group},
    failure::{Trouble, guarded},
    names,
    pending::Entry,
    pieces::{self, Kind, Pieces, Write},
};

/// A name in one of the places, and what is, or will be, under it.
pub(crate) type Item = (Place, Bytes, Option<Bytes>);

/// What one attempt asks for: that nothing has changed which it rests on, and then these writes.
pub(crate) struct Commit {
    pub(crate) key: Vec<u8>,
    pub(crate) seen: Look,
    pub(crate) reads: Vec<Item>,
    pub(crate) writes: Vec<Item>,
    /// None only to ask whether anything has changed.
    pub(crate) change: Option<Change>,
    /// The caller's turn, if it has one: others may look again as soon as this is applied.
    pub(crate) turn: Option<Turn>,
    pub(crate) reply: oneshot::Sender<Result<Verdict, Error>>,
}

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Something had changed, and nothing was written.
    Stale,
    /// Nothing has changed, and it asked for no more.
    Unchanged,
    /// It is written, and this is the record now.
    Written(Option<Record>),
}

impl Commit {
    /// About how many bytes it writes.
    pub(crate) fn size(&self) -> usize {
        let sizes = |(_, name, value): &Item| name.len() + value.as_ref().map_or(0, Bytes::len);
        let result = match &self.change {
            Some(Change::Complete { result, .. }) => result.len(),
            _ => 0,
        };
        self.key.len() + result + self.writes.iter().map(sizes).sum::<usize>()
    }

    /// What others can see of it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let values = self.writes.iter().filter(|(place, ..)| *place == Place::Values);
        let values = values.map(|(_, name, _)| Entry::Value(name));
        let is_change = self.change.is_some();
        values.chain([Entry::Record(&self.key)]).filter(move |_| is_change)
    }
}

/// What became of the commits of a batch, in their order.
pub(crate) type Verdicts = Vec<Result<Verdict, Error>>;

/// How a batch went.
pub(crate) enum Applied {
    /// Some of it is written: durable once it is made so.
    Written(Verdicts),
    /// None of it changed anything.
    Nothing(Verdicts),
    /// The engine failed before it wrote anything of the batch.
    Refused(Trouble),
    /// The engine failed while it wrote: some may be seen and some not.
    Torn(Trouble),
}

/// Applies commits as the batch of that number in one transaction of the engine.
///
/// The closure only compares and sets, and may run again: it changes nothing but the transaction.
pub(crate) fn apply(database: &Database, commits: &[Commit], number: u64) -> Applied {
    let trees = match guarded(|| Trees::of(database, commits)) {
        Ok(trees) => trees,
        Err(trouble) => return Applied::Refused(trouble),
    };
    transact(database, &trees.trees, number, |views, faults| {
        let views = Views { views, trees: &trees, faults };
        let verdicts: Verdicts = commits.iter().map(|commit| views.run(commit)).collect();
        let is_written = |verdict: &Result<Verdict, _>| matches!(verdict, Ok(Verdict::Written(_)));
        if faults.any() || !verdicts.iter().any(is_written) {
            return abort(verdicts);
        }
        set_expiries(views.views, number, expiries(commits, &verdicts))?;
        set_batch(views.views, number)?;
        Ok(verdicts)
    })
}

/// One transaction of the engine, which is abandoned if the closure aborts: then nothing is written, not even
/// to the log.
///
/// The engine writes tree after tree, and may fail between two of them: the batch's number is written before and
/// after all others, so that the next opening sees whether they are whole.
pub(crate) fn transact(
    database: &Database,
    trees: &[Tree],
    number: u64,
    run: impl Fn(
        &[TransactionalTree],
        &Faults,
    ) -> Result<Verdicts, ConflictableTransactionError<Verdicts>>,
) -> Applied {
    let faults = Faults::default();
    let mut all = vec![database.begun.clone()];
    all.extend_from_slice(trees);
    all.push(database.ended.clone());
    let last = all.len() - 1;
    // Whether the engine has begun to write, as far as the closure can tell.
    let is_decided = Cell::new(false);
    let done = guarded(|| -> Result<_, Trouble> {
        let _writing = database.writing.write();
        let done = all.transaction(|views: &Vec<TransactionalTree>| {
            is_decided.set(false);
            let verdicts = run(&views[1..last], &faults)?;
            for edge in [&views[0], &views[last]] {
                edge.insert(names::BATCH, &number.to_be_bytes())?;
            }
            is_decided.set(true);
            Ok(verdicts)
        });
        match done {
            Ok(verdicts) => Ok(Applied::Written(verdicts)),
            Err(TransactionError::Abort(verdicts)) => Ok(Applied::Nothing(verdicts)),
            Err(TransactionError::Storage(error)) => Err(error.into()),
        }
    });
    match done {
        Ok(applied) => match faults.0.into_inner() {
            Some(trouble) => Applied::Refused(trouble),
            None => applied,
        },
        Err(trouble) if is_decided.get() => Applied::Torn(trouble),
        Err(trouble) => Applied::Refused(trouble),
    }
}

/// What failed while a batch was compared and after which the engine must write no more, so that none of the
/// batch may be written either.
#[derive(Default)]
pub(crate) struct Faults(RefCell<Option<Trouble>>);

impl Faults {
    /// The error of the one commit that met it.
    pub(crate) fn note(&self, trouble: Trouble) -> Error {
        if trouble.is_fatal() {
            self.0.borrow_mut().get_or_insert_with(|| trouble.clone());
        }
        trouble.nothing_done()
    }

    fn any(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// The store's own trees, where they stand among those of a batch.
pub(crate) const RECORDS: usize = 0;
pub(crate) const EXPIRY: usize = 1;
pub(crate) const META: usize = 2;
pub(crate) const PIECES: usize = 3;
pub(crate) const VALUES: usize = 4;

/// The trees of a batch: the store's own, then those of the user's that it touches.
struct Trees {
    trees: Vec<Tree>,
    names: Vec<Bytes>,
}

impl Trees {
    fn of(database: &Database, commits: &[Commit]) -> sled::Result<Self> {
        let mut trees = own(database);
        let mut names: Vec<Bytes> = Vec::new();
        let items = commits.iter().flat_map(|commit| commit.reads.iter().chain(&commit.writes));
        for (place, ..) in items {
            if let Place::User(name) = place
                && !names.contains(name)
            {
                trees.push(database.tree(name)?);
                names.push(name.clone());
            }
        }
        Ok(Self { trees, names })
    }

    fn index(&self, name: &Bytes) -> usize {
        let index = self.names.iter().position(|known| known == name);
        VALUES + 1 + index.expect("every tree of the user's in the batch is among its trees")
    }
}

/// The store's own trees in their order.
pub(crate) fn own(database: &Database) -> Vec<Tree> {
    let own =
        [&database.records, &database.expiry, &database.meta, &database.pieces, &database.values];
    own.map(Tree::clone).to_vec()
}

/// The trees of a batch inside its transaction.
struct Views<'v> {
    views: &'v [TransactionalTree],
    trees: &'v Trees,
    faults: &'v Faults,
}

impl Views<'_> {
    /// Compares, and sets if nothing has changed. Whatever fails, fails this commit alone.
    fn run(&self, commit: &Commit) -> Result<Verdict, Error> {
        let compared =
            guarded(|| self.is_unchanged(commit)).map_err(|trouble| self.faults.note(trouble))?;
        let Some(change) = commit.change.clone().filter(|_| compared) else {
            return Ok(if compared { Verdict::Unchanged } else { Verdict::Stale });
        };
        let before = commit.seen.record.as_ref();
        let mut token = None;
        let after = change.stamp(before, commit.seen.now, || {
            let next = self.next_token(commit.seen.now)?;
            token = Some(next);
            Ok(next)
        })?;
        let mut writes: Vec<Write> = token.map(token_write).into_iter().collect();
        let replaced = guarded(|| -> Result<_, Trouble> {
            if after.as_ref() != before {
                let bytes = after.as_ref().map(Record::to_bytes);
                let pieces = self.pieces();
                writes.extend(pieces.replace(Kind::Record, &commit.key, bytes.as_deref())?);
            }
            for item in &commit.writes {
                writes.extend(self.writes(item)?);
            }
            Ok(())
        });
        replaced
            .and_then(|()| set(self.views, writes))
            .map_err(|trouble| self.faults.note(trouble))?;
        Ok(Verdict::Written(after))
    }

    fn pieces(&self) -> Pieces<'_> {
        Pieces(self.views)
    }

    fn writes(&self, (place, name, value): &Item) -> Result<Vec<Write>, Trouble> {
        match place {
            Place::Values => self.pieces().replace(Kind::Value, name, value.as_deref()),
            Place::User(tree) => {
                let value = value.as_deref().map(IVec::from);
                Ok(vec![(self.trees.index(tree), IVec::from(&**name), value)])
            }
        }
    }

    fn get(&self, place: &Place, name: &[u8]) -> Result<Option<IVec>, Trouble> {
        match place {
            Place::Values => self.pieces().get(Kind::Value, name),
            Place::User(tree) => get(&self.views[self.trees.index(tree)], name),
        }
    }

    fn is_unchanged(&self, commit: &Commit) -> Result<bool, Trouble> {
        let found = self.pieces().get(Kind::Record, &commit.key)?;
        if !holds(found.as_deref(), commit.seen.record.as_ref()) {
            return Ok(false);
        }
        for (place, name, value) in &commit.reads {
            let found = self.get(place, name)?;
            if found.as_deref() != value.as_deref() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next_token(&self, now: Timestamp) -> Result<Token, Error> {
        let last = guarded(|| get(&self.views[META], names::TOKEN));
        let last = match last.map_err(|trouble| self.faults.note(trouble))? {
            Some(bytes) => {
                let number = names::read_number(&bytes)?;
                let token = Token::from_u64(number);
                Some(token.ok_or_else(|| names::damaged("the last token is out of its range"))?)
            }
            None => None,
        };
        Token::next(last, now)
    }
}

pub(crate) fn set_expiries(
    views: &[TransactionalTree],
    number: u64,
    expiries: Vec<Expiry>,
) -> Result<(), UnabortableTransactionError> {
    let Some(group) = Group::new(number, expiries) else { return Ok(()) };
    set_group(views, &group.name(), 0, Some(&group.to_bytes()))
}

/// Whether these bytes hold that record. In an older form its bytes are others than those that it would be written as.
fn holds(bytes: Option<&[u8]>, record: Option<&Record>) -> bool {
    match (bytes, record) {
        (None, None) => true,
        (Some(bytes), Some(record)) => {
            bytes == record.to_bytes()
                || Record::from_slice(bytes).is_ok_and(|stored| stored == *record)
        }
        _ => false,
    }
}

/// Sets an entry of the expiry index that was there in so many pieces, or removes it.
pub(crate) fn set_group(
    views: &[TransactionalTree],
    name: &[u8],
    before: usize,
    group: Option<&[u8]>,
) -> Result<(), UnabortableTransactionError> {
    for (tree, name, piece) in pieces::replace(Kind::Expiry, name, before, group) {
        match piece {
            Some(piece) => views[tree].insert(name, piece)?,
            None => views[tree].remove(name)?,
        };
    }
    Ok(())
}

pub(crate) fn set_batch(
    views: &[TransactionalTree],
    number: u64,
) -> Result<(), UnabortableTransactionError> {
    views[META].insert(names::BATCH, &number.to_be_bytes()).map(drop)
}

fn token_write(token: Token) -> Write {
    (META, IVec::from(names::TOKEN), Some(IVec::from(&token.as_u64().to_be_bytes())))
}

/// The expiries that a batch adds to the index, which for each record has one at its end or before.
///
/// A lease that is prolonged adds none: a purge that comes upon its old one puts it off.
fn expiries(commits: &[Commit], verdicts: &Verdicts) -> Vec<Expiry> {
    let added = commits.iter().zip(verdicts).filter_map(|(commit, verdict)| {
        let Ok(Verdict::Written(Some(after))) = verdict else { return None };
        let before = commit.seen.record.as_ref();
        let before = before.filter(|before| before.attempt == after.attempt);
        let known = before.and_then(Record::gone_at);
        let at = after.gone_at().filter(|at| known.is_none_or(|known| *at < known))?;
        Some((at, commit.key.clone()))
    });
    added.collect()
}

/// Sets all of it, or nothing: the engine reads what it replaces, so that is read first, and nothing can fail
/// half way.
pub(crate) fn set(views: &[TransactionalTree], writes: Vec<Write>) -> Result<(), Trouble> {
    guarded(|| -> Result<(), Trouble> {
        for (tree, name, _) in &writes {
            get(&views[*tree], name)?;
        }
        for (tree, name, value) in writes {
            let old = match value {
                Some(value) => views[tree].insert(name, value),
                None => views[tree].remove(name),
            };
            old.map_err(storage)?;
        }
        Ok(())
    })
}

pub(crate) fn get(view: &TransactionalTree, name: &[u8]) -> Result<Option<IVec>, Trouble> {
    view.get(name).map_err(storage)
}

fn storage(error: UnabortableTransactionError) -> Trouble {
    match error {
        UnabortableTransactionError::Storage(error) => error.into(),
        // Single calls never conflict in this version of the engine; a batch that met one would only fail.
        UnabortableTransactionError::Conflict => {
            sled::Error::ReportableBug("a read conflicted".to_string()).into()
        }
    }
}
