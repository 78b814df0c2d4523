//! What a node of a cluster asks of etcd, carried out with a client.
//!
//! The core has requests, outcomes and changes of its own. Its keys are text, so a key that
//! is no text is not one of a cluster, and is left out of what is read and watched.

use rideau_core::cluster::{
    self, Holds, KeyValue, StoreOp, StoreOutcome, StoreRefusal, StoreReply, StoreRequest, StoreTxn,
};

use super::client::EtcdClient;
use super::error::{EtcdError, EtcdRefusal};
use super::keys::{EtcdKey, EtcdRead, KeyRange};
use super::lease::LeaseId;
use super::txn::{KeyStamp, Txn, TxnDone, TxnOp, TxnReply};
use super::watch::{EtcdWatch, KeyChange, Watched};

/// The least key.
const LEAST: &str = "\0";

impl EtcdClient {
    /// Carries out what a node asks, once.
    ///
    /// What the core has no refusal for is [`Unknown`](StoreOutcome::Unknown) to it, as is
    /// everything that etcd may have done: also a request that etcd says it has no space
    /// for, and one that was not sent because no endpoint was reached.
    pub async fn carry_out(&self, request: StoreRequest) -> StoreOutcome {
        let done = match request {
            StoreRequest::GrantLease { ttl } => {
                let granted = self.grant_lease(ttl).await;
                granted.map(|lease| StoreReply::Granted {
                    lease: lease.id.to_core(),
                    ttl: lease.ttl,
                })
            }
            StoreRequest::RevokeLease { lease } => match LeaseId::from_core(lease) {
                Some(id) => self.revoke_lease(id).await.map(|()| StoreReply::Ok),
                None => return StoreOutcome::Refused(StoreRefusal::NoLease),
            },
            StoreRequest::Txn(asked) => return self.carry_out_txn(asked).await,
            StoreRequest::Compact { revision } => {
                let compacted = self.compact(to_etcd(revision)).await;
                compacted.map(|()| StoreReply::Ok)
            }
        };
        match done {
            Ok(reply) => StoreOutcome::Done(reply),
            Err(error) => outcome(&error),
        }
    }

    /// Watches a range of keys of the core from a revision on, that one included. There is
    /// nothing to watch in a range without keys.
    pub fn watch_core(&self, range: &cluster::KeyRange, from: u64) -> Option<EtcdWatch> {
        Some(self.watch(key_range(range)?, to_etcd(from)))
    }

    async fn carry_out_txn(&self, asked: StoreTxn) -> StoreOutcome {
        let (Some(then), Some(otherwise)) = (Branch::of(asked.then), Branch::of(asked.otherwise))
        else {
            return StoreOutcome::Refused(StoreRefusal::NoLease);
        };
        let mut txn = Txn::new();
        for cluster::Compare { key, holds } in asked.compares {
            txn = match holds {
                Holds::CreatedAt(revision) => txn.when(key, KeyStamp::Created, to_etcd(revision)),
                Holds::NotCreatedAt(revision) => {
                    txn.when_not(key, KeyStamp::Created, to_etcd(revision))
                }
                Holds::ChangedAt(revision) => txn.when(key, KeyStamp::Modified, to_etcd(revision)),
                Holds::Version(version) => txn.when(key, KeyStamp::Version, to_etcd(version)),
            };
        }
        let txn = then.sent.into_iter().fold(txn, Txn::then);
        let txn = otherwise.sent.into_iter().fold(txn, Txn::otherwise);
        let reply = match self.txn(txn).await {
            Ok(reply) => reply,
            Err(error) => return outcome(&error),
        };
        let reads = if reply.holds {
            then.reads
        } else {
            otherwise.reads
        };
        match txn_reply(reply, reads) {
            Some(reply) => StoreOutcome::Done(StoreReply::Txn(reply)),
            None => StoreOutcome::Unknown,
        }
    }
}

impl Watched {
    /// A revision with its changes as the core has them, if this is one. A change without
    /// text for its key is left out.
    pub fn to_core(&self) -> Option<(u64, Vec<cluster::KeyChange>)> {
        let Self::Changed { revision, changes } = self else {
            return None;
        };
        let changes = changes.iter().filter_map(|change| match change {
            KeyChange::Put(key) => key_value(key).map(cluster::KeyChange::Put),
            KeyChange::Deleted(key) => text(key).map(cluster::KeyChange::Deleted),
        });
        Some((to_core(*revision)?, changes.collect()))
    }
}

