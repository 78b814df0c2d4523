//! Whether an app needs one more process, and whether there is room for it.

use std::time::Duration;

use crate::ledger::Reply;
use crate::time::{Instant, nanos};

use super::Apps;
use super::app::{Room, Want};
use super::effect::{Effect, Leaving};
use super::stats::Deploy;
use super::timers::Timer;

/// The result of an attempt to start a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tried {
    Started,
    /// There is no room for this one.
    NoRoom,
    /// There is none for any app as yet.
    Full,
}

/// Asks that wait over this many times what a start takes get a second one.
const FAR_BEHIND: u64 = 4;
/// Plans are not looked at again sooner than this.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<R: Reply> Apps<R> {
    /// Why an app needs one more process, if it does.
    pub(super) fn want(&self, at: u32, now: Instant) -> Option<Want> {
        let app = self.app(at);
        if app.options.servers.is_some() {
            return None;
        }
        if self.is_ending(at) || !app.failures.may_start(now) || app.is_occupied() {
            return None;
        }
        let (counts, waiting) = (app.counts, app.waiting.len());
        if app.failures.is_failing() && counts.starting > 0 {
            return None;
        }
        let has_room = counts.taken() < app.max(self.limits.max);
        let comes = counts.ready + counts.starting;
        if waiting > 0 && comes == 0 {
            return has_room.then_some(Want::First);
        }
        // What is started now would run the new code.
        if matches!(app.deploy, Deploy::Failed | Deploy::Trial) && counts.ready > 0 {
            return None;
        }
        if counts.starting == 0 && self.next_outgoing(at).is_some() {
            return Some(Want::Replacement);
        }
        if !has_room {
            return None;
        }
        if waiting > 0 && self.is_behind(at, now) {
            return Some(Want::More);
        }
        (counts.starting == 0 && comes < app.options.min).then_some(Want::Min)
    }

    /// The asks that wait would gain by one more process.
    fn is_behind(&self, at: u32, now: Instant) -> bool {
        let app = self.app(at);
        let starting = app.counts.starting;
        if app.options.one_each {
            return starting < app.waiting.len().min(2);
        }
        if app.waiting.len() <= starting * app.limit_of(app.generation) {
            // Those that start have a place for every ask.
            return false;
        }
        let (wait, start) = (app.expected_wait(now), app.pace.start_nanos());
        match starting {
            0 => wait > start || self.slow_until(at).is_some_and(|until| until <= now),
            1 => wait > start.saturating_mul(FAR_BEHIND),
            _ => false,
        }
    }

    /// When waits will have been over the target for too long.
    fn slow_until(&self, at: u32) -> Option<Instant> {
        let app = self.app(at);
        Some(app.pace.slow? + app.options.target_wait?)
    }

    /// When an app has to be looked at again though nothing happens.
    pub(super) fn plan_due(&self, at: u32, now: Instant) -> Instant {
        let Some(Some(app)) = self.apps.get(at as usize) else {
            return Instant::NEVER;
        };
        let counts = app.counts;
        let may_grow = app.options.servers.is_none()
            && app.room == Room::Enough
            && app.waiting.len() > 0
            && counts.starting == 0
            && counts.taken() < app.max(self.limits.max)
            && !self.is_ending(at)
            && !app.is_occupied()
            && app.failures.may_start(now)
            && !matches!(app.deploy, Deploy::Failed | Deploy::Trial);
        if !may_grow {
            return Instant::NEVER;
        }
        let slow = self.slow_until(at).unwrap_or(Instant::NEVER);
        let target = match (app.options.target_wait, app.pace.slow) {
            // Waits may come to be over the target without anything happening.
            (Some(target), None) => app.stall_due(nanos(target)),
            _ => Instant::NEVER,
        };
        let stall = app.stall_due(app.pace.start_nanos());
        let due = stall.min(slow).min(target);
        match due {
            Instant::NEVER => due,
            _ => due.max(now + LOOK_AGAIN),
        }
    }

    /// An app that needs one more process stands in the queue for room.
    pub(super) fn consider(&mut self, at: u32, now: Instant) {
        let app = self.app_mut(at);
        if let Some(target) = app.options.target_wait {
            let is_slow = app.expected_wait(now) > nanos(target);
            app.pace.slow = app.pace.slow.or(Some(now)).filter(|_| is_slow);
        }
        let wanted = self.want(at, now);
        let app = self.app_mut(at);
        match (app.room, wanted) {
            (Room::Wanted { .. }, None) => self.leave_room(at),
            (Room::Enough, Some(want)) => {
                app.room = Room::Wanted { want, since: now };
                self.room.push_back(at);
                self.is_roomier = true;
            }
            // An app that wants it for another reason may have what it could not before.
            (Room::Wanted { want: before, .. }, Some(want)) if before != want => {
                app.room = Room::Wanted { want, since: now };
                app.due.starve = Instant::NEVER;
                self.is_roomier = true;
            }
            (Room::Wanted { .. }, Some(_)) | (Room::Enough, None) => (),
        }
    }

    /// Start processes for the apps in the queue, as far as there is room: the
    /// app that came first is first, but no app waits for one that could not use
    /// the room; apps that only have too few come last.
    pub(super) fn fill(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        for is_last in [false, true] {
            let mut index = 0;
            while let Some(at) = self.room.get(index).copied() {
                let Some(want) = self.want(at, now) else {
                    self.leave_room(at);
                    continue;
                };
                if (want == Want::Min) != is_last {
                    index += 1;
                    continue;
                }
                match self.try_start(at, want, now, effects) {
                    Tried::Started => {
                        self.leave_room(at);
                        self.consider(at, now);
                    }
                    Tried::NoRoom => index += 1,
                    Tried::Full => return self.arm_starve(),
                }
            }
            if !is_last && self.room.iter().any(|at| !self.wants_min(*at, now)) {
                break;
            }
        }
        self.arm_starve();
    }

    fn wants_min(&self, at: u32, now: Instant) -> bool {
        self.want(at, now) == Some(Want::Min)
    }

    /// Start one process, if need be in the room of another that goes for it.
    pub(super) fn try_start(
        &mut self,
        at: u32,
        want: Want,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Tried {
        if self.counts.starting >= self.limits.starts_max {
            return Tried::Full;
        }
        let is_full = self.is_full();
        // Nothing is on its way out, so nothing but us makes room.
        let is_stuck = self.counts.ending == 0 && self.counts.replacing == 0;
        let replaces = want == Want::Replacement;
        if is_full && !is_stuck {
            return Tried::Full;
        }
        if replaces && is_full {
            if let Some((slot, why)) = self.next_outgoing(at) {
                self.leave(slot, why, now, effects);
            }
            return Tried::Full;
        }
        if !replaces && self.counts.taken() >= self.limits.max {
            let Some(slot) = self.victim(at, want, now) else {
                return Tried::NoRoom;
            };
            self.leave(slot, Leaving::Evicted, now, effects);
        }
        if self.is_full() {
            return Tried::Full;
        }
        self.start(at, replaces, now, effects);
        Tried::Started
    }

    /// The limit of processes is reached.
    pub(super) fn is_full(&self) -> bool {
        self.counts.live() >= self.limits.max + self.limits.headroom
    }

    /// The process that goes when another of its app is ready: one that was
    /// told so, else the newest of those with old code.
    pub(super) fn next_outgoing(&self, at: u32) -> Option<(u32, Leaving)> {
        let app = self.app(at);
        let is_rolling = app.deploy == Deploy::Rolling;
        if app.outgoing == 0 && !is_rolling {
            return None;
        }
        let ready = || {
            let slots = app.slots.iter().rev();
            let processes = slots.map(|slot| (*slot, self.processes.at(*slot)));
            processes.filter(|(_, process)| process.is_ready())
        };
        let marked = ready().find_map(|(slot, process)| Some((slot, process.outgoing?)));
        let is_old = |generation: u64| is_rolling && generation < app.generation;
        marked.or_else(|| {
            let (slot, _) = ready().find(|(_, process)| is_old(process.generation))?;
            Some((slot, Leaving::Restarted))
        })
    }

    /// Have the apps in the queue seen to when they have waited too long.
    fn arm_starve(&mut self) {
        for index in 0..self.room.len() {
            let at = self.room[index];
            let limit = self.starve_limit(at);
            let app = self.app_mut(at);
            let Room::Wanted { since, .. } = app.room else {
                continue;
            };
            if app.due.starve == Instant::NEVER {
                app.due.starve = since + limit;
                let due = app.due.starve;
                self.timers.push(due, Timer::Starve(at));
            }
        }
    }

    pub(super) fn starve_limit(&self, at: u32) -> Duration {
        let start = self.app(at).pace.start();
        self.limits.starve_min.max(start.saturating_mul(2))
    }
}
