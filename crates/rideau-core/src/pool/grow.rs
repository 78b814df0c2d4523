//! When a pool starts members, and when it lets them go by itself.

use crate::ledger::Reply;
use crate::refusal::Reason;
use crate::time::{Instant, Lead, nanos};

use super::effect::{Effect, Retired};
use super::members::{Counts, Doing};
use super::{Mode, Pool};

impl<R: Reply> Pool<R> {
    /// Start the members that are wanted, within the limits.
    #[inline]
    pub(super) fn grow(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.retry = None;
        match self.mode {
            Mode::Running | Mode::Suspended => (),
            Mode::Closing { .. } | Mode::Closed => return,
        }
        let counts = self.members.counts();
        if self.wanted(counts, now) == 0 {
            return;
        }
        if counts.size() >= self.options.max {
            // What was wanted ahead of need is not wanted later.
            self.ahead = 0;
            return;
        }
        self.start_wanted(now, effects);
        if self.is_hopeless() {
            self.lines.refuse_all(Reason::Starting, now);
        }
    }

    /// How many more members there should be.
    #[inline]
    pub(super) fn wanted(&self, counts: Counts, now: Instant) -> usize {
        let kept = self.options.init.saturating_sub(counts.live());
        let coming = counts.idle + counts.starting + counts.checking;
        let needed = (self.lines.len() + self.options.idle_min).saturating_sub(coming);
        let valve = self.valve.as_ref();
        let regulated = valve.is_some_and(|valve| valve.wants_more(now));
        kept.max(needed).max(self.ahead).max(usize::from(regulated))
    }

    /// Tell the valve how much earlier a member came than its taker.
    pub(super) fn feed_valve(&mut self, lead: Lead, now: Instant) {
        if let Some(valve) = &mut self.valve {
            valve.update(lead, now);
        }
    }

    /// How many starts may be under way.
    pub(super) fn starts_max(&self) -> usize {
        match self.failures.is_open(self.options.backoff) {
            true => 1,
            false => self.options.starts_max,
        }
    }

    #[cold]
    fn start_wanted(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        loop {
            let counts = self.members.counts();
            if self.wanted(counts, now) == 0 || counts.starting >= self.starts_max() {
                return;
            }
            if counts.size() >= self.options.max {
                self.ahead = 0;
                return;
            }
            if !self.failures.may_start(now) {
                self.ahead = 0;
                // Only a need that is still there will be tried again.
                if self.wanted(counts, now) > 0 {
                    self.retry = Some(self.failures.retry_at());
                }
                return;
            }
            // The budget that shares room out is asked for it at the end of the
            // input.
            if counts.size() >= self.max() {
                return;
            }
            if let Some(valve) = &mut self.valve {
                if !valve.is_open(now) {
                    self.ahead = 0;
                    self.retry = valve.deadline().filter(|opens| *opens > now);
                    return;
                }
                valve.ask(now);
            }
            self.start(now, effects);
        }
    }

    fn start(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.ahead = self.ahead.saturating_sub(1);
        let until = now + self.options.start_timeout;
        let slot = self.members.begin(self.generation, now, until);
        let id = self.members.at(slot).id;
        self.limits.push(until, (slot, id));
        effects.push(Effect::Start { slot, id });
    }

    /// A start failed or took too long.
    pub(super) fn fail_start(&mut self, now: Instant) {
        self.tallies.starts_failed += 1;
        let backoff = self.options.backoff;
        self.failures.add(backoff, &mut self.rng, now);
    }

    /// No take that waits can get anything for now, and it wants to know.
    #[inline]
    pub(super) fn is_hopeless(&self) -> bool {
        if !self.options.fail_fast {
            return false;
        }
        let counts = self.members.counts();
        self.failures.is_open(self.options.backoff)
            && counts.idle + counts.held + counts.checking == 0
    }

