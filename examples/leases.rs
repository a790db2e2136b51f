//! An effect outside the store: e-mails that are sent once, by whoever holds the key.
//!
//! `cargo run --example leases`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_store::memory::MemoryStore;
use idem_store::{Claim, Idem, Key, LeasedOutcome, OnFailure, Request};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LEASE: Duration = Duration::from_secs(30);

/// A mail server that cannot take anything back.
#[derive(Clone, Default)]
struct Mails(Arc<Mutex<Vec<String>>>);

impl Mails {
    async fn send(&self, to: &str) -> Result<usize, std::io::Error> {
        if to.is_empty() {
            return Err(std::io::Error::other("nobody to send to"));
        }
        let mut sent = self.0.lock().map_err(|_| std::io::Error::other("the server is gone"))?;
        sent.push(to.to_string());
        Ok(sent.len())
    }

    fn sent(&self) -> usize {
        self.0.lock().map_or(0, |sent| sent.len())
    }
}

fn request(name: &str) -> Result<Request, Failure> {
    Ok(Request::new(Key::new("north", "welcome", name)?).fingerprint(name)?)
}

/// Sends a welcome: claim, send, complete. A failure before anything was sent lets go of the key.
async fn welcome(
    idem: &Idem<MemoryStore>,
    mails: &Mails,
    key: &str,
    to: &str,
) -> Result<LeasedOutcome<usize>, Failure> {
    let on_failure = |_: &std::io::Error| OnFailure::Release;
    let send = |_| mails.send(to);
    Ok(idem.run_leased(&request(key)?, LEASE, on_failure, send).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let idem = Idem::new(MemoryStore::new());
    let mails = Mails::default();

    assert!(welcome(&idem, &mails, "ada", "").await.is_err());
    let sent = welcome(&idem, &mails, "ada", "ada@example.org").await?;
    assert!(matches!(sent, LeasedOutcome::Created(1)));
    let again = welcome(&idem, &mails, "ada", "ada@example.org").await?;
    assert!(matches!(again, LeasedOutcome::Replayed(1)));
    assert_eq!(mails.sent(), 1);
    println!("run_leased: one failure, then sent once and replayed");

    // By hand: the lease moves to the task that does the work, and others wait for it.
    let Claim::Acquired(lease) = idem.claim::<usize>(&request("bob")?, LEASE).await? else {
        return Err("the key is free".into());
    };
    let patient = request("bob")?.wait_for(Duration::from_secs(20));
    let waiting = idem.claim::<usize>(&patient, LEASE);
    let worker = tokio::spawn({
        let mails = mails.clone();
        async move {
            let sent = mails.send("bob@example.org").await?;
            Ok::<_, Failure>(lease.complete(sent).await?)
        }
    });
    assert!(matches!(waiting.await?, Claim::Replayed(2)));
    assert_eq!(worker.await??, 2);
    println!("claim: one sent, the other waited and got its result");

    // A holder that gives up without a word: the next one takes over, and knows that it may have been sent.
    let Claim::Acquired(lost) = idem.claim::<usize>(&request("eve")?, LEASE).await? else {
        return Err("the key is free".into());
    };
    let token = lost.token();
    mails.send("eve@example.org").await?;
    drop(lost);
    let patient = request("eve")?.wait_for(Duration::from_secs(20));
    let Claim::Acquired(next) = idem.claim::<usize>(&patient, LEASE).await? else {
        return Err("the lease was dropped".into());
    };
    assert_eq!(next.took_over(), Some(token));
    assert!(next.token() > token);
    next.complete(mails.sent()).await?;
    assert_eq!(mails.sent(), 3);
    println!("taken over: the next holder was told, looked, and sent nothing again");
    Ok(())
}
