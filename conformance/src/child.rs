//! Tests that run themselves as a process of its own: one that can be killed, or stopped, at any instant.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{self, ChildStdin, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// How long a child may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test of this program in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Starts the test of that full name, with these environment variables: by them it knows that it is a child, and
    /// without them it is to do nothing.
    ///
    /// # Panics
    /// If the system starts no process.
    pub fn start<const N: usize>(test: &str, variables: [(&str, String); N]) -> Self {
        let program = env::current_exe().expect("this program has a path");
        Self::start_by(&mut Command::new(program), test, variables)
    }

    /// As [`Child::start`], by a command that ends in this program.
    ///
    /// # Panics
    /// If the system starts no process.
    pub fn start_by<const N: usize>(
        command: &mut Command,
        test: &str,
        variables: [(&str, String); N],
    ) -> Self {
        let command = command.args(["--exact", test, "--nocapture"]).envs(variables);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the system starts a process");
        let output = process.stdout.take().expect("its output is piped");
        let input = process.stdin.take().expect("its input is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Whoever has killed it may listen no more.
                let _ = sender.send(line);
            }
        });
        Self { process, input, lines }
    }

    /// The next line that it says; none if it has ended.
    ///
    /// # Panics
    /// If it says nothing for a minute.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the child says nothing"),
        }
    }

    /// Waits for the next line that begins with that word, and returns what follows it.
    ///
    /// # Panics
    /// If it ends before it has said so.
    pub fn said(&self, word: &str) -> String {
        while let Some(line) = self.line() {
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim_start().to_string();
            }
        }
        panic!("the child ends and never says {word:?}");
    }

    /// Whether it has said nothing that nobody has heard yet, but for empty lines.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.lines.try_iter().all(|line| line.is_empty())
    }

    /// Tells it to go on: [`hear`] waits for that.
    ///
    /// # Panics
    /// If it is gone.
    pub fn go_on(&mut self) {
        self.input.write_all(b"\n").and_then(|()| self.input.flush()).expect("it listens");
    }

    /// Sends it a signal, by its name without `SIG`.
    ///
    /// # Panics
    /// If it does not reach it.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let mut kill = Command::new("sh");
        let sent = kill.args(["-c", r#"kill -s "$0" "$1""#, name, &id]).status();
        assert!(sent.expect("there is a shell").success(), "{name} must reach the child");
    }

    /// Whether the system says that it is stopped: a signal takes effect some time after it was sent.
    ///
    /// # Panics
    /// If there is neither `/proc` nor `ps`.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let id = self.process.id();
        if let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) {
            return stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
        }
        // Elsewhere than on Linux.
        let state = Command::new("ps").args(["-o", "state=", "-p", &id.to_string()]).output();
        state.expect("there is ps").stdout.trim_ascii().starts_with(b"T")
    }

    /// Kills it, and returns what it had said and nobody has heard yet.
    ///
    /// # Panics
    /// If the system does not let it be killed.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().and_then(|()| self.process.wait()).expect("a child can be killed");
        self.lines.iter().collect()
    }

    /// Waits until it ends, which must be well, and returns what it had said and nobody has heard yet.
    ///
    /// # Panics
    /// If it says nothing for a minute, or its test fails.
    pub fn ends(mut self) -> Vec<String> {
        let said: Vec<_> = std::iter::from_fn(|| self.line()).collect();
        let status = self.process.wait().expect("it has ended");
        assert!(status.success(), "{said:?}");
        said
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Says a line to the parent, whole or not at all: what is written at once is not cut by a kill.
///
/// # Panics
/// If nobody listens.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The first line end ends what the test harness may have begun.
    let said = out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush());
    said.expect("the parent listens");
}

/// Waits for the parent to tell this process to go on, and ends it if the parent is gone. Blocks.
pub fn hear() {
    let heard = std::io::stdin().read_line(&mut String::new());
    if heard.is_ok_and(|length| length == 0) {
        process::exit(1);
    }
}
