//! What is free, compared with plain sets, and what it costs.

use std::collections::BTreeSet;

use super::queue::QUEUED_MAX;
use super::*;

fn interval(first: u128, last: u128) -> Interval {
    Interval::new(first, last).unwrap()
}

/// Five blocks in which everything happens.
const WINDOW: u64 = 5 * 4096;

/// Where the window is put: at both ends of the numbers, on the border of the
/// blocks and beside it, and where the halves of a number meet.
const WINDOWS: [u128; 5] = [
    0,
    0xffff_0a00_0000,
    (1 << 64) - 2 * 4096,
    (1 << 127) - 1234,
    u128::MAX - (WINDOW as u128 - 1),
];

/// The free values as a plain set, and the freed ones as a plain list.
struct Plain {
    free: BTreeSet<u128>,
    /// In the order they were freed; all others are fresh.
    freed: Vec<u128>,
}

impl Plain {
    fn forget(&mut self, values: Interval) -> usize {
        self.freed.retain(|value| !values.contains(*value));
        let gone: Vec<_> = self.inside(values).collect();
        for value in &gone {
            self.free.remove(value);
        }
        gone.len()
    }

    fn inside(&self, values: Interval) -> impl Iterator<Item = u128> {
        let inside = self.free.range(values.first()..=values.last());
        inside.copied()
    }

    fn oldest(&self, within: Interval) -> Option<u128> {
        let mut fresh = self.inside(within).filter(|it| !self.freed.contains(it));
        let mut freed = self.freed.iter().filter(|it| within.contains(**it));
        fresh.next().or_else(|| freed.next().copied())
    }
}

/// One run of random steps on both.
struct Trial {
    rng: Rng,
    base: u128,
    free: Free,
    plain: Plain,
}

impl Trial {
    fn new(seed: u64, base: u128, free: Free) -> Self {
        let plain = Plain {
            free: BTreeSet::new(),
            freed: Vec::new(),
        };
        Self {
            rng: Rng::new(seed),
            base,
            free,
            plain,
        }
    }

    fn value(&mut self) -> u128 {
        self.base + u128::from(self.rng.below(WINDOW))
    }

    /// Mostly short, sometimes long, and sometimes from border to border.
    fn interval(&mut self) -> Interval {
        let end = self.base + u128::from(WINDOW - 1);
        let first = self.value();
        let last = match self.rng.below(16) {
            0 => self.value(),
            1..4 => first.saturating_add(4096),
            _ => first.saturating_add(u128::from(self.rng.below(64))),
        };
        let (first, last) = match self.rng.below(4) {
            0 => (first & !4095, last | 4095),
            _ => (first.min(last), first.max(last)),
        };
        let inside = |value: u128| value.clamp(self.base, end);
        interval(inside(first.min(last)), inside(first.max(last)))
    }

    fn free(&mut self, value: u128) {
        let fresh = self.plain.free.insert(value);
        assert_eq!(self.free.insert(value), fresh);
        if fresh && self.free.queue.is_some() {
            self.plain.freed.push(value);
        }
    }

    fn took(&mut self, taken: Option<u128>, expected: Option<u128>) {
        assert_eq!(taken, expected);
        if let Some(value) = taken {
            self.plain.forget(Interval::of(value));
        }
    }

