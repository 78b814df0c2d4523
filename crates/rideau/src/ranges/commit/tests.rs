//! The thread that writes, step by step.

use rideau_core::allocator::{
    Allocator, Ask, Effects, Options, Place, Prefer, RangeId, RangeOptions, Refused, Span, Start,
    What,
};
use rideau_core::cluster::Partitions;

use super::*;
use crate::ranges::clocks::{Continued, ManualClocks, Source};
use crate::store::Platter;

const HELD: u64 = 1_000_000;
/// No lock is held for more ends than these.
const STEP_MAX: usize = 1_024;
const ASK_MAX: usize = 64 * 256 + 16;

/// A machine with a range that is full, one with a single value that is
/// held for long, and one that is free; and what writes it, without a thread.
fn full(clocks: &ManualClocks) -> Committer {
    let mut machine = Allocator::new(&Options::default());
    let mut effects = Effects::new();
    let clock = Continued::start(None, Source::manual(clocks));
    for (name, span) in [
        ("full", "1-1000000"),
        ("one", "0"),
        ("free", "2000000-2999999"),
    ] {
        let options = RangeOptions::in_memory(vec![Span::parse(span).unwrap()]);
        let options = RangeOptions {
            start: Start::Free,
            ..options
        };
        let set = machine.set_range(name, options, clock.now(), &mut effects);
        set.unwrap();
    }
    for (name, count, seconds) in [("full", 1_000, 10), ("one", 1, 100_000)] {
        let prefer = within(machine.range(name));
        let ask = Ask {
            count,
            ttl: Some(Duration::from_secs(seconds)),
            ..Ask::new(&prefer)
        };
        let mut granted = Vec::new();
        let mut reserve = || machine.reserve(&ask, clock.now(), &mut effects, &mut granted);
        while reserve().is_ok() {}
    }
    effects.events = Some(Vec::new());
    let events = Sender::new(16);
    let shared = Arc::new(Shared::new(
        machine.into(),
        effects,
        clock,
        events.downgrade(),
        10,
    ));
    let mut store = Platter::new().open();
    let one = Partitions::ONE;
    store.load(one, &[0], &mut |_, _| Ok(())).unwrap();
    Committer::new(shared, Box::new(store), events)
}

fn within(range: Option<RangeId>) -> [Prefer; 1] {
    [Prefer {
        tier: 0,
        place: Place::Range(range.unwrap()),
    }]
}

/// Ask for a value of a range, and say how many ends were noticed by it.
fn ask(committer: &Committer, name: &str) -> (Result<(), Refused>, usize) {
    let shared = &committer.turns.shared;
    let inner = &mut *shared.inner.lock();
    let prefer = within(inner.machine.range(name));
    let (now, effects) = (shared.clock.now(), &mut inner.effects);
    let mut granted = Vec::new();
    let before = effects.events.as_ref().map_or(0, Vec::len);
    let answer = inner
        .machine
        .reserve(&Ask::new(&prefer), now, effects, &mut granted);
    let events = inner.effects.events.as_ref().unwrap();
    (answer, ended(&events[before..]))
}

fn ended(events: &[Event]) -> usize {
    let ended = events.iter().filter(|event| event.what == What::Expired);
    ended.count()
}

#[test]
fn a_million_that_end_at_once_hold_no_call_up() {
    let clocks = ManualClocks::new();
    let mut committer = full(&clocks);
    let _watcher = committer.turns.events.subscribe();
    clocks.advance(Duration::from_secs(11));
    let mut all_ended = 0;
    let mut turns = 0;
    let mut by_asks = 0;
    while all_ended < HELD as usize {
        let turn = committer.next_turn();
        let noticed = ended(&turn.events) - by_asks;
        assert!(noticed <= STEP_MAX, "{noticed} in one turn");
        turns += 1;
        committer.commit(false).unwrap();
        committer.turns.publish(turn.number, turn.events);
        // Between two turns every ask gets an answer, with little to do.
        by_asks = 0;
        for name in ["free", "full", "one"] {
            let (answer, noticed) = ask(&committer, name);
            let is_right = answer.is_ok() != (name == "one");
            assert!(is_right, "{name} after {all_ended}: {answer:?}");
            assert!(noticed <= ASK_MAX, "{noticed} for {name}");
            by_asks += noticed;
        }
        let inner = committer.turns.shared.inner.lock();
        all_ended = HELD as usize - still_held(&inner);
    }
    // An ask in vain does much of it.
    assert!(turns > 30, "{turns}");
}

/// How many of the million are not noticed.
fn still_held(inner: &Inner) -> usize {
    let full = inner.machine.range("full").unwrap();
    let stats = inner.machine.stats(full).unwrap();
    stats.reserved as usize - stats.tiers[0].saturating_sub(HELD) as usize
}

#[test]
fn what_is_due_takes_turns_when_there_is_no_watcher() {
    let clocks = ManualClocks::new();
    let mut committer = full(&clocks);
    committer.turns.shared.inner.lock().effects.events = None;
    clocks.advance(Duration::from_secs(11));
    let mut before = HELD as usize;
    // After the last step it would wait for more to do.
    while before > STEP_MAX {
        committer.next_turn();
        committer.taken.forget();
        let after = still_held(&committer.turns.shared.inner.lock());
        assert!(before - after <= STEP_MAX, "{before} to {after}");
        before = after;
    }
}

#[test]
fn events_are_collected_for_as_long_as_there_is_a_watcher() {
    let clocks = ManualClocks::new();
    let mut committer = full(&clocks);
    let is_collecting = |committer: &Committer| {
        let inner = committer.turns.shared.inner.lock();
        inner.effects.events.is_some()
    };
    clocks.advance(Duration::from_secs(11));
    let watcher = committer.turns.events.subscribe();
    committer.next_turn();
    assert!(is_collecting(&committer));
    // As if it was written.
    committer.taken.forget();
    drop(watcher);
    committer.next_turn();
    assert!(!is_collecting(&committer));
}
