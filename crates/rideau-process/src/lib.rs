//! Children that the daemon starts and stops: members of pools, web
//! applications, and whatever else runs on its behalf.
//!
//! A child is ready before a caller gets it, its end is noticed at once, and it is
//! stopped together with every process it has started, even those that went their
//! own ways. It comes over a [`stage`], where it becomes the user that it should
//! be, with the limits and the socket that it should have. If the daemon is killed,
//! its children die, and a reaper ends the processes that they leave. How many run,
//! and when, is for others to say.
//!
//! Linux only: it reads `/proc`.

mod address;
mod cgroup;
mod child_task;
mod credentials;
mod exec_request;
mod group;
mod http;
mod launch;
mod lines;
mod notify_socket;
mod open_files;
mod output_log;
pub mod panics;
mod pass_socket;
mod ports;
mod pre_exec;
mod process_list;
mod procfs;
mod program;
mod readiness;
mod reaper;
mod report;
mod run_folder;
mod run_lock;
mod run_records;
mod signal;
mod sock_diag;
mod spawner;
mod start_error;
mod start_step;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

pub use address::Address;
pub use http::Probe;
pub use lines::{OutputLimits, OutputLine, Stream};
pub use open_files::{inherit_open_files, open_files_max, open_files_usual, raise_open_files};
pub use pass_socket::{PASSED_FILES_MAX, PassReceiver, PassSender, PassedMessage, pass_ends};
pub use pre_exec::stage;
pub use process_list::{ProcessList, Usage};
pub use program::{Listen, Program, Ready, ResourceLimits, StopTarget};
pub use report::{StartReport, StepTime};
pub use run_folder::RunFolder;
pub use signal::{Exit, Signal};
pub use start_error::StartError;
pub use start_step::StartStep;

use child_task::{ChildTask, Life, Watched};
use credentials::Credentials;
use exec_request::ExecRequest;
use group::Group;
use launch::{Launched, launch};
use output_log::{OnLine, OutputLog};
use ports::is_free;
use readiness::{Taken, Wanted};
use report::StartLog;
use run_folder::Place;

