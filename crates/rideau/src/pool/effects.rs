//! Carries out what a pool's machine decides.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rideau_core::Instant;
use rideau_core::pool::{self as core, Grant, MemberId};

use super::manager::Manager;
use super::member_tasks;
use super::shell::{PoolShell, PoolTables, TakeReply};
use crate::after::After;
use crate::driver::Shell;
use crate::sync::Ordering;

impl<M: Manager> Shell<PoolTables> for PoolShell<M> {
    #[inline]
    fn perform(&self, effect: core::Effect<TakeReply>, after: &mut After) {
        match effect {
            core::Effect::Grant { reply, grant } => self.grant(reply, &grant, after),
            core::Effect::Shed { reply, refusal } => {
                self.cells.get(reply.cell).refuse(&refusal);
                after.wake(reply.waker);
            }
            core::Effect::Forget(_) => unreachable!("who leaves says so"),
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
    fn begin(&self, desk: &mut PoolTables) {
        if self.cache.is_closed() {
            return;
        }
        let moved = &mut desk.moved;
        self.cache.close(|entry| {
            let slot = entry.slot;
            moved.push(slot);
            self.slot(slot).member.put(entry);
        });
        let takes = self.cache.takes();
        if takes != desk.takes {
            desk.takes = takes;
            desk.pool.taken_unasked();
        }
        // Each shard is in order, but not all of them together; what comes out of
        // order has to look for its place among all others.
        desk.moved.sort_by_key(|slot| self.slots.get(*slot).since());
        for slot in desk.moved.drain(..) {
            desk.pool.recall(slot, self.slots.get(slot).since());
        }
    }

    #[inline]
    fn end(&self, desk: &mut PoolTables) {
        if desk.pool.may_lend() {
            desk.pool.lend(&mut desk.moved);
            self.cache.open(desk.moved.len(), |at| {
                let member = self.slot(desk.moved[at]).member.take();
                member.expect("an idle member lies in its place")
            });
            desk.moved.clear();
        }
    }
}

impl<M: Manager> PoolShell<M> {
    /// A start begins, in a slot that may be new.
    fn start(&self, slot: u32, id: MemberId, after: &mut After) {
        self.slots.grow_to(slot + 1);
        let len = self.slots_len.load(Ordering::Relaxed).max(slot + 1);
        self.slots_len.store(len, Ordering::Release);
        let duty = member_tasks::Duty::new(self.me(), slot, id, true);
        let manager = Arc::clone(&self.manager);
        self.tasks()
            .post(after, move || member_tasks::start(duty, manager));
    }

    fn check(&self, slot: u32, id: MemberId, after: &mut After) {
        let Some(member) = self.slot(slot).member.take() else {
            unreachable!("an idle member lies in its place");
        };
        let duty = member_tasks::Duty::new(self.me(), slot, id, false);
        let manager = Arc::clone(&self.manager);
        self.tasks()
            .post(after, move || member_tasks::check(duty, manager, member));
    }

    fn stop(&self, slot: u32, id: MemberId, why: core::Retired, after: &mut After) {
        let Some(member) = self.slot(slot).member.take() else {
            unreachable!("a member that is stopped lies in its place");
        };
        self.slot(slot).mark(Instant::START);
        let duty = member_tasks::Duty::new(self.me(), slot, id, false);
        let manager = Arc::clone(&self.manager);
        self.tasks().post(after, move || {
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
