//! Lends exclusive members, and starts, checks and stops them as needed.
//!
//! The pool knows its members by their slots; what a member is, and how it is
//! started or stopped, is up to the driver that carries the effects out.

mod change;
mod circuit;
mod effect;
mod grow;
mod invariants;
mod lend;
mod lines;
mod members;
mod options;
mod ration;
mod serve;
mod stats;

use std::time::Duration;

use crate::expiry::Expiry;
use crate::ids::{Tag, Ticket};
use crate::ledger::Reply;
use crate::machine::Machine;
use crate::queue::{AskOptions, Capacity, Load};
use crate::refusal::{Reason, Refusal};
use crate::rng::Rng;
use crate::settings::OptionError;
use crate::time::Instant;
use crate::valve::Valve;
use crate::waiting::End;

use self::circuit::Failures;
use self::lines::Lines;
use self::members::{Doing, Members};
use self::ration::Ration;
use self::stats::Tallies;

pub use self::circuit::Circuit;
pub use self::effect::{Came, Effect, Grant, MemberId, Retired, Use};
pub use self::members::Counts;
pub use self::options::{Backoff, Fate, Options, Reuse};
pub use self::stats::Stats;
pub use crate::ids::Priority;
pub use crate::waiting::Tally;

/// The takes that wait for a member, and what the members are doing.
///
/// Invariants: no more members than `max` are started, counted from before the
/// start until they are really gone; while a take waits, no member is idle that
/// does not have to be checked first; a member is out only if it was granted or
/// lent, until it is released or recalled.
#[derive(Debug)]
pub struct Pool<R> {
    lines: Lines<R>,
    members: Members,
    mode: Mode,
    failures: Failures,
    /// How many more were wanted ahead of need, and not started yet.
    ahead: usize,
    /// When to try again what has to wait now.
    retry: Option<Instant>,
    /// When one of those that were lent may have been idle for too long.
    look: Option<Instant>,
    /// When the last input came.
    seen: Instant,
    valve: Option<Valve>,
    /// The room of the pool in a shared budget.
    ration: Option<Box<Ration>>,
    /// When the valve last let an idle member stay.
    renewed: Instant,
    /// Ends of lives. Those of members that are out are seen at their release.
    lives: Expiry<(u32, MemberId)>,
    /// When starts, checks and stops take too long.
    limits: Expiry<(u32, MemberId)>,
    generation: u64,
    rng: Rng,
    options: Box<Options>,
    tallies: Tallies,
    /// The capacity of the members, for the shedding policy.
    load: Load,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Running,
    /// Takes wait, and none gets anything.
    Suspended,
    /// Members go as they come back, and are revoked at the deadline.
    Closing {
        deadline: Instant,
    },
    /// The last member is gone.
    Closed,
}

/// Facts about a member in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Which it is.
    pub id: MemberId,
    /// When its start was done.
    pub born: Instant,
    /// When its life is over.
    pub until: Instant,
    /// How often all members had been replaced before.
    pub generation: u64,
}

