//! Signals, sent by system call: a bare system has no `kill` program.

use rustix::io::Result;
use rustix::process::{Pid, Signal, kill_process};

/// Send a signal to a process that must be there.
///
/// # Panics
///
/// If there is no such process, or it belongs to another user.
#[track_caller]
pub fn signal(pid: impl TryInto<i32>, signal: Signal) {
    if let Err(error) = try_signal(pid, signal) {
        panic!("cannot send {signal:?}: {error}");
    }
}

/// Send a signal to a process that may be gone.
///
/// # Errors
///
/// If there is no such process, or it belongs to another user.
pub fn try_signal(pid: impl TryInto<i32>, signal: Signal) -> Result<()> {
    let pid = pid.try_into().ok().and_then(Pid::from_raw);
    kill_process(pid.ok_or(rustix::io::Errno::INVAL)?, signal)
}
