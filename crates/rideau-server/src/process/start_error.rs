//! Why a child could not be started, in words that a person can act on.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::lines::Line;
use super::signal::Exit;

/// As many of the last lines stand in the sentence.
const SAID_MAX: usize = 5;

/// Why a child could not be started. Nothing of it is left.
#[derive(Debug)]
pub enum StartError {
    /// There is no program to start.
    Empty,
    /// It would never be ready: it is not told of what is waited for.
    Untold {
        /// The placeholder that is missing.
        what: &'static str,
    },
    /// What a child needs could not be prepared.
    Unprepared {
        /// What could not be done.
        doing: &'static str,
        /// Why.
        error: io::Error,
    },
    /// It cannot run where it should.
    Directory {
        /// Where it should.
        directory: PathBuf,
        /// Why it cannot.
        error: io::Error,
    },
    /// There is no such program.
    NotFound {
        /// The program.
        program: String,
        /// Where it was looked for, if in more than one place.
        path: Option<String>,
    },
    /// The program is there but the system does not run it.
    NotRun {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// It ended before it was ready.
    Exited {
        /// The program.
        program: String,
        /// How.
        exit: Exit,
        /// What it said last.
        lines: Vec<Line>,
    },
    /// It was given a port that somebody else listens on, each time again.
    PortTaken {
        /// The program.
        program: String,
        /// The last port it was given.
        port: u16,
        /// What it said last.
        lines: Vec<Line>,
    },
    /// It did not become ready in time.
    Late {
        /// The program.
        program: String,
        /// How long it had.
        within: Duration,
        /// What was waited for.
        wanted: String,
        /// What it said last.
        lines: Vec<Line>,
    },
}

impl StartError {
    /// What the child said last, if there was one.
    pub fn lines(&self) -> &[Line] {
        match self {
            Self::Exited { lines, .. }
            | Self::PortTaken { lines, .. }
            | Self::Late { lines, .. } => lines,
            _ => &[],
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unprepared { error, .. }
            | Self::Directory { error, .. }
            | Self::NotRun { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "there is no program to start"),
            Self::Untold { what } => write!(
                f,
                "it would be waited for at {what}, but neither its arguments nor its \
                 environment name that"
            ),
            Self::Unprepared { doing, error } => write!(f, "cannot {doing}: {error}"),
            Self::Directory { directory, error } => {
                let directory = directory.display();
                write!(f, "cannot run in the directory {directory}: {error}")
            }
            Self::NotFound { program, path } => {
                write!(f, "`{program}` was not found")?;
                path.iter().try_for_each(|path| write!(f, " in {path}"))
            }
            Self::NotRun { program, error } => write!(f, "`{program}` cannot be run: {error}"),
            Self::Exited { program, exit, .. } => {
                write!(f, "`{program}` {exit} before it was ready")
            }
            Self::PortTaken { program, port, .. } => write!(
                f,
                "`{program}` was given the port {port}, but a process outside its group \
                 listens there"
            ),
            Self::Late {
                program,
                within,
                wanted,
                ..
            } => write!(f, "`{program}` was not ready within {within:?}: {wanted}"),
        }?;
        match self {
            Self::Exited { lines, .. }
            | Self::PortTaken { lines, .. }
            | Self::Late { lines, .. } => said(lines, f),
            _ => Ok(()),
        }
    }
}

fn said(lines: &[Line], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let last = &lines[lines.len().saturating_sub(SAID_MAX)..];
    let Some((first, others)) = last.split_first() else {
        return write!(f, "; it said nothing");
    };
    write!(f, "; it said last: {}", printable(&first.text))?;
    others
        .iter()
        .try_for_each(|line| write!(f, " | {}", printable(&line.text)))
}

/// A terminal that shows the line must not obey it.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::{Exit, Line, StartError};
    use crate::process::Stream;

    #[test]
    fn a_sentence_has_the_last_few_lines_and_nothing_a_terminal_obeys() {
        let lines = (1..=7).map(|number| Line {
            stream: Stream::Error,
            text: format!("\x1b{number}"),
            cut: false,
        });
        let error = StartError::Exited {
            program: "sh".to_owned(),
            exit: Exit::Code(1),
            lines: lines.collect(),
        };
        assert_eq!(error.lines().len(), 7);
        assert_eq!(
            error.to_string(),
            "`sh` exited with code 1 before it was ready; \
             it said last: \u{fffd}3 | \u{fffd}4 | \u{fffd}5 | \u{fffd}6 | \u{fffd}7"
        );
    }
}
