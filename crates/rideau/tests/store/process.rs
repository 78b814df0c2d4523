//! A test of this program in a process of its own.

use std::env;
use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Stdio};

use rideau_testing::{Running, Start, command};

/// What it says begins with this, for the harness writes too.
const SAYS: &str = "child: ";

pub(crate) struct Process {
    pub(crate) child: Running,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program again, with one test and these settings.
    pub(crate) fn start<'a>(
        test: &str,
        settings: impl IntoIterator<Item = &'a (&'a str, String)>,
    ) -> Self {
        let mut child = command(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .envs(settings.into_iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .start();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that it says, or nothing if it has gone.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.ok()?;
            // The harness may have written before it on the same line.
            if let Some((_, said)) = line.split_once(SAYS) {
                return Some(said.to_owned());
            }
        }
    }
}
