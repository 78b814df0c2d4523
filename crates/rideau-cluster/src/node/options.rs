//! Options of a node, its cluster and etcd.

use std::path::PathBuf;
use std::time::Duration;

use rideau::store::etcd::EtcdOptions;
use rideau_core::cluster::{self, Partitions};

use super::about::NodeAbout;
use super::config::NewConfig;
use super::error::NodeError;

/// One node of a cluster on etcd.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the node, which no other has.
    pub name: String,
    /// Where the node keeps the ids of its lives. No other process uses it.
    pub folder: PathBuf,
    /// Where etcd is.
    pub etcd: EtcdOptions,
    /// The data that it publishes for other nodes and clients.
    pub about: NodeAbout,
    /// How much the node should own beside the others.
    pub weight: u32,
    /// How many partitions there are, and how values are dealt out to them. It counts when
    /// the cluster is made, and has to be the same later.
    pub partitions: Partitions,
    /// How long the node's key outlives its last keepalive: 2 to 60 s.
    pub lease: Duration,
    /// How long an ask waits for an owner at most.
    pub patience: Duration,
    /// What the death of a node frees is left alone for this long.
    pub rest: Duration,
    /// The node owns nothing for this long after it joined.
    pub settle: Duration,
    /// How many bytes etcd takes before it is full, as its `--quota-backend-bytes` says.
    pub room_quota: u64,
    /// How often the owner of partition 0 compacts etcd, to what was the newest revision
    /// this long ago. What no partition needs is deleted after twice as long.
    pub housekeeping: Duration,
    /// The text that all nodes share, if the cluster has none yet.
    pub config: NewConfig,
}

impl NodeOptions {
    /// The quota of an etcd that was not told another.
    pub const ROOM_QUOTA: u64 = 2 << 30;
    /// How often etcd is compacted, unless the options say otherwise.
    pub const HOUSEKEEPING: Duration = Duration::from_secs(300);

    /// The default options for a node with this name.
    pub fn new(cluster: &str, name: &str, folder: impl Into<PathBuf>, etcd: EtcdOptions) -> Self {
        let usual = cluster::Options::new(cluster, name);
        Self {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            folder: folder.into(),
            etcd,
            about: NodeAbout::default(),
            weight: usual.weight,
            partitions: Partitions::new(usual.partitions, 0).expect("it is a power of two"),
            lease: usual.lease,
            patience: usual.patience,
            rest: usual.rest,
            settle: usual.settle,
            room_quota: Self::ROOM_QUOTA,
            housekeeping: Self::HOUSEKEEPING,
            config: NewConfig::default(),
        }
    }

    /// The options of the core's machine.
    pub(super) fn core(&self) -> cluster::Options {
        cluster::Options {
            weight: self.weight,
            about: self.about.to_string(),
            partitions: self.partitions.count(),
            lease: self.lease,
            settle: self.settle,
            patience: self.patience,
            rest: self.rest,
            ..cluster::Options::new(&self.cluster, &self.name)
        }
    }

    /// How long a request to etcd may take: as long as a keepalive.
    pub(super) fn call_timeout(&self) -> Duration {
        self.lease / 5
    }

    pub(super) fn check(&self) -> Result<(), NodeError> {
        check_name("cluster", &self.cluster)?;
        check_name("node", &self.name)?;
        if let Some(bad) = self.about.bad_field() {
            let said = format!("{bad:?} has spaces or more than 255 bytes");
            return Err(NodeError::Options(said));
        }
        let seconds = Duration::from_secs;
        if !(seconds(2)..=seconds(60)).contains(&self.lease) {
            let said = format!("the lease is {:?}, not 2 to 60 s", self.lease);
            return Err(NodeError::Options(said));
        }
        if self.weight == 0 || self.room_quota == 0 || self.housekeeping.is_zero() {
            let said = "weight, quota and housekeeping are above zero";
            return Err(NodeError::Options(said.to_owned()));
        }
        Ok(())
    }
}

/// Names are parts of keys and of records.
fn check_name(what: &str, name: &str) -> Result<(), NodeError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if (1..=255).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let said = format!("the name of the {what}, {name:?}, has 1 to 255 of A-Z a-z 0-9 - . _ :");
    Err(NodeError::Options(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_have_limits() {
        let etcd = EtcdOptions::plain(["http://127.0.0.1:2379"]);
        let options = NodeOptions::new("shop", "n1.example", "/tmp", etcd);
        assert!(options.check().is_ok());
        for name in ["", "a b", "a/b", "a@1", "a,b", &"x".repeat(256)] {
            let mut bad = options.clone();
            name.clone_into(&mut bad.name);
            assert!(bad.check().is_err(), "{name}");
            let mut bad = options.clone();
            name.clone_into(&mut bad.cluster);
            assert!(bad.check().is_err(), "{name}");
        }
        for lease in [1_999, 60_001] {
            let mut bad = options.clone();
            bad.lease = Duration::from_millis(lease);
            assert!(bad.check().is_err(), "{lease}");
        }
    }
}
