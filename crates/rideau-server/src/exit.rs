//! How a command ends, and the log of those that serve.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use rideau_config::Log;

use crate::wire::WireFault;

/// Why the program could not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In words.
    Broken(String),
    /// The words make no sense together.
    Misuse(String),
    /// Reading or writing failed.
    Io(io::Error),
}

/// How a command ended.
pub(crate) type Done = Result<ExitCode, Failure>;

/// The server said no.
pub(crate) const REFUSED: u8 = 3;
pub(crate) const MISUSED: u8 = 2;

/// Write the log to standard error, as the config wants it.
pub(crate) fn start_log(log: Log) {
    rideau_daemon::log::start(log, has_colours(&io::stderr()));
}

/// Colours are for people, and not for all of them.
pub(crate) fn has_colours(out: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    out.is_terminal() && !is_dumb && !is_set("NO_COLOR")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(text) | Self::Misuse(text) => f.write_str(text),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<WireFault> for Failure {
    fn from(fault: WireFault) -> Self {
        Self::Broken(fault.to_string())
    }
}
