//! A model of etcd in memory, as far as a cluster of nodes relies on it.
//!
//! It has revisions, transactions, leases by its own clock, watches by whole revisions,
//! compaction and a quota. Time is an argument and nothing is lost or late here: what
//! carries requests to the model decides that. So one model serves a simulation with
//! faults and a comparison with a real etcd.

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
    /// An empty etcd with room for so many bytes.
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
        self.check_puts(ops)?;
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

    /// Whether the puts among these can be done: leases are there, and there is room.
    fn check_puts(&mut self, ops: &[StoreOp]) -> Result<(), StoreRefusal> {
        let mut added = 0;
        for op in ops {
            if let StoreOp::Put { key, value, lease } = op {
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(StoreRefusal::NoLease);
                }
                added += key.len() + value.len();
            }
        }
        if added > 0 && (self.alarm || self.used + added > self.quota) {
            self.alarm = true;
            return Err(StoreRefusal::NoSpace);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn put(key: &str, lease: Option<u64>) -> StoreOp {
        StoreOp::Put {
            key: key.to_owned(),
            value: b"x".to_vec(),
            lease,
        }
    }

    fn txn(etcd: &mut EtcdModel, compares: &[(&str, Holds)], then: Vec<StoreOp>) -> StoreOutcome {
        let compares = compares.iter().map(|(key, holds)| Compare {
            key: (*key).to_owned(),
            holds: *holds,
        });
        let txn = StoreTxn {
            compares: compares.collect(),
            then,
            otherwise: Vec::new(),
        };
        etcd.call(&StoreRequest::Txn(txn), at(0))
    }

    fn held(outcome: &StoreOutcome) -> bool {
        matches!(
            outcome,
            StoreOutcome::Done(StoreReply::Txn(TxnReply { held: true, .. }))
        )
    }

    fn granted(etcd: &mut EtcdModel, secs: u64, now: Instant) -> u64 {
        let ttl = Duration::from_secs(secs);
        match etcd.call(&StoreRequest::GrantLease { ttl }, now) {
            StoreOutcome::Done(StoreReply::Granted { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_knows_when_it_was_created_and_how_often_it_was_put() {
        let mut etcd = EtcdModel::default();
        txn(&mut etcd, &[], vec![put("a", None)]);
        txn(&mut etcd, &[], vec![put("a", None), put("b", None)]);
        let a = etcd.key("a").unwrap();
        assert_eq!((a.created, a.changed, a.version), (2, 3, 2));
        let b = etcd.key("b").unwrap();
        assert_eq!((b.created, b.changed, b.version), (3, 3, 1));
        txn(&mut etcd, &[], vec![StoreOp::Delete(KeyRange::one("a"))]);
        txn(&mut etcd, &[], vec![put("a", None)]);
        let a = etcd.key("a").unwrap();
        assert_eq!((a.created, a.version), (5, 1));
        // Nothing to delete: no revision.
        txn(&mut etcd, &[], vec![StoreOp::Delete(KeyRange::one("none"))]);
        assert_eq!(etcd.revision(), 5);
    }

    #[test]
    fn compares_decide_and_a_missing_key_is_zero() {
        let mut etcd = EtcdModel::default();
        assert!(held(&txn(
            &mut etcd,
            &[("a", Holds::Version(0))],
            vec![put("a", None)]
        )));
        assert!(!held(&txn(
            &mut etcd,
            &[("a", Holds::Version(0))],
            vec![put("a", None)]
        )));
        assert!(held(&txn(&mut etcd, &[("a", Holds::CreatedAt(2))], vec![])));
        assert!(held(&txn(&mut etcd, &[("a", Holds::ChangedAt(2))], vec![])));
        assert!(!held(&txn(
            &mut etcd,
            &[("a", Holds::NotCreatedAt(2))],
            vec![]
        )));
        assert!(held(&txn(
            &mut etcd,
            &[("b", Holds::NotCreatedAt(2))],
            vec![]
        )));
    }

    #[test]
    fn a_range_that_ends_before_its_beginning_has_no_keys() {
        let mut etcd = EtcdModel::default();
        let none = KeyRange {
            from: "b".to_owned(),
            to: "a".to_owned(),
        };
        let ops = vec![
            put("a", None),
            put("b", None),
            StoreOp::Delete(none.clone()),
        ];
        assert!(held(&txn(&mut etcd, &[], ops)));
        assert_eq!(etcd.range(&none).count(), 0);
        assert_eq!(etcd.range(&KeyRange::prefix("b")).count(), 1);
    }

    #[test]
    fn keys_of_a_lease_go_in_one_revision_and_never_early() {
        let mut etcd = EtcdModel::default();
        let lease = granted(&mut etcd, 1, at(0));
        txn(&mut etcd, &[], vec![put("a", Some(lease))]);
        txn(&mut etcd, &[], vec![put("b", Some(lease))]);
        etcd.expire(at(1_999));
        assert_eq!(etcd.keep_alive(lease, at(1_999)), TTL_MIN);
        etcd.expire(at(3_998));
        assert!(etcd.key("a").is_some());
        etcd.expire(at(3_999));
        let gone = ["a", "b"].map(|key| KeyChange::Deleted(key.to_owned()));
        let all = [KeyRange::prefix("a"), KeyRange::prefix("b")];
        assert_eq!(etcd.changes(4, &all).unwrap(), [(4, gone.to_vec())]);
        assert_eq!(etcd.keep_alive(lease, at(4_000)), Duration::ZERO);
        let refused = txn(&mut etcd, &[], vec![put("c", None), put("a", Some(lease))]);
        assert_eq!(refused, StoreOutcome::Refused(StoreRefusal::NoLease));
        assert!(etcd.key("c").is_none(), "all or nothing");
    }

    #[test]
    fn a_lease_lasts_for_whole_seconds_and_no_less_than_asked() {
        let mut etcd = EtcdModel::default();
        for (asked, given) in [(0, 2), (1_000, 2), (2_000, 2), (2_001, 3), (5_000, 5)] {
            let ttl = Duration::from_millis(asked);
            let lease = etcd.call(&StoreRequest::GrantLease { ttl }, at(0));
            let StoreOutcome::Done(StoreReply::Granted { ttl, .. }) = lease else {
                panic!("{lease:?}");
            };
            assert_eq!(ttl, Duration::from_secs(given), "{asked} ms");
        }
    }

    #[test]
    fn an_election_gives_leases_their_whole_length_again() {
        let mut etcd = EtcdModel::default();
        let lease = granted(&mut etcd, 5, at(0));
        etcd.elect(at(13_000));
        etcd.expire(at(17_999));
        assert_eq!(etcd.keep_alive(lease, at(17_999)), Duration::from_secs(5));
    }

    #[test]
    fn limits_are_those_of_etcd() {
        let mut etcd = EtcdModel::default();
        let puts = |count: usize| (0..count).map(|at| put(&format!("k{at}"), None)).collect();
        assert!(held(&txn(&mut etcd, &[], puts(128))));
        let refused = StoreOutcome::Refused(StoreRefusal::TooMany);
        assert_eq!(txn(&mut etcd, &[], puts(129)), refused);
        assert_eq!(
            txn(&mut etcd, &[("a", Holds::Version(0)); 200], vec![]),
            refused
        );
        let twice = txn(&mut etcd, &[], vec![put("a", None), put("a", None)]);
        assert_eq!(twice, StoreOutcome::Refused(StoreRefusal::KeyTwice));
        let mut large = |kib: usize, keys: [&str; 2]| {
            let ops = keys.map(|key| StoreOp::Put {
                key: key.to_owned(),
                value: vec![b'x'; kib * 512],
                lease: None,
            });
            txn(&mut etcd, &[], ops.into())
        };
        assert!(held(&large(1_500, ["a", "b"])));
        for (kib, keys, refusal) in [
            (1_600, ["a", "b"], StoreRefusal::TooLarge),
            (1_600, ["a", "a"], StoreRefusal::KeyTwice),
            (2_200, ["a", "a"], StoreRefusal::TooLarge),
        ] {
            assert_eq!(large(kib, keys), StoreOutcome::Refused(refusal), "{kib}");
        }
    }

    #[test]
    fn a_watch_from_a_compacted_revision_is_told_so() {
        let mut etcd = EtcdModel::default();
        for _ in 0..5 {
            txn(&mut etcd, &[], vec![put("a", None)]);
        }
        let all = [KeyRange::prefix("a")];
        etcd.call(&StoreRequest::Compact { revision: 4 }, at(0));
        assert_eq!(etcd.changes(3, &all), Err(4));
        assert_eq!(etcd.changes(4, &all).unwrap().len(), 3);
        for revision in [3, 4, 7] {
            let again = etcd.call(&StoreRequest::Compact { revision }, at(0));
            assert_eq!(again, StoreOutcome::Refused(StoreRefusal::Compacted));
        }
    }

    #[test]
    fn a_watch_from_the_compacted_revision_misses_its_deletions() {
        let mut etcd = EtcdModel::default();
        txn(&mut etcd, &[], vec![put("a", None)]);
        let ops = vec![StoreOp::Delete(KeyRange::one("a")), put("ab", None)];
        txn(&mut etcd, &[], ops);
        let all = [KeyRange::prefix("a")];
        assert_eq!(etcd.changes(3, &all).unwrap()[0].1.len(), 2);
        etcd.call(&StoreRequest::Compact { revision: 3 }, at(0));
        let left = etcd.key("ab").unwrap().clone();
        assert_eq!(
            etcd.changes(3, &all).unwrap(),
            [(3, vec![KeyChange::Put(left)])]
        );
    }

    #[test]
    fn a_full_etcd_deletes_and_keeps_alive_but_puts_and_grants_nothing() {
        let mut etcd = EtcdModel::new(4);
        let lease = granted(&mut etcd, 5, at(0));
        assert!(held(&txn(
            &mut etcd,
            &[],
            vec![put("a", None), put("b", None)]
        )));
        let full = StoreOutcome::Refused(StoreRefusal::NoSpace);
        assert_eq!(txn(&mut etcd, &[], vec![put("c", None)]), full);
        let ttl = Duration::from_secs(5);
        assert_eq!(etcd.call(&StoreRequest::GrantLease { ttl }, at(0)), full);
        assert_eq!(etcd.keep_alive(lease, at(0)), ttl);
        assert!(held(&txn(
            &mut etcd,
            &[],
            vec![StoreOp::Delete(KeyRange::one("a"))]
        )));
        assert_eq!(
            txn(&mut etcd, &[], vec![put("c", None)]),
            full,
            "the alarm stays"
        );
        etcd.disarm();
        assert!(held(&txn(&mut etcd, &[], vec![put("c", None)])));
    }
}