impl<R: Reply> Pool<R> {
    /// A pool that wants its first members started.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<Self, OptionError> {
        options.validate()?;
        let valve = options.valve.as_ref();
        let mut pool = Self {
            lines: Lines::new(&options.queue, now)?,
            members: Members::new(),
            mode: Mode::Running,
            failures: Failures::NONE,
            ahead: 0,
            retry: None,
            look: None,
            seen: now,
            valve: valve.map(|valve| Valve::new(valve, 0, now)).transpose()?,
            ration: None,
            renewed: now,
            lives: Expiry::new(),
            limits: Expiry::new(),
            generation: 0,
            rng: Rng::new(options.seed),
            options: Box::new(options),
            tallies: Tallies::default(),
            load: Load::default(),
        };
        pool.finish(now, effects);
        Ok(pool)
    }

    /// A take wants a member. `reply` is asked for only if it has to wait.
    #[inline]
    pub fn take(
        &mut self,
        terms: &AskOptions,
        priority: Priority,
        reply: impl FnOnce() -> R,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Came {
        let came = match self.refusal_at_once(terms) {
            Some(reason) => {
                // No take waits that would have it tried whether starting works
                // again.
                let tries = reason == Reason::Starting && self.starting() == 0;
                self.ahead = self.ahead.max(usize::from(tries));
                Came::Refused(self.lines.turn_away(terms, priority, reason, now))
            }
            None => match self.idle_at_once(terms, now, effects) {
                Some(slot) => Came::Granted(self.grant_at_once(slot, terms, priority, now)),
                None if terms.wait => match self.lines.join(terms, priority, reply(), now) {
                    Ok(ticket) => Came::Waits(ticket),
                    Err(refusal) => {
                        self.help_next(now, effects);
                        Came::Refused(refusal)
                    }
                },
                None => {
                    self.help_next(now, effects);
                    self.refuse(terms, priority, Reason::Busy, now)
                }
            },
        };
        self.finish(now, effects);
        came
    }

    /// A holder gives a member back that was taken `uses` times, this time for
    /// `held`.
    #[inline]
    pub fn release(
        &mut self,
        slot: u32,
        used: Use,
        uses: u64,
        held: Duration,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        debug_assert_eq!(self.members.at(slot).doing, Doing::Out);
        self.tallies.count_hold(held);
        if !held.is_zero() {
            self.load.ended(held);
        }
        if let Some(valve) = &mut self.valve {
            valve.learn(held, !matches!(used, Use::Over(_)), now);
        }
        let used_up = self.options.uses_max.is_some_and(|most| uses >= most);
        match used {
            Use::Over(why) => self.retire(slot, why, now, effects),
            _ if used_up => self.retire(slot, Retired::Used, now, effects),
            Use::Fine if !self.is_to_check() => self.give(slot, now, effects),
            Use::Fine | Use::Doubtful => match self.why_retire(slot, now) {
                Some(why) => self.retire(slot, why, now, effects),
                None => self.begin_check(slot, now, effects),
            },
        }
        self.finish(now, effects);
    }

    /// A taker was granted a member and did not want it any more; it goes to
    /// the next one unharmed.
    pub fn decline(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        debug_assert_eq!(self.members.at(slot).doing, Doing::Out);
        self.give(slot, now, effects);
        self.finish(now, effects);
    }

    /// A holder keeps a member for good; it is none of ours any more.
    pub fn detach(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        debug_assert_eq!(self.members.at(slot).doing, Doing::Out);
        self.tallies.detached += 1;
        self.vacate(slot, now);
        self.sweep();
        self.finish(now, effects);
    }

    /// The start of a member went well. None if it is not wanted any more:
    /// then it has to be ended.
    pub fn started(
        &mut self,
        slot: u32,
        id: MemberId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<Birth> {
        if !self.is_doing(slot, id, |doing| matches!(doing, Doing::Starting { .. })) {
            return None;
        }
        self.failures.end();
        let until = self.life_from(now);
        let member = self.members.at_mut(slot);
        self.tallies.count_start(now.since(member.born));
        (member.born, member.until) = (now, until);
        self.lives.push(until, (slot, id));
        let birth = self.birth(slot);
        if !self.is_ceding() || !self.grant_next(slot, now, effects) {
            self.give(slot, now, effects);
        }
        self.sweep();
        self.finish(now, effects);
        Some(birth)
    }

    /// The check of a member came to an end. False if it is not wanted any more:
    /// then it has to be ended.
    pub fn checked(
        &mut self,
        slot: u32,
        id: MemberId,
        is_good: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        if !self.is_doing(slot, id, |doing| matches!(doing, Doing::Checking { .. })) {
            return false;
        }
        if is_good {
            self.give(slot, now, effects);
        } else {
            self.retire(slot, Retired::Broken, now, effects);
        }
        self.sweep();
        self.finish(now, effects);
        true
    }

    /// What was in the slot is really gone: its start failed, it was stopped,
    /// or the task that saw to it died.
    pub fn gone(&mut self, slot: u32, id: MemberId, now: Instant, effects: &mut Vec<Effect<R>>) {
        if !self.members.has(slot, id) {
            return;
        }
        match self.members.at(slot).doing {
            Doing::Starting { .. } => self.fail_start(now),
            Doing::Checking { .. } => self.tallies.count_retired(Retired::Lost),
            Doing::Stopping { .. } => (),
            Doing::Nothing | Doing::Idle { .. } | Doing::Out => return,
        }
        self.vacate(slot, now);
        self.sweep();
        self.finish(now, effects);
    }

    /// A member ended by itself.
    pub fn lost(&mut self, slot: u32, id: MemberId, now: Instant, effects: &mut Vec<Effect<R>>) {
        if !self.members.has(slot, id) {
            return;
        }
        match self.members.at(slot).doing {
            Doing::Idle { .. } => self.retire(slot, Retired::Lost, now, effects),
            Doing::Out | Doing::Checking { .. } => self.leave(slot, Retired::Lost, effects),
            Doing::Nothing | Doing::Starting { .. } | Doing::Stopping { .. } => (),
        }
        self.finish(now, effects);
    }

    /// The take with this ticket is not to wait any longer. The refusal is for
    /// one that did not ask for this itself. None if it does not wait any more.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<(R, Refusal)> {
        let gone = self.lines.cancel(ticket, now);
        self.lines.advance(now);
        self.finish(now, effects);
        gone
    }

    /// Cancel all that wait with this tag.
    pub fn cancel_tag(
        &mut self,
        tag: Tag,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Vec<(R, Refusal)> {
        let gone = self.lines.cancel_tag(tag, now);
        self.lines.advance(now);
        self.finish(now, effects);
        gone
    }

    /// How to answer one that waits, to change.
    pub fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.lines.reply_mut(ticket)
    }

    fn refuse(
        &mut self,
        terms: &AskOptions,
        priority: Priority,
        reason: Reason,
        now: Instant,
    ) -> Came {
        let refusal = self.lines.turn_away(terms, priority, reason, now);
        Came::Refused(come_back(refusal, self.retry_after(now)))
    }

    /// Why a take is refused before anything is looked for.
    #[inline]
    fn refusal_at_once(&self, terms: &AskOptions) -> Option<Reason> {
        match self.mode {
            Mode::Closing { .. } | Mode::Closed => Some(Reason::Closed),
            Mode::Suspended if !terms.wait => Some(Reason::Suspended),
            Mode::Running | Mode::Suspended => self.is_hopeless().then_some(Reason::Starting),
        }
    }

    /// Why a member must not be used again, if so.
    #[inline]
    fn why_retire(&self, slot: u32, now: Instant) -> Option<Retired> {
        let member = self.members.at(slot);
        if matches!(self.mode, Mode::Closing { .. } | Mode::Closed) {
            Some(Retired::Closed)
        } else if member.leaves.is_some() {
            member.leaves
        } else if member.until <= now {
            let is_old = member.generation < self.generation;
            Some(if is_old {
                Retired::Replaced
            } else {
                Retired::Aged
            })
        } else if self.members.counts().live() > self.max()
            || self.valve.as_ref().is_some_and(Valve::is_over)
        {
            Some(Retired::Surplus)
        } else {
            None
        }
    }

    fn begin_check(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let until = now + self.options.start_timeout;
        let id = self.members.at(slot).id;
        self.members.turn(slot, Doing::Checking { until });
        self.limits.push(until, (slot, id));
        effects.push(Effect::Check { slot, id });
    }

    /// A member has to go.
    fn retire(&mut self, slot: u32, why: Retired, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.tallies.count_retired(why);
        let until = now + self.options.stop_timeout;
        let id = self.members.at(slot).id;
        self.members.turn(slot, Doing::Stopping { until });
        self.limits.push(until, (slot, id));
        if let Some(valve) = &mut self.valve {
            valve.forget(now);
        }
        effects.push(Effect::Stop { slot, id, why });
    }

    /// A member that is busy has to go when it is done.
    fn leave(&mut self, slot: u32, why: Retired, effects: &mut Vec<Effect<R>>) {
        let member = self.members.at_mut(slot);
        member.leaves = Some(why);
        member.until = Instant::START;
        let until = Instant::START;
        effects.push(Effect::Mark { slot, until });
    }

    /// There is no member in the slot any more.
    fn vacate(&mut self, slot: u32, now: Instant) {
        let was = self.members.at(slot).doing;
        self.members.turn(slot, Doing::Nothing);
        let stopping = matches!(was, Doing::Stopping { .. });
        if let Some(valve) = self.valve.as_mut().filter(|_| !stopping) {
            valve.forget(now);
        }
    }

    fn is_doing(&self, slot: u32, id: MemberId, what: impl Fn(Doing) -> bool) -> bool {
        self.members.has(slot, id) && what(self.members.at(slot).doing)
    }

    fn starting(&self) -> usize {
        self.members.counts().starting
    }

    /// The work after every input.
    #[inline]
    fn finish(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.seen = now;
        self.serve(now, effects);
        self.grow(now, effects);
        self.tell_load();
        if self.lines.has_ended() {
            self.tell_ended(now, effects);
        }
        if let Mode::Closing { .. } = self.mode {
            self.end_closing(effects);
        }
        if self.ration.is_some() {
            self.tell_standing(now, effects);
        }
        self.check(now);
    }

    /// Let the lines know what the members can bear. A start is no overload.
    #[inline]
    fn tell_load(&mut self) {
        let counts = self.members.counts();
        let ready = counts.idle + counts.held + counts.checking;
        self.load.capacity = if ready == 0 && counts.starting > 0 {
            Capacity::Starting
        } else {
            Capacity::Units(u32::try_from(ready).unwrap_or(u32::MAX))
        };
        self.lines.bear(self.load);
    }

    #[cold]
    fn tell_ended(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        let retry_after = self.retry_after(now);
        let told = self.lines.ended().map(|end| match end {
            End::Shed { reply, refusal, .. } => {
                let refusal = come_back(refusal, retry_after);
                Effect::Shed { reply, refusal }
            }
            End::Gone(reply) => Effect::Forget(reply),
        });
        effects.extend(told);
    }
}

