//! The asks that wait for values, in the order in which they came.
//!
//! Whatever becomes free is offered to the first ask that wants it, then to the
//! next. An ask that wants several at once and lacks some keeps what there is to
//! itself: asks that came later get none of it. So no ask is overtaken, be it by
//! one that waits or by one that comes just now.

mod lines;

use super::Reservation;
use super::ask::{Ask, Place};
use super::asked::Asked;
use super::effects::{Effects, Rest};
use super::interval::Interval;
use super::range::RangeId;
use super::refused::Refused;
use super::reserve::{LAPSES, Share, TIDY, TURNS};
use super::size::Size;
use super::values::Values;
use crate::ids::Ticket;
use crate::ledger::{Ledger, Reply};
use crate::queue::{AskOptions, Options, Order, Overflow, Queue, Shedding};
use crate::refusal::{Reason, Refusal};
use crate::time::Instant;
use crate::waiting::{End, Tally, Waiting};
use lines::Lines;

/// The most bytes of all waiting asks.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// At most this many asks wait for certain values, or for several at once: each
/// offer is held against all of them.
const COSTLY_MAX: usize = 1_024;
/// This many offers are made when an ask comes, and `MANY` when time passes.
const SOME: usize = 64;
const MANY: usize = 2_048;

/// The asks that wait for values of an allocator.
///
/// Invariant: no value is free that an ask waits for, unless it is to be offered
/// yet, or kept for one that wants several.
#[derive(Debug)]
pub struct Waiters<R> {
    waiting: Waiting<Waiter<R>>,
    lines: Lines,
    /// Up to which ask the first offer was made.
    offered: Option<Ticket>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiter<R> {
    asked: Asked,
    is_costly: bool,
    reply: R,
}

/// The answer of an ask that waited.
#[derive(Debug)]
pub struct Told<R> {
    /// How.
    pub reply: R,
    /// Its reservations, or why it got none.
    pub answer: Result<Vec<Reservation>, Refused>,
    /// All that was logged until now has to be safe before.
    pub must_wait: bool,
    /// The partitions that it rests on, if partitions come and go.
    pub rests: Vec<Rest>,
}

impl Told<()> {
    /// The same, told to an asker.
    fn to<R>(self, reply: R) -> Told<R> {
        let Self {
            answer,
            must_wait,
            rests,
            ..
        } = self;
        Told {
            reply,
            answer,
            must_wait,
            rests,
        }
    }
}

impl<R: Reply> Reply for Waiter<R> {
    fn is_gone(&self) -> bool {
        self.reply.is_gone()
    }
}

#[expect(
    private_bounds,
    reason = "the machines of this module have it, and no other could"
)]
impl<R: Reply> Waiters<R> {
    /// No ask waits, and this many may.
    pub fn new(max: u32) -> Self {
        let options = Options {
            order: Order::Fifo,
            shedding: Shedding::Never,
            min: 0,
            max: Some(max),
            max_fits: false,
            overflow: Overflow::Newest,
            fair: None,
        };
        let queue = Queue::new(options, Instant::START);
        let queue = queue.expect("a queue that sheds nothing breaks no rule");
        Self {
            waiting: Waiting::new(queue, Ledger::default()),
            lines: Lines::default(),
            offered: None,
            bytes: 0,
        }
    }

    /// Give out values to an ask that comes just now, as
    /// [`Allocator::reserve`](super::Allocator::reserve) does, but none that others wait for.
    ///
    /// # Errors
    ///
    /// If the ask is wrong, or there are not enough values.
    pub fn reserve(
        &mut self,
        machine: &mut impl Values,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
        told: &mut Vec<Told<R>>,
    ) -> Result<(), Refused> {
        if self.is_empty() {
            return machine.reserve(ask, now, effects, granted);
        }
        machine.lapse(now, TIDY, effects);
        let mut turns = 0;
        loop {
            self.offer_some(SOME, machine, now, effects, told);
            let mut but = self.kept(None, machine);
            but.extend(machine.freed().iter());
            let within = Interval::ALL;
            let share = Share { within, but };
            let answer = machine.reserve_share(ask, &share, now, effects, granted);
            let is_due = machine.deadline().is_some_and(|due| due <= now);
            let is_none = matches!(
                answer,
                Err(Refused::Exhausted { .. } | Refused::Full { .. })
            );
            if !is_none || !is_due || turns == TURNS {
                return answer;
            }
            turns += 1;
            machine.lapse(now, LAPSES, effects);
        }
    }

