//! A child and all who stay in its process group, from the fork to the last.
//!
//! The child leads the group, and is not reaped before the group has been
//! killed: until then the system gives its number to nobody else, so a signal
//! never reaches a stranger. Who leaves the group on purpose, as a program does
//! that goes to the background by forking twice, is out of reach.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use super::Exit;

/// A process group whose leader is our child.
///
/// Invariant: while `reaped` is false, the number is the group's.
pub(super) struct Group {
    leader: Pid,
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

    /// Kill whoever is left, and forget the leader, which has ended.
    pub(super) fn reap(&self) {
        let mut reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            signal_all(self.leader, Signal::KILL);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(self.leader), options);
            *reaped = true;
        }
    }

    fn is_reaped(&self) -> bool {
        *self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to reap a group, which whoever drops it fulfils at once.
pub(super) struct Custody(Arc<Group>);

impl Custody {
    /// Take over a child that leads its own group.
    pub(super) fn new(child: u32) -> Self {
        let leader = i32::try_from(child).ok().and_then(Pid::from_raw);
        Self(Arc::new(Group {
            leader: leader.expect("the number of a child is that of a process"),
            reaped: Mutex::new(false),
        }))
    }

    pub(super) const fn group(&self) -> &Arc<Group> {
        &self.0
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        if self.0.is_reaped() {
            return;
        }
        self.0.signal(Signal::KILL);
        if self.0.exit().is_some() {
            return self.0.reap();
        }
        let group = Arc::clone(&self.0);
        // Whoever drops this must not wait, and its runtime may be ending.
        let waits = move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = waitid(WaitId::Pid(group.leader), options);
            group.reap();
        };
        // Without a thread the child stays a zombie for as long as we live.
        let _ = thread::Builder::new().name("reaper".into()).spawn(waits);
    }
}

fn signal_all(leader: Pid, signal: Signal) {
    // A leader that went to another group is still our child. Whoever cannot be
    // signalled either way has more rights than we have.
    let _ = kill_process_group(leader, signal).or_else(|_| kill_process(leader, signal));
}
