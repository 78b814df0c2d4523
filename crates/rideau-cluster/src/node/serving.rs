//! What threads that grant look at before they do: until when the node may rely on its
//! lease, and in which epoch it may grant from a partition. Nothing here takes a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rideau_core::Instant;

use super::boot_clock;

/// The epochs of the partitions that this node may grant from.
#[derive(Debug)]
pub(super) struct ServingTable {
    /// In nanoseconds of the boot clock; zero if there is no lease.
    valid_until: AtomicU64,
    /// Zero if the partition may not be granted from.
    epochs: Box<[AtomicU64]>,
    /// The same for names. It changes with the former, and when names are adopted.
    names: Box<[AtomicU64]>,
}

/// The partition may be granted from as soon as the host has been told so.
const BEGINNING: u64 = 1 << 63;

impl ServingTable {
    pub(super) fn new(partitions: u32) -> Self {
        Self {
            valid_until: AtomicU64::new(0),
            epochs: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            names: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The epoch in which the node may grant from a partition at this moment.
    pub(super) fn serves(&self, partition: u32) -> Option<u64> {
        let epoch = self.epochs.get(partition as usize)?.load(Ordering::SeqCst);
        let may = epoch != 0 && epoch & BEGINNING == 0;
        (may && self.valid_until() > boot_clock::now()).then_some(epoch)
    }

    /// The epoch in which the node may grant names of a partition at this moment.
    pub(super) fn serves_names(&self, partition: u32) -> Option<u64> {
        let epoch = self.names.get(partition as usize)?.load(Ordering::SeqCst);
        (epoch != 0 && self.valid_until() > boot_clock::now()).then_some(epoch)
    }

    /// Names of the partition may be granted.
    pub(super) fn adopt(&self, partition: u32, epoch: u64) {
        self.names[partition as usize].store(epoch, Ordering::SeqCst);
    }

    /// For how long the node may rely on its lease.
    pub(super) fn valid_for(&self) -> Duration {
        boot_clock::until(self.valid_until())
    }

    /// From this instant on the node may not rely on its lease.
    pub(super) fn set_valid_until(&self, until: Instant) {
        self.valid_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// The partition may be granted from once the host knows.
    pub(super) fn begin(&self, partition: u32, epoch: u64) {
        self.epochs[partition as usize].store(epoch | BEGINNING, Ordering::SeqCst);
    }

    /// The host knows. If the partition was closed meanwhile, it stays so.
    pub(super) fn begun(&self, partition: u32, epoch: u64) {
        let of = &self.epochs[partition as usize];
        let (before, after) = (epoch | BEGINNING, epoch);
        let _ = of.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the host has yet to be told that the partition may be granted from.
    pub(super) fn is_beginning(&self, partition: u32) -> bool {
        self.epochs[partition as usize].load(Ordering::SeqCst) & BEGINNING != 0
    }

    /// The partition may not be granted from any more.
    pub(super) fn close(&self, partition: u32) {
        self.epochs[partition as usize].store(0, Ordering::SeqCst);
        self.names[partition as usize].store(0, Ordering::SeqCst);
    }

    /// Nothing may be granted any more.
    pub(super) fn close_all(&self) {
        self.set_valid_until(Instant::START);
        for epoch in self.epochs.iter().chain(&self.names) {
            epoch.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ServingTable {
        let table = ServingTable::new(4);
        table.set_valid_until(boot_clock::now() + Duration::from_secs(600));
        table
    }

    #[test]
    fn a_partition_is_served_when_the_host_knows() {
        let table = table();
        table.begin(2, 7);
        assert_eq!((table.serves(2), table.is_beginning(2)), (None, true));
        table.begun(2, 7);
        assert_eq!((table.serves(2), table.is_beginning(2)), (Some(7), false));
        assert_eq!((table.serves(1), table.serves(9)), (None, None));
        table.close(2);
        assert_eq!(table.serves(2), None);
    }

    #[test]
    fn a_partition_that_was_closed_before_the_host_knew_stays_closed() {
        let table = table();
        table.begin(2, 7);
        table.close(2);
        table.begun(2, 7);
        assert_eq!(table.serves(2), None);
    }

    #[test]
    fn nothing_is_served_without_a_valid_lease() {
        let table = table();
        table.begin(0, 7);
        table.begun(0, 7);
        table.set_valid_until(boot_clock::now());
        assert_eq!((table.serves(0), table.valid_for()), (None, Duration::ZERO));
        table.set_valid_until(boot_clock::now() + Duration::from_secs(600));
        table.adopt(0, 7);
        assert_eq!((table.serves(0), table.serves_names(0)), (Some(7), Some(7)));
        table.close_all();
        assert_eq!((table.serves(0), table.serves_names(0)), (None, None));
    }
}
