//! What must be true of the locks, as an observer that knows everything sees it.

use std::collections::{BTreeMap, BTreeSet};

use rideau_core::cluster::{Incarnation, ReportedRow};

use crate::locks::LIMITS;

/// What was granted, and what clients rely on.
#[derive(Default)]
pub(crate) struct LeaseOracle {
    /// The last fence of each lock.
    fences: BTreeMap<(u32, u8), u64>,
    /// The clients that use a lock, and until when.
    using: BTreeMap<(u32, u8), BTreeMap<usize, u64>>,
    /// Leases that were given back, and the client was told so.
    released: BTreeSet<(Incarnation, u64)>,
    /// Asks and leases whose end an owner has heard of.
    ended: BTreeSet<(Incarnation, u64)>,
    pub(crate) granted: u64,
    pub(crate) used: u64,
    pub(crate) adopted: u64,
}

impl LeaseOracle {
    /// An owner grants a lock. G2: fences grow.
    pub(crate) fn granted(&mut self, partition: u32, key: u8, fence: u64) -> Result<(), String> {
        self.granted += 1;
        let last = self.fences.entry((partition, key)).or_default();
        if fence <= *last {
            return Err(format!(
                "G2: lock {key} of {partition} has fence {fence} after {last}"
            ));
        }
        *last = fence;
        Ok(())
    }

    /// A client may use a lock until then. G5: no more clients do than the limit allows.
    pub(crate) fn uses(
        &mut self,
        (partition, key): (u32, u8),
        client: usize,
        until: u64,
        now: u64,
    ) -> Result<(), String> {
        if until <= now {
            return Ok(());
        }
        self.used += 1;
        let using = self.using.entry((partition, key)).or_default();
        using.retain(|_, until| *until > now);
        using.insert(client, until);
        if using.len() > LIMITS[key as usize] {
            return Err(format!(
                "G5: lock {key} of {partition} is used by {using:?} at {now}"
            ));
        }
        Ok(())
    }

    /// A client stops to use a lock.
    pub(crate) fn stops(&mut self, client: usize) {
        for using in self.using.values_mut() {
            using.remove(&client);
        }
    }

    /// A client is told that a lease was given back.
    pub(crate) fn released(&mut self, node: &Incarnation, ticket: u64) {
        self.released.insert((node.clone(), ticket));
    }

    /// An owner has heard of an end.
    pub(crate) fn ended(&mut self, node: &Incarnation, ticket: u64) {
        self.ended.insert((node.clone(), ticket));
    }

    /// An owner takes an ask in. G8: none comes to life after its end.
    pub(crate) fn asks(&self, node: &Incarnation, ticket: u64) -> Result<(), String> {
        if self.ended.contains(&(node.clone(), ticket)) {
            return Err(format!("G8: ask {ticket} of {node} comes after its end"));
        }
        Ok(())
    }

    /// A new owner takes over what a node reports. G8: nothing comes back that was given
    /// back.
    pub(crate) fn adopts(&mut self, node: &Incarnation, row: &ReportedRow) -> Result<(), String> {
        self.adopted += u64::from(row.fence.is_some());
        if self.released.contains(&(node.clone(), row.ticket)) {
            return Err(format!(
                "G8: lease {} of {node} was given back, and is taken over",
                row.ticket
            ));
        }
        Ok(())
    }
}
