//! Turns by flow against a plain rotation of plain lines.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::{Just, Strategy, proptest};
use rideau_core::queue::{FairOptions, Index, Options};
use rideau_core::{Reason, Rng};

use crate::hall::{self, Guest, Hall, Input, Outcome, Pause};
use crate::plain::{Plain, Waiting};

proptest! {
    #![proptest_config(crate::cases(4000))]

    #[test]
    fn flows_take_turns_as_in_a_plain_rotation(
        options in simple_options(),
        history in hall::history(hall::input(simple_options())),
    ) {
        compare_with_rotation(&options, &history);
    }

    /// What a flow that left has learnt is kept as long as it matters. The
    /// options stay: in which order remembered flows come back at a change is
    /// not specified.
    #[test]
    fn each_flow_has_a_codel_of_its_own_and_remembers_it(
        options in codel_options(),
        history in hall::history(hall::input(Just(Options::default()))),
    ) {
        let history: Vec<_> = history
            .into_iter()
            .filter(|(input, _)| !matches!(input, Input::Change(_)))
            .collect();
        compare_with_rotation(&options, &history);
    }

    #[test]
    fn a_busy_flow_does_not_delay_the_others(
        fair in hall::fair(),
        flood in 1_usize..200,
        flows in 1_u64..10,
    ) {
        let fair = FairOptions { index: Index::Flow, weights: Vec::new(), ..fair };
        let flows_max = std::num::NonZeroU32::new(1000).unwrap();
        let fair = Some(FairOptions { flows_max, ..fair });
        let mut hall = Hall::new(&Options { fair, ..Options::default() }, true, 0);
        let flood = std::iter::repeat_n(0, flood);
        for flow in flood.chain(1..=flows) {
            let input = Input::Push { ago: 0, patience: None, flow, tag: None, promised: false };
            let guest = hall.guest(&input);
            hall.act(&input, guest);
        }
        let first = usize::try_from(flows).unwrap() + 1;
        let mut served: Vec<_> = (0..first)
            .map(|_| hall.act(&Input::Pop, None).taken.unwrap())
            .collect();
        served.sort_unstable();
        let latest = served.split_off(1);
        let all = usize::try_from(flows).unwrap();
        assert_eq!(latest.len(), all);
        assert!(latest.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }
}

fn simple_options() -> impl Strategy<Value = Options> {
    (hall::single(hall::simple_shedding()), hall::fair()).prop_map(|(single, fair)| Options {
        fair: Some(fair),
        ..single
    })
}

fn codel_options() -> impl Strategy<Value = Options> {
    (hall::single(hall::codel_shedding()), hall::fair()).prop_map(|(single, mut fair)| {
        fair.flows_max = std::num::NonZeroU32::new(1000).unwrap();
        Options {
            fair: Some(fair),
            ..single
        }
    })
}

fn compare_with_rotation(options: &Options, history: &[(Input, Pause)]) {
    let mut hall = Hall::new(options, true, 0);
    let mut rotation = Rotation::new(options);
    for (input, pause) in history {
        hall.pause(*pause);
        if matches!(input, Input::Change(options) if rotation.is_unsure(options)) {
            continue;
        }
        let guest = hall.guest(input);
        let mut outcome = hall.act(input, guest);
        let mut wanted = rotation.act(input, guest, hall.now);
        // Lines that are due at once may be settled in any order.
        outcome.shed.sort_unstable();
        wanted.shed.sort_unstable();
        assert_eq!(outcome, wanted, "{input:?} at {}", hall.now);
        assert_eq!(hall.queue.len(), rotation.len());
        assert_eq!(
            hall.queue.flows(),
            rotation.fresh.len() + rotation.robin.len()
        );
        assert_eq!(
            hall.deadline(),
            rotation.deadline(),
            "{input:?} at {}",
            hall.now
        );
    }
}

/// A flow's name; none for the line that those beyond the limit share.
type Key = Option<u64>;

/// Plain lines, and the order in which they are served.
struct Rotation {
    options: Options,
    flows: BTreeMap<Key, Member>,
    fresh: VecDeque<Key>,
    robin: VecDeque<Key>,
}

struct Member {
    line: Plain,
    /// How many more go in the present turn; none if it is not its turn.
    rest: Option<u32>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Turning,
    Remembered { until: u64 },
}

impl Rotation {
    fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            flows: BTreeMap::new(),
            fresh: VecDeque::new(),
            robin: VecDeque::new(),
        }
    }

    fn act(&mut self, input: &Input, guest: Option<Guest>, now: u64) -> Outcome {
        let mut outcome = Outcome::default();
        match input {
            Input::Push { .. } => self.push(guest.unwrap(), now, &mut outcome),
            Input::Pop => outcome.taken = self.pop(now),
            Input::Wait => (),
            Input::Leave(id) => {
                if !self.leave(*id, now) {
                    return outcome;
                }
                outcome.left.push(*id);
            }
            Input::LeaveTagged(tag) => {
                while let Some(id) = self.newest(*tag) {
                    self.leave(id, now);
                    outcome.left.push(id);
                    self.settle(now, &mut outcome);
                }
                return outcome;
            }
            Input::Change(options) => {
                self.change(options, now);
                outcome.changed = true;
            }
        }
        self.settle(now, &mut outcome);
        outcome
    }

    /// Settle all lines, gather the asks they shed, and forget what is not
    /// worth remembering any more.
    fn settle(&mut self, now: u64, outcome: &mut Outcome) {
        for member in self.flows.values_mut() {
            member.line.wait(now);
            outcome.shed.append(&mut member.line.shed);
        }
        self.flows.retain(|_, member| match member.state {
            State::Turning => true,
            State::Remembered { until } => until > now,
        });
    }

    fn push(&mut self, guest: Guest, now: u64, outcome: &mut Outcome) {
        for member in self.flows.values_mut() {
            member.line.expire(now);
            outcome.shed.append(&mut member.line.shed);
        }
        if guest.deadline <= now {
            outcome.shed.push((guest.id, Reason::Deadline));
            return;
        }
        let key = self.join(guest.flow, now);
        self.flows.get_mut(&key).unwrap().line.push(guest, now);
    }

    fn pop(&mut self, now: u64) -> Option<usize> {
        for member in self.flows.values_mut() {
            member.line.expire(now);
        }
        while let Some(key) = self.fresh.pop_front().or_else(|| self.robin.pop_front()) {
            let weight = self.weight(key);
            let member = self.flows.get_mut(&key).unwrap();
            let Some(taken) = member.line.pop(now) else {
                member.rest = None;
                let until = member.line.memory(now);
                member.state = State::Remembered { until };
                continue;
            };
            let rest = member.rest.unwrap_or(weight) - 1;
            if rest > 0 && !member.line.waiting.is_empty() {
                member.rest = Some(rest);
                self.robin.push_front(key);
            } else {
                member.rest = None;
                self.robin.push_back(key);
            }
            return Some(taken);
        }
        None
    }

    fn leave(&mut self, id: usize, now: u64) -> bool {
        let mut flows = self.flows.values_mut();
        flows.any(|member| member.line.leave(id, now))
    }

    /// Which of the asks that the minima of several lines have spared goes
    /// first when their lines are mixed is not specified.
    fn is_unsure(&self, options: &Options) -> bool {
        let spared = |member: &Member| !member.line.spared.is_empty();
        let index = options.fair.as_ref().map(|fair| fair.index);
        index != Some(self.fair().index) && self.flows.values().any(spared)
    }

    /// The flows of the new options, if the old ones do not do.
    fn change(&mut self, options: &Options, now: u64) {
        let old = std::mem::replace(&mut self.options, options.clone());
        for member in self.flows.values_mut() {
            member.line.adopt_options(options, now);
        }
        if old.fair.unwrap().index != self.fair().index {
            let flows = std::mem::take(&mut self.flows);
            self.fresh.clear();
            self.robin.clear();
            let mut all: Vec<Waiting> = Vec::new();
            for member in flows.into_values() {
                all.extend(member.line.waiting);
            }
            all.sort_by_key(|who| (who.guest.sent, who.guest.id));
            for who in all {
                let key = self.join(who.guest.flow, now);
                self.flows.get_mut(&key).unwrap().line.waiting.push(who);
            }
        }
        for (key, member) in &mut self.flows {
            let weight = weight_of(options.fair.as_ref().unwrap(), *key);
            member.rest = member.rest.map(|rest| rest.min(weight));
            member.line.expire(now);
            member.line.fit(now);
        }
    }

    /// The line for a flow, in the rotation.
    fn join(&mut self, flow: u64, now: u64) -> Key {
        let mut key = Some(match self.fair().index {
            Index::Flow => flow,
            Index::Hashed(lines) => hash(flow) % u64::from(lines.get()),
        });
        let flows_max = self.fair().flows_max.get() as usize;
        if !self.flows.contains_key(&key) && self.named() >= flows_max {
            let flows = &mut self.flows;
            self.robin.retain(|key| {
                let is_empty = flows[key].line.waiting.is_empty();
                if is_empty {
                    flows.remove(key);
                }
                !is_empty
            });
        }
        if !self.flows.contains_key(&key) && self.named() >= flows_max {
            key = None;
        }
        let is_new = match self.flows.get_mut(&key) {
            Some(member) => std::mem::replace(&mut member.state, State::Turning) != State::Turning,
            None => {
                let line = Plain::new(&self.options, now);
                let state = State::Turning;
                self.flows.insert(
                    key,
                    Member {
                        line,
                        rest: None,
                        state,
                    },
                );
                true
            }
        };
        if is_new && self.fair().sparse_first {
            self.fresh.push_back(key);
        } else if is_new {
            self.robin.push_back(key);
        }
        key
    }

    fn named(&self) -> usize {
        self.flows.keys().flatten().count()
    }

    fn len(&self) -> usize {
        let lens = self.flows.values().map(|member| member.line.waiting.len());
        lens.sum()
    }

    fn deadline(&self) -> Option<u64> {
        let deadlines = self.flows.values();
        deadlines.filter_map(|member| member.line.deadline()).min()
    }

    /// The newest with a tag.
    fn newest(&self, tag: u64) -> Option<usize> {
        let everybody = self.flows.values().flat_map(|member| &member.line.waiting);
        everybody
            .filter(|who| who.guest.tag == Some(tag))
            .map(|who| who.guest.id)
            .max()
    }

    fn fair(&self) -> &FairOptions {
        self.options.fair.as_ref().unwrap()
    }

    fn weight(&self, key: Key) -> u32 {
        weight_of(self.fair(), key)
    }
}

fn weight_of(fair: &FairOptions, key: Key) -> u32 {
    let named = fair.weights.iter().find(|(flow, _)| Some(flow.0) == key);
    match fair.index {
        Index::Flow => named.map_or(1, |(_, weight)| weight.get()),
        Index::Hashed(_) => 1,
    }
}

/// The first draw of a generator is the hash of its seed and this step.
fn hash(flow: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    Rng::new(flow.wrapping_sub(STEP)).draw()
}
