//! Until when which values are kept apart, while the log is read back.

use std::collections::BTreeMap;

use super::interval::Interval;
use crate::time::Instant;

/// Intervals that do not touch each other's values, each with an instant. A
/// later word on a value replaces the earlier.
#[derive(Debug, Default)]
pub(super) struct Untils {
    by_first: BTreeMap<u128, (u128, Instant)>,
}

impl Untils {
    /// These are kept until then, whatever was said before.
    pub(super) fn set(&mut self, values: Interval, until: Instant) {
        self.clear(values);
        self.by_first.insert(values.first(), (values.last(), until));
    }

    /// None of these is kept.
    pub(super) fn clear(&mut self, values: Interval) {
        while let Some((part, until)) = self.last_in(values) {
            self.by_first.remove(&part.first());
            let rests = [part.before(values), part.after(values)];
            for rest in rests.into_iter().flatten() {
                self.by_first.insert(rest.first(), (rest.last(), until));
            }
        }
    }

    /// Until when a value is kept.
    pub(super) fn of(&self, value: u128) -> Option<Instant> {
        self.last_in(Interval::of(value)).map(|(_, until)| until)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Interval, Instant)> + '_ {
        let parts = self.by_first.iter();
        parts.filter_map(|(first, (last, until))| Some((Interval::new(*first, *last)?, *until)))
    }

    fn last_in(&self, values: Interval) -> Option<(Interval, Instant)> {
        let (first, (last, until)) = self.by_first.range(..=values.last()).next_back()?;
        let part = Interval::new(*first, *last)?;
        (!part.is_disjoint(values)).then_some((part, *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_last_word_on_every_value_counts() {
        let mut rng = Rng::new(1);
        let mut untils = Untils::default();
        let mut model = [None; 32];
        for step in 1..20_000_u64 {
            let first = rng.below(32) as usize;
            let last = first + rng.below(32 - first as u64) as usize;
            let values = Interval::new(first as u128, last as u128).unwrap();
            let until = (rng.below(3) > 0).then_some(Instant::from_nanos(step));
            match until {
                Some(until) => untils.set(values, until),
                None => untils.clear(values),
            }
            model[first..=last].fill(until);
            for (value, until) in model.iter().enumerate() {
                assert_eq!(untils.of(value as u128), *until);
            }
            let kept: u128 = untils
                .iter()
                .map(|(i, _)| i.size().to_u128().unwrap())
                .sum();
            assert_eq!(kept, model.iter().flatten().count() as u128);
        }
    }
}
