//! A cell under one law, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rideau_core::queue::{AskOptions, Capacity, Load, Options, Queue, Shed, Shedding, Turn};
use rideau_core::{Instant, Ledger, Reason, Rng, Ticket};

use super::cell::{Asker, Cell};

/// Which law, and what it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    Timeout(u64),
    Never,
    Paced,
    /// Neither capacity nor holds are known.
    Blind,
}

/// What became of the askers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) came: usize,
    /// Asks of all askers: more than there are askers if some came again.
    pub(crate) asks: usize,
    pub(crate) useful: usize,
    pub(crate) shed: usize,
    pub(crate) hopeless: usize,
    /// The waits of the asks that were served.
    pub(crate) waits: Vec<u64>,
    /// Served later than is of use.
    pub(crate) late: usize,
    /// The serves in order: when, and after what wait.
    pub(crate) serves: Vec<(u64, u64)>,
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Ask { who: usize },
    Leave { who: usize },
    End { since: u64 },
}

struct Sim<'a> {
    cell: &'a Cell,
    law: Law,
    queue: Queue,
    ledger: Ledger<usize>,
    load: Load,
    idle: u32,
    first: Vec<u64>,
    tickets: Vec<Option<Ticket>>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    rng: Rng,
    run: Run,
}

pub(crate) fn run(cell: &Cell, law: Law) -> Run {
    let options = Options {
        shedding: match law {
            Law::Timeout(span) => Shedding::Timeout {
                wait_max: Duration::from_nanos(span),
            },
            Law::Never => Shedding::Never,
            Law::Paced | Law::Blind => Shedding::Paced { wait_cap: None },
        },
        max: None,
        ..Options::default()
    };
    let mut load = Load::default();
    if let Law::Paced = law {
        load.capacity = Capacity::Units(cell.servers);
    }
    let arrivals = cell.arrivals();
    let ask = |(who, at): (usize, &u64)| Reverse((*at, Event::Ask { who }));
    let events = arrivals.iter().enumerate().map(ask).collect();
    let mut sim = Sim {
        cell,
        law,
        queue: Queue::new(options, Instant::START).unwrap(),
        ledger: Ledger::default(),
        load,
        idle: cell.servers,
        tickets: vec![None; arrivals.len()],
        events,
        rng: Rng::new(cell.seed),
        run: Run {
            came: arrivals.len(),
            ..Run::default()
        },
        first: arrivals,
    };
    sim.queue.bear(load);
    sim.go();
    sim.run
}

