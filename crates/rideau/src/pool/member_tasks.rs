//! The tasks of members: start, check, stop.
//!
//! Each runs in a task of its own, so that no take waits for a manager's code.
//! However such a task ends, by its end, a panic, or the end of the runtime,
//! the machine learns that the slot is free; by then the member is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use rideau_core::pool::{MemberId, Retired};

use super::caught::caught;
use super::manager::{About, Manager};
use super::refused::Fault;
use super::shell::{MemberEntry, NO_CELL, PoolDriver};
use super::slot::Abort;
use super::start_fault::StartFault;
use crate::sync::lock;

/// Sees to one slot until its end.
pub(super) struct Duty<M: Manager> {
    driver: Weak<PoolDriver<M>>,
    slot: u32,
    id: MemberId,
    /// It is a start that did not come to any end yet.
    starts: bool,
    /// Why it failed.
    fault: Option<Fault>,
    done: bool,
}

impl<M: Manager> Duty<M> {
    pub(super) fn new(driver: Weak<PoolDriver<M>>, slot: u32, id: MemberId, starts: bool) -> Self {
        Self {
            driver,
            slot,
            id,
            starts,
            fault: None,
            done: false,
        }
    }

    /// Run a task for the slot. By the time we know its handle it may be done, or
    /// not be wanted any more, or, if it `starts` a member, have become its
    /// watch.
    fn run(driver: &Arc<PoolDriver<M>>, slot: u32, id: MemberId, starts: bool, task: impl Task) {
        let shell = driver.shell();
        let side = || lock(&shell.slot(slot).side);
        let job = {
            let mut side = side();
            side.job += 1;
            side.serves = id;
            side.job
        };
        let Some(handle) = shell.tasks().spawn(task) else {
            return;
        };
        let mut side = side();
        if side.abandoned >= id || (starts && side.ended >= id) {
            // Whatever it has begun is dropped with it, and may ask for us.
            drop(side);
            handle.abort();
        } else if starts && side.delivered == id {
            side.watch = Some(handle);
        } else if side.job == job {
            side.task = Some(handle);
        }
    }

    /// The member is there. False if it is not wanted any more.
    fn deliver(
        &mut self,
        member: M::Member,
        abort: Option<Abort>,
    ) -> Result<(), Option<Box<MemberEntry<M>>>> {
        let slot = self.slot;
        let cell = NO_CELL;
        let entry = Box::new(MemberEntry {
            slot,
            cell,
            owner: None,
            member,
        });
        let Some(driver) = self.driver.upgrade() else {
            return Err(Some(entry));
        };
        let (shell, slot, id) = (driver.shell(), self.slot, self.id);
        let place = shell.slot(slot);
        {
            let mut side = lock(&place.side);
            side.watch = side.task.take();
            side.abort = abort;
            side.delivered = id;
            side.note = None;
        }
        let refused = driver.step(|step| {
            place.member.put(entry);
            let birth = step.machine.pool.started(slot, id, step.now, step.effects);
            shell.note_circuit(step.machine.pool.circuit(step.now));
            match birth {
                Some(birth) => {
                    shell.set_fault(None);
                    place.bear(&birth);
                    None
                }
                None => Some(place.member.take()),
            }
        });
        shell.news.notify_waiters();
        match refused {
            None => {
                self.done = true;
                Ok(())
            }
            Some(member) => Err(member),
        }
    }

    /// A start came to no good end.
    fn fail(&mut self, fault: Fault) {
        self.starts = false;
        let driver = self.driver.upgrade();
        let pool = driver
            .as_ref()
            .and_then(|driver| driver.shell().name.as_deref());
        tracing::warn!(pool, error = %fault, "a member could not be started");
        self.fault = Some(fault);
    }

    /// Why a start was dropped before its end.
    fn unended(&self, driver: &PoolDriver<M>) -> StartFault {
        let side = lock(&driver.shell().slot(self.slot).side);
        if side.abandoned < self.id {
            return StartFault::RuntimeEnded;
        }
        drop(side);
        let limit = driver.look(|tables, _| tables.pool.options().start_timeout);
        StartFault::TimedOut(limit)
    }

    /// Give a checked member back. It is ended if it is not wanted any more.
    fn return_checked(&mut self, member: Box<MemberEntry<M>>, is_good: bool) {
        let Some(driver) = self.driver.upgrade() else {
            return drop(member);
        };
        let (place, slot, id) = (driver.shell().slot(self.slot), self.slot, self.id);
        let refused = driver.step(|step| {
            place.member.put(member);
            // What was just checked need not be checked again.
            place.rest(step.now);
            let pool = &mut step.machine.pool;
            if pool.checked(slot, id, is_good, step.now, step.effects) {
                None
            } else {
                place.member.take()
            }
        });
        self.done = refused.is_none();
        drop(refused);
    }
}

