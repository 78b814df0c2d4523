//! Which threads may be looking at what another takes away.
//!
//! Every thread has a slot, and every look a turn: the slot's number is odd
//! during a look, and even between two. A thread that has taken something away
//! looks at all slots once. When none of those that were odd is still on the
//! same turn, no thread can have what was taken away.
//!
//! # Why a look costs two plain writes
//!
//! A look writes its turn and then reads; a thread that takes away writes and
//! then reads the turns. Each must see the other's write, or the other one must
//! see its own, which takes a full barrier on both sides. Looks are many and
//! takings few, so one side has both: it makes the system put a barrier into
//! every running thread (`membarrier`). Where the system cannot do that, each
//! look has its own.

use std::sync::atomic::compiler_fence;
#[cfg(not(rideau_loom))]
use std::{
    cell::Cell,
    sync::{LazyLock, atomic::fence},
};

#[cfg(not(rideau_loom))]
use crossbeam_utils::CachePadded;
#[cfg(rideau_loom)]
use loom::sync::atomic::fence;

#[cfg(not(rideau_loom))]
use crate::sync::{AtomicBool, Mutex, lock};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The looks of one thread. No other thread writes here.
pub(super) struct Slot {
    turn: AtomicU64,
    /// A look may begin within another, and end after it.
    depth: AtomicU32,
    /// It has to be given back after the look.
    #[cfg(not(rideau_loom))]
    is_late: AtomicBool,
}

/// A look that was going on.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    slot: &'a Slot,
    turn: u64,
}

/// What puts in the barriers between looks and takings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Barriers {
    /// Both sides their own.
    Both,
    /// The system, when something is taken away.
    System,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            turn: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            #[cfg(not(rideau_loom))]
            is_late: AtomicBool::new(false),
        }
    }

    /// What is read from now on stays, until the end.
    #[inline(always)]
    pub(super) fn begin(&self, barriers: Barriers) {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth > 0 {
            return;
        }
        let turn = self.turn.load(Ordering::Relaxed);
        // A thread that sees this turn knows that all looks before it are over.
        self.turn.store(turn + 1, Ordering::Release);
        match barriers {
            Barriers::Both => fence(Ordering::SeqCst),
            Barriers::System => compiler_fence(Ordering::SeqCst),
        }
    }

    /// True if no other look of the thread goes on.
    #[inline(always)]
    pub(super) fn end(&self) -> bool {
        let depth = self.depth.load(Ordering::Relaxed) - 1;
        self.depth.store(depth, Ordering::Relaxed);
        if depth > 0 {
            return false;
        }
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::Release);
        true
    }

    /// The look that goes on. Between the barrier of a thread that takes away
    /// and its freeing.
    pub(super) fn look(&self) -> Option<Look<'_>> {
        let turn = self.turn.load(Ordering::Acquire);
        (turn % 2 == 1).then_some(Look { slot: self, turn })
    }
}

impl Look<'_> {
    pub(super) fn is_over(self) -> bool {
        self.slot.turn.load(Ordering::Acquire) != self.turn
    }
}

/// All slots. They are used again and again, so there are never more than there
/// were threads at a time.
#[cfg(not(rideau_loom))]
struct Roll {
    all: Vec<&'static Slot>,
    vacant: Vec<&'static Slot>,
}

#[cfg(not(rideau_loom))]
static ROLL: LazyLock<Mutex<Roll>> = LazyLock::new(|| {
    HAS_SYSTEM.store(register(), Ordering::Relaxed);
    Mutex::new(Roll {
        all: Vec::new(),
        vacant: Vec::new(),
    })
});

/// Written before the first slot is there, and read by threads that have one or
/// the roll.
#[cfg(not(rideau_loom))]
static HAS_SYSTEM: AtomicBool = AtomicBool::new(false);

#[cfg(not(rideau_loom))]
thread_local! {
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Gives the slot back when the thread ends.
    static STAY: Stay = const { Stay };
}

#[cfg(not(rideau_loom))]
struct Stay;

#[cfg(not(rideau_loom))]
impl Drop for Stay {
    fn drop(&mut self) {
        leave();
    }
}

/// This thread looks from now on, until [`end`] is called with the slot.
#[cfg(not(rideau_loom))]
#[inline(always)]
pub(super) fn begin() -> &'static Slot {
    let slot = match SLOT.get() {
        Some(slot) => slot,
        None => enter(),
    };
    slot.begin(barriers());
    slot
}

