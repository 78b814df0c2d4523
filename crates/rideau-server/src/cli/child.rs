//! Runs a command while this program holds something for it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rideau_server::resp::Value;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, Interval, interval_at};

use super::wire::Wire;

/// What to do when the server is gone, and with it what we hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLoss {
    GoOn,
    Terminate,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// As a shell has it: 128 and the signal if one killed it.
    pub(crate) code: u8,
    /// The connection was lost while it ran.
    pub(crate) is_lost: bool,
}

/// What to say again and again so that something stays ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keep {
    pub(crate) every: Duration,
    pub(crate) request: Vec<String>,
}

/// The shell's codes for what cannot be found, and what cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Run the command to its end, with these variables.
///
/// Ctrl-C at a terminal reaches the command without us; what is sent to us alone
/// is passed on.
pub(crate) async fn run(
    words: &[OsString],
    variables: &[(&str, String)],
    wire: &mut Wire,
    on_loss: OnLoss,
) -> io::Result<Ended> {
    run_keeping(words, variables, wire, on_loss, None).await
}

/// As [`run`], and say something again and again meanwhile.
pub(crate) async fn run_keeping(
    words: &[OsString],
    variables: &[(&str, String)],
    wire: &mut Wire,
    on_loss: OnLoss,
    keep: Option<&Keep>,
) -> io::Result<Ended> {
    let mut term = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut child = match start(words, variables)? {
        Ok(child) => child,
        Err(code) => {
            return Ok(Ended {
                code,
                is_lost: false,
            });
        }
    };
    let mut is_lost = false;
    let mut unanswered = 0_u32;
    let mut ticks = keep.map(|keep| interval_at(Instant::now() + keep.every, keep.every));
    loop {
        tokio::select! {
            status = child.wait() => {
                // What is said next has an answer of its own.
                while unanswered > 0 && !is_lost {
                    is_lost = wire.answer().await.is_err();
                    unanswered -= 1;
                }
                return Ok(Ended { code: code(status?), is_lost });
            }
            heard = wire.next(), if !is_lost => {
                let why = match heard {
                    Err(fault) => fault.to_string(),
                    Ok(Value::Error(text)) if unanswered > 0 => text,
                    Ok(Value::Push(_)) => continue,
                    Ok(_) => {
                        unanswered = unanswered.saturating_sub(1);
                        continue;
                    }
                };
                is_lost = true;
                eprintln!("rideau: {why}; others may get what this command holds");
                if on_loss == OnLoss::Terminate {
                    pass(&child, Signal::TERM);
                }
            }
            () = next(&mut ticks), if !is_lost => if let Some(keep) = keep {
                wire.put(&keep.request);
                unanswered += 1;
                // If it is lost, so is the answer.
                let _ = wire.flush().await;
            },
            _ = term.recv() => pass(&child, Signal::TERM),
            _ = hangup.recv() => pass(&child, Signal::HUP),
            _ = interrupt.recv() => (),
            _ = quit.recv() => (),
        }
    }
}

/// Start a command, or say the code for why that cannot be.
fn start(words: &[OsString], variables: &[(&str, String)]) -> io::Result<Result<Child, u8>> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::other("there is no command to run"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    Ok(command.spawn().map_err(|error| {
        eprintln!("rideau: {}: {error}", program.to_string_lossy());
        let is_missing = error.kind() == ErrorKind::NotFound;
        if is_missing { NOT_FOUND } else { NOT_RUN }
    }))
}

async fn next(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

fn pass(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = kill_process(id, signal);
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
