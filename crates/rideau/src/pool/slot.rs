//! The slot of one member, outside of the machine.

use std::sync::atomic::AtomicUsize;
use std::task::Waker;
use std::time::Duration;

use rideau_core::pool::{Birth, MemberId};
use rideau_core::{Instant, Lead};
use tokio::task::AbortHandle;

use super::caller::CallerId;
use super::manager::About;
use super::refused::Holder;
use crate::idle_cache::Place;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// A member, as an entry `E`, and what is known of it.
///
/// The holder of the member, or the thread that has the machine's lock while the
/// machine has it, is alone with the slot. The member lies here only while the
/// machine has it, or on its way between the two.
#[repr(C, align(128))]
pub(super) struct MemberSlot<E> {
    flags: AtomicU32,
    /// Since when it is idle, or held if the highest bit is set.
    since: AtomicU64,
    /// It must not be taken from the idle cache from this instant on.
    until: AtomicU64,
    uses: AtomicU64,
    /// The lead of the last taker, and how long it waited.
    lead: AtomicU64,
    waited: AtomicU64,
    /// Where in the program it was taken. It decides nothing, so no model has to follow it.
    caller: AtomicUsize,
    // All that a take touches comes before this, on one line of memory.
    pub(super) member: Place<E>,
    id: AtomicU64,
    born: AtomicU64,
    generation: AtomicU64,
    revoked: AtomicBool,
    pub(super) side: Mutex<Side>,
}

/// Ends a member's work from outside.
pub(super) type Abort = Box<dyn FnOnce() + Send>;

/// Data that is rarely needed.
#[derive(Default)]
pub(super) struct Side {
    /// The note of the holder.
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
    /// The tasks that want to know when the member is revoked.
    pub(super) watchers: Vec<Waker>,
}

const HELD: u64 = 1 << 63;

/// Flags of a slot about its holder.
pub(super) mod flag {
    /// Its time is measured though it did not have to ask.
    pub(in super::super) const MEASURED: u32 = 1;
    /// Its thread panicked before: that says nothing of the member.
    pub(in super::super) const PANICKING: u32 = 2;
    /// It left something on the side.
    pub(in super::super) const SIDED: u32 = 4;
    /// If it says nothing else, the member is checked, or replaced.
    pub(in super::super) const CHECK: u32 = 8;
    pub(in super::super) const REPLACE: u32 = 16;
    pub(in super::super) const DOUBTS: u32 = CHECK | REPLACE;
}

impl<E> MemberSlot<E> {
    pub(super) fn new() -> Self {
        Self {
            flags: AtomicU32::new(0),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            lead: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            caller: AtomicUsize::new(0),
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

    /// The member is held from now on.
    #[inline]
    pub(super) fn hold(&self, now: Instant, lead: Lead, waited: u64, flags: u32, by: CallerId) {
        let set = |field: &AtomicU64, value| field.store(value, Ordering::Relaxed);
        set(&self.since, now.as_nanos() | HELD);
        set(&self.uses, self.uses() + 1);
        set(&self.lead, lead.as_nanos().cast_unsigned());
        set(&self.waited, waited);
        self.caller.store(by.0, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(super) fn lead(&self) -> Lead {
        Lead::from_nanos(self.lead.load(Ordering::Relaxed).cast_signed())
    }

    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// The flags about the holder.
    #[inline]
    pub(super) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flag(&self, flag: u32, set: bool) {
        if set {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// The member is not held any more.
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

    /// The holder of the member, if there is one.
    pub(super) fn holder(&self, now: Instant) -> Option<Holder> {
        let since = self.held_since()?;
        Some(Holder {
            id: self.id(),
            held: now.max(since).since(since),
            uses: self.uses(),
            note: lock(&self.side).note.clone(),
            taken_at: CallerId(self.caller.load(Ordering::Relaxed)).location(),
        })
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

    /// Change what the holder leaves on the side.
    pub(super) fn leave(&self, change: impl FnOnce(&mut Side)) {
        let mut side = lock(&self.side);
        self.set_flag(flag::SIDED, true);
        change(&mut side);
    }

    /// Forget what the holder left.
    pub(super) fn clear_side(&self) {
        if self.flags() & flag::SIDED == 0 {
            return;
        }
        let mut side = lock(&self.side);
        self.set_flag(flag::SIDED, false);
        let left = (side.note.take(), std::mem::take(&mut side.watchers));
        drop(side);
        drop(left);
    }

    /// The member goes, whatever sees to that: no task has to wait for its loss
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

    /// The member is taken away from its holder. Says which tasks to wake.
    pub(super) fn revoke(&self, id: MemberId) -> (Vec<Waker>, Option<Abort>) {
        let mut side = lock(&self.side);
        if self.id() != id {
            return (Vec::new(), None);
        }
        self.revoked.store(true, Ordering::Release);
        (std::mem::take(&mut side.watchers), side.abort.take())
    }

    /// Facts about the member, idle since `idle`.
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
