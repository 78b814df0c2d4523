//! A model of etcd in memory, as far as a cluster of nodes relies on it.
//!
//! It has revisions, transactions, leases by its own clock, watches by whole revisions,
//! compaction and a quota. Time is an argument and nothing is lost or late here: what
//! carries requests to the model decides that. So one model serves a simulation with
//! faults and a comparison with a real etcd.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::cluster::{
    Compare, Holds, KeyChange, KeyRange, KeyValue, StoreOp, StoreOutcome, StoreRefusal, StoreReply,
    StoreRequest, StoreTxn, TxnReply,
};

/// The most compares of a transaction, and the most operations of each of its lists.
pub const OPS_MAX: usize = 128;
/// The most bytes of a request.
pub const REQUEST_MAX: usize = 1_536 * 1_024;
/// The most bytes of a request that is looked at.
pub const MESSAGE_MAX: usize = 2_048 * 1_024;
/// The shortest lease.
pub const TTL_MIN: Duration = Duration::from_secs(2);

/// One etcd, of one member or of several that agree.
#[derive(Clone, Debug)]
pub struct EtcdModel {
    revision: u64,
    keys: BTreeMap<String, KeyValue>,
    leases: BTreeMap<u64, ModelLease>,
    /// What changed at each revision that is not compacted.
    history: BTreeMap<u64, Vec<KeyChange>>,
    /// What was before this revision is forgotten. It can still be watched from.
    compacted: u64,
    next_lease: u64,
    /// How many bytes of keys and values there may be.
    quota: usize,
    used: usize,
    /// Set when the quota was exceeded, until it is disarmed.
    alarm: bool,
}

#[derive(Clone, Debug)]
struct ModelLease {
    ttl: Duration,
    until: Instant,
    keys: BTreeSet<String>,
}

impl Default for EtcdModel {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl EtcdModel {
    /// An empty etcd with room for this many bytes.
    pub const fn new(quota: usize) -> Self {
        Self {
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            history: BTreeMap::new(),
            compacted: 0,
            next_lease: 1,
            quota,
            used: 0,
            alarm: false,
        }
    }

    /// Carry out a request. What is due by `now` has to be [expired](Self::expire) before.
    pub fn call(&mut self, request: &StoreRequest, now: Instant) -> StoreOutcome {
        let done = match request {
            StoreRequest::GrantLease { ttl } => self.grant(*ttl, now),
            StoreRequest::RevokeLease { lease } => self.revoke(*lease),
            StoreRequest::Txn(txn) => self.txn(txn),
            StoreRequest::Compact { revision } => self.compact(*revision),
        };
        match done {
            Ok(reply) => StoreOutcome::Done(reply),
            // etcd says the same whether it did the request that reached the quota or not.
            Err(StoreRefusal::NoSpace) => StoreOutcome::Unknown,
            Err(why) => StoreOutcome::Refused(why),
        }
    }

    /// Keep a lease alive: its length, or zero if there is no such lease.
    pub fn keep_alive(&mut self, lease: u64, now: Instant) -> Duration {
        match self.leases.get_mut(&lease) {
            Some(kept) => {
                kept.until = now + kept.ttl;
                kept.ttl
            }
            None => Duration::ZERO,
        }
    }

    /// End the leases that have run out, each with all its keys in one revision.
    pub fn expire(&mut self, now: Instant) {
        while let Some((lease, _)) = self.leases.iter().find(|(_, lease)| lease.until <= now) {
            let lease = *lease;
            self.end_lease(lease);
        }
    }

    /// When the next lease runs out, unless it is kept alive.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.until).min()
    }

    /// A new leader, or the process again after its end: every lease has its whole length.
    pub fn elect(&mut self, now: Instant) {
        for lease in self.leases.values_mut() {
            lease.until = now + lease.ttl;
        }
    }

    /// The newest revision.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// What a key has now.
    pub fn key(&self, key: &str) -> Option<&KeyValue> {
        self.keys.get(key)
    }

