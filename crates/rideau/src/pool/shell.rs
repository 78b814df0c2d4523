//! The memory of a pool beside its machine, and what carries its effects out.
//!
//! Members lie in slots. While no take waits the idle ones are in the idle cache,
//! where they are taken without the machine's lock; every step of the machine
//! calls them back first and lends them again at its end.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use rideau_core::pool::{self as core, Fate, Grant, MemberId, Options};
use rideau_core::{Histogram, Instant, Machine};
use tokio::sync::Notify;

use super::manager::Manager;
use super::member_tasks;
use super::reply_slot::ReplySlot;
use super::slot::{MemberEntry, MemberSlot};
use super::tasks::Tasks;
use crate::after::After;
use crate::driver::{Driver, Shell};
use crate::idle_cache::{IdleCache, LEN_MAX, Slots};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// At most this many members are given memory before they are started.
const EXPECTED: usize = 256;

pub(super) type PoolDriver<M> = Driver<PoolTables, PoolShell<M>>;
pub(crate) type Overseer = Arc<dyn Fn() + Send + Sync>;
pub(super) type Fault = Arc<dyn Error + Send + Sync>;

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
    takes: u64,
    /// Slots on their way to or from the idle cache.
    moved: Vec<u32>,
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
    pub(super) slots: Slots<MemberSlot<M>>,
    pub(super) cells: Slots<ReplySlot>,
    pub(super) manager: Arc<M>,
    pub(super) rules: Rules,
    /// How many slots have ever been used.
    slots_len: AtomicU32,
    tasks: Tasks,
    /// Looks how the pool stands, if it shares room with others.
    overseer: Option<Overseer>,
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
    pub(super) fn new(manager: M, options: &Options, tasks: Tasks, shards: usize) -> Self {
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
    pub(super) fn slot(&self, slot: u32) -> &MemberSlot<M> {
        self.slots.get(slot)
    }

    /// All slots that ever had a member.
    pub(super) fn each_slot(&self) -> impl Iterator<Item = &MemberSlot<M>> {
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

    fn me(&self) -> Weak<PoolDriver<M>> {
        self.me.get().cloned().unwrap_or_default()
    }

    /// A start begins, in a slot that may be new.
    fn start(&self, slot: u32, id: MemberId, after: &mut After) {
        self.slots.grow_to(slot + 1);
        let len = self.slots_len.load(Ordering::Relaxed).max(slot + 1);
        self.slots_len.store(len, Ordering::Release);
        let duty = member_tasks::Duty::new(self.me(), slot, id, true);
        let manager = Arc::clone(&self.manager);
        self.tasks
            .post(after, move || member_tasks::start(duty, manager));
    }

    fn check(&self, slot: u32, id: MemberId, after: &mut After) {
        let Some(member) = self.slot(slot).member.take() else {
            unreachable!("an idle member lies in its place");
        };
        let duty = member_tasks::Duty::new(self.me(), slot, id, false);
        let manager = Arc::clone(&self.manager);
        self.tasks
            .post(after, move || member_tasks::check(duty, manager, member));
    }

    fn stop(&self, slot: u32, id: MemberId, why: core::Retired, after: &mut After) {
        let Some(member) = self.slot(slot).member.take() else {
            unreachable!("a member that is stopped lies in its place");
        };
        self.slot(slot).mark(Instant::START);
        let duty = member_tasks::Duty::new(self.me(), slot, id, false);
        let manager = Arc::clone(&self.manager);
        self.tasks.post(after, move || {
            member_tasks::stop(duty, manager, member, why)
        });
    }

    fn abandon(&self, slot: u32, id: MemberId, after: &mut After) {
        let driver = self.me();
        after.call(move || {
            let Some(driver) = driver.upgrade() else {
                return;
            };
            driver.shell().slot(slot).abandon(id);
        });
    }

    fn revoke(&self, slot: u32, id: MemberId, after: &mut After) {
        let (watchers, abort) = self.slot(slot).revoke(id);
        watchers.into_iter().for_each(|waker| after.wake(waker));
        if let Some(abort) = abort {
            // Its panic must not keep others from being told.
            after.call(move || drop(catch_unwind(AssertUnwindSafe(abort))));
        }
    }

    fn grant(&self, reply: TakeReply, grant: &Grant, after: &mut After) {
        self.cells.get(reply.cell).grant(grant);
        after.wake(reply.waker);
    }
}

impl<M: Manager> Shell<PoolTables> for PoolShell<M> {
    #[inline]
    fn perform(&self, effect: core::Effect<TakeReply>, after: &mut After) {
        match effect {
            core::Effect::Grant { reply, grant } => self.grant(reply, &grant, after),
            core::Effect::Shed { reply, refusal } => {
                self.cells.get(reply.cell).refuse(&refusal);
                after.wake(reply.waker);
            }
            core::Effect::Forget(_) => unreachable!("a take that leaves says so"),
            core::Effect::Start { slot, id } => self.start(slot, id, after),
            core::Effect::Check { slot, id } => self.check(slot, id, after),
            core::Effect::Stop { slot, id, why } => self.stop(slot, id, why, after),
            core::Effect::Abandon { slot, id } => self.abandon(slot, id, after),
            core::Effect::Mark { slot, until } => self.slot(slot).mark(until),
            core::Effect::Revoke { slot, id } => self.revoke(slot, id, after),
            core::Effect::Look => {
                if let Some(overseer) = self.overseer.clone() {
                    after.call(move || overseer());
                }
            }
            core::Effect::Closed => {
                let driver = self.me();
                after.call(move || {
                    if let Some(driver) = driver.upgrade() {
                        driver.shell().news.notify_waiters();
                    }
                });
            }
        }
    }

    #[inline]
    fn begin(&self, tables: &mut PoolTables) {
        if self.cache.is_closed() {
            return;
        }
        let moved = &mut tables.moved;
        self.cache.close(|entry| {
            let slot = entry.slot;
            moved.push(slot);
            self.slot(slot).member.put(entry);
        });
        let takes = self.cache.takes();
        if takes != tables.takes {
            tables.takes = takes;
            tables.pool.taken_unasked();
        }
        // Each shard is in order, but not all of them together; what comes out of
        // order has to look for its place among all others.
        tables
            .moved
            .sort_by_key(|slot| self.slots.get(*slot).since());
        for slot in tables.moved.drain(..) {
            tables.pool.recall(slot, self.slots.get(slot).since());
        }
    }

    #[inline]
    fn end(&self, tables: &mut PoolTables) {
        if tables.pool.may_lend() {
            tables.pool.lend(&mut tables.moved);
            self.cache.open(tables.moved.len(), |at| {
                let member = self.slot(tables.moved[at]).member.take();
                member.expect("an idle member lies in its place")
            });
            tables.moved.clear();
        }
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
