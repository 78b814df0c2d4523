//! Where the records are that have a key for themselves, as the owner of the key knows it.
//!
//! A key that at most one reservation may have belongs to the partition of its slot. The
//! owner of that partition lets one ask at a time have the key, and remembers the value that
//! it went to. The records themselves are with the owners of their values: what is known here
//! are pointers, which are looked up before they count, so a pointer to a record that is gone
//! does no harm. A record without a pointer would: so a new owner first has the owners of all
//! partitions report, and an ask whose outcome is not known leaves the key unsure until all
//! of them were asked again.

use std::collections::{BTreeMap, BTreeSet};

/// How many keys a sweep looks at.
const SWEPT: usize = 512;
/// It is due after this many keys have gone to a value: fewer than it looks at, so that keys of
/// records that are gone do not pile up.
const SWEEP_AFTER: usize = 256;

/// Where the record with a key is, as far as its owner knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum KeyAt {
    /// No record has it.
    #[default]
    Nowhere,
    /// The records of these values have it, or had it: an ask may have several by one id.
    At(BTreeSet<u128>),
    /// An ask may or may not have taken it. All nodes have to be asked.
    Unsure,
}

/// The answer of an ask for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyTurn {
    /// It is the ask's turn until it [settles](KeyIndexes::settle).
    Now(KeyAt),
    /// Another ask has the key just now, or the ownership is over.
    Busy,
    /// These partitions have not reported their keys.
    Unready(Vec<u32>),
}

/// A key that a sweep looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweptKey {
    /// The partition of the key.
    pub partition: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// The values whose records have it, or had it.
    pub values: BTreeSet<u128>,
    /// As long as this is the same, nothing has happened to the key.
    stamp: u64,
}

/// The keys of the partitions that a node owns.
#[derive(Clone, Debug)]
pub struct KeyIndexes {
    partitions: u32,
    parts: BTreeMap<u32, KeyIndex>,
    stamp: u64,
    /// Keys that went to a value since the last sweep.
    settled: usize,
    /// Where the last sweep ended.
    swept: Option<(u32, Box<[u8]>)>,
}

/// The keys of one partition, in one ownership.
#[derive(Clone, Debug)]
struct KeyIndex {
    epoch: u64,
    /// Partitions of values whose owners have not reported.
    missing: BTreeSet<u32>,
    keys: BTreeMap<Box<[u8]>, KnownKey>,
}

#[derive(Clone, Debug)]
struct KnownKey {
    at: KeyAt,
    is_busy: bool,
    stamp: u64,
}

impl KeyIndexes {
    /// Nothing is known of any of this many partitions.
    pub const fn new(partitions: u32) -> Self {
        Self {
            partitions,
            parts: BTreeMap::new(),
            stamp: 0,
            settled: 0,
            swept: None,
        }
    }

    /// An ask wants a key of a partition that this node owns in this epoch.
    pub fn take(&mut self, partition: u32, epoch: u64, key: &[u8]) -> KeyTurn {
        let Some(index) = self.index(partition, epoch) else {
            return KeyTurn::Busy;
        };
        if !index.missing.is_empty() {
            return KeyTurn::Unready(index.missing.iter().copied().collect());
        }
        match index.keys.get_mut(key) {
            Some(known) if known.is_busy => KeyTurn::Busy,
            Some(known) => {
                known.is_busy = true;
                KeyTurn::Now(known.at.clone())
            }
            None => {
                let known = KnownKey {
                    at: KeyAt::Nowhere,
                    is_busy: true,
                    stamp: 0,
                };
                index.keys.insert(key.into(), known);
                KeyTurn::Now(KeyAt::Nowhere)
            }
        }
    }

    /// An ask that had its turn is over, and this is what became of the key. An ask that is
    /// given up leaves it unsure.
    pub fn settle(&mut self, partition: u32, epoch: u64, key: &[u8], at: KeyAt) {
        self.stamp += 1;
        let stamp = self.stamp;
        let Some(index) = self.parts.get_mut(&partition) else {
            return;
        };
        if index.epoch != epoch {
            return;
        }
        match at {
            KeyAt::Nowhere => _ = index.keys.remove(key),
            at => {
                self.settled += 1;
                let is_busy = false;
                index
                    .keys
                    .insert(key.into(), KnownKey { at, is_busy, stamp });
            }
        }
    }

    /// Where a key is, to look at its record.
    pub fn look(&mut self, partition: u32, epoch: u64, key: &[u8]) -> Result<KeyAt, Vec<u32>> {
        let Some(index) = self.index(partition, epoch) else {
            return Ok(KeyAt::Unsure);
        };
        if !index.missing.is_empty() {
            return Err(index.missing.iter().copied().collect());
        }
        Ok(match index.keys.get(key) {
            // What becomes of it is not known yet.
            Some(known) if known.is_busy && known.at == KeyAt::Nowhere => KeyAt::Unsure,
            Some(known) => known.at.clone(),
            None => KeyAt::Nowhere,
        })
    }

