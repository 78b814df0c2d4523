//! Which process goes when there is too little room.

use std::time::Duration;

use crate::ledger::Reply;
use crate::time::Instant;

use super::Apps;
use super::app::{Room, Want};
use super::effect::{AppId, Effect, Leaving, Note};
use super::process::{Doing, Process};
use super::timers::Timer;

/// A process whose app has another is worth so little of what the only one is.
const SURPLUS: f64 = 1.0 / 50.0;
/// An only process that was idle for longer may be taken by one that grows,
const COLD: Duration = Duration::from_secs(60);
/// if it is worth this many times less than its own.
const LESS: f64 = 10.0;
/// An app that starves and cannot be helped is not looked at again sooner than this.
const STARVE_AGAIN: Duration = Duration::from_secs(1);

impl<R: Reply> Apps<R> {
    /// The idle process of another app that is worth least, if this one may
    /// have it.
    pub(super) fn victim(&self, at: u32, want: Want, now: Instant) -> Option<u32> {
        if self.app(at).failures.is_failing() {
            return None;
        }
        let own = self.value(at, now);
        let may_take = |process: &Process| {
            let app = self.app(process.app);
            let is_cold = || process.used + COLD < now && self.value(process.app, now) * LESS < own;
            want == Want::First || app.counts.ready > 1 || is_cold()
        };
        let others = self.processes.all().filter(|(slot, process)| {
            let app = self.app(process.app);
            let is_spare = app.counts.ready > app.options.min && !self.is_replaced(*slot);
            process.server.is_none() && process.app != at && process.is_idle() && is_spare
        });
        let takeable = others.filter(|(_, process)| may_take(process));
        self.least_worth(takeable, now)
    }

    /// An app has waited too long for room: it gets that of the app with most.
    pub(super) fn starve(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let due = now + self.starve_limit(at).max(STARVE_AGAIN);
        let app = self.app_mut(at);
        app.due.starve = due;
        self.timers.push(due, Timer::Starve(at));
        self.is_roomier = true;
        self.touched.push(at);
        let Some(want @ (Want::First | Want::More)) = self.want(at, now) else {
            return;
        };
        let is_ours = self.counts.taken() >= self.limits.max
            && self.counts.starting < self.limits.starts_max
            && !self.app(at).failures.is_failing()
            && self.victim(at, want, now).is_none();
        if !is_ours {
            return;
        }
        if let Some(slot) = self.seized(at, now) {
            let (app, from) = (AppId(at), self.processes.at(slot).id);
            effects.push(Effect::Note(Note::Starved { app, from }));
            self.leave(slot, Leaving::Starved, now, effects);
            self.give_way(at);
        }
    }

    /// The app that starved is the first in the queue.
    fn give_way(&mut self, at: u32) {
        if let Some(index) = self.room.iter().position(|waits| *waits == at) {
            self.room.remove(index);
            self.room.push_front(at);
        }
    }

    /// The process with fewest sessions of the app with most processes, but of
    /// none that would then have fewer than the one that starves.
    fn seized(&self, at: u32, now: Instant) -> Option<u32> {
        let least = match self.app(at).counts.used() {
            0 => 1,
            own => own + 2,
        };
        let others = self.all().filter(|(other, app)| {
            let counts = app.counts;
            let is_ours = *other != at && app.options.servers.is_none();
            is_ours && counts.ready > app.options.min && counts.used() >= least
        });
        let (other, app) = others.max_by(|(a, first), (b, second)| {
            let sizes = first.counts.used().cmp(&second.counts.used());
            sizes.then_with(|| self.value(*b, now).total_cmp(&self.value(*a, now)))
        })?;
        debug_assert_ne!(other, at);
        let slots = app.slots.iter().copied();
        let takeable =
            slots.filter(|slot| self.processes.at(*slot).is_ready() && !self.is_replaced(*slot));
        takeable.min_by_key(|slot| {
            let process = self.processes.at(*slot);
            (process.sessions + process.streams, process.id)
        })
    }

    /// Another starts in its stead already, and will take its room.
    fn is_replaced(&self, slot: u32) -> bool {
        let at = self.processes.at(slot).app;
        let outgoing = || self.next_outgoing(at).is_some_and(|(next, _)| next == slot);
        self.app(at).counts.replacing > 0 && outgoing()
    }

    /// Let go of what is over the limits: idle ones that are worth least, then
    /// starts, then those with fewest sessions.
    pub(super) fn shrink(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while self.counts.taken() > self.limits.max {
            let Some(slot) = self.superfluous(None, now) else {
                break;
            };
            self.leave(slot, Leaving::Surplus, now, effects);
        }
        for at in 0..u32::try_from(self.apps.len()).expect("apps are numbered by 32 bits") {
            self.shrink_app(at, now, effects);
        }
    }

    /// The same for one app and its own limit.
    pub(super) fn shrink_app(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        while let Some(Some(app)) = self.apps.get(at as usize)
            && app.options.servers.is_none()
            && app.counts.taken() > app.max(self.limits.max)
            && let Some(slot) = self.superfluous(Some(at), now)
        {
            self.leave(slot, Leaving::Surplus, now, effects);
        }
    }

    fn superfluous(&self, at: Option<u32>, now: Instant) -> Option<u32> {
        let all = || {
            let all = self.processes.all();
            all.filter(|(_, process)| {
                process.server.is_none() && at.is_none_or(|at| process.app == at)
            })
        };
        let idle = all().filter(|(_, process)| process.is_idle());
        let starting = Doing::Starting { replaces: false };
        let newest_start = || {
            let starting = all().filter(|(_, process)| process.doing == starting);
            starting.max_by_key(|(_, process)| process.id)
        };
        let least_busy = || {
            let there = all().filter(|(_, process)| process.is_there());
            there.min_by_key(|(_, process)| {
                let is_only = self.app(process.app).counts.ready == 1;
                (is_only, process.sessions + process.streams, process.id)
            })
        };
        self.least_worth(idle, now)
            .or_else(|| newest_start().map(|(slot, _)| slot))
            .or_else(|| least_busy().map(|(slot, _)| slot))
    }

    /// The process that is worth least, of equals the one that was used last
    /// before the others.
    fn least_worth<'a>(
        &self,
        processes: impl Iterator<Item = (u32, &'a Process)>,
        now: Instant,
    ) -> Option<u32> {
        let worth = |process: &Process| {
            let has_other = self.app(process.app).counts.ready > 1;
            self.value(process.app, now) * if has_other { SURPLUS } else { 1.0 }
        };
        let least = processes.min_by(|(_, a), (_, b)| {
            let worths = worth(a).total_cmp(&worth(b));
            worths.then_with(|| (a.used, a.id).cmp(&(b.used, b.id)))
        });
        least.map(|(slot, _)| slot)
    }

    fn value(&self, at: u32, now: Instant) -> f64 {
        self.worth.value(at, self.app(at).pace.start(), now)
    }

    /// Since when an app waits for room, if it does.
    pub(super) fn wants_room(&self, at: u32, now: Instant) -> Option<Duration> {
        match self.app(at).room {
            Room::Enough => None,
            Room::Wanted { since, .. } => Some(now.since(since)),
        }
    }
}
