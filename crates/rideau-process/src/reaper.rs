//! A process that outlives the daemon by a moment, to end the processes it left.
//!
//! A child dies with the daemon, but the processes that the child has started do
//! not. The reaper hears when the daemon is gone, and cleans its folder as the next
//! daemon would, which ends them all.

use std::ffi::OsString;
use std::io::{self, Read, Write, stdin};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};

use rustix::process::setsid;

use super::cgroup;
use super::run_lock;

/// The word that makes the program a reaper.
pub(super) const WORD: &str = "__watch";
const FAREWELL: &[u8] = b".";

/// A reaper of ours. It goes when this is dropped.
pub(super) struct Reaper {
    process: Child,
    socket: UnixStream,
}

impl Reaper {
    /// Have a process watch us, for the children in a folder.
    pub(super) fn start(stage: &Path, folder: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(stage);
        command.arg0("rideau").args([WORD, folder]);
        command.arg(process::id().to_string());
        command.env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            process: command.spawn()?,
            socket: ours,
        })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // It may have been killed, and a reaper that is gone needs no farewell.
        let _ = self.socket.write_all(FAREWELL);
        let _ = self.process.wait();
    }
}

/// Be the reaper of the daemon that has the other end of our standard input.
pub(super) fn watch(folder: Option<OsString>, daemon: Option<OsString>) {
    // What is meant for the daemon's group, as Ctrl-C, is not meant for us.
    let _ = setsid();
    let mut said = [0; FAREWELL.len()];
    let daemon = daemon.and_then(|pid| pid.to_str()?.parse().ok());
    let (Some(folder), Some(daemon)) = (folder, daemon) else {
        return;
    };
    if stdin().read_exact(&mut said).is_err() {
        let _ = run_lock::clean_after(daemon, Path::new(&folder));
        cgroup::clean_own();
    }
}
