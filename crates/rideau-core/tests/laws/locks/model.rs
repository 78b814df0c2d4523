//! The lines of a key as slow as they are plain: the slow model of a queue for
//! each claim, and the rule written as the sentence that it is.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use rideau_core::Reason;
use rideau_core::locks::Claim;
use rideau_core::queue::Options;

use crate::hall::Guest;
use crate::plain::Plain;

/// One ask.
pub(crate) type Name = usize;

/// What an input brings about, in order; waits are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Granted {
        name: Name,
        ordinal: u64,
        fence: u64,
        waited: u64,
    },
    Shed(Name, Reason, u64),
    Gone(Name),
    Left(Name),
    /// What an ask that does not wait took, if anything.
    Took(Option<u64>),
}

pub(crate) struct Model {
    options: Options,
    lines: Vec<Line>,
    /// When each ask was made.
    sent: Vec<u64>,
    gone: Rc<RefCell<HashSet<Name>>>,
    pub(crate) held: u64,
    fence: u64,
    closed: bool,
    turns: u64,
    said: Vec<Said>,
}

struct Line {
    claim: Claim,
    plain: Plain,
    /// Lines that had got an ask by then, this one included.
    turn: u64,
}

impl Line {
    fn age(&self) -> Option<(u64, u64)> {
        let oldest = self.plain.waiting.first()?;
        Some((oldest.guest.sent, self.turn))
    }
}

