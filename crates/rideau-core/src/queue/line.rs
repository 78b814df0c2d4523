//! One line of those who wait, oldest to newest, and the law over it.
//!
//! The line links entries and asks its law; it does no arithmetic on waits.
//! The law always sheds from the oldest end, whatever end is served.

use super::codel::{CoDel, Progress, Verdict};
use super::min_delay::MinDelay;
use super::options::{Options, Overflow, Shedding};
use super::standing::Standing;
use super::{Shed, Step};
use crate::ledger::{Ledger, NONE};
use crate::refusal::Reason;
use crate::time::{Instant, nanos};

/// Limits of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) overflow: Overflow,
}

/// Invariant: `len` entries are linked from `head` (the oldest) to `tail`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Line {
    /// How the entries name this line.
    name: u32,
    head: u32,
    tail: u32,
    len: u32,
    law: Law,
}

/// A law of the queue's options, with the state it needs.
#[derive(Debug)]
enum Law {
    Never,
    Timeout(u64),
    CoDel(CoDel),
    MinDelay(MinDelay),
    Standing(Standing),
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            min: options.min,
            max: options.max.unwrap_or(u32::MAX),
            overflow: options.overflow,
        }
    }
}

impl Line {
    pub(crate) fn new(name: u32, shedding: &Shedding, now: Instant) -> Self {
        Self {
            name,
            head: NONE,
            tail: NONE,
            len: 0,
            law: Law::new(shedding, now),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// When the oldest was sent.
    pub(crate) fn oldest<R>(&self, ledger: &Ledger<R>) -> Option<Instant> {
        (self.head != NONE).then(|| ledger.place(self.head).sent)
    }

    /// Let a newcomer in, or somebody go if there is no room.
    #[inline(always)]
    pub(crate) fn push<R>(&mut self, slot: u32, limits: Limits, step: &mut Step<'_, R>) {
        if self.len >= limits.max {
            if limits.max == 0 || limits.overflow == Overflow::Newest {
                step.shed(slot, Reason::Full);
                self.settle(limits.min, step);
                return;
            }
            self.shed_oldest(Reason::Full, step);
        }
        let was_empty = self.len == 0;
        self.link(slot, step.ledger);
        if let Law::Standing(standing) = &mut self.law {
            let sent = step.ledger.place(slot).sent;
            let allowed = standing.allows(was_empty, step.now);
            step.limits
                .push(sent.after(allowed), step.ledger.ticket(slot));
        }
        self.settle(limits.min, step);
    }

    /// Shed whom the law wants gone while nobody is served.
    #[inline]
    pub(crate) fn settle<R>(&mut self, floor: u32, step: &mut Step<'_, R>) {
        // The oldest may lie in another core's memory: look only if it matters.
        if let Law::CoDel(codel) = &self.law
            && codel.is_quiet(step.now)
        {
            return;
        }
        let mut progress = Progress::default();
        while self.len > floor {
            let sent = step.ledger.place(self.head).sent;
            let verdict = match &mut self.law {
                Law::Never | Law::Standing(_) => Verdict::Keep,
                Law::Timeout(wait_max) => expired(sent, *wait_max, step.now),
                Law::CoDel(codel) => codel.scan(sent, &mut progress, step.now),
                Law::MinDelay(min_delay) => min_delay.scan(sent, &mut progress, step.now),
            };
            let Verdict::Shed(reason) = verdict else {
                return;
            };
            self.shed_oldest(reason, step);
        }
    }

    /// Take the oldest whom the law lets through.
    #[inline(always)]
    pub(crate) fn pop_oldest<R>(&mut self, min: u32, step: &mut Step<'_, R>) -> Option<u32> {
        let mut progress = Progress::default();
        while self.head != NONE {
            let sent = step.ledger.place(self.head).sent;
            let spare = self.len > min;
            let verdict = match &mut self.law {
                Law::Never | Law::Standing(_) => Verdict::Keep,
                Law::Timeout(wait_max) if spare => expired(sent, *wait_max, step.now),
                Law::Timeout(_) => Verdict::Keep,
                Law::MinDelay(law) => law.judge(step.now.nanos_since(sent), spare, step.now),
                Law::CoDel(codel) => codel.judge(sent, spare, &mut progress, step.now),
            };
            match verdict {
                Verdict::Keep => return self.take(self.head, step.ledger),
                Verdict::Shed(reason) => self.shed_oldest(reason, step),
            }
        }
        if let Law::CoDel(codel) = &mut self.law {
            // Having shed the last one ends the episode as finding none does.
            codel.found_empty(step.now);
        }
        None
    }

    /// Take the newest whom the law lets through.
    pub(crate) fn pop_newest<R>(&mut self, min: u32, step: &mut Step<'_, R>) -> Option<u32> {
        match &mut self.law {
            Law::Never | Law::Standing(_) => (),
            Law::Timeout(_) => self.settle(min, step),
            Law::CoDel(_) => return self.pop_newest_by_codel(min, step),
            Law::MinDelay(_) => return self.pop_newest_by_min_delay(min, step),
        }
        self.take(self.tail, step.ledger)
    }

    /// Take an entry out, wherever it stands.
    #[inline]
    pub(crate) fn unlink<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) {
        let place = ledger.place_mut(slot);
        debug_assert_eq!(place.line, self.name, "it stands in this line");
        let (prev, next) = (place.prev, place.next);
        (place.prev, place.next, place.line) = (NONE, NONE, NONE);
        match prev {
            NONE => self.head = next,
            _ => ledger.place_mut(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            _ => ledger.place_mut(next).prev = prev,
        }
        self.len -= 1;
    }

    /// Put an entry at the newest end, without asking anybody.
    #[inline]
    pub(crate) fn link<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) {
        let place = ledger.place_mut(slot);
        (place.prev, place.next, place.line) = (self.tail, NONE, self.name);
        match self.tail {
            NONE => self.head = slot,
            tail => ledger.place_mut(tail).next = slot,
        }
        self.tail = slot;
        self.len += 1;
    }

    /// When the line has to be settled next.
    #[inline(always)]
    pub(crate) fn due<R>(&self, min: u32, ledger: &Ledger<R>) -> Instant {
        if self.len <= min {
            return Instant::NEVER;
        }
        match &self.law {
            Law::Never | Law::Standing(_) => Instant::NEVER,
            Law::Timeout(wait_max) => ledger.place(self.head).sent.after(*wait_max),
            Law::CoDel(codel) => codel.due(|| ledger.place(self.head).sent),
            Law::MinDelay(min_delay) => min_delay.due(ledger.place(self.head).sent),
        }
    }

    /// The line is overloaded as its law sees it.
    pub(crate) fn is_shedding(&self, now: Instant) -> bool {
        match &self.law {
            Law::Never | Law::Timeout(_) => false,
            Law::CoDel(codel) => codel.is_shedding(),
            Law::MinDelay(min_delay) => min_delay.is_shedding(),
            Law::Standing(standing) => self.len > 0 && standing.is_shedding(now),
        }
    }

    /// An emptied line is worth remembering until here.
    pub(crate) fn memory(&self, now: Instant) -> Instant {
        match &self.law {
            Law::CoDel(codel) => codel.memory(now),
            Law::Never | Law::Timeout(_) | Law::MinDelay(_) | Law::Standing(_) => now,
        }
    }

    /// Take over a changed law, keeping what the old one knew if it is of the
    /// same kind.
    pub(crate) fn reconfigure(&mut self, shedding: &Shedding, now: Instant) {
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
            (law, new) => *law = new,
        }
    }

