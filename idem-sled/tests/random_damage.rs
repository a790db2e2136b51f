//! Bits that were turned over and files that were cut short, at random: what the store makes of them.
//!
//! The environment variable `IDEM_ROUNDS` says how often, and `IDEM_SEED`, which is printed, where.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use common::{is_damage, random, request, space};
use idem_conformance::chance::rounds;
use idem_core::{Error, ErrorKind, Idem, Outcome, Transaction};
use idem_sled::{SledStore, SledTransaction};
use tempfile::TempDir;

/// How many keys there are before and after the last time that the store was opened.
const EARLY: usize = 20;
const ALL: usize = 30;
const BOUND: Duration = Duration::from_secs(30);

async fn opened(folder: &Path) -> Result<Idem<SledStore>, Error> {
    let builder = SledStore::builder().busy_timeout(Duration::from_secs(2));
    Ok(Idem::new(builder.open(folder).await?))
}

/// What the effect of a key writes; one of them more than the engine's log takes.
fn value(number: usize) -> Vec<u8> {
    vec![u8::try_from(number).unwrap(); if number == 7 { 150_000 } else { 500 }]
}

async fn put(idem: &Idem<SledStore>, number: usize) -> Result<Outcome<usize>, Error> {
    let effect = move |tx: &mut SledTransaction| {
        tx.put(number.to_string().as_bytes(), &value(number))?;
        Ok(number)
    };
    idem.execute(&request(number), effect).await
}

async fn fill(idem: &Idem<SledStore>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        assert_eq!(put(idem, number).await.unwrap(), Outcome::Created(number));
    }
}

/// Copies a folder of files and of folders of files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A folder with all keys. If the store is not closed it is as a kill leaves it.
async fn filled(is_closed: bool) -> TempDir {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let idem = opened(folder.path()).await.unwrap();
    fill(&idem, 0..EARLY).await;
    idem.close().await.unwrap();
    let idem = opened(folder.path()).await.unwrap();
    fill(&idem, EARLY..ALL).await;
    if is_closed {
        idem.close().await.unwrap();
    }
    copy(folder.path(), left.path());
    left
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Turns a bit over, or cuts the file; says what it did.
fn damage(folder: &Path, random: &mut fastrand::Rng) -> String {
    let files = files(folder);
    let file = &files[random.usize(..files.len())];
    let mut bytes = fs::read(file).unwrap();
    let name = file.strip_prefix(folder).unwrap().display();
    // Most of a log is empty: rather what is not.
    let full: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let at = if random.u8(..4) > 0 && !full.is_empty() {
        full[random.usize(..full.len())]
    } else {
        random.usize(..bytes.len().max(1))
    };
    if bytes.is_empty() || random.u8(..5) == 0 {
        bytes.truncate(at);
        fs::write(file, bytes).unwrap();
        return format!("{name} cut at {at}");
    }
    let bit = random.u8(..8);
    bytes[at] ^= 1 << bit;
    fs::write(file, bytes).unwrap();
    format!("{name} at {at}, bit {bit}")
}

/// What became of the keys.
#[derive(Default, Debug)]
struct Tally {
    refused: usize,
    whole: usize,
    errors: usize,
    gone: Vec<(String, usize)>,
}

async fn look(folder: &Path, what: &str, tally: &mut Tally) {
    let idem = match opened(folder).await {
        Ok(idem) => idem,
        Err(error) => {
            let is_newer = matches!(error.kind(), ErrorKind::SchemaNewer { .. });
            assert!(is_newer || is_damage(&error), "{what}: {error:?}");
            tally.refused += 1;
            return;
        }
    };
    for number in 0..ALL {
        look_at(&idem, number, what, tally).await;
    }
    match idem.purge(100).await {
        Ok(purged) => assert_eq!(purged.removed, 0, "{what}"),
        Err(error) => assert!(is_damage(&error), "{what}: {error:?}"),
    }
    // What is lost of the engine may keep it from ending well, not from ending.
    drop(idem.close().await);
}

/// A key gives its true result with its effect, or a typed error, or is gone with its effect.
async fn look_at(idem: &Idem<SledStore>, number: usize, what: &str, tally: &mut Tally) {
    let what = format!("{what}: key {number}");
    let found = idem.value(&space(), number.to_string().as_bytes()).await;
    if let Ok(Some(found)) = &found {
        assert!(*found == value(number), "{what} has another value");
    }
    match put(idem, number).await {
        Ok(Outcome::Replayed(result)) => {
            assert_eq!(result, number, "{what}");
            assert!(!matches!(found, Ok(None)), "{what} has lost its effect");
            tally.whole += 1;
        }
        Ok(Outcome::Created(_)) => {
            assert!(!matches!(found, Ok(Some(_))), "{what} has lost its receipt alone");
            tally.gone.push((what.clone(), number));
        }
        Ok(other) => panic!("{what}: {other:?}"),
        Err(error) => {
            assert!(is_damage(&error), "{what}: {error:?}");
            tally.errors += 1;
        }
    }
    if let Err(error) = found {
        assert!(is_damage(&error), "{what}: {error:?}");
    }
}

async fn damaged_at_random(is_closed: bool) -> Tally {
    let (mut random, mut tally) = (random(), Tally::default());
    let whole = filled(is_closed).await;
    for _ in 0..rounds(200) {
        let folder = TempDir::new().unwrap();
        copy(whole.path(), folder.path());
        let what = damage(folder.path(), &mut random);
        let looked = tokio::time::timeout(BOUND, look(folder.path(), &what, &mut tally)).await;
        looked.unwrap_or_else(|_| panic!("{what}: it hangs"));
    }
    println!("closed: {is_closed}, {tally:?}");
    tally
}

#[tokio::test]
async fn what_was_closed_well_loses_nothing_silently() {
    let tally = damaged_at_random(true).await;
    assert!(tally.gone.is_empty(), "{:?}", tally.gone);
    assert!(tally.whole > 0 && tally.refused > 0, "{tally:?}");
}

#[tokio::test]
async fn what_was_not_closed_loses_silently_what_came_since_it_was_opened_at_most() {
    let tally = damaged_at_random(false).await;
    let early: Vec<_> = tally.gone.iter().filter(|(_, number)| *number < EARLY).collect();
    assert!(early.is_empty(), "{early:?}");
    assert!(tally.whole > 0 && tally.refused > 0, "{tally:?}");
}
