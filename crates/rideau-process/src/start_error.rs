//! Why a child could not be started, in words that a person can act on.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use super::lines::OutputLine;
use super::signal::Exit;
use super::start_step::StartStep;

/// This many of the last lines stand in the sentence.
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
    /// Something that the child needs could not be prepared.
    Unprepared {
        /// The step that failed.
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
    /// A setting before the program runs could not be made.
    Failed {
        /// The step that failed.
        step: StartStep,
        /// With what: a name, a number, a path.
        what: String,
        /// Why.
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
        /// The last lines of its output.
        lines: Vec<OutputLine>,
    },
    /// It was ready, and ended soon after without having answered any request.
    Unanswered {
        /// The program.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The last lines of its output.
        lines: Vec<OutputLine>,
    },
    /// It ended well before it was ready, and left others running.
    Daemonised {
        /// The program.
        program: String,
        /// How many it left. They were killed.
        others: usize,
        /// The last lines of its output.
        lines: Vec<OutputLine>,
    },
    /// It was given a port that another process listens on, each time again.
    PortTaken {
        /// The program.
        program: String,
        /// The last port it was given.
        port: u16,
        /// The last lines of its output.
        lines: Vec<OutputLine>,
    },
    /// It did not become ready in time.
    Late {
        /// The program.
        program: String,
        /// How long it had.
        within: Duration,
        /// The readiness that was waited for.
        wanted: String,
        /// Where it listens instead, as far as we may look.
        elsewhere: Vec<String>,
        /// The last lines of its output.
        lines: Vec<OutputLine>,
    },
}

impl StartError {
    /// The last lines of the child's output, if there was one.
    pub fn lines(&self) -> &[OutputLine] {
        match self {
            Self::Exited { lines, .. }
            | Self::Unanswered { lines, .. }
            | Self::Daemonised { lines, .. }
            | Self::PortTaken { lines, .. }
            | Self::Late { lines, .. } => lines,
            _ => &[],
        }
    }

    /// The step that failed.
    pub const fn step(&self) -> StartStep {
        match self {
            Self::Empty | Self::Untold { .. } | Self::Unprepared { .. } => StartStep::Prepare,
            Self::Directory { .. } => StartStep::Chdir,
            Self::Failed { step, .. } => *step,
            Self::NotFound { .. } | Self::NotRun { .. } => StartStep::Exec,
            Self::Exited { .. }
            | Self::Unanswered { .. }
            | Self::Daemonised { .. }
            | Self::PortTaken { .. }
            | Self::Late { .. } => StartStep::Ready,
        }
    }

    /// The number of the system's error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Unprepared { error, .. }
            | Self::Directory { error, .. }
            | Self::Failed { error, .. }
            | Self::NotRun { error, .. } => error.raw_os_error(),
            Self::NotFound { .. } => Some(Errno::NOENT.raw_os_error()),
            _ => None,
        }
    }

    /// How the child ended by itself.
    pub const fn exit(&self) -> Option<Exit> {
        match self {
            Self::Exited { exit, .. } | Self::Unanswered { exit, .. } => Some(*exit),
            Self::Daemonised { .. } => Some(Exit::Code(0)),
            _ => None,
        }
    }

    /// The failure and its reason in a line; the step first if the system refused it.
    pub fn summary(&self) -> String {
        let failed = |what: &str, error: &io::Error| {
            format!("{} {what}: {}", self.step().word(), plain(error))
        };
        match self {
            Self::Directory { directory, error } => failed(&directory.to_string_lossy(), error),
            Self::Failed { what, error, .. } => failed(what, error),
            Self::NotRun { program, error } => failed(program, error),
            Self::NotFound { program, .. } => failed(program, &Errno::NOENT.into()),
            other => Sentence(other).to_string(),
        }
    }
}

/// Without what the child said.
struct Sentence<'a>(&'a StartError);

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unprepared { error, .. }
            | Self::Directory { error, .. }
            | Self::Failed { error, .. }
            | Self::NotRun { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            StartError::Empty => write!(f, "there is no program to start"),
            StartError::Untold { what } => write!(
                f,
                "it would be waited for at {what}, but neither its arguments nor its \
                 environment name that"
            ),
            StartError::Unprepared { doing, error } => write!(f, "cannot {doing}: {error}"),
            StartError::Directory { directory, error } => {
                let directory = directory.display();
                write!(f, "cannot run in the directory {directory}: {error}")
            }
            StartError::Failed { step, what, error } => {
                write!(f, "{} {what}: {}", step.word(), plain(error))
            }
            StartError::NotFound { program, path } => {
                write!(f, "`{program}` was not found")?;
                path.iter().try_for_each(|path| write!(f, " in {path}"))
            }
            StartError::NotRun { program, error } => {
                write!(f, "`{program}` cannot be run: {error}")
            }
            StartError::Exited { program, exit, .. } => {
                write!(f, "`{program}` {exit} before it was ready")
            }
            StartError::Unanswered { program, exit, .. } => write!(
                f,
                "`{program}` {exit} soon after it was ready, before it had answered a request"
            ),
            StartError::Daemonised {
                program, others, ..
            } => write!(
                f,
                "`{program}` went to the background and left {others} running: run it in the \
                 foreground"
            ),
            StartError::PortTaken { program, port, .. } => write!(
                f,
                "`{program}` was given the port {port}, but a process that is not its own \
                 listens there"
            ),
            StartError::Late {
                program,
                within,
                wanted,
                elsewhere,
                ..
            } => {
                write!(f, "`{program}` was not ready within {within:?}: {wanted}")?;
                match &elsewhere[..] {
                    [] => Ok(()),
                    others => write!(f, ", but at {}", others.join(", ")),
                }
            }
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Sentence(self).fmt(f)?;
        match self {
            Self::Exited { lines, .. }
            | Self::Unanswered { lines, .. }
            | Self::Daemonised { lines, .. }
            | Self::PortTaken { lines, .. }
            | Self::Late { lines, .. } => said(lines, f),
            _ => Ok(()),
        }
    }
}

fn said(lines: &[OutputLine], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let last = &lines[lines.len().saturating_sub(SAID_MAX)..];
    let Some((first, others)) = last.split_first() else {
        return write!(f, "; it said nothing");
    };
    write!(f, "; it said last: {}", printable(&first.text))?;
    others
        .iter()
        .try_for_each(|line| write!(f, " | {}", printable(&line.text)))
}

/// In the system's words, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.replace(&format!(" (os error {number})"), ""),
        None => text,
    }
}

/// A terminal that shows the line must not obey it.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::{Exit, OutputLine, StartError};
    use crate::Stream;

    #[test]
    fn a_sentence_has_the_last_few_lines_and_nothing_a_terminal_obeys() {
        let lines = (1..=7).map(|number| OutputLine {
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
