//! The waiting queue in front of everything scarce.
//!
//! A queue orders the asks that wait, limits how many they are, and lets a law
//! decide which it sheds. It answers none: its owner closes the tickets it
//! gives up.

mod codel;
mod custom;
mod expire;
mod fair;
mod law;
mod line;
mod list;
mod min_delay;
mod newest;
mod options;
mod pace;
mod paced;
mod refuse;
mod standing;

use crate::expiry::Expiry;
use crate::ids::{Flow, Tag, Ticket};
use crate::ledger::{Ledger, NONE};
use crate::refusal::Reason;
use crate::settings::OptionError;
use crate::time::Instant;
use fair::Fair;
use line::{Limits, Line};
use pace::Pace;

pub use custom::CustomLaw;
pub use options::{Fair as FairOptions, Index, KINDS, ORDERS, Options, Order, Overflow, Shedding};
pub use pace::{Capacity, Load};

/// On what terms an ask waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskOptions {
    /// When the asker says it asked; never later than the machine's `now`.
    pub sent: Instant,
    /// When the asker gives up.
    pub deadline: Option<Instant>,
    /// The flow that it belongs to in a fair queue.
    pub flow: Flow,
    /// A tag by which it can be cancelled, besides its ticket.
    pub tag: Option<Tag>,
    /// Wait if nothing is there at once.
    pub wait: bool,
    /// The asker named its wait: a law that keeps promises lets it wait until
    /// its deadline.
    pub promised: bool,
}

/// The next ask to serve, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This one's. The ticket stays open.
    Of(Ticket),
    /// No ask waits.
    Empty,
    /// One call has ended its limit of waits, and more have to end: keep
    /// what is there to give, and call again.
    More,
}

/// An ask that the queue has let go. The ticket is still open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shed {
    /// Which ask.
    pub ticket: Ticket,
    /// Why.
    pub reason: Reason,
}

/// Which asks wait, in which order, and which are let go.
///
/// Invariant: every ticket in the queue is open in its ledger, and stands in
/// exactly one line.
#[derive(Debug)]
#[repr(C)]
pub struct Queue {
    shape: Shape,
    limits: Limits,
    order: Order,
    /// How many more waits the present call may end.
    left: u32,
    /// When a call ended its limit of waits, unless one ended fewer since.
    behind: Instant,
    /// The last instant that a refused asker was told to come again.
    booked: Instant,
    /// Deadlines of askers and of laws that settle a limit at arrival.
    expiry: Expiry<Ticket>,
    options: Box<Options>,
}

#[derive(Debug)]
enum Shape {
    Single(Line),
    Fair(Box<Fair>),
}

/// The state that one operation works with.
pub(crate) struct Step<'a, R> {
    ledger: &'a mut Ledger<R>,
    limits: Deadlines<'a>,
    now: Instant,
    shed: &'a mut Vec<Shed>,
    left: &'a mut u32,
}

/// Where a law puts the limit of an entry.
pub(crate) struct Deadlines<'a>(&'a mut Expiry<Ticket>);

/// One call ends at most this many waits by deadline or law, so that no call
/// takes long.
pub const ENDS_MAX: u32 = 1024;

/// The name of the only line of a queue that is not fair.
const ONLY: u32 = 0;

impl AskOptions {
    /// Ask at `sent` and wait as long as the queue lets one.
    pub const fn new(sent: Instant) -> Self {
        Self {
            sent,
            deadline: None,
            flow: Flow(0),
            tag: None,
            wait: true,
            promised: false,
        }
    }
}