    /// All keys of a range. One that ends before its beginning has none.
    pub fn range(&self, range: &KeyRange) -> impl Iterator<Item = &KeyValue> {
        let to = range.to.clone().max(range.from.clone());
        let found = self.keys.range(range.from.clone()..to);
        found.map(|(_, kept)| kept)
    }

    /// What happened to the keys of these ranges from a revision on, in order, each
    /// revision whole.
    ///
    /// # Errors
    ///
    /// If changes from there on are compacted: then this is the oldest revision to watch from.
    pub fn changes(
        &self,
        from: u64,
        ranges: &[KeyRange],
    ) -> Result<Vec<(u64, Vec<KeyChange>)>, u64> {
        if from < self.compacted {
            return Err(self.compacted);
        }
        let wanted = |change: &&KeyChange| {
            let key = match change {
                KeyChange::Put(kept) => &kept.key,
                KeyChange::Deleted(key) => key,
            };
            ranges.iter().any(|range| range.contains(key))
        };
        let seen = self.history.range(from..).map(|(revision, changes)| {
            let changes: Vec<_> = changes.iter().filter(wanted).cloned().collect();
            (*revision, changes)
        });
        Ok(seen.filter(|(_, changes)| !changes.is_empty()).collect())
    }

    /// Lift the alarm of the quota. It comes back at once if there is still no room.
    pub const fn disarm(&mut self) {
        self.alarm = self.used > self.quota;
    }

    fn grant(&mut self, ttl: Duration, now: Instant) -> Result<StoreReply, StoreRefusal> {
        if self.alarm {
            return Err(StoreRefusal::NoSpace);
        }
        let lease = self.next_lease;
        self.next_lease += 1;
        // etcd counts whole seconds. A client asks for the next one.
        let part = u64::from(ttl.subsec_nanos() > 0);
        let ttl = Duration::from_secs(ttl.as_secs() + part).max(TTL_MIN);
        self.leases.insert(
            lease,
            ModelLease {
                ttl,
                until: now + ttl,
                keys: BTreeSet::new(),
            },
        );
        Ok(StoreReply::Granted { lease, ttl })
    }

    fn revoke(&mut self, lease: u64) -> Result<StoreReply, StoreRefusal> {
        if !self.leases.contains_key(&lease) {
            return Err(StoreRefusal::NoLease);
        }
        self.end_lease(lease);
        Ok(StoreReply::Ok)
    }

    fn end_lease(&mut self, lease: u64) {
        let Some(ended) = self.leases.remove(&lease) else {
            return;
        };
        let mut changes = Vec::new();
        for key in ended.keys {
            self.remove(&key, &mut changes);
        }
        self.commit(changes);
    }

    fn compact(&mut self, revision: u64) -> Result<StoreReply, StoreRefusal> {
        if revision <= self.compacted || revision > self.revision {
            return Err(StoreRefusal::Compacted);
        }
        self.compacted = revision;
        self.history = self.history.split_off(&revision);
        // A watch from this very revision is not told that keys were deleted at it: etcd
        // forgets that (before 3.4.34 and 3.5.16), soon or late. Here it does so at once.
        if let Some(changes) = self.history.get_mut(&revision) {
            changes.retain(|change| matches!(change, KeyChange::Put(_)));
        }
        Ok(StoreReply::Ok)
    }

