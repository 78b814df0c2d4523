//! The processes of an app that have a free place, the best first.

use super::process::Place;

/// Free places in order.
///
/// They are few, and one moves with each request: a row of them is looked
/// through and moved in faster than a tree is turned.
#[derive(Debug, Default)]
pub(super) struct FreeSlots(Vec<Place>);

impl FreeSlots {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The one with this many before it.
    pub(super) fn at(&self, index: usize) -> &Place {
        &self.0[index]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, place: &Place) -> bool {
        self.0.binary_search(place).is_ok()
    }

    /// One that stood here stands there now, if anywhere.
    pub(super) fn move_to(&mut self, before: Option<Place>, after: Option<Place>) {
        let from = before.map(|before| {
            let found = self.0.binary_search(&before);
            found.expect("it stands where it was put")
        });
        match (from, after) {
            (None, None) => (),
            (Some(from), None) => drop(self.0.remove(from)),
            (None, Some(after)) => self
                .0
                .insert(self.0.partition_point(|one| *one < after), after),
            (Some(from), Some(after)) => self.shift(from, after),
        }
    }

    /// Moves the slots between two positions to make room.
    fn shift(&mut self, from: usize, after: Place) {
        let is_behind = self.0.get(from + 1).is_some_and(|next| *next < after);
        if is_behind {
            let to = from + self.0[from + 1..].partition_point(|one| *one < after);
            self.0[from..=to].rotate_left(1);
            self.0[to] = after;
        } else {
            let to = self.0[..from].partition_point(|one| *one < after);
            self.0[to..=from].rotate_right(1);
            self.0[to] = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn places_are_always_in_order() {
        let mut rng = Rng::new(7);
        let mut places = FreeSlots::default();
        let mut known = BTreeSet::new();
        let mut standing = [None; 12];
        for _ in 0..20_000 {
            let slot = rng.below(12) as u32;
            let after = (rng.below(4) > 0).then(|| Place::new(rng.below(3), rng.below(6), slot));
            let before = std::mem::replace(&mut standing[slot as usize], after);
            places.move_to(before, after);
            if let Some(before) = before {
                known.remove(&before);
            }
            known.extend(after);
            assert!(places.iter().eq(&known));
            assert_eq!(places.is_empty(), known.is_empty());
            assert!(known.iter().all(|place| places.contains(place)));
        }
    }
}