    /// Let an ask wait that was just refused because there are not enough values.
    ///
    /// # Errors
    ///
    /// If it would wait in vain, or too many wait already. It is told at once.
    pub fn wait(
        &mut self,
        machine: &mut impl Values,
        ask: &Ask<'_>,
        deadline: Instant,
        reply: R,
        now: Instant,
    ) -> Result<Ticket, Refused> {
        let (free, size) = machine.counts(ask.prefer);
        if deadline <= now || size < Size::new(ask.count.into()) {
            return Err(Refused::Exhausted { free, size });
        }
        let asked = Asked::of(ask);
        let terms = AskOptions {
            deadline: Some(deadline),
            promised: true,
            ..AskOptions::new(now)
        };
        let (bytes, is_costly) = (asked.bytes(), self.lines.is_costly(&asked, machine));
        let is_crowded = is_costly && self.lines.costly() >= COSTLY_MAX;
        if is_crowded || self.bytes + bytes > BYTES_MAX {
            let (_, refusal) = self.waiting.refuse(&terms, Reason::Full, now);
            return Err(Refused::Crowded(refusal));
        }
        let waiter = Waiter {
            asked,
            is_costly,
            reply,
        };
        let ticket = self.waiting.join(&terms, waiter, now);
        if let Some(End::Shed { refusal, .. }) = self.waiting.take_ended(ticket) {
            return Err(Refused::Crowded(refusal));
        }
        self.bytes += bytes;
        let waiter = self.waiting.reply(ticket).expect("it waits");
        self.lines.join(ticket, &waiter.asked, is_costly, machine);
        machine.watch_freed(true);
        Ok(ticket)
    }

