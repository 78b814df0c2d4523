//! Takers who are served without asking the pool for a while.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::pool::Apart;
use rideau_core::queue::{Order, Shedding};
use rideau_core::{Histogram, Instant};

use super::Run;
use crate::pool::model::{Doing, Input, Mode, Name, Waiter};

/// The line of those who can wait apart.
const NORMAL: usize = 1;

/// What happens while they are apart.
struct While {
    patience: Duration,
    waiting: VecDeque<Apart<Name>>,
    /// So many may still come.
    more: usize,
    waits: Histogram,
    holds: Histogram,
    came: u64,
}

impl Run {
    /// All who wait part from the pool, if it lets them; some are served, some
    /// come, and all who are left come back.
    pub(super) fn part(&mut self) {
        self.drain();
        let more = self.dice.below(4);
        let Some(patience) = self.pool.apart_for(more, self.now) else {
            return;
        };
        self.tell(|| format!("part for {patience:?}"));
        self.check_may_part(patience, more);
        let before = self.pool.stats(0, self.now).takes;
        let mut apart = While {
            patience,
            waiting: VecDeque::new(),
            more,
            waits: Histogram::default(),
            holds: Histogram::default(),
            came: 0,
        };
        self.pool.part(|it| apart.waiting.push_back(it));
        let parted: Vec<u64> = apart.waiting.iter().map(|it| it.reply.0).collect();
        let waited = self.model.lines[NORMAL].iter().map(|it| it.name);
        assert!(parted.iter().copied().eq(waited), "who came first is first");
        assert!(self.pool.is_empty());
        for _ in 0..self.dice.below(10) {
            self.wait_apart(&apart);
            match self.dice.below(3) {
                0 => self.come_apart(&mut apart),
                _ => self.hand_on(&mut apart),
            }
        }
        self.rejoin(&mut apart);
        let after = self.pool.stats(0, self.now).takes;
        assert_eq!(after.came, before.came + apart.came);
        assert_eq!(after.served, before.served + apart.waits.len());
        assert_eq!(after.waits.len(), after.served);
        assert_eq!(after.shed_total(), before.shed_total());
    }

    fn check_may_part(&self, patience: Duration, more: usize) {
        let model = &self.model;
        let (options, queue) = (&model.options, &model.options.queue);
        assert_eq!(model.mode, Mode::Running);
        assert_eq!(model.count(|doing| doing == Doing::Held), options.max);
        assert!(options.valve.is_none() && queue.fair.is_none());
        assert_eq!(queue.order, Order::Fifo);
        assert_ne!(options.check_after, Some(Duration::ZERO));
        let most = queue.max.map_or(usize::MAX, |max| max as usize);
        assert!(model.waits() + more <= most);
        assert_eq!(model.waits(), model.lines[NORMAL].len());
        for it in &model.lines[NORMAL] {
            let until = it.sent + patience;
            assert!(it.tag.is_none() && it.deadline >= until && until > self.now);
            if let Shedding::Timeout { wait_max } = queue.shedding {
                assert!(until < it.sent + wait_max, "there is time to serve it");
            }
        }
    }

    /// Nobody's patience comes to its end.
    fn wait_apart(&mut self, apart: &While) {
        let next = self.now.after(self.dice.nanos_of(self.pace));
        let is_long = |it: &Apart<Name>| it.sent + apart.patience <= next;
        if !apart.waiting.iter().any(is_long) {
            (self.now, self.model.now) = (next, next);
        }
    }

    fn come_apart(&mut self, apart: &mut While) {
        if apart.more == 0 {
            return;
        }
        (apart.more, apart.came) = (apart.more - 1, apart.came + 1);
        self.last_name += 1;
        let (name, gone) = (self.last_name, Rc::new(Cell::new(false)));
        let (sent, deadline) = (self.now, Instant::NEVER);
        let reply = Name(name, Rc::clone(&gone));
        apart.waiting.push_back(Apart {
            sent,
            deadline,
            promised: false,
            reply,
        });
        self.model.lines[NORMAL].push(Waiter {
            name,
            sent,
            deadline,
            tag: None,
            gone,
            ticket: None,
        });
    }

    /// A member that is fine goes to who came first.
    fn hand_on(&mut self, apart: &mut While) {
        let Some(slot) = self.pick(|doing| doing == Doing::Held) else {
            return;
        };
        let (now, uses_max) = (self.now, self.model.options.uses_max);
        let member = self.model.at(slot);
        let is_used_up = uses_max.is_some_and(|most| member.uses >= most);
        if is_used_up || member.is_bad || member.until <= now {
            return;
        }
        let is_there = |it: &Apart<Name>| !it.reply.1.get();
        if !apart.waiting.front().is_some_and(is_there) {
            return;
        }
        let next = apart.waiting.pop_front().expect("it is there");
        member.uses += 1;
        self.handed_on += 1;
        self.model.leave(next.reply.0);
        apart.waits.record(now.since(next.sent));
        let held = Duration::from_nanos(self.dice.nanos());
        apart.holds.record(held);
        self.tell(|| format!("hand {slot} on to {}", next.reply.0));
    }

    fn rejoin(&mut self, apart: &mut While) {
        self.tell(|| format!("{} rejoin", apart.waiting.len()));
        self.pool.served_apart(&apart.waits, &apart.holds);
        for it in apart.waiting.drain(..) {
            let name = it.reply.0;
            let ticket = self.pool.rejoin(it, self.now);
            let mut waiters = self.model.lines[NORMAL].iter_mut();
            let waiter = waiters.find(|it| it.name == name);
            waiter.expect("it waits").ticket = Some(ticket);
            self.tickets.push(ticket);
        }
        let mut effects = Vec::new();
        self.pool.rejoined(self.now, &mut effects);
        self.learn(Input::Usual, effects);
    }
}
