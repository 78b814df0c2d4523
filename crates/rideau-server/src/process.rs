//! Children that the daemon starts and stops: members of pools, and whatever
//! else runs on its behalf.
//!
//! A child is ready before anybody gets it, its end is noticed at once, and it
//! is stopped together with everybody it has started, as long as they stay in
//! its process group. Out of reach is who leaves that group, and who is left
//! when the daemon itself is killed: those the next daemon ends, if it opens the
//! same [`RunFolder`]. How many run, and when, is for the pool to say.
//!
//! Linux only: it reads `/proc`.

mod address;
mod group;
mod keeper;
mod launch;
mod lines;
mod ports;
mod procfs;
mod program;
mod readiness;
mod run_folder;
mod signal;
mod start_error;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

pub use address::Address;
pub use lines::{Line, OutputLimits, Stream};
pub use program::{Program, Ready};
pub use run_folder::RunFolder;
pub use signal::{Exit, Signal};
pub use start_error::StartError;

use group::Group;
use keeper::{Keeper, Life, OnLine, Said};
use launch::{Launched, launch};
use ports::is_free;
use readiness::{Taken, Wanted};
use run_folder::Place;

/// As many ports are tried for a child.
const PORT_TRIES: usize = 3;
/// Who was killed is gone by then, or stuck in the system.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Longer than anybody waits.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A child that is ready, and everybody in its process group.
///
/// Dropping it kills them all at once; [`stop`](Self::stop) is the mild way.
pub struct Process {
    id: u64,
    address: Option<Address>,
    since: Instant,
    stop_signal: Signal,
    stop_timeout: Duration,
    group: Arc<Group>,
    said: Arc<Said>,
    life: watch::Receiver<Life>,
    deadline: watch::Sender<Option<Instant>>,
}

impl Process {
    /// Start a child and wait until it is ready.
    ///
    /// Every line it writes, now and later, is given to `on_line`, which must
    /// not block. If this fails, or its future is dropped, no child is left.
    /// It must run on a tokio runtime with time and I/O, and the child ends
    /// with that runtime.
    pub async fn start(
        program: &Program,
        folder: &RunFolder,
        on_line: impl Fn(&Line) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        program.check()?;
        let on_line: OnLine = Arc::new(on_line);
        let deadline = after(program.start_timeout);
        let mut tries = 1;
        loop {
            let started = Self::try_start(program, folder, Arc::clone(&on_line), deadline).await;
            match started {
                // Between our look at a port and the child's bind, anybody may
                // have come.
                Err(StartError::PortTaken { .. }) if tries < PORT_TRIES => tries += 1,
                started => return started,
            }
        }
    }

    /// The number it has in its folder, `{id}`: never the same twice while the
    /// folder is open.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The number it has in the system, which is also its group's.
    pub fn pid(&self) -> i32 {
        self.group.pid()
    }

    /// Where it can be reached, if it said so or was told.
    pub const fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// What its program says it is stopped with.
    pub const fn stop_signal(&self) -> Signal {
        self.stop_signal
    }

    /// For how long it has been running, or had when it ended.
    pub fn uptime(&self) -> Duration {
        let until = match *self.life.borrow() {
            Life::Running => Instant::now(),
            Life::Ended { until, .. } | Life::Gone { until, .. } => until,
        };
        until.saturating_duration_since(self.since)
    }

    /// What it wrote last, oldest first. When it has ended, the very last may
    /// take a moment to arrive; after [`stop`](Self::stop) they are there.
    pub fn last_lines(&self) -> Vec<Line> {
        self.said.lines()
    }

    /// The `STATUS=` it sent last, if it is [`Ready::Notify`].
    pub fn status(&self) -> Option<String> {
        self.said.status()
    }

    /// Does it still run?
    pub fn is_alive(&self) -> bool {
        matches!(*self.life.borrow(), Life::Running)
    }