impl Sim<'_> {
    fn go(&mut self) {
        let mut hold = self.cell.hold_times();
        loop {
            let next = self.events.peek().map(|Reverse((at, _))| *at);
            let due = self.queue.deadline().map(Instant::as_nanos);
            if let Some(due) = due.filter(|due| next.is_none_or(|next| *due < next)) {
                self.advance(due);
                continue;
            }
            let Some(Reverse((now, event))) = self.events.pop() else {
                return;
            };
            if now > self.cell.until {
                return;
            }
            match event {
                Event::Ask { who } => self.ask(who, now, &mut hold),
                Event::Leave { who } => self.leave(who, now),
                Event::End { since } => self.end(since, now, &mut hold),
            }
        }
    }

    fn advance(&mut self, now: u64) {
        let mut shed = Vec::new();
        let len = self.queue.len();
        self.queue
            .advance(&mut self.ledger, Instant::from_nanos(now), &mut shed);
        self.tell(&shed, len, now);
    }

    fn ask(&mut self, who: usize, now: u64, hold: &mut impl FnMut() -> u64) {
        self.run.asks += 1;
        if self.idle > 0 && self.queue.is_empty() {
            self.idle -= 1;
            return self.serve(who, now, hold);
        }
        let instant = Instant::from_nanos(now);
        let mut terms = AskOptions::new(instant);
        match self.cell.asker {
            Asker::Told(wait) => {
                terms.promised = true;
                terms.deadline = Some(instant.after(wait));
            }
            Asker::Leaves(patience) => {
                let leave = Event::Leave { who };
                self.events.push(Reverse((now + patience, leave)));
            }
            Asker::Patient | Asker::Follows => (),
        }
        let ticket = self.ledger.open(who);
        self.tickets[who] = Some(ticket);
        let (mut shed, len) = (Vec::new(), self.queue.len() + 1);
        self.queue
            .push(ticket, &terms, &mut self.ledger, instant, &mut shed);
        self.tell(&shed, len, now);
    }

    fn leave(&mut self, who: usize, now: u64) {
        let Some(ticket) = self.tickets[who].take() else {
            return;
        };
        let (mut shed, len) = (Vec::new(), self.queue.len());
        let instant = Instant::from_nanos(now);
        self.queue
            .remove(ticket, &mut self.ledger, instant, &mut shed);
        self.ledger.close(ticket);
        self.tell(&shed, len, now);
    }

    fn end(&mut self, since: u64, now: u64, hold: &mut impl FnMut() -> u64) {
        if !matches!(self.law, Law::Blind) {
            self.load.ended(Duration::from_nanos(now - since));
            self.queue.bear(self.load);
        }
        self.idle += 1;
        while self.idle > 0 {
            let (mut shed, len) = (Vec::new(), self.queue.len());
            let instant = Instant::from_nanos(now);
            let turn = self.queue.pop(&mut self.ledger, instant, &mut shed);
            self.tell(&shed, len, now);
            match turn {
                Turn::Of(ticket) => {
                    let who = self.ledger.close(ticket).unwrap();
                    self.tickets[who] = None;
                    self.idle -= 1;
                    self.serve(who, now, hold);
                }
                Turn::Empty => return,
                Turn::More => (),
            }
        }
    }

    fn serve(&mut self, who: usize, now: u64, hold: &mut impl FnMut() -> u64) {
        let waited = now - self.first[who];
        self.run.waits.push(waited);
        self.run.serves.push((now, waited));
        let within = match self.cell.asker {
            Asker::Told(wait) => wait,
            Asker::Leaves(patience) => patience.min(self.cell.useful_within()),
            Asker::Patient | Asker::Follows => self.cell.useful_within(),
        };
        if waited <= within {
            self.run.useful += 1;
        } else {
            self.run.late += 1;
        }
        let end = self.cell.end_of(now, hold());
        self.events.push(Reverse((end, Event::End { since: now })));
    }

    /// `len` waited when the call began.
    fn tell(&mut self, shed: &[Shed], len: usize, now: u64) {
        for (before, gone) in shed.iter().enumerate() {
            let sent = self.ledger.sent(gone.ticket);
            let who = self.ledger.close(gone.ticket).unwrap();
            self.tickets[who] = None;
            self.run.shed += 1;
            self.check(gone.reason, len - before, sent.as_nanos(), now);
            if self.cell.asker == Asker::Follows {
                let instant = Instant::from_nanos(now);
                let refusal = self.queue.refuse(gone.reason, sent, instant);
                self.come_again(who, refusal.retry_after, now);
            }
        }
    }

    /// The law sheds no ask that was promised its wait, or that it protects.
    fn check(&mut self, reason: Reason, len: usize, sent: u64, now: u64) {
        let is_told = matches!(self.cell.asker, Asker::Told(_));
        match (self.law, reason) {
            (Law::Timeout(_) | Law::Never, _) | (_, Reason::Deadline) => (),
            (_, Reason::Hopeless) => {
                assert!(is_told && sent == now, "{:?}", self.cell);
                self.run.hopeless += 1;
            }
            (law, Reason::Bound) => {
                let protected = match law {
                    Law::Paced => 4.max(2 * self.cell.servers as usize),
                    _ => 4,
                };
                assert!(!is_told && len > protected, "{:?}", self.cell);
            }
            (_, other) => panic!("{other:?} in {:?}", self.cell),
        }
    }

    /// A follower comes when it was told to, and up to a tenth later; but not
    /// when it cannot be of use any more.
    fn come_again(&mut self, who: usize, after: Duration, now: u64) {
        let after = u64::try_from(after.as_nanos()).unwrap();
        let at = now + after + self.rng.below(after / 10 + 1);
        if at < self.first[who] + self.cell.useful_within() {
            self.events.push(Reverse((at, Event::Ask { who })));
        }
    }
}
