//! Programs that the bench has started: waited for until they listen, and
//! stopped by their ids, also by a panic.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::measure::Family;
use crate::talk::Folder;

/// Where a process listens.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Port(SocketAddr),
    Socket(PathBuf),
}

/// A program that runs until this is dropped.
pub(super) struct Started {
    child: Child,
    /// Removed after it has ended.
    folder: Option<Folder>,
}

/// Long enough for a machine that is busy with something else.
const START_MAX: Duration = Duration::from_secs(10);
/// Passenger takes some.
const STOP_MAX: Duration = Duration::from_secs(20);

impl Started {
    /// Starts a program, and waits until it listens. Says why it does not.
    pub(super) fn new(
        command: &mut Command,
        place: &Place,
        folder: Option<Folder>,
    ) -> Result<Self, String> {
        let mut started = Self::at_once(command, folder).map_err(|error| error.to_string())?;
        let until = Instant::now() + START_MAX;
        while !place.is_taken() {
            if let Some(end) = started.child.try_wait().expect("it is our child") {
                return Err(format!("it ended at once, with {end}"));
            }
            if Instant::now() > until {
                return Err("it does not listen".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(started)
    }

    /// Starts a program, and waits for nothing.
    pub(super) fn at_once(command: &mut Command, folder: Option<Folder>) -> io::Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = quiet.spawn()?;
        Ok(Self { child, folder })
    }

    /// It and all processes that it has started.
    pub(super) fn family(&self) -> Family {
        Family::of(self.child.id())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Asked first: the workers of nginx would outlive a master that is killed.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + STOP_MAX;
        while let Ok(None) = self.child.try_wait()
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.folder.take());
    }
}

impl Place {
    /// Does a process listen here?
    fn is_taken(&self) -> bool {
        match self {
            Self::Port(address) => TcpStream::connect(address).is_ok(),
            Self::Socket(path) => UnixStream::connect(path).is_ok(),
        }
    }
}

pub(super) fn this_program() -> PathBuf {
    std::env::current_exe().expect("Linux knows what runs")
}

/// An address that nothing listens at.
pub(super) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound")
}
