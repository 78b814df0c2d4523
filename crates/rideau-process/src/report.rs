//! The report of a failed start, for a page, a log or a program.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::time::Instant;

use super::Process;
use super::lines::OutputLine;
use super::program::{Listen, Program, Ready};
use super::signal::Exit;
use super::start_error::StartError;
use super::start_step::StartStep;

/// When a step of a start was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StepTime {
    /// The step.
    pub step: StartStep,
    /// After so long from the beginning of the start.
    #[serde(rename = "after_ms", serialize_with = "milliseconds")]
    pub after: Duration,
}

/// Why a start failed, with all that helps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StartReport {
    /// Names this report and no other.
    pub id: String,
    /// The app or pool of the child.
    pub app: String,
    /// When it failed, in milliseconds since 1970.
    pub when_ms: u64,
    /// How long it had taken by then.
    #[serde(rename = "took_ms", serialize_with = "milliseconds")]
    pub took: Duration,
    /// The step that failed.
    pub step: StartStep,
    /// The number of the system's error.
    pub errno: Option<i32>,
    /// The failure and its reason in a line, without the child's output.
    pub summary: String,
    /// Advice, a sentence each.
    pub advice: Vec<String>,
    /// How the child ended by itself, if it did.
    #[serde(serialize_with = "in_words")]
    pub exit: Option<Exit>,
    /// The child's number, if there was one.
    pub pid: Option<i32>,
    /// The program and its arguments, as they were given.
    pub command: Vec<String>,
    /// The user it was to run as, if not the daemon's.
    pub user: Option<String>,
    /// Where it was to run.
    pub directory: Option<PathBuf>,
    /// Where it was to listen.
    pub address: Option<String>,
    /// The steps, with their times.
    pub steps: Vec<StepTime>,
    /// The last lines of the child's output, oldest first.
    pub lines: Vec<OutputLine>,
}

impl StartReport {
    /// Nothing was there to start it with.
    pub fn unprepared(program: &Program, doing: &'static str, error: io::Error) -> Self {
        StartLog::new().close(program, &StartError::Unprepared { doing, error })
    }

    /// It became ready, and ended like this before it had answered a request.
    pub fn unanswered(program: &Program, process: &Process, exit: Exit) -> Self {
        let diary = StartLog {
            pid: Some(process.pid()),
            address: process.address().map(ToString::to_string),
            ..StartLog::new()
        };
        let error = StartError::Unanswered {
            program: program.word(),
            exit,
            lines: process.last_lines(),
        };
        Self {
            took: process.uptime(),
            ..diary.close(program, &error)
        }
    }
}

/// The record of a start.
pub(super) struct StartLog {
    since: Instant,
    steps: Vec<StepTime>,
    pub(super) pid: Option<i32>,
    pub(super) address: Option<String>,
}

impl StartLog {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            steps: Vec::new(),
            pid: None,
            address: None,
        }
    }

    /// This much is done.
    pub(super) fn done(&mut self, step: StartStep) {
        let after = self.since.elapsed();
        self.steps.push(StepTime { step, after });
    }

    pub(super) fn steps(&self) -> &[StepTime] {
        &self.steps
    }

    /// It came to nothing.
    pub(super) fn close(self, program: &Program, error: &StartError) -> StartReport {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let when_ms = now.map_or(0, whole_ms);
        StartReport {
            id: format!("{:016x}", getrandom::u64().unwrap_or(when_ms)),
            app: program.name.clone(),
            when_ms,
            took: self.since.elapsed(),
            step: error.step(),
            errno: error.errno(),
            summary: error.summary(),
            advice: advice(program, error),
            exit: error.exit(),
            pid: self.pid,
            command: program.shown().to_vec(),
            user: program.user.clone(),
            directory: program.directory.clone(),
            address: self.address,
            steps: self.steps,
            lines: error.lines().to_vec(),
        }
    }
}

/// Advice for known cases.
fn advice(program: &Program, error: &StartError) -> Vec<String> {
    let mut advice = Vec::new();
    let mut add = |text: &str| advice.push(text.to_owned());
    match error {
        StartError::Daemonised { .. } => add("run it in the foreground, without forking"),
        StartError::Late { elsewhere, .. } if !elsewhere.is_empty() => {
            advice.push(elsewhere_advice(program, elsewhere));
        }
        StartError::Late { .. } => match (&program.ready, &program.listen) {
            (Ready::Notify, _) => add("have it send READY=1 to its NOTIFY_SOCKET, \
                                      or wait for it in another way"),
            (_, Listen::InheritSocket | Listen::InheritPort) => {
                add("have it accept at file 3, and answer there");
            }
            (_, Listen::Port) => add("have it listen at the port that PORT says, on 127.0.0.1"),
            (_, Listen::Socket) => add("have it listen at the path that RIDEAU_SOCKET says"),
            _ => add("give it more time, if it needs that"),
        },
        StartError::NotFound { path: Some(_), .. } => {
            add("give the whole path of the program, or a PATH in its environment");
        }
        StartError::Failed {
            step: StartStep::User,
            ..
        } => {
            add(
                "only root may run programs as another user, and a user that is not in \
                 /etc/passwd has to be given by number",
            );
        }
        StartError::PortTaken { .. } => add("see which program listens there, and end that"),
        StartError::Exited {
            exit: Exit::Signal(9),
            ..
        } => add("if you did not kill it, the system did: look for `out of memory` in its log"),
        StartError::Exited { exit, lines, .. } => advice.extend(said_advice(*exit, lines)),
        StartError::Unanswered { .. } => add("look for what it does with its first request"),
        _ => (),
    }
    advice
}

fn elsewhere_advice(program: &Program, elsewhere: &[String]) -> String {
    let there = elsewhere.join(", ");
    let wanted = match program.listen {
        Listen::Port => "the port that PORT says",
        Listen::Socket => "the path that RIDEAU_SOCKET says",
        Listen::InheritSocket | Listen::InheritPort => "file 3, which it was given",
        Listen::Named | Listen::Fixed(_) => "where it is waited for",
    };
    format!("it listens at {there}; have it listen at {wanted}")
}

/// Complaints that many programs make in the same words.
fn said_advice(exit: Exit, lines: &[OutputLine]) -> Option<String> {
    const KNOWN: [(&str, &str); 5] = [
        ("address already in use", "another program has its address"),
        ("eaddrinuse", "another program has its address"),
        (
            "no module named",
            "a module is missing: is its environment the one it was installed in?",
        ),
        (
            "cannot find module",
            "a module is missing: were its dependencies installed?",
        ),
        (
            "permission denied",
            "the user it runs as lacks a permission",
        ),
    ];
    let says = |word: &str| {
        let mut lines = lines.iter();
        lines.any(|line| line.text.to_lowercase().contains(word))
    };
    let known = KNOWN.iter().find(|(word, _)| says(word));
    let clean = exit
        .is_clean()
        .then_some("it has to run for as long as it serves");
    known
        .map(|(_, advice)| *advice)
        .or(clean)
        .map(str::to_owned)
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn milliseconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64() * 1e3)
}

fn in_words<S: serde::Serializer>(exit: &Option<Exit>, serializer: S) -> Result<S::Ok, S::Error> {
    match exit {
        Some(exit) => serializer.collect_str(exit),
        None => serializer.serialize_none(),
    }
}
