//! What a key weighs while it is held, and after it has been let go of.
//!
//! Held keys weigh by what resident memory has grown, less the keys themselves;
//! the list of guards is the holder's. Idle ones weigh by what they keep from
//! others: when as many other keys are held in their stead, so much more memory
//! is in use. What was freed would not tell, for an allocator keeps most of it.

use std::iter;

use super::goals::{judge_held, judge_idle};
use super::{CONTESTANTS, Counter, keys, publish};
use crate::measure::{Metric, Plan, Row, Subject, compare, resident_bytes, weigh_apart};
use crate::report::{Format, Verdict};

/// How many are needed before pages show the size of one.
const KEYS: usize = 1_000_000;

/// What has become of the keys that are weighed.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// Each is held once.
    Held,
    /// Each was held, and idle ones have been forgotten.
    Idle,
}

type Judge = fn(&[Row]) -> Option<Verdict>;

impl Keys {
    const ALL: [(Self, Judge); 2] = [(Self::Held, judge_held), (Self::Idle, judge_idle)];

    fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Idle => "idle",
        }
    }
}

pub(super) fn run(plan: &Plan, format: Format) {
    // Nothing is timed, and a subject weighs the same every time.
    let plan = Plan {
        runs: 1.try_into().expect("one is not zero"),
        ..*plan
    };
    for (weighed, judge) in Keys::ALL {
        let subjects: Vec<_> = CONTESTANTS
            .iter()
            .filter(|contestant| contestant.weigh.is_some())
            .map(|contestant| Subject {
                name: contestant.name,
                run: Box::new(move || {
                    let bytes = weigh_apart("locks", contestant.name, weighed.name());
                    Ok(vec![(Metric::Bytes, bytes)])
                }),
            })
            .collect();
        let rows = compare(&subjects, &plan);
        let case = format!("{KEYS} keys {}", weighed.name());
        publish(&case, &rows, judge(&rows).into_iter(), format);
    }
}

/// Bytes for each of many keys that are `held` or `idle`.
pub(crate) fn weigh(subject: &str, what: &str) -> f64 {
    let contestant = CONTESTANTS.iter().find(|known| known.name == subject);
    let contestant = contestant.expect("only known contestants are weighed");
    let weighed = Keys::ALL.iter().find(|(known, _)| known.name() == what);
    let (weighed, _) = weighed.expect("keys are held or idle");
    let weigh = contestant.weigh.expect("it can be weighed");
    weigh(*weighed)
}

/// Right only in a process that has not used and freed memory before.
pub(super) fn bytes<C: Counter>(weighed: Keys) -> f64 {
    let before_keys = resident_bytes();
    let keys = keys(2 * KEYS);
    let key_bytes = (resident_bytes() - before_keys) / 2;

    let counter = C::start(&keys);
    let handles = keys.iter().enumerate();
    let handles: Vec<_> = handles.map(|(at, key)| counter.handle(at, key)).collect();
    // Written to already, so that the list itself is not weighed.
    let mut held: Vec<_> = (0..KEYS).map(|_| None).collect();

    let before = resident_bytes();
    hold(&counter, &handles[..KEYS], &mut held);
    let grown = resident_bytes() - before;
    let weight = match weighed {
        // A copy of every key is there now: what a list of them took.
        Keys::Held => grown - key_bytes,
        Keys::Idle => {
            held.iter_mut().for_each(|place| *place = None);
            counter.forget_idle();
            hold(&counter, &handles[KEYS..], &mut held);
            (resident_bytes() - before).saturating_sub(grown)
        }
    };
    weight as f64 / KEYS as f64
}

fn hold<'a, 'd: 'a, C: Counter>(
    counter: &'a C,
    handles: &'a [C::Handle<'d>],
    held: &mut [Option<C::Held<'a>>],
) {
    for (handle, place) in iter::zip(handles, held) {
        *place = counter.acquire(handle, 1);
        assert!(place.is_some(), "every key is free");
    }
}
