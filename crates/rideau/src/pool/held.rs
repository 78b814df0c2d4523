//! A member in somebody's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use rideau_core::pool::{Fate, Retired, Use};
use rideau_core::{Lead, Machine};

use super::manager::{About, Manager};
use super::slot::Slot;
use super::stock::{NO_CELL, PoolDriver, Stock};
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
/// Nobody gives a member back twice:
///
/// ```compile_fail,E0382
/// # fn twice<M: rideau::Manager>(held: rideau::Held<'_, M>) {
/// rideau::Held::release(held);
/// rideau::Held::release(held);
/// # }
/// ```
#[must_use = "dropping a member gives it back at once"]
pub struct Held<'a, M: Manager> {
    driver: Keep<'a, M>,
    /// There until the end.
    member: Option<Box<M::Member>>,
    slot: u32,
    /// The cell in which this was waited for, to be freed.
    cell: u32,
    /// What becomes of the member if nothing else is said.
    fate: Fate,
    /// The thread panicked before: that says nothing of this member.
    panicking: bool,
    /// Its time is measured though nobody had to ask for it.
    measured: bool,
    waited: Duration,
    lead: Lead,
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

/// No recent instant is further behind. A member whose life ends so soon goes
/// to the machine: its timer may have been there before us.
const BEHIND: Duration = Duration::from_millis(20);

/// How a member came into somebody's hands.
pub(super) struct Origin {
    pub(super) slot: u32,
    pub(super) cell: u32,
    pub(super) measured: bool,
    pub(super) waited: Duration,
    pub(super) lead: Lead,
}

impl<'a, M: Manager> Held<'a, M> {
    #[inline]
    pub(super) fn new(driver: Keep<'a, M>, member: Box<M::Member>, origin: &Origin) -> Self {
        Self {
            driver,
            member: Some(member),
            slot: origin.slot,
            cell: origin.cell,
            fate: Fate::Reuse,
            panicking: thread::panicking(),
            measured: origin.measured,
            waited: origin.waited,
            lead: origin.lead,
        }
    }

    /// Give the member back for the next taker. The same as dropping it.
    pub fn release(held: Self) {
        drop(held);
    }

    /// The member failed: replace it.
    pub fn fail(mut held: Self) {
        held.fate = Fate::Replace;
    }

    /// Keep the member for good. Another is started in its place when it is
    /// needed.
    pub fn detach(mut held: Self) -> M::Member {
        let member = held.member.take().expect("a member is there until the end");
        let place = held.place();
        place.rest(held.driver.clock().recent());
        place.clear_side();
        place.forget(place.id());
        let (slot, cell) = (held.slot, held.cell);
        held.driver.step(|step| {
            step.machine.free(cell);
            let pool = &mut step.machine.pool;
            pool.detach(slot, step.now, step.effects);
        });
        *member
    }

    /// What is known of the member.
    pub fn about(held: &Self) -> About {
        let now = held.driver.clock().now();
        let idle = held.lead.reversed().waited();
        held.place().about(idle, now)
    }

    /// How long the take took.
    pub fn waited(held: &Self) -> Duration {
        held.waited
    }

    /// How much earlier the taker came than the member: negative if the member
    /// had been idle for so long.
    pub fn lead(held: &Self) -> Lead {
        held.lead
    }

    /// Say who holds the member, for all who wonder.
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
        // Whoever revokes it takes the wakers after it has said so.
        if place.is_revoked() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// What becomes of the member at its end.
    pub(super) fn set_fate(&mut self, fate: Fate) {
        self.fate = fate;
    }

    fn place(&self) -> &Slot<M::Member> {
        self.driver.shell().slot(self.slot)
    }

    /// How the use of the member went.
    #[inline]
    fn judge(&self, stock: &Stock<M>, member: &mut M::Member) -> Use {
        if thread::panicking() && !self.panicking {
            return Use::Over(Retired::Failed);
        }
        match self.fate {
            Fate::Replace => Use::Over(Retired::Failed),
            _ if is_broken(&*stock.manager, member) => Use::Over(Retired::Broken),
            Fate::Reuse => Use::Fine,
            Fate::Check => Use::Doubtful,
        }
    }

    /// Ask the machine what becomes of the member.
    #[cold]
    fn end_slowly(&mut self, used: Use) {
        let (slot, cell) = (self.slot, self.cell);
        let place = self.place();
        let uses = place.uses();
        let since = place.held_since();
        place.clear_side();
        self.driver.step(|step| {
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
        let Some(mut member) = self.member.take() else {
            return;
        };
        let stock = self.driver.shell();
        let place = stock.slot(self.slot);
        let used = self.judge(stock, &mut member);
        place.member.put(member);
        let is_plain = used == Use::Fine && self.cell == NO_CELL && !place.is_sided();
        if is_plain && !stock.shelf.is_closed() {
            let (now, until) = (self.driver.clock().recent(), place.until());
            if now + BEHIND < until && !stock.rules.is_used_up(place.uses()) {
                if self.measured {
                    measure(stock, place, self.driver.clock().now());
                }
                let held = place.held_since();
                place.rest(now);
                if stock.shelf.put(&stock.slots, self.slot) {
                    // Its life may have been cut since we looked.
                    if place.until() < until {
                        call_back(&self.driver);
                    }
                    return;
                }
                if let Some(since) = held {
                    place.hold_again(since);
                }
            }
        }
        self.end_slowly(used);
    }
}

impl<M: Manager> Deref for Held<'_, M> {
    type Target = M::Member;

    #[inline]
    fn deref(&self) -> &M::Member {
        let member = self.member.as_deref();
        member.expect("a member is there until the end")
    }
}

impl<M: Manager> DerefMut for Held<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Member {
        let member = self.member.as_deref_mut();
        member.expect("a member is there until the end")
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

/// A manager that panics on a member finds it broken.
#[inline]
pub(super) fn is_broken<M: Manager>(manager: &M, member: &mut M::Member) -> bool {
    catch_unwind(AssertUnwindSafe(|| manager.is_broken(member))).unwrap_or(true)
}

/// Something lies on the shelf that must go.
#[cold]
fn call_back<M: Manager>(driver: &Arc<PoolDriver<M>>) {
    driver.step(|step| step.machine.advance(step.now, step.effects));
}

#[cold]
fn measure<M: Manager>(stock: &Stock<M>, place: &Slot<M::Member>, now: rideau_core::Instant) {
    let since = place.since().min(now);
    lock(&stock.holds).record(now.since(since));
}
