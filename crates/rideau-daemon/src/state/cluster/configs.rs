//! Which version of the config that nodes share each node follows.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_cluster::LinkMessage;
use rideau_core::cluster::Incarnation;
use tokio::sync::Notify;

use super::Cluster;

/// The newest version that a node knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KnownConfig {
    /// Its number; zero if nodes share none yet.
    pub version: u64,
    /// Why the node does not follow it, or how its file differs; empty if all is well.
    pub note: String,
}

/// The versions of all nodes.
#[derive(Debug, Default)]
pub(super) struct ConfigVersions {
    mine: Mutex<KnownConfig>,
    heard: Mutex<BTreeMap<Incarnation, KnownConfig>>,
    /// A node has told of another.
    changed: Notify,
}

impl KnownConfig {
    fn message(&self) -> LinkMessage {
        LinkMessage::Config {
            version: self.version,
            note: self.note.clone(),
        }
    }
}

impl Cluster {
    /// This node knows such a version. Others are told.
    pub(crate) fn knows_config(&self, known: KnownConfig) {
        let message = known.message();
        *self.configs.mine.lock() = known;
        let links = self.links.read().clone();
        for node in self.node.table().links.iter() {
            if let Some(links) = &links {
                // A new link is told anew.
                let _ = links.send(node, message.clone());
            }
        }
    }

    /// Tell a node that there is a new link to.
    pub(super) fn tell_config(&self, node: &Incarnation) {
        let message = self.configs.mine.lock().message();
        if let Some(links) = &*self.links.read() {
            // If this link breaks, the next one is told.
            let _ = links.send(node, message);
        }
    }

    /// Another node told what it knows.
    pub(crate) fn config_heard(&self, node: &Incarnation, known: KnownConfig) {
        let mut heard = self.configs.heard.lock();
        heard.insert(node.clone(), known);
        drop(heard);
        self.configs.changed.notify_waiters();
    }

    /// A node is gone from the links.
    pub(super) fn forget_config(&self, node: &Incarnation) {
        self.configs.heard.lock().remove(node);
        self.configs.changed.notify_waiters();
    }

    /// What a node knows, as far as this one has heard.
    pub(crate) fn config_of(&self, node: &Incarnation) -> Option<KnownConfig> {
        let is_me = self.node.table().me.as_ref() == Some(node);
        match is_me {
            true => Some(self.configs.mine.lock().clone()),
            false => self.configs.heard.lock().get(node).cloned(),
        }
    }

    /// Wait until all nodes that there is a link to know a version, for so long at most: one
    /// that is busy follows a little later.
    pub(crate) async fn until_known(&self, version: u64, within: Duration) {
        let all_know = || {
            let heard = self.configs.heard.lock();
            heard.values().all(|known| known.version >= version)
        };
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.configs.changed.notified());
                changed.as_mut().enable();
                if all_know() {
                    return;
                }
                changed.await;
            }
        };
        // A node that has not heard of it by then is not waited for.
        let _ = tokio::time::timeout(within, wait).await;
    }
}
