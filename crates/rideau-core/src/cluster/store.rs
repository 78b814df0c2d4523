//! Requests to etcd and their answers, as values.
//!
//! The machine makes requests, the shell carries them to etcd. Tests carry the same
//! requests to a model of etcd. Keys are text; the bytes of a value belong to the asker.

use std::time::Duration;

/// One call. Reads are transactions without compares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreRequest {
    /// A lease of this length.
    GrantLease {
        /// How long it lasts after each keepalive.
        ttl: Duration,
    },
    /// The end of a lease and of all its keys.
    RevokeLease {
        /// Which one.
        lease: u64,
    },
    /// All or nothing.
    Txn(StoreTxn),
    /// No revision before this one is needed any more.
    Compact {
        /// The first revision that stays.
        revision: u64,
    },
}

/// If all compares hold, the first list of operations, else the second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreTxn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// Operations if all conditions hold.
    pub then: Vec<StoreOp>,
    /// Operations otherwise.
    pub otherwise: Vec<StoreOp>,
}

/// Something that may be true of a key. A key that is not there has zero everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// Of which key.
    pub key: String,
    /// What.
    pub holds: Holds,
}

/// A condition on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// The key was created at this revision.
    CreatedAt(u64),
    /// The key was not created at this revision.
    NotCreatedAt(u64),
    /// The key was last changed at this revision.
    ChangedAt(u64),
    /// The key was put this many times since it was created.
    Version(u64),
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreOp {
    /// A key gets a value.
    Put {
        /// Which key.
        key: String,
        /// Its value from now on.
        value: Vec<u8>,
        /// The key ends with this lease.
        lease: Option<u64>,
    },
    /// Keys with their values.
    Read(KeyRange),
    /// Keys are removed.
    Delete(KeyRange),
}

/// Keys in a row, by the order of their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first.
    pub from: String,
    /// Behind the last.
    pub to: String,
}

/// A key as etcd has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision at which it was created.
    pub created: u64,
    /// The revision at which it was last put.
    pub changed: u64,
    /// How many times it was put since it was created.
    pub version: u64,
    /// The lease that it ends with.
    pub lease: Option<u64>,
}

/// A change of a key at a revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyChange {
    /// It has this value now.
    Put(KeyValue),
    /// It is gone.
    Deleted(String),
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreOutcome {
    /// etcd answered.
    Done(StoreReply),
    /// etcd answered that it did nothing, and why.
    Refused(StoreRefusal),
    /// No answer came in time. The request may be carried out, now or later, or never.
    Unknown,
}

/// An answer of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreReply {
    /// Here is a lease.
    Granted {
        /// Its number.
        lease: u64,
        /// How long it lasts.
        ttl: Duration,
    },
    /// The lease is gone, or compaction is done.
    Ok,
    /// The result of a transaction.
    Txn(TxnReply),
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnReply {
    /// All compares held.
    pub held: bool,
    /// The revision of etcd then.
    pub revision: u64,
    /// The keys that were read, for each read of the list that was executed.
    pub reads: Vec<Vec<KeyValue>>,
}

/// Why etcd did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreRefusal {
    /// There is no such lease.
    NoLease,
    /// There are too many compares or operations.
    TooMany,
    /// A value or the request is too large.
    TooLarge,
    /// The transaction writes a key twice.
    KeyTwice,
    /// The quota is reached.
    NoSpace,
    /// The revision was compacted, or does not exist yet.
    Compacted,
}

impl KeyRange {
    /// One key alone.
    pub fn one(key: &str) -> Self {
        Self {
            from: key.to_owned(),
            to: format!("{key}\0"),
        }
    }

    /// All keys that begin so. The prefix must not be empty and end in ASCII.
    pub fn prefix(prefix: &str) -> Self {
        let mut to = prefix.to_owned();
        let last = to.pop().map_or(0, |last| last as u8);
        to.push(char::from((last + 1).min(0x7f)));
        Self {
            from: prefix.to_owned(),
            to,
        }
    }

    /// Whether a key is one of them.
    pub fn contains(&self, key: &str) -> bool {
        (self.from.as_str()..self.to.as_str()).contains(&key)
    }
}

impl StoreTxn {
    /// A transaction that only reads, at one revision.
    pub fn reading(ranges: Vec<KeyRange>) -> Self {
        Self {
            then: ranges.into_iter().map(StoreOp::Read).collect(),
            ..Self::default()
        }
    }
}

impl Compare {
    /// The key was created at this revision: what fences the writes of one life of a node.
    pub(super) const fn created_at(key: String, revision: u64) -> Self {
        Self {
            key,
            holds: Holds::CreatedAt(revision),
        }
    }

    /// The record was seen as it was last changed at this revision.
    pub(super) const fn changed_at(key: String, revision: u64) -> Self {
        Self {
            key,
            holds: Holds::ChangedAt(revision),
        }
    }
}

impl StoreOutcome {
    /// Whether a transaction did what it was for.
    pub(super) const fn is_held(&self) -> bool {
        matches!(
            self,
            Self::Done(StoreReply::Txn(TxnReply { held: true, .. }))
        )
    }
}
