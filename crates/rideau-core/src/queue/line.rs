//! One line of waiting asks, oldest to newest, and the law over it.
//!
//! The line links entries and asks its law; it does no arithmetic on waits. The
//! law always sheds from the oldest end, whatever end is served. A line whose
//! law keeps promises has the asks that were promised their wait in a list of
//! their own.

use super::codel::{Progress, Verdict};
use super::law::{Law, expired, law_spans};
use super::list::List;
use super::options::{Options, Order, Overflow, Shedding};
use super::pace::{Capacity, Load, Pace};
use super::paced;
use super::{Shed, Step, waits};
use crate::ids::Ticket;
use crate::ledger::{Ledger, NONE};
use crate::refusal::Reason;
use crate::time::Instant;

/// With `max=auto` this many may wait for each that is served at a time,
const FITS_PER: u32 = 64;
/// but this many at least and at most.
const FITS_MIN: u32 = 1_000;
const FITS_MAX: u32 = 10_000;

/// Limits of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// `max` follows from the load.
    pub(crate) fits: bool,
    pub(crate) overflow: Overflow,
    /// The load that the machine has reported.
    pub(crate) load: Load,
    /// How many lines share what the law protects.
    pub(crate) flows: u32,
}

/// Invariant: `len` entries are linked in both lists together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Line {
    /// How the entries name this line.
    name: u32,
    pub(super) len: u32,
    /// All entries; under a law that keeps promises, those without one.
    pub(super) plain: List,
    promised: List,
    pub(crate) pace: Pace,
    pub(super) law: Law,
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            min: options.min,
            max: match options.max_fits {
                true => FITS_MIN,
                false => options.max.unwrap_or(u32::MAX),
            },
            fits: options.max_fits,
            overflow: options.overflow,
            load: Load::UNKNOWN,
            flows: 1,
        }
    }

    /// The place can bear this. No ask that waits goes for it.
    #[inline]
    pub(crate) fn bear(&mut self, load: Load) {
        self.load = load;
        if self.fits {
            self.max = match load.capacity {
                Capacity::Units(units) => FITS_PER.saturating_mul(units).clamp(FITS_MIN, FITS_MAX),
                Capacity::Starting | Capacity::Unknown => FITS_MIN,
            };
        }
    }
}

