//! The newer program: it checks the config, and is started.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use rideau_process::{PassReceiver, PassSender, pass_ends};
use tokio::process::{Child, Command};

use super::last_lines::LastLines;
use crate::state::upgrades::StartedAs;
use crate::state::upgrades::UPGRADE_VARIABLE;

/// The newer server's process.
pub(super) struct NewerProcess {
    pub(super) child: Child,
    pub(super) sender: PassSender,
    pub(super) receiver: PassReceiver,
    pub(super) lines: LastLines,
}

/// Have a program check the config. What it finds is told.
pub(super) async fn check(program: &Path, how: &StartedAs) -> Result<(), String> {
    let Some(check) = &how.check else {
        return Ok(());
    };
    let mut command = Command::new(program);
    command.args(check).stdin(Stdio::null()).kill_on_drop(true);
    let said = command.output().await;
    let said = said.map_err(|error| format!("{}: {error}", program.display()))?;
    if said.status.success() {
        return Ok(());
    }
    let lines = LastLines::default();
    let text = [said.stdout, said.stderr].concat();
    lines.clone().follow(&*text, io::sink()).await;
    Err(format!("{}{}", said.status, lines.said()))
}

/// Start a program that takes over from this one.
pub(super) fn start(program: &Path, how: &StartedAs) -> io::Result<NewerProcess> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.args(&how.arguments).env(UPGRADE_VARIABLE, "1");
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let lines = LastLines::default();
    if let Some(output) = child.stdout.take() {
        tokio::spawn(lines.clone().follow(output, io::stdout()));
    }
    if let Some(error) = child.stderr.take() {
        tokio::spawn(lines.clone().follow(error, io::stderr()));
    }
    let (sender, receiver) = pass_ends(ours)?;
    Ok(NewerProcess {
        child,
        sender,
        receiver,
        lines,
    })
}
