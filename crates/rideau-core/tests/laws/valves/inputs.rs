//! Options, inputs and times at random, of mixed magnitude and on no grid.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use rideau_core::Lead;
use rideau_core::valve::{Breaker, CoDel, Gradient, Open, Options, Rate, Relative};

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: Pause,
    pub(crate) input: Input,
}

#[derive(Clone, Debug)]
pub(crate) enum Pause {
    Span(u64),
    /// To this many nanoseconds before the valve opens.
    ToOpening(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Ask,
    Renew(Index),
    Release(Index, bool),
    Update(Lead),
    Reconfigure(Options),
    Wait,
}

/// Options, the leases that are there at first, and what happens; changes of
/// options are of the same kind unless `options` mixes them.
pub(crate) fn case(
    options: impl Strategy<Value = Options> + Clone,
) -> impl Strategy<Value = (Options, usize, Vec<Step>)> {
    (options.clone(), 0..6_usize, steps(options))
}

pub(crate) fn steps(options: impl Strategy<Value = Options>) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        3 => nanos().prop_map(Pause::Span),
        1 => (0..2_u64).prop_map(Pause::ToOpening),
    ];
    let input = prop_oneof![
        10 => Just(Input::Ask),
        3 => any::<Index>().prop_map(Input::Renew),
        6 => (any::<Index>(), any::<bool>()).prop_map(|(which, ok)| Input::Release(which, ok)),
        6 => lead().prop_map(Input::Update),
        1 => options.prop_map(Input::Reconfigure),
        1 => Just(Input::Wait),
    ];
    let step = (pause, input).prop_map(|(pause, input)| Step { pause, input });
    prop::collection::vec(step, 1..60)
}

/// Leads that are mostly small and openings that are mostly used, so that
/// episodes grow long.
pub(crate) fn codel_episodes() -> impl Strategy<Value = (Options, usize, Vec<Step>)> {
    let options = (100..1_000_u64).prop_map(|interval| {
        Options::CoDel(CoDel {
            target: Lead::ZERO,
            interval: Duration::from_nanos(interval),
            ..CoDel::default()
        })
    });
    let pause = prop_oneof![
        4 => (0..2_u64).prop_map(Pause::ToOpening),
        4 => (0..300_u64).prop_map(Pause::Span),
        1 => (0..10_000_u64).prop_map(Pause::Span),
    ];
    let input = prop_oneof![
        8 => Just(Input::Ask),
        8 => Just(Input::Update(Lead::from_nanos(-1))),
        1 => Just(Input::Update(Lead::ZERO)),
    ];
    let step = (pause, input).prop_map(|(pause, input)| Step { pause, input });
    (options, Just(0), prop::collection::vec(step, 1..120))
}

/// Many leases that end well, held for times of every magnitude.
pub(crate) fn gradient_samples() -> impl Strategy<Value = (Options, usize, Vec<Step>)> {
    let input = prop_oneof![
        Just(Input::Ask),
        any::<Index>().prop_map(|which| Input::Release(which, true)),
    ];
    let pause = nanos().prop_map(Pause::Span);
    let step = (pause, input).prop_map(|(pause, input)| Step { pause, input });
    (gradient(), 0..60_usize, prop::collection::vec(step, 1..120))
}

/// Every kind, alone or in a list.
pub(crate) fn options() -> impl Strategy<Value = Options> + Clone {
    let one = prop_oneof![open(), relative(), codel(), rate(), breaker(), gradient()].boxed();
    let list = prop::collection::vec(one.clone(), 1..4).prop_map(Options::LeastOf);
    prop_oneof![one, list]
}

pub(crate) fn open() -> impl Strategy<Value = Options> + Clone {
    bounds().prop_map(|(_, max)| Options::Open(Open { max }))
}

pub(crate) fn relative() -> impl Strategy<Value = Options> + Clone {
    (lead(), bounds())
        .prop_map(|(target, (min, max))| Options::Relative(Relative { target, min, max }))
}

pub(crate) fn codel() -> impl Strategy<Value = Options> + Clone {
    (lead(), span(), bounds()).prop_map(|(target, interval, (min, max))| {
        Options::CoDel(CoDel {
            target,
            interval,
            min,
            max,
        })
    })
}

pub(crate) fn rate() -> impl Strategy<Value = Options> + Clone {
    (0..5_usize, span(), bounds()).prop_map(|(limit, interval, (min, max))| {
        Options::Rate(Rate {
            limit,
            interval,
            min,
            max,
        })
    })
}

pub(crate) fn breaker() -> impl Strategy<Value = Options> + Clone {
    let window = prop_oneof![1..6_u32, Just(64)];
    (window, any::<Index>(), span(), 1..9_u32, 1..4_u32, bounds()).prop_map(
        |(window, failures, pause, factor, probes, (_, max))| {
            Options::Breaker(Breaker {
                failures: 1 + failures.index(window.min(5) as usize) as u32,
                window,
                pause,
                pause_max: pause * factor,
                probes,
                max,
            })
        },
    )
}

pub(crate) fn gradient() -> impl Strategy<Value = Options> + Clone {
    let bounds = prop_oneof![(1..5_usize, 0..5_usize), (1..9_usize, 0..100_usize)];
    (bounds, any::<Index>(), 0..100_u32).prop_map(|((min, more), initial, tolerance)| {
        Options::Gradient(Gradient {
            min,
            max: min + more,
            initial: min + initial.index(more + 1),
            tolerance,
        })
    })
}

fn bounds() -> impl Strategy<Value = (usize, usize)> + Clone {
    let finite = (0..4_usize, 0..4_usize).prop_map(|(min, more)| (min, min + more));
    let infinite = (0..4_usize).prop_map(|min| (min, usize::MAX));
    prop_oneof![3 => finite, 1 => infinite]
}

fn span() -> impl Strategy<Value = Duration> + Clone {
    nanos().prop_map(|nanos| Duration::from_nanos(nanos + 1))
}

pub(crate) fn lead() -> impl Strategy<Value = Lead> + Clone {
    let mixed = (nanos(), any::<bool>()).prop_map(|(nanos, negative)| {
        let nanos = nanos.cast_signed();
        if negative { -nanos } else { nanos }
    });
    prop_oneof![1 => -2..=2_i64, 1 => mixed].prop_map(Lead::from_nanos)
}

pub(crate) fn nanos() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        0..10_u64,
        0..1_000_u64,
        0..1_000_000_u64,
        0..=1_000_000_000_u64
    ]
}
