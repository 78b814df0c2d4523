//! Transactions: compares, and what is done if all of them hold or if one does not.

use bytes::Bytes;

use super::client::EtcdClient;
use super::error::{EtcdDoubt, EtcdError};
use super::keys::{EtcdKeys, EtcdRead, KeyRange};
use super::lease::LeaseId;
use super::messages::{
    CREATE, Compare, DeleteRangeRequest, EQUAL, EtcdCall, MOD, NOT_EQUAL, OpRequest, OpResponse,
    PutRequest, RequestOp, ResponseOp, TxnRequest, VERSION,
};

/// A transaction. etcd does all of one branch in one revision, or nothing.
///
/// A branch has at most 128 operations, and none that changes a key twice.
#[derive(Clone, Debug, Default)]
pub struct Txn(TxnRequest);

/// A number of a key. It is 0 for a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStamp {
    /// The revision that created it.
    Created,
    /// The revision that changed it last.
    Modified,
    /// How often it was put since it was created.
    Version,
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// Sets a key.
    Put {
        /// Which one.
        key: Bytes,
        /// To what.
        value: Bytes,
        /// The lease that it shall end with.
        lease: Option<LeaseId>,
    },
    /// Deletes keys.
    Delete(KeyRange),
    /// Reads keys.
    Read(EtcdRead),
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnReply {
    /// Whether all compares held, so that the first branch was done.
    pub holds: bool,
    /// The newest revision after it. A branch that changes something makes a new one.
    pub revision: i64,
    /// What came of each operation of the branch.
    pub done: Vec<TxnDone>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnDone {
    /// The key is set.
    Put,
    /// This number of keys was deleted.
    Deleted(u64),
    /// What was read.
    Read(EtcdKeys),
}

impl Txn {
    /// Without compares it does its first branch.
    pub fn new() -> Self {
        Self::default()
    }

    /// If the key's number is this one.
    #[must_use]
    pub fn when(self, key: impl Into<Bytes>, stamp: KeyStamp, number: i64) -> Self {
        self.compare(key.into(), stamp, EQUAL, number)
    }

    /// If the key's number is any other.
    #[must_use]
    pub fn when_not(self, key: impl Into<Bytes>, stamp: KeyStamp, number: i64) -> Self {
        self.compare(key.into(), stamp, NOT_EQUAL, number)
    }

    /// Does this if all compares hold.
    #[must_use]
    pub fn then(mut self, op: TxnOp) -> Self {
        self.0.success.push(op.request());
        self
    }

    /// Does this if one compare does not hold.
    #[must_use]
    pub fn otherwise(mut self, op: TxnOp) -> Self {
        self.0.failure.push(op.request());
        self
    }

    fn compare(mut self, key: Bytes, stamp: KeyStamp, result: i32, number: i64) -> Self {
        let mut compare = Compare {
            result,
            key,
            ..Compare::default()
        };
        match stamp {
            KeyStamp::Created => {
                compare.target = CREATE;
                compare.create_revision = Some(number);
            }
            KeyStamp::Modified => {
                compare.target = MOD;
                compare.mod_revision = Some(number);
            }
            KeyStamp::Version => {
                compare.target = VERSION;
                compare.version = Some(number);
            }
        }
        self.0.compare.push(compare);
        self
    }
}

impl TxnOp {
    /// Sets a key that stays until it is deleted.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }

    fn request(self) -> RequestOp {
        let request = match self {
            Self::Put { key, value, lease } => OpRequest::Put(PutRequest {
                key,
                value,
                lease: lease.map_or(0, LeaseId::number),
            }),
            Self::Delete(range) => OpRequest::DeleteRange(DeleteRangeRequest {
                key: range.key,
                range_end: range.end,
            }),
            Self::Read(read) => OpRequest::Range(read.request()),
        };
        RequestOp {
            request: Some(request),
        }
    }
}

impl EtcdClient {
    /// Does a transaction.
    ///
    /// # Errors
    ///
    /// [`Refused`](EtcdError::Refused) if nothing of it was done and nothing will be, and
    /// [`Unknown`](EtcdError::Unknown) if it is not known which branch was done, or whether
    /// any was. Compares that do not hold are no error.
    pub async fn txn(&self, txn: Txn) -> Result<TxnReply, EtcdError> {
        let reply = self.call(txn.0.clone()).await?;
        let revision = self.revision(reply.header.as_ref(), TxnRequest::name())?;
        let asked = match reply.succeeded {
            true => &txn.0.success,
            false => &txn.0.failure,
        };
        let done = match asked.len() == reply.responses.len() {
            true => asked.iter().zip(reply.responses),
            false => return Err(self.unclear()),
        };
        let done = done.map(|(asked, reply)| done_of(asked, reply, revision));
        Ok(TxnReply {
            holds: reply.succeeded,
            revision,
            done: done.collect::<Option<_>>().ok_or_else(|| self.unclear())?,
        })
    }

    fn unclear(&self) -> EtcdError {
        let said = "the reply is not about what was asked";
        self.unknown(EtcdDoubt::Unclear, TxnRequest::name(), said)
    }
}

fn done_of(asked: &RequestOp, reply: ResponseOp, revision: i64) -> Option<TxnDone> {
    match (asked.request.as_ref()?, reply.response?) {
        (OpRequest::Put(_), OpResponse::Put(_)) => Some(TxnDone::Put),
        (OpRequest::DeleteRange(_), OpResponse::DeleteRange(reply)) => {
            Some(TxnDone::Deleted(u64::try_from(reply.deleted).ok()?))
        }
        (OpRequest::Range(_), OpResponse::Range(reply)) => {
            Some(TxnDone::Read(EtcdKeys::of(reply, revision)))
        }
        _ => None,
    }
}