    fn txn(&mut self, txn: &StoreTxn) -> Result<StoreReply, StoreRefusal> {
        check(txn)?;
        let held = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if held { &txn.then } else { &txn.otherwise };
        let is_full = self.check_puts(ops)?;
        let revision = self.revision + 1;
        let (mut reads, mut changes) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                StoreOp::Read(range) => reads.push(self.range(range).cloned().collect()),
                StoreOp::Put { key, value, lease } => {
                    let kept = self.put(key, value, *lease, revision);
                    changes.push(KeyChange::Put(kept));
                }
                StoreOp::Delete(range) => {
                    let keys: Vec<_> = self.range(range).map(|kept| kept.key.clone()).collect();
                    for key in keys {
                        self.remove(&key, &mut changes);
                    }
                }
            }
        }
        self.commit(changes);
        if is_full {
            self.alarm = true;
            return Err(StoreRefusal::NoSpace);
        }
        Ok(StoreReply::Txn(TxnReply {
            held,
            revision: self.revision,
            reads,
        }))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let kept = self.keys.get(&compare.key);
        let created = kept.map_or(0, |kept| kept.created);
        match compare.holds {
            Holds::CreatedAt(revision) => created == revision,
            Holds::NotCreatedAt(revision) => created != revision,
            Holds::ChangedAt(revision) => kept.map_or(0, |kept| kept.changed) == revision,
            Holds::Version(version) => kept.map_or(0, |kept| kept.version) == version,
        }
    }

    /// Whether the puts among these can be done: leases are there, and there was room.
    /// Returns whether they take more room than there is: etcd does them and then refuses.
    fn check_puts(&self, ops: &[StoreOp]) -> Result<bool, StoreRefusal> {
        let mut added = 0;
        for op in ops {
            if let StoreOp::Put { key, value, lease } = op {
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(StoreRefusal::NoLease);
                }
                added += key.len() + value.len();
            }
        }
        if added > 0 && self.alarm {
            return Err(StoreRefusal::NoSpace);
        }
        Ok(added > 0 && self.used + added > self.quota)
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<u64>, revision: u64) -> KeyValue {
        let before = self.detach(key);
        let kept = KeyValue {
            key: key.to_owned(),
            value: value.to_vec(),
            created: before.as_ref().map_or(revision, |kept| kept.created),
            changed: revision,
            version: before.as_ref().map_or(0, |kept| kept.version) + 1,
            lease,
        };
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.insert(key.to_owned());
        }
        self.used += key.len() + value.len();
        self.keys.insert(key.to_owned(), kept.clone());
        kept
    }

    fn remove(&mut self, key: &str, changes: &mut Vec<KeyChange>) {
        if self.detach(key).is_some() {
            changes.push(KeyChange::Deleted(key.to_owned()));
        }
    }

    /// Take a key out, and out of its lease.
    fn detach(&mut self, key: &str) -> Option<KeyValue> {
        let kept = self.keys.remove(key)?;
        if let Some(lease) = kept.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.remove(key);
        }
        self.used -= kept.key.len() + kept.value.len();
        Some(kept)
    }

    /// What changed becomes a revision; nothing becomes none.
    fn commit(&mut self, changes: Vec<KeyChange>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.history.insert(self.revision, changes);
        }
    }
}

/// What etcd checks before it looks at any key, in its order.
fn check(txn: &StoreTxn) -> Result<(), StoreRefusal> {
    let len = |op: &StoreOp| match op {
        StoreOp::Put { key, value, .. } => key.len() + value.len(),
        StoreOp::Read(range) | StoreOp::Delete(range) => range.from.len() + range.to.len(),
    };
    let ops = txn.then.iter().chain(&txn.otherwise);
    let compared: usize = txn.compares.iter().map(|compare| compare.key.len()).sum();
    let len = compared + ops.map(len).sum::<usize>();
    if len > MESSAGE_MAX {
        return Err(StoreRefusal::TooLarge);
    }
    let lists = [txn.compares.len(), txn.then.len(), txn.otherwise.len()];
    if lists.into_iter().any(|len| len > OPS_MAX) {
        return Err(StoreRefusal::TooMany);
    }
    for ops in [&txn.then, &txn.otherwise] {
        check_twice(ops)?;
    }
    match len > REQUEST_MAX {
        true => Err(StoreRefusal::TooLarge),
        false => Ok(()),
    }
}

/// No key is put twice, or put and deleted.
fn check_twice(ops: &[StoreOp]) -> Result<(), StoreRefusal> {
    let mut put = BTreeSet::new();
    for op in ops {
        if let StoreOp::Put { key, .. } = op
            && !put.insert(key.as_str())
        {
            return Err(StoreRefusal::KeyTwice);
        }
    }
    for op in ops {
        if let StoreOp::Delete(range) = op
            && put.iter().any(|key| range.contains(key))
        {
            return Err(StoreRefusal::KeyTwice);
        }
    }
    Ok(())
}
