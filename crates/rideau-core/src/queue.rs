//! The waiting line in front of everything scarce.
//!
//! A queue orders those who wait, limits how many they are, and lets a law
//! decide whom it sheds. It answers nobody: whoever owns it closes the
//! tickets it gives up.

mod apart;
mod codel;
mod fair;
mod line;
mod min_delay;
mod options;
mod standing;

use std::time::Duration;

use crate::expiry::Expiry;
use crate::ids::{Flow, Tag, Ticket};
use crate::ledger::{Ledger, NONE};
use crate::refusal::{Reason, Refusal};
use crate::settings::OptionError;
use crate::time::{Instant, nanos};
use fair::Fair;
use line::{Limits, Line};

pub use options::{Fair as FairOptions, Index, Options, Order, Overflow, Shedding};

/// On what terms somebody waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// When the asker says it asked; never later than the machine's `now`.
    pub sent: Instant,
    /// When the asker gives up.
    pub deadline: Option<Instant>,
    /// Whose turn it takes in a fair queue.
    pub flow: Flow,
    /// What it can be cancelled by, beside its ticket.
    pub tag: Option<Tag>,
    /// Wait if nothing is there at once.
    pub wait: bool,
}

/// Somebody whom the queue has let go. The ticket is still open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shed {
    /// Who.
    pub ticket: Ticket,
    /// Why.
    pub reason: Reason,
}

/// Who waits, in which order, and who is let go.
///
/// Invariant: every ticket in the queue is open in its ledger, and stands in
/// exactly one line.
#[derive(Debug)]
#[repr(C)]
pub struct Queue {
    shape: Shape,
    limits: Limits,
    pace: Pace,
    order: Order,
    /// Deadlines of askers and of laws that settle a limit at arrival.
    expiry: Expiry<Ticket>,
    /// Those whose limit came while the minimum protected them.
    spared: Vec<Ticket>,
    options: Box<Options>,
}

#[derive(Debug)]
enum Shape {
    Single(Line),
    Fair(Box<Fair>),
}

/// What one operation works with.
pub(crate) struct Step<'a, R> {
    ledger: &'a mut Ledger<R>,
    limits: Deadlines<'a>,
    now: Instant,
    shed: &'a mut Vec<Shed>,
}

/// Where a law puts the limit of an entry.
pub(crate) struct Deadlines<'a>(&'a mut Expiry<Ticket>);

/// How fast those who wait are served.
#[derive(Debug)]
struct Pace {
    /// When the last was served, or the first came to an empty queue.
    last: Instant,
    /// A moving average of the span between two that were served while
    /// somebody waited.
    gap: Option<u64>,
}

/// Nobody is told to come back later than this.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);

/// The name of the only line of a queue that is not fair.
const ONLY: u32 = 0;

impl Terms {
    /// Ask at `sent` and wait as long as the queue lets one.
    pub const fn new(sent: Instant) -> Self {
        Self {
            sent,
            deadline: None,
            flow: Flow(0),
            tag: None,
            wait: true,
        }
    }
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// If the options break a rule.
    pub fn new(options: Options, now: Instant) -> Result<Self, OptionError> {
        options.validate()?;
        Ok(Self {
            limits: Limits::of(&options),
            order: options.order,
            shape: Shape::new(&options, now),
            options: Box::new(options),
            expiry: Expiry::new(),
            spared: Vec::new(),
            pace: Pace {
                last: now,
                gap: None,
            },
        })
    }