    /// One does not want to wait any more. Gives its reply back if it did.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        machine: &mut impl Values,
        now: Instant,
    ) -> Option<(R, Refusal)> {
        let (waiter, refusal) = self.waiting.cancel(ticket, now)?;
        let reply = self.left(waiter, machine);
        if self.is_empty() {
            // Else what becomes free from now on would be due for ever.
            self.forget(machine);
        }
        Some((reply, refusal))
    }

    /// Something was done to the allocator: the asks that can be served are, and
    /// the asks that waited long enough are told so; a part of them at least.
    pub fn serve(
        &mut self,
        machine: &mut impl Values,
        now: Instant,
        effects: &mut Effects,
        told: &mut Vec<Told<R>>,
    ) {
        if !self.is_empty() {
            self.offer_some(SOME, machine, now, effects, told);
        }
    }

    /// Do a part of what is due by `now`, for the allocator and for the asks that
    /// wait; as long as more is, the deadline is not later.
    pub fn advance(
        &mut self,
        machine: &mut impl Values,
        now: Instant,
        effects: &mut Effects,
        told: &mut Vec<Told<R>>,
    ) {
        machine.advance(now, effects);
        if !self.is_empty() {
            self.offer_some(MANY, machine, now, effects, told);
        }
    }

    /// When the two have to be advanced next.
    pub fn deadline(&self, machine: &impl Values) -> Option<Instant> {
        if !machine.freed().is_empty() {
            return Some(Instant::START);
        }
        let dues = [machine.deadline(), self.waiting.deadline()];
        dues.into_iter().flatten().min()
    }

    /// The range gives out nothing more: asks that wait for it are told.
    pub fn let_range_go(
        &mut self,
        range: RangeId,
        machine: &mut impl Values,
        now: Instant,
        told: &mut Vec<Told<R>>,
    ) {
        for ticket in self.lines.of_range(range) {
            if let Some((reply, _)) = self.cancel(ticket, machine, now) {
                told.push(Told {
                    reply,
                    answer: Err(Refused::Draining),
                    must_wait: false,
                    rests: Vec::new(),
                });
            }
        }
    }

    /// No ask is served any more. Gives the replies of all that waited.
    pub fn close(&mut self, machine: &mut impl Values, now: Instant) -> Vec<R> {
        self.waiting.close(now);
        let ended: Vec<_> = self.waiting.ended().collect();
        let replies = ended.into_iter().map(|end| match end {
            End::Shed { reply, .. } | End::Gone(reply) => reply.reply,
        });
        let replies = replies.collect();
        self.forget(machine);
        replies
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// No ask waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }

    /// Since when the oldest waits.
    pub fn oldest(&self) -> Option<Instant> {
        self.waiting.oldest()
    }

    /// Outcomes of the asks that waited.
    pub fn tally(&self) -> &Tally {
        self.waiting.tally()
    }

    /// Tell the asks whose own deadline came, and make some offers.
    fn offer_some(
        &mut self,
        most: usize,
        machine: &mut impl Values,
        now: Instant,
        effects: &mut Effects,
        told: &mut Vec<Told<R>>,
    ) {
        self.waiting.advance(now);
        let late: Vec<_> = self.waiting.ended().collect();
        for end in late {
            let (End::Shed { reply: waiter, .. } | End::Gone(waiter)) = end;
            let last = last_answer(&waiter.asked, machine, now, effects);
            told.push(last.to(self.left(waiter, machine)));
        }
        let mut left = most;
        while left > 0
            && !self.is_empty()
            && let Some(values) = machine.freed().first()
        {
            left -= 1;
            let Some((range, piece)) = machine.piece_in(values) else {
                self.offered = None;
                machine.freed_mut().keep(None);
                continue;
            };
            if !self.offer(range, piece, machine, now, effects, told) {
                self.offered = None;
                machine.freed_mut().keep(values.after(piece));
            }
        }
        if self.is_empty() {
            self.forget(machine);
        }
    }

    /// Offer values of a range to the next ask that wants some. Says whether to
    /// go on with them.
    fn offer(
        &mut self,
        range: RangeId,
        values: Interval,
        machine: &mut impl Values,
        now: Instant,
        effects: &mut Effects,
        told: &mut Vec<Told<R>>,
    ) -> bool {
        if machine.free_in(range, values).is_zero() {
            return false;
        }
        let waiting = &self.waiting;
        let asked = |ticket| waiting.reply(ticket).map(|waiter| &waiter.asked);
        let next = self.lines.next(range, values, self.offered, asked);
        let Some(ticket) = next else {
            return false;
        };
        self.offered = Some(ticket);
        let waiter = self.waiting.reply(ticket).expect("a queued ask waits");
        if waiter.is_gone() {
            // No client is there to be told.
            self.cancel(ticket, machine, now);
            return true;
        }
        let tried = self.try_serve(ticket, values, machine, now, effects);
        let waiter = self.waiting.reply(ticket).expect("a queued ask waits");
        if matches!(tried.answer, Err(Refused::Exhausted { .. })) {
            // One value that an ask keeps is no other's.
            return values.first() != values.last() || !waiter.asked.is_several();
        }
        let waiter = self.waiting.pick(ticket, now).expect("it waited");
        told.push(tried.to(self.left(waiter, machine)));
        true
    }

    /// Give an ask that waits what it wants, if these values and what was kept
    /// for it are enough.
    fn try_serve(
        &self,
        ticket: Ticket,
        values: Interval,
        machine: &mut impl Values,
        now: Instant,
        effects: &mut Effects,
    ) -> Told<()> {
        let waiter = self.waiting.reply(ticket).expect("a queued ask waits");
        let asked = &waiter.asked;
        let mut share = Share {
            within: values,
            but: self.kept(Some(ticket), machine),
        };
        if asked.is_several() {
            let (free, size) = machine.counts(asked.prefer());
            if free < Size::new(asked.count().into()) {
                return Told {
                    reply: (),
                    answer: Err(Refused::Exhausted { free, size }),
                    must_wait: false,
                    rests: Vec::new(),
                };
            }
            share.within = Interval::ALL;
            // Others may be first for what is offered later.
            share.but.extend(machine.freed().iter().skip(1));
        }
        told_at(effects, |effects| {
            let mut granted = Vec::new();
            let reserve =
                |ask: &Ask<'_>| machine.reserve_share(ask, &share, now, effects, &mut granted);
            asked.with(reserve).map(|()| granted)
        })
    }

    /// The values that are kept for asks before this one, or for all asks.
    fn kept(&self, before: Option<Ticket>, machine: &impl Values) -> Vec<Interval> {
        let several = self.lines.several();
        let several = several.filter(|ticket| before.is_none_or(|before| *ticket < before));
        let waiters = several.filter_map(|ticket| self.waiting.reply(ticket));
        let there = waiters.filter(|waiter| !waiter.is_gone());
        there
            .flat_map(|waiter| values_of(machine, &waiter.asked))
            .collect()
    }

    /// An ask that waited does so no longer. What it kept goes to others.
    fn left(&mut self, waiter: Waiter<R>, machine: &mut impl Values) -> R {
        let Waiter {
            asked,
            is_costly,
            reply,
        } = waiter;
        self.bytes -= asked.bytes();
        let waiting = &self.waiting;
        let is_there = |ticket| waiting.reply(ticket).is_some();
        self.lines.leave(is_costly, waiting.len(), is_there);
        if asked.is_several() {
            for values in values_of(machine, &asked) {
                machine.freed_mut().note(values);
            }
        }
        reply
    }

    fn forget(&mut self, machine: &mut impl Values) {
        machine.watch_freed(false);
        self.lines = Lines::default();
        self.offered = None;
        self.bytes = 0;
    }
}

