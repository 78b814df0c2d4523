//! How a process loads a partition: it reads a snapshot and logs, and puts them together.

use rideau_core::cluster::{
    KeyRange, LogBatch, StoreOutcome, StoreReply, StoreRequest, StoreTxn, TxnReply,
};

use crate::bugs::Bug;
use crate::host::{HostedPart, Read};
use crate::register::{Entry, Register};
use crate::world::World;

/// Ids of the reads that a process makes for itself.
pub(crate) const READS: u64 = 1 << 40;

impl World {
    /// Read a partition: its snapshot and its segments, at one revision.
    pub(crate) fn read(&mut self, host: usize, read: Read) {
        let machine = &self.hosts[host].process.as_ref().expect("it runs").machine;
        let keys = machine.keys();
        let mut ranges: Vec<KeyRange> = Vec::new();
        if let Some(snapshot) = read.snapshot {
            ranges.push(keys.chunks(read.partition, snapshot));
        }
        for segment in &read.segments {
            let from = segment.from.unwrap_or(0);
            ranges.push(match segment.to {
                Some(to) => keys.batches(&segment.log, from, to + 1),
                None => keys.batches_from(&segment.log, from),
            });
        }
        let request = StoreRequest::Txn(StoreTxn {
            compares: vec![machine.fence()],
            ..StoreTxn::reading(ranges)
        });
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.next_read += 1;
        let id = process.next_read;
        process.reads.insert(id, read);
        self.ask_etcd(host, id, request);
    }

    pub(crate) fn read_done(
        &mut self,
        host: usize,
        id: u64,
        outcome: StoreOutcome,
    ) -> Result<(), String> {
        let it = &mut self.hosts[host];
        let now = it.local(self.now);
        let wall = it.wall(self.now);
        let process = it.process.as_mut().expect("it runs");
        let Some(read) = process.reads.remove(&id) else {
            return Ok(());
        };
        let StoreOutcome::Done(StoreReply::Txn(reply)) = outcome else {
            self.read(host, read);
            return Ok(());
        };
        if !reply.held {
            // This life is over, as the machine will learn.
            return Ok(());
        }
        let (partition, epoch) = (read.partition, read.epoch);
        // A later ownership may have begun meanwhile, and its own read.
        let record = process.machine.table().owner(partition).record.as_ref();
        if record.is_none_or(|record| record.epoch != epoch) {
            return Ok(());
        }
        let register = loaded(&read, &reply, self.bug)?;
        // A node that was paused may get what was true before it lost the partition. It is
        // not sure of its lease then, and serves nothing.
        if process.machine.is_sure(now) {
            self.oracle.loaded(partition, &register)?;
        }
        let clock = if register.number == 0 || self.bug == Some(Bug::EndsByWall) {
            wall
        } else {
            register.clock
        };
        let part = HostedPart {
            appended: register.number,
            written: register.number,
            load: id,
            snapshot: None,
            register,
            epoch,
            counter: 0,
            clock: (clock, now),
            uncommitted: Default::default(),
            spent: false,
        };
        process.parts.insert(partition, part);
        self.step(host, |machine, now, effects| {
            machine.loaded(partition, epoch, now, effects);
        })
    }
}

/// The state of a partition from what was read.
fn loaded(read: &Read, reply: &TxnReply, bug: Option<Bug>) -> Result<Register, String> {
    let mut reads = reply.reads.iter();
    let mut register = Register::default();
    if let Some(snapshot) = read.snapshot {
        let chunks = reads.next().expect("every range is read");
        if chunks.len() != snapshot.chunks as usize {
            return Err(format!(
                "G4: snapshot {snapshot} has {} pieces",
                chunks.len()
            ));
        }
        register = Register::decode(chunks.iter().map(|chunk| &chunk.value[..]));
    }
    for (segment, batches) in read.segments.iter().zip(reads) {
        for kept in batches {
            let batch = LogBatch::decode(&kept.value).map_err(|_| "a batch is damaged")?;
            let counts = |epoch| epoch == segment.epoch || bug == Some(Bug::SectionsOfAnyEpoch);
            for section in batch.sections() {
                if section.partition == read.partition && counts(section.epoch) {
                    for entry in Entry::decode_all(&section.entries) {
                        register
                            .replay(&entry)
                            .map_err(|why| format!("G4: {why}"))?;
                    }
                }
            }
        }
    }
    Ok(register)
}
