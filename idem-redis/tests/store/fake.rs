//! A server that says what it is told to, for what a real one cannot be brought to say quickly.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

type Answer = dyn Fn(&[String]) -> String + Send + Sync;

/// Listens until the test's process ends.
pub(crate) struct Fake {
    url: String,
    scripts: Arc<AtomicUsize>,
}

impl Fake {
    /// A server of that version that answers `to_script` to every script.
    pub(crate) fn start(version: &'static str, to_script: &'static str) -> Self {
        Self::answering(version, move |_| to_script.to_string())
    }

    /// A server of that version that answers to a script's command what it is told to.
    pub(crate) fn answering(
        version: &'static str,
        answer: impl Fn(&[String]) -> String + Send + Sync + 'static,
    ) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let scripts = Arc::new(AtomicUsize::new(0));
        let counter = scripts.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (counter, answer) = (counter.clone(), answer.clone());
                thread::spawn(move || serve(client.unwrap(), version, &*answer, &counter));
            }
        });
        Self { url, scripts }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// How many scripts it was asked to run.
    pub(crate) fn scripts(&self) -> usize {
        self.scripts.load(Ordering::SeqCst)
    }
}

fn serve(client: TcpStream, version: &str, answer: &Answer, scripts: &AtomicUsize) {
    let mut requests = BufReader::new(client.try_clone().unwrap());
    while let Some(command) = next(&mut requests) {
        let reply = match command[0].to_ascii_uppercase().as_str() {
            "INFO" => bulk(&format!("# Server\r\nredis_version:{version}\r\n")),
            "TIME" => "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_string(),
            "ECHO" => bulk(&command[1]),
            "EVALSHA" | "EVAL" | "GETEX" | "SCAN" => {
                scripts.fetch_add(1, Ordering::SeqCst);
                format!("{}\r\n", answer(&command))
            }
            _ => "+OK\r\n".to_string(),
        };
        if (&client).write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The next command; none when the client has gone.
fn next(requests: &mut impl BufRead) -> Option<Vec<String>> {
    let parts = number(requests)?;
    (0..parts).map(|_| part(requests)).collect()
}

fn part(requests: &mut impl BufRead) -> Option<String> {
    let mut bytes = vec![0; number(requests)? + 2];
    requests.read_exact(&mut bytes).ok()?;
    bytes.truncate(bytes.len() - 2);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number in a line such as `*3` or `$5`.
fn number(requests: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok()?;
    line.get(1..)?.trim().parse().ok()
}
