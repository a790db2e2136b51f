//! Tests that run themselves as a child, and listen to it.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{self, Command, Stdio},
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

/// The test `child` of this program in a process of its own. Dropping it kills it.
pub(crate) struct Child {
    process: process::Child,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Starts it by that program: this one, or one that starts it.
    pub(crate) fn start(program: &mut Command) -> Self {
        let mut process = program
            .args(["--exact", "child", "--nocapture"])
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
        Self { process, lines }
    }

    /// This program.
    pub(crate) fn program() -> Command {
        Command::new(env::current_exe().unwrap())
    }

    /// The next line that it says.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the child goes on")
    }

    /// Kills it, and returns what it had said and nobody has heard yet.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.lines.iter().collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be gone.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
