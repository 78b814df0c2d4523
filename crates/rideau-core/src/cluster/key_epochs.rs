//! Which ownerships of keys a node with values takes the word of.
//!
//! A report of keys is also the promise to take no word of older ownerships of their
//! partition any more. So a former owner that goes on cannot give a key again.

use super::planted::planted;

/// The ownerships that keys may be given out in.
#[derive(Clone, Debug, Default)]
pub struct KeyEpochs {
    /// Older ones than these do not count any more, by partition.
    promised: Vec<u64>,
    /// A bug that a test has to find.
    #[cfg(feature = "planted")]
    pub planted: Option<super::Planted>,
}

impl KeyEpochs {
    /// Take no word of an older ownership of this partition any more.
    pub fn promise(&mut self, partition: u32, epoch: u64) {
        let at = partition as usize;
        if self.promised.len() <= at {
            self.promised.resize(at + 1, 0);
        }
        let promised = &mut self.promised[at];
        *promised = epoch.max(*promised);
    }

    /// Whether the word of an ownership counts. `known` is the newest that this node has
    /// seen.
    pub fn takes(&self, partition: u32, epoch: u64, known: u64) -> bool {
        let promised = self.promised.get(partition as usize).copied();
        let newest = known.max(promised.unwrap_or(0));
        epoch >= newest || planted!(self, OldKeyEpoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_ownership_than_promised_or_known_does_not_count() {
        let mut epochs = KeyEpochs::default();
        assert!(epochs.takes(3, 1, 0));
        assert!(!epochs.takes(3, 1, 2));
        epochs.promise(3, 5);
        epochs.promise(3, 4);
        assert!(!epochs.takes(3, 4, 0) && epochs.takes(3, 5, 0));
        assert!(epochs.takes(2, 1, 0), "of another partition");
    }
}
