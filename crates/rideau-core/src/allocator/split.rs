//! The log of one machine, dealt out to the machines of partitions.

use super::entry::{BadEntry, Entry, Reserved, entries};
use super::interval::Interval;
use super::partition::Partition;
use crate::cluster::Partitions;

/// What was written without partitions, as each partition would have written it.
///
/// All pieces of a snapshot are read first, then all batches since it began, as they are
/// read back.
#[derive(Debug)]
pub struct LogSplit {
    partitions: Partitions,
    parts: Vec<(Partition, Vec<u8>)>,
    fence: u64,
}

impl LogSplit {
    /// For these partitions.
    pub fn new(partitions: Partitions) -> Self {
        let parts = Partition::all(partitions).map(|at| (at, Vec::new()));
        Self {
            partitions,
            parts: parts.collect(),
            fence: 0,
        }
    }

    /// Read a piece of a snapshot or a batch.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), BadEntry> {
        for entry in entries(bytes) {
            self.deal(&entry?);
        }
        Ok(())
    }

    /// The last fence that was read.
    pub const fn fence(&self) -> u64 {
        self.fence
    }

    /// The log of each partition.
    pub fn finish(self) -> Vec<Vec<u8>> {
        self.parts.into_iter().map(|(_, log)| log).collect()
    }

    fn deal(&mut self, entry: &Entry<'_>) {
        match *entry {
            Entry::Reserved(ref reserved) => {
                self.reserved(reserved, Entry::Reserved);
            }
            Entry::Lapsed(ref reserved) => self.reserved(reserved, Entry::Lapsed),
            Entry::Prolonged {
                value,
                fence,
                until,
            } => self.of_value(value, fence, |value| Entry::Prolonged {
                value,
                fence,
                until,
            }),
            Entry::Freed { value, fence } => {
                self.of_value(value, fence, |value| Entry::Freed { value, fence });
            }
            Entry::Detached {
                value,
                fence,
                until,
            } => self.of_value(value, fence, |value| Entry::Detached {
                value,
                fence,
                until,
            }),
            Entry::Cooling {
                value,
                fence,
                until,
            } => self.of_value(value, fence, |value| Entry::Cooling {
                value,
                fence,
                until,
            }),
            Entry::Quarantined { interval, until } => {
                self.of_values(interval, |interval| Entry::Quarantined { interval, until });
            }
            Entry::Known { interval } => {
                self.of_values(interval, |interval| Entry::Known { interval });
            }
            Entry::Unknown { interval } => {
                self.of_values(interval, |interval| Entry::Unknown { interval });
            }
            Entry::Claimed { interval } => {
                self.of_values(interval, |interval| Entry::Claimed { interval });
            }
            Entry::Promised { interval, span } => {
                self.of_values(interval, |interval| Entry::Promised { interval, span });
            }
            Entry::Fence { last } => {
                self.fence = self.fence.max(last);
                self.of_all(entry);
            }
            Entry::Clock(_) | Entry::Stopped | Entry::Forgotten => self.of_all(entry),
        }
    }

    fn reserved<'a>(
        &mut self,
        reserved: &Reserved<'a>,
        entry: impl FnOnce(Reserved<'a>) -> Entry<'a>,
    ) {
        let here = reserved.clone();
        self.of_value(reserved.value, reserved.fence, |value| {
            entry(Reserved { value, ..here })
        });
    }

    fn of_value<'a>(&mut self, value: u128, fence: u64, entry: impl FnOnce(u128) -> Entry<'a>) {
        self.fence = self.fence.max(fence);
        let (at, log) = &mut self.parts[self.partitions.of_value(value) as usize];
        entry(at.index(value)).put(log);
    }

    fn of_values(&mut self, values: Interval, entry: impl Fn(Interval) -> Entry<'static>) {
        for (at, log) in &mut self.parts {
            if let Some(here) = at.indexes(values) {
                entry(here).put(log);
            }
        }
    }

    fn of_all(&mut self, entry: &Entry<'_>) {
        self.parts.iter_mut().for_each(|(_, log)| entry.put(log));
    }
}
