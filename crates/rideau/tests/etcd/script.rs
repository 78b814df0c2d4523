//! Calls by chance: what a script asks next, and how it reads.

use std::fmt::Write;
use std::time::Duration;

use rideau_core::Rng;
use rideau_core::cluster::{Compare, Holds, KeyRange, StoreOp, StoreRequest, StoreTxn};
use rideau_testing::etcd_model::EtcdModel;
use rideau_testing::fuzz::{below, is_once_in, one};

/// One call. Revisions and leases are the model's.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Request(StoreRequest),
    KeepAlive { lease: u64 },
    Watch { range: KeyRange, from: u64 },
}

/// What draws the calls of one script.
#[derive(Debug)]
pub(crate) struct Author {
    rng: Rng,
    /// All keys of the script begin so.
    prefix: String,
    /// Leases that were granted, some of them revoked.
    pub(crate) leases: Vec<u64>,
    /// The newest revision that was compacted.
    pub(crate) compacted: u64,
}

const KEYS: [&str; 7] = ["a", "ab", "b", "b/1", "b/2", "b0", "c"];
const KIB: usize = 1_024;
/// A lease that was never granted.
const STRANGER: u64 = 77;

impl Author {
    pub(crate) fn new(seed: u64, prefix: &str) -> Self {
        Self {
            rng: Rng::new(seed),
            prefix: prefix.to_owned(),
            leases: Vec::new(),
            compacted: 0,
        }
    }

    /// How many calls the script has.
    pub(crate) fn calls(&mut self) -> usize {
        1 + below(&mut self.rng, 50)
    }

    /// The next call, for an etcd that is now as the model is.
    pub(crate) fn call(&mut self, model: &EtcdModel) -> Call {
        let request = match below(&mut self.rng, 100) {
            0..3 => return self.watch(model),
            3..8 => {
                let lease = self.lease();
                return Call::KeepAlive { lease };
            }
            8..16 => StoreRequest::GrantLease {
                // It outlives the script on the slowest machine.
                ttl: Duration::from_millis(600_000 + self.rng.below(10_000)),
            },
            16..22 => StoreRequest::RevokeLease {
                lease: self.lease(),
            },
            22..26 => StoreRequest::Compact {
                revision: 1 + self.rng.below(model.revision() + 2),
            },
            _ => StoreRequest::Txn(self.txn(model)),
        };
        Call::Request(request)
    }

    fn watch(&mut self, model: &EtcdModel) -> Call {
        let from = match below(&mut self.rng, 3) {
            0 => model.revision() + 1,
            1 if self.compacted > 1 => self.compacted - 1 + self.rng.below(3),
            _ => 1 + self.rng.below(model.revision() + 3),
        };
        let mut range = self.range();
        if range.from >= range.to {
            range = KeyRange::one(&range.from);
        }
        Call::Watch { range, from }
    }

    fn txn(&mut self, model: &EtcdModel) -> StoreTxn {
        let rng = &mut self.rng;
        if is_once_in(rng, 100) {
            return self.long_txn();
        }
        if is_once_in(rng, 500) {
            return self.large_txn();
        }
        let counts = [3, 5, 3].map(|bound| below(&mut self.rng, bound));
        StoreTxn {
            compares: (0..counts[0]).map(|_| self.compare(model)).collect(),
            then: (0..counts[1]).map(|_| self.op()).collect(),
            otherwise: (0..counts[2]).map(|_| self.op()).collect(),
        }
    }

    /// About as many compares or operations as etcd takes.
    fn long_txn(&mut self) -> StoreTxn {
        let count = 126 + below(&mut self.rng, 5);
        let keys = (0..count).map(|number| format!("{}many/{number}", self.prefix));
        let mut txn = StoreTxn::default();
        match below(&mut self.rng, 4) {
            0 => txn.then = keys.map(|key| put(key, b"")).collect(),
            1 => txn.otherwise = keys.map(|key| put(key, b"")).collect(),
            2 => txn.then = keys.map(|key| StoreOp::Read(KeyRange::one(&key))).collect(),
            _ => {
                let holds = Holds::Version(0);
                txn.compares = keys.map(|key| Compare { key, holds }).collect();
            }
        }
        txn
    }

    /// Less or more than etcd takes, and perhaps a key twice.
    fn large_txn(&mut self) -> StoreTxn {
        let kib = [1_400, 1_600, 2_200][below(&mut self.rng, 3)];
        let count = 1 + below(&mut self.rng, 2);
        let value = vec![b'x'; kib * KIB / count];
        let ops = (0..count).map(|_| put(self.key(), &value)).collect();
        let mut txn = StoreTxn::default();
        match is_once_in(&mut self.rng, 2) {
            true => txn.then = ops,
            false => txn.otherwise = ops,
        }
        txn
    }

