//! Tests that run themselves as a child, and listen to it.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{self, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// How long a child may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says a line to the parent, whole or not at all: what is written at once is not cut by a kill.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits for the parent's line, or for its death. Blocks.
pub(crate) fn told_to_go_on() {
    std::io::stdin().read_line(&mut String::new()).ok();
}

/// One test of this program in a process of its own. Dropping it kills it.
pub(crate) struct Child {
    process: process::Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Starts it with these environment variables.
    pub(crate) fn start<const N: usize>(test: &str, variables: [(&str, String); N]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        let input = process.stdin.take().unwrap();
        Self { process, input, lines }
    }

    /// The next line that it says.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the child goes on")
    }

    /// The next line that begins so, without that.
    pub(crate) fn line_of(&self, start: &str) -> String {
        loop {
            if let Some(rest) = self.line().strip_prefix(start) {
                return rest.to_string();
            }
        }
    }

    /// Whether it has said nothing that nobody has heard yet, but for empty lines.
    pub(crate) fn is_silent(&self) -> bool {
        self.lines.try_iter().all(|line| line.is_empty())
    }

    /// What [`told_to_go_on`] waits for.
    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.input.flush().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("sh").args(["-c", r#"kill -s "$0" "$1""#, name, &id]).status();
        assert!(sent.unwrap().success(), "{name} must reach the child");
    }

    /// Whether the system says that it is stopped: a signal takes effect some time after it was sent.
    pub(crate) fn is_stopped(&self) -> bool {
        let id = self.process.id();
        if let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) {
            return stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
        }
        // Elsewhere than on Linux.
        let state = Command::new("ps").args(["-o", "state=", "-p", &id.to_string()]).output();
        state.unwrap().stdout.trim_ascii().starts_with(b"T")
    }

    /// Kills it, and returns what it had said and nobody has heard yet.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.lines.iter().collect()
    }

    /// Tells it to go on, and returns what it says until it ends, which must be well.
    pub(crate) fn ends(mut self) -> Vec<String> {
        self.go_on();
        let mut said = Vec::new();
        while let Some(line) = self.lines.recv_timeout(PATIENCE).map_or_else(
            |error| {
                assert_eq!(error, mpsc::RecvTimeoutError::Disconnected, "the child ends");
                None
            },
            Some,
        ) {
            said.push(line);
        }
        assert!(self.process.wait().unwrap().success(), "{said:?}");
        said
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be gone.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
