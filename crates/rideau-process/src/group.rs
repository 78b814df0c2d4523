//! A child and all processes that belong to it, from the fork to the last.
//!
//! The child leads a process group, and is not reaped before all the others are
//! gone: until then the system gives its number to no other process, so a signal to
//! the group never reaches a stranger. A process that left the group is found by
//! its parents, its session or its environment, and is signalled by a handle, not
//! by a number.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use super::process_list::{ProcessList, Usage};
use super::procfs::{self, Seen};
use super::{Exit, cgroup, spawner};

/// How often, and how many times at most, processes without a child task are killed.
const CLEAR_EVERY: Duration = Duration::from_millis(20);
const CLEAR_TIMES: usize = 250;

/// A process group whose leader is our child.
///
/// Invariant: while `reaped` is false, the number is the group's.
pub(super) struct Group {
    leader: Pid,
    /// The variable that all of them were started with.
    mark: String,
    cgroup: Option<PathBuf>,
    reaped: Mutex<bool>,
}

impl Group {
    pub(super) fn pid(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Send a signal to all of the group, if there still is one.
    pub(super) fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            signal_all(self.leader, signal);
        }
    }

    /// Send a signal to the leader alone, if it still is there.
    pub(super) fn signal_leader(&self, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // A process that cannot be signalled has more rights than we have.
            let _ = kill_process(self.leader, signal);
        }
    }

    /// How the leader ended, if it has. It stays unreaped.
    pub(super) fn exit(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.leader), options) {
            Ok(status) => status.map(|status| {
                let code = status.exit_status().map(Exit::Code);
                code.or_else(|| status.terminating_signal().map(Exit::Signal))
                    .unwrap_or(Exit::Unknown)
            }),
            // A child that we may not wait for leaves nothing to be told.
            Err(_) => Some(Exit::Unknown),
        }
    }

    /// The numbers of all processes that belong to the leader and run, itself too.
    /// This blocks, as all that looks at every process does.
    pub(super) fn running(&self) -> Vec<i32> {
        if self.is_reaped() {
            return Vec::new();
        }
        let running = self.tree().into_iter().filter(|seen| !seen.ended);
        running.map(|seen| seen.pid).collect()
    }

    /// Does the process with this number belong to the leader? This blocks.
    pub(super) fn has(&self, pid: i32) -> bool {
        !self.is_reaped() && self.tree().iter().any(|seen| seen.pid == pid)
    }

    pub(super) fn usage(&self, process_list: &ProcessList) -> Usage {
        if self.is_reaped() {
            return Usage::default();
        }
        process_list.usage(self.pid(), &self.mark)
    }

    /// Kill the processes that are left, and forget the leader, which has ended.
    pub(super) fn reap(&self) {
        let mut reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            signal_all(self.leader, Signal::KILL);
            spawner::bury(self.pid());
            *reaped = true;
            spawner::forget(self.pid());
            if let Some(cgroup) = &self.cgroup {
                // A process that cannot be killed keeps it, and the next daemon
                // finds it.
                let _ = fs::remove_dir(cgroup);
            }
        }
    }

    /// All processes that belong to the leader.
    fn tree(&self) -> Vec<Seen> {
        let mut tree = ProcessList::take().tree(self.pid(), &self.mark);
        tree.extend(self.cgroup.iter().flat_map(|cgroup| cgroup::inside(cgroup)));
        tree.sort_unstable_by_key(|seen| seen.pid);
        tree.dedup_by_key(|seen| seen.pid);
        tree
    }

    fn is_reaped(&self) -> bool {
        *self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills all processes that belong to a leader, as often as it takes: while they
/// are killed they may start others.
pub(super) struct Clearing {
    group: Arc<Group>,
    /// The processes that we have seen: one that has ended does not say any more
    /// whose it was.
    known: HashMap<i32, u64>,
}

impl Clearing {
    pub(super) fn new(group: &Arc<Group>) -> Self {
        Self {
            group: Arc::clone(group),
            known: HashMap::new(),
        }
    }

    /// Kill all but the dead, bury those that came to us, and say which run yet.
    /// The leader must be unreaped; it is killed and not buried. This blocks.
    pub(super) fn kill(&mut self) -> Vec<i32> {
        if self.group.is_reaped() {
            return Vec::new();
        }
        let leader = self.group.pid();
        self.group.signal(Signal::KILL);
        let tree = self.group.tree();
        if let Some(cgroup) = &self.group.cgroup {
            let _ = fs::write(cgroup.join("cgroup.kill"), "1");
        }
        self.known
            .extend(tree.iter().map(|seen| (seen.pid, seen.since)));
        let mut running = Vec::new();
        for (pid, since) in &self.known {
            let now = procfs::seen(*pid).filter(|seen| seen.since == *since);
            if let Some(seen) = now.filter(|seen| !seen.ended) {
                // A process that may not be killed stays, and is told of.
                let _ = kill(seen);
                running.push(*pid);
            }
        }
        // Those whose parent has ended are ours to bury, and no others can be.
        for pid in self.known.keys().filter(|pid| **pid != leader) {
            if !running.contains(pid) {
                spawner::bury(*pid);
            }
        }
        running
    }
}

/// Kill a process that was seen, and not the one that has its number by now.
pub(super) fn kill(seen: Seen) -> rustix::io::Result<()> {
    let pid = Pid::from_raw(seen.pid).filter(|pid| *pid != Pid::INIT);
    let handle = pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    match procfs::seen(seen.pid) {
        Some(now) if now.since == seen.since => pidfd_send_signal(handle, Signal::KILL),
        _ => Ok(()),
    }
}

/// The duty to reap a group. A drop of it fulfils it at once.
pub(super) struct ReapGuard(Arc<Group>);

impl ReapGuard {
    /// Take over a child that leads its own group, or is about to.
    pub(super) fn new(child: u32, mark: String, cgroup: Option<PathBuf>) -> Self {
        let leader = i32::try_from(child).ok().and_then(Pid::from_raw);
        let group = Group {
            leader: leader.expect("the number of a child is that of a process"),
            mark,
            cgroup,
            reaped: Mutex::new(false),
        };
        spawner::remember(group.pid());
        Self(Arc::new(group))
    }

    pub(super) const fn group(&self) -> &Arc<Group> {
        &self.0
    }
}

impl Drop for ReapGuard {
    fn drop(&mut self) {
        if self.0.is_reaped() {
            return;
        }
        self.0.signal(Signal::KILL);
        let group = Arc::clone(&self.0);
        // The thread that drops this must not wait, and its runtime may be ending.
        let waits = move || {
            let mut clearing = Clearing::new(&group);
            for _ in 0..CLEAR_TIMES {
                if clearing.kill().is_empty() {
                    break;
                }
                thread::sleep(CLEAR_EVERY);
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = waitid(WaitId::Pid(group.leader), options);
            group.reap();
        };
        // Without a thread the child stays a zombie for as long as we live.
        let _ = thread::Builder::new().name("reaper".into()).spawn(waits);
    }
}

fn signal_all(leader: Pid, signal: Signal) {
    // A leader that went to another group, or has not come to its own yet, is
    // still our child. A leader that cannot be signalled either way has more rights
    // than we have.
    let _ = kill_process_group(leader, signal).or_else(|_| kill_process(leader, signal));
}