    /// Resolves as soon as the child has ended, with how. It does not keep the
    /// child alive.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + use<> {
        let mut life = self.life.clone();
        async move {
            let ended = life.wait_for(|life| !matches!(life, Life::Running)).await;
            ended.map_or(Exit::Unknown, |life| life.exit())
        }
    }

    /// Stop it as its program says. See [`stop_with`](Self::stop_with).
    pub async fn stop(&self) -> Option<Exit> {
        self.stop_with(self.stop_signal, self.stop_timeout).await
    }

    /// Send its whole group a signal, and kill whoever of them still runs when
    /// the time is over. Returns when nothing is left, neither a process nor a
    /// socket; who has ended already stays so. A second call can shorten the
    /// time and not prolong it. If the future is dropped, the stop goes on.
    ///
    /// None if the system keeps a process that it was told to kill, as happens
    /// while a disk does not answer. It is reaped when it ends.
    pub async fn stop_with(&self, signal: Signal, within: Duration) -> Option<Exit> {
        let until = after(within);
        self.deadline.send_modify(|deadline| {
            *deadline = Some(deadline.map_or(until, |earlier| earlier.min(until)));
        });
        self.group.signal(signal.number());
        let gone = within.min(FAR) + KILL_WAIT;
        timeout(gone, self.gone()).await.ok()
    }

    /// One port is tried.
    async fn try_start(
        program: &Program,
        folder: &RunFolder,
        on_line: OnLine,
        deadline: Instant,
    ) -> Result<Self, StartError> {
        let place = folder.place(program.names("{port}"));
        let place = place.map_err(unprepared("make room for a child"))?;
        let notes = (program.ready == Ready::Notify).then(|| UnixDatagram::bind(place.notify()));
        let notes = notes.transpose().map_err(unprepared("listen for notes"))?;
        let children = unix::signal(SignalKind::child());
        let children = children.map_err(unprepared("watch for its end"))?;
        let (launched, place) = load(program, place, deadline).await?;

        let (id, group) = (place.id, Arc::clone(launched.custody.group()));
        let wanted = Wanted::new(program, place.socket.clone(), place.port(), group.pid());
        let said = Arc::new(Said::new(program, on_line));
        let (kill_at, kill) = watch::channel(None);
        let (lives, life) = watch::channel(Life::Running);
        let keeper = Keeper::new(launched, place, children, notes, Arc::clone(&said), kill)
            .map_err(unprepared("read what it writes"))?;
        tokio::spawn(keeper.keep(lives));
        let process = Self {
            id,
            address: None,
            since: Instant::now(),
            stop_signal: program.stop_signal,
            stop_timeout: program.stop_timeout,
            group,
            said,
            life,
            deadline: kill_at,
        };
        process.until_ready(program, &wanted, deadline).await
    }

    async fn until_ready(
        mut self,
        program: &Program,
        wanted: &Wanted,
        deadline: Instant,
    ) -> Result<Self, StartError> {
        let ready = tokio::select! {
            biased;
            ready = wanted.wait(self.said.readiness.subscribe()) => Some(ready),
            _ = self.exited() => None,
            () = tokio::time::sleep_until(deadline) => {
                let missing = wanted.missing().await;
                self.end().await;
                return Err(late(program, missing, self.last_lines()));
            }
        };
        if let Some(Ok(address)) = ready {
            self.address = address;
            return Ok(self);
        }
        let exit = self.end().await;
        let (program, lines) = (program.word(), self.last_lines());
        let taken = wanted.port.filter(|port| match ready {
            Some(Err(Taken)) => true,
            // With the child gone, only somebody else can hold it: who came
            // first if the child complains, and if not, whom it left there.
            _ => !exit.is_clean() && !is_free(*port),
        });
        Err(match taken {
            Some(port) => StartError::PortTaken {
                program,
                port,
                lines,
            },
            None => StartError::Exited {
                program,
                exit,
                lines,
            },
        })
    }

    async fn end(&self) -> Exit {
        let exit = self.stop_with(Signal::Kill, Duration::ZERO).await;
        exit.unwrap_or(Exit::Unknown)
    }

    async fn gone(&self) -> Exit {
        let mut life = self.life.clone();
        let gone = life
            .wait_for(|life| matches!(life, Life::Gone { .. }))
            .await;
        gone.map_or(Exit::Unknown, |life| life.exit())
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("id", &self.id)
            .field("pid", &self.pid())
            .field("address", &self.address)
            .field("life", &*self.life.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its keeper reaps it.
        self.group.signal(Signal::Kill.number());
    }
}

/// Run the program. If nobody waits for that any more, its custody ends at once.
async fn load(
    program: &Program,
    place: Place,
    deadline: Instant,
) -> Result<(Launched, Place), StartError> {
    let argument = program.clone();
    let loading =
        spawn_blocking(move || launch(&argument, &place).map(|launched| (launched, place)));
    let Ok(loaded) = timeout_at(deadline, loading).await else {
        let wanted = "the system has not loaded it".to_owned();
        return Err(late(program, wanted, Vec::new()));
    };
    let failed = |error| unprepared("run it")(io::Error::other(error));
    loaded.map_err(failed)?
}

fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(FAR)
}

fn late(program: &Program, wanted: String, lines: Vec<Line>) -> StartError {
    StartError::Late {
        program: program.word(),
        within: program.start_timeout,
        wanted,
        lines,
    }
}

fn unprepared(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Unprepared { doing, error }
}
