//! What a broker may be made of, and what may happen to it.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use rideau_core::broker::Options;
use rideau_core::meter::{self, Better, Entry, Update};
use rideau_core::queue::{self, FairOptions, Index, Order, Overflow, Shedding};
use rideau_core::{Flow, Side, Tag};

use crate::meters::{Step, span};

/// How many flows there are.
pub(super) const FLOWS: u32 = 4;
/// A bound that no lead of a script reaches.
pub(super) const UPPER: Duration = Duration::from_secs(1_000_000);

/// Options to start with, and what happens then.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) options: Options,
    pub(super) inputs: Vec<(Step, Input)>,
}

#[derive(Clone, Debug)]
pub(super) enum Input {
    Come(Visit),
    /// Cancel a waiting ask or offer, or any that ever came.
    Cancel {
        waits: bool,
        pick: usize,
    },
    CancelTag(Tag),
    /// A waiting ask or offer is gone, and is not cancelled.
    Die(usize),
    Advance,
    Change(Options),
    /// Options of which a part breaks a rule.
    WrongChange(Options),
    Close,
}

/// An ask or offer that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) side: Side,
    pub(super) wait: bool,
    /// How long before now it was sent.
    pub(super) age: u64,
    pub(super) patience: Option<u64>,
    pub(super) flow: Flow,
    pub(super) tag: Option<Tag>,
}

/// Scripts for queues of this kind, in which one side or the other comes more
/// often for a while.
pub(super) fn script(
    queue: impl Strategy<Value = queue::Options> + Clone + 'static,
) -> impl Strategy<Value = Script> {
    let step = prop_oneof![
        2 => Just(Step::By(0)),
        5 => span().prop_map(Step::By),
        3 => (-1_i64..=1).prop_map(Step::Due),
    ];
    let leans = prop::array::uniform4(prop::sample::select(vec![1_u8, 3, 5, 7, 9]));
    let inputs = prop::collection::vec((step, 0_u8..10, input(queue.clone())), 1..60);
    (options(queue), leans, inputs).prop_map(|(options, leans, inputs)| {
        let lean = |(at, (step, roll, mut input)): (usize, (Step, u8, Input))| {
            if let Input::Come(visit) = &mut input
                && roll < leans[at / 15]
            {
                visit.side = Side::Offer;
            }
            (step, input)
        };
        let inputs = inputs.into_iter().enumerate().map(lean).collect();
        Script { options, inputs }
    })
}

fn input(
    queue: impl Strategy<Value = queue::Options> + Clone + 'static,
) -> impl Strategy<Value = Input> {
    let wrong = (options(queue.clone()), 0_usize..6)
        .prop_map(|(options, part)| Input::WrongChange(wrong(options, part)));
    prop_oneof![
        200 => visit().prop_map(Input::Come),
        25 => (prop::bool::weighted(0.8), any::<usize>())
            .prop_map(|(waits, pick)| Input::Cancel { waits, pick }),
        12 => tag().prop_map(Input::CancelTag),
        25 => any::<usize>().prop_map(Input::Die),
        40 => Just(Input::Advance),
        15 => options(queue).prop_map(Input::Change),
        8 => wrong,
        1 => Just(Input::Close),
    ]
}

fn visit() -> impl Strategy<Value = Visit> {
    let age = prop_oneof![2 => Just(0), 1 => span()];
    let patience = prop::option::weighted(0.2, span());
    let flow = (0..u64::from(FLOWS)).prop_map(Flow);
    let tag = prop::option::weighted(0.5, tag());
    (prop::bool::weighted(0.85), age, patience, flow, tag).prop_map(
        |(wait, age, patience, flow, tag)| Visit {
            side: Side::Ask,
            wait,
            age,
            patience,
            flow,
            tag,
        },
    )
}

fn tag() -> impl Strategy<Value = Tag> {
    (0_u64..3).prop_map(Tag)
}

pub(super) fn options(
    queue: impl Strategy<Value = queue::Options> + Clone,
) -> impl Strategy<Value = Options> {
    (queue.clone(), queue, meters(), 0_u32..5).prop_map(|(asks, offers, meters, read_after)| {
        Options {
            asks,
            offers,
            meters,
            read_after,
        }
    })
}

