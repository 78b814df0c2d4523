//! What there is to know of the nodes of a cluster and of its partitions.

use rideau_cluster::{NodeAbout, NodeTable};
use rideau_core::cluster::Incarnation;

use super::facts;
use crate::state::cluster::Cluster;

/// A node that lives, as this one knows it.
pub(crate) struct NodeNow {
    name: String,
    state: &'static str,
    about: NodeAbout,
    weight: u64,
    partitions: u64,
    life: u64,
}

/// A partition, as this node knows it.
pub(crate) struct PartitionNow {
    name: String,
    state: &'static str,
    owner: Option<String>,
    epoch: u64,
}

impl NodeNow {
    /// All nodes of the cluster, by name.
    pub(crate) fn all(cluster: Option<&Cluster>) -> Vec<Self> {
        let Some(cluster) = cluster else {
            return Vec::new();
        };
        let table = cluster.node.table();
        let nodes = table.owners.nodes().iter();
        let nodes = nodes.map(|(name, known)| {
            let node = Incarnation::new(name, known.fence);
            let owned = table.owners.owners().filter(|(partition, _)| {
                table
                    .owner(*partition)
                    .is_some_and(|(owner, _)| *owner == node)
            });
            Self {
                name: name.clone(),
                state: state(cluster, &table, &node),
                about: NodeAbout::parse(&known.record.about),
                weight: known.record.weight.into(),
                partitions: owned.count() as u64,
                life: known.fence,
            }
        });
        nodes.collect()
    }
}

/// How a node is, in a word.
fn state(cluster: &Cluster, table: &NodeTable, node: &Incarnation) -> &'static str {
    if table.owners.is_draining(&node.name) {
        return "draining";
    }
    match table.me.as_ref() == Some(node) {
        true if cluster.node.valid_for().is_zero() => "unsure",
        false if !table.links.contains(node) => "cut",
        _ => "live",
    }
}

impl PartitionNow {
    /// All partitions.
    pub(crate) fn all(cluster: Option<&Cluster>) -> Vec<Self> {
        let Some(cluster) = cluster else {
            return Vec::new();
        };
        let table = cluster.node.table();
        let all = table.owners.owners().map(|(partition, row)| {
            let owner = table.owner(partition).map(|(owner, _)| owner);
            let state = match owner {
                None => "none",
                Some(_) if cluster.node.serves(partition).is_some() => "serving",
                Some(owner) if table.me.as_ref() == Some(owner) => "loading",
                Some(_) => "elsewhere",
            };
            Self {
                name: partition.to_string(),
                state,
                owner: owner.map(|owner| owner.name.clone()),
                epoch: row.record.as_ref().map_or(0, |record| record.epoch),
            }
        });
        all.collect()
    }
}

facts! { NodeNow: "node" by "node", joined {};
    name: Text, [SHOW], |it| &*it.name, "Its name.";
    state: Text, [SHOW], |it| it.state,
        "`live`, `unsure` (it has not heard etcd for most of a lease), `draining`, or `cut` (there \
         is no link to it).";
    address: Text, [SHOW], |it| &*it.about.clients, "Where any client reaches it.";
    peers: Text, [SHOW], |it| &*it.about.peers, "Where other nodes reach it.";
    release: Text, [SHOW], |it| &*it.about.release, "The release that it runs.";
    weight: Count, [SHOW], |it| it.weight, "How large its share is beside those of others.";
    partitions: Count, [SHOW], |it| it.partitions, "Partitions that it owns.";
    life: Count, [SHOW], |it| it.life, "The revision of etcd at which it joined.";
}

facts! { PartitionNow: "partition" by "partition", joined {};
    name: Text, [SHOW], |it| &*it.name, "Its number.";
    state: Text, [SHOW], |it| it.state,
        "`serving` and `loading` on this node, `elsewhere`, or `none` if it has no owner.";
    owner: Text | null, [SHOW], |it| it.owner.as_deref(), "The node that owns it.";
    epoch: Count, [SHOW], |it| it.epoch, "Which ownership of it this is.";
}
