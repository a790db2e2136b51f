//! Child processes: this program again, for one of its tests.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
};

use crate::PATIENCE;

const PATH: &str = "IDEM_SQLITE_TEST_PATH";
const ORDERS: &str = "IDEM_SQLITE_TEST_ORDERS";

/// A process that runs one test of this program; killed when it is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Runs the test of that name, which finds its path and its orders by [`orders`].
    pub(crate) fn start(test: &str, path: &Path, orders: &str) -> Self {
        Self::start_by(&mut Command::new(env::current_exe().unwrap()), test, path, orders)
    }

    /// As [`Child::start`], by a command that ends in this program.
    pub(crate) fn start_by(program: &mut Command, test: &str, path: &Path, orders: &str) -> Self {
        let program = program
            .args(["--exact", test, "--nocapture"])
            .env(PATH, path)
            .env(ORDERS, orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = program.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        Self { process, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its next line; none if it has ended.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the child says nothing"),
        }
    }

    /// What follows this word in the next line that begins with it.
    pub(crate) fn said(&self, word: &str) -> String {
        loop {
            let line =
                self.line().unwrap_or_else(|| panic!("the child ends and never says {word:?}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim_start().to_string();
            }
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let mut input = self.process.stdin.as_ref().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Kills it, and returns the lines that were not read yet.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.lines.iter().collect()
    }

    /// Waits until it ends, as a test that holds.
    pub(crate) fn succeeds(mut self) {
        while self.line().is_some() {}
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The path and the orders of a child; none in a process that is none.
pub(crate) fn orders() -> Option<(PathBuf, String)> {
    Some((env::var_os(PATH)?.into(), env::var(ORDERS).ok()?))
}

/// Tells the parent, in one write so that a kill cuts no line.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The first line end ends what the test harness may have begun.
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits for the parent's next line; ends the process if there is no parent any more.
pub(crate) fn hear() {
    let heard = std::io::stdin().read_line(&mut String::new());
    if heard.is_ok_and(|length| length == 0) {
        std::process::exit(1);
    }
}
