//! Keys that a record has for itself, while other nodes have partitions.
//!
//! Whether a record of another node has such a key is not known here. The owner of the key's
//! partition knows, and vouches for an ask with the epoch of that ownership. When the owner
//! changes, the new one has all nodes report their keys.

use std::fmt;

use super::Many;
use crate::allocator::ID_MARK;
use crate::allocator::ask::{Key, Vouched};
use crate::allocator::records::State;
use crate::allocator::refused::Refused;
use crate::cluster::KeyEpochs;

/// The ownerships that keys are given out in, as far as this node knows.
#[derive(Default)]
pub(super) struct KnownEpochs {
    epochs: KeyEpochs,
    /// The newest that this node knows of.
    newest: Option<Newest>,
}

type Newest = Box<dyn Fn(u32) -> u64 + Send + Sync>;

impl fmt::Debug for KnownEpochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.epochs.fmt(f)
    }
}

impl KnownEpochs {
    fn takes(&self, partition: u32, epoch: u64) -> bool {
        let known = self.newest.as_ref().map_or(0, |newest| newest(partition));
        self.epochs.takes(partition, epoch, known)
    }
}

/// A key that a record has for itself, or the id of an ask as
/// [`id_key`](crate::allocator::id_key) writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedKey {
    /// The key.
    pub key: Vec<u8>,
    /// The value of the record.
    pub value: u128,
    /// Its holder's number.
    pub fence: u64,
}

impl Many {
    /// This says which ownership of a partition is the newest that the node knows of. It is
    /// asked while values are decided on.
    pub fn know_epochs_by(&mut self, newest: impl Fn(u32) -> u64 + Send + Sync + 'static) {
        self.key_epochs.newest = Some(Box::new(newest));
    }

    /// Take no word of an older ownership of this partition any more.
    pub fn promise(&mut self, partition: u32, epoch: u64) {
        self.key_epochs.epochs.promise(partition, epoch);
    }

    /// Keys that records have for themselves, and ids, whose partition is wanted: those of
    /// some `most` records from where the cursor is, written or not. Says whether there may
    /// be more.
    pub fn report_keys(
        &self,
        wanted: impl Fn(u32) -> bool,
        cursor: &mut u64,
        most: usize,
        into: &mut Vec<ReportedKey>,
    ) -> bool {
        let number = (*cursor >> u32::BITS) as usize;
        let Some(part) = self.parts.get(number) else {
            return false;
        };
        let next = (number as u64 + 1) << u32::BITS;
        let Some(part) = part.as_ref().filter(|part| part.phase.is_open()) else {
            *cursor = next;
            return true;
        };
        let mut within = *cursor as u32;
        for _ in 0..most {
            let Some(slot) = part.machine.records.next_from(&mut within) else {
                *cursor = next;
                return true;
            };
            let head = part.machine.records.head(slot);
            if head.state == State::Cooling {
                continue;
            }
            let value = part.at.value(part.machine.records.value(slot));
            for key in part.machine.records.body(slot).keys() {
                let is_own = key.unique || key.bytes.first() == Some(&ID_MARK);
                if is_own && wanted(self.partitions.of_name(without_mark(key.bytes))) {
                    into.push(ReportedKey {
                        key: key.bytes.to_vec(),
                        value,
                        fence: head.fence,
                    });
                }
            }
        }
        *cursor = (number as u64) << u32::BITS | u64::from(within);
        true
    }

    /// The partitions that are open here, with their epochs.
    pub fn open_epochs(&self) -> Vec<(u32, u64)> {
        let open = self.open();
        let open = open.filter_map(|part| Some((part.at.number(), part.phase.epoch()?)));
        open.collect()
    }

    /// May a record come to have these keys, as far as other nodes go?
    pub(super) fn check_keys(
        &mut self,
        keys: &[Key<'_>],
        id: Option<&[u8]>,
        vouched: Option<Vouched>,
    ) -> Result<(), Refused> {
        let is_alone = id.is_none() && !keys.iter().any(|key| key.unique);
        if self.gate.is_none() || is_alone {
            return Ok(());
        }
        let Some(vouched) = vouched else {
            let mut all = 0..self.parts.len();
            return match all.find(|part| !self.serves(*part)) {
                Some(part) => Err(Refused::NotHere {
                    partition: part as u32,
                }),
                None => Ok(()),
            };
        };
        let Vouched {
            partition,
            epoch,
            beside,
        } = vouched;
        if !self.key_epochs.takes(partition, epoch) {
            return Err(Refused::NotHere { partition });
        }
        match beside.filter(|beside| !self.serves(*beside as usize)) {
            Some(partition) => Err(Refused::NotHere { partition }),
            None => Ok(()),
        }
    }
}

/// A key without the mark of an id.
fn without_mark(key: &[u8]) -> &[u8] {
    match key {
        [ID_MARK, id @ ..] => id,
        key => key,
    }
}
