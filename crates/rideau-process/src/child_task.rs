//! Watches one child from its start until nothing of it is left.
//!
//! It alone reaps the child, reads what it writes, and
//! takes its things away; all others send signals and look.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Exit;
use super::group::{Clearing, Group, ReapGuard};
use super::launch::Launched;
use super::lines::{Splitter, Stream};
use super::notify_socket::{Note, Notes};
use super::output_log::OutputLog;
use super::procfs;
use super::program::StopTarget;
use super::run_folder::Place;
use crate::panics;

/// A process that has left the group may keep its output open; it is not waited for
/// long.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// How often to look whether a group is empty, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);
const READ_LEN: usize = 8192;

/// How far a child's life has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Life {
    Running,
    /// It has ended. Others that belong to it may still run.
    Ended {
        exit: Exit,
        until: Instant,
    },
    /// Nothing is left: no process, no file, no open pipe.
    Gone {
        exit: Exit,
        until: Instant,
        /// How many it left when it ended unasked.
        left: usize,
    },
}

impl Life {
    /// How it ended, if it has.
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Running => Exit::Unknown,
            Self::Ended { exit, .. } | Self::Gone { exit, .. } => exit,
        }
    }
}

/// A drop of this kills the child, as when a runtime ends.
pub(super) struct ChildTask {
    // Dropped in this order: killed first, its things taken away then.
    custody: ReapGuard,
    place: Place,
    children: unix::Signal,
    output: pipe::Receiver,
    error: pipe::Receiver,
    notes: Option<Notes>,
    said: Arc<OutputLog>,
    watched: Watched,
}

/// The channels of a child task.
pub(super) struct Watched {
    /// When the child is killed; none if it is not to be killed.
    pub(super) deadline: watch::Receiver<Option<Instant>>,
    pub(super) life: watch::Sender<Life>,
    /// The processes that were killed and run on.
    pub(super) stuck: Arc<Mutex<Vec<i32>>>,
    /// Whether the child or its group was asked to stop.
    pub(super) stop_target: StopTarget,
}

impl ChildTask {
    /// `children` rings whenever a child ends, and must have been made before
    /// this one was.
    pub(super) fn new(
        launched: Launched,
        place: Place,
        children: unix::Signal,
        notes: Option<Notes>,
        said: Arc<OutputLog>,
        watched: Watched,
    ) -> io::Result<Self> {
        Ok(Self {
            custody: launched.custody,
            place,
            children,
            output: pipe::Receiver::from_owned_fd(launched.output)?,
            error: pipe::Receiver::from_owned_fd(launched.error)?,
            notes,
            said,
            watched,
        })
    }

    /// Watch the child until nothing of it is left.
    pub(super) async fn keep(self) {
        let life = self.watched.life.clone();
        // ReapGuard kills the child of a child task that panicked, too.
        let gone = panics::contain_async(self.watch()).await;
        let gone = gone.unwrap_or_else(|_| Life::Gone {
            exit: life.borrow().exit(),
            until: Instant::now(),
            left: 0,
        });
        life.send_replace(gone);
    }

    /// All but the last word, so that everything is dropped before that.
    async fn watch(self) -> Life {
        // Dropped in the opposite order, so here too it is killed first. What hears
        // its lines is let go when nothing of it is left.
        let Self {
            said,
            place: _place,
            custody,
            children,
            output,
            error,
            notes,
            watched,
        } = self;
        let mut lines = pin!(async {
            tokio::join!(
                read(output, Stream::Output, &said),
                read(error, Stream::Error, &said)
            );
        });
        let mut notes = pin!(read_notes(notes, custody.group(), &said));
        let mut end = pin!(end(custody.group(), children, watched));
        let mut silent = false;
        let end = loop {
            tokio::select! {
                end = &mut end => break end,
                () = &mut lines, if !silent => silent = true,
                () = &mut notes => (),
            }
        };
        if !silent {
            let _ = timeout(LAST_WORDS_MAX, lines).await;
        }
        said.finish();
        end
    }
}

