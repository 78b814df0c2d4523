//! Says whether a recorded history of calls has an order that explains it.
//!
//! It knows nothing of how the locks work: for each key there is one number,
//! and the last fence. It looks for an order of all calls that respects what
//! came before what in time and in which every answer is right, by trying each
//! call that may be next (Wing and Gong), and remembers the sets of calls from
//! which there was no way on. The numbers follow from the set alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// This many calls have a place in a set.
pub(crate) const CALLS_MAX: usize = 128;

/// This many units of a key that may have this many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) key: u8,
    pub(crate) units: u64,
    pub(crate) capacity: u64,
}

/// What was called, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// All claims were met: the ordinal and the fence of each.
    Grant(Vec<(Claim, u64, u64)>),
    /// The claim at a place was not met, as this many were held.
    Refuse {
        claims: Vec<Claim>,
        at: usize,
        held: u64,
    },
    Release {
        key: u8,
        units: u64,
    },
    Held {
        key: u8,
        held: u64,
    },
}

/// A call with the stamps of its begin and its end.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) deed: Deed,
}

/// What is true between two calls.
#[derive(Clone, Default, Debug)]
struct Model {
    held: BTreeMap<u8, u64>,
    fence: BTreeMap<u8, u64>,
}

impl Deed {
    fn keys(&self) -> BTreeSet<u8> {
        match self {
            Self::Grant(grants) => grants.iter().map(|(claim, ..)| claim.key).collect(),
            Self::Refuse { claims, .. } => claims.iter().map(|claim| claim.key).collect(),
            Self::Release { key, .. } | Self::Held { key, .. } => BTreeSet::from([*key]),
        }
    }
}

impl Model {
    fn held(&self, key: u8) -> u64 {
        self.held.get(&key).copied().unwrap_or(0)
    }

    /// What is true after this deed; none if its answer is wrong here.
    fn after(&self, deed: &Deed) -> Option<Self> {
        let mut next = self.clone();
        let right = match deed {
            Deed::Grant(grants) => grants.iter().all(|grant| next.grant(*grant)),
            Deed::Refuse { claims, at, held } => self.refuses(claims, *at, *held),
            Deed::Held { key, held } => self.held(*key) == *held,
            Deed::Release { key, units } => {
                let left = self.held(*key).checked_sub(*units);
                next.held.insert(*key, left.unwrap_or(0));
                left.is_some()
            }
        };
        right.then_some(next)
    }

    fn grant(&mut self, (claim, ordinal, fence): (Claim, u64, u64)) -> bool {
        let last = self.fence.insert(claim.key, fence).unwrap_or(0);
        let held = self.held(claim.key) + claim.units;
        self.held.insert(claim.key, held);
        claim.units > 0 && held <= claim.capacity && ordinal == held && fence > last
    }

    /// It may count what the claims before would have taken of the same key.
    fn refuses(&self, claims: &[Claim], at: usize, held: u64) -> bool {
        let claim = claims[at];
        let before = claims[..at].iter().filter(|other| other.key == claim.key);
        let before: u64 = before.map(|other| other.units).sum();
        let is_held = held == self.held(claim.key) || held == self.held(claim.key) + before;
        is_held && (claim.units == 0 || held + claim.units > claim.capacity)
    }
}

/// Whether some order explains all answers.
pub(crate) fn is_explained(calls: &[Call]) -> bool {
    assert!(calls.len() <= CALLS_MAX, "a set has no place for more");
    let all = u128::MAX.checked_shr(128 - calls.len() as u32).unwrap_or(0);
    let mut hopeless = HashSet::new();
    let mut open = vec![(0_u128, Model::default())];
    while let Some((done, model)) = open.pop() {
        if done == all {
            return true;
        }
        if !hopeless.insert(done) {
            continue;
        }
        for at in next_calls(calls, done) {
            if let Some(after) = model.after(&calls[at].deed) {
                open.push((done | 1 << at, after));
            }
        }
    }
    false
}

/// Calls that began before any other that is not done ended.
fn next_calls(calls: &[Call], done: u128) -> impl Iterator<Item = usize> {
    let left = move |at: &usize| done & 1 << at == 0;
    let ends = (0..calls.len()).filter(left).map(|at| calls[at].end);
    let first_end = ends.min().unwrap_or(0);
    let may_be_next = move |at: &usize| left(at) && calls[*at].begin < first_end;
    (0..calls.len()).filter(may_be_next)
}

