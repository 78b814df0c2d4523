//! Lines by flow, served in turn.
//!
//! Each flow has its own line, limits and law. A flow joins the rotation at
//! its tail and leaves it on a turn that finds its line empty; what its law
//! has learnt is remembered for a while.

use std::collections::{HashMap, VecDeque};

use super::Step;
use super::line::{Limits, Line};
use super::options::{self, Index, Order, Shedding};
use super::pace::Pace;
use crate::expiry::Expiry;
use crate::ids::{Flow, Ticket};
use crate::ledger::Ledger;
use crate::rng::mix;
use crate::time::Instant;

/// Invariants: a flow is in the rotation exactly once if it is active, and
/// not at all otherwise; only active flows have entries; `by_key` knows
/// every flow but the shared one.
#[derive(Debug)]
pub(crate) struct Fair {
    options: options::Fair,
    shedding: Shedding,
    flows: Vec<FlowLine>,
    /// Places in `flows` that no flow has.
    unused: Vec<u32>,
    by_key: HashMap<u64, u32>,
    /// The line of all flows beyond the limit, once there are any.
    shared: Option<u32>,
    /// Flows that came anew, if those are served before the others.
    fresh: VecDeque<u32>,
    robin: VecDeque<u32>,
    due: Expiry<u32>,
    /// When the oldest of each line was sent.
    heads: Expiry<u32>,
    /// From when on each line is overloaded, if nothing happens.
    sheds: Expiry<u32>,
    parked: Expiry<u32>,
    /// How fast all lines together are served.
    pub(crate) pace: Pace,
    len: usize,
    /// How many flows in the rotation have no entry.
    emptied: usize,
}

#[derive(Debug)]
struct FlowLine {
    line: Line,
    key: Option<u64>,
    state: State,
    weight: u32,
    /// How many more it may be served in its present turn.
    credit: u32,
    due: Instant,
    head: Instant,
    sheds: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the rotation.
    Active,
    /// Emptied, and remembered until then.
    Parked { until: Instant },
    /// The place belongs to no flow.
    Unused,
}

impl Fair {
    pub(crate) fn new(options: &options::Fair, shedding: &Shedding, now: Instant) -> Self {
        Self {
            options: options.clone(),
            shedding: shedding.clone(),
            flows: Vec::new(),
            unused: Vec::new(),
            by_key: HashMap::new(),
            shared: None,
            fresh: VecDeque::new(),
            robin: VecDeque::new(),
            due: Expiry::new(),
            heads: Expiry::new(),
            sheds: Expiry::new(),
            parked: Expiry::new(),
            pace: Pace::new(now),
            len: 0,
            emptied: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Flows in the rotation.
    pub(crate) fn active(&self) -> usize {
        self.fresh.len() + self.robin.len()
    }

    pub(crate) fn has_index(&self, index: Index) -> bool {
        self.options.index == index
    }

    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.heads.first().finite()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.flows.iter().map(|flow| &flow.line)
    }

    pub(crate) fn push<R>(&mut self, slot: u32, limits: &Limits, step: &mut Step<'_, R>) {
        if self.len == 0 {
            self.pace.begin(step.now);
        }
        let at = self.flow_for(step.ledger.place(slot).flow, step.now);
        self.on_line(at, limits, step, |line, step| line.push(slot, limits, step));
        self.settle(limits, step);
    }

    /// Serve the flow whose turn it is.
    pub(crate) fn pop<R>(
        &mut self,
        order: Order,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) -> Option<u32> {
        let mut taken = None;
        while let Some(at) = self.fresh.pop_front().or_else(|| self.robin.pop_front()) {
            taken = self.on_line(at, limits, step, |line, step| line.pop(order, limits, step));
            if let Some(slot) = taken {
                self.pace.serve(step.ledger.place(slot).sent, step.now);
                self.end_serving(at);
                break;
            }
            if self.line(at).len() > 0 {
                // The call may end no more waits: it stays its turn.
                self.robin.push_front(at);
                break;
            }
            self.leave(at, step.now);
        }
        self.settle(limits, step);
        taken
    }

    /// One of a line is served out of turn.
    pub(crate) fn serve(&mut self, at: u32, sent: Instant, now: Instant) {
        self.flows[at as usize].line.pace.serve(sent, now);
        self.pace.serve(sent, now);
    }

    pub(crate) fn unlink<R>(&mut self, slot: u32, limits: &Limits, step: &mut Step<'_, R>) {
        let at = step.ledger.place(slot).line;
        self.on_line(at, limits, step, |line, step| {
            line.unlink(slot, step.ledger)
        });
        self.sweep();
    }

    pub(crate) fn line(&self, at: u32) -> &Line {
        &self.flows[at as usize].line
    }

    pub(crate) fn line_mut(&mut self, at: u32) -> &mut Line {
        &mut self.flows[at as usize].line
    }

    /// The entries that the minima of their lines protected, be they there or
    /// not.
    pub(crate) fn take_spared(&mut self, mut each: impl FnMut(Ticket)) {
        for flow in &mut self.flows {
            flow.line.take_spared(&mut each);
        }
    }

    /// Settle the lines that are due, and forget what was remembered long
    /// enough.
    pub(crate) fn settle<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) {
        while !step.is_spent()
            && let Some((due, at)) = self.due.pop_due(step.now)
        {
            if self.flows[at as usize].due == due {
                self.flows[at as usize].due = Instant::NEVER;
                self.on_line(at, limits, step, |line, step| {
                    line.settle(limits.min, limits, step);
                });
            }
        }
        while let Some((until, at)) = self.parked.pop_due(step.now) {
            if self.flows[at as usize].state == (State::Parked { until }) {
                self.discard(at);
            }
        }
        self.sweep();
    }

