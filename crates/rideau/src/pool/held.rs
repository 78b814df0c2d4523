//! A member in its holder's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use rideau_core::pool::{Fate, Retired, Use};
use rideau_core::{Lead, Machine};

use super::Pool;
use super::manager::{About, Manager};
use super::shell::{MemberEntry, NO_CELL, PoolDriver, PoolShell};
use super::slot::{MemberSlot, flag};
use crate::sync::lock;

/// A member, for as long as it is kept.
///
/// Dropping it gives it back for the next taker, wherever that happens: it
/// never waits, starts no task and needs no runtime. If the thread panics, the
/// member is replaced.
///
/// What can be done with it beside using it are associated functions, so that
/// they are in no member's way: `Held::fail(held)`.
///
/// No holder gives a member back twice:
///
/// ```compile_fail,E0382
/// # fn twice<M: rideau::Manager>(held: rideau::Held<'_, M>) {
/// rideau::Held::release(held);
/// rideau::Held::release(held);
/// # }
/// ```
#[must_use = "dropping a member gives it back at once"]
pub struct Held<'a, M: Manager> {
    /// None if the entry has the pool. Two words in all, and all else is in the
    /// slot: a take that moves little is fast.
    pool: Option<&'a Arc<PoolDriver<M>>>,
    /// There until the end.
    entry: Option<Box<MemberEntry<M>>>,
}

/// A pool, borrowed or owned.
pub(super) enum Keep<'a, M: Manager> {
    Borrowed(&'a Arc<PoolDriver<M>>),
    Owned(Arc<PoolDriver<M>>),
}

impl<M: Manager> Deref for Keep<'_, M> {
    type Target = Arc<PoolDriver<M>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Borrowed(driver) => driver,
            Self::Owned(driver) => driver,
        }
    }
}

impl<M: Manager> Keep<'_, M> {
    /// The same pool once more.
    #[inline]
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Borrowed(driver) => Self::Borrowed(driver),
            Self::Owned(driver) => Self::Owned(Arc::clone(driver)),
        }
    }
}

/// No recent instant is further behind, in nanoseconds. A member whose life ends
/// so soon goes to the machine: its timer may have been there before us.
const BEHIND: u64 = 20_000_000;

impl<'a, M: Manager> Held<'a, M> {
    /// A member that its slot knows to be held.
    #[inline]
    pub(super) fn new(driver: Keep<'a, M>, mut entry: Box<MemberEntry<M>>) -> Self {
        let pool = match driver {
            Keep::Borrowed(driver) => Some(driver),
            Keep::Owned(driver) => {
                entry.owner = Some(driver);
                None
            }
        };
        let entry = Some(entry);
        Self { pool, entry }
    }

    /// Give the member back for the next taker. The same as dropping it.
    pub fn release(held: Self) {
        drop(held);
    }

    /// The member failed: replace it.
    pub fn fail(held: Self) {
        held.set_fate(Fate::Replace);
    }

    /// Give the member back, to be reused, checked first, or replaced.
    pub fn end(held: Self, fate: Fate) {
        held.set_fate(fate);
    }

    /// Keep the member for good. Another is started in its place when it is
    /// needed.
    pub fn detach(mut held: Self) -> M::Member {
        let entry = held.entry.take().expect(ALWAYS);
        let MemberEntry {
            slot,
            cell,
            owner,
            member,
        } = *entry;
        let driver = driver_of(held.pool, owner.as_ref());
        let place = driver.shell().slot(slot);
        place.rest(driver.clock().recent());
        place.clear_side();
        place.forget(place.id());
        driver.step(|step| {
            step.machine.free(cell);
            let pool = &mut step.machine.pool;
            pool.detach(slot, step.now, step.effects);
        });
        member
    }

    /// The pool that the member belongs to.
    pub fn pool(held: &Self) -> Pool<M> {
        let driver = Arc::clone(held.driver());
        Pool { driver }
    }

    /// The age, uses and other facts of the member.
    pub fn about(held: &Self) -> About {
        let now = held.driver().clock().now();
        let idle = held.place().lead().reversed().waited();
        held.place().about(idle, now)
    }

    /// How long the take took.
    pub fn waited(held: &Self) -> Duration {
        held.place().waited()
    }

    /// How much earlier the taker came than the member: negative if the member
    /// had been idle for so long.
    pub fn lead(held: &Self) -> Lead {
        held.place().lead()
    }

    /// Name the holder of the member, for all callers that ask.
    pub fn note(held: &Self, note: impl Into<String>) {
        let note = note.into();
        held.place().leave(|side| side.note = Some(note));
    }

    /// The pool wants the member back at once, and has ended its work if it
    /// could.
    pub fn is_revoked(held: &Self) -> bool {
        held.place().is_revoked()
    }

