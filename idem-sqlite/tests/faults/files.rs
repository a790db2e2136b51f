//! Files with flipped bits, and files that were cut: what each key is told then, and what the engine hides.

use idem_conformance::chance::rounds;

use crate::{
    chance,
    image::{Answers, IN_DATABASE, Image, KEYS, Told, answers},
};

/// Flips any bit, and says which.
fn flip(bytes: &mut [u8], chance: &mut fastrand::Rng) -> (usize, u8) {
    let (byte, bit) = (chance.usize(..bytes.len()), 1 << chance.usize(..8));
    bytes[byte] ^= bit;
    (byte, bit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_of_the_database_is_told_or_harms_one_key_or_is_found_by_the_engines_check() {
    let mut chance = chance();
    let with_log = Image::with_log().await;
    let images = [with_log.without_log(), with_log];
    for round in 0..rounds(200) {
        let mut image = images[round % 2].clone();
        let flipped = flip(&mut image.database, &mut chance);
        let found = !image.passes_the_engines_check();
        let Some(answers) = answers(&image).await else { continue };
        let count = answers.count();
        let allowed = [Told::Right, Told::Damaged, Told::Anew, Told::Wrong, Told::Conflict];
        assert!(count.keys().all(|told| allowed.contains(told)), "{flipped:?}: {count:?}");
        let harmed = KEYS - count.get(&Told::Right).copied().unwrap_or_default();
        assert!(found || harmed <= 1, "{flipped:?}: {count:?}, and the engine finds nothing");
    }
}

/// Where a row of the database is: the bytes of its key, and of its state, which follows.
fn row(image: &Image, number: usize) -> usize {
    let text = format!("requestnorthorderkey-{number:03}completed");
    let mut places = image.database.windows(text.len()).enumerate();
    places.find(|(_, bytes)| *bytes == text.as_bytes()).expect("the row is there").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_flipped_bit_of_a_row_does_is_known() {
    const STATE: usize = "requestnorthorderkey-034".len();
    const CREATED_AT: usize = STATE + "completed".len();
    const EXPIRES_AT: usize = CREATED_AT + 6;
    const ATTEMPT: usize = EXPIRES_AT + 6;
    const FINGERPRINT: usize = ATTEMPT + 16;
    const RESULT: usize = FINGERPRINT + 33;
    const ANOTHERS_KEY: &str = "key, which then is that of 035";
    let image = Image::with_log().await.without_log();
    // Which byte of the row of which key, which bit of it, what its key is told, and whether the engine's own check
    // finds it.
    let flips = [
        ("kind", 34, 0, 0x01, Told::Anew, true),
        ("key", 34, STATE - 1, 0x10, Told::Anew, true),
        (ANOTHERS_KEY, 34, STATE - 1, 0x01, Told::Anew, true),
        // This one does not expire, and stays where it was in the order.
        ("the last key", KEYS - 1, STATE - 1, 0x04, Told::Anew, false),
        ("state", 34, STATE, 0x01, Told::Damaged, false),
        ("created_at", 34, CREATED_AT + 5, 0x01, Told::Right, false),
        ("expires_at, a little", 34, EXPIRES_AT + 5, 0x01, Told::Right, true),
        // It has expired, but the engine misses it in the index when it would run anew.
        ("expires_at, its sign", 34, EXPIRES_AT, 0x80, Told::Damaged, true),
        ("attempt", 34, ATTEMPT, 0x01, Told::Right, false),
        ("fingerprint, its version", 34, FINGERPRINT, 0x01, Told::Damaged, false),
        ("fingerprint", 34, FINGERPRINT + 1, 0x01, Told::Conflict, false),
        ("result, its JSON", 34, RESULT, 0x01, Told::Damaged, false),
        ("result", 34, RESULT + 1, 0x01, Told::Wrong, false),
    ];
    for (what, number, byte, bit, told, found) in flips {
        let mut image = image.clone();
        let start = row(&image, number);
        image.database[start + byte] ^= bit;
        assert_eq!(!image.passes_the_engines_check(), found, "{what}");
        let answers = answers(&image).await.expect("it opens");
        assert_eq!(answers.keys[number], told, "{what}");
        // A key out of order may lead the engine astray on its way to others.
        let harmed = answers.keys.iter().filter(|told| **told != Told::Right).count();
        assert!(found || harmed <= 1, "{what}: {:?}", answers.count());
        let foreign = [Told::Wrong, Told::Conflict];
        let misled =
            (0..KEYS).find(|other| *other != number && foreign.contains(&answers.keys[*other]));
        let expected = (what == ANOTHERS_KEY).then_some(35);
        assert_eq!(misled, expected, "{what}: it is given another key's record");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_pages_is_refused_or_told_and_one_that_lost_all_is_new() {
    const PAGE: usize = 4096;
    let mut chance = chance();
    let image = Image::with_log().await.without_log();
    let whole = image.database.len();
    assert_eq!(whole % PAGE, 0);
    let edges = [
        0,
        1,
        2,
        99,
        100,
        511,
        512,
        PAGE - 1,
        PAGE,
        PAGE + 1,
        whole - PAGE,
        whole - PAGE + 1,
        whole - 1,
    ];
    let random: Vec<_> = (0..rounds(20)).map(|_| chance.usize(..whole)).collect();
    for length in edges.into_iter().chain(random) {
        let mut image = image.clone();
        image.database.truncate(length);
        let found = !image.passes_the_engines_check();
        let answers = answers(&image).await;
        if length <= 1 {
            let count = answers.expect("it opens").count();
            assert_eq!(
                count.get(&Told::Anew),
                Some(&KEYS),
                "{length}: to the engine, it is a new file"
            );
        } else if length <= whole - PAGE {
            assert!(
                answers.is_none(),
                "{length} of {whole}: {:?}",
                answers.map(|answers| answers.count())
            );
        } else {
            // The engine reads zeros where the last page is cut; its keys are damaged, or there in part, or not.
            let count = answers.expect("it opens").count();
            let allowed = [Told::Right, Told::Damaged, Told::Anew, Told::Conflict];
            assert!(count.keys().all(|told| allowed.contains(told)), "{length}: {count:?}");
            assert!(found || !count.contains_key(&Told::Anew), "{length}: {count:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_pages_beside_its_log_tells_it() {
    let mut chance = chance();
    let image = Image::with_log().await;
    for _ in 0..rounds(20) {
        let mut image = image.clone();
        // Of a shorter one the engine drops the log as well.
        image.database.truncate(2 + chance.usize(..image.database.len() - 2));
        let Some(answers) = answers(&image).await else { continue };
        let count = answers.count();
        assert!(count.keys().all(|told| [Told::Right, Told::Damaged].contains(told)), "{count:?}");
    }
}

/// Where each commit of a log ends: 32 bytes, then frames of 24 bytes and a page, of which those that end a commit
/// tell the size of the database.
fn commits(log: &[u8]) -> Vec<usize> {
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let frames = log[32..].chunks_exact(24 + page).enumerate();
    let commits = frames.filter(|(_, frame)| frame[4..8] != [0; 4]);
    commits.map(|(number, _)| 32 + (number + 1) * (24 + page)).collect()
}

/// Of the keys in the log exactly those are there that were committed before this byte: their effects too.
fn are_those_before(answers: &Answers, commits: &[usize], byte: usize) {
    let there = IN_DATABASE + commits.iter().filter(|end| **end <= byte).count();
    let expected = (0..KEYS).map(|number| if number < there { Told::Right } else { Told::Anew });
    assert_eq!(answers.keys, expected.collect::<Vec<_>>(), "byte {byte}");
    assert_eq!(answers.orders, Some((0..there as i64).collect()), "byte {byte}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_after_a_flipped_bit_of_the_log_is_gone_with_its_effect() {
    let mut chance = chance();
    let image = Image::with_log().await;
    let commits = commits(&image.log);
    assert_eq!(commits.len(), KEYS - IN_DATABASE, "each key is a commit");
    for round in 0..rounds(60) {
        let mut image = image.clone();
        // Its head is small, and would be hit too seldom.
        let end = if round.is_multiple_of(6) { 32 } else { image.log.len() };
        let (byte, _) = flip(&mut image.log[..end], &mut chance);
        are_those_before(&answers(&image).await.expect("it opens"), &commits, byte);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_after_the_end_of_a_cut_log_is_gone_with_its_effect() {
    let mut chance = chance();
    let image = Image::with_log().await;
    let commits = commits(&image.log);
    let edges = [0, 1, 31, 32, 33, commits[0] - 1, commits[0], commits[0] + 1, image.log.len() - 1];
    let random: Vec<_> = (0..rounds(20)).map(|_| chance.usize(..image.log.len())).collect();
    for length in edges.into_iter().chain(random) {
        let mut image = image.clone();
        image.log.truncate(length);
        are_those_before(&answers(&image).await.expect("it opens"), &commits, length);
    }
}