impl Line {
    pub(crate) fn new(name: u32, shedding: &Shedding, now: Instant) -> Self {
        Self {
            name,
            len: 0,
            plain: List::EMPTY,
            promised: List::EMPTY,
            pace: Pace::new(now),
            law: Law::new(shedding, now),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// When the oldest was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.oldest_sent().finite()
    }

    /// Let a newcomer in, or let an entry go if there is no room.
    #[inline(always)]
    pub(crate) fn push<R>(&mut self, slot: u32, limits: &Limits, step: &mut Step<'_, R>) {
        if self.keeps_promises() {
            self.settle(limits.min, limits, step);
        }
        if self.len >= limits.max && !self.make_room(limits, step) {
            step.shed(slot, Reason::Full);
            self.settle(limits.min, limits, step);
            return;
        }
        if self.is_hopeless(slot, step) {
            step.shed(slot, Reason::Hopeless);
            return;
        }
        let was_empty = self.len == 0;
        if was_empty {
            self.pace.begin(step.now);
        }
        self.link(slot, step.ledger);
        if let Law::Standing(standing) = &mut self.law {
            let sent = step.ledger.place(slot).sent;
            let allowed = standing.allows(was_empty, step.now);
            step.limits
                .push(sent.after(allowed), step.ledger.ticket(slot));
        }
        self.settle(limits.min, limits, step);
    }

    /// Shed the entries that the law wants gone while none is served, down to
    /// `floor`.
    #[inline(always)]
    pub(crate) fn settle<R>(&mut self, floor: u32, limits: &Limits, step: &mut Step<'_, R>) {
        if self.keeps_promises() {
            self.settle_paced(limits, step);
        } else {
            self.settle_by_age(floor, step);
        }
    }

    /// As [`settle`](Self::settle), for laws that keep no promises.
    fn settle_by_age<R>(&mut self, floor: u32, step: &mut Step<'_, R>) {
        match &self.law {
            Law::Standing(_) => return self.release_spared(floor, step),
            // The oldest may lie in another core's memory: look only if it
            // matters.
            Law::CoDel(codel) if codel.is_quiet(step.now) => return,
            _ => (),
        }
        let mut progress = Progress::default();
        while self.len > floor {
            let sent = self.plain.sent;
            if step.is_spent() {
                if let Law::MinDelay(min_delay) = &mut self.law {
                    min_delay.go_on();
                }
                return;
            }
            let verdict = match &mut self.law {
                Law::Never | Law::Standing(_) | Law::Paced(_) => Verdict::Keep,
                Law::Timeout(wait_max) => expired(sent, *wait_max, step.now),
                Law::CoDel(codel) => codel.scan(sent, &mut progress, step.now),
                Law::MinDelay(min_delay) => min_delay.scan(sent, &mut progress, step.now),
                Law::Custom(own) => own.scan(sent, step.now),
            };
            let Verdict::Shed(reason) = verdict else {
                return;
            };
            self.shed_oldest(reason, step);
        }
    }

    /// Take the one whose turn it is, if the law lets one through.
    #[inline(always)]
    pub(crate) fn pop<R>(
        &mut self,
        order: Order,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) -> Option<u32> {
        let newest_first = match order {
            Order::Fifo => false,
            Order::Lifo => true,
            Order::Adaptive { slow } => self.oldest_sent() + slow <= step.now,
        };
        let taken = if self.keeps_promises() {
            self.pop_paced(newest_first, limits, step)
        } else if newest_first {
            self.pop_newest(limits, step)
        } else {
            self.pop_oldest(limits, step)
        };
        if let Some(slot) = taken {
            self.pace.serve(step.ledger.place(slot).sent, step.now);
        }
        taken
    }

    /// Take the oldest that the law lets through.
    #[inline(always)]
    fn pop_oldest<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) -> Option<u32> {
        let mut progress = Progress::default();
        while self.plain.head != NONE {
            if step.is_spent() {
                return None;
            }
            let sent = self.plain.sent;
            let spare = self.len > limits.min;
            let verdict = match &mut self.law {
                Law::Never | Law::Standing(_) | Law::Paced(_) => Verdict::Keep,
                Law::Timeout(wait_max) if spare => expired(sent, *wait_max, step.now),
                Law::Timeout(_) => Verdict::Keep,
                Law::MinDelay(law) => law.judge(step.now.nanos_since(sent), spare, step.now),
                Law::CoDel(codel) => codel.judge(sent, spare, &mut progress, step.now),
                Law::Custom(own) => own.judge(sent, spare, step.now),
            };
            match verdict {
                Verdict::Keep => return self.take(self.plain.head, step),
                Verdict::Shed(reason) => self.shed_oldest(reason, step),
            }
        }
        if let Law::CoDel(codel) = &mut self.law {
            // Having shed the last one ends the episode as finding none does.
            codel.found_empty(step.now);
        }
        None
    }