impl Turn {
    /// The ticket, if it is the turn of one.
    pub fn ticket(self) -> Option<Ticket> {
        match self {
            Self::Of(ticket) => Some(ticket),
            Self::Empty | Self::More => None,
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
            left: 0,
            behind: Instant::NEVER,
            booked: Instant::START,
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

    /// No ask waits.
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

    /// When the oldest of the waiting asks was sent.
    pub fn oldest(&self) -> Option<Instant> {
        match &self.shape {
            Shape::Single(line) => line.oldest(),
            Shape::Fair(fair) => fair.oldest(),
        }
    }

    /// The queue is overloaded as its law sees it.
    pub fn is_shedding(&self, now: Instant) -> bool {
        match &self.shape {
            Shape::Single(line) => line.sheds_from(&self.limits) <= now,
            Shape::Fair(fair) => fair.is_shedding(now),
        }
    }

    /// The last call ended its limit of waits, and more have to
    /// be: the queue is due at once.
    pub fn is_behind(&self) -> bool {
        self.behind != Instant::NEVER
    }

    /// When the queue has to be advanced next.
    #[inline(always)]
    pub fn deadline(&self) -> Option<Instant> {
        let due = match &self.shape {
            Shape::Single(line) => line.due(&self.limits),
            Shape::Fair(fair) => fair.due(),
        };
        due.min(self.expiry.first()).min(self.behind).finite()
    }

    /// The mean span between two that were served after a wait, in nanoseconds.
    pub(crate) fn gap(&self) -> Option<u64> {
        self.shape.pace().gap()
    }

    /// The load that the machine has reported.
    pub fn load(&self) -> Load {
        self.limits.load
    }

    /// The place says how many it can serve at once, and how long holders hold.
    #[inline]
    pub fn bear(&mut self, load: Load) {
        self.limits.bear(load);
    }

    /// How many may wait now.
    pub fn max(&self) -> Option<u32> {
        (self.limits.max < u32::MAX).then_some(self.limits.max)
    }

    /// Let an open ticket wait, or shed it if it must not.
    #[inline(always)]
    pub fn push<R>(
        &mut self,
        ticket: Ticket,
        terms: &AskOptions,
        ledger: &mut Ledger<R>,
        now: Instant,
        shed: &mut Vec<Shed>,
    ) {
        self.begin();
        let deadline = self.deadline_of(terms, now);
        let place = ledger.place_mut(ticket.slot);
        (place.sent, place.deadline, place.flow) = (terms.sent, deadline, terms.flow);
        place.promised = terms.promised;
        self.expire(ledger, now, shed);
        if self.is_empty() {
            self.booked = Instant::START;
        }
        if deadline <= now {
            let reason = Self::late_reason(terms.promised);
            shed.push(Shed { ticket, reason });
            self.settle(ledger, now, shed);
            return self.finish(now);
        }
        self.expiry.push(deadline, ticket);
        self.with(ledger, now, shed, |shape, limits, step| match shape {
            Shape::Single(line) => line.push(ticket.slot, limits, step),
            Shape::Fair(fair) => fair.push(ticket.slot, limits, step),
        });
        // A law may settle a limit that has come already.
        self.expire(ledger, now, shed);
        self.finish(now);
    }

    /// Take the one whose turn it is. The ticket stays open.
    #[inline(always)]
    pub fn pop<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) -> Turn {
        self.begin();
        self.expire(ledger, now, shed);
        let mut taken = None;
        if self.left > 0 {
            let order = self.order;
            taken = self.with(ledger, now, shed, |shape, limits, step| match shape {
                Shape::Single(line) => line.pop(order, limits, step),
                Shape::Fair(fair) => fair.pop(order, limits, step),
            });
        }
        self.finish(now);
        match taken {
            Some(taken) => Turn::Of(ledger.ticket(taken)),
            None if self.is_behind() => Turn::More,
            None => Turn::Empty,
        }
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

    /// More waits have to be ended than a call may: the queue is due at once.
    pub(crate) fn fall_behind(&mut self, now: Instant) {
        self.behind = now;
    }

    /// Let an ask wait again that was taken and could not be served. The law is
    /// not asked, and no ask is shed for it.
    pub(crate) fn put_back<R>(&mut self, ticket: Ticket, ledger: &mut Ledger<R>, now: Instant) {
        self.expiry.push(ledger.place(ticket.slot).deadline, ticket);
        self.with(
            ledger,
            now,
            &mut Vec::new(),
            |shape, limits, step| match shape {
                Shape::Single(line) => line.link(ticket.slot, step.ledger),
                Shape::Fair(fair) => fair.adopt(ticket.slot, limits, step),
            },
        );
    }

    /// Take one out of turn because it is served. The ticket stays open. False
    /// if it does not wait.
    pub(crate) fn pick<R>(&mut self, ticket: Ticket, ledger: &mut Ledger<R>, now: Instant) -> bool {
        let waited = waits(ledger, ticket);
        if waited {
            let place = ledger.place(ticket.slot);
            self.shape.serve(place.line, place.sent, now);
        }
        self.withdraw(ticket, ledger, now)
    }

    /// Shed the asks that deadlines and the law want gone by now, or as many as
    /// one call may. If there are more, the queue is due at once.
    pub fn advance<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        self.begin();
        self.expire(ledger, now, shed);
        self.settle(ledger, now, shed);
        self.finish(now);
    }

    /// Let every ask go.
    pub fn close<R>(&mut self, ledger: &mut Ledger<R>, shed: &mut Vec<Shed>) {
        for slot in self.clear(ledger) {
            let ticket = ledger.ticket(slot);
            shed.push(Shed {
                ticket,
                reason: Reason::Closed,
            });
        }
        self.expiry.clear();
        self.behind = Instant::NEVER;
    }

    /// Change everything at once. All asks that wait keep their places, but
    /// those for which there is no room any more.
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
        self.begin();
        let load = self.limits.load;
        self.limits = Limits {
            flows: self.limits.flows,
            ..Limits::of(&options)
        };
        self.limits.bear(load);
        self.order = options.order;
        let (old, shedding) = (
            std::mem::replace(&mut *self.options, options),
            self.options.shedding.clone(),
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
        let fair_options = self.options.fair.clone();
        self.with(ledger, now, shed, |shape, limits, step| {
            match (shape, fair_options) {
                (Shape::Fair(fair), Some(new)) => fair.adopt_law(&new, &shedding, limits, step),
                (Shape::Single(line), _) => {
                    line.reconfigure(&shedding, step.ledger, step.now);
                    line.release_spared(limits.min, step);
                }
                (Shape::Fair(_), None) => unreachable!("the shape follows the options"),
            }
        });
        self.expire(ledger, now, shed);
        self.with(ledger, now, shed, |shape, limits, step| match shape {
            Shape::Fair(fair) => fair.fit(limits, step),
            Shape::Single(line) => line.fit(limits, step),
        });
        self.advance(ledger, now, shed);
        Ok(())
    }

    /// As [`remove`](Self::remove), but no ask is shed for it yet: the queue
    /// has to be advanced once all that leave together have left.
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

    /// A call begins.
    #[inline(always)]
    fn begin(&mut self) {
        (self.left, self.behind) = (ENDS_MAX, Instant::NEVER);
        if let Shape::Fair(fair) = &self.shape {
            self.limits.flows = u32::try_from(fair.active()).unwrap_or(u32::MAX);
        }
    }

    /// A call ends. If it could end no more waits, more may have to be.
    #[inline(always)]
    fn finish(&mut self, now: Instant) {
        if self.left == 0 {
            self.behind = now;
        }
    }

    /// When an ask that comes now gives up. A promise may have a cap.
    #[inline(always)]
    fn deadline_of(&self, terms: &AskOptions, now: Instant) -> Instant {
        let deadline = terms.deadline.unwrap_or(Instant::NEVER);
        match self.options.shedding {
            Shedding::Paced {
                wait_cap: Some(cap),
            } if terms.promised => deadline.min(now + cap),
            _ => deadline,
        }
    }

    fn settle<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        self.with(ledger, now, shed, |shape, limits, step| match shape {
            Shape::Single(line) => line.settle(limits.min, limits, step),
            Shape::Fair(fair) => fair.settle(limits, step),
        });
    }

