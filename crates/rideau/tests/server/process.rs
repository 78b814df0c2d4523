//! A server of a test's own: a process with a folder and a port, gone with it.

use rideau_testing::{Running, Start, memory_folder};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a server may take to do what it was told. It only ends a test that
/// would hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Poll until `done` says so.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !done().await {
        assert!(since.elapsed() < PATIENCE, "still waiting until {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A port that no process listened on a moment ago.
///
/// Not one of those that the system gives to connecting clients: a client that
/// tries to reach a server that is down would one day get its port, and talk to
/// itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = id().wrapping_mul(16).wrapping_add(next);
        let port = u16::try_from(20_000 + number % 12_000).expect("it is below 32,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A folder that is removed with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self::within(&std::env::temp_dir(), name)
    }

    /// One in memory, if there is room.
    #[allow(dead_code, reason = "not every server needs one")]
    pub(crate) fn in_memory(name: &str) -> Self {
        Self::within(&memory_folder(), name)
    }

    fn within(place: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("rideau-{name}-{}-{number}", id()));
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Start a server that says nothing to the terminal.
pub(crate) fn start(command: &mut Command) -> Running {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    quiet.stderr(Stdio::null()).start()
}

pub(crate) fn has_ended(server: &mut Running) -> bool {
    let end = server.try_wait().expect("a child can be waited for");
    end.is_some()
}
