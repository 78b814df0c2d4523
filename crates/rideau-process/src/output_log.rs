//! The output of a child so far, and its notes.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::lines::{LastLines, OutputLimits, OutputLine, Pace};
use super::program::{Program, Ready, heard};

/// No child may put its deadline off for longer than this at a time.
const EXTENSION_MAX: Duration = Duration::from_secs(3600);

/// A child that promises signs of life less often than this promises nothing.
const WATCHDOG_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Called with each line.
pub(super) type OnLine = Arc<dyn Fn(&OutputLine) + Send + Sync>;

/// The output of a child so far.
pub(super) struct OutputLog {
    ready: Ready,
    pub(super) limits: OutputLimits,
    on_line: OnLine,
    lines: Mutex<Lines>,
    notes: watch::Sender<Notes>,
}

struct Lines {
    last: LastLines,
    pace: Pace,
}

/// What it has reported, in lines or in notes.
#[derive(Default)]
struct Notes {
    /// It is ready, with the address it gave, which may be empty.
    ready: Option<String>,
    /// It has sent a note.
    any: bool,
    status: Option<String>,
    is_stopping: bool,
    /// It wants to have time until then.
    deadline: Option<Instant>,
    /// It gives a sign of life at least so often.
    watchdog: Option<Duration>,
    /// When it last did.
    alive: Option<Instant>,
    /// It says itself that it hangs.
    hangs: bool,
}

impl OutputLog {
    pub(super) fn new(program: &Program, on_line: OnLine) -> Self {
        Self {
            ready: program.ready.clone(),
            limits: program.output,
            on_line,
            lines: Mutex::new(Lines {
                last: LastLines::new(program.output),
                pace: Pace::new(program.output),
            }),
            notes: watch::Sender::new(Notes {
                watchdog: program.watchdog,
                ..Notes::default()
            }),
        }
    }

    pub(super) fn lines(&self) -> Vec<OutputLine> {
        self.lock().last.all()
    }

    pub(super) fn status(&self) -> Option<String> {
        self.notes.borrow().status.clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.notes.borrow().is_stopping
    }

    pub(super) fn has_notes(&self) -> bool {
        self.notes.borrow().any
    }

    /// Wait until it has said that it is ready, and the address it gave.
    pub(super) async fn ready(&self) -> String {
        let mut notes = self.notes.subscribe();
        let ready = notes.wait_for(|notes| notes.ready.is_some()).await;
        let ready = ready.ok().and_then(|notes| notes.ready.clone());
        ready.unwrap_or_default()
    }

    /// Wait until the deadline, or until the later one that it wants.
    pub(super) async fn overdue(&self, deadline: Instant) {
        let mut notes = self.notes.subscribe();
        loop {
            let wanted = notes.borrow_and_update().deadline;
            let until = wanted.map_or(deadline, |wanted| wanted.max(deadline));
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                _ = notes.changed() => (),
            }
        }
    }

    /// Wait until it has given no sign of life for longer than it should.
    pub(super) async fn silent(&self) {
        let since = Instant::now();
        let mut notes = self.notes.subscribe();
        loop {
            let due = {
                let notes = notes.borrow_and_update();
                if notes.hangs {
                    return;
                }
                let alive = notes.alive.map_or(since, |alive| alive.max(since));
                notes.watchdog.map(|often| alive + often)
            };
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                _ = notes.changed() => (),
            }
        }
    }

    /// A line came. Too many of them are counted and not told.
    pub(super) fn line(&self, line: OutputLine) {
        if let Ready::Line(text) = &self.ready
            && let Some(address) = heard(&line.text, text)
        {
            self.is_ready(address);
        }
        let now = Instant::now();
        let (dropped, is_told) = {
            let mut lines = self.lock();
            (lines.pace.told(now), lines.pace.admits())
        };
        dropped.into_iter().for_each(|dropped| self.tell(dropped));
        if is_told {
            self.tell(line);
        }
    }

    /// There will be no more lines: tell of those that were not told.
    pub(super) fn finish(&self) {
        let dropped = self.lock().pace.rest();
        dropped.into_iter().for_each(|dropped| self.tell(dropped));
    }

    /// A message to `NOTIFY_SOCKET`, in lines.
    pub(super) fn note(&self, note: &str) {
        self.notes.send_modify(|notes| notes.any = true);
        for line in note.lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => self.is_ready(""),
                Some(("STATUS", status)) => self.notes.send_modify(|notes| {
                    notes.status = Some(status.to_owned());
                }),
                Some(("STOPPING", "1")) => {
                    self.notes.send_modify(|notes| notes.is_stopping = true);
                }
                Some(("WATCHDOG", "1")) => self.notes.send_modify(|notes| {
                    notes.alive = Some(Instant::now());
                }),
                Some(("WATCHDOG", "trigger")) => {
                    self.notes.send_modify(|notes| notes.hangs = true);
                }
                Some(("WATCHDOG_USEC", often)) => {
                    let Ok(often) = often.parse().map(Duration::from_micros) else {
                        continue;
                    };
                    self.notes.send_modify(|notes| {
                        notes.alive = Some(Instant::now());
                        notes.watchdog = Some(often.min(WATCHDOG_MAX));
                    });
                }
                Some(("EXTEND_TIMEOUT_USEC", span)) => {
                    let span = span.parse().map(Duration::from_micros);
                    let until = span.map(|span| Instant::now() + span.min(EXTENSION_MAX));
                    self.notes
                        .send_modify(|notes| notes.deadline = until.ok().or(notes.deadline));
                }
                _ => (),
            }
        }
    }

    fn tell(&self, line: OutputLine) {
        (self.on_line)(&line);
        self.lock().last.push(line);
    }

    /// The first time counts.
    fn is_ready(&self, address: &str) {
        self.notes.send_if_modified(|notes| {
            let first = notes.ready.is_none();
            if first {
                notes.ready = Some(address.to_owned());
            }
            first
        });
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
