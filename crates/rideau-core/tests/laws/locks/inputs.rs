//! Claims, inputs and times at random, on no grid.

use proptest::prelude::*;
use proptest::sample::Index;
use rideau_core::locks::Claim;
use rideau_core::queue;

use crate::hall::{self, NAMES, Pause};

#[derive(Clone, Debug)]
pub(crate) enum Input {
    Ask {
        claim: Claim,
        wait: bool,
        /// How long before now it was sent.
        ago: u64,
        /// How long after now its own deadline comes.
        patience: Option<u64>,
        flow: u64,
        tag: Option<u64>,
    },
    Take(Claim),
    /// A holder gives back, and tells it if it saw the mark.
    Release(Index),
    /// A holder gives back, and tells it later.
    Slip(Index),
    /// A holder that gave back and saw the mark tells it now.
    Tell,
    Cancel(Index),
    CancelTag(u64),
    Die(Index),
    Wait,
    Change(queue::Options),
    Close,
}

pub(crate) type Steps = Vec<(Input, Pause)>;

/// A history that ends with a close, and a little after it.
pub(crate) fn history(
    claim: impl Strategy<Value = Claim> + Clone + 'static,
    options: impl Strategy<Value = queue::Options> + 'static,
) -> impl Strategy<Value = Steps> {
    let options = options.boxed();
    let step = (input(claim, options), hall::pause()).boxed();
    let close = (Just(Input::Close), Just(Pause::Span(1)));
    let steps = |from, to| prop::collection::vec(step.clone(), from..to);
    (steps(1, 60), close, steps(0, 6)).prop_map(|(mut open, close, closed)| {
        open.push(close);
        open.extend(closed);
        open
    })
}

/// A claim of some that fit, and seldom one that never does.
pub(crate) fn one_of(claims: Vec<Claim>) -> impl Strategy<Value = Claim> + Clone {
    let never = prop::sample::select(vec![claim(0, 3), claim(1, 0), claim(9, 8)]);
    prop_oneof![20 => prop::sample::select(claims), 1 => never]
}

/// This many claims that can fit.
pub(crate) fn claims(count: usize) -> impl Strategy<Value = Vec<Claim>> {
    let one = (1..4_u32, 0..5_u64).prop_map(|(units, more)| claim(units, u64::from(units) + more));
    prop::collection::vec(one, 1..=count)
}

fn claim(units: u32, capacity: u64) -> Claim {
    Claim {
        units,
        capacity: capacity.into(),
    }
}

fn input(
    claim: impl Strategy<Value = Claim> + Clone + 'static,
    options: BoxedStrategy<queue::Options>,
) -> impl Strategy<Value = Input> {
    let ago = prop_oneof![3 => Just(0), 2 => hall::span()];
    let patience = prop::option::weighted(0.2, hall::span());
    let tag = prop::option::weighted(0.3, 0..NAMES);
    let wait = prop::bool::weighted(0.9);
    let ask = (claim.clone(), wait, ago, patience, 0..NAMES, tag).prop_map(
        |(claim, wait, ago, patience, flow, tag)| Input::Ask {
            claim,
            wait,
            ago,
            patience,
            flow,
            tag,
        },
    );
    prop_oneof![
        24 => ask,
        2 => claim.prop_map(Input::Take),
        8 => any::<Index>().prop_map(Input::Release),
        4 => any::<Index>().prop_map(Input::Slip),
        3 => Just(Input::Tell),
        3 => any::<Index>().prop_map(Input::Cancel),
        1 => (0..NAMES).prop_map(Input::CancelTag),
        2 => any::<Index>().prop_map(Input::Die),
        4 => Just(Input::Wait),
        1 => options.prop_map(Input::Change),
    ]
}
