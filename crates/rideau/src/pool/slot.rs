//! What the handle knows of one member beside the machine.

use std::task::Waker;
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::pool::{Birth, MemberId};
use tokio::task::AbortHandle;

use super::manager::About;
use crate::shelf::{Linked, Place};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// A member and what is known of it.
///
/// Whoever has taken the slot's index, or has the machine's lock while the
/// machine has it, is alone with the member.
#[repr(C, align(128))]
pub(super) struct Slot<T> {
    next: AtomicU32,
    /// Since when it is idle, or held if the highest bit is set.
    since: AtomicU64,
    /// It must not be taken from the shelf from this instant on.
    until: AtomicU64,
    uses: AtomicU64,
    /// The holder left something on the side.
    sided: AtomicBool,
    // All that a take touches comes before this, on one line of memory.
    pub(super) member: Place<T>,
    id: AtomicU64,
    born: AtomicU64,
    generation: AtomicU64,
    revoked: AtomicBool,
    pub(super) side: Mutex<Side>,
}

/// Ends a member's work from outside.
type Abort = Box<dyn FnOnce() + Send>;

/// What is needed seldom.
#[derive(Default)]
pub(super) struct Side {
    /// What the holder says of itself.
    pub(super) note: Option<String>,
    /// Ends the member's work from outside.
    pub(super) abort: Option<Abort>,
    /// Starts, checks or stops the member `serves`, as the `job`-th to do so
    /// here.
    pub(super) task: Option<AbortHandle>,
    pub(super) job: u64,
    pub(super) serves: MemberId,
    /// Waits for its loss.
    pub(super) watch: Option<AbortHandle>,
    /// The last member that came to be here.
    pub(super) delivered: MemberId,
    /// The last member for which nothing is to be done any more, or nothing
    /// but its stop. Later members have larger numbers.
    pub(super) abandoned: MemberId,
    pub(super) ended: MemberId,
    /// Who wants to know when the member is revoked.
    pub(super) watchers: Vec<Waker>,
}

const HELD: u64 = 1 << 63;

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            sided: AtomicBool::new(false),
            member: Place::new(),
            id: AtomicU64::new(0),
            born: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
            side: Mutex::new(Side::default()),
        }
    }

    /// A member is here from now on. Only under the machine's lock.
    pub(super) fn bear(&self, birth: &Birth) {
        let set = |field: &AtomicU64, value| field.store(value, Ordering::Relaxed);
        set(&self.id, birth.id.0);
        set(&self.born, birth.born.as_nanos());
        set(&self.since, birth.born.as_nanos());
        set(&self.until, birth.until.as_nanos());
        set(&self.generation, birth.generation);
        set(&self.uses, 0);
        self.revoked.store(false, Ordering::Relaxed);
    }

    /// Somebody holds the member from now on. Says since when it was idle.
    #[inline]
    pub(super) fn hold(&self, now: Instant) -> Instant {
        let idle = self.since.load(Ordering::Relaxed);
        self.since.store(now.as_nanos() | HELD, Ordering::Relaxed);
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses + 1, Ordering::Relaxed);
        Instant::from_nanos(idle & !HELD)
    }

    /// Nobody does any more.
    #[inline]
    pub(super) fn rest(&self, now: Instant) {
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// It is still held, since then.
    pub(super) fn hold_again(&self, since: Instant) {
        self.since.store(since.as_nanos() | HELD, Ordering::Relaxed);
    }

    /// Since when it is held or idle.
    #[inline]
    pub(super) fn since(&self) -> Instant {
        Instant::from_nanos(self.since.load(Ordering::Relaxed) & !HELD)
    }

    pub(super) fn held_since(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed);
        (since & HELD != 0).then_some(Instant::from_nanos(since & !HELD))
    }

    #[inline]
    pub(super) fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Relaxed))
    }

    pub(super) fn mark(&self, until: Instant) {
        self.until.store(until.as_nanos(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    pub(super) fn id(&self) -> MemberId {
        MemberId(self.id.load(Ordering::Relaxed))
    }

    /// The holder left something on the side, to be cleared when it goes.
    #[inline]
    pub(super) fn is_sided(&self) -> bool {
        self.sided.load(Ordering::Relaxed)
    }

    /// Change what the holder leaves on the side.
    pub(super) fn leave(&self, change: impl FnOnce(&mut Side)) {
        let mut side = lock(&self.side);
        self.sided.store(true, Ordering::Relaxed);
        change(&mut side);
    }

    /// Forget what the holder left.
    pub(super) fn clear_side(&self) {
        if !self.is_sided() {
            return;
        }
        let mut side = lock(&self.side);
        self.sided.store(false, Ordering::Relaxed);
        let left = (side.note.take(), std::mem::take(&mut side.watchers));
        drop(side);
        drop(left);
    }

    /// The member goes, whoever sees to that: nobody has to wait for its loss
    /// or to end its work any more. Only while the slot is still its own.
    pub(super) fn forget(&self, id: MemberId) {
        let mut side = lock(&self.side);
        side.ended = id;
        let (watch, abort) = (side.watch.take(), side.abort.take());
        drop(side);
        if let Some(watch) = watch {
            watch.abort();
        }
        drop(abort);
    }

    /// What is done for the member is not wanted any more. The slot may have
    /// gone to another one since that was decided.
    pub(super) fn abandon(&self, id: MemberId) {
        let mut side = lock(&self.side);
        if side.serves > id {
            return;
        }
        side.abandoned = id;
        let tasks = [side.task.take(), side.watch.take()];
        drop(side);
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// The member is taken away from its holder. Says whom to tell.
    pub(super) fn revoke(&self, id: MemberId) -> (Vec<Waker>, Option<Abort>) {
        let mut side = lock(&self.side);
        if self.id() != id {
            return (Vec::new(), None);
        }
        self.revoked.store(true, Ordering::Release);
        (std::mem::take(&mut side.watchers), side.abort.take())
    }

    /// What is known of the member, idle since `idle`.
    pub(super) fn about(&self, idle: Duration, now: Instant) -> About {
        let born = Instant::from_nanos(self.born.load(Ordering::Relaxed));
        About {
            id: self.id(),
            age: now.max(born).since(born),
            idle,
            uses: self.uses(),
            generation: self.generation.load(Ordering::Relaxed),
        }
    }
}

impl<T> Linked for Slot<T> {
    #[inline]
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}