/// How many ports are tried for a child.
const PORT_TRIES: usize = 3;
/// A process that was killed is gone by then, or stuck in the system.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Longer than any caller waits.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A child that is ready, and every process that belongs to it.
///
/// Dropping it kills them all at once; [`stop`](Self::stop) is the mild way.
pub struct Process {
    id: u64,
    address: Option<Address>,
    since: Instant,
    steps: Vec<StepTime>,
    stop_signal: Signal,
    stop_timeout: Duration,
    stop_target: StopTarget,
    group: Arc<Group>,
    said: Arc<OutputLog>,
    life: watch::Receiver<Life>,
    deadline: watch::Sender<Option<Instant>>,
    stuck: Arc<Mutex<Vec<i32>>>,
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
        on_line: impl Fn(&OutputLine) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let mut diary = StartLog::new();
        Self::start_noting(program, folder, Arc::new(on_line), &mut diary).await
    }

    /// The same, and a failure comes with all that is known of it.
    pub async fn start_reported(
        program: &Program,
        folder: &RunFolder,
        on_line: impl Fn(&OutputLine) + Send + Sync + 'static,
    ) -> Result<Self, Box<StartReport>> {
        let mut diary = StartLog::new();
        let started = Self::start_noting(program, folder, Arc::new(on_line), &mut diary).await;
        started.map_err(|error| Box::new(diary.close(program, &error)))
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

    /// Whether it has begun to end, which is so before any caller is told of it.
    pub fn is_ending(&self) -> bool {
        procfs::is_ending(self.pid())
    }

    /// Where it can be reached, if it said so or was told.
    pub const fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// The stop signal of its program.
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
    pub fn last_lines(&self) -> Vec<OutputLine> {
        self.said.lines()
    }

    /// The `STATUS=` it sent last, if it is [`Ready::Notify`] or
    /// [`Ready::Auto`].
    pub fn status(&self) -> Option<String> {
        self.said.status()
    }

    /// Has it said, as it says its status, that it is about to end?
    pub fn is_stopping(&self) -> bool {
        self.said.is_stopping()
    }

    /// Resolves when it has given no sign of life for longer than it was told to,
    /// or has said that it will, or says that it hangs. A child that promised
    /// nothing may be silent for ever. It does not keep the child alive.
    pub fn silent(&self) -> impl Future<Output = ()> + Send + use<> {
        let said = Arc::clone(&self.said);
        async move { said.silent().await }
    }

    /// The steps of its start, with their times.
    pub fn steps(&self) -> &[StepTime] {
        &self.steps
    }

    /// The usage of it and its descendants, by a list of processes.
    pub fn usage(&self, process_list: &ProcessList) -> Usage {
        self.group.usage(process_list)
    }

    /// The memory of it and of all processes that belong to it, in bytes. A caller
    /// that wants to know it of many takes one [`ProcessList`] for all.
    pub async fn memory(&self) -> u64 {
        let group = Arc::clone(&self.group);
        let usage = spawn_blocking(move || group.usage(&ProcessList::take())).await;
        usage.map_or(0, |usage| usage.memory)
    }

    /// The numbers of the processes that were killed and are not gone yet. That
    /// takes a moment; a process that is still among them a second later is stuck
    /// in the system.
    pub fn stuck(&self) -> Vec<i32> {
        let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        stuck.clone()
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

    /// Send it a signal, or its whole group as its program says, and kill each
    /// process that belongs to it and still runs when the time is over. Returns
    /// when nothing is left, neither a process nor a socket; a child that has ended
    /// already stays so. A second call can shorten the time and not prolong it. If
    /// the future is dropped, the stop goes on.
    ///
    /// None if the system keeps a process that it was told to kill, as happens
    /// while a disk does not answer. It is reaped when it ends.
    pub async fn stop_with(&self, signal: Signal, within: Duration) -> Option<Exit> {
        let until = after(within);
        self.deadline.send_modify(|deadline| {
            *deadline = Some(deadline.map_or(until, |earlier| earlier.min(until)));
        });
        match self.stop_target {
            StopTarget::Group => self.group.signal(signal.number()),
            StopTarget::Child => self.group.signal_leader(signal.number()),
        }
        let gone = within.min(FAR) + KILL_WAIT;
        timeout(gone, self.gone()).await.ok()
    }

    async fn start_noting(
        program: &Program,
        folder: &RunFolder,
        on_line: OnLine,
        diary: &mut StartLog,
    ) -> Result<Self, StartError> {
        program.check()?;
        let deadline = after(program.start_timeout);
        let mut tries = 1;
        loop {
            let on_line = Arc::clone(&on_line);
            match Self::try_start(program, folder, on_line, deadline, diary).await {
                // Between our look at a port and the child's bind, another process
                // may have come.
                Err(StartError::PortTaken { .. }) if tries < PORT_TRIES && program.wants_port() => {
                    tries += 1;
                }
                started => return started,
            }
        }
    }

    /// One port is tried.
    async fn try_start(
        program: &Program,
        folder: &RunFolder,
        on_line: OnLine,
        deadline: Instant,
        diary: &mut StartLog,
    ) -> Result<Self, StartError> {
        let account = Credentials::find(program.user.as_deref(), program.group.as_deref())?;
        let place = folder.place(program, account.as_ref());
        let place = place.map_err(unprepared("make room for a child"))?;
        let notes = program.hears_notes();
        let notes = notes.then(|| place.listen_for_notes(account.as_ref()));
        let notes = notes.transpose().map_err(unprepared("listen for notes"))?;
        let children = unix::signal(SignalKind::child());
        let children = children.map_err(unprepared("watch for its end"))?;
        let (launched, place) = load(program, account, place, deadline, diary).await?;

        let (id, group) = (place.id, Arc::clone(launched.custody.group()));
        let wanted = Wanted::new(program, &place, &group);
        diary.address = wanted.told().map(ToString::to_string);
        let said = Arc::new(OutputLog::new(program, on_line));
        let (kill_at, kill) = watch::channel(None);
        let (lives, life) = watch::channel(Life::Running);
        let stuck = Arc::default();
        let watched = Watched {
            deadline: kill,
            life: lives,
            stuck: Arc::clone(&stuck),
            stop_target: program.stop_target,
        };
        let child_task =
            ChildTask::new(launched, place, children, notes, Arc::clone(&said), watched)
                .map_err(unprepared("read what it writes"))?;
        tokio::spawn(child_task.keep());
        let process = Self {
            id,
            address: None,
            since: Instant::now(),
            steps: Vec::new(),
            stop_signal: program.stop_signal,
            stop_timeout: program.stop_timeout,
            stop_target: program.stop_target,
            group,
            said,
            life,
            deadline: kill_at,
            stuck,
        };
        let mut process = process.until_ready(program, &wanted, deadline).await?;
        diary.done(StartStep::Ready);
        process.steps = diary.steps().to_vec();
        Ok(process)
    }

    async fn until_ready(
        mut self,
        program: &Program,
        wanted: &Wanted,
        deadline: Instant,
    ) -> Result<Self, StartError> {
        let ready = tokio::select! {
            biased;
            ready = wanted.wait(&self.said) => Some(ready),
            _ = self.exited() => None,
            () = self.said.overdue(deadline) => {
                let elsewhere = wanted.elsewhere().await;
                self.end().await;
                let missing = wanted.missing();
                return Err(late(program, missing, elsewhere, self.last_lines()));
            }
        };
        if let Some(Ok(address)) = ready {
            self.address = address;
            return Ok(self);
        }
        let (exit, others) = self.end().await;
        let (program, lines) = (program.word(), self.last_lines());
        let taken = wanted.port.filter(|port| match ready {
            Some(Err(Taken)) => true,
            // With the child gone, only another process can hold it: one that came
            // first if the child complains, and if not, one that it left there. The
            // one that came first may be gone as well, and then the complaint has
            // to do.
            _ => !exit.is_clean() && (!is_free(*port) || lines.iter().any(complains_of_port)),
        });
        Err(match taken {
            Some(port) => StartError::PortTaken {
                program,
                port,
                lines,
            },
            None if exit.is_clean() && others > 0 => StartError::Daemonised {
                program,
                others,
                lines,
            },
            None => StartError::Exited {
                program,
                exit,
                lines,
            },
        })
    }

    /// How it ended, and how many it left if it did so by itself.
    async fn end(&self) -> (Exit, usize) {
        let exit = self.stop_with(Signal::Kill, Duration::ZERO).await;
        let left = match *self.life.borrow() {
            Life::Gone { left, .. } => left,
            Life::Running | Life::Ended { .. } => 0,
        };
        (exit.unwrap_or(Exit::Unknown), left)
    }

    /// Resolves when nothing is left of it, with how the child ended.
    pub async fn gone(&self) -> Exit {
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
        // Its child task reaps it.
        self.group.signal(Signal::Kill.number());
    }
}

/// Run the program. If no caller waits for that any more, its custody ends at once.
async fn load(
    program: &Program,
    account: Option<Credentials>,
    place: Place,
    deadline: Instant,
    diary: &mut StartLog,
) -> Result<(Launched, Place), StartError> {
    let loading = load_untimed(program.clone(), account, place, diary);
    let loaded = timeout_at(deadline, loading).await;
    loaded.unwrap_or_else(|_| {
        let wanted = "the system has not loaded it".to_owned();
        Err(late(program, wanted, Vec::new(), Vec::new()))
    })
}

async fn load_untimed(
    program: Program,
    account: Option<Credentials>,
    place: Place,
    diary: &mut StartLog,
) -> Result<(Launched, Place), StartError> {
    let prepared = spawn_blocking(move || {
        let order = launch::prepare(&program, account, &place)?;
        Ok((order, place))
    });
    let failed = |error| unprepared("run it")(io::Error::other(error));
    let (order, mut place): (ExecRequest, _) = prepared.await.map_err(failed)??;
    diary.done(StartStep::Prepare);

    let (has_stage, order) = (place.stage().is_some(), Arc::new(order));
    let given = Arc::clone(&order);
    let made = spawner::ask(move || {
        let launched = launch(&given, &mut place)?;
        Ok((launched, place))
    });
    let (mut launched, place) = made.await.map_err(|error| match has_stage {
        false => launch::not_run(&order, error),
        true => StartError::Failed {
            step: StartStep::Spawn,
            what: order.word.clone(),
            error,
        },
    })?;
    diary.pid = Some(launched.custody.group().pid());
    diary.done(StartStep::Spawn);

    if let Some(socket) = launched.socket.take() {
        let answer = exec_request::deliver(socket, &order).await;
        let answer = answer.map_err(unprepared("say what to run"))?;
        answer.map_or(Ok(()), |complaint| Err(launch::refused(&order, &complaint)))?;
        diary.done(StartStep::Exec);
    }
    Ok((launched, place))
}

/// Does a child say that another process has its port?
fn complains_of_port(line: &OutputLine) -> bool {
    let text = line.text.to_ascii_lowercase();
    let words = ["eaddrinuse", "address already in use", "address in use"];
    words.iter().any(|word| text.contains(word))
}

fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(FAR)
}

fn late(
    program: &Program,
    wanted: String,
    elsewhere: Vec<String>,
    lines: Vec<OutputLine>,
) -> StartError {
    StartError::Late {
        program: program.word(),
        within: program.start_timeout,
        wanted,
        elsewhere,
        lines,
    }
}

fn unprepared(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Unprepared { doing, error }
}