    /// The partitions of these, each with its epoch, that some partition has not reported
    /// its keys to.
    pub fn unready(&mut self, owned: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let mut unready = owned.to_vec();
        unready.retain(|(partition, epoch)| {
            let index = self.index(*partition, *epoch);
            index.is_some_and(|index| !index.missing.is_empty())
        });
        unready
    }

    /// An owner has reported all keys of records in these partitions, to this ownership.
    pub fn reported<'a>(
        &mut self,
        (partition, epoch): (u32, u64),
        covered: &[u32],
        keys: impl IntoIterator<Item = (&'a [u8], u128)>,
    ) {
        self.stamp += 1;
        let stamp = self.stamp;
        let Some(index) = self.index(partition, epoch) else {
            return;
        };
        let before = index.missing.len();
        index
            .missing
            .retain(|of_values| !covered.contains(of_values));
        if index.missing.len() == before {
            return;
        }
        for (key, value) in keys {
            let known = index.keys.entry(key.into()).or_insert_with(|| KnownKey {
                at: KeyAt::At(BTreeSet::new()),
                is_busy: false,
                stamp,
            });
            if let KeyAt::At(values) = &mut known.at {
                values.insert(value);
            }
        }
    }

    /// Forget everything: keys were given out that this does not know of.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// How many keys are known.
    pub fn len(&self) -> usize {
        self.parts.values().map(|index| index.keys.len()).sum()
    }

    /// Is no key known?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some keys whose records may be gone, if it is time to look.
    pub fn sweep(&mut self) -> Vec<SweptKey> {
        if self.settled < SWEEP_AFTER {
            return Vec::new();
        }
        self.settled = 0;
        let from = self.swept.take();
        let mut found = Vec::new();
        for (partition, index) in &self.parts {
            for (key, known) in &index.keys {
                let is_behind = from
                    .as_ref()
                    .is_none_or(|(at, last)| (*partition, key) > (*at, last));
                let KeyAt::At(values) = &known.at else {
                    continue;
                };
                if !is_behind || known.is_busy {
                    continue;
                }
                if found.len() == SWEPT {
                    self.swept = Some((*partition, key.clone()));
                    return found;
                }
                found.push(SweptKey {
                    partition: *partition,
                    key: key.clone(),
                    values: values.clone(),
                    stamp: known.stamp,
                });
            }
        }
        found
    }

    /// The records of a swept key are gone. If anything has happened to the key since, it
    /// stays.
    pub fn gone(&mut self, swept: &SweptKey) {
        let index = self.parts.get_mut(&swept.partition);
        let keys = index.map(|index| &mut index.keys);
        if let Some(keys) = keys
            && let Some(known) = keys.get(&swept.key)
            && known.stamp == swept.stamp
            && !known.is_busy
        {
            keys.remove(&swept.key);
        }
    }

    /// The index of a partition in this epoch. What was known in an older one is forgotten.
    /// There is none for an epoch that is over: an ask or a report that is late must not make
    /// this forget who has a key now.
    fn index(&mut self, partition: u32, epoch: u64) -> Option<&mut KeyIndex> {
        let missing = 0..self.partitions;
        let new = || KeyIndex {
            epoch,
            missing: missing.collect(),
            keys: BTreeMap::new(),
        };
        let index = self.parts.entry(partition).or_insert_with(new.clone());
        if index.epoch < epoch {
            *index = new();
        }
        (index.epoch == epoch).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of one partition whose only partition of values has reported.
    fn ready(epoch: u64) -> KeyIndexes {
        let mut indexes = KeyIndexes::new(1);
        indexes.reported((0, epoch), &[0], []);
        indexes
    }

    #[test]
    fn an_ownership_that_is_over_changes_nothing() {
        let mut indexes = ready(5);
        assert_eq!(indexes.take(0, 5, b"k"), KeyTurn::Now(KeyAt::Nowhere));
        assert_eq!(indexes.take(0, 4, b"other"), KeyTurn::Busy);
        assert_eq!(indexes.look(0, 4, b"k"), Ok(KeyAt::Unsure));
        indexes.reported((0, 4), &[0], [(&b"k"[..], 7)]);
        assert_eq!(indexes.unready(&[(0, 4)]), []);
        assert_eq!(indexes.take(0, 5, b"k"), KeyTurn::Busy, "it is still taken");
    }

    #[test]
    fn a_new_ownership_knows_nothing_before_the_reports() {
        let mut indexes = ready(5);
        assert_eq!(indexes.take(0, 6, b"k"), KeyTurn::Unready(vec![0]));
        assert_eq!(indexes.unready(&[(0, 6)]), [(0, 6)]);
        indexes.reported((0, 6), &[0], [(&b"k"[..], 7)]);
        let at = KeyAt::At([7].into());
        assert_eq!(indexes.take(0, 6, b"k"), KeyTurn::Now(at));
    }
}