/// None, or one or both of the meters whose readings can be seen.
fn meters() -> impl Strategy<Value = Vec<meter::Options>> {
    let spans = prop::array::uniform3(span());
    (0_u8..6, spans).prop_map(|(kinds, spans)| {
        let [update, ask, offer] = spans.map(|span| Duration::from_nanos(span.max(1)));
        let better = meter::Options::Better(Better {
            ask_upper: UPPER,
            offer_upper: UPPER,
            update,
        });
        let entry = |regulator: &str, side, update| Entry {
            regulator: regulator.into(),
            side,
            update,
        };
        let update = meter::Options::Update(Update {
            entries: vec![
                entry("asks", Side::Ask, ask),
                entry("offers", Side::Offer, offer),
            ],
            seed: 7,
        });
        match kinds {
            0 => vec![],
            1 => vec![update],
            2 | 3 => vec![better],
            4 => vec![better, update],
            _ => vec![update, better],
        }
    })
}

/// Queues of one line that only a timeout or nothing thins out.
pub(super) fn plain_queue() -> impl Strategy<Value = queue::Options> + Clone + 'static {
    let shedding = prop_oneof![
        1 => Just(Shedding::Never),
        2 => time().prop_map(|wait_max| Shedding::Timeout { wait_max }),
        1 => Just(Shedding::Timeout { wait_max: Duration::MAX }),
    ];
    queue(shedding, Just(None))
}

/// Queues of every law, with or without turns.
pub(super) fn any_queue() -> impl Strategy<Value = queue::Options> + Clone + 'static {
    let spans = (time(), time(), time());
    let shedding = (0_u8..6, spans).prop_map(|(law, (target, interval, more))| {
        let interval = interval.max(Duration::from_nanos(1));
        let wait_max = target + more;
        match law {
            0 => Shedding::Never,
            1 => Shedding::Timeout { wait_max },
            2 => Shedding::CoDel { target, interval },
            3 => Shedding::BoundedCoDel {
                target,
                interval,
                wait_max,
            },
            4 => Shedding::MinDelay { target, interval },
            _ => Shedding::Standing { target, interval },
        }
    });
    queue(shedding, prop::option::of(fair()))
}

fn queue(
    shedding: impl Strategy<Value = Shedding> + Clone + 'static,
    fair: impl Strategy<Value = Option<FairOptions>> + Clone + 'static,
) -> impl Strategy<Value = queue::Options> + Clone + 'static {
    let order = prop_oneof![
        2 => Just(Order::Fifo),
        1 => Just(Order::Lifo),
        1 => time().prop_map(|slow| Order::Adaptive { slow }),
    ];
    let overflow = prop_oneof![Just(Overflow::Newest), Just(Overflow::Oldest)];
    let min = prop_oneof![2 => Just(0_u32), 1 => 0_u32..4];
    let room = prop_oneof![2 => Just(None), 1 => (0_u32..5).prop_map(Some)];
    (order, shedding, min, room, overflow, fair).prop_map(
        |(order, shedding, min, room, overflow, fair)| queue::Options {
            max_fits: false,
            order,
            shedding,
            min,
            max: room.map(|room| min + room),
            overflow,
            fair,
        },
    )
}

fn fair() -> impl Strategy<Value = FairOptions> + Clone + 'static {
    let index = prop_oneof![
        2 => Just(Index::Flow),
        1 => (1_u32..4).prop_map(|lines| Index::Hashed(NonZeroU32::new(lines).unwrap())),
    ];
    let flows_max = prop_oneof![1 => 1..FLOWS, 2 => FLOWS..10];
    (index, flows_max, 1_u32..4, prop::bool::ANY).prop_map(
        |(index, flows_max, weight, sparse_first)| {
            let fair = FairOptions {
                index,
                flows_max: NonZeroU32::new(flows_max).unwrap(),
                weights: vec![(Flow(0), NonZeroU32::new(weight).unwrap())],
                sparse_first,
            };
            crate::hall::legal(fair)
        },
    )
}

fn time() -> impl Strategy<Value = Duration> + Clone + 'static {
    span().prop_map(Duration::from_nanos)
}

/// Break a rule in one part and leave the others good.
pub(super) fn wrong(mut options: Options, part: usize) -> Options {
    let better = meter::Options::Better(Better::default());
    let idle = meter::Options::Better(Better {
        update: Duration::ZERO,
        ..Better::default()
    });
    let endless = Shedding::CoDel {
        target: Duration::ZERO,
        interval: Duration::ZERO,
    };
    match part {
        0 => (options.asks.min, options.asks.max) = (2, Some(1)),
        1 => (options.offers.min, options.offers.max) = (2, Some(1)),
        2 => options.asks.shedding = endless,
        3 => options.offers.shedding = endless,
        4 => options.meters = vec![idle],
        _ => options.meters = vec![better.clone(), better],
    }
    options
}
