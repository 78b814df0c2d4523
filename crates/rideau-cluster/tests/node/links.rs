//! Links between nodes of one process: messages are handed over at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rideau_cluster::{ClusterNode, NodeError, NodeEvents, NodeTable, PeerSender};
use rideau_core::cluster::{Certainty, Incarnation, PeerMessage};

/// All nodes of a test, by name.
#[derive(Clone, Default)]
pub(crate) struct LocalLinks(Arc<Mutex<BTreeMap<String, Weak<ClusterNode>>>>);

/// One node's end of them, and what the node told.
pub(crate) struct LinkEnd {
    name: String,
    links: LocalLinks,
    /// Whether there are links at all.
    is_linked: bool,
    linked: Mutex<BTreeSet<Incarnation>>,
    me: Mutex<Option<Incarnation>>,
    pub(crate) told: Mutex<Vec<Certainty>>,
    pub(crate) resigned: Mutex<Option<String>>,
}

impl LocalLinks {
    pub(crate) fn end(&self, name: &str, is_linked: bool) -> Arc<LinkEnd> {
        Arc::new(LinkEnd {
            name: name.to_owned(),
            links: self.clone(),
            is_linked,
            linked: Mutex::default(),
            me: Mutex::default(),
            told: Mutex::default(),
            resigned: Mutex::default(),
        })
    }

    pub(crate) fn add(&self, name: &str, node: &Arc<ClusterNode>) {
        self.0.lock().insert(name.to_owned(), Arc::downgrade(node));
    }

    fn node(&self, name: &str) -> Option<Arc<ClusterNode>> {
        self.0.lock().get(name).and_then(Weak::upgrade)
    }
}

impl NodeEvents for LinkEnd {
    fn certainty_changed(&self, certainty: Certainty) {
        self.told.lock().push(certainty);
    }

    fn table_changed(&self, table: &Arc<NodeTable>) {
        self.me.lock().clone_from(&table.me);
        let Some(node) = self.links.node(&self.name).filter(|_| self.is_linked) else {
            return;
        };
        let nodes = table.owners.nodes().iter();
        let others = nodes.filter(|(name, _)| **name != self.name);
        let others = others.map(|(name, known)| Incarnation::new(name, known.fence));
        let others: BTreeSet<_> = others.collect();
        let mut linked = self.linked.lock();
        for new in others.difference(&linked) {
            node.linked(new.clone(), 0);
        }
        for gone in linked.difference(&others) {
            node.unlinked(gone.clone(), 0);
        }
        *linked = others;
    }

    fn resigned(&self, error: &NodeError) {
        *self.resigned.lock() = Some(error.to_string());
    }
}

impl PeerSender for LinkEnd {
    fn send(&self, to: &Incarnation, message: PeerMessage) {
        if let Some(me) = self.me.lock().clone()
            && let Some(node) = self.links.node(&to.name)
        {
            node.heard(me, message);
        }
    }
}
