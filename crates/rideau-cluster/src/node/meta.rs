//! The parameters of a cluster, which are written once and never changed.

use std::fmt;
use std::str::FromStr;

use rideau::store::etcd::{
    EtcdClient, EtcdError, EtcdRead, KeyRange, KeyStamp, Txn, TxnDone, TxnOp,
};
use rideau_core::cluster::Partitions;

use super::error::NodeError;

/// The newest format of what is stored that this version knows.
pub const FORMAT: u32 = 2;
/// From this format on nodes share a part of their config.
pub(super) const FORMAT_OF_CONFIG: u32 = 2;

/// The parameters that a cluster was made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterMade {
    /// The format of what is stored.
    pub format: u32,
    /// How many partitions there are.
    pub partitions: u32,
    /// The logarithm of how many values in a row belong to one partition.
    pub stripe: u32,
    /// Drawn when the cluster was made: no other cluster has it.
    pub id: u64,
}

/// The data of the cluster that a node needs before it joins.
#[derive(Clone, Debug)]
pub(super) struct ClusterMeta {
    pub(super) made: ClusterMade,
    pub(super) secret: [u8; 32],
    /// etcd's revision when this was read.
    pub(super) revision: u64,
}

impl ClusterMeta {
    /// Read what there is, or write it if the cluster is not made yet. Two nodes that make
    /// it at the same time read the same.
    pub(super) async fn read_or_make(
        client: &EtcdClient,
        cluster: &str,
        partitions: Partitions,
    ) -> Result<Self, MetaError> {
        let (made_key, secret_key) = (meta_key(cluster, "made"), meta_key(cluster, "secret"));
        let made = ClusterMade {
            format: FORMAT,
            partitions: partitions.count(),
            stripe: partitions.stripe(),
            id: u64::from_be_bytes(random()),
        };
        let secret: [u8; 32] = random();
        let read = |key: &str| TxnOp::Read(EtcdRead::newest(KeyRange::key(key.to_owned())));
        let txn = Txn::new()
            .when(made_key.clone(), KeyStamp::Version, 0)
            .then(TxnOp::put(made_key.clone(), made.to_string()))
            .then(TxnOp::put(secret_key.clone(), secret.to_vec()))
            .otherwise(read(&made_key))
            .otherwise(read(&secret_key));
        let reply = client.txn(txn).await?;
        let revision = u64::try_from(reply.revision).unwrap_or(0);
        if reply.holds {
            return Ok(Self {
                made,
                secret,
                revision,
            });
        }
        let value = |at: usize| match reply.done.get(at) {
            Some(TxnDone::Read(found)) => found.keys.first().map(|key| key.value.clone()),
            _ => None,
        };
        let text = value(0).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let made = checked(&text, partitions)?;
        let secret = value(1).and_then(|bytes| <[u8; 32]>::try_from(&bytes[..]).ok());
        let format = || NodeError::Format {
            stored: format!("{text} without a secret of 32 bytes"),
            known: FORMAT,
        };
        Ok(Self {
            made,
            secret: secret.ok_or_else(format)?,
            revision,
        })
    }
}

/// Why it is not known what a cluster was made with.
#[derive(Debug)]
pub(super) enum MetaError {
    /// It may be known later.
    Etcd(EtcdError),
    /// This node does not fit.
    Node(NodeError),
}

impl From<EtcdError> for MetaError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl From<NodeError> for MetaError {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

/// Parses the stored parameters, and checks that this node fits them.
fn checked(text: &str, wanted: Partitions) -> Result<ClusterMade, NodeError> {
    let unknown = || NodeError::Format {
        stored: text.split(' ').next().unwrap_or_default().to_owned(),
        known: FORMAT,
    };
    let made: ClusterMade = text.parse().map_err(|()| unknown())?;
    made.check_format()?;
    let wanted = (wanted.count(), wanted.stripe());
    let found = (made.partitions, made.stripe);
    if found != wanted {
        let made = found;
        return Err(NodeError::OtherPartitions { made, wanted });
    }
    Ok(made)
}

impl ClusterMade {
    /// Fails if this version does not know the stored format.
    pub(super) fn check_format(&self) -> Result<(), NodeError> {
        if (1..=FORMAT).contains(&self.format) {
            return Ok(());
        }
        Err(NodeError::Format {
            stored: self.format.to_string(),
            known: FORMAT,
        })
    }
}

/// A key of what concerns the whole cluster.
pub(super) fn meta_key(cluster: &str, name: &str) -> String {
    format!("/rideau/{cluster}/meta/{name}")
}

pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bits");
    bytes
}

impl fmt::Display for ClusterMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            format,
            partitions,
            stripe,
            id,
        } = self;
        write!(f, "{format} {partitions} {stripe} {id:016x}")
    }
}

impl FromStr for ClusterMade {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut fields = text.split(' ');
        let mut next = || fields.next().ok_or(());
        let made = Self {
            format: next()?.parse().map_err(|_| ())?,
            partitions: next()?.parse().map_err(|_| ())?,
            stripe: next()?.parse().map_err(|_| ())?,
            id: u64::from_str_radix(next()?, 16).map_err(|_| ())?,
        };
        match fields.next() {
            None => Ok(made),
            Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fits_this_node_is_taken() {
        let partitions = |count, stripe| Partitions::new(count, stripe).expect("it can be");
        let made = ClusterMade {
            format: 1,
            partitions: 64,
            stripe: 2,
            id: 77,
        };
        let text = made.to_string();
        assert_eq!(checked(&text, partitions(64, 2)).ok(), Some(made));
        for other in [partitions(32, 2), partitions(64, 0)] {
            let error = checked(&text, other).expect_err("it differs");
            assert!(matches!(error, NodeError::OtherPartitions { .. }));
        }
        for text in [
            "",
            "3 64 2 4d",
            "0 64 2 4d",
            "1 64 2",
            "1 64 2 4d more",
            "x",
        ] {
            let error = checked(text, partitions(64, 2)).expect_err("it is unknown");
            assert!(matches!(error, NodeError::Format { .. }), "{text}");
        }
        let error = checked("3 64 2 4d more", partitions(64, 2)).expect_err("it is newer");
        assert!(error.to_string().contains("format 3"), "{error}");
    }
}
