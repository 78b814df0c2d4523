//! Lets asks wait that want more units of a key than there are just now.
//!
//! The units of a key are counted in a word ([`Count`]) that many threads
//! change without a lock: a caller that finds room takes, and a holder that has
//! finished subtracts. Only asks that wait need a machine. It has one rule for
//! them: asks that want equally many units and see the same capacity wait in
//! one line, a queue with its law; among lines, the older goes first; and a
//! line that does not fit is passed only by lines that see a larger capacity.
//!
//! No wake-up is lost, and no ask is overtaken, because the word also has a
//! mark that says that an ask waits. A release that sees the mark in the very
//! step that subtracts comes to [`Lines::released`], and a caller that would
//! take and sees it comes to [`Lines::take`] or [`Lines::ask`]. A caller that
//! finds no room sets the mark *and then looks once more* before it waits. All
//! changes of one word have one order, so a release came either before the
//! mark, and then that second look sees what it gave back, or after it, and
//! then it saw the mark and comes here. The mark stays until the last ask that
//! waits has gone.
//!
//! While it is set, only the machine takes, and others can only give back. So
//! the number held may fall between two looks but never rises, and an ask that
//! was seen to fit still does when it is served. What fell in between is not
//! missed: its release is on its way here.

mod claim;
mod effect;
mod explain;
mod line;
mod order;

use std::time::Duration;

