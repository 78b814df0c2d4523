//! What the program is between its fork and a command that it holds something
//! for: made to end with us, it becomes that command.
//!
//! What we hold ends with our connection. Were we killed, a command that ran on
//! would share with the next holder what it thinks is its own.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::show;

/// The word that makes the program this; no person types it.
const WORD: &str = "__bound";
/// Where the system shows a program to itself, even one whose file was replaced.
const OURSELVES: &str = "/proc/self/exe";
/// The shell's codes for what cannot be found, and what cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// A command that dies with this process. It has to be started by a thread that
/// lasts as long as we do.
pub(super) fn bound(words: &[OsString]) -> Command {
    let mut command = Command::new(OURSELVES);
    command.arg0("rideau").arg(WORD);
    command.arg(std::process::id().to_string()).args(words);
    command
}

/// Become the command if the words say so. A process that returns a code has failed
/// and has said why.
pub(super) fn stage(words: &[OsString]) -> Option<ExitCode> {
    let [_, word, parent, program, arguments @ ..] = words else {
        return None;
    };
    if word != WORD {
        return None;
    }
    let error = match bind(parent) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    };
    Some(not_run(program, &error).into())
}

fn bind(parent: &OsStr) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Had it died before, no signal would tell us.
    let is_there = parent.to_str() == Some(&Pid::as_raw(getppid()).to_string());
    is_there
        .then_some(())
        .ok_or_else(|| io::Error::other("the program that started it is gone"))
}

/// Say why a command cannot be run, with the code for that.
pub(super) fn not_run(program: &OsStr, error: &io::Error) -> u8 {
    show::complain(format!("{}: {error}", program.to_string_lossy()));
    code(Some(error))
}

/// The code for why a command cannot be run.
pub(super) fn code(error: Option<&io::Error>) -> u8 {
    match error.map(io::Error::kind) {
        Some(ErrorKind::NotFound) => NOT_FOUND,
        _ => NOT_RUN,
    }
}
