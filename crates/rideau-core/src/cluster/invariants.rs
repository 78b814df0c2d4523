//! Invariants of a node, checked after every input.

use super::member::{Cluster, Stage};
use super::owned::PartPhase;
use super::planted::planted;

impl Cluster {
    pub(super) fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let is_live = matches!(self.stage, Stage::Live { .. });
        assert!(is_live || self.parts.is_empty(), "C1: only a member owns");
        for (partition, part) in &self.parts {
            let record = self.table.owner(*partition).record.as_ref();
            let record = record.expect("C1: what is owned is written");
            assert_eq!(
                record.owner, self.me,
                "C1: {partition} is owned by this life"
            );
            assert_eq!(record.epoch, part.epoch, "C1: in the epoch that was seen");
            if part.phase == PartPhase::Open {
                assert!(record.is_listed(), "C1: {partition} is open and listed");
            }
        }
        if !planted!(self.options, TwoInFlight) {
            assert!(self.appends() <= 1, "C2: one batch is on its way");
            assert!(self.log.sent() <= 1, "C2: one batch is on its way");
        }
        self.check_parked();
        if let Some(moving) = &self.moving {
            assert_ne!(moving.to, self.me, "a node moves nothing to itself");
        }
    }
}