    fn compare(&mut self, model: &EtcdModel) -> Compare {
        let key = self.key();
        let kept = model.key(&key);
        let number = |rng: &mut Rng, is: Option<u64>| match below(rng, 4) {
            0 => 0,
            1 => rng.below(model.revision() + 2),
            _ => is.unwrap_or(0),
        };
        let rng = &mut self.rng;
        let holds = match below(rng, 4) {
            0 => Holds::CreatedAt(number(rng, kept.map(|kept| kept.created))),
            1 => Holds::NotCreatedAt(number(rng, kept.map(|kept| kept.created))),
            2 => Holds::ChangedAt(number(rng, kept.map(|kept| kept.changed))),
            _ => Holds::Version(number(rng, kept.map(|kept| kept.version))),
        };
        Compare { key, holds }
    }

    fn op(&mut self) -> StoreOp {
        match below(&mut self.rng, 10) {
            0..3 => StoreOp::Read(self.range()),
            3..5 => StoreOp::Delete(self.range()),
            _ => StoreOp::Put {
                key: self.key(),
                value: vec![b'x'; below(&mut self.rng, 4)],
                lease: match self.leases.is_empty() || is_once_in(&mut self.rng, 2) {
                    true => None,
                    false => Some(self.lease()),
                },
            },
        }
    }

    fn key(&mut self) -> String {
        format!("{}{}", self.prefix, one(&mut self.rng, &KEYS))
    }

    fn range(&mut self) -> KeyRange {
        match below(&mut self.rng, 4) {
            0 => KeyRange::prefix(&self.prefix),
            1 => KeyRange::prefix(&self.key()),
            2 => KeyRange {
                from: self.key(),
                to: self.key(),
            },
            _ => KeyRange::one(&self.key()),
        }
    }

    /// One of the newest leases, mostly.
    fn lease(&mut self) -> u64 {
        if is_once_in(&mut self.rng, 20) {
            return STRANGER;
        }
        let newest = below(&mut self.rng, 3);
        let lease = self.leases.iter().rev().nth(newest);
        lease.or(self.leases.last()).copied().unwrap_or(STRANGER)
    }
}

pub(crate) fn put(key: String, value: &[u8]) -> StoreOp {
    StoreOp::Put {
        key,
        value: value.to_vec(),
        lease: None,
    }
}

/// A call in words.
pub(crate) fn words(call: &Call) -> String {
    match call {
        Call::Request(StoreRequest::GrantLease { ttl }) => format!("grant a lease of {ttl:?}"),
        Call::Request(StoreRequest::RevokeLease { lease }) => format!("revoke lease {lease}"),
        Call::Request(StoreRequest::Compact { revision }) => format!("compact {revision}"),
        Call::Request(StoreRequest::Txn(txn)) => txn_words(txn),
        Call::KeepAlive { lease } => format!("keep lease {lease} alive"),
        Call::Watch { range, from } => format!("watch {} from {from} on", range_words(range)),
    }
}

fn txn_words(txn: &StoreTxn) -> String {
    let mut words = String::new();
    for (at, Compare { key, holds }) in txn.compares.iter().enumerate() {
        let link = if at == 0 { "if" } else { " and" };
        let _ = match holds {
            Holds::CreatedAt(number) => write!(words, "{link} created({key}) = {number}"),
            Holds::NotCreatedAt(number) => write!(words, "{link} created({key}) is not {number}"),
            Holds::ChangedAt(number) => write!(words, "{link} changed({key}) = {number}"),
            Holds::Version(number) => write!(words, "{link} version({key}) = {number}"),
        };
    }
    for (link, ops) in [(" then", &txn.then), (" else", &txn.otherwise)] {
        let ops: Vec<_> = ops.iter().map(op_words).collect();
        let _ = write!(words, "{link} {}", ops.join(", "));
    }
    words.trim().to_owned()
}

fn op_words(op: &StoreOp) -> String {
    match op {
        StoreOp::Put { key, value, lease } => {
            let lease = lease.map_or(String::new(), |lease| format!(" with lease {lease}"));
            format!("put {key} of {} bytes{lease}", value.len())
        }
        StoreOp::Read(range) => format!("read {}", range_words(range)),
        StoreOp::Delete(range) => format!("delete {}", range_words(range)),
    }
}

fn range_words(range: &KeyRange) -> String {
    match *range == KeyRange::one(&range.from) {
        true => range.from.clone(),
        false => format!("{} to {}", range.from, range.to),
    }
}