    /// Take the newest that the law lets through.
    fn pop_newest<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) -> Option<u32> {
        match &mut self.law {
            Law::Never | Law::Standing(_) | Law::Paced(_) => (),
            Law::Timeout(_) => self.settle(limits.min, limits, step),
            Law::CoDel(_) => return self.pop_newest_by_codel(limits, step),
            Law::MinDelay(_) | Law::Custom(_) => return self.pop_newest_by_oldest(limits, step),
        }
        if step.is_spent() {
            return None;
        }
        self.take(self.plain.tail, step)
    }

    /// Take an entry out, wherever it stands.
    #[inline]
    pub(crate) fn unlink<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) {
        let place = ledger.place(slot);
        debug_assert_eq!(place.line, self.name, "it stands in this line");
        let list = if place.promised && self.keeps_promises() {
            &mut self.promised
        } else {
            &mut self.plain
        };
        list.unlink(slot, ledger);
        self.len -= 1;
    }

    /// Put an entry at the newest end, without asking the law.
    #[inline]
    pub(crate) fn link<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) {
        let list = if ledger.place(slot).promised && self.keeps_promises() {
            &mut self.promised
        } else {
            &mut self.plain
        };
        list.link(slot, self.name, ledger);
        self.len += 1;
    }

    /// When the line has to be settled next.
    #[inline(always)]
    pub(crate) fn due(&self, limits: &Limits) -> Instant {
        if self.len <= limits.min {
            return Instant::NEVER;
        }
        match &self.law {
            Law::Never | Law::Standing(_) => Instant::NEVER,
            Law::Timeout(wait_max) => self.plain.sent.after(*wait_max),
            Law::CoDel(codel) => codel.due(|| self.plain.sent),
            Law::MinDelay(min_delay) => min_delay.due(self.plain.sent),
            Law::Custom(own) => own.due(self.plain.sent),
            Law::Paced(_) if !self.may_shed(limits) => Instant::NEVER,
            Law::Paced(law) => law.due(
                self.oldest_sent(),
                self.plain.sent,
                limits.load.hold_nanos(),
            ),
        }
    }

    /// From when on the line is overloaded as its law sees it, if nothing
    /// happens.
    pub(crate) fn sheds_from(&self, limits: &Limits) -> Instant {
        let sheds = match &self.law {
            Law::Never | Law::Timeout(_) => false,
            Law::CoDel(codel) => codel.is_shedding(),
            Law::MinDelay(min_delay) => min_delay.is_shedding(),
            Law::Custom(own) => own.is_shedding(),
            Law::Standing(standing) if self.len > 0 => return standing.sheds_from(),
            Law::Paced(law) if self.is_crowded(limits) => {
                return law.lasting_from(limits.load.hold_nanos());
            }
            Law::Standing(_) | Law::Paced(_) => false,
        };
        if sheds {
            Instant::START
        } else {
            Instant::NEVER
        }
    }

    /// An emptied line is worth remembering until here.
    pub(crate) fn memory(&self, now: Instant) -> Instant {
        match &self.law {
            Law::CoDel(codel) => codel.memory(now),
            _ => now,
        }
    }

    /// How long a refused asker is kept away at least eight times over.
    pub(crate) fn bound(&self, limits: &Limits) -> u64 {
        let hold = limits.load.hold_nanos();
        match &self.law {
            Law::Paced(law) => law.bound(hold),
            _ => paced::calm_bound(hold),
        }
    }

    /// Take over a changed law, keeping what the old one knew if it is of the
    /// same kind.
    pub(crate) fn reconfigure<R>(
        &mut self,
        shedding: &Shedding,
        ledger: &mut Ledger<R>,
        now: Instant,
    ) {
        match (&mut self.law, Law::new(shedding, now)) {
            (Law::CoDel(codel), Law::CoDel(_)) => {
                let (target, interval, bound) = law_spans(shedding);
                codel.reconfigure(target, interval, bound, now);
            }
            (Law::MinDelay(min_delay), Law::MinDelay(_)) => {
                let (target, interval, _) = law_spans(shedding);
                min_delay.reconfigure(target, interval, now);
            }
            (Law::Standing(standing), Law::Standing(_)) => {
                let (target, interval, _) = law_spans(shedding);
                standing.reconfigure(target, interval);
            }
            (Law::Paced(_), Law::Paced(_)) => (),
            (Law::Custom(old), Law::Custom(new)) if old.made_by == new.made_by => (),
            (old, new) => {
                let relinks = matches!(old, Law::Paced(_)) || matches!(new, Law::Paced(_));
                let mut slots = Vec::new();
                if relinks {
                    self.clear(ledger, |slot| slots.push(slot));
                }
                self.law = new;
                slots.iter().for_each(|slot| self.link(*slot, ledger));
            }
        }
    }

    /// Let go the entries for which there is no room any more, oldest first.
    fn trim<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) {
        let surplus = self.len.saturating_sub(limits.max);
        let oldest = limits.max == 0 || limits.overflow == Overflow::Oldest;
        let mut gone = Vec::new();
        for _ in 0..surplus {
            let slot = if oldest {
                self.first(step.ledger)
            } else {
                self.last(step.ledger)
            };
            self.unlink(slot, step.ledger);
            gone.push(slot);
        }
        if !oldest {
            gone.reverse();
        }
        gone.iter().for_each(|slot| step.shed(*slot, Reason::Full));
    }

    /// Keep to changed limits.
    pub(crate) fn fit<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) {
        self.trim(limits, step);
        self.settle(limits.min, limits, step);
    }

    /// Look at all entries, the oldest of a list first.
    pub(crate) fn each<R>(&self, ledger: &Ledger<R>, mut look: impl FnMut(u32)) {
        for list in [&self.plain, &self.promised] {
            let mut slot = list.head;
            while slot != NONE {
                look(slot);
                slot = ledger.place(slot).next;
            }
        }
    }

    /// Take all entries out, oldest first.
    pub(crate) fn clear<R>(&mut self, ledger: &mut Ledger<R>, mut each: impl FnMut(u32)) {
        while self.len > 0 {
            let slot = self.first(ledger);
            self.unlink(slot, ledger);
            each(slot);
        }
    }

    /// Keep one over its limit, because the minimum protects it as yet.
    pub(crate) fn spare<R>(&mut self, ticket: Ticket, min: u32, ledger: &Ledger<R>) {
        if let Law::Standing(standing) = &mut self.law {
            standing.spare(ticket, min, |ticket| waits(ledger, ticket));
        }
    }

    /// The entries that the minimum protected, be they there or not.
    pub(crate) fn take_spared(&mut self, each: impl FnMut(Ticket)) {
        if let Law::Standing(standing) = &mut self.law {
            std::iter::from_fn(|| standing.next_spared()).for_each(each);
        }
    }

    /// Shed the entries that the minimum protects no more, in the order of
    /// their limits.
    pub(crate) fn release_spared<R>(&mut self, min: u32, step: &mut Step<'_, R>) {
        while self.len > min
            && !step.is_spent()
            && let Law::Standing(standing) = &mut self.law
            && let Some(ticket) = standing.next_spared()
        {
            if waits(step.ledger, ticket) {
                self.unlink(ticket.slot, step.ledger);
                step.shed(ticket.slot, Reason::Standing);
            }
        }
    }

    /// The law never sheds an ask that was promised its wait.
    #[inline(always)]
    fn keeps_promises(&self) -> bool {
        matches!(self.law, Law::Paced(_))
    }

    #[inline(always)]
    fn oldest_sent(&self) -> Instant {
        self.plain.sent.min(self.promised.sent)
    }

    /// The oldest; of two sent at once, the one that came first.
    fn first<R>(&self, ledger: &Ledger<R>) -> u32 {
        let serial = |slot: u32| ledger.ticket(slot).serial;
        let (plain, promised) = (&self.plain, &self.promised);
        match (plain.head, promised.head) {
            (NONE, head) | (head, NONE) => head,
            (head, _) if plain.sent < promised.sent => head,
            (_, head) if plain.sent > promised.sent => head,
            (head, other) if serial(head) < serial(other) => head,
            (_, head) => head,
        }
    }

    /// The newest; of two sent at once, the one that came last.
    fn last<R>(&self, ledger: &Ledger<R>) -> u32 {
        let age = |slot: u32| (ledger.place(slot).sent, ledger.ticket(slot).serial);
        match (self.plain.tail, self.promised.tail) {
            (NONE, tail) | (tail, NONE) => tail,
            (plain, promised) if age(plain) > age(promised) => plain,
            (_, promised) => promised,
        }
    }

    /// Let the oldest make room, if the options say so and it has no promise.
    fn make_room<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) -> bool {
        let may = limits.max > 0 && limits.overflow == Overflow::Oldest;
        let makes = may && self.plain.head != NONE;
        if makes {
            self.shed_oldest(Reason::Full, step);
        }
        makes
    }

    /// More wait than the law protects.
    fn is_crowded(&self, limits: &Limits) -> bool {
        let protected = paced::protected(&limits.load, &self.pace, limits.flows);
        self.len > protected.max(limits.min)
    }

    /// The law keeping promises might have to shed one some time.
    fn may_shed(&self, limits: &Limits) -> bool {
        self.plain.head != NONE
            && limits.load.capacity != Capacity::Starting
            && self.is_crowded(limits)
    }

    fn is_hopeless<R>(&self, slot: u32, step: &Step<'_, R>) -> bool {
        let Law::Paced(law) = &self.law else {
            return false;
        };
        let place = step.ledger.place(slot);
        if !place.promised || place.deadline == Instant::NEVER {
            return false;
        }
        let wait = place.deadline.nanos_since(step.now);
        law.is_hopeless(self.len, wait, &self.pace, step.now)
    }

    #[inline(always)]
    fn settle_paced<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) {
        let oldest = self.oldest_sent();
        let Law::Paced(law) = &mut self.law else {
            unreachable!("only called for this law");
        };
        if limits.load.capacity == Capacity::Starting {
            law.sleep();
        } else if oldest == Instant::NEVER {
            law.rest(step.now);
        } else if law.is_fresh(oldest, step.now) {
            law.glance(step.now);
        } else {
            self.settle_slow(oldest, limits, step);
        }
    }

    /// As [`settle_paced`](Self::settle_paced), for a queue that is slow or was asleep.
    fn settle_slow<R>(&mut self, oldest: Instant, limits: &Limits, step: &mut Step<'_, R>) {
        let Law::Paced(law) = &mut self.law else {
            unreachable!("only called for this law");
        };
        let bound = law.look(oldest, limits.load.hold_nanos(), step.now);
        let awake = law.since(Instant::START);
        while self.plain.sent.max(awake).after(bound) < step.now
            && !step.is_spent()
            && self.is_crowded(limits)
        {
            self.shed_oldest(Reason::Bound, step);
        }
    }

    fn pop_paced<R>(
        &mut self,
        newest: bool,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) -> Option<u32> {
        self.settle_paced(limits, step);
        if self.len == 0 || step.is_spent() {
            return None;
        }
        let oldest = self.oldest_sent();
        if let Law::Paced(law) = &mut self.law {
            law.serve(oldest, step.now);
        }
        let slot = if newest {
            self.last(step.ledger)
        } else {
            self.first(step.ledger)
        };
        self.take(slot, step)
    }

    #[inline]
    pub(super) fn take<R>(&mut self, slot: u32, step: &mut Step<'_, R>) -> Option<u32> {
        if slot == NONE {
            return None;
        }
        self.unlink(slot, step.ledger);
        Some(slot)
    }

    pub(super) fn shed_oldest<R>(&mut self, reason: Reason, step: &mut Step<'_, R>) {
        let slot = self.plain.head;
        self.unlink(slot, step.ledger);
        step.shed(slot, reason);
    }
}

impl<R> Step<'_, R> {
    pub(super) fn shed(&mut self, slot: u32, reason: Reason) {
        let ticket = self.ledger.ticket(slot);
        self.shed.push(Shed { ticket, reason });
        *self.left = self.left.saturating_sub(1);
    }

    /// One call has ended its limit of waits.
    pub(super) fn is_spent(&self) -> bool {
        *self.left == 0
    }
}
