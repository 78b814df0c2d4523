//! Gathers the view of a node for operators.

use std::collections::BTreeSet;
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::cluster::Incarnation;

use super::about::NodeAbout;
use super::boot_clock;
use super::driver::Driver;
use super::pulse::NodePulse;
use super::view::{NodeRow, NodeView, PartitionRow, PartitionState};

/// A node that is gone is missed for this long.
const MISSED: Duration = Duration::from_secs(24 * 3_600);

impl Driver {
    pub(super) fn view(&self) -> NodeView {
        let now = boot_clock::now();
        let table = self.machine.table();
        let partitions = table.owners().map(|(partition, row)| {
            let record = row.record.as_ref();
            let owner = record.map(|record| record.owner.clone());
            let owner = owner.filter(|owner| table.is_live(owner));
            let held = self.parts.held.get(&partition);
            let state = match (held, &owner) {
                (Some(held), _) => held.state.clone(),
                (None, Some(_)) => PartitionState::Elsewhere,
                (None, None) => PartitionState::NoOwner,
            };
            PartitionRow {
                partition,
                owner,
                epoch: record.map_or(0, |record| record.epoch),
                state,
            }
        });
        let partitions: Vec<_> = partitions.collect();
        let nodes = table.nodes().iter().map(|(name, known)| {
            let node = Incarnation::new(name, known.fence);
            let is_its = |row: &&PartitionRow| row.owner.as_ref() == Some(&node);
            let owned = partitions.iter().filter(is_its).count();
            NodeRow {
                about: NodeAbout::parse(&known.record.about),
                weight: known.record.weight,
                is_draining: table.is_draining(name),
                is_linked: self.links.contains_key(&node),
                partitions: u32::try_from(owned).unwrap_or(u32::MAX),
                age: now.since(known.since),
                node,
            }
        });
        let NodePulse {
            certainty,
            keepalive_age,
            valid_for,
            lost_nodes,
            parked,
            counters,
            room,
        } = self.shared.pulse();
        NodeView {
            me: self.machine.incarnation().cloned(),
            certainty,
            keepalive_age,
            valid_for,
            revision: table.revision(),
            nodes: nodes.collect(),
            partitions,
            lost_nodes,
            parked,
            counters,
            room,
        }
    }

    /// Note which nodes live, so that they are missed when they are gone.
    pub(super) fn note_nodes(&mut self) {
        let now = boot_clock::now();
        self.known.retain(|_, seen| *seen + MISSED > now);
        let names = self.machine.table().nodes().keys();
        self.known.extend(names.map(|name| (name.clone(), now)));
        let lost = self.lost_nodes(now);
        self.shared.pulse.lock().lost_nodes = lost;
    }

    /// Nodes that do not live, and did a while ago or own something.
    fn lost_nodes(&self, now: Instant) -> Vec<String> {
        let table = self.machine.table();
        let known = self.known.iter().filter(|(_, seen)| **seen + MISSED > now);
        let known = known.map(|(name, _)| name);
        let records = table.owners().filter_map(|(_, row)| row.record.as_ref());
        let owners = records.map(|record| &record.owner.name);
        let all: BTreeSet<_> = known.chain(owners).collect();
        let lost = all
            .into_iter()
            .filter(|name| !table.nodes().contains_key(*name));
        lost.cloned().collect()
    }
}
