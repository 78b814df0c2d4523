//! Commands about names and tickets: the owner of a name's partition answers what is asked
//! of the name, and the node that gave a ticket what is done with it.

use std::sync::Arc;

use rideau_cluster::{LinkError, NodeAbout, PeerAsk};
use rideau_core::cluster::Incarnation;

use super::{NOT_MINE, Place, down};
use crate::redis::client::OnReady;
use crate::redis::commands::About;
use crate::state::cluster::{Cluster, NoRoute};
use crate::state::ticket::{Ticket, TicketKind};

/// An ask for a life of a node, and not for the owner of a partition. Its epoch is the
/// fence of that life.
pub(crate) const NO_PARTITION: u32 = u32::MAX;

/// Commands that look at a name.
const LOOKS: [&str; 1] = ["LOCK.STAT"];

/// Where a command about a name or a ticket is answered, if it is one.
pub(super) fn place(cluster: &Cluster, about: &About, word: &[u8]) -> Option<Place> {
    if LOOKS.contains(&about.name) {
        return Some(Place::Partition(cluster.partition_of_name(word)));
    }
    let ticket = Ticket::parse(word)?;
    let is_lease = !matches!(ticket.kind, TicketKind::Value | TicketKind::Session);
    if !is_lease || ticket.is_of_this_start() {
        return None;
    }
    giver(cluster, ticket).map(Place::Node)
}

/// The node that gave a ticket, if it lives.
fn giver(cluster: &Cluster, ticket: Ticket) -> Option<Incarnation> {
    let table = cluster.node.table();
    let mut nodes = table.owners.nodes().iter();
    let gave = nodes.find(|(_, known)| {
        let about = NodeAbout::parse(&known.record.about);
        about.tickets == ticket.start()
    });
    gave.map(|(name, known)| Incarnation::new(name, known.fence))
}

/// Have a life of a node execute a command.
pub(super) async fn at_node(cluster: Arc<Cluster>, mut ask: PeerAsk, to: Incarnation) -> OnReady {
    (ask.partition, ask.epoch) = (NO_PARTITION, to.fence);
    match cluster.ask(&to, &ask).await {
        Ok(answer) if answer.reply.starts_with(NOT_MINE) => {
            down(&cluster, NoRoute::Link(to, LinkError::NoLink), false)
        }
        Ok(answer) => Box::new(move |client| client.out.extend_from_slice(&answer.reply)),
        Err(error) => down(&cluster, NoRoute::Link(to, error), false),
    }
}