    fn step(&mut self, frees: u64) {
        let value = self.value();
        match self.rng.below(100) {
            chance if chance < frees => self.free(value),
            0..70 => {
                let was = self.plain.forget(Interval::of(value)) == 1;
                assert_eq!(self.free.remove(value), was);
            }
            70..76 => {
                let within = self.interval();
                let expected = self.plain.inside(within).next();
                let taken = self.free.take_lowest(within);
                self.took(taken, expected);
            }
            76..82 => {
                let within = self.interval();
                let expected = self.plain.oldest(within);
                let taken = self.free.take_oldest(within);
                self.took(taken, expected);
            }
            82..88 => self.take_random(),
            88..90 => {
                let within = self.interval();
                let before = self.plain.forget(within) as u128;
                let added = self.free.insert_all(within);
                assert_eq!(added + Size::new(before), within.size());
                let values = within.first()..=within.last();
                self.plain.free.extend(values);
            }
            90..92 => {
                let within = self.interval();
                let removed = self.free.remove_all(within);
                assert_eq!(removed, Size::new(self.plain.forget(within) as u128));
            }
            _ => {
                let within = self.interval();
                let count = self.plain.inside(within).count();
                assert_eq!(self.free.count_in(within), Size::new(count as u128));
                assert_eq!(self.free.contains(value), self.plain.free.contains(&value));
            }
        }
    }

    fn take_random(&mut self) {
        let within = self.interval();
        let point = draw(within, &mut self.rng.clone());
        let from = self.plain.inside(interval(point, within.last())).next();
        let expected = from.or_else(|| self.plain.inside(within).next());
        let taken = self.free.take_random(within, &mut self.rng);
        self.took(taken, expected);
    }

    fn compare(&self) {
        self.free.settled.check();
        let count = self.plain.free.len() as u128;
        assert_eq!(self.free.count(), Size::new(count));
        let values = self.free.intervals().flat_map(|it| it.first()..=it.last());
        assert!(values.eq(self.plain.free.iter().copied()));
        let gaps: Vec<_> = self.free.intervals().collect();
        assert!(
            gaps.windows(2)
                .all(|pair| pair[1].first() - pair[0].last() > 1)
        );
    }
}

#[test]
fn what_is_free_is_what_a_plain_set_says() {
    for (seed, base) in (1..).zip(WINDOWS) {
        println!("seed {seed}, window at {base}");
        let mut trial = Trial::new(seed, base, Free::new());
        let (mut chunks_max, mut runs_max) = (0, 0);
        for step in 0..60_000 {
            // Fill up and run dry in turn, so that blocks are of every kind.
            let frees = [66, 20, 45, 10, 60][step / 6_000 % 5];
            trial.step(frees);
            if step % 200 == 0 {
                trial.compare();
                let (entries, chunks) = trial.free.settled.entries();
                chunks_max = chunks_max.max(chunks);
                runs_max = runs_max.max(entries - chunks);
            }
        }
        trial.compare();
        assert!(chunks_max >= 5 && runs_max >= 5, "both kinds were tried");
    }
}

#[test]
fn the_oldest_is_the_one_a_plain_list_says() {
    for (seed, base) in (101..).zip(WINDOWS) {
        println!("seed {seed}, window at {base}");
        let mut trial = Trial::new(seed, base, Free::queued());
        for step in 0..6_000 {
            // Few at a time: among many in a part of the range, the oldest is
            // not always found.
            let frees = if trial.plain.freed.len() < 200 { 50 } else { 5 };
            trial.step(frees);
            if step % 100 == 0 {
                trial.compare();
            }
        }
        trial.compare();
    }
}

#[test]
fn intervals_of_any_size_are_what_a_plain_list_says() {
    let mut points: Vec<u128> = vec![0, 1, 4095, 4096, 4097, 8191, 1 << 64, u128::MAX];
    points.extend([(1 << 64) - 1, 1 << 125, (1 << 126) - 1, u128::MAX - 1]);
    points.extend([u128::MAX - 4095, u128::MAX - 4096, u128::MAX - 8192]);
    points.sort_unstable();
    let mut rng = Rng::new(5);
    let mut draw_point = |_| points[rng.below(points.len() as u64) as usize];
    let mut free = Free::new();
    // Between two points next to each other all values are alike, so for each
    // point: is it free, and are those up to the next?
    let mut plain = vec![(false, false); points.len()];
    for step in 0..100_000 {
        let [one, two] = [0, 1].map(&mut draw_point);
        let within = interval(one.min(two), one.max(two));
        let parts = parts(&points, within);
        let count = count(&points, &plain, &parts);
        assert_eq!(free.count_in(within), count);
        let (frees, changed) = match step % 2 {
            0 => (true, within.size() - free.insert_all(within)),
            _ => (false, free.remove_all(within)),
        };
        assert_eq!(changed, count);
        for (index, whole) in parts {
            plain[index].0 = frees;
            plain[index].1 = if whole { frees } else { plain[index].1 };
        }
        free.settled.check();
        let lowest = points
            .iter()
            .zip(&plain)
            .find_map(|(point, free)| match free {
                (true, _) => Some(*point),
                (false, true) => Some(point + 1),
                (false, false) => None,
            });
        assert_eq!(free.settled.lowest(Interval::ALL), lowest);
    }
}

