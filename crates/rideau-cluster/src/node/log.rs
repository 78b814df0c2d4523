//! The log of a node as its host writes to it.

use std::sync::Arc;
use std::sync::mpsc::channel;

use rideau::store::{OwnedSection, PartitionLog, PartitionsLost};
use rideau_core::cluster::LogSection;
use tokio::sync::mpsc;

use super::boot_clock;
use super::input::Input;
use super::options::NodeOptions;
use super::shared::NodeShared;

/// The overhead of a section in a batch.
const SECTION_HEAD: usize = 24;

/// Sends what the host says to the node's thread.
#[derive(Debug)]
pub(super) struct NodeLog {
    inbox: mpsc::UnboundedSender<Input>,
    shared: Arc<NodeShared>,
    len_max: usize,
}

impl NodeLog {
    pub(super) fn new(
        inbox: mpsc::UnboundedSender<Input>,
        shared: Arc<NodeShared>,
        options: &NodeOptions,
    ) -> Self {
        let heads = SECTION_HEAD * options.partitions.count() as usize;
        let batch_max = options.core().batch_max;
        Self {
            inbox,
            shared,
            len_max: batch_max.saturating_sub(heads),
        }
    }

    /// A node that has ended needs to know nothing.
    fn tell(&self, input: Input) {
        let _ = self.inbox.send(input);
    }
}

impl PartitionLog for NodeLog {
    fn serves(&self, partition: u32) -> Option<u64> {
        self.shared.serving.serves(partition)
    }

    fn newest(&self, partition: u32) -> u64 {
        let table = self.shared.table.read();
        let record = table.owners.owner(partition).record.as_ref();
        record.map_or(0, |record| record.epoch)
    }

    fn append(&self, sections: &[OwnedSection<'_>]) -> Result<(), PartitionsLost> {
        let (reply, answer) = channel();
        let owned = sections.iter().map(|section| LogSection {
            partition: section.partition,
            epoch: section.epoch,
            entries: section.bytes.to_vec(),
        });
        self.tell(Input::Append {
            sections: owned.collect(),
            reply,
            since: boot_clock::now(),
        });
        // Without an answer the node has ended.
        answer.recv().unwrap_or_else(|_| {
            let partitions = sections.iter().map(|section| section.partition);
            Err(PartitionsLost {
                partitions: partitions.collect(),
            })
        })
    }

    fn append_len_max(&self) -> usize {
        self.len_max
    }

    fn closed(&self, partition: u32, epoch: u64) {
        self.tell(Input::Closed { partition, epoch });
    }

    fn spent(&self, partition: u32, epoch: u64) {
        self.tell(Input::Spent { partition, epoch });
    }

    fn snapshot_begun(&self, partition: u32, epoch: u64) {
        self.tell(Input::SnapshotBegun { partition, epoch });
    }

    fn snapshotted(&self, partition: u32, epoch: u64, chunks: Vec<Vec<u8>>) {
        self.tell(Input::Snapshotted {
            partition,
            epoch,
            chunks,
        });
    }
}
