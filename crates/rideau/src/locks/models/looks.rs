//! No thread looks at what another has taken away and freed.

#![allow(unsafe_code)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::fence;

use super::*;
use crate::locks::readers::{Barriers, Slot};
use crate::sync::AtomicBool;

/// Something that can be found until it is taken away. Freeing it is a write:
/// loom finds every read that is not safely before it.
struct Place {
    slot: Slot,
    is_there: AtomicBool,
    thing: UnsafeCell<u32>,
}

// SAFETY: whether threads may share it is what the models find out.
unsafe impl Sync for Place {}

impl Place {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slot: Slot::new(),
            is_there: AtomicBool::new(true),
            thing: UnsafeCell::new(7),
        })
    }

    /// True if there was something to look at.
    fn look(&self) -> bool {
        self.look_with(Barriers::Both)
    }

    fn look_with(&self, barriers: Barriers) -> bool {
        self.slot.begin(barriers);
        let is_there = self.is_there.load(Ordering::Acquire);
        if is_there {
            // SAFETY: that is what the model is for.
            self.thing.with(|thing| assert_eq!(unsafe { *thing }, 7));
        }
        self.slot.end();
        is_there
    }

    /// True if it could be freed at once.
    fn take_away(&self) -> bool {
        self.is_there.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        let is_free = self.slot.look().is_none_or(|look| look.is_over());
        if is_free {
            // SAFETY: as above.
            self.thing.with_mut(|thing| unsafe { *thing = 0 });
        }
        is_free
    }
}

#[test]
fn what_is_looked_at_is_not_freed() {
    let ends = explore_within(ALL, || {
        let place = Place::new();
        let other = Arc::clone(&place);
        at_once(move || place.look(), move || other.take_away())
    });
    // It was there or not, and freed at once or not.
    let all = [(false, false), (false, true), (true, false), (true, true)];
    assert_eq!(ends, all);
}

/// Loom knows no system that would put one in.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_a_barrier_it_would_be() {
    explore_within(ALL, || {
        let place = Place::new();
        let other = Arc::clone(&place);
        at_once(
            move || place.look_with(Barriers::System),
            move || other.take_away(),
        )
    });
}

#[test]
fn the_next_look_does_not_stand_for_the_last() {
    explore_within(ALL, || {
        let place = Place::new();
        let other = Arc::clone(&place);
        at_once(
            move || (place.look(), place.look()),
            move || other.take_away(),
        )
    });
}

#[test]
fn a_look_within_another_ends_with_the_last() {
    explore_within(ALL, || {
        let place = Place::new();
        let other = Arc::clone(&place);
        at_once(
            move || {
                place.slot.begin(Barriers::Both);
                place.look();
                let is_there = place.look();
                place.slot.end();
                is_there
            },
            move || other.take_away(),
        )
    });
}