    /// How the queue orders, limits and sheds.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Single(line) => line.len() as usize,
            Shape::Fair(fair) => fair.len(),
        }
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many flows take turns; one if the queue is not fair.
    pub fn flows(&self) -> usize {
        match &self.shape {
            Shape::Single(_) => 1,
            Shape::Fair(fair) => fair.active(),
        }
    }

    /// When the oldest of those who wait asked.
    pub fn oldest<R>(&self, ledger: &Ledger<R>) -> Option<Instant> {
        match &self.shape {
            Shape::Single(line) => line.oldest(ledger),
            Shape::Fair(fair) => fair.oldest(ledger),
        }
    }

    /// The queue is overloaded as its law sees it.
    pub fn is_shedding(&self, now: Instant) -> bool {
        match &self.shape {
            Shape::Single(line) => line.is_shedding(now),
            Shape::Fair(fair) => fair.is_shedding(now),
        }
    }

    /// When the queue has to be advanced next.
    #[inline(always)]
    pub fn deadline<R>(&self, ledger: &Ledger<R>) -> Option<Instant> {
        let due = match &self.shape {
            Shape::Single(line) => line.due(self.limits.min, ledger),
            Shape::Fair(fair) => fair.due(),
        };
        due.min(self.expiry.first()).finite()
    }

    /// A no for somebody who waited since `sent`, with the queue's numbers.
    pub fn refusal(&self, reason: Reason, sent: Instant, now: Instant) -> Refusal {
        Refusal {
            reason,
            waited: now.since(sent),
            len: self.len(),
            retry_after: self.retry_after(),
        }
    }

    /// Let an open ticket wait, or shed it if it must not.
    #[inline(always)]
    pub fn push<R>(
        &mut self,
        ticket: Ticket,
        terms: &Terms,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) {
        let limits = self.limits;
        let deadline = terms.deadline.unwrap_or(Instant::NEVER);
        let place = ledger.place_mut(ticket.slot);
        (place.sent, place.deadline, place.flow) = (terms.sent, deadline, terms.flow);
        self.expire(ledger, now, shed);
        if self.is_empty() {
            self.pace.last = now;
        }
        if deadline <= now {
            let reason = Reason::Deadline;
            shed.push(Shed { ticket, reason });
            return self.settle(ledger, now, shed);
        }
        self.expiry.push(deadline, ticket);
        self.with(ledger, now, shed, |shape, step| match shape {
            Shape::Single(line) => line.push(ticket.slot, limits, step),
            Shape::Fair(fair) => fair.push(ticket.slot, limits, step),
        });
        // A law may settle a limit that has come already.
        self.expire(ledger, now, shed);
    }

    /// Take the one whose turn it is. The ticket stays open.
    #[inline(always)]
    pub fn pop<R>(
        &mut self,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) -> Option<Ticket> {
        self.expire(ledger, now, shed);
        let (limits, order) = (self.limits, self.order);
        let taken = self.with(ledger, now, shed, |shape, step| match shape {
            Shape::Single(line) => take(line, order, limits.min, step),
            Shape::Fair(fair) => fair.pop(limits, step, |line, step| {
                take(line, order, limits.min, step)
            }),
        })?;
        self.pace.serve(now);
        Some(ledger.ticket(taken))
    }

    /// Take one out of turn. The ticket stays open. False if it does not wait.
    pub fn remove<R>(
        &mut self,
        ticket: Ticket,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) -> bool {
        let waited = self.withdraw(ticket, ledger, now);
        if waited {
            self.advance(ledger, now, shed);
        }
        waited
    }

    /// Take one out of turn because it is served. The ticket stays open. False
    /// if it does not wait.
    pub(crate) fn pick<R>(&mut self, ticket: Ticket, ledger: &mut Ledger<R>, now: Instant) -> bool {
        let waited = self.withdraw(ticket, ledger, now);
        if waited {
            self.pace.serve(now);
        }
        waited
    }

    /// Shed whom deadlines and the law want gone by now.
    pub fn advance<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        self.expire(ledger, now, shed);
        self.settle(ledger, now, shed);
    }

    /// Let everybody go.
    pub fn close<R>(&mut self, ledger: &mut Ledger<R>, shed: &mut Vec<Shed>) {
        for slot in self.clear(ledger) {
            let ticket = ledger.ticket(slot);
            shed.push(Shed {
                ticket,
                reason: Reason::Closed,
            });
        }
        self.expiry.clear();
        self.spared.clear();
    }

    /// Change everything at once. All who wait keep their places, but those
    /// for whom there is no room any more.
    ///
    /// # Errors
    ///
    /// If the options break a rule; then nothing has changed.
    pub fn reconfigure<R>(
        &mut self,
        options: Options,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) -> Result<(), OptionError> {
        options.validate()?;
        self.limits = Limits::of(&options);
        self.order = options.order;
        let limits = self.limits;
        let (old, shedding) = (
            std::mem::replace(&mut *self.options, options),
            self.options.shedding,
        );
        let kind = |shedding: &Shedding| std::mem::discriminant(shedding);
        if kind(&old.shedding) != kind(&shedding) {
            self.rebuild_expiry(ledger);
        }
        let same_shape = match (&self.shape, &self.options.fair) {
            (Shape::Single(_), None) => true,
            (Shape::Fair(fair), Some(new)) => fair.has_index(new.index),
            (Shape::Single(_), Some(_)) | (Shape::Fair(_), None) => false,
        };
        if !same_shape {
            self.reshape(ledger, now, shed);
        }
        self.expire(ledger, now, shed);
        let fair_options = self.options.fair.clone();
        self.with(ledger, now, shed, |shape, step| {
            match (shape, fair_options) {
                (Shape::Fair(fair), Some(new)) => fair.reconfigure(&new, &shedding, limits, step),
                (Shape::Single(line), _) => {
                    line.reconfigure(&shedding, step.now);
                    line.trim(limits, step);
                    line.settle(limits.min, step);
                }
                (Shape::Fair(_), None) => unreachable!("the shape follows the options"),
            }
        });
        self.advance(ledger, now, shed);
        Ok(())
    }

    /// As [`remove`](Self::remove), but nobody is shed for it yet: the queue
    /// has to be advanced once all who leave together have left.
    pub(crate) fn withdraw<R>(
        &mut self,
        ticket: Ticket,
        ledger: &mut Ledger<R>,
        now: Instant,
    ) -> bool {
        let waited = waits(ledger, ticket);
        if waited {
            self.unlink(ticket.slot, ledger, now, &mut Vec::new());
        }
        waited
    }

    fn settle<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        let limits = self.limits;
        self.with(ledger, now, shed, |shape, step| match shape {
            Shape::Single(line) => line.settle(limits.min, step),
            Shape::Fair(fair) => fair.settle(limits, step),
        });
    }

    /// Shed whose own deadline has come, or the limit that the law gave them.
    #[inline]
    fn expire<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        // Most queues have no deadlines of their own.
        if self.expiry.first() > now && self.spared.is_empty() {
            return;
        }
        self.expire_due(ledger, now, shed);
    }

    #[cold]
    fn expire_due<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        for ticket in std::mem::take(&mut self.spared) {
            if waits(ledger, ticket) {
                self.reach_limit(ticket, ledger, now, shed);
            }
        }
        while let Some((due, ticket)) = self.expiry.pop_due(now) {
            if !waits(ledger, ticket) {
                continue;
            }
            if ledger.place(ticket.slot).deadline == due {
                self.unlink(ticket.slot, ledger, now, shed);
                let reason = Reason::Deadline;
                shed.push(Shed { ticket, reason });
            } else {
                self.reach_limit(ticket, ledger, now, shed);
            }
        }
        self.sweep(ledger);
    }

    /// Shed one whose limit has come, unless the minimum protects it as yet.
    fn reach_limit<R>(
        &mut self,
        ticket: Ticket,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) {
        let line = self.line(ledger.place(ticket.slot).line);
        if line.len() <= self.limits.min {
            self.spared.push(ticket);
            return;
        }
        self.unlink(ticket.slot, ledger, now, shed);
        let reason = Reason::Standing;
        shed.push(Shed { ticket, reason });
    }

    fn line(&self, name: u32) -> &Line {
        match &self.shape {
            Shape::Single(line) => line,
            Shape::Fair(fair) => fair.line(name),
        }
    }

    fn unlink<R>(&mut self, slot: u32, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        let limits = self.limits;
        self.with(ledger, now, shed, |shape, step| match shape {
            Shape::Single(line) => line.unlink(slot, step.ledger),
            Shape::Fair(fair) => fair.unlink(slot, limits, step),
        });
    }

    #[inline(always)]
    fn with<R, T>(
        &mut self,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
        work: impl FnOnce(&mut Shape, &mut Step<'_, R>) -> T,
    ) -> T {
        let mut step = Step {
            ledger: &mut *ledger,
            limits: Deadlines(&mut self.expiry),
            now,
            shed,
        };
        let result = work(&mut self.shape, &mut step);
        self.sweep(ledger);
        result
    }

    #[inline]
    fn sweep<R>(&mut self, ledger: &Ledger<R>) {
        if self.expiry.is_empty() {
            return;
        }
        let alive = self.len();
        self.expiry.sweep(alive, |_, ticket| waits(ledger, ticket));
    }

    /// Everybody, oldest first, out of their lines.
    fn clear<R>(&mut self, ledger: &mut Ledger<R>) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.len());
        match &mut self.shape {
            Shape::Single(line) => line.clear(ledger, |slot| slots.push(slot)),
            Shape::Fair(fair) => {
                fair.clear(ledger, |slot| slots.push(slot));
                slots.sort_by_key(|slot| (ledger.place(*slot).sent, ledger.ticket(*slot).serial));
            }
        }
        slots
    }

    /// Move everybody into the lines that the options ask for.
    fn reshape<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        let slots = self.clear(ledger);
        self.shape = Shape::new(&self.options, now);
        let limits = self.limits;
        self.with(ledger, now, shed, |shape, step| match shape {
            Shape::Single(line) => slots.iter().for_each(|slot| line.link(*slot, step.ledger)),
            Shape::Fair(fair) => slots
                .iter()
                .for_each(|slot| fair.adopt(*slot, limits, step)),
        });
    }

    /// Another law settles other limits: askers' own deadlines stay, and a
    /// standing queue gives those who wait already the longer limit.
    fn rebuild_expiry<R>(&mut self, ledger: &Ledger<R>) {
        let limit = match self.options.shedding {
            Shedding::Standing { interval, .. } => nanos(interval),
            _ => u64::MAX,
        };
        let Self { shape, expiry, .. } = self;
        self.spared.clear();
        expiry.clear();
        shape.each(ledger, |slot| {
            let (place, ticket) = (ledger.place(slot), ledger.ticket(slot));
            expiry.push(place.deadline, ticket);
            if place.sent.after(limit) != place.deadline {
                expiry.push(place.sent.after(limit), ticket);
            }
        });
    }

    /// About the time that those who wait will take, and one more.
    fn retry_after(&self) -> Duration {
        let patience = match self.options.shedding {
            Shedding::Never => Duration::from_secs(1),
            Shedding::Timeout { wait_max } => wait_max,
            Shedding::CoDel { interval, .. }
            | Shedding::BoundedCoDel { interval, .. }
            | Shedding::MinDelay { interval, .. }
            | Shedding::Standing { interval, .. } => interval,
        };
        let patience = patience.min(PATIENCE_MAX);
        let Some(gap) = self.pace.gap else {
            return patience;
        };
        let waiting = u64::try_from(self.len()).expect("a length fits") + 1;
        Duration::from_nanos(gap.saturating_mul(waiting)).min(patience.saturating_mul(8))
    }
}

