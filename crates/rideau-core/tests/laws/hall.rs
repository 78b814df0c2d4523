//! A queue with its ledger, and random histories to put it through.
//!
//! Spans run from a nanosecond to a second with every magnitude as likely as
//! the others, and some pauses end right before, at or after the queue's own
//! deadline: a grid would hide what happens between its points.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, option};
use rideau_core::queue::{
    AskOptions, FairOptions, Index, Options, Order, Overflow, Queue, Shedding,
};
use rideau_core::{Flow, Instant, Ledger, Reason, Tag, Ticket};

/// Tags and flows are numbered below this.
pub(crate) const NAMES: u64 = 4;

/// Something that happens to a queue.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Push {
        /// How long before now it was sent.
        ago: u64,
        /// How long after now its own deadline comes.
        patience: Option<u64>,
        flow: u64,
        tag: Option<u64>,
        promised: bool,
    },
    Pop,
    Wait,
    /// One of all asks so far leaves, be it there or not.
    Leave(usize),
    /// All with a tag leave.
    LeaveTagged(u64),
    Change(Options),
}

/// How long after the input before another comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    Span(u64),
    /// Until this much before the deadline.
    Before(u64),
    /// Until this much after the deadline.
    After(u64),
}

/// What an input brought about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outcome {
    /// The asks that were shed, in order, and why.
    pub(crate) shed: Vec<(usize, Reason)>,
    /// The ask that was served.
    pub(crate) taken: Option<usize>,
    /// The asks that left.
    pub(crate) left: Vec<usize>,
    /// The change was accepted.
    pub(crate) changed: bool,
}

/// An ask that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Guest {
    pub(crate) id: usize,
    pub(crate) sent: u64,
    /// As far as no clock goes if it has none.
    pub(crate) deadline: u64,
    pub(crate) flow: u64,
    pub(crate) tag: Option<u64>,
    pub(crate) promised: bool,
}

/// A queue and all asks that ever came, by number.
pub(crate) struct Hall {
    pub(crate) queue: Queue,
    pub(crate) ledger: Ledger<usize>,
    pub(crate) now: u64,
    tickets: Vec<Ticket>,
    /// The latest stamp so far.
    sent: u64,
    is_ordered: bool,
}

impl Hall {
    /// An empty hall; stamps never go back if it `is_ordered`.
    pub(crate) fn new(options: &Options, is_ordered: bool, now: u64) -> Self {
        Self {
            queue: Queue::new(options.clone(), Instant::from_nanos(now)).unwrap(),
            ledger: Ledger::default(),
            now,
            tickets: Vec::new(),
            sent: 0,
            is_ordered,
        }
    }

    pub(crate) fn pause(&mut self, pause: Pause) {
        let deadline = self.deadline().unwrap_or(self.now);
        self.now = match pause {
            Pause::Span(span) => self.now + span,
            Pause::Before(span) => self.now.max(deadline.saturating_sub(span)),
            Pause::After(span) => self.now.max(deadline) + span,
        };
    }