    /// Let go those for whom there is no room any more, oldest first.
    pub(crate) fn trim<R>(&mut self, limits: Limits, step: &mut Step<'_, R>) {
        let surplus = self.len.saturating_sub(limits.max);
        if limits.max == 0 || limits.overflow == Overflow::Oldest {
            (0..surplus).for_each(|_| self.shed_oldest(Reason::Full, step));
            return;
        }
        let mut first = self.tail;
        for _ in 1..surplus {
            first = step.ledger.place(first).prev;
        }
        for _ in 0..surplus {
            let next = step.ledger.place(first).next;
            self.unlink(first, step.ledger);
            step.shed(first, Reason::Full);
            first = next;
        }
    }

    /// Look at everybody, oldest first.
    pub(crate) fn each<R>(&self, ledger: &Ledger<R>, mut look: impl FnMut(u32)) {
        let mut slot = self.head;
        while slot != NONE {
            look(slot);
            slot = ledger.place(slot).next;
        }
    }

    /// Is it so for everybody, oldest first? Nobody is looked at after one for
    /// whom it is not.
    pub(crate) fn all<R>(&self, ledger: &Ledger<R>, mut is: impl FnMut(u32) -> bool) -> bool {
        let mut slot = self.head;
        while slot != NONE {
            if !is(slot) {
                return false;
            }
            slot = ledger.place(slot).next;
        }
        true
    }

