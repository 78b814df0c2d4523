//! Keys that records have for themselves, as other nodes are told of them.

use rideau_core::allocator::{Prefer, Refused, ReportedKey, Seen, Size, Which};

use super::super::{Answer, Committed, Failed, Ranges};

/// How many records are looked at in one step.
const STEP: usize = 4_096;
/// About how many keys a piece of a report has.
const KEYS: usize = 1_024;

/// A piece of what a node reports of its keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyReport {
    /// The keys.
    pub keys: Vec<ReportedKey>,
    /// The partitions whose records are reported, with their epochs. A partition that has
    /// the same epoch in all pieces is reported wholly.
    pub covered: Vec<(u32, u64)>,
    /// Where the next piece begins, if there is one.
    pub next: Option<u64>,
}

impl Ranges {
    /// A piece of the keys that records have here for themselves, of these partitions of
    /// keys. From now on no word of older epochs of them counts here.
    pub fn report_keys(&self, wanted: &[(u32, u64)], mut cursor: u64) -> KeyReport {
        let mut report = KeyReport::default();
        loop {
            let mut inner = self.0.shared.inner.lock();
            let Some(many) = inner.machine.many_mut() else {
                return report;
            };
            for (partition, epoch) in wanted {
                many.promise(*partition, *epoch);
            }
            report.covered = many.open_epochs();
            let is_wanted = |of: u32| wanted.iter().any(|(partition, _)| *partition == of);
            if !many.report_keys(is_wanted, &mut cursor, STEP, &mut report.keys) {
                return report;
            }
            if report.keys.len() >= KEYS {
                report.next = Some(cursor);
                return report;
            }
            parking_lot::MutexGuard::unlock_fair(inner);
        }
    }

    /// Counts and returns the refusal that nothing is free, after all nodes were asked.
    pub fn count_exhausted(&self, prefer: &[Prefer]) -> Failed {
        let inner = self.0.shared.inner.lock();
        let size = match inner.machine.many() {
            Some(many) => many.size_of(prefer),
            None => Size::ZERO,
        };
        let free = Size::ZERO;
        Failed::Refused(Refused::Exhausted { free, size })
    }

    /// Reached when all that was decided before is written: what a report does not have is
    /// gone for good only then.
    pub fn written(&self) -> Committed {
        let step = self.step(|_, _, effects| {
            effects.wait = true;
            Ok(())
        });
        step.into_parts().1
    }

    /// The records with a key that are here, whether or not other nodes have some.
    pub fn find(&self, key: &[u8]) -> Answer<Vec<Seen>> {
        self.step(|machine, now, effects| {
            let seen = machine.lookup(Which::Key(key), now, effects);
            effects.wait |= seen.is_empty();
            Ok(seen)
        })
    }
}
