//! What is in a partition here: keys with values, and the last fence. It is small enough to
//! be checked entry by entry.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rideau::store::{OwnedSection, PartitionHost, PartitionLog, Piece};

/// The partitions that a node has.
#[derive(Default)]
pub(crate) struct RegisterHost {
    log: OnceLock<Arc<dyn PartitionLog>>,
    parts: Mutex<BTreeMap<u32, Part>>,
    /// Writes go to the log one after the other, in the order in which they were decided.
    writer: Mutex<()>,
}

#[derive(Default)]
struct Part {
    register: Register,
    epoch: u64,
    /// How many grants there were in this epoch.
    counter: u64,
    is_open: bool,
    /// Writes that were decided and are not known to be safe.
    pending: usize,
    closing: bool,
    snapshot_wanted: bool,
}

/// The state of a partition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Register {
    number: u64,
    fence: u64,
    values: BTreeMap<u64, u64>,
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Write {
    pub(crate) partition: u32,
    pub(crate) key: u64,
    pub(crate) fence: u64,
}

/// What became of a write that was not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotWritten {
    /// The partition is not served here. Nothing happened.
    Elsewhere,
    /// It is not known whether it happened.
    Unknown,
}

impl RegisterHost {
    pub(crate) fn set_log(&self, log: Arc<dyn PartitionLog>) {
        assert!(self.log.set(log).is_ok(), "there is one log");
    }

    fn log(&self) -> &dyn PartitionLog {
        &**self.log.get().unwrap()
    }

    /// Set keys, each of another partition, in one batch. Returns when that is safe.
    pub(crate) fn write(&self, wanted: &[(u32, u64)]) -> Result<Vec<Write>, NotWritten> {
        let _turn = self.writer.lock();
        let mut written = Vec::new();
        let mut entries = Vec::new();
        let mut parts = self.parts.lock();
        for (partition, key) in wanted {
            let serves = self.log().serves(*partition);
            let part = parts.get_mut(partition).filter(|part| part.is_open);
            let Some(part) = part.filter(|part| serves == Some(part.epoch)) else {
                break;
            };
            part.counter += 1;
            let fence = part.epoch << 32 | part.counter;
            let entry = [part.register.number + 1, *key, fence];
            part.register.apply(entry).unwrap();
            part.pending += 1;
            entries.push((*partition, part.epoch, encode(&entry)));
            written.push(Write {
                partition: *partition,
                key: *key,
                fence,
            });
        }
        drop(parts);
        let sections: Vec<_> = entries
            .iter()
            .map(|(partition, epoch, bytes)| OwnedSection {
                partition: *partition,
                epoch: *epoch,
                bytes,
            })
            .collect();
        let is_safe = sections.is_empty() || self.log().append(&sections).is_ok();
        for (partition, epoch, _) in &entries {
            self.appended(*partition, *epoch);
        }
        if !is_safe {
            return Err(NotWritten::Unknown);
        }
        match written.is_empty() {
            true => Err(NotWritten::Elsewhere),
            false => Ok(written),
        }
    }

    /// The fence with which a key was last set, if the partition is served here.
    pub(crate) fn read(&self, partition: u32, key: u64) -> Option<Option<u64>> {
        let parts = self.parts.lock();
        let part = parts.get(&partition).filter(|part| part.is_open)?;
        let serves = self.log().serves(partition);
        (serves == Some(part.epoch)).then(|| part.register.values.get(&key).copied())
    }

    /// The partitions that are served here.
    pub(crate) fn served(&self) -> Vec<u32> {
        let parts = self.parts.lock();
        let served = |(at, part): &(&u32, &Part)| {
            part.is_open && self.log().serves(**at) == Some(part.epoch)
        };
        parts.iter().filter(served).map(|(at, _)| *at).collect()
    }

    fn appended(&self, partition: u32, epoch: u64) {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get_mut(&partition).filter(|it| it.epoch == epoch) {
            part.pending -= 1;
            self.settle(partition, part);
        }
    }

    /// Answer what the node wants, if nothing is on its way to the log.
    fn settle(&self, partition: u32, part: &mut Part) {
        if part.pending > 0 {
            return;
        }
        if std::mem::take(&mut part.snapshot_wanted) {
            self.log().snapshot_begun(partition, part.epoch);
            let chunks = part.register.encode();
            self.log().snapshotted(partition, part.epoch, chunks);
        }
        if std::mem::take(&mut part.closing) {
            self.log().closed(partition, part.epoch);
        }
    }
}

impl PartitionHost for RegisterHost {
    fn load(&self, partition: u32, epoch: u64, pieces: &[Piece<'_>]) -> Result<(), String> {
        let mut register = Register::default();
        for piece in pieces {
            match piece {
                Piece::Snapshot(bytes) => register.take(bytes),
                Piece::Batch(bytes) => {
                    for entry in numbers(bytes).chunks_exact(3) {
                        register.apply([entry[0], entry[1], entry[2]])?;
                    }
                }
            }
        }
        let part = Part {
            register,
            epoch,
            ..Part::default()
        };
        self.parts.lock().insert(partition, part);
        Ok(())
    }

    fn begin(&self, partition: u32, epoch: u64) {
        let mut parts = self.parts.lock();
        let part = parts.get_mut(&partition).expect("it was loaded");
        if part.epoch != epoch {
            (part.epoch, part.counter) = (epoch, 0);
        }
        part.is_open = true;
    }

    fn close(&self, partition: u32, epoch: u64) {
        let mut parts = self.parts.lock();
        let part = parts.get_mut(&partition).expect("it was begun");
        assert_eq!(part.epoch, epoch);
        (part.is_open, part.closing) = (false, true);
        self.settle(partition, part);
    }

    fn end(&self, partition: u32) {
        self.parts.lock().remove(&partition);
    }

    fn snapshot(&self, partition: u32, epoch: u64) {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get_mut(&partition).filter(|it| it.epoch == epoch) {
            part.snapshot_wanted = true;
            self.settle(partition, part);
        }
    }
}

impl Register {
    fn apply(&mut self, [number, key, fence]: [u64; 3]) -> Result<(), String> {
        if number != self.number + 1 {
            return Err(format!("entry {number} stands behind {}", self.number));
        }
        if fence <= self.fence {
            return Err(format!("fence {fence} comes after {}", self.fence));
        }
        (self.number, self.fence) = (number, fence);
        self.values.insert(key, fence);
        Ok(())
    }

    /// A head, and a few keys a chunk.
    fn encode(&self) -> Vec<Vec<u8>> {
        let pairs: Vec<_> = self
            .values
            .iter()
            .map(|(key, fence)| [*key, *fence])
            .collect();
        let head = encode(&[self.number, self.fence]);
        let chunks = pairs.chunks(50).map(|pairs| encode(pairs.as_flattened()));
        [head].into_iter().chain(chunks).collect()
    }

    fn take(&mut self, chunk: &[u8]) {
        let all = numbers(chunk);
        if self.number == 0 {
            (self.number, self.fence) = (all[0], all[1]);
            return;
        }
        let pairs = all.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.values.extend(pairs);
    }
}

fn encode(numbers: &[u64]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|number| number.to_be_bytes());
    bytes.collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "it was written whole");
    let read = numbers.iter().map(|bytes| u64::from_be_bytes(*bytes));
    read.collect()
}
