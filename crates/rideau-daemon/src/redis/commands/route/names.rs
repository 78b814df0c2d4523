//! Commands about names, tickets and sessions: the owner of a name's partition answers what
//! is asked of the name, the node that gave a ticket what is done with it, and the node that
//! opened a session what its connections do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_cluster::{LinkError, NodeAbout, PeerAnswer, PeerAsk};
use rideau_core::cluster::Incarnation;
use rideau_resp::Request;

use super::{NOT_MINE, Place, down};
use crate::redis::client::{Client, CommandError, OnReady};
use crate::redis::commands::About;
use crate::state::cluster::{Cluster, FarSession, NoRoute};
use crate::state::end::EndReason;
use crate::state::ticket::{Ticket, TicketKind};

/// An ask for a life of a node, and not for the owner of a partition. Its epoch is the
/// fence of that life.
pub(crate) const NO_PARTITION: u32 = u32::MAX;
/// The same of a connection that is in a session of that node: its holder is the attachment.
pub(crate) const IN_SESSION: u32 = u32::MAX - 1;

/// Commands about the keys of locks, which the owners of partitions decide on.
const OF_KEYS: [&str; 3] = ["LOCK", "UNLOCK", "LOCK.STAT"];

/// So long after it has learnt of an owner a node forwards: the owner may learn it later.
const SETTLE: Duration = Duration::from_millis(200);

/// Commands about what the client's holder has, or is to have.
const OF_HOLDER: [&str; 10] = [
    "LOCK",
    "UNLOCK",
    "TAKE",
    "ASK",
    "OFFER",
    "REG.ASK",
    "APP.GET",
    "POOL.OFFER",
    "HELD",
    "SURE",
];

/// Where a command about a name, a ticket or a session is answered, if it is one.
pub(super) fn place(
    client: &Client,
    cluster: &Cluster,
    about: &About,
    request: Request<'_>,
) -> Option<Place> {
    let is_session = about.name == "SESSION";
    let word = match is_session {
        true => request.word(2),
        false => request.word(1),
    };
    let word = word.unwrap_or_default();
    let ticket = Ticket::parse(word);
    if let Some(far) = &client.far {
        let sub = request.word(1).unwrap_or_default();
        let is_own = [&b"RENEW"[..], b"CLOSE"]
            .iter()
            .any(|own| sub.eq_ignore_ascii_case(own));
        if OF_HOLDER.contains(&about.name) || (is_session && is_own && ticket.is_none()) {
            return Some(Place::Session(far.node.clone(), far.id));
        }
    }
    if about.name == "LOCK.STAT" {
        return Some(Place::Partition(cluster.partition_of_name(word)));
    }
    if let Some(Shared::Looks(home)) = shared(client, about, word) {
        return Some(Place::Partition(cluster.partition_of_name(home.as_bytes())));
    }
    let ticket = ticket?;
    let is_of_node = match ticket.kind {
        TicketKind::Session => is_session,
        _ => !is_session,
    };
    if !is_of_node || ticket.is_of_this_start() {
        return None;
    }
    giver(cluster, ticket).map(Place::Node)
}

/// Send a client of Redis Cluster to the node that owns the name of its command.
///
/// # Errors
///
/// If it is another node: the address of that.
pub(in crate::redis::commands) fn redirect(
    client: &Client,
    about: &About,
    request: Request<'_>,
) -> Result<(), CommandError> {
    if !client.is_straight || client.is_in_exec {
        return Ok(());
    }
    let name = request.word(1).unwrap_or_default();
    // A client sends a command to the slot of its name. What is coupled with something else
    // is not there, and is forwarded.
    let is_of_name = match shared(client, about, name) {
        Some(Shared::Looks(home) | Shared::Asks(home)) => home.as_bytes() == name,
        None => OF_KEYS.contains(&about.name),
    };
    if !is_of_name {
        return Ok(());
    }
    // What a session holds goes with it, whichever node owns the name.
    let is_in_session = client.far.is_some() || client.session.is_some();
    let Some(cluster) = client.daemon.cluster.as_ref().filter(|_| !is_in_session) else {
        return Ok(());
    };
    // A server that stops grants nothing, so it forwards nothing either.
    let settle = match client.daemon.is_draining() {
        true => Duration::ZERO,
        false => SETTLE,
    };
    let Some(moved) = cluster.redirect(name, settle, client.is_tls) else {
        return Ok(());
    };
    // The connection has units of it from before the partition moved.
    let lease_table = &client.daemon.lease_table;
    let held = lease_table.newest(client.owner(), |grant| grant.is_lock_of(name));
    if held.is_some() {
        return Ok(());
    }
    cluster.counts.redirects.fetch_add(1, Ordering::Relaxed);
    Err(CommandError(moved))
}

