//! Creates of callers who are at it at the same time go to the server together, in one command.
//!
//! Nobody waits for an answer to somebody else: a caller who is not the only one lets the tasks that are ready run
//! first, and then sends what has come together. Whoever is alone sends at once. Each create holds or is refused
//! alone, and where the command as a whole is refused each is sent anew by itself. The command is a task's, so that
//! a caller who goes away takes nobody along.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use idem_core::Timestamp;
use parking_lot::Mutex;
use redis::{Arg, Cmd};
use tokio::{sync::oneshot, task::yield_now, time::timeout};

use crate::{
    create::Create,
    failure::{Failure, Meaning},
    link::{Connection, Link},
    script::{Applied, CREATE, Question},
};

/// So many go at once: the server is at them while others come together.
const MOST: usize = 16;

/// A create of more bytes goes alone.
const MOST_BYTES: usize = 16 << 10;

/// The callers of a connection who create.
#[derive(Default)]
pub(crate) struct Company {
    callers: AtomicUsize,
    waiting: Mutex<Vec<Entry>>,
}

/// A create on its way.
struct Entry {
    nonce: u64,
    not_after: Timestamp,
    count: char,
    size: usize,
    /// Its keys, and its other arguments.
    parts: [Cmd; 2],
    told: oneshot::Sender<Told>,
}

/// What a caller is told who waits.
enum Told {
    Became(Result<Applied, Failure>),
    /// Nothing was done: it is to go alone.
    Alone,
}

/// A caller, as long as it is at it.
struct Caller {
    company: Arc<Company>,
    /// Whether there was nobody else.
    was_first: bool,
}

impl Caller {
    fn enters(company: &Arc<Company>) -> Self {
        let was_first = company.callers.fetch_add(1, Ordering::Relaxed) == 0;
        Self { company: Arc::clone(company), was_first }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.company.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends a create, once.
pub(crate) async fn create(
    link: &Link,
    create: &Create<'_>,
    nonce: u64,
    not_after: Timestamp,
) -> Result<Applied, Failure> {
    let mut connection = link.connected().await?;
    // In a cluster the keys of one command must lie in one slot.
    let may_join = !link.is_cluster() && create.size() <= MOST_BYTES;
    let caller = may_join.then(|| Caller::enters(&connection.company));
    if caller.as_ref().is_some_and(|caller| !caller.was_first)
        && let Some(became) = in_company(link, &connection, create, nonce, not_after).await
    {
        return became;
    }
    alone(link, &mut connection, create, nonce, not_after).await
}

async fn alone(
    link: &Link,
    connection: &mut Connection,
    create: &Create<'_>,
    nonce: u64,
    not_after: Timestamp,
) -> Result<Applied, Failure> {
    let question = Question::until(not_after, nonce, create.count().encode_utf8(&mut [0; 1]));
    let fill = |command: &mut Cmd| {
        command.arg(create.keys());
        create.fill_keys(command);
        command.arg(question.as_bytes());
        create.fill_arguments(command);
    };
    let answer = link.eval_by(connection, &CREATE, fill).await?;
    question.answer(answer).and_then(|answer| answer.applied()).ok_or_else(|| link.misunderstood())
}

/// None if it is to go alone.
async fn in_company(
    link: &Link,
    connection: &Connection,
    create: &Create<'_>,
    nonce: u64,
    not_after: Timestamp,
) -> Option<Result<Applied, Failure>> {
    let company = &connection.company;
    let (told, answer) = oneshot::channel();
    let count = create.count();
    let size = create.size();
    let entry = Entry { nonce, not_after, count, size, parts: create.parts(), told };
    let is_full = {
        let mut waiting = company.waiting.lock();
        waiting.push(entry);
        waiting.len() >= MOST
    };
    if !is_full {
        yield_now().await;
    }
    let entries = company.take(nonce);
    if entries.len() == 1 {
        return None;
    }
    if !entries.is_empty() {
        // Where the connection is driven.
        connection.home.spawn(send(link.clone(), connection.clone(), entries));
    }
    match timeout(link.timeouts().response, answer).await {
        Ok(Ok(Told::Became(became))) => Some(became),
        Ok(Ok(Told::Alone)) => None,
        Ok(Err(_)) | Err(_) => Some(Err(link.unanswered(connection))),
    }
}

impl Company {
    /// All who wait, unless the caller of that nonce does no more.
    fn take(&self, nonce: u64) -> Vec<Entry> {
        let mut waiting = self.waiting.lock();
        if waiting.iter().any(|entry| entry.nonce == nonce) {
            std::mem::take(&mut *waiting)
        } else {
            Vec::new()
        }
    }
}

/// Sends creates, once, and tells everybody.
async fn send(link: Link, mut connection: Connection, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.told.is_closed());
    let Some(first) = entries.first() else { return };
    let counts: String = entries.iter().map(|entry| entry.count).collect();
    let not_after = entries.iter().map(|entry| entry.not_after).min();
    let question = Question::until(not_after.unwrap_or(first.not_after), first.nonce, &counts);
    let command = command(&entries, &question);
    let answered = link.send_whole(&mut connection, &command).await;
    let answered = answered.and_then(|answer| {
        let each = question.answer(answer).and_then(|answer| answer.each(entries.len()));
        each.ok_or_else(|| link.misunderstood())
    });
    let told: Vec<Told> = match answered {
        Ok(each) => {
            let became = |became: Result<_, _>| Told::Became(became.map_err(Failure::of_command));
            each.into_iter().map(became).collect()
        }
        Err(failure) => {
            let told = |_: &Entry| match failure.meaning {
                Meaning::Lost => Told::Became(Err(failure.clone())),
                // It did nothing, because of any one of them perhaps.
                _ => Told::Alone,
            };
            entries.iter().map(told).collect()
        }
    };
    for (entry, told) in entries.into_iter().zip(told) {
        // Who does not wait any more does not mind.
        let _ = entry.told.send(told);
    }
}

fn command(entries: &[Entry], question: &Question) -> Cmd {
    let keys = entries.iter().map(|entry| entry.parts[0].args_iter().len()).sum::<usize>();
    let bytes = entries.iter().map(|entry| entry.size).sum::<usize>();
    let mut command = Cmd::with_capacity(4 + 4 * keys, bytes + 256);
    command.arg("EVALSHA").arg(CREATE.digest()).arg(keys);
    append(&mut command, entries.iter().map(|entry| &entry.parts[0]));
    command.arg(question.as_bytes());
    append(&mut command, entries.iter().map(|entry| &entry.parts[1]));
    command
}

fn append<'p>(command: &mut Cmd, parts: impl Iterator<Item = &'p Cmd>) {
    for argument in parts.flat_map(Cmd::args_iter) {
        if let Arg::Simple(argument) = argument {
            command.arg(argument);
        }
    }
}