#[cfg(not(rideau_loom))]
#[inline(always)]
pub(super) fn end(slot: &'static Slot) {
    if slot.end() && slot.is_late.load(Ordering::Relaxed) {
        leave();
    }
}

/// The looks that go on and may have seen what the caller has taken away by now.
/// None if that cannot be known: the system has said yes once, and now says no, as
/// a filter of system calls would have it. Then nothing is ever freed.
#[cfg(not(rideau_loom))]
pub(super) fn looks() -> Option<Vec<Look<'static>>> {
    // A thread that comes to the roll later sees what was taken away before.
    let roll = lock(&ROLL);
    match barriers() {
        Barriers::Both => fence(Ordering::SeqCst),
        Barriers::System => stop_all().or_else(complain)?,
    }
    Some(roll.all.iter().filter_map(|slot| slot.look()).collect())
}

#[cfg(not(rideau_loom))]
#[cold]
fn complain() -> Option<()> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "the system refuses membarrier, which it allowed before: the memory of forgotten \
             locks is kept until the process ends. Allow it, or refuse it from the start."
        );
    });
    None
}

#[cfg(not(rideau_loom))]
#[inline(always)]
fn barriers() -> Barriers {
    if HAS_SYSTEM.load(Ordering::Relaxed) {
        Barriers::System
    } else {
        Barriers::Both
    }
}

#[cfg(not(rideau_loom))]
#[cold]
#[inline(never)]
fn enter() -> &'static Slot {
    let mut roll = lock(&ROLL);
    let slot = roll.vacant.pop().unwrap_or_else(|| {
        let slot: &'static CachePadded<Slot> = Box::leak(Box::new(CachePadded::new(Slot::new())));
        roll.all.push(slot);
        slot
    });
    drop(roll);
    // A destructor of the thread may come here when ours was there already.
    let is_late = STAY.try_with(|_| ()).is_err();
    slot.is_late.store(is_late, Ordering::Relaxed);
    SLOT.set(Some(slot));
    slot
}

#[cfg(not(rideau_loom))]
#[cold]
#[inline(never)]
fn leave() {
    if let Some(slot) = SLOT.take() {
        lock(&ROLL).vacant.push(slot);
    }
}

/// Whether the system will put barriers into our threads.
#[cfg(all(target_os = "linux", not(any(rideau_loom, miri))))]
fn register() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

#[cfg(all(any(not(target_os = "linux"), miri), not(rideau_loom)))]
fn register() -> bool {
    false
}

/// Have all threads of the process pass a barrier.
#[cfg(all(target_os = "linux", not(any(rideau_loom, miri))))]
fn stop_all() -> Option<()> {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::PrivateExpedited).ok()
}

#[cfg(all(any(not(target_os = "linux"), miri), not(rideau_loom)))]
fn stop_all() -> Option<()> {
    None
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use std::thread;

    use super::*;

    fn is_looking(slot: &'static Slot) -> bool {
        let looks = looks().expect("there are barriers of some kind");
        looks.iter().any(|look| std::ptr::eq(look.slot, slot))
    }

    #[test]
    fn a_look_goes_on_until_the_last_within_it_ends() {
        let outer = begin();
        let look = outer.look().expect("it goes on");
        let inner = begin();
        assert!(std::ptr::eq(outer, inner), "a thread has one slot");
        end(outer);
        assert!(!look.is_over() && is_looking(outer));
        end(inner);
        assert!(look.is_over() && !is_looking(outer));
        end(begin());
        assert!(look.is_over(), "no turn comes twice");
    }

    #[test]
    fn slots_are_used_again() {
        for _ in 0..200 {
            thread::spawn(|| end(begin())).join().unwrap();
        }
        // Other tests have threads, too.
        let all = lock(&ROLL).all.len();
        assert!(all < 150, "{all} slots for few threads at a time");
    }

    #[test]
    fn a_look_of_a_thread_that_ends_is_given_back_at_once() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                let slot = begin();
                assert!(slot.look().is_some());
                end(slot);
            }
        }
        thread_local!(static LATE: Late = const { Late });
        let before = lock(&ROLL).all.len();
        for _ in 0..200 {
            let ended = thread::spawn(|| {
                // Whichever of both ends first, the other one's slot is gone or late.
                LATE.with(|_| ());
                end(begin());
            });
            ended.join().unwrap();
        }
        let after = lock(&ROLL).all.len();
        assert!(after < before + 100, "from {before} slots to {after}");
    }
}