/// A command about a pool, broker or regulator that nodes share, with its home.
enum Shared {
    /// The owner executes it.
    Looks(Box<str>),
    /// This node asks the owner for its client.
    Asks(Box<str>),
}

fn shared(client: &Client, about: &About, name: &[u8]) -> Option<Shared> {
    let catalog = client.daemon.catalog.load();
    let name = str::from_utf8(name).ok()?;
    match about.name {
        "TAKE" => Some(Shared::Asks(catalog.home_of_pool(name)?.into())),
        "ASK" | "OFFER" => Some(Shared::Asks(catalog.home_of_broker(name)?.into())),
        "REG.ASK" => Some(Shared::Asks(catalog.home_of_regulator(name)?.into())),
        "POOL.STAT" | "POOL.LOAD" | "POOL.PAUSE" | "POOL.RESUME" | "POOL.RECYCLE" => {
            Some(Shared::Looks(catalog.home_of_pool(name)?.into()))
        }
        "LEN" => Some(Shared::Looks(catalog.home_of_broker(name)?.into())),
        "REG.UPDATE" => Some(Shared::Looks(catalog.home_of_regulator(name)?.into())),
        _ => None,
    }
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

/// Have a life of a node execute a command. A connection that attaches to a session there is
/// in it from then on.
pub(super) async fn at_node(
    cluster: Arc<Cluster>,
    mut ask: PeerAsk,
    to: Incarnation,
    is_session: bool,
) -> OnReady {
    (ask.partition, ask.epoch) = (NO_PARTITION, to.fence);
    if !is_session {
        return execute_at(cluster, ask, to, false).await;
    }
    let id = cluster.next_far();
    ask.holder = id.to_be_bytes().into();
    match cluster.ask(&to, &ask).await {
        Ok(answer) if answer.row.is_some() => {
            let far = FarSession::new(&cluster, to, id);
            Box::new(move |client| {
                client.leave_session(EndReason::Quit);
                client.far = Some(far);
                client.out.extend_from_slice(&answer.reply);
            })
        }
        answer => told(&cluster, answer, to, false),
    }
}

/// Have the node whose session the client is in execute a command.
pub(super) async fn in_session(
    cluster: Arc<Cluster>,
    mut ask: PeerAsk,
    to: Incarnation,
    id: u64,
    is_grant: bool,
) -> OnReady {
    (ask.partition, ask.epoch) = (IN_SESSION, to.fence);
    ask.holder = id.to_be_bytes().into();
    execute_at(cluster, ask, to, is_grant).await
}

async fn execute_at(
    cluster: Arc<Cluster>,
    ask: PeerAsk,
    to: Incarnation,
    is_grant: bool,
) -> OnReady {
    let answer = cluster.ask(&to, &ask).await;
    told(&cluster, answer, to, is_grant)
}

fn told(
    cluster: &Cluster,
    answer: Result<PeerAnswer, LinkError>,
    to: Incarnation,
    is_grant: bool,
) -> OnReady {
    match answer {
        Ok(answer) if answer.reply.starts_with(NOT_MINE) => {
            down(cluster, &NoRoute::Link(to, LinkError::NoLink), is_grant)
        }
        Ok(answer) => Box::new(move |client| client.out.extend_from_slice(&answer.reply)),
        Err(error) => down(cluster, &NoRoute::Link(to, error), is_grant),
    }
}
