//! The wheel against a plain list, and what it promises at the ends of time.

use std::collections::BTreeSet;

use super::*;
use crate::rng::Rng;

const TICK: u64 = 1 << TICK_BITS;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// All that is due, in as many steps as it takes.
fn drain(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
    let mut named = Vec::new();
    loop {
        match wheel.pop_due(now) {
            Some((slot, _)) => named.push(slot.0),
            None if wheel.first() > now => return named,
            None => (),
        }
    }
}

fn far(rng: &mut Rng) -> u64 {
    let bits = rng.below(62);
    rng.draw() >> (63 - bits)
}

#[test]
fn everything_is_named_within_a_tick_after_it_is_due_and_never_before() {
    let mut rng = Rng::new(5);
    for _ in 0..20 {
        let (mut wheel, mut model) = (Wheel::new(), BTreeSet::new());
        let mut now = 0_u64;
        for slot in 0..5_000_u32 {
            let due = now
                .saturating_add(far(&mut rng))
                .saturating_sub(rng.below(SECOND));
            wheel.push(Instant::from_nanos(due), Slot(slot));
            model.insert((due, slot));
            if rng.below(3) == 0 {
                let jump = if rng.below(50) == 0 {
                    far(&mut rng) >> 8
                } else {
                    rng.below(5 * SECOND)
                };
                now = now.saturating_add(jump);
                check_named(&mut wheel, &mut model, now);
            }
        }
        assert_eq!(wheel.len(), model.len());
        while let Some((due, _)) = model.first().copied() {
            now = now.max(due.saturating_add(2 * TICK));
            check_named(&mut wheel, &mut model, now);
        }
        assert_eq!((wheel.len(), wheel.first()), (0, Instant::NEVER));
    }
}

fn check_named(wheel: &mut Wheel, model: &mut BTreeSet<(u64, u32)>, now: u64) {
    let named: BTreeSet<u32> = drain(wheel, Instant::from_nanos(now)).into_iter().collect();
    let is_named = |(due, slot): &(u64, u32)| {
        if named.contains(slot) {
            assert!(*due <= now, "slot {slot} was named early");
        } else {
            assert!(*due + 2 * TICK > now, "slot {slot} was named late");
        }
        named.contains(slot)
    };
    let before = model.len();
    // What is due long after now cannot have been named, as the counts tell.
    let gone: Vec<_> = model
        .range(..=(now, u32::MAX))
        .copied()
        .filter(is_named)
        .collect();
    for entry in &gone {
        model.remove(entry);
    }
    assert_eq!(
        before - model.len(),
        named.len(),
        "only what is due is named"
    );
    if let Some((due, _)) = model.first() {
        assert!(
            wheel.first() <= Instant::from_nanos(due + 2 * TICK),
            "first is never late"
        );
    }
}

#[test]
fn a_caller_that_wakes_when_told_sleeps_most_of_the_time() {
    let mut wheel = Wheel::new();
    let due = Instant::from_nanos(7 * YEAR + 12_345);
    wheel.push(due, Slot(9));
    let mut wakes = 0;
    loop {
        let now = wheel.first();
        wakes += 1;
        if let Some((slot, _)) = wheel.pop_due(now) {
            assert!(slot == Slot(9) && now >= due && now.since(due).as_nanos() <= u128::from(TICK));
            break;
        }
        assert!(wheel.first() > now);
    }
    assert!(wakes <= LEVELS, "{wakes} wakes for one entry");
}

#[test]
fn a_million_at_once_come_in_small_steps() {
    let mut wheel = Wheel::new();
    let (hour, count) = (3_600 * SECOND, 1_000_000_u32);
    for slot in 0..count {
        wheel.push(
            Instant::from_nanos(hour + u64::from(slot) * 2_000),
            Slot(slot),
        );
    }
    assert!(
        wheel.bytes() < 9 * count as usize + (1 << 20),
        "{}",
        wheel.bytes()
    );
    // One tick before: all that remains is to move them nearer.
    let mut steps = 0;
    let before = Instant::from_nanos(hour - TICK);
    while wheel.first() <= before {
        assert_eq!(wheel.pop_due(before), None);
        steps += 1;
    }
    assert!(steps <= LEVELS * (count as usize).div_ceil(MOVES_MAX) + LEVELS);
    let mut seen = vec![false; count as usize];
    for slot in drain(&mut wheel, Instant::from_nanos(hour + 3 * SECOND)) {
        assert!(!std::mem::replace(&mut seen[slot as usize], true));
    }
    assert!(seen.iter().all(|seen| *seen));
    assert!(
        wheel.bytes() < 1 << 20,
        "{} bytes for nothing",
        wheel.bytes()
    );
}

#[test]
fn never_is_never_and_the_end_of_time_is_no_trap() {
    let mut wheel = Wheel::new();
    assert_eq!(wheel.push(Instant::NEVER, Slot(1)), Mark::NONE);
    assert_eq!(wheel.cover(Mark::NONE, Instant::NEVER, Slot(1)), Mark::NONE);
    wheel.push(Instant::from_nanos(u64::MAX - 1), Slot(2));
    wheel.push(Instant::from_nanos(u64::MAX - 2 * TICK), Slot(3));
    wheel.push(Instant::START, Slot(4));
    assert_eq!(drain(&mut wheel, Instant::from_nanos(2 * TICK)), [4]);
    assert_eq!(drain(&mut wheel, Instant::from_nanos(u64::MAX - 1)), [3]);
    assert_eq!(wheel.first(), Instant::NEVER);
}

#[test]
fn what_comes_too_late_is_named_at_once() {
    let mut wheel = Wheel::new();
    let now = Instant::from_nanos(3 * YEAR);
    assert_eq!(wheel.pop_due(now), None);
    wheel.push(Instant::from_nanos(YEAR), Slot(1));
    assert!(wheel.first() <= now);
    assert_eq!(drain(&mut wheel, now), [1]);
}

#[test]
fn a_later_due_is_covered_by_an_earlier_entry() {
    let mut wheel = Wheel::new();
    let at = |seconds| Instant::from_nanos(seconds * SECOND);
    let first = wheel.cover(Mark::NONE, at(100), Slot(1));
    assert_eq!(wheel.cover(first, at(5_000), Slot(1)), first);
    assert_eq!(wheel.len(), 1);
    let second = wheel.cover(first, at(50), Slot(1));
    assert_ne!(second, first);
    assert_eq!(wheel.pop_due(at(51)), Some((Slot(1), second)));
    let far = wheel.cover(Mark::NONE, Instant::from_nanos(30 * YEAR), Slot(2));
    assert_eq!(
        wheel.cover(far, Instant::from_nanos(40 * YEAR), Slot(2)),
        far
    );
    assert_ne!(wheel.cover(far, at(60), Slot(2)), far);
}