/// Wait until the child has ended, and after it all processes that belong to it.
async fn end(group: &Arc<Group>, mut children: unix::Signal, watched: Watched) -> Life {
    let Watched {
        mut deadline,
        life,
        stuck,
        stop_target,
    } = watched;
    let mut clearing = Clearing::new(group);
    let exit = tokio::select! {
        exit = exit(group, &mut children) => exit,
        () = overdue(&mut deadline) => {
            clearing = clear_once(clearing, group, &stuck).await;
            exit(group, &mut children).await
        }
    };
    let until = Instant::now();
    life.send_replace(Life::Ended { exit, until });
    let mut left = 0;
    if deadline.borrow().is_none() {
        // A child that was not asked to stop has crashed or went to the background,
        // and the others are not waited for.
        let group = Arc::clone(group);
        let running = spawn_blocking(move || group.running()).await;
        left = running.map_or(0, |running| running.len());
    } else if stop_target == StopTarget::Group {
        // A shell may be gone at once while the server it ran has work to finish.
        tokio::select! {
            () = empty(group.pid()) => (),
            () = overdue(&mut deadline) => (),
        }
    }
    let mut pause = LOOK_MIN;
    loop {
        clearing = clear_once(clearing, group, &stuck).await;
        if lock(&stuck).is_empty() {
            break;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
    group.reap();
    Life::Gone { exit, until, left }
}

/// Kill all processes that belong to the child, and note which run after that.
async fn clear_once(
    mut clearing: Clearing,
    group: &Arc<Group>,
    stuck: &Mutex<Vec<i32>>,
) -> Clearing {
    let cleared = spawn_blocking(move || {
        let running = clearing.kill();
        (clearing, running)
    });
    // Where the runtime ends, our custody does the same once more.
    let cleared = cleared.await;
    let (clearing, running) = cleared.unwrap_or_else(|_| (Clearing::new(group), Vec::new()));
    *lock(stuck) = running;
    clearing
}

async fn exit(group: &Group, children: &mut unix::Signal) -> Exit {
    loop {
        if let Some(exit) = group.exit() {
            return exit;
        }
        if children.recv().await.is_none() {
            return Exit::Unknown;
        }
    }
}

/// Wait for the deadline, wherever it moves to. Without an owner it is now.
async fn overdue(deadline: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let until = *deadline.borrow_and_update();
        let due = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => return,
            changed = deadline.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Wait until no process in a group runs any more. Its leader must be unreaped.
async fn empty(group: i32) {
    let mut pause = LOOK_MIN;
    // A look that failed says nothing, so no process is waited for.
    while spawn_blocking(move || !procfs::members(group).is_empty())
        .await
        .unwrap_or(false)
    {
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

async fn read(mut pipe: pipe::Receiver, stream: Stream, said: &OutputLog) {
    let mut splitter = Splitter::new(stream, said.limits);
    let mut bytes = vec![0; READ_LEN];
    while let Ok(len @ 1..) = pipe.read(&mut bytes).await {
        splitter.feed(&bytes[..len], |line| said.line(line));
    }
    splitter.finish(|line| said.line(line));
}

/// Never ends: a child that is silent may speak later.
async fn read_notes(notes: Option<Notes>, group: &Arc<Group>, said: &OutputLog) {
    if let Some(mut notes) = notes {
        while let Ok(note) = notes.hear().await {
            if is_ours(&note, group).await {
                said.note(&note.text);
            }
        }
    }
    pending().await
}

/// Does a note come from the child or one of its own? A sender that has ended since
/// cannot be told from others any more, and had the right to write there.
async fn is_ours(note: &Note, group: &Arc<Group>) -> bool {
    let Some(sender) = note.sender else {
        return false;
    };
    if sender == group.pid() {
        return true;
    }
    let group = Arc::clone(group);
    let looked = spawn_blocking(move || group.has(sender) || procfs::seen(sender).is_none());
    looked.await.unwrap_or(false)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
