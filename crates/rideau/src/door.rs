//! The protector in front of a machine: a row of atomics.
//!
//! A refusal costs no lock. The fields are read one by one, so a look during a
//! publication may mix two rows; each of them was right a moment ago.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use rideau_core::broker::Tally;
use rideau_core::protector::{Chance, Row};
use rideau_core::{Reason, Rng, Side};

/// The last published row, and who was let in since.
#[derive(Debug)]
pub(crate) struct Door {
    /// There is a row; without one everybody may pass.
    guarded: AtomicBool,
    min: AtomicU32,
    max: AtomicU32,
    probes: AtomicU32,
    backlog: AtomicU32,
    p_ask: AtomicU32,
    p_offer: AtomicU32,
    admitted: AtomicU32,
    chance: AtomicU64,
    len: AtomicUsize,
    refused: [AtomicU64; 2],
}

impl Door {
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
            chance: AtomicU64::new(seed),
            len: AtomicUsize::new(0),
            refused: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.load(Relaxed)
    }

    /// How many waited behind the door when somebody last came in.
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

    /// Whether one more may go in. Only who may is counted.
    pub(crate) fn admits(&self, side: Side) -> bool {
        if !self.is_guarded() {
            return true;
        }
        let row = self.row();
        // The step of SplitMix64, so that every caller has a draw of its own.
        let state = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let draw = Rng::new(state).draw();
        let admit = |admitted| row.admits(side, admitted, draw).ok().map(|()| admitted + 1);
        let admitted = self.admitted.fetch_update(Relaxed, Relaxed, admit).is_ok();
        if !admitted {
            self.refused[side as usize].fetch_add(1, Relaxed);
        }
        admitted
    }

    /// Count those whom the door turned away: the machine has never seen them.
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

    /// D9: who is refused does not count, so trying again keeps nobody out.
    #[test]
    fn the_refused_are_not_counted_as_admitted() {
        let door = Door::new(1);
        door.publish(&row(Chance::NEVER));
        let tries: Vec<_> = (0..5).map(|_| door.admits(Side::Ask)).collect();
        assert_eq!(tries, [true, true, false, false, false]);
        assert_eq!(door.admitted.load(Relaxed), 2);
    }

    #[test]
    fn a_closed_door_lets_a_probe_in_after_each_publication() {
        let door = Door::new(1);
        for _ in 0..3 {
            door.publish(&row(Chance::ALWAYS));
            let tries: Vec<_> = (0..3).map(|_| door.admits(Side::Ask)).collect();
            assert_eq!(tries, [true, false, false]);
            assert!(door.admits(Side::Offer), "only asks are kept out");
        }
        door.withdraw();
        assert!(door.admits(Side::Ask));
    }
}