impl Model {
    pub(crate) fn new(options: &Options, gone: Rc<RefCell<HashSet<Name>>>) -> Self {
        Self {
            options: options.clone(),
            lines: Vec::new(),
            sent: Vec::new(),
            gone,
            held: 0,
            fence: 0,
            closed: false,
            turns: 0,
            said: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.iter().map(|line| line.plain.waiting.len()).sum()
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let waited_in = self.lines.iter().filter(|line| line.age().is_some());
        waited_in.filter_map(|line| line.plain.deadline()).min()
    }

    /// What happened since this was last asked.
    pub(crate) fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    pub(crate) fn ask(&mut self, claim: Claim, wait: bool, guest: Guest, now: u64) {
        self.sent.push(guest.sent);
        self.settle(now);
        let name = guest.id;
        if self.closed {
            self.shed(name, Reason::Closed, now);
        } else if self.gone.borrow().contains(&name) {
            self.said.push(Said::Gone(name));
        } else if !fits(claim, 0) {
            self.shed(name, Reason::Excess, now);
        } else if fits(claim, self.held) && !self.must_wait(claim, guest.sent) {
            self.grant(claim, name, now);
        } else if !wait {
            self.shed(name, Reason::Busy, now);
        } else {
            self.join(claim, guest, now);
            self.serve(now);
        }
    }

    pub(crate) fn take(&mut self, claim: Claim, now: u64) {
        self.settle(now);
        let may = fits(claim, self.held);
        if may {
            self.held += u64::from(claim.units);
            self.fence += 1;
        }
        self.said.push(Said::Took(may.then_some(self.held)));
    }

    pub(crate) fn settle(&mut self, now: u64) {
        for line in &mut self.lines {
            if line.age().is_some() {
                line.plain.wait(now);
            }
        }
        self.serve(now);
    }

    pub(crate) fn cancel(&mut self, name: Name, now: u64) {
        self.leave(|guest| guest.id == name);
        self.settle(now);
    }

    pub(crate) fn cancel_tag(&mut self, tag: u64, now: u64) {
        self.leave(|guest| guest.tag == Some(tag));
        self.settle(now);
    }

    pub(crate) fn change(&mut self, options: &Options, now: u64) {
        self.options = options.clone();
        for line in &mut self.lines {
            line.plain.change(options, now);
        }
        self.settle(now);
    }

    pub(crate) fn close(&mut self, now: u64) {
        self.closed = true;
        for at in 0..self.lines.len() {
            for who in std::mem::take(&mut self.lines[at].plain.waiting) {
                self.shed(who.guest.id, Reason::Closed, now);
            }
        }
    }

    /// A waiting ask goes before one that asks for this and came at `sent`.
    fn must_wait(&self, claim: Claim, sent: u64) -> bool {
        self.lines.iter().any(|line| {
            let older = line.age().is_some_and(|(oldest, _)| oldest <= sent);
            let own = line.age().is_some() && line.claim == claim;
            own || older && line.claim.capacity >= claim.capacity
        })
    }

    /// It fits, and no older line that does not fit sees as large a capacity.
    fn may_go(&self, line: &Line) -> bool {
        let before = |other: &&Line| other.age().is_some() && other.age() < line.age();
        let blocks = |other: &Line| {
            !fits(other.claim, self.held) && other.claim.capacity >= line.claim.capacity
        };
        fits(line.claim, self.held) && !self.lines.iter().filter(before).any(blocks)
    }

    fn serve(&mut self, now: u64) {
        loop {
            self.tell_shed(now);
            let may_go = |at: &usize| {
                let line = &self.lines[*at];
                line.age().is_some() && self.may_go(line)
            };
            let next = (0..self.lines.len())
                .filter(may_go)
                .min_by_key(|at| self.lines[*at].age());
            let Some(at) = next else {
                return;
            };
            let served = self.lines[at].plain.pop(now);
            self.tell_shed(now);
            match served {
                None => (),
                Some(name) if self.gone.borrow().contains(&name) => {
                    self.said.push(Said::Gone(name));
                    // The same turn goes on to the next of the line.
                    self.serve_line(at, now);
                }
                Some(name) => self.grant(self.lines[at].claim, name, now),
            }
        }
    }

    /// Serve one of a line whose turn it is.
    fn serve_line(&mut self, at: usize, now: u64) {
        loop {
            let served = self.lines[at].plain.pop(now);
            self.tell_shed(now);
            let Some(name) = served else {
                return;
            };
            if !self.gone.borrow().contains(&name) {
                return self.grant(self.lines[at].claim, name, now);
            }
            self.said.push(Said::Gone(name));
        }
    }

    fn join(&mut self, claim: Claim, guest: Guest, now: u64) {
        let own = self.lines.iter().position(|line| line.claim == claim);
        let at = own.unwrap_or_else(|| {
            self.lines.push(Line {
                claim,
                plain: Plain::new(&self.options, now),
                turn: 0,
            });
            self.lines.len() - 1
        });
        self.turns += 1;
        let line = &mut self.lines[at];
        if line.age().is_none() {
            line.turn = self.turns;
            assert_eq!(line.plain.pop(now), None);
        }
        line.plain.push(guest, now);
    }

    fn leave(&mut self, leaves: impl Fn(&Guest) -> bool) {
        for line in &mut self.lines {
            let waiting = &mut line.plain.waiting;
            while let Some(at) = waiting.iter().rposition(|who| leaves(&who.guest)) {
                self.said.push(Said::Left(waiting.remove(at).guest.id));
            }
        }
    }

    fn grant(&mut self, claim: Claim, name: Name, now: u64) {
        self.held += u64::from(claim.units);
        self.fence += 1;
        self.said.push(Said::Granted {
            name,
            ordinal: self.held,
            fence: self.fence,
            waited: now - self.sent[name],
        });
    }

    fn shed(&mut self, name: Name, reason: Reason, now: u64) {
        let waited = now - self.sent[name];
        self.said.push(Said::Shed(name, reason, waited));
    }

    fn tell_shed(&mut self, now: u64) {
        for at in 0..self.lines.len() {
            for (name, reason) in std::mem::take(&mut self.lines[at].plain.shed) {
                self.shed(name, reason, now);
            }
        }
    }
}

fn fits(claim: Claim, held: u64) -> bool {
    claim.units > 0 && held + u64::from(claim.units) <= claim.capacity.units()
}