    pub(crate) fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.queue.deadline().map(Instant::as_nanos)
    }

    /// The ask that would come with this input.
    pub(crate) fn guest(&mut self, input: &Input) -> Option<Guest> {
        let Input::Push {
            ago,
            patience,
            flow,
            tag,
            promised,
        } = *input
        else {
            return None;
        };
        let mut sent = self.now.saturating_sub(ago);
        if self.is_ordered {
            sent = sent.max(self.sent);
            self.sent = sent;
        }
        Some(Guest {
            id: self.tickets.len(),
            sent,
            deadline: patience.map_or(u64::MAX, |span| self.now + span),
            flow,
            tag,
            promised,
        })
    }

    /// Carry out an input; a `guest` is the ask that comes with it.
    pub(crate) fn act(&mut self, input: &Input, guest: Option<Guest>) -> Outcome {
        let mut outcome = Outcome::default();
        let (now, mut shed) = (self.instant(), Vec::new());
        match input {
            Input::Push { .. } => {
                let guest = guest.unwrap();
                let ticket = self.ledger.open(guest.id);
                self.tickets.push(ticket);
                if let Some(tag) = guest.tag {
                    self.ledger.tag(ticket, Tag(tag));
                }
                let terms = AskOptions {
                    sent: Instant::from_nanos(guest.sent),
                    deadline: Instant::from_nanos(guest.deadline).finite(),
                    flow: Flow(guest.flow),
                    tag: guest.tag.map(Tag),
                    wait: true,
                    promised: guest.promised,
                };
                self.queue
                    .push(ticket, &terms, &mut self.ledger, now, &mut shed);
            }
            Input::Pop => {
                let taken = self.queue.pop(&mut self.ledger, now, &mut shed);
                let taken = taken.ticket();
                outcome.taken = taken.map(|ticket| self.ledger.close(ticket).unwrap());
            }
            Input::Wait => self.queue.advance(&mut self.ledger, now, &mut shed),
            Input::Leave(id) => {
                if let Some(ticket) = self.tickets.get(*id).copied()
                    && self.queue.remove(ticket, &mut self.ledger, now, &mut shed)
                {
                    outcome.left.push(self.ledger.close(ticket).unwrap());
                }
            }
            Input::LeaveTagged(tag) => {
                while let Some(ticket) = self.ledger.newest(Tag(*tag)) {
                    assert!(self.queue.remove(ticket, &mut self.ledger, now, &mut shed));
                    outcome.left.push(self.ledger.close(ticket).unwrap());
                    for gone in shed.drain(..) {
                        let id = self.ledger.close(gone.ticket).unwrap();
                        outcome.shed.push((id, gone.reason));
                    }
                }
            }
            Input::Change(options) => {
                let Self { queue, ledger, .. } = self;
                let changed = queue.reconfigure(options.clone(), ledger, now, &mut shed);
                assert_eq!(changed.is_ok(), options.validate().is_ok());
                outcome.changed = changed.is_ok();
            }
        }
        for gone in shed {
            let id = self.ledger.close(gone.ticket).expect("it ends only once");
            outcome.shed.push((id, gone.reason));
        }
        outcome
    }
}

/// From a nanosecond to a second, every magnitude as likely as the others.
pub(crate) fn span() -> impl Strategy<Value = u64> {
    (0_u32..=8, 1000_u64..10_000).prop_map(|(power, mantissa)| mantissa * 10_u64.pow(power) / 1000)
}

pub(crate) fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        2 => Just(Pause::Span(0)),
        5 => span().prop_map(Pause::Span),
        1 => Just(Pause::Before(1)),
        2 => Just(Pause::After(0)),
        1 => Just(Pause::After(1)),
        1 => span().prop_map(Pause::Before),
        1 => span().prop_map(Pause::After),
    ]
}

pub(crate) fn push() -> impl Strategy<Value = Input> {
    let ago = prop_oneof![3 => Just(0), 2 => span()];
    let tag = option::weighted(0.3, 0..NAMES);
    let patience = option::weighted(0.2, span());
    (ago, patience, 0..NAMES, tag, any::<bool>()).prop_map(
        |(ago, patience, flow, tag, promised)| Input::Push {
            ago,
            patience,
            flow,
            tag,
            promised: promised || patience.is_some(),
        },
    )
}

/// Everything that can happen, with changes to what `options` gives.
pub(crate) fn input(options: impl Strategy<Value = Options>) -> impl Strategy<Value = Input> {
    prop_oneof![
        20 => push(),
        10 => Just(Input::Pop),
        5 => Just(Input::Wait),
        4 => (0_usize..40).prop_map(Input::Leave),
        1 => (0..NAMES).prop_map(Input::LeaveTagged),
        2 => options.prop_map(Input::Change),
    ]
}

