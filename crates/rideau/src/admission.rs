//! The protector in front of a machine: a row of atomics.
//!
//! A refusal costs no lock. The fields are read one by one, so a look during a
//! publication may mix two rows; each of them was right a moment ago.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use rideau_core::broker::Tally;
use rideau_core::protector::{Chance, Row};
use rideau_core::{Reason, Rng, Side};

/// The last published row, and how many were let in since.
#[derive(Debug)]
pub(crate) struct Admission {
    /// There is a row; without one every caller may pass.
    guarded: AtomicBool,
    min: AtomicU32,
    max: AtomicU32,
    probes: AtomicU32,
    backlog: AtomicU32,
    p_ask: AtomicU32,
    p_offer: AtomicU32,
    /// How many went in since the row was published: the probes are among them.
    admitted: AtomicU32,
    /// How many went in and were not taken by the machine yet.
    inside: AtomicU32,
    chance: AtomicU64,
    len: AtomicUsize,
    refused: [AtomicU64; 2],
}

/// A caller on the way in.
pub(crate) struct Admitted<'a>(Option<&'a AtomicU32>);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(inside) = self.0 {
            inside.fetch_sub(1, Relaxed);
        }
    }
}

impl Admission {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            guarded: AtomicBool::new(false),
            min: AtomicU32::new(0),
            max: AtomicU32::new(0),
            probes: AtomicU32::new(0),
            backlog: AtomicU32::new(0),
            p_ask: AtomicU32::new(0),
            p_offer: AtomicU32::new(0),
            admitted: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            chance: AtomicU64::new(seed),
            len: AtomicUsize::new(0),
            refused: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.load(Relaxed)
    }

    /// How many waited behind the admission when a caller last came in.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(crate) fn set_len(&self, len: usize) {
        self.len.store(len, Relaxed);
    }

    pub(crate) fn publish(&self, row: &Row) {
        self.min.store(row.min, Relaxed);
        self.max.store(row.max.unwrap_or(u32::MAX), Relaxed);
        self.probes.store(row.probes, Relaxed);
        self.backlog.store(row.backlog, Relaxed);
        self.p_ask.store(row.p_ask.parts(), Relaxed);
        self.p_offer.store(row.p_offer.parts(), Relaxed);
        self.admitted.store(0, Relaxed);
        self.guarded.store(true, Relaxed);
    }

    pub(crate) fn withdraw(&self) {
        self.guarded.store(false, Relaxed);
    }

    /// How likely a caller that comes to this side is refused.
    pub(crate) fn chance(&self, side: Side) -> f64 {
        if !self.is_guarded() {
            return 0.0;
        }
        let row = self.row();
        let chance = match side {
            Side::Ask => row.p_ask,
            Side::Offer => row.p_offer,
        };
        chance.probability()
    }

    /// Whether one more may go in. Only a caller that may is counted, as inside
    /// until what is returned is dropped.
    pub(crate) fn admit(&self, side: Side) -> Option<Admitted<'_>> {
        if !self.is_guarded() {
            return Some(Admitted(None));
        }
        let row = self.row();
        // The step of SplitMix64, so that every caller has a draw of its own.
        let state = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let draw = Rng::new(state).draw();
        let p = match side {
            Side::Ask => row.p_ask,
            Side::Offer => row.p_offer,
        };
        // A closed admission counts its probes, an open one the callers on the way in.
        let counter = if p == Chance::ALWAYS {
            &self.admitted
        } else {
            &self.inside
        };
        let admit = |count| row.admits(side, count, draw).ok().map(|()| count + 1);
        if counter.fetch_update(Relaxed, Relaxed, admit).is_err() {
            self.refused[side as usize].fetch_add(1, Relaxed);
            return None;
        }
        if p == Chance::ALWAYS {
            self.inside.fetch_add(1, Relaxed);
        }
        Some(Admitted(Some(&self.inside)))
    }

    /// Count the callers that the admission turned away: the machine has never seen
    /// them.
    pub(crate) fn count_refused(&self, side: Side, tally: &mut Tally) {
        let refused = self.refused[side as usize].load(Relaxed);
        tally.came += refused;
        tally.shed[Reason::Protected.index()] += refused;
    }

    fn row(&self) -> Row {
        let max = self.max.load(Relaxed);
        Row {
            min: self.min.load(Relaxed),
            max: (max != u32::MAX).then_some(max),
            probes: self.probes.load(Relaxed),
            backlog: self.backlog.load(Relaxed),
            p_ask: Chance::from_parts(self.p_ask.load(Relaxed)),
            p_offer: Chance::from_parts(self.p_offer.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(p: Chance) -> Row {
        Row {
            min: 0,
            max: Some(2),
            probes: 1,
            backlog: 0,
            p_ask: p,
            p_offer: Chance::NEVER,
        }
    }

    /// D9: a refused caller does not count, so trying again keeps no other out.
    #[test]
    fn the_refused_are_not_counted_as_admitted() {
        let admission = Admission::new(1);
        admission.publish(&row(Chance::NEVER));
        let mut inside: Vec<_> = (0..5).filter_map(|_| admission.admit(Side::Ask)).collect();
        assert_eq!(inside.len(), 2);
        assert!(admission.admit(Side::Ask).is_none());
        inside.pop();
        assert!(
            admission.admit(Side::Ask).is_some(),
            "one has been taken in"
        );
    }

    #[test]
    fn a_closed_door_lets_a_probe_in_after_each_publication() {
        let admission = Admission::new(1);
        for _ in 0..3 {
            admission.publish(&row(Chance::ALWAYS));
            let tries: Vec<_> = (0..3)
                .map(|_| admission.admit(Side::Ask).is_some())
                .collect();
            assert_eq!(tries, [true, false, false]);
            assert!(
                admission.admit(Side::Offer).is_some(),
                "only asks are kept out"
            );
        }
        admission.withdraw();
        assert!(admission.admit(Side::Ask).is_some());
    }
}