impl Shape {
    fn new(options: &Options, now: Instant) -> Self {
        match &options.fair {
            None => Self::Single(Line::new(ONLY, &options.shedding, now)),
            Some(fair) => Self::Fair(Box::new(Fair::new(fair, &options.shedding))),
        }
    }

    /// Look at everybody, line by line.
    fn each<R>(&self, ledger: &Ledger<R>, mut look: impl FnMut(u32)) {
        match self {
            Self::Single(line) => line.each(ledger, look),
            Self::Fair(fair) => fair.lines().for_each(|line| line.each(ledger, &mut look)),
        }
    }
}

impl Deadlines<'_> {
    fn push(&mut self, due: Instant, ticket: Ticket) {
        self.0.push(due, ticket);
    }
}

impl Pace {
    fn serve(&mut self, now: Instant) {
        let gap = now.nanos_since(self.last);
        self.last = now;
        self.gap = Some(
            self.gap
                .map_or(gap, |average| average - average / 8 + gap / 8),
        );
    }
}

#[inline(always)]
fn take<R>(line: &mut Line, order: Order, min: u32, step: &mut Step<'_, R>) -> Option<u32> {
    let newest_first = match order {
        Order::Fifo => false,
        Order::Lifo => true,
        Order::Adaptive { slow } => line
            .oldest(step.ledger)
            .is_some_and(|sent| sent + slow <= step.now),
    };
    if newest_first {
        line.pop_newest(min, step)
    } else {
        line.pop_oldest(min, step)
    }
}

fn waits<R>(ledger: &Ledger<R>, ticket: Ticket) -> bool {
    ledger.is_open(ticket) && ledger.place(ticket.slot).line != NONE
}