    /// Forget what is not so any more.
    fn sweep(&mut self) {
        let (flows, alive) = (&self.flows, self.by_key.len() + 1);
        self.due
            .sweep(alive, |due, at| flows[at as usize].due == due);
        self.heads
            .sweep(alive, |sent, at| flows[at as usize].head == sent);
        self.sheds
            .sweep(alive, |from, at| flows[at as usize].sheds == from);
        self.parked.sweep(alive, |until, at| {
            flows[at as usize].state == State::Parked { until }
        });
    }

    pub(crate) fn due(&self) -> Instant {
        self.due.first()
    }

    pub(crate) fn is_shedding(&self, now: Instant) -> bool {
        self.sheds.first() <= now
    }

    /// Take over changed options with the same index: flows and turns stay.
    /// What the new minimum protects no more is shed.
    pub(crate) fn adopt_law<R>(
        &mut self,
        options: &options::Fair,
        shedding: &Shedding,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) {
        self.options = options.clone();
        self.shedding = shedding.clone();
        self.parked.clear();
        for at in self.places() {
            let flow = &mut self.flows[at as usize];
            match flow.state {
                State::Unused => continue,
                State::Parked { .. } => {
                    flow.state = State::Active;
                    self.emptied += 1;
                    self.robin.push_back(at);
                }
                State::Active => (),
            }
            let flow = &mut self.flows[at as usize];
            flow.weight = weight(&self.options, flow.key);
            flow.credit = flow.credit.min(flow.weight);
            self.on_line(at, limits, step, |line, step| {
                line.reconfigure(shedding, step.ledger, step.now);
                line.release_spared(limits.min, step);
            });
        }
    }

    /// Keep to changed limits.
    pub(crate) fn fit<R>(&mut self, limits: &Limits, step: &mut Step<'_, R>) {
        for at in self.places() {
            if self.flows[at as usize].state != State::Unused {
                self.on_line(at, limits, step, |line, step| line.fit(limits, step));
            }
        }
    }

    /// Take an entry over from another queue, without asking the law.
    pub(crate) fn adopt<R>(&mut self, slot: u32, limits: &Limits, step: &mut Step<'_, R>) {
        let at = self.flow_for(step.ledger.place(slot).flow, step.now);
        self.on_line(at, limits, step, |line, step| line.link(slot, step.ledger));
    }

    /// Take all entries out, and forget the flows.
    pub(crate) fn clear<R>(&mut self, ledger: &mut Ledger<R>, mut each: impl FnMut(u32)) {
        for flow in &mut self.flows {
            flow.line.clear(ledger, &mut each);
        }
        let pace = std::mem::replace(&mut self.pace, Pace::new(Instant::START));
        *self = Self::new(&self.options, &self.shedding, Instant::START);
        self.pace = pace;
    }

