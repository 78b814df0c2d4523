//! The memory of a pool beside its machine.
//!
//! Members lie in slots. While no take waits the idle ones are in the idle cache,
//! where they are taken without the machine's lock; every step of the machine
//! calls them back first and lends them again at its end.

use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use rideau_core::pool::{self as core, Fate, Options};
use rideau_core::{Histogram, Instant, Machine};
use tokio::sync::Notify;

use super::manager::Manager;
use super::refused::Fault;
use super::reply_slot::ReplySlot;
use super::slot::MemberSlot;
use super::tasks::Tasks;
use crate::driver::Driver;
use crate::idle_cache::{IdleCache, LEN_MAX, Slots};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// At most this many members are given memory before they are started.
const EXPECTED: usize = 256;

pub(super) type PoolDriver<M> = Driver<PoolTables, PoolShell<M>>;
pub(crate) type Overseer = Arc<dyn Fn() + Send + Sync>;

/// No cell.
pub(super) const NO_CELL: u32 = u32::MAX;

/// How to answer a take that waits.
pub(crate) struct TakeReply {
    pub(super) waker: Waker,
    pub(super) cell: u32,
}

impl rideau_core::Reply for TakeReply {}

/// The machine, and what else its lock guards.
pub(crate) struct PoolTables {
    pub(super) pool: core::Pool<TakeReply>,
    pub(super) free_slots: FreeReplySlots,
    /// How many takes from the idle cache, and how many grants, came to nothing:
    /// each of those takes asked again, and is counted for that.
    pub(super) unfit: u64,
    pub(super) broken: u64,
    /// Takes from the idle cache that the machine knows of.
    pub(super) takes: u64,
    /// Slots on their way to or from the idle cache.
    pub(super) moved: Vec<u32>,
}

/// Cells that no take waits in.
#[derive(Default)]
pub(super) struct FreeReplySlots {
    free: Vec<u32>,
    len: u32,
}

/// Members, cells, and how to start and stop what is in them.
pub(crate) struct PoolShell<M: Manager> {
    pub(super) cache: IdleCache<Box<MemberEntry<M>>>,
    pub(super) slots: Slots<MemberSlot<MemberEntry<M>>>,
    pub(super) cells: Slots<ReplySlot>,
    pub(super) manager: Arc<M>,
    /// For logs and refusals.
    pub(super) name: Option<Arc<str>>,
    pub(super) rules: Rules,
    /// How many slots have ever been used.
    pub(super) slots_len: AtomicU32,
    tasks: Tasks,
    /// Looks how the pool stands, if it shares room with others.
    pub(super) overseer: Option<Overseer>,
    me: OnceLock<Weak<PoolDriver<M>>>,
    /// Why the last start failed, until one goes well.
    fault: Mutex<Option<Fault>>,
    /// The circuit is open, because starts failed in a row.
    failing: AtomicBool,
    /// How long some holders kept their member that did not have to ask for it.
    pub(super) holds: Mutex<Histogram>,
    /// A start came to an end, or the pool did.
    pub(super) news: Notify,
}

/// A member and the slot it belongs to, wherever it is.
pub(super) struct MemberEntry<M: Manager> {
    pub(super) slot: u32,
    /// The cell in which its holder waited for it, to be freed; none while
    /// it is not held.
    pub(super) cell: u32,
    /// The pool, while a holder of the member keeps the pool alive.
    pub(super) owner: Option<Arc<PoolDriver<M>>>,
    pub(super) member: M::Member,
}

/// The options that are needed without the lock.
pub(super) struct Rules {
    uses_max: AtomicU64,
    /// A member that was idle for so long is checked first.
    stale_from: AtomicU64,
    on_cancel: AtomicU8,
    on_error: AtomicU8,
}

impl PoolTables {
    pub(super) fn new(pool: core::Pool<TakeReply>) -> Self {
        Self {
            pool,
            free_slots: FreeReplySlots::default(),
            unfit: 0,
            broken: 0,
            takes: 0,
            moved: Vec::new(),
        }
    }

    /// No take waits in this cell any more, if it is one.
    #[inline]
    pub(super) fn free(&mut self, cell: u32) {
        if cell != NO_CELL {
            self.free_slots.free.push(cell);
        }
    }
}

impl FreeReplySlots {
    /// No further take can wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == LEN_MAX && self.free.is_empty()
    }
}

impl Machine for PoolTables {
    type Effect = core::Effect<TakeReply>;

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Self::Effect>) {
        self.pool.advance(now, effects);
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.pool.waiting()
    }
}

