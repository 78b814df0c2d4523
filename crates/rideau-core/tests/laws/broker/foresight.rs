//! What a broker will say if nothing but a timeout thins out its two lines.
//!
//! By the book, one step after the other, on lists that are searched from end
//! to end.

use rideau_core::broker::Options;
use rideau_core::queue::{self, Order, Overflow, Shedding};
use rideau_core::{Instant, Reason, Side};

use super::model::{Told, Waiter, at, other};

#[derive(Clone)]
pub(super) struct Foresight {
    lines: [Vec<Waiter>; 2],
    options: [queue::Options; 2],
    active: Side,
    now: Instant,
    told: Vec<Told>,
}

impl Foresight {
    /// None if a law or turns are beyond it.
    pub(super) fn new(
        lines: [Vec<Waiter>; 2],
        options: [queue::Options; 2],
        active: Side,
        now: Instant,
    ) -> Option<Self> {
        let plain = |options: &queue::Options| {
            let law = matches!(options.shedding, Shedding::Never | Shedding::Timeout { .. });
            law && options.fair.is_none()
        };
        options.iter().all(plain).then_some(Self {
            lines,
            options,
            active,
            now,
            told: Vec::new(),
        })
    }

    /// The newcomer's own answer comes last: it is returned, the others are
    /// effects.
    pub(super) fn come(self, side: Side, newcomer: Waiter, closed: bool) -> Self {
        let own = newcomer.id;
        let mut come = self.come_in_order(side, newcomer, closed);
        let is_own = |told: &Told| matches!(told, Told::Shed { id, .. } if *id == own);
        if let Some(at) = come.told.iter().position(is_own) {
            let told = come.told.remove(at);
            come.told.push(told);
        }
        come
    }

    fn come_in_order(mut self, side: Side, newcomer: Waiter, closed: bool) -> Self {
        if self.active != side {
            if let Some(waiter) = self.serve(other(side)) {
                let (ask, offer) = match side {
                    Side::Ask => (newcomer.id, waiter.id),
                    Side::Offer => (waiter.id, newcomer.id),
                };
                self.told.push(Told::Match { ask, offer });
                return self;
            }
            self.active = side;
        }
        if closed {
            self.shed(&newcomer, Reason::Closed);
            return self.advance();
        }
        if !newcomer.wait {
            self.shed(&newcomer, Reason::Busy);
            return self.advance();
        }
        self.push(side, newcomer);
        self
    }

    pub(super) fn advance(mut self) -> Self {
        self.expire(self.active);
        self.settle(self.active);
        self
    }

    pub(super) fn cancel(mut self, ids: &[usize]) -> Self {
        for line in &mut self.lines {
            line.retain(|waiter| !ids.contains(&waiter.id));
        }
        self.advance()
    }

    pub(super) fn change(mut self, options: &Options) -> Self {
        self.options = [options.asks.clone(), options.offers.clone()];
        for side in [Side::Ask, Side::Offer] {
            self.expire(side);
            self.trim(side);
            self.settle(side);
        }
        self
    }

    pub(super) fn close(mut self) -> Self {
        for side in [Side::Ask, Side::Offer] {
            for waiter in std::mem::take(&mut self.lines[at(side)]) {
                self.shed(&waiter, Reason::Closed);
            }
        }
        self
    }

    /// What is said, and when the queue wants to be advanced.
    pub(super) fn end(self) -> (Vec<Told>, Option<Instant>) {
        let line = &self.lines[at(self.active)];
        let options = &self.options[at(self.active)];
        let law = match options.shedding {
            Shedding::Timeout { wait_max } if line.len() > options.min as usize => {
                (line[0].sent + wait_max).finite()
            }
            _ => None,
        };
        let own = line.iter().filter_map(|waiter| waiter.deadline).min();
        (self.told, law.into_iter().chain(own).min())
    }

    fn push(&mut self, side: Side, newcomer: Waiter) {
        self.expire(side);
        if newcomer.deadline.is_some_and(|due| due <= self.now) {
            self.shed(&newcomer, Reason::Deadline);
            return self.settle(side);
        }
        let options = &self.options[at(side)];
        let full = options.max == Some(u32::try_from(self.lines[at(side)].len()).unwrap());
        if full && (options.overflow == Overflow::Newest || options.max == Some(0)) {
            self.shed(&newcomer, Reason::Full);
        } else {
            if full {
                self.shed_oldest(side, Reason::Full);
            }
            self.lines[at(side)].push(newcomer);
        }
        self.settle(side);
    }

    /// The waiter whose turn it is and that is still there.
    fn serve(&mut self, side: Side) -> Option<Waiter> {
        loop {
            let waiter = self.pop(side)?;
            if !waiter.gone.get() {
                return Some(waiter);
            }
            self.told.push(Told::Forget(waiter.id));
        }
    }

    fn pop(&mut self, side: Side) -> Option<Waiter> {
        self.expire(side);
        let oldest = self.lines[at(side)].first()?.sent;
        let newest_first = match self.options[at(side)].order {
            Order::Fifo => false,
            Order::Lifo => true,
            Order::Adaptive { slow } => oldest + slow <= self.now,
        };
        self.settle(side);
        let line = &mut self.lines[at(side)];
        if newest_first {
            line.pop()
        } else {
            (!line.is_empty()).then(|| line.remove(0))
        }
    }

    fn expire(&mut self, side: Side) {
        let due = |waiter: &Waiter| waiter.deadline.is_some_and(|due| due <= self.now);
        let (due, kept) = std::mem::take(&mut self.lines[at(side)])
            .into_iter()
            .partition(due);
        self.lines[at(side)] = kept;
        let due: Vec<Waiter> = due;
        due.iter()
            .for_each(|waiter| self.shed(waiter, Reason::Deadline));
    }

    fn settle(&mut self, side: Side) {
        let Shedding::Timeout { wait_max } = self.options[at(side)].shedding else {
            return;
        };
        let min = self.options[at(side)].min as usize;
        while self.lines[at(side)].len() > min
            && self.lines[at(side)][0].sent + wait_max <= self.now
        {
            self.shed_oldest(side, Reason::Timeout);
        }
    }

    fn trim(&mut self, side: Side) {
        let options = &self.options[at(side)];
        let len = self.lines[at(side)].len();
        let surplus = len.saturating_sub(options.max.map_or(len, |max| max as usize));
        let first = match options.overflow {
            Overflow::Oldest => 0,
            Overflow::Newest => len - surplus,
        };
        for _ in 0..surplus {
            let waiter = self.lines[at(side)].remove(first);
            self.shed(&waiter, Reason::Full);
        }
    }

    fn shed_oldest(&mut self, side: Side, reason: Reason) {
        let waiter = self.lines[at(side)].remove(0);
        self.shed(&waiter, reason);
    }

    fn shed(&mut self, waiter: &Waiter, reason: Reason) {
        let id = waiter.id;
        self.told.push(Told::Shed { id, reason });
    }
}