impl<R: Reply> Machine for Pool<R> {
    type Effect = Effect<R>;

    fn deadline(&self) -> Option<Instant> {
        let mode = match self.mode {
            Mode::Closing { deadline } => deadline,
            Mode::Running | Mode::Suspended | Mode::Closed => Instant::NEVER,
        };
        let first = self.lives.first().min(self.limits.first()).min(mode);
        let or_never = |due: Option<Instant>| due.unwrap_or(Instant::NEVER);
        let first = first.min(or_never(self.lines.deadline()));
        let first = first.min(or_never(self.retry)).min(or_never(self.look));
        first.min(or_never(self.idle_deadline())).finite()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.look = None;
        self.lines.advance(now);
        self.end_overdue(now, effects);
        self.end_lives(now, effects);
        self.end_idle(now, effects);
        if let Mode::Closing { deadline } = self.mode
            && deadline <= now
        {
            self.revoke_all(now, effects);
        }
        self.sweep();
        self.finish(now, effects);
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.lines.len()
    }
}

/// The same refusal; a take that came too early for the line to know its pace
/// gets our guess.
fn come_back(mut refusal: Refusal, retry_after: Duration) -> Refusal {
    if refusal.reason != Reason::Closed {
        refusal.retry_after = refusal.retry_after.max(retry_after);
    }
    refusal
}