/// All values that an ask would have.
fn values_of(machine: &impl Values, asked: &Asked) -> Vec<Interval> {
    let values = |place| match place {
        Place::Range(id) => match machine.options(id) {
            Some(options) => options.intervals(),
            None => Vec::new(),
        },
        Place::Within(within) => vec![within],
    };
    asked.places().flat_map(values).collect()
}

/// Nothing came in time, unless it has something already by another way.
fn last_answer(
    asked: &Asked,
    machine: &mut impl Values,
    now: Instant,
    effects: &mut Effects,
) -> Told<()> {
    told_at(effects, |effects| {
        let mut granted = Vec::new();
        let is_known = asked.has_names()
            && asked.with(|ask| machine.was_granted(ask, now, effects, &mut granted))?;
        if is_known {
            return Ok(granted);
        }
        let (free, size) = machine.counts(asked.prefer());
        Err(Refused::Exhausted { free, size })
    })
}

/// An answer, and whether all that was logged has to be safe before it is told. It is
/// another's answer than that of the call.
fn told_at(
    effects: &mut Effects,
    decide: impl FnOnce(&mut Effects) -> Result<Vec<Reservation>, Refused>,
) -> Told<()> {
    let before = std::mem::replace(&mut effects.wait, false);
    let rests = std::mem::take(&mut effects.rests);
    let answer = decide(effects);
    let must_wait = match &answer {
        Ok(_) => effects.wait,
        Err(refused) => refused.tells_of_others(),
    };
    effects.wait = before;
    Told {
        reply: (),
        answer,
        must_wait,
        rests: std::mem::replace(&mut effects.rests, rests),
    }
}
