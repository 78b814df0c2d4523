//! Lines by flow, served in turn.
//!
//! Each flow has its own line, limits and law. A flow joins the rotation at
//! its tail and leaves it on a turn that finds its line empty; what its law
//! has learnt is remembered for a while.

use std::collections::{HashMap, VecDeque};

use super::Step;
use super::line::{Limits, Line};
use super::options::{self, Index, Shedding};
use crate::expiry::Expiry;
use crate::ids::Flow;
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
    parked: Expiry<u32>,
    len: usize,
    /// How many flows in the rotation have nobody.
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
    pub(crate) fn new(options: &options::Fair, shedding: &Shedding) -> Self {
        Self {
            options: options.clone(),
            shedding: *shedding,
            flows: Vec::new(),
            unused: Vec::new(),
            by_key: HashMap::new(),
            shared: None,
            fresh: VecDeque::new(),
            robin: VecDeque::new(),
            due: Expiry::new(),
            parked: Expiry::new(),
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

    pub(crate) fn oldest<R>(&self, ledger: &Ledger<R>) -> Option<Instant> {
        self.lines().filter_map(|line| line.oldest(ledger)).min()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.flows.iter().map(|flow| &flow.line)
    }

    pub(crate) fn push<R>(&mut self, slot: u32, limits: Limits, step: &mut Step<'_, R>) {
        let at = self.flow_for(step.ledger.place(slot).flow, step.now);
        self.on_line(at, limits, step, |line, step| line.push(slot, limits, step));
        self.settle(limits, step);
    }

    /// Serve the flow whose turn it is.
    pub(crate) fn pop<R>(
        &mut self,
        limits: Limits,
        step: &mut Step<'_, R>,
        mut take: impl FnMut(&mut Line, &mut Step<'_, R>) -> Option<u32>,
    ) -> Option<u32> {
        let mut taken = None;
        while let Some(at) = self.fresh.pop_front().or_else(|| self.robin.pop_front()) {
            taken = self.on_line(at, limits, step, &mut take);
            if taken.is_some() {
                self.end_serving(at);
                break;
            }
            self.leave(at, step.now);
        }
        self.settle(limits, step);
        taken
    }

    pub(crate) fn unlink<R>(&mut self, slot: u32, limits: Limits, step: &mut Step<'_, R>) {
        let at = step.ledger.place(slot).line;
        self.on_line(at, limits, step, |line, step| {
            line.unlink(slot, step.ledger)
        });
    }

    pub(crate) fn line(&self, at: u32) -> &Line {
        &self.flows[at as usize].line
    }

    /// Settle the lines that are due, and forget what was remembered long
    /// enough.
    pub(crate) fn settle<R>(&mut self, limits: Limits, step: &mut Step<'_, R>) {
        while let Some((due, at)) = self.due.pop_due(step.now) {
            if self.flows[at as usize].due == due {
                self.flows[at as usize].due = Instant::NEVER;
                self.on_line(at, limits, step, |line, step| line.settle(limits.min, step));
            }
        }
        while let Some((until, at)) = self.parked.pop_due(step.now) {
            if self.flows[at as usize].state == (State::Parked { until }) {
                self.discard(at);
            }
        }
        let (flows, alive) = (&self.flows, self.by_key.len() + 1);
        self.due
            .sweep(alive, |due, at| flows[at as usize].due == due);
        self.parked.sweep(alive, |until, at| {
            flows[at as usize].state == State::Parked { until }
        });
    }

    pub(crate) fn due(&self) -> Instant {
        self.due.first()
    }

    pub(crate) fn is_shedding(&self, now: Instant) -> bool {
        let active = |flow: &&FlowLine| flow.state == State::Active;
        let mut active = self.flows.iter().filter(active);
        active.any(|flow| flow.line.is_shedding(now))
    }

    /// Take over changed options with the same index: flows and turns stay.
    pub(crate) fn reconfigure<R>(
        &mut self,
        options: &options::Fair,
        shedding: &Shedding,
        limits: Limits,
        step: &mut Step<'_, R>,
    ) {
        self.options = options.clone();
        self.shedding = *shedding;
        self.parked.clear();
        for at in 0..u32::try_from(self.flows.len()).expect("flows are numbered by 32 bits") {
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
                line.reconfigure(shedding, step.now);
                line.trim(limits, step);
                line.settle(limits.min, step);
            });
        }
    }

    /// Take an entry over from another queue, without asking anybody.
    pub(crate) fn adopt<R>(&mut self, slot: u32, limits: Limits, step: &mut Step<'_, R>) {
        let at = self.flow_for(step.ledger.place(slot).flow, step.now);
        self.on_line(at, limits, step, |line, step| line.link(slot, step.ledger));
    }

    /// Take everybody out, and forget the flows.
    pub(crate) fn clear<R>(&mut self, ledger: &mut Ledger<R>, mut each: impl FnMut(u32)) {
        for flow in &mut self.flows {
            flow.line.clear(ledger, &mut each);
        }
        *self = Self::new(&self.options, &self.shedding);
    }

    /// Work on a line, and keep the count and its due time true.
    fn on_line<R, T>(
        &mut self,
        at: u32,
        limits: Limits,
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
        let due = flow.line.due(limits.min, step.ledger);
        if due != flow.due {
            flow.due = due;
            self.due.push(due, at);
        }
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
        flow.due = Instant::NEVER;
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