use crate::ids::{Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::machine::Machine;
use crate::queue::{self, AskOptions, Queue};
use crate::refusal::{Reason, Refusal};
use crate::settings::OptionError;
use crate::time::Instant;
use crate::waiting::{End, Waiting};
use line::Line;

pub use self::claim::{Capacity, Claim, Full, Grant};
pub use self::effect::Effect;
pub use crate::waiting::Tally;

/// How many lines may be waited in at once; an ask that would need one more is
/// refused.
pub const LINES_MAX: usize = 64;

/// How many lines keep their place, and what their law has learnt, though they
/// are empty and another would need one.
const LINES_KEPT: usize = 4;

/// A ticket's serial says where it is from: an ask without a queue, nowhere, or a queue.
const STRIDE: u64 = FIRST_LINE + LINES_MAX as u64;
const FIRST_LINE: u64 = 2;

/// Where the units of a key are counted.
///
/// Others may give units back between any two calls. Whether they find the
/// mark, and what `take` finds, must have one order: both are one word.
pub trait Count {
    /// The units that a grant hands to its holder.
    type Units;

    /// How many units are held.
    fn held(&self) -> u64;

    /// Count the units of a claim, exactly if they fit at that moment.
    ///
    /// # Errors
    ///
    /// If they did not.
    fn take(&mut self, claim: Claim) -> Result<(Grant, Self::Units), Full>;

    /// An ask waits from now on, or none does any more. While one does, every
    /// release has to come to [`Lines::released`], and a caller may take only
    /// through the lines.
    fn mark_waiting(&mut self, waiting: bool);
}

/// A snapshot of the numbers of the asks that wait for a key.
#[derive(Clone, Debug)]
pub struct Stats {
    /// How many wait.
    pub len: usize,
    /// In how many lines.
    pub lines: usize,
    /// How many units are held.
    pub held: u64,
    /// How long the oldest waiting ask has waited.
    pub oldest_waited: Duration,
    /// What became of the asks. Units that were taken without asking are not
    /// among them.
    pub asks: Tally,
}

/// The asks that wait for units of one key.
///
/// The queue's options hold for each line alone. A line that empties keeps its
/// law and its place for the next ask with the same claim, until another claim
/// needs the place. If the oldest of two lines asked in the same instant, the
/// line in which an ask waited first goes first.
///
/// An ask that is gone is passed over on its turn and gets no units; until it
/// is cancelled, or its turn comes, it stands where it stood.
///
/// Invariants: the count is marked exactly while an ask waits; no two lines
/// have the same claim; a claim that can never fit waits in none.
#[derive(Debug)]
pub struct Lines<C, R> {
    count: C,
    marked: bool,
    /// At most [`LINES_MAX`].
    lines: Vec<Line<R>>,
    /// How often a line ceased to be empty.
    turns: u64,
    /// Counts the asks that come to no line. No ask waits in it.
    unqueued: Waiting<R>,
    /// Tickets of the asks that were granted units as they came.
    passed: Ledger<R>,
    /// Outcomes of asks whose queue was removed.
    past: Tally,
    closed: bool,
}

impl<C: Count, R: Reply> Lines<C, R> {
    /// No ask waits yet for what `count` counts.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(options: &queue::Options, count: C, now: Instant) -> Result<Self, OptionError> {
        let queue = Queue::new(options.clone(), now)?;
        Ok(Self {
            count,
            marked: false,
            lines: Vec::new(),
            turns: 0,
            unqueued: Waiting::new(queue, Ledger::new(1, STRIDE)),
            passed: Ledger::new(2, STRIDE),
            past: Tally::default(),
            closed: false,
        })
    }

    /// A caller wants units, and waits for them if it must and its terms say
    /// so. What can never fit is refused at once, and so is an ask that would
    /// need one line too many.
    pub fn ask(
        &mut self,
        claim: Claim,
        terms: &AskOptions,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Ticket {
        let seen = self.settle(now, effects);
        let ticket = if self.closed {
            self.turn_away(claim, terms, reply, Reason::Closed, now, effects)
        } else if reply.is_gone() {
            self.unqueued.pass_holding(reply, now).0
        } else if !claim.is_possible() {
            self.turn_away(claim, terms, reply, Reason::Excess, now, effects)
        } else if let Some(taken) = self.take_at_once(claim, terms, seen) {
            self.pass(taken, terms, reply, now, effects)
        } else if !terms.wait {
            self.turn_away(claim, terms, reply, Reason::Busy, now, effects)
        } else {
            self.join(claim, terms, reply, now, effects)
        };
        self.finish(effects);
        ticket
    }

    /// Take units for a caller that never waits and found the count marked:
    /// exactly if they fit once all asks that may have theirs were served. It
    /// may pass asks that do not fit themselves.
    ///
    /// # Errors
    ///
    /// If they do not fit.
    pub fn take(
        &mut self,
        claim: Claim,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Result<(Grant, C::Units), Full> {
        self.settle(now, effects);
        let taken = self.count.take(claim);
        self.finish(effects);
        taken
    }

    /// Units came back, and the count knows it already.
    pub fn released(&mut self, now: Instant, effects: &mut Vec<Effect<C::Units, R>>) {
        self.settle(now, effects);
        self.finish(effects);
    }

    /// The ask with this ticket is not to wait any longer. The refusal is for
    /// one that did not ask for this itself. None if it does not wait: it has
    /// been answered, and what it may have been granted it keeps.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Option<(R, Refusal)> {
        let line = self.line_of(ticket);
        let gone = line.and_then(|line| line.waiting.cancel(ticket, now));
        self.settle(now, effects);
        self.finish(effects);
        gone
    }

    /// Cancel all that wait with this tag, before any ask is granted anything.
    pub fn cancel_tag(
        &mut self,
        tag: Tag,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Vec<(R, Refusal)> {
        let mut gone = Vec::new();
        for Line { waiting, .. } in &mut self.lines {
            while let Some(ticket) = waiting.newest(tag) {
                gone.extend(waiting.cancel(ticket, now));
            }
        }
        self.settle(now, effects);
        self.finish(effects);
        gone
    }

    /// Answer all asks that wait, and from now on let no caller ask. Units stay
    /// with their holders until they give them back.
    pub fn close(&mut self, now: Instant, effects: &mut Vec<Effect<C::Units, R>>) {
        self.closed = true;
        self.lines
            .iter_mut()
            .for_each(|line| line.waiting.close(now));
        self.finish(effects);
    }

    /// Change the queues of all lines. All asks that wait keep their places.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        options: &queue::Options,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Result<(), OptionError> {
        options.validate()?;
        let lines = self.lines.iter_mut().map(|line| &mut line.waiting);
        for waiting in lines.chain([&mut self.unqueued]) {
            waiting.reconfigure(options.clone(), now);
        }
        self.settle(now, effects);
        self.finish(effects);
        Ok(())
    }

    /// How the queue of each line is set up.
    pub fn options(&self) -> &queue::Options {
        self.unqueued.queue().options()
    }

    /// Where the units are counted.
    pub fn count(&self) -> &C {
        &self.count
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lines.iter().map(|line| line.waiting.len()).sum()
    }

    /// No ask waits.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(Line::is_empty)
    }

    /// How to answer an ask that waits, to change.
    pub fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.line_of(ticket)?.waiting.reply_mut(ticket)
    }

    /// The numbers of the asks that wait.
    pub fn stats(&self, now: Instant) -> Stats {
        let oldest = self.lines.iter().filter_map(Line::age).min();
        Stats {
            len: self.len(),
            lines: self.lines.iter().filter(|line| !line.is_empty()).count(),
            held: self.count.held(),
            oldest_waited: oldest.map_or(Duration::ZERO, |(sent, _)| now.since(sent)),
            asks: self.tally(),
        }
    }

    /// Why asks wait, why the last were shed and what would help, in plain
    /// words.
    pub fn explain(&self, now: Instant) -> String {
        let held = self.count.held();
        explain::explain(&self.lines, &self.unqueued, held, self.closed, now)
    }

    fn tally(&self) -> Tally {
        let mut tally = self.past.clone();
        tally.add(self.unqueued.tally());
        let lines = self.lines.iter().map(|line| line.waiting.tally());
        lines.for_each(|line| tally.add(line));
        tally
    }

    /// The line that a ticket is from.
    fn line_of(&mut self, ticket: Ticket) -> Option<&mut Line<R>> {
        let place = ((ticket.serial() - 1) % STRIDE).checked_sub(FIRST_LINE)?;
        self.lines.get_mut(usize::try_from(place).ok()?)
    }

    /// Shed the asks that deadlines and laws want gone, and then serve those
    /// that this and the count let through. See [`serve`](Self::serve).
    fn settle(&mut self, now: Instant, effects: &mut Vec<Effect<C::Units, R>>) -> Option<u64> {
        let waited_in = self.lines.iter_mut().filter(|line| !line.is_empty());
        waited_in.for_each(|line| line.waiting.advance(now));
        self.serve(now, effects)
    }

    /// Grant units until no ask is left that may have any. Says how many were
    /// held when that was seen; none if no ask waits.
    fn serve(&mut self, now: Instant, effects: &mut Vec<Effect<C::Units, R>>) -> Option<u64> {
        self.tell_ended(effects);
        while !self.is_empty() {
            let held = self.count.held();
            let Some(at) = order::next(&self.lines, held) else {
                return Some(held);
            };
            let line = &mut self.lines[at];
            let Some((ticket, sent, reply)) = line.waiting.serve(now) else {
                // The law let none of them through, or they were gone.
                let is_behind = line.waiting.is_behind();
                self.tell_ended(effects);
                if is_behind {
                    return Some(held);
                }
                continue;
            };
            let taken = self.count.take(line.claim());
            let (grant, units) = taken.expect("while an ask waits, the number held only falls");
            let waited = line.waiting.count_served(sent, now);
            line.tell_load();
            self.tell_ended(effects);
            effects.push(Effect::Grant {
                ticket,
                reply,
                grant,
                units,
                waited,
            });
        }
        None
    }

    /// Take units for an ask that came just now, if it may have them. If it
    /// means to wait else, the count is marked before the last look.
    fn take_at_once(
        &mut self,
        claim: Claim,
        terms: &AskOptions,
        seen: Option<u64>,
    ) -> Option<(Grant, C::Units)> {
        if !self.may_take(claim, terms.sent, seen) {
            return None;
        }
        match self.count.take(claim) {
            Ok(taken) => Some(taken),
            Err(_) if terms.wait && !self.marked => {
                self.mark(true);
                self.count.take(claim).ok()
            }
            Err(_) => None,
        }
    }

    /// No ask that waits goes before one that was sent at `sent`, as things
    /// were when `seen` were held.
    fn may_take(&self, claim: Claim, sent: Instant, seen: Option<u64>) -> bool {
        // No ask waits, and the count decides; or else what came back since
        // then is for the ask that is next when its release comes here.
        let fitted = seen.is_none_or(|held| claim.fits(held));
        fitted && order::may_pass(&self.lines, claim, sent)
    }

    /// Say yes to one that came just now.
    fn pass(
        &mut self,
        (grant, units): (Grant, C::Units),
        terms: &AskOptions,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Ticket {
        let ticket = self.passed.pass();
        effects.push(Effect::Grant {
            ticket,
            reply,
            grant,
            units,
            waited: self.unqueued.count_passed(terms.sent, now),
        });
        ticket
    }

    /// Let one wait that came just now.
    fn join(
        &mut self,
        claim: Claim,
        terms: &AskOptions,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Ticket {
        let Some(at) = self.place_for(claim, now) else {
            return self.turn_away(claim, terms, reply, Reason::Full, now, effects);
        };
        self.turns += 1;
        let ticket = self.lines[at].join(terms, reply, self.turns, now);
        // If the oldest had to make room for it, another may be next.
        self.serve(now, effects);
        ticket
    }

    /// Say no to one that came just now.
    fn turn_away(
        &mut self,
        claim: Claim,
        terms: &AskOptions,
        reply: R,
        reason: Reason,
        now: Instant,
        effects: &mut Vec<Effect<C::Units, R>>,
    ) -> Ticket {
        let len = self.len();
        let own = self.lines.iter_mut().find(|line| line.claim() == claim);
        let waiting = own.map_or(&mut self.unqueued, |line| &mut line.waiting);
        let (ticket, mut refusal) = waiting.refuse(terms, reason, now);
        refusal.len = len;
        if reason == Reason::Excess {
            // There is no better time.
            refusal.retry_after = Duration::ZERO;
        }
        effects.push(Effect::Shed {
            ticket,
            reply,
            refusal,
        });
        ticket
    }

    /// The place of the line for a claim: its own, or that of an empty one, or
    /// a new one. None if there are too many.
    fn place_for(&mut self, claim: Claim, now: Instant) -> Option<usize> {
        let own = self.lines.iter().position(|line| line.claim() == claim);
        if own.is_some() {
            return own;
        }
        let places = self.lines.len();
        let empty = self.lines.iter().position(Line::is_empty);
        if let Some(at) = empty.filter(|_| places >= LINES_KEPT) {
            self.past.add(&self.lines[at].give_to(claim, now));
            return Some(at);
        }
        if places >= LINES_MAX {
            return None;
        }
        let first = 1 + FIRST_LINE + places as u64;
        let options = self.unqueued.queue().options();
        let line = Line::new(claim, (first, STRIDE), options, now);
        self.lines.push(line);
        Some(places)
    }

    /// Say which asks were let go.
    fn tell_ended(&mut self, effects: &mut Vec<Effect<C::Units, R>>) {
        let lines = self.lines.iter_mut().map(|line| &mut line.waiting);
        let ended = lines.chain([&mut self.unqueued]).flat_map(Waiting::ended);
        effects.extend(ended.map(|end| match end {
            End::Shed {
                ticket,
                reply,
                refusal,
            } => Effect::Shed {
                ticket,
                reply,
                refusal,
            },
            End::Gone(reply) => Effect::Forget(reply),
        }));
    }

    fn mark(&mut self, waiting: bool) {
        if self.marked != waiting {
            self.marked = waiting;
            self.count.mark_waiting(waiting);
        }
    }

    /// The work after every input.
    fn finish(&mut self, effects: &mut Vec<Effect<C::Units, R>>) {
        self.tell_ended(effects);
        self.mark(!self.is_empty());
        self.check();
    }

    fn check(&self) {
        debug_assert!(self.lines.len() <= LINES_MAX, "lines are limited");
        debug_assert_eq!(self.unqueued.open(), 0, "an unqueued ask does not wait");
        for (at, line) in self.lines.iter().enumerate() {
            debug_assert_eq!(
                line.waiting.open(),
                line.waiting.len(),
                "an ask with a ticket waits"
            );
            debug_assert!(line.claim().is_possible(), "no ask waits for ever");
            let others = &self.lines[at + 1..];
            debug_assert!(
                others.iter().all(|other| other.claim() != line.claim()),
                "equal claims wait in one queue"
            );
        }
        debug_assert!(
            {
                let tally = self.tally();
                let answered = tally.served + tally.cancelled + tally.shed_total();
                tally.came == answered + self.len() as u64
            },
            "every ask has one end"
        );
    }
}

impl<C: Count, R: Reply> Machine for Lines<C, R> {
    type Effect = Effect<C::Units, R>;

    fn deadline(&self) -> Option<Instant> {
        let waited_in = self.lines.iter().filter(|line| !line.is_empty());
        waited_in.filter_map(|line| line.waiting.deadline()).min()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect<C::Units, R>>) {
        self.settle(now, effects);
        self.finish(effects);
    }
}