    /// Take everybody out, oldest first.
    pub(crate) fn clear<R>(&mut self, ledger: &mut Ledger<R>, mut each: impl FnMut(u32)) {
        while let Some(slot) = self.take(self.head, ledger) {
            each(slot);
        }
    }

    fn pop_newest_by_codel<R>(&mut self, min: u32, step: &mut Step<'_, R>) -> Option<u32> {
        let Law::CoDel(codel) = &mut self.law else {
            unreachable!("only called for this law");
        };
        if self.tail == NONE {
            codel.found_empty(step.now);
            return None;
        }
        let was_due = codel.is_due(step.now);
        let had_spare = self.len > min;
        if !had_spare {
            codel.calm(step.now);
        }
        let taken = self.take(self.tail, step.ledger)?;
        if !had_spare {
            return Some(taken);
        }
        self.settle(min.saturating_sub(1), step);

        let Law::CoDel(codel) = &mut self.law else {
            unreachable!("the law did not change");
        };
        let sent = step.ledger.place(taken).sent;
        if self.len < min {
            codel.calm(step.now);
        } else if codel.is_over_bound(sent, step.now) {
            step.shed(taken, Reason::Bound);
            return self.pop_newest_by_codel(min, step);
        } else if self.len == 0
            && was_due
            && let Verdict::Shed(reason) = codel.judge_last(sent, step.now)
        {
            step.shed(taken, reason);
            return None;
        }
        Some(taken)
    }

    fn pop_newest_by_min_delay<R>(&mut self, min: u32, step: &mut Step<'_, R>) -> Option<u32> {
        loop {
            let spare = self.len > min;
            let taken = self.take(self.tail, step.ledger)?;
            let waited = step.now.nanos_since(step.ledger.place(taken).sent);
            let Law::MinDelay(law) = &mut self.law else {
                unreachable!("only called for this law");
            };
            match law.judge(waited, spare, step.now) {
                Verdict::Shed(reason) => step.shed(taken, reason),
                Verdict::Keep => return Some(taken),
            }
        }
    }

    fn take<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) -> Option<u32> {
        if slot == NONE {
            return None;
        }
        self.unlink(slot, ledger);
        Some(slot)
    }

    fn shed_oldest<R>(&mut self, reason: Reason, step: &mut Step<'_, R>) {
        let slot = self.head;
        self.unlink(slot, step.ledger);
        step.shed(slot, reason);
    }
}

impl Law {
    fn new(shedding: &Shedding, now: Instant) -> Self {
        let (target, interval, bound) = law_spans(shedding);
        match shedding {
            Shedding::Never => Self::Never,
            Shedding::Timeout { wait_max } => Self::Timeout(nanos(*wait_max)),
            Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. } => {
                Self::CoDel(CoDel::new(target, interval, bound, now))
            }
            Shedding::MinDelay { .. } => Self::MinDelay(MinDelay::new(target, interval, now)),
            Shedding::Standing { .. } => Self::Standing(Standing::new(target, interval, now)),
        }
    }
}

/// Target, interval and bound of a law, in nanoseconds.
fn law_spans(shedding: &Shedding) -> (u64, u64, u64) {
    match *shedding {
        Shedding::Never | Shedding::Timeout { .. } => (0, 0, u64::MAX),
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max,
        } => (nanos(target), nanos(interval), nanos(wait_max)),
        Shedding::CoDel { target, interval }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => (nanos(target), nanos(interval), u64::MAX),
    }
}

fn expired(sent: Instant, wait_max: u64, now: Instant) -> Verdict {
    if sent.after(wait_max) <= now {
        Verdict::Shed(Reason::Timeout)
    } else {
        Verdict::Keep
    }
}

impl<R> Step<'_, R> {
    fn shed(&mut self, slot: u32, reason: Reason) {
        let ticket = self.ledger.ticket(slot);
        self.shed.push(Shed { ticket, reason });
    }
}