impl<M: Manager> PoolShell<M> {
    pub(super) fn new(
        name: Option<&str>,
        manager: M,
        options: &Options,
        tasks: Tasks,
        shards: usize,
    ) -> Self {
        let rules = Rules {
            uses_max: AtomicU64::new(0),
            stale_from: AtomicU64::new(0),
            on_cancel: AtomicU8::new(0),
            on_error: AtomicU8::new(0),
        };
        rules.set(options);
        Self {
            cache: IdleCache::new(shards),
            slots: Slots::new(MemberSlot::new, options.max.min(EXPECTED)),
            cells: Slots::new(ReplySlot::new, 0),
            manager: Arc::new(manager),
            name: name.map(Arc::from),
            rules,
            slots_len: AtomicU32::new(0),
            tasks,
            overseer: None,
            me: OnceLock::new(),
            fault: Mutex::new(None),
            failing: AtomicBool::new(false),
            holds: Mutex::new(Histogram::default()),
            news: Notify::new(),
        }
    }

    /// Let an overseer look at the pool whenever there is news.
    pub(super) fn overseen_by(mut self, overseer: Overseer) -> Self {
        self.overseer = Some(overseer);
        self
    }

    /// Let the shell know which pool it belongs to.
    pub(super) fn belong_to(&self, driver: &Arc<PoolDriver<M>>) {
        let first = self.me.set(Arc::downgrade(driver)).is_ok();
        debug_assert!(first, "a shell belongs to one pool");
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &MemberSlot<MemberEntry<M>> {
        self.slots.get(slot)
    }

    /// All slots that ever had a member.
    pub(super) fn each_slot(&self) -> impl Iterator<Item = &MemberSlot<MemberEntry<M>>> {
        let len = self.slots_len.load(Ordering::Acquire);
        (0..len).map(|slot| self.slots.get(slot))
    }

    /// A cell to wait in, if there is one.
    pub(super) fn reply_slot(&self, free_slots: &mut FreeReplySlots) -> u32 {
        let cell = free_slots.free.pop().unwrap_or_else(|| {
            free_slots.len += 1;
            self.cells.grow_to(free_slots.len);
            free_slots.len - 1
        });
        self.cells.get(cell).clear();
        cell
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        lock(&self.fault).clone()
    }

    pub(super) fn set_fault(&self, fault: Option<Fault>) {
        *lock(&self.fault) = fault;
    }

    /// The circuit is open.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// A start came to an end. Only under the machine's lock.
    pub(super) fn note_circuit(&self, circuit: core::Circuit) {
        let failing = matches!(circuit, core::Circuit::Open { .. });
        self.failing.store(failing, Ordering::Relaxed);
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(super) fn me(&self) -> Weak<PoolDriver<M>> {
        self.me.get().cloned().unwrap_or_default()
    }
}

impl<M: Manager> Drop for PoolShell<M> {
    fn drop(&mut self) {
        for slot in self.each_slot() {
            let mut side = lock(&slot.side);
            let tasks = [side.task.take(), side.watch.take()];
            drop(side);
            tasks.into_iter().flatten().for_each(|task| task.abort());
        }
    }
}

impl Rules {
    pub(super) fn set(&self, options: &Options) {
        let uses_max = options.uses_max.unwrap_or(u64::MAX);
        self.uses_max.store(uses_max, Ordering::Relaxed);
        let stale_from = match options.check_after {
            None => u64::MAX,
            Some(Duration::ZERO) => 0,
            // After that, and not with it.
            Some(span) => u64::try_from(span.as_nanos() + 1).unwrap_or(u64::MAX),
        };
        self.stale_from.store(stale_from, Ordering::Relaxed);
        let (on_cancel, on_error) = (options.on_cancel as u8, options.on_error as u8);
        self.on_cancel.store(on_cancel, Ordering::Relaxed);
        self.on_error.store(on_error, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_used_up(&self, uses: u64) -> bool {
        uses >= self.uses_max.load(Ordering::Relaxed)
    }

    /// A member that was idle for this many nanoseconds has to be checked.
    #[inline]
    pub(super) fn is_stale(&self, idle: u64) -> bool {
        idle >= self.stale_from.load(Ordering::Relaxed)
    }

    pub(super) fn on_cancel(&self) -> Fate {
        FATES[usize::from(self.on_cancel.load(Ordering::Relaxed))]
    }

    pub(super) fn on_error(&self) -> Fate {
        FATES[usize::from(self.on_error.load(Ordering::Relaxed))]
    }
}

const FATES: [Fate; 3] = [Fate::Reuse, Fate::Check, Fate::Replace];