    fn unlink<R>(&mut self, slot: u32, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        self.with(ledger, now, shed, |shape, limits, step| match shape {
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
        work: impl FnOnce(&mut Shape, &Limits, &mut Step<'_, R>) -> T,
    ) -> T {
        let mut step = Step {
            ledger: &mut *ledger,
            limits: Deadlines(&mut self.expiry),
            now,
            shed,
            left: &mut self.left,
        };
        let result = work(&mut self.shape, &self.limits, &mut step);
        self.sweep(ledger);
        result
    }

    /// All entries, oldest first, out of their lines.
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

    /// Move all entries into the lines that the options ask for.
    fn reshape<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        // Their limits have come, whatever line they will stand in.
        let stands = matches!(self.options.shedding, Shedding::Standing { .. });
        let Self { shape, expiry, .. } = self;
        shape.take_spared(|ticket| {
            if stands {
                expiry.push(now, ticket);
            }
        });
        let slots = self.clear(ledger);
        self.shape = Shape::new(&self.options, now);
        self.with(ledger, now, shed, |shape, limits, step| match shape {
            Shape::Single(line) => slots.iter().for_each(|slot| line.link(*slot, step.ledger)),
            Shape::Fair(fair) => slots
                .iter()
                .for_each(|slot| fair.adopt(*slot, limits, step)),
        });
    }
}

impl Shape {
    fn new(options: &Options, now: Instant) -> Self {
        match &options.fair {
            None => Self::Single(Line::new(ONLY, &options.shedding, now)),
            Some(fair) => Self::Fair(Box::new(Fair::new(fair, &options.shedding, now))),
        }
    }

    fn pace(&self) -> &Pace {
        match self {
            Self::Single(line) => &line.pace,
            Self::Fair(fair) => &fair.pace,
        }
    }

    fn take_spared(&mut self, each: impl FnMut(Ticket)) {
        match self {
            Self::Single(line) => line.take_spared(each),
            Self::Fair(fair) => fair.take_spared(each),
        }
    }

    /// One of this line is served out of turn.
    fn serve(&mut self, line: u32, sent: Instant, now: Instant) {
        match self {
            Self::Single(line) => line.pace.serve(sent, now),
            Self::Fair(fair) => fair.serve(line, sent, now),
        }
    }

    /// How long the law lets asks wait that it protects no more.
    fn bound(&self, limits: &Limits) -> u64 {
        match self {
            Self::Single(line) => line.bound(limits),
            Self::Fair(_) => paced::calm_bound(limits.load.hold_nanos()),
        }
    }

    /// Look at all entries, line by line.
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

fn waits<R>(ledger: &Ledger<R>, ticket: Ticket) -> bool {
    ledger.is_open(ticket) && ledger.place(ticket.slot).line != NONE
}