/// The calls of each key alone, if none is about several.
pub(crate) fn by_key(calls: &[Call]) -> Option<Vec<Vec<Call>>> {
    let mut parts: BTreeMap<u8, Vec<Call>> = BTreeMap::new();
    for call in calls {
        let keys = call.deed.keys();
        let &[key] = Vec::from_iter(keys).as_slice() else {
            return None;
        };
        parts.entry(key).or_default().push(call.clone());
    }
    Some(parts.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(begin: u64, end: u64, deed: Deed) -> Call {
        Call { begin, end, deed }
    }

    fn claim(key: u8, units: u64, capacity: u64) -> Claim {
        Claim {
            key,
            units,
            capacity,
        }
    }

    fn grant(capacity: u64, ordinal: u64, fence: u64) -> Deed {
        Deed::Grant(vec![(claim(0, 1, capacity), ordinal, fence)])
    }

    fn refuse(capacity: u64, held: u64) -> Deed {
        let claims = vec![claim(0, 1, capacity)];
        Deed::Refuse {
            claims,
            at: 0,
            held,
        }
    }

    fn release() -> Deed {
        Deed::Release { key: 0, units: 1 }
    }

    fn held(key: u8, held: u64) -> Deed {
        Deed::Held { key, held }
    }

    #[test]
    fn calls_that_overlap_may_have_happened_in_either_order() {
        let first = call(0, 4, grant(1, 1, 1));
        let calls = [first, call(1, 3, refuse(1, 1)), call(5, 6, release())];
        assert!(is_explained(&calls));
        let calls = [call(0, 4, grant(1, 1, 1)), call(1, 3, held(0, 0))];
        assert!(is_explained(&calls));
        let calls = [call(0, 2, grant(1, 1, 1)), call(3, 4, held(0, 0))];
        assert!(!is_explained(&calls), "one came after the other");
    }

    #[test]
    fn more_than_the_capacity_is_not_explained() {
        let calls = |capacity| {
            let first = call(0, 9, grant(2, 1, 1));
            let second = call(1, 8, grant(2, 2, 2));
            [first, second, call(2, 7, grant(capacity, 3, 3))]
        };
        assert!(is_explained(&calls(3)));
        assert!(!is_explained(&calls(2)));
    }

    #[test]
    fn two_with_one_ordinal_and_no_release_are_not_explained() {
        let calls = [call(0, 9, grant(3, 1, 1)), call(1, 8, grant(3, 1, 2))];
        assert!(!is_explained(&calls));
        let calls = [&calls[..], &[call(2, 3, release())]].concat();
        assert!(is_explained(&calls), "a release came between");
    }

    #[test]
    fn a_no_without_a_reason_is_not_explained() {
        let first = call(0, 1, grant(2, 1, 1));
        assert!(is_explained(&[first.clone(), call(2, 3, refuse(1, 1))]));
        assert!(!is_explained(&[first.clone(), call(2, 3, refuse(2, 1))]));
        assert!(!is_explained(&[first, call(2, 3, refuse(1, 2))]));
    }

    #[test]
    fn fences_against_the_order_are_not_explained() {
        let calls = |one, two| [call(0, 1, grant(2, 1, one)), call(2, 3, grant(2, 2, two))];
        assert!(is_explained(&calls(4, 7)));
        assert!(!is_explained(&calls(7, 4)));
        assert!(!is_explained(&calls(4, 4)));
    }

    #[test]
    fn more_than_was_taken_cannot_come_back() {
        let calls = [call(0, 1, grant(2, 1, 1)), call(2, 3, release())];
        assert!(is_explained(&calls));
        let calls = [&calls[..], &[call(4, 5, release())]].concat();
        assert!(!is_explained(&calls));
    }

    #[test]
    fn half_of_what_was_taken_together_is_not_explained() {
        let both = Deed::Grant(vec![(claim(0, 1, 1), 1, 1), (claim(1, 1, 1), 1, 1)]);
        let seen = |other| {
            let both = call(0, 9, both.clone());
            [both, call(1, 2, held(0, 1)), call(3, 4, held(1, other))]
        };
        assert!(is_explained(&seen(1)));
        assert!(!is_explained(&seen(0)));
        assert!(by_key(&seen(0)).is_none());
    }
}