/// The points of `within`, and whether what lies before the next is in it too.
fn parts(points: &[u128], within: Interval) -> Vec<(usize, bool)> {
    let lies_between = |index: usize| {
        let next = points.get(index + 1).copied();
        next.is_some_and(|next| next <= within.last() && next - points[index] > 1)
    };
    let indices = 0..points.len();
    indices
        .filter(|index| within.contains(points[*index]))
        .map(|index| (index, lies_between(index)))
        .collect()
}

fn count(points: &[u128], plain: &[(bool, bool)], parts: &[(usize, bool)]) -> Size {
    let sizes = parts.iter().map(|&(index, whole)| {
        let after = points
            .get(index + 1)
            .map_or(0, |next| next - points[index] - 1);
        let after = if whole && plain[index].1 { after } else { 0 };
        Size::new(after + u128::from(plain[index].0))
    });
    sizes.sum()
}

#[test]
fn the_ends_of_the_numbers_are_taken_and_freed_like_any_other() {
    let mut free = Free::new();
    assert_eq!(free.insert_all(Interval::ALL), Size::ALL);
    assert_eq!(free.count(), Size::ALL);
    assert!(!free.insert(u128::MAX));
    assert_eq!(free.take_lowest(Interval::of(u128::MAX)), Some(u128::MAX));
    assert_eq!(free.take_lowest(Interval::of(u128::MAX)), None);
    assert_eq!(free.take_lowest(Interval::ALL), Some(0));
    assert_eq!(free.take_lowest(Interval::ALL), Some(1));
    assert_eq!(free.count(), Size::ALL - Size::new(3));
    assert!(free.insert(u128::MAX) && free.insert(0) && free.insert(1));
    assert_eq!(free.pop_interval(), Some(Interval::ALL));
    assert_eq!(free.pop_interval(), None);
    assert!(free.count().is_zero());
}

#[test]
fn the_size_of_a_range_costs_nothing() {
    let (net8, huge) = (interval(0xffff_0a00_0000, 0xffff_0aff_ffff), 1 << 125);
    let mut costs = Vec::new();
    for range in [interval(70, 79), net8, interval(huge, 2 * huge - 1)] {
        let mut free = Free::new();
        free.insert_all(range);
        assert_eq!(free.settled.entries(), (1, 0));
        assert_eq!(free.take_lowest(range), Some(range.first()));
        assert_eq!(
            free.take_lowest(Interval::of(range.last())),
            Some(range.last())
        );
        assert_eq!(free.count(), range.size() - Size::new(2));
        costs.push((free.settled.entries(), free.bytes()));
    }
    assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
}

#[test]
fn a_hole_costs_an_entry_wherever_it_is() {
    let range = interval(1 << 125, (1 << 126) - 1);
    let mut free = Free::new();
    let mut rng = Rng::new(3);
    free.insert_all(range);
    let taken: Vec<_> = (0..2_000)
        .map(|_| free.take_random(range, &mut rng))
        .collect();
    assert_eq!(free.settled.entries(), (2_001, 0));
    assert_eq!(free.intervals().count(), 2_001);
    for value in taken.into_iter().flatten() {
        assert!(range.contains(value) && free.insert(value));
    }
    assert_eq!(free.settled.entries(), (1, 0), "all holes are closed again");
}