    /// When the life of a member ends that starts now.
    pub(super) fn life_from(&mut self, now: Instant) -> Instant {
        let Some(life_max) = self.options.life_max else {
            return Instant::NEVER;
        };
        let jitter = nanos(self.options.life_jitter);
        let shortest = nanos(life_max) - jitter;
        let spread = self.rng.below(jitter.saturating_mul(2).saturating_add(1));
        now.after(shortest.saturating_add(spread))
    }

    /// End starts, checks and stops that take too long.
    pub(super) fn end_overdue(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while let Some((due, (slot, id))) = self.limits.pop_due(now) {
            if !self.members.has(slot, id) {
                continue;
            }
            match self.members.at(slot).doing {
                Doing::Starting { until } if until == due => {
                    self.fail_start(now);
                    self.abandon(slot, now, effects);
                }
                Doing::Checking { until } if until == due => {
                    self.cut_short(slot, Retired::Broken, now, effects);
                }
                Doing::Stopping { until } if until == due => self.abandon(slot, now, effects),
                _ => (),
            }
        }
    }

    /// End what is done for a slot. It counts until it is really gone.
    pub(super) fn abandon(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let member = self.members.at(slot);
        let id = member.id;
        let stopping = matches!(member.doing, Doing::Stopping { .. });
        if let Some(valve) = self.valve.as_mut().filter(|_| !stopping) {
            valve.forget(now);
        }
        let until = Instant::NEVER;
        self.members.turn(slot, Doing::Stopping { until });
        effects.push(Effect::Abandon { slot, id });
    }

    /// End a check, and the member with it.
    pub(super) fn cut_short(
        &mut self,
        slot: u32,
        why: Retired,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        self.tallies.count_retired(why);
        self.abandon(slot, now, effects);
    }

    /// Retire idle members whose life is over.
    pub(super) fn end_lives(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while let Some((due, (slot, id))) = self.lives.pop_due(now) {
            let is_idle = self.is_doing(slot, id, |doing| matches!(doing, Doing::Idle { .. }));
            if is_idle && self.members.at(slot).until == due {
                let why = self.why_retire(slot, now).unwrap_or(Retired::Aged);
                self.retire(slot, why, now, effects);
            }
        }
    }

    /// Forget dues of what has ended, so that they neither pile up nor wake the
    /// driver.
    pub(super) fn sweep(&mut self) {
        let (members, limits, lives) = (&self.members, &mut self.limits, &mut self.lives);
        let size = members.counts().size();
        limits.sweep(size, |due, (slot, id)| {
            members.has(slot, id)
                && match members.at(slot).doing {
                    Doing::Starting { until }
                    | Doing::Checking { until }
                    | Doing::Stopping { until } => until == due,
                    Doing::Nothing | Doing::Idle { .. } | Doing::Out => false,
                }
        });
        lives.sweep(size, |due, (slot, id)| {
            members.has(slot, id) && members.at(slot).until == due
        });
    }

    /// When the member that is idle longest has been so for too long.
    pub(super) fn idle_deadline(&self) -> Option<Instant> {
        let age = self.options.idle_age_max?;
        let counts = self.members.counts();
        // A start may still fail.
        let there = counts.live() - counts.starting;
        let enough = there > self.options.init && counts.idle > self.options.idle_min;
        let oldest = self.members.oldest().filter(|_| enough)?;
        let since = self.members.idle_since(oldest);
        let since = match self.valve {
            Some(_) => since.max(self.renewed),
            None => since,
        };
        Some(since + age)
    }

    /// Retire members that were idle for too long, the longest idle first.
    pub(super) fn end_idle(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while let Some(due) = self.idle_deadline()
            && due <= now
        {
            let oldest = self.members.oldest().expect("a member is idle for long");
            // The valve may want to keep it.
            if let Some(valve) = self.valve.as_mut().filter(|valve| valve.may_renew(now)) {
                valve.renew(now);
                self.renewed = now;
                return;
            }
            self.retire(oldest, Retired::Idle, now, effects);
        }
    }
}
