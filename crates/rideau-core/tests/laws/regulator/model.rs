//! A regulator as slow as it is plain: a list of waiting asks, a list of
//! holders, and the slow model of a valve.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::queue::{self, Order, Overflow, Shedding};
use rideau_core::regulator::Options;
use rideau_core::{Instant, Lead, Reason};

use crate::valves::model::Model as Valve;

/// One ask.
pub(crate) type Name = usize;

/// What an input brings about, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Granted(Name, Lead, Duration),
    Shed(Name, Reason, Duration),
    Gone(Name),
    Left(Name),
    Go(Lead, Duration),
    Stop(Duration),
    NotFound(Duration),
    Released,
    Nothing,
}

pub(crate) struct Model {
    queue: queue::Options,
    valve: Valve,
    /// Oldest first.
    waiting: Vec<Asker>,
    /// In the order of their grants, each as the valve knows it.
    leases: Vec<(Name, Instant)>,
    gone: Rc<RefCell<HashSet<Name>>>,
    told: Instant,
    open: bool,
    closed: bool,
    said: Vec<Said>,
}

#[derive(Clone, Copy)]
struct Asker {
    name: Name,
    sent: Instant,
    tag: u64,
}

impl Model {
    pub(crate) fn new(options: &Options, gone: Rc<RefCell<HashSet<Name>>>, now: Instant) -> Self {
        let valve = Valve::new(&options.valve, 0, now);
        Self {
            queue: options.queue.clone(),
            open: valve.is_open(now),
            valve,
            waiting: Vec::new(),
            leases: Vec::new(),
            gone,
            told: now,
            closed: false,
            said: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn held(&self) -> Vec<Name> {
        self.leases.iter().map(|(name, _)| *name).collect()
    }

    pub(crate) fn waiting(&self) -> Vec<Name> {
        self.waiting.iter().map(|asker| asker.name).collect()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.open {
            return None;
        }
        let spare = self.waiting.len() > self.queue.min as usize;
        let queue = self.waiting.first().filter(|_| spare);
        let queue = queue.and_then(|oldest| (oldest.sent + self.wait_max()?).finite());
        let valve = self.valve.closed_until(self.told);
        queue.into_iter().chain(valve).min()
    }

    /// What happened since this was last asked.
    pub(crate) fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    pub(crate) fn ask(&mut self, name: Name, tag: u64, wait: bool, sent: Instant, now: Instant) {
        self.told = self.told.max(sent);
        let asker = Asker { name, sent, tag };
        if self.closed {
            self.shed(asker, Reason::Closed, now);
            self.settle(now);
        } else if self.open {
            if self.is_gone(name) {
                self.said.push(Said::Gone(name));
            } else {
                self.grant(asker, now);
            }
            self.settle(now);
        } else if wait {
            self.join(asker, now);
            self.follow(now);
        } else {
            self.shed(asker, Reason::Busy, now);
            self.settle(now);
        }
    }

    pub(crate) fn renew(&mut self, name: Name, sent: Instant, now: Instant) {
        self.told = self.told.max(sent);
        let waited = now.since(sent);
        let answer = match self.lease(name) {
            None => Said::NotFound(waited),
            Some(which) if self.closed => {
                self.leave(which, true);
                Said::Stop(waited)
            }
            Some(which) => match self.valve.renew(which, self.told) {
                Some(open_time) => Said::Go(sent.lead_over(open_time).min(Lead::ZERO), waited),
                None => {
                    self.leases.remove(which);
                    Said::Stop(waited)
                }
            },
        };
        self.said.push(answer);
        self.settle(now);
    }

    pub(crate) fn release(&mut self, name: Name, ok: bool, sent: Instant, now: Instant) {
        self.told = self.told.max(sent);
        let waited = now.since(sent);
        match self.lease(name) {
            None => self.said.push(Said::NotFound(waited)),
            Some(which) => {
                self.leave(which, ok);
                self.said.push(Said::Stop(waited));
            }
        }
        self.settle(now);
    }

    pub(crate) fn end(&mut self, name: Name, ok: bool, sent: Instant, now: Instant) {
        self.told = self.told.max(sent);
        if let Some(which) = self.lease(name) {
            self.leave(which, ok);
            self.said.push(Said::Released);
        } else {
            self.withdraw(name, now);
        }
        self.settle(now);
    }

    pub(crate) fn cancel(&mut self, name: Name, now: Instant) {
        self.told = self.told.max(now);
        self.withdraw(name, now);
        self.settle(now);
    }

    pub(crate) fn cancel_tag(&mut self, tag: u64, now: Instant) {
        self.told = self.told.max(now);
        let mut left = Vec::new();
        while let Some(at) = self.waiting.iter().rposition(|asker| asker.tag == tag) {
            left.push(Said::Left(self.waiting.remove(at).name));
        }
        self.said.splice(0..0, left);
        self.settle(now);
    }

    pub(crate) fn update(&mut self, lead: Lead, sent: Instant, now: Instant) {
        self.told = self.told.max(sent);
        self.valve.update(lead, self.told);
        self.settle(now);
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.told = self.told.max(now);
        self.closed = true;
        for asker in std::mem::take(&mut self.waiting) {
            self.shed(asker, Reason::Closed, now);
        }
        self.settle(now);
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        self.told = self.told.max(now);
        self.settle(now);
        if !self.open {
            self.expire(now);
        }
    }

    pub(crate) fn reconfigure(&mut self, options: &Options, now: Instant) {
        self.told = self.told.max(now);
        self.queue = options.queue.clone();
        let over = self.waiting.len().saturating_sub(self.max());
        let from = match self.queue.overflow {
            Overflow::Oldest => 0,
            Overflow::Newest => self.waiting.len() - over,
        };
        let trimmed: Vec<_> = self.waiting.drain(from..from + over).collect();
        for asker in trimmed {
            self.shed(asker, Reason::Full, now);
        }
        self.expire(now);
        self.valve.reconfigure(&options.valve, self.told);
        self.follow(now);
    }

    fn lease(&self, name: Name) -> Option<usize> {
        self.leases.iter().position(|(holder, _)| *holder == name)
    }

    fn leave(&mut self, which: usize, ok: bool) {
        let (_, since) = self.leases.remove(which);
        let held = self.told.since(since);
        self.valve.release(which, held, ok, self.told);
    }

    fn withdraw(&mut self, name: Name, now: Instant) {
        let place = self.waiting.iter().position(|asker| asker.name == name);
        match place {
            None => self.said.push(Said::Nothing),
            Some(at) => {
                self.waiting.remove(at);
                self.said.push(Said::Left(name));
                self.expire(now);
            }
        }
    }

    fn join(&mut self, asker: Asker, now: Instant) {
        if self.waiting.len() < self.max() {
            self.waiting.push(asker);
        } else if self.queue.overflow == Overflow::Oldest && self.max() > 0 {
            let oldest = self.waiting.remove(0);
            self.shed(oldest, Reason::Full, now);
            self.waiting.push(asker);
        } else {
            self.shed(asker, Reason::Full, now);
        }
        self.expire(now);
    }

    fn grant(&mut self, asker: Asker, now: Instant) {
        let lead = asker.sent.lead_over(self.valve.ask(self.told));
        self.leases.push((asker.name, self.told));
        let waited = now.since(asker.sent);
        self.said.push(Said::Granted(asker.name, lead, waited));
    }

    fn shed(&mut self, asker: Asker, reason: Reason, now: Instant) {
        let waited = now.since(asker.sent);
        self.said.push(Said::Shed(asker.name, reason, waited));
    }

    fn settle(&mut self, now: Instant) {
        if !self.open && !self.valve.is_open(self.told) {
            self.expire(now);
        }
        self.follow(now);
    }

    fn follow(&mut self, now: Instant) {
        while !self.open && self.valve.is_open(self.told) {
            self.expire(now);
            let last = self.waiting.len().saturating_sub(1);
            let next = if self.queue.order == Order::Lifo {
                last
            } else {
                0
            };
            if self.waiting.is_empty() {
                self.open = true;
            } else {
                let asker = self.waiting.remove(next);
                if self.is_gone(asker.name) {
                    self.said.push(Said::Gone(asker.name));
                } else {
                    self.grant(asker, now);
                }
            }
        }
        self.open &= self.valve.is_open(self.told);
    }

    fn expire(&mut self, now: Instant) {
        let Some(wait_max) = self.wait_max() else {
            return;
        };
        while self.waiting.len() > self.queue.min as usize && self.waiting[0].sent + wait_max <= now
        {
            let oldest = self.waiting.remove(0);
            self.shed(oldest, Reason::Timeout, now);
        }
    }

    fn is_gone(&self, name: Name) -> bool {
        self.gone.borrow().contains(&name)
    }

    fn max(&self) -> usize {
        self.queue.max.map_or(usize::MAX, |max| max as usize)
    }

    fn wait_max(&self) -> Option<Duration> {
        match self.queue.shedding {
            Shedding::Never => None,
            Shedding::Timeout { wait_max } => Some(wait_max),
            _ => unreachable!("the model knows no other law"),
        }
    }
}
