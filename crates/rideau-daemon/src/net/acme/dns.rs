//! Puts records into DNS, by a program of the operator.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rideau_config::human;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::authority::Trouble;
use crate::state::upgrades::UPGRADE_VARIABLE;

/// It has this long: until the record is there, or gone.
const WITHIN: Duration = Duration::from_secs(60);
/// So much of what it says is told.
const SAID_MAX: usize = 1024;

/// A record that was put there.
pub(super) struct DnsRecord {
    name: String,
    value: String,
}

/// The program and what it started are ended with this.
struct Group(Child);

impl DnsRecord {
    /// Have the program put it there.
    pub(super) async fn set(
        command: &[String],
        host: &str,
        value: String,
    ) -> Result<Self, Trouble> {
        let base = host.strip_prefix("*.").unwrap_or(host);
        let name = format!("_acme-challenge.{base}");
        let record = Self { name, value };
        match record.run(command, "set").await {
            Ok(()) => Ok(record),
            Err(trouble) => {
                // It may be there all the same.
                let _ = record.run(command, "clear").await;
                Err(trouble)
            }
        }
    }

    /// And take it away.
    pub(super) async fn clear(self, command: &[String]) -> Result<(), Trouble> {
        self.run(command, "clear").await
    }

    async fn run(&self, command: &[String], verb: &str) -> Result<(), Trouble> {
        let Some((program, words)) = command.split_first() else {
            return Err(Trouble::unreached("there is no front.acme.dns_command"));
        };
        let ran = run(program, words, [verb, &self.name, &self.value]);
        let ran = tokio::time::timeout(WITHIN, ran).await;
        let why = match ran {
            Ok(Ok((status, _))) if status.success() => return Ok(()),
            Ok(Ok((status, said))) => format!("it ended with {status}: {}", said.trim()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not end within 60 s".into(),
        };
        let text = format!("{program} {verb} {}: {why}", self.name);
        Err(Trouble::unreached(text))
    }
}

/// Run it, and hear the end of what it says.
async fn run(program: &str, words: &[String], more: [&str; 3]) -> io::Result<(ExitStatus, String)> {
    let child = Command::new(program)
        .args(words)
        .args(more)
        .env_remove(UPGRADE_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let mut group = Group(child);
    let mut said = Vec::new();
    if let Some(mut errors) = group.0.stderr.take() {
        let mut piece = [0; 512];
        loop {
            let len = errors.read(&mut piece).await?;
            if len == 0 {
                break;
            }
            said.extend_from_slice(&piece[..len]);
            said.drain(..said.len().saturating_sub(SAID_MAX));
        }
    }
    let status = group.0.wait().await?;
    let said = String::from_utf8_lossy(&said);
    Ok((status, human::shown(&said).into_owned()))
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once it was waited for it has no number, which another may have by now.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
