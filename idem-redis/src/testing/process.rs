//! A server's process: it ends when ours does, however ours ends.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

/// Becomes the server, after leaving a guard behind that reads from the pipe we hold: a line dismisses it. If
/// the pipe ends without one, we are gone, and the guard removes the server and its folder.
///
/// The guard is no child of the server's, which would wonder about it.
const SCRIPT: &str = r#"
    exec 3<&0 </dev/null
    ( { read -r _ <&3 || { kill -KILL $$; rm -rf "$0"; }; } & )
    exec "$@" 3<&-
"#;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    guard: Option<ChildStdin>,
}

impl Process {
    pub(crate) fn start(
        program: &str,
        args: &[String],
        folder: &Path,
        log: &File,
    ) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT])
            .arg(folder)
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()?;
        let guard = child.stdin.take();
        Ok(Self { child, guard })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.dismiss_guard();
        }
        Ok(status)
    }

    pub(crate) fn signal(&self, name: &str) -> io::Result<()> {
        let script = r#"kill -s "$0" "$1""#;
        let id = self.id().to_string();
        let output = Command::new("sh").args(["-c", script, name, &id]).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Ends it at once, and returns when it is gone.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        // Before the wait, which frees the process id for others.
        self.dismiss_guard();
        self.child.wait().map(drop)
    }

    fn dismiss_guard(&mut self) {
        if let Some(mut pipe) = self.guard.take() {
            // It fails if the guard is gone, which is as well.
            let _ = pipe.write_all(b"\n");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It cannot be reported here, and it fails only if the process is gone.
        let _ = self.kill();
    }
}