/// A history of up to sixty inputs.
pub(crate) fn history(
    input: impl Strategy<Value = Input>,
) -> impl Strategy<Value = Vec<(Input, Pause)>> {
    collection::vec((input, pause()), 1..60)
}

pub(crate) fn duration() -> impl Strategy<Value = Duration> {
    span().prop_map(Duration::from_nanos)
}

/// Every law but controlled delay.
pub(crate) fn simple_shedding() -> impl Strategy<Value = Shedding> {
    prop_oneof![
        Just(Shedding::Never),
        timeout(),
        (duration(), duration())
            .prop_map(|(target, interval)| Shedding::MinDelay { target, interval }),
        (duration(), duration())
            .prop_map(|(target, interval)| Shedding::Standing { target, interval }),
    ]
}

/// Both forms of controlled delay. Intervals of some nanoseconds are left
/// out: the pace within an episode would be no span at all.
pub(crate) fn codel_shedding() -> impl Strategy<Value = Shedding> {
    let spans = || {
        (
            duration(),
            (span(), 1_u64..2000).prop_map(|(a, b)| Duration::from_nanos(a + b * 50)),
        )
    };
    prop_oneof![
        spans().prop_map(|(target, interval)| Shedding::CoDel { target, interval }),
        (spans(), duration()).prop_map(|((target, interval), more)| Shedding::BoundedCoDel {
            target,
            interval,
            wait_max: target + more,
        }),
    ]
}

/// The law that keeps promises.
pub(crate) fn paced_shedding() -> impl Strategy<Value = Shedding> {
    Just(Shedding::Paced { wait_cap: None })
}

fn timeout() -> impl Strategy<Value = Shedding> {
    let wait_max = prop_oneof![
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
        8 => duration(),
    ];
    wait_max.prop_map(|wait_max| Shedding::Timeout { wait_max })
}

/// Options of a single line under the laws that `shedding` gives.
pub(crate) fn single(shedding: impl Strategy<Value = Shedding>) -> impl Strategy<Value = Options> {
    let order = prop_oneof![
        Just(Order::Fifo),
        Just(Order::Lifo),
        duration().prop_map(|slow| Order::Adaptive { slow }),
    ];
    let overflow = prop_oneof![Just(Overflow::Newest), Just(Overflow::Oldest)];
    let min = prop_oneof![2 => Just(0), 1 => 0_u32..4];
    (order, shedding, min, option::of(0_u32..6), overflow).prop_map(
        |(order, shedding, min, more, overflow)| Options {
            max_fits: false,
            order,
            shedding,
            min,
            max: more.map(|more| min + more),
            overflow,
            fair: None,
        },
    )
}

/// Turns by flow.
pub(crate) fn fair() -> impl Strategy<Value = FairOptions> {
    let positive = |most: u32| (1..=most).prop_map(|n| NonZeroU32::new(n).unwrap());
    let index = prop_oneof![
        2 => Just(Index::Flow),
        1 => positive(4).prop_map(Index::Hashed),
    ];
    let flows_max = prop_oneof![1 => positive(3), 2 => Just(NonZeroU32::new(1000).unwrap())];
    let weight = option::weighted(0.3, positive(3));
    let weights = collection::vec(weight, NAMES as usize);
    (index, flows_max, weights, any::<bool>()).prop_map(
        |(index, flows_max, weights, sparse_first)| {
            let fair = FairOptions {
                index,
                flows_max,
                weights: (0..NAMES)
                    .zip(weights)
                    .filter_map(|(flow, weight)| Some((Flow(flow), weight?)))
                    .collect(),
                sparse_first,
            };
            legal(fair)
        },
    )
}

/// Lines by hash have no weights, and all of them have room.
pub(crate) fn legal(mut fair: FairOptions) -> FairOptions {
    if let Index::Hashed(lines) = fair.index {
        fair.weights.clear();
        fair.flows_max = fair.flows_max.max(lines);
    }
    fair
}
