//! Whether a thing with a name is one node's or that of all nodes of a cluster.

use super::kinds::spelled;

/// Which nodes have a thing in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedBy {
    /// Each node has one of its own.
    #[default]
    Node,
    /// All nodes of the cluster have one together.
    Cluster,
}

spelled! { SharedBy { Node "node", Cluster "cluster" } }