/// One list of operations on its way.
struct Branch {
    sent: Vec<TxnOp>,
    /// For each read of the list, whether it is sent. What is not sent has no keys.
    reads: Vec<bool>,
}

impl Branch {
    /// None if an operation names a lease that cannot be.
    fn of(ops: Vec<StoreOp>) -> Option<Self> {
        let (mut sent, mut reads) = (Vec::with_capacity(ops.len()), Vec::new());
        for op in ops {
            match op {
                StoreOp::Put { key, value, lease } => sent.push(TxnOp::Put {
                    key: key.into(),
                    value: value.into(),
                    lease: match lease {
                        Some(lease) => Some(LeaseId::from_core(lease)?),
                        None => None,
                    },
                }),
                StoreOp::Read(range) => {
                    let range = key_range(&range);
                    reads.push(range.is_some());
                    sent.extend(range.map(|range| TxnOp::Read(EtcdRead::newest(range))));
                }
                StoreOp::Delete(range) => sent.extend(key_range(&range).map(TxnOp::Delete)),
            }
        }
        Some(Self { sent, reads })
    }
}

/// None if the numbers of the reply make no sense.
fn txn_reply(reply: TxnReply, reads: Vec<bool>) -> Option<cluster::TxnReply> {
    let mut found = reply.done.into_iter().filter_map(|done| match done {
        TxnDone::Read(found) => Some(found.keys),
        TxnDone::Put | TxnDone::Deleted(_) => None,
    });
    let reads = reads.into_iter().map(|is_sent| {
        let keys = if is_sent { found.next()? } else { Vec::new() };
        let keys = keys.iter().filter(|key| text(key).is_some());
        keys.map(key_value).collect::<Option<Vec<_>>>()
    });
    Some(cluster::TxnReply {
        held: reply.holds,
        revision: to_core(reply.revision)?,
        reads: reads.collect::<Option<_>>()?,
    })
}

fn outcome(error: &EtcdError) -> StoreOutcome {
    let refusal = match error.refusal() {
        Some(EtcdRefusal::LeaseNotFound) => StoreRefusal::NoLease,
        Some(EtcdRefusal::TooMany) => StoreRefusal::TooMany,
        Some(EtcdRefusal::TooLarge) => StoreRefusal::TooLarge,
        Some(EtcdRefusal::KeyTwice) => StoreRefusal::KeyTwice,
        Some(EtcdRefusal::Compacted | EtcdRefusal::Future) => StoreRefusal::Compacted,
        _ => {
            tracing::debug!(%error, "a request of a node has no certain outcome");
            return StoreOutcome::Unknown;
        }
    };
    StoreOutcome::Refused(refusal)
}

/// None if no key can be in it: etcd takes such a range for another.
fn key_range(range: &cluster::KeyRange) -> Option<KeyRange> {
    // A key has at least one byte, and etcd takes no other for the first of a range.
    let from = range.from.as_str().max(LEAST);
    let to = range.to.as_str();
    (from < to).then(|| KeyRange::between(from.to_owned(), to.to_owned()))
}

fn key_value(key: &EtcdKey) -> Option<KeyValue> {
    Some(KeyValue {
        key: text(key)?,
        value: key.value.to_vec(),
        created: to_core(key.created)?,
        changed: to_core(key.modified)?,
        version: to_core(key.version)?,
        lease: key.lease.map(LeaseId::to_core),
    })
}

fn text(key: &EtcdKey) -> Option<String> {
    String::from_utf8(key.key.to_vec()).ok()
}

fn to_core(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

/// No revision or version of etcd is as large as the largest.
fn to_etcd(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rideau_core::cluster;

    use super::key_range;
    use crate::store::etcd::KeyRange;

    #[test]
    fn a_range_of_the_core_is_the_same_range_of_etcd_or_none() {
        let range = |from: &str, to: &str| {
            key_range(&cluster::KeyRange {
                from: from.to_owned(),
                to: to.to_owned(),
            })
        };
        let same = [("a", "b"), ("a", "a\0"), ("a/", "a0"), ("\0", "a")];
        for (from, to) in same {
            assert_eq!(range(from, to), Some(KeyRange::between(from, to)));
        }
        assert_eq!(range("", "a"), Some(KeyRange::between("\0", "a")));
        for (from, to) in [
            ("", ""),
            ("", "\0"),
            ("\0", "\0"),
            ("a", "a"),
            ("b", "a"),
            ("a", ""),
        ] {
            assert_eq!(range(from, to), None, "{from:?} {to:?}");
        }
    }
}