    /// Wait until the pool wants the member back at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn revoked(held: &Self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|context| Self::poll_revoked(held, context))
    }

    fn poll_revoked(held: &Self, context: &Context<'_>) -> Poll<()> {
        let place = held.place();
        let waker = context.waker();
        place.leave(|side| {
            if !side.watchers.iter().any(|other| other.will_wake(waker)) {
                side.watchers.push(waker.clone());
            }
        });
        // The thread that revokes it takes the wakers after it has said so.
        if place.is_revoked() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Sets how the member is treated at the end.
    pub(super) fn set_fate(&self, fate: Fate) {
        let place = self.place();
        place.set_flag(flag::CHECK, fate == Fate::Check);
        place.set_flag(flag::REPLACE, fate == Fate::Replace);
    }

    fn place(&self) -> &MemberSlot<MemberEntry<M>> {
        let entry = self.entry.as_deref().expect(ALWAYS);
        self.driver().shell().slot(entry.slot)
    }

    fn driver(&self) -> &Arc<PoolDriver<M>> {
        let entry = self.entry.as_deref().expect(ALWAYS);
        driver_of(self.pool, entry.owner.as_ref())
    }

    /// How the use of the member went.
    #[inline]
    fn judge(shell: &PoolShell<M>, flags: u32, member: &mut M::Member) -> Use {
        let is_plain = flags & flag::DOUBTS == 0;
        let panics = thread::panicking() && flags & flag::PANICKING == 0;
        if is_plain && !panics {
            return match is_broken(&*shell.manager, member) {
                false => Use::Fine,
                true => Use::Over(Retired::Broken),
            };
        }
        if panics || flags & flag::REPLACE != 0 {
            Use::Over(Retired::Failed)
        } else if is_broken(&*shell.manager, member) {
            Use::Over(Retired::Broken)
        } else if flags & flag::CHECK != 0 {
            Use::Doubtful
        } else {
            Use::Fine
        }
    }

    /// Ask the machine what becomes of the member.
    #[cold]
    fn end_slowly(driver: &PoolDriver<M>, mut entry: Box<MemberEntry<M>>, used: Use) {
        let slot = entry.slot;
        let cell = std::mem::replace(&mut entry.cell, NO_CELL);
        let place = driver.shell().slot(slot);
        place.member.put(entry);
        let uses = place.uses();
        let since = place.held_since();
        place.clear_side();
        driver.step(|step| {
            step.machine.free(cell);
            let since = since.unwrap_or(step.now).min(step.now);
            place.rest(step.now);
            let (held, now) = (step.now.since(since), step.now);
            let pool = &mut step.machine.pool;
            pool.release(slot, used, uses, held, now, step.effects);
        });
    }
}

impl<M: Manager> Drop for Held<'_, M> {
    #[inline]
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        match self.pool {
            Some(driver) => Self::give_back(driver, entry),
            None => Self::give_back_owned(entry),
        }
    }
}

impl<M: Manager> Held<'_, M> {
    #[inline(never)]
    fn give_back_owned(mut entry: Box<MemberEntry<M>>) {
        // Else the pool would keep itself alive.
        let owner = entry.owner.take();
        Self::give_back(driver_of(None, owner.as_ref()), entry);
    }

    /// Lay a member in the idle cache, or else bring it to the machine. A call, so
    /// that little is left of a guard where it is dropped.
    #[inline(never)]
    fn give_back(driver: &PoolDriver<M>, mut entry: Box<MemberEntry<M>>) {
        let shell = driver.shell();
        let place = shell.slot(entry.slot);
        let flags = place.flags();
        let used = Self::judge(shell, flags, &mut entry.member);
        let home = shell.cache.home();
        if used != Use::Fine || entry.cell != NO_CELL || home.is_closed() {
            return Self::end_slowly(driver, entry, used);
        }
        let (now, until) = (driver.clock().recent(), place.until());
        if until <= now.after(BEHIND) || shell.rules.is_used_up(place.uses()) {
            return Self::end_slowly(driver, entry, used);
        }
        if flags != 0 {
            settle(driver, place, flags);
        }
        let since = place.since();
        place.rest(now);
        if let Err(entry) = home.put(entry) {
            place.hold_again(since);
            Self::end_slowly(driver, entry, used);
        } else if place.until() < until {
            // Its life was cut since we looked.
            call_back(driver);
        }
    }
}

impl<M: Manager> Deref for Held<'_, M> {
    type Target = M::Member;

    #[inline]
    fn deref(&self) -> &M::Member {
        &self.entry.as_deref().expect(ALWAYS).member
    }
}

impl<M: Manager> DerefMut for Held<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Member {
        &mut self.entry.as_deref_mut().expect(ALWAYS).member
    }
}

impl<M: Manager<Member: fmt::Debug>> fmt::Debug for Held<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("id", &self.place().id())
            .field("member", &**self)
            .finish_non_exhaustive()
    }
}

/// The pool of a member that is held.
#[inline]
fn driver_of<'a, M: Manager>(
    borrowed: Option<&'a Arc<PoolDriver<M>>>,
    owned: Option<&'a Arc<PoolDriver<M>>>,
) -> &'a Arc<PoolDriver<M>> {
    borrowed
        .or(owned)
        .expect("a member borrows its pool or owns it")
}

/// Why a held member is there.
const ALWAYS: &str = "a member is there until the end";

/// A manager that panics on a member finds it broken.
#[inline]
pub(super) fn is_broken<M: Manager>(manager: &M, member: &mut M::Member) -> bool {
    catch_unwind(AssertUnwindSafe(|| manager.is_broken(member))).unwrap_or(true)
}

/// Something lies in the idle cache that must go.
#[cold]
fn call_back<M: Manager>(driver: &PoolDriver<M>) {
    driver.step(|step| step.machine.advance(step.now, step.effects));
}

/// See to what most holders leave none of.
#[cold]
fn settle<M: Manager>(driver: &PoolDriver<M>, place: &MemberSlot<MemberEntry<M>>, flags: u32) {
    place.clear_side();
    if flags & flag::MEASURED != 0 {
        let now = driver.clock().now();
        let since = place.since().min(now);
        lock(&driver.shell().holds).record(now.since(since));
    }
}