    fn places(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.flows.len()).expect("flows are numbered by 32 bits")
    }

    /// Work on a line, and keep the count and its due time true.
    fn on_line<R, T>(
        &mut self,
        at: u32,
        limits: &Limits,
        step: &mut Step<'_, R>,
        work: impl FnOnce(&mut Line, &mut Step<'_, R>) -> T,
    ) -> T {
        let flow = &mut self.flows[at as usize];
        let before = flow.line.len();
        let result = work(&mut flow.line, step);
        self.len = self.len + flow.line.len() as usize - before as usize;
        match (before, flow.line.len()) {
            (0, 1..) => self.emptied -= 1,
            (1.., 0) => self.emptied += 1,
            _ => (),
        }
        let renew = |known: &mut Instant, new: Instant, expiry: &mut Expiry<u32>| {
            if *known != new {
                *known = new;
                expiry.push(new, at);
            }
        };
        renew(&mut flow.due, flow.line.due(limits), &mut self.due);
        let head = flow.line.oldest().unwrap_or(Instant::NEVER);
        renew(&mut flow.head, head, &mut self.heads);
        let sheds = match flow.state {
            State::Active => flow.line.sheds_from(limits),
            State::Parked { .. } | State::Unused => Instant::NEVER,
        };
        renew(&mut flow.sheds, sheds, &mut self.sheds);
        result
    }

    /// The line for a flow, in the rotation.
    fn flow_for(&mut self, flow: Flow, now: Instant) -> u32 {
        let key = match self.options.index {
            Index::Flow => flow.0,
            Index::Hashed(lines) => mix(flow.0) % u64::from(lines.get()),
        };
        let at = match self.by_key.get(&key) {
            Some(at) => *at,
            None => self.new_flow(key, now),
        };
        if self.flows[at as usize].state != State::Active {
            self.flows[at as usize].state = State::Active;
            self.join(at);
        }
        at
    }

    fn join(&mut self, at: u32) {
        self.emptied += 1;
        let rotation = if self.options.sparse_first {
            &mut self.fresh
        } else {
            &mut self.robin
        };
        rotation.push_back(at);
    }

    /// A line for a flow that has none: its own if there is room.
    fn new_flow(&mut self, key: u64, now: Instant) -> u32 {
        let flows_max = self.options.flows_max.get() as usize;
        if self.by_key.len() >= flows_max {
            self.make_room();
        }
        if self.by_key.len() >= flows_max {
            let shared = self.shared.unwrap_or_else(|| self.place_flow(None, now));
            self.shared = Some(shared);
            return shared;
        }
        let at = self.place_flow(Some(key), now);
        self.by_key.insert(key, at);
        at
    }

    fn place_flow(&mut self, key: Option<u64>, now: Instant) -> u32 {
        let next = u32::try_from(self.flows.len()).expect("flows are numbered by 32 bits");
        let at = self.unused.pop().unwrap_or(next);
        let flow = FlowLine {
            line: Line::new(at, &self.shedding, now),
            key,
            state: State::Unused,
            weight: weight(&self.options, key),
            credit: 0,
            due: Instant::NEVER,
            head: Instant::NEVER,
            sheds: Instant::NEVER,
        };
        if at == next {
            self.flows.push(flow);
        } else {
            self.flows[at as usize] = flow;
        }
        at
    }

    /// Forget a flow that is only remembered, or all that were emptied since
    /// their last turn.
    fn make_room(&mut self) {
        while let Some((until, at)) = self.parked.pop_due(Instant::NEVER) {
            if self.flows[at as usize].state == (State::Parked { until }) {
                self.discard(at);
                return;
            }
        }
        if self.emptied == 0 {
            return;
        }
        let flows = &self.flows;
        let (emptied, kept): (VecDeque<u32>, VecDeque<u32>) = self
            .robin
            .iter()
            .partition(|at| flows[**at as usize].line.len() == 0);
        self.robin = kept;
        self.emptied -= emptied.len();
        emptied.into_iter().for_each(|at| self.discard(at));
    }

    /// One of the flow was served: its turn goes on while it has credit.
    fn end_serving(&mut self, at: u32) {
        let flow = &mut self.flows[at as usize];
        if flow.credit == 0 {
            flow.credit = flow.weight;
        }
        flow.credit -= 1;
        if flow.credit > 0 && flow.line.len() > 0 {
            self.robin.push_front(at);
        } else {
            flow.credit = 0;
            self.robin.push_back(at);
        }
    }

    /// A turn found the flow's line empty.
    fn leave(&mut self, at: u32, now: Instant) {
        self.emptied -= 1;
        let flow = &mut self.flows[at as usize];
        flow.credit = 0;
        flow.sheds = Instant::NEVER;
        let until = flow.line.memory(now);
        if until > now {
            flow.state = State::Parked { until };
            self.parked.push(until, at);
        } else {
            self.discard(at);
        }
    }

    fn discard(&mut self, at: u32) {
        let flow = &mut self.flows[at as usize];
        debug_assert!(flow.line.len() == 0, "only an empty line is forgotten");
        flow.state = State::Unused;
        (flow.due, flow.sheds) = (Instant::NEVER, Instant::NEVER);
        match flow.key.take() {
            Some(key) => self.by_key.remove(&key),
            None => self.shared.take(),
        };
        self.unused.push(at);
    }
}

fn weight(options: &options::Fair, key: Option<u64>) -> u32 {
    let named = |(flow, _): &&(Flow, _)| key == Some(flow.0) && options.index == Index::Flow;
    options
        .weights
        .iter()
        .find(named)
        .map_or(1, |(_, weight)| weight.get())
}
