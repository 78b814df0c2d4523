//! What must be true of all nodes together, as an observer that knows everything sees it.

use std::collections::{BTreeMap, BTreeSet};

use rideau_core::cluster::{ClusterKeys, Incarnation, KeyChange, KeyRange, LogBatch, OwnerRecord};
use rideau_testing::etcd_model::EtcdModel;

use crate::configs::{CONFIG_KEY, TextHistory};
use crate::register::{Entry, Register};

/// The truth, from what etcd has applied, and what clients were told.
pub(crate) struct Oracle {
    keys: ClusterKeys,
    /// The state of each partition after all that is written.
    pub(crate) truth: Vec<Register>,
    /// The grants that are written, with their values.
    granted: BTreeMap<(u32, u64), u64>,
    /// What clients rely on: partition and value, and then fence and until when.
    relied: BTreeMap<(u32, u64), (u64, u64)>,
    /// Asks without answer.
    pub(crate) open: BTreeSet<u64>,
    /// Every batch that was ever written.
    written: BTreeMap<(Incarnation, u64), Vec<u8>>,
    seen: u64,
    pub(crate) config: TextHistory,
    pub(crate) batches: u64,
    /// Clocks are beyond what keys rest on.
    pub(crate) wild: bool,
}

impl Oracle {
    pub(crate) fn new(keys: ClusterKeys, partitions: u32) -> Self {
        Self {
            keys,
            truth: vec![Register::default(); partitions as usize],
            granted: BTreeMap::new(),
            relied: BTreeMap::new(),
            open: BTreeSet::new(),
            written: BTreeMap::new(),
            seen: 1,
            config: TextHistory::default(),
            batches: 0,
            wild: false,
        }
    }

    /// Look at what etcd has applied since the last look.
    pub(crate) fn look(&mut self, etcd: &EtcdModel, now: u64) -> Result<(), String> {
        if etcd.revision() == self.seen {
            return Ok(());
        }
        let log = KeyRange::prefix("/rideau/sim/log/");
        let changes = etcd
            .changes(self.seen + 1, &[log, KeyRange::one(CONFIG_KEY)])
            .expect("not compacted yet");
        self.seen = etcd.revision();
        for change in changes.iter().flat_map(|(_, changes)| changes) {
            if let KeyChange::Put(kept) = change {
                let Some((log, seq)) = self.keys.as_batch(&kept.key) else {
                    self.config.written(change)?;
                    continue;
                };
                let batch = LogBatch::decode(&kept.value).expect("a batch");
                if self
                    .written
                    .insert((log.clone(), seq), kept.value.clone())
                    .is_some()
                {
                    // A late copy brings back what was trimmed. No record names it any more,
                    // and a node that loads it nevertheless is found out.
                    continue;
                }
                self.batches += 1;
                for section in batch.sections() {
                    let partition = section.partition;
                    let own = etcd.key(&self.keys.owner(partition)).expect("it is owned");
                    let own: OwnerRecord = str::from_utf8(&own.value).unwrap().parse().unwrap();
                    if own.owner != log || own.epoch != section.epoch {
                        return Err(format!(
                            "G4: batch {seq} of {log} has entries of {partition} in epoch {}, \
                             which belongs to {} in epoch {}",
                            section.epoch, own.owner, own.epoch
                        ));
                    }
                    for entry in Entry::decode_all(&section.entries) {
                        self.applied(partition, &entry, now)?;
                    }
                }
                // What one batch frees and what it gives is in no order between partitions.
                self.check_keys()?;
            }
        }
        Ok(())
    }

    fn applied(&mut self, partition: u32, entry: &Entry, now: u64) -> Result<(), String> {
        self.truth[partition as usize]
            .apply(entry)
            .map_err(|why| format!("partition {partition}: {why}"))?;
        let key = (partition, entry.value);
        let Some(hold) = entry.hold else {
            return Ok(());
        };
        self.granted.insert((partition, hold.fence), entry.value);
        match self.relied.get(&key) {
            Some((fence, until)) if *fence != hold.fence && now < *until => Err(format!(
                "G3: value {key:?} is granted as {}, and a client relies on {fence} until {until}",
                hold.fence
            )),
            _ => Ok(()),
        }
    }

    /// G9: a key belongs to one record at most.
    fn check_keys(&self) -> Result<(), String> {
        if self.wild {
            return Ok(());
        }
        let holds = self
            .truth
            .iter()
            .flat_map(|register| register.holds.values());
        let mut keys = BTreeSet::new();
        for hold in holds.filter(|hold| hold.key != 0) {
            if !keys.insert(hold.key) {
                return Err(format!("G9: two records have key {}: {hold:?}", hold.key));
            }
        }
        Ok(())
    }

    /// A client was told that it has a value until then.
    pub(crate) fn told(
        &mut self,
        partition: u32,
        value: u64,
        fence: u64,
        until: u64,
    ) -> Result<(), String> {
        if self.granted.get(&(partition, fence)) != Some(&value) {
            return Err(format!(
                "G4: {value} of {partition} was granted as {fence}, and that is not written"
            ));
        }
        self.relied.insert((partition, value), (fence, until));
        Ok(())
    }

    /// A client gives a value back.
    pub(crate) fn given_back(&mut self, partition: u32, value: u64, fence: u64) {
        let relied = self.relied.get(&(partition, value));
        if relied.is_some_and(|(held, _)| *held == fence) {
            self.relied.remove(&(partition, value));
        }
    }

    /// A node has loaded a partition: it has what is written, all of it and no more.
    pub(crate) fn loaded(&self, partition: u32, found: &Register) -> Result<(), String> {
        let truth = &self.truth[partition as usize];
        if truth == found {
            return Ok(());
        }
        Err(format!(
            "G4: partition {partition} was loaded as {found:?}, and is {truth:?}"
        ))
    }

    /// An ask is answered, or its connection is gone.
    pub(crate) fn answered(&mut self, ask: u64) -> Result<(), String> {
        if self.open.remove(&ask) {
            return Ok(());
        }
        Err(format!("G6: ask {ask} was answered twice"))
    }
}
