//! The part of the config that all nodes of a cluster share, as one of them follows it.

use std::sync::Arc;

use rideau_cluster::StoredConfig;

use crate::state::cluster::KnownConfig;

/// The shared config, as this node follows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedState {
    /// The newest version that the node knows; none as long as nodes share none.
    pub stored: Option<Arc<StoredConfig>>,
    /// Why the node does not follow it.
    pub fault: Option<String>,
    /// The file of this node says something else.
    pub is_file_other: bool,
}

impl SharedState {
    /// What other nodes are told of it.
    pub(crate) fn known(&self) -> KnownConfig {
        let version = self.stored.as_ref().map_or(0, |stored| stored.version);
        let note = match &self.fault {
            Some(fault) => format!("not followed: {fault}"),
            None if self.is_file_other => "the file differs".into(),
            None => String::new(),
        };
        KnownConfig { version, note }
    }
}