#[test]
fn a_free_value_costs_less_than_a_byte_where_half_are_free() {
    let values = 1 << 20;
    let range = interval(0xffff_0a00_0000, 0xffff_0a00_0000 + values - 1);
    let mut free = Free::new();
    let mut rng = Rng::new(9);
    for value in range.first()..=range.last() {
        if rng.below(2) == 0 {
            free.insert(value);
        }
    }
    assert_eq!(free.settled.entries(), (256, 256));
    assert!(Size::new(free.bytes() as u128 * 2) < free.count());
    let mut taken = 0_u128;
    while let Some(value) = free.take_lowest(range) {
        assert!(value >= range.first() + taken);
        taken += 1;
    }
    assert!((values * 49 / 100..values * 51 / 100).contains(&taken));
    assert_eq!(free.bytes(), 0);
}

#[test]
fn random_values_come_from_everywhere() {
    let range = interval(1_000, 1_999);
    let mut rng = Rng::new(2);
    let mut tenths = [0_u32; 10];
    for _ in 0..10_000 {
        let mut free = Free::new();
        free.insert_all(range);
        let value = free.take_random(range, &mut rng).unwrap();
        tenths[(value - 1_000) as usize / 100] += 1;
    }
    assert!(
        tenths.iter().all(|count| (880..1_120).contains(count)),
        "{tenths:?}"
    );
}

#[test]
fn a_freed_value_rests_until_all_fresh_ones_are_gone() {
    let range = interval(10, 14);
    let mut free = Free::queued();
    free.insert_all(range);
    assert_eq!(free.take_oldest(range), Some(10));
    assert_eq!(free.take_oldest(range), Some(11));
    assert!(free.insert(11) && free.insert(10) && !free.insert(10));
    let order: Vec<_> = iter::from_fn(|| free.take_oldest(range)).collect();
    assert_eq!(order, [12, 13, 14, 11, 10]);
}

#[test]
fn without_a_queue_all_values_count_as_fresh() {
    let mut free = Free::new();
    for value in [7, 3, 5] {
        free.insert(value);
    }
    assert_eq!(free.take_oldest(Interval::ALL), Some(3));
}

#[test]
fn the_memory_of_what_was_freed_when_is_bounded() {
    let mut free = Free::queued();
    let values = 3 * QUEUED_MAX as u128;
    for value in (0..values).rev() {
        assert!(free.insert(value));
    }
    assert_eq!(free.count(), Size::new(values));
    assert!(free.bytes() < 5 << 20, "{}", free.bytes());
    assert_eq!(free.settled.entries(), (1, 0), "long freed ones are runs");
    let long_ago = QUEUED_MAX as u128;
    assert_eq!(free.take_oldest(Interval::ALL), Some(long_ago));
    assert_eq!(
        free.remove_all(interval(long_ago, values)),
        Size::new(values - long_ago - 1)
    );
    assert_eq!(free.take_oldest(Interval::ALL), Some(long_ago - 1));
}

#[test]
fn popping_intervals_moves_everything() {
    let mut rng = Rng::new(4);
    for mut free in [Free::new(), Free::queued()] {
        free.insert_all(interval(0, 20_000));
        for _ in 0..9_000 {
            free.remove(u128::from(rng.below(20_000)));
        }
        for _ in 0..3_000 {
            free.insert(u128::from(rng.below(20_000)));
        }
        let before: Vec<_> = free.intervals().collect();
        let count = free.count();
        let mut moved = Free::new();
        while let Some(interval) = free.pop_interval() {
            assert_eq!(moved.insert_all(interval), interval.size());
        }
        assert!(free.count().is_zero() && free.intervals().next().is_none());
        assert_eq!(moved.count(), count);
        assert!(moved.intervals().eq(before));
    }
}
