//! The one thread that starts children, and buries those that nothing else waits
//! for.
//!
//! A child that is to die with us dies with the thread that made it, so
//! that thread never ends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use tokio::sync::oneshot;

use super::process_list::MARK;
use super::procfs::{self, Seen};
use crate::panics;

/// How often the dead are looked for, while there are children.
const BURIAL_EVERY: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

static JOBS: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
/// Children that we started and have not buried.
static LEADERS: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

/// Have the thread do this. If no caller waits for it any more, what it made is
/// dropped.
pub(super) async fn ask<T: Send + 'static>(
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, made) = oneshot::channel();
    let job: Job = Box::new(move || {
        let _ = done.send(job());
    });
    jobs()?.send(job).map_err(|_| ended())?;
    made.await.map_err(|_| ended())?
}

/// This child is ours, until [`forget`].
pub(super) fn remember(leader: i32) {
    leaders().get_or_insert_default().insert(leader);
}

pub(super) fn forget(leader: i32) {
    leaders().get_or_insert_default().remove(&leader);
}

/// Bury a child that has ended. Its number may be another process's by now.
pub(super) fn bury(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::Pid(pid), options);
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that starts children has ended")
}

fn leaders() -> MutexGuard<'static, Option<HashSet<i32>>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn jobs() -> io::Result<&'static mpsc::Sender<Job>> {
    // Two that come first at once must not both make it.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(jobs) = JOBS.get() {
        return Ok(jobs);
    }
    let (sender, jobs) = mpsc::channel();
    // A process that loses its parent comes to us, and can be found and ended.
    let _ = set_child_subreaper(Some(getpid()));
    let thread = thread::Builder::new().name("spawner".into());
    thread.spawn(move || work(&jobs))?;
    Ok(JOBS.get_or_init(|| sender))
}

fn work(jobs: &mpsc::Receiver<Job>) {
    let mut orphans = Orphans::default();
    loop {
        let has_children = leaders()
            .as_ref()
            .is_some_and(|leaders| !leaders.is_empty());
        let job = if has_children {
            jobs.recv_timeout(BURIAL_EVERY)
        } else {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match job {
            // With this thread all children would end.
            Ok(job) => drop(panics::contain(job)),
            Err(RecvTimeoutError::Timeout) => drop(panics::contain(|| orphans.bury())),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The processes that lost their parents, as they were seen alive: by their
/// numbers, with the instants at which they started.
///
/// Other parts of the program may have children too, and wait for them. Only a
/// process that is known to come from one of ours is buried.
#[derive(Default)]
struct Orphans(HashMap<i32, u64>);

impl Orphans {
    fn bury(&mut self) {
        let leaders = leaders().clone().unwrap_or_default();
        let mut alive = HashMap::new();
        for pid in procfs::children() {
            if leaders.contains(&pid) {
                continue;
            }
            let Some(seen) = procfs::seen(pid) else {
                continue;
            };
            let from_ours = leaders.contains(&seen.session) || leaders.contains(&seen.group);
            let is_known = self.0.get(&pid) == Some(&seen.since);
            if seen.ended && (from_ours || is_known) {
                bury(pid);
            } else if !seen.ended && (from_ours || is_known || is_marked(seen)) {
                alive.insert(pid, seen.since);
            }
        }
        self.0 = alive;
    }
}

fn is_marked(seen: Seen) -> bool {
    procfs::variable(seen.pid, MARK).is_some()
}

#[cfg(test)]
mod tests {
    use super::ask;

    #[tokio::test]
    async fn a_job_that_panics_costs_that_job() {
        let failed = ask::<u32>(|| panic!("planted")).await;
        assert!(failed.is_err());
        assert_eq!(ask(|| Ok(7)).await.ok(), Some(7));
    }
}
