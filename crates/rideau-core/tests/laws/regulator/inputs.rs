//! Options, inputs and times of a regulator at random, on no grid.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use rideau_core::Lead;
use rideau_core::queue::{self, FairOptions, Order, Overflow, Shedding};
use rideau_core::regulator::Options;

use crate::valves::inputs::{self as valves, lead, nanos};

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: Pause,
    /// How much earlier the input was sent than it is taken.
    pub(crate) late: u64,
    pub(crate) input: Input,
}

#[derive(Clone, Debug)]
pub(crate) enum Pause {
    Span(u64),
    /// To this many nanoseconds before the deadline.
    ToDeadline(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Ask {
        wait: bool,
        tag: u64,
        patience: Option<u64>,
    },
    Renew(Which),
    Release(Which, bool),
    End(Which, bool),
    Cancel(Which),
    CancelTag(u64),
    Update(Lead),
    Die(Which),
    Reconfigure(Box<Options>),
    Wait,
    Close,
}

/// Whose ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Held(Index),
    Waiting(Index),
    Any(Index),
}

pub(crate) fn case(
    queue: impl Strategy<Value = queue::Options> + Clone,
) -> impl Strategy<Value = (Options, Vec<Step>)> {
    let options =
        (queue, valves::options(), 0..3_u32).prop_map(|(queue, valve, read_after)| Options {
            queue,
            read_after,
            ..Options::new(valve)
        });
    (options.clone(), steps(options))
}

fn steps(options: impl Strategy<Value = Options>) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        2 => Just(Pause::Span(0)),
        3 => nanos().prop_map(Pause::Span),
        2 => (0..2_u64).prop_map(Pause::ToDeadline),
    ];
    let late = prop_oneof![3 => Just(0), 1 => 0..10_u64, 1 => nanos()];
    let patience = prop::option::weighted(0.2, nanos());
    let ask = (prop::bool::weighted(0.8), 0..3_u64, patience);
    let input = prop_oneof![
        24 => ask.prop_map(|(wait, tag, patience)| Input::Ask { wait, tag, patience }),
        6 => which().prop_map(Input::Renew),
        8 => (which(), any::<bool>()).prop_map(|(which, ok)| Input::Release(which, ok)),
        4 => (which(), any::<bool>()).prop_map(|(which, ok)| Input::End(which, ok)),
        3 => which().prop_map(Input::Cancel),
        2 => (0..3_u64).prop_map(Input::CancelTag),
        8 => lead().prop_map(Input::Update),
        3 => which().prop_map(Input::Die),
        3 => options.prop_map(|options| Input::Reconfigure(Box::new(options))),
        4 => Just(Input::Wait),
    ];
    let step = (pause, late, input).prop_map(|(pause, late, input)| Step { pause, late, input });
    let close = Step {
        pause: Pause::Span(1),
        late: 0,
        input: Input::Close,
    };
    (
        prop::collection::vec(step.clone(), 1..50),
        prop::collection::vec(step, 0..8),
    )
        .prop_map(move |(mut open, closed)| {
            open.push(close.clone());
            open.extend(closed);
            open
        })
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        4 => any::<Index>().prop_map(Which::Held),
        3 => any::<Index>().prop_map(Which::Waiting),
        1 => any::<Index>().prop_map(Which::Any),
    ]
}

/// The queues that the model knows.
pub(crate) fn plain_queue() -> impl Strategy<Value = queue::Options> + Clone {
    let timeout = nanos().prop_map(|nanos| Shedding::Timeout {
        wait_max: Duration::from_nanos(nanos),
    });
    let shedding = prop_oneof![Just(Shedding::Never), timeout];
    queue_with(shedding, Just(None))
}

/// Every queue.
pub(crate) fn any_queue() -> impl Strategy<Value = queue::Options> + Clone {
    let shedding = (0..6, nanos(), nanos(), nanos()).prop_map(|(kind, target, interval, more)| {
        let span = Duration::from_nanos;
        let (target, interval, wait_max) = (span(target), span(interval + 1), span(target + more));
        match kind {
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
    let fair = (1..4_u32, any::<bool>()).prop_map(|(flows_max, sparse_first)| FairOptions {
        flows_max: NonZeroU32::new(flows_max).unwrap(),
        sparse_first,
        ..FairOptions::default()
    });
    queue_with(shedding, prop::option::of(fair))
}

fn queue_with(
    shedding: impl Strategy<Value = Shedding> + Clone,
    fair: impl Strategy<Value = Option<FairOptions>> + Clone,
) -> impl Strategy<Value = queue::Options> + Clone {
    let max = prop::option::of(0..5_u32);
    let parts = (any::<bool>(), any::<bool>(), 0..3_u32, max, shedding, fair);
    parts.prop_map(|(lifo, oldest, min, max, shedding, fair)| queue::Options {
        max_fits: false,
        order: if lifo { Order::Lifo } else { Order::Fifo },
        overflow: if oldest {
            Overflow::Oldest
        } else {
            Overflow::Newest
        },
        min: max.map_or(min, |max| min.min(max)),
        max,
        shedding,
        fair,
    })
}