impl<M: Manager> Drop for Duty<M> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let driver = self.driver.upgrade();
        // The close of a pool gives up its starts, and that is no failure.
        let is_wanted =
            |driver: &Arc<PoolDriver<M>>| driver.look(|tables, _| !tables.pool.is_closing());
        if let Some(driver) = driver.as_ref().filter(|_| self.starts)
            && is_wanted(driver)
        {
            let fault = self.unended(driver);
            self.fail(Arc::new(fault));
        }
        if let Some(driver) = driver {
            let (slot, id) = (self.slot, self.id);
            driver.shell().slot(slot).forget(id);
            let fault = self.fault.take();
            driver.step(|step| {
                // With the failure itself, or a start that goes well just then
                // would leave the one without the other.
                if fault.is_some() {
                    driver.shell().set_fault(fault);
                }
                let pool = &mut step.machine.pool;
                pool.gone(slot, id, step.now, step.effects);
                driver.shell().note_circuit(pool.circuit(step.now));
            });
            driver.shell().news.notify_waiters();
        }
    }
}

/// A member and the duty that sees to it. Also if the task that has them is
/// never polled, the member is dropped first and the slot free then.
struct Charge<M: Manager> {
    member: Box<MemberEntry<M>>,
    duty: Duty<M>,
}

/// The bounds of a task.
trait Task: Future<Output = ()> + Send + 'static {}

impl<F: Future<Output = ()> + Send + 'static> Task for F {}

/// Start a member, and then watch for its loss.
pub(super) fn start<M: Manager>(duty: Duty<M>, manager: Arc<M>) {
    let Some(driver) = duty.driver.upgrade() else {
        return;
    };
    let (slot, id) = (duty.slot, duty.id);
    Duty::run(&driver, slot, id, true, async move {
        // Dropped after all else, so that what was begun is gone by then.
        let mut duty = duty;
        let member = match caught(async { manager.start().await }).await {
            Ok(Ok(member)) => member,
            Ok(Err(error)) => return duty.fail(Arc::from(error.into())),
            Err(panic) => return duty.fail(Arc::new(StartFault::of_panic(&*panic))),
        };
        let watch = || (manager.lost(&member), manager.abort(&member));
        let (lost, abort) = match catch_unwind(AssertUnwindSafe(watch)) {
            Ok(watched) => watched,
            Err(panic) => return duty.fail(Arc::new(StartFault::of_panic(&*panic))),
        };
        duty.starts = false;
        if let Err(member) = duty.deliver(member, abort) {
            if let Some(member) = member {
                manager.stop(member.member, Retired::Surplus).await;
            }
            return;
        }
        let driver = duty.driver.clone();
        drop((duty, manager));
        // A watch that panics tells no loss any more: the member is of no use.
        let _ = caught(lost).await;
        if let Some(driver) = driver.upgrade() {
            driver.step(|step| {
                let pool = &mut step.machine.pool;
                pool.lost(slot, id, step.now, step.effects);
            });
        }
    });
}

/// Find out whether an idle member is still good.
pub(super) fn check<M: Manager>(duty: Duty<M>, manager: Arc<M>, member: Box<MemberEntry<M>>) {
    let Some(driver) = duty.driver.upgrade() else {
        return drop(member);
    };
    let (slot, id) = (duty.slot, duty.id);
    let now = driver.clock().now();
    let place = driver.shell().slot(slot);
    let idle = place.since().min(now);
    let about = place.about(now.since(idle), now);
    let charge = Charge { member, duty };
    Duty::run(&driver, slot, id, false, async move {
        let Charge { member, duty } = charge;
        let (mut duty, mut member) = (duty, member);
        let is_good = is_good(&duty, &*manager, &mut member.member, &about).await;
        duty.return_checked(member, is_good);
    });
}

async fn is_good<M: Manager>(
    duty: &Duty<M>,
    manager: &M,
    member: &mut M::Member,
    about: &About,
) -> bool {
    if manager.is_broken(member) {
        return false;
    }
    match manager.check(member, about).await {
        Ok(()) => true,
        Err(error) => {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            let driver = duty.driver.upgrade();
            let pool = driver
                .as_ref()
                .and_then(|driver| driver.shell().name.as_deref());
            tracing::info!(pool, error = %error, member = %about.id, "a member failed its check");
            false
        }
    }
}

/// Stop a member.
pub(super) fn stop<M: Manager>(
    duty: Duty<M>,
    manager: Arc<M>,
    member: Box<MemberEntry<M>>,
    why: Retired,
) {
    let Some(driver) = duty.driver.upgrade() else {
        return drop(member);
    };
    let (slot, id) = (duty.slot, duty.id);
    driver.shell().slot(slot).forget(id);
    let charge = Charge { member, duty };
    Duty::run(&driver, slot, id, false, async move {
        let Charge { member, duty } = charge;
        let _duty = duty;
        manager.stop(member.member, why).await;
    });
}
