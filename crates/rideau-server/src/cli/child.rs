//! Runs a command while this program holds something for it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rideau_resp::Value;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, Interval, interval_at};

use super::{pre_exec, show};
use crate::wire::{Server, Wire, WireFault};

/// What to do when the connection to the server, and so the lease, is lost.
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

/// The command that renews a lease.
#[derive(Clone)]
pub(crate) struct Keep {
    pub(crate) every: Duration,
    pub(crate) request: Vec<String>,
    /// It stays ours for so long without a word, so that a lost connection can be
    /// replaced by another.
    pub(crate) within: Duration,
    /// To which server.
    pub(crate) server: Server,
    pub(crate) name: String,
}

/// Keeps what a command holds, over several connections if need be.
struct Watch<'a> {
    wire: &'a mut Wire,
    keep: Option<&'a Keep>,
    ticks: Option<Interval>,
    unanswered: u32,
    link: Link,
    /// When it was said last that it is ours.
    held: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    /// There is no connection, and there may be time for another.
    Down,
    Lost,
}

enum Event {
    Heard(Result<Value, WireFault>),
    Tick,
    Connected(Result<Wire, WireFault>),
}

/// How long to wait before another connection is tried.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// The words of a command with the value in place of each `{value}`.
pub(crate) fn filled(words: &[OsString], value: &str) -> Vec<OsString> {
    words.iter().map(|word| filled_word(word, value)).collect()
}

/// Run the command to its end, with these variables.
///
/// Ctrl-C at a terminal reaches the command without us; what is sent to us alone
/// is passed on. If we are killed, so is the command.
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
    let mut watch = Watch::new(wire, keep);
    loop {
        tokio::select! {
            status = child.wait() => {
                let is_lost = watch.end().await;
                return Ok(Ended { code: code(status?), is_lost });
            }
            event = watch.event() => if let Some(why) = watch.follow(event).await {
                show::complain(format!("{why}; others may get what this command holds"));
                if on_loss == OnLoss::Terminate {
                    pass(&child, Signal::TERM);
                }
            },
            _ = term.recv() => pass(&child, Signal::TERM),
            _ = hangup.recv() => pass(&child, Signal::HUP),
            _ = interrupt.recv() => (),
            _ = quit.recv() => (),
        }
    }
}

impl<'a> Watch<'a> {
    fn new(wire: &'a mut Wire, keep: Option<&'a Keep>) -> Self {
        Self {
            wire,
            keep,
            ticks: keep.map(|keep| interval_at(Instant::now() + keep.every, keep.every)),
            unanswered: 0,
            link: Link::Up,
            held: Instant::now(),
        }
    }

    /// The next thing that happens. Nothing is lost if the caller does not wait for it.
    async fn event(&mut self) -> Event {
        match (self.link, self.keep) {
            (Link::Up, _) => tokio::select! {
                heard = self.wire.next() => Event::Heard(heard),
                () = next(&mut self.ticks) => Event::Tick,
            },
            (Link::Down, Some(keep)) => {
                tokio::time::sleep(TRY_AGAIN).await;
                Event::Connected(Wire::connect(&keep.server, &keep.name).await)
            }
            (Link::Down | Link::Lost, _) => std::future::pending().await,
        }
    }

    /// Says why what was held is lost, if it is.
    async fn follow(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Tick => self.say().await,
            Event::Connected(Ok(wire)) => {
                show::complain("connected again");
                *self.wire = wire;
                self.link = Link::Up;
                self.unanswered = 0;
                self.say().await;
            }
            Event::Heard(Ok(Value::Error(text))) if self.unanswered > 0 => {
                self.link = Link::Lost;
                return Some(text);
            }
            Event::Heard(Ok(Value::Push(_))) => (),
            Event::Heard(Ok(_)) => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.held = Instant::now();
            }
            Event::Heard(Err(fault)) | Event::Connected(Err(fault)) => return self.cut(&fault),
        }
        None
    }

    async fn say(&mut self) {
        if let Some(keep) = self.keep {
            self.wire.put(&keep.request);
            self.unanswered += 1;
            // If it is lost, so is the answer.
            let _ = self.wire.flush().await;
        }
    }

    /// There is no connection.
    fn cut(&mut self, fault: &WireFault) -> Option<String> {
        let within = self.keep.map_or(Duration::ZERO, |keep| keep.within);
        if self.held.elapsed() >= within {
            self.link = Link::Lost;
            return Some(fault.to_string());
        }
        if self.link == Link::Up {
            show::complain(format!("{fault}; trying again"));
        }
        self.link = Link::Down;
        None
    }

    /// The command is over. Says whether the connection is.
    async fn end(&mut self) -> bool {
        // What is said next has an answer of its own.
        while self.unanswered > 0 && self.link == Link::Up {
            if self.wire.answer().await.is_err() {
                self.link = Link::Lost;
            }
            self.unanswered -= 1;
        }
        self.link != Link::Up
    }
}

/// Start a command, or say the code for why that cannot be.
fn start(words: &[OsString], variables: &[(&str, String)]) -> io::Result<Result<Child, u8>> {
    let Some(program) = words.first() else {
        return Err(io::Error::other("there is no command to run"));
    };
    let mut command = Command::from(pre_exec::bound(words));
    for (name, value) in variables {
        command.env(name, value);
    }
    let child = command.spawn();
    Ok(child.map_err(|error| pre_exec::not_run(program, &error)))
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

fn filled_word(word: &OsStr, value: &str) -> OsString {
    const MARK: &[u8] = b"{value}";
    let mut rest = word.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(MARK.len()).position(|part| part == MARK) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(value.as_bytes());
        rest = &rest[at + MARK.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_wherever_a_word_wants_it() {
        let filled = |word: &str| filled_word(OsStr::new(word), "10.0.0.1");
        assert_eq!(
            filled("--bind={value}:80/{value}"),
            "--bind=10.0.0.1:80/10.0.0.1"
        );
        assert_eq!(filled("{value"), "{value");
        assert_eq!(filled(""), "");
    }
}
