//! Where a command is executed: on this node, or on the one that owns what it is about.
//!
//! Values of ranges belong to partitions, and a partition to one node at a time. A command
//! about a value of another node is sent there as it came, and answered as that node
//! answers. It is sent on once; if its owner has changed meanwhile, once more.

mod names;
mod values;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_cluster::{LinkError, PeerAsk};
use rideau_core::cluster::{AskRoute, DownReason, Incarnation};
use rideau_resp::{Request, RequestLimits, RequestParser};

use crate::redis::client::{Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::redis::peer::Proof;
use crate::state::cluster::{Cluster, NoRoute, verbs};

use super::{About, Subject, execute, find};

pub(super) use names::redirect;
pub(crate) use names::{IN_SESSION, NO_PARTITION};
pub(crate) use values::ValueAsk;

/// How another node says that it does not own a partition in that epoch.
pub(crate) const NOT_MINE: &[u8] = b"-NOTMINE";

/// Commands that make etcd grow.
const GROWS: [&str; 4] = ["RESERVE", "CLAIM", "UPDATE", "WRITE"];

/// Commands that concern what all nodes have of ranges.
const LOOKS: [&str; 3] = ["RANGE.COUNT", "RANGE.LS", "RANGE.RELEASE"];

/// The node or partition that a command concerns.
enum Place {
    /// This node answers it.
    Here,
    /// The owner of this partition answers it.
    Partition(u32),
    /// A node that has free values answers it.
    Seek,
    /// Every node does its part of it.
    All,
    /// The owner of this partition, which has a key, decides where it goes.
    Key {
        /// Which one.
        partition: u32,
        /// The request.
        ask: Vec<u8>,
    },
    /// This node answers it: it gave the ticket.
    Node(Incarnation),
    /// The node answers it whose session the client is in.
    Session(Incarnation, u64),
}

/// Send a command to the node that answers it, if that is not this one.
///
/// # Errors
///
/// If it cannot be sent on.
pub(crate) fn elsewhere(
    client: &Client,
    about: &About,
    request: Request<'_>,
) -> Result<Option<Next>, CommandError> {
    let Some(cluster) = &client.daemon.cluster else {
        return Ok(None);
    };
    redirect(client, about, request)?;
    if GROWS.contains(&about.name) {
        check_room(cluster)?;
    }
    let place = place(client, cluster, about, request)?;
    let is_shared = matches!(about.subject, Subject::Value) || about.name == "RESERVE";
    if is_shared && matches!(place, Place::Here) && !client.is_of_node() {
        cluster.counts.here.fetch_add(1, Ordering::Relaxed);
    }
    elsewhere_in(client, about, request, place)
}

/// The same, for a command that belongs to this place.
fn elsewhere_in(
    client: &Client,
    about: &About,
    request: Request<'_>,
    place: Place,
) -> Result<Option<Next>, CommandError> {
    let Some(cluster) = &client.daemon.cluster else {
        return Ok(None);
    };
    let partition = match &place {
        Place::Here => return Ok(None),
        // Nothing of a transaction waits for another node.
        Place::Seek if client.is_in_exec => return Ok(None),
        Place::Partition(partition) if cluster.node.serves(*partition).is_some() => {
            let is_own = u64::from(!client.is_of_node());
            cluster.counts.here.fetch_add(is_own, Ordering::Relaxed);
            return Ok(None);
        }
        Place::Partition(partition) | Place::Key { partition, .. } => Some(*partition),
        Place::Seek | Place::All | Place::Node(_) | Place::Session(..) => None,
    };
    if client.is_of_node() {
        return Err(CommandError("NOTMINE another node has it.".into()));
    }
    if client.is_in_exec {
        return Err(CommandError(format!(
            "ERR {} may concern another node: send it outside of MULTI.",
            about.name
        )));
    }
    let mut command = Vec::new();
    request.write_to(&mut command);
    command = match &place {
        Place::Key { ask, .. } => ask.clone(),
        Place::Seek => verbs::write(verbs::SEEK, &[&command]),
        Place::All => verbs::write(verbs::ALL, &[&command]),
        Place::Here | Place::Partition(_) | Place::Node(_) | Place::Session(..) => command,
    };
    let ask = PeerAsk {
        hop: 1,
        partition: partition.unwrap_or_default(),
        epoch: 0,
        holder: client.card.id.to_be_bytes().into(),
        user: client
            .user
            .as_ref()
            .map(|user| user.name.clone())
            .unwrap_or_default(),
        wait: Some(wait(client, request)),
        protocol: client.protocol,
        command,
    };
    let cluster = Arc::clone(cluster);
    let answer: Pin<Box<dyn Future<Output = OnReady> + Send>> = match (place, partition) {
        (Place::Node(to), _) => Box::pin(names::at_node(cluster, ask, to, about.name == "SESSION")),
        (Place::Session(to, id), _) => {
            Box::pin(names::in_session(cluster, ask, to, id, about.is_grant))
        }
        (_, None) => Box::pin(self_asked(cluster, ask, about.is_grant)),
        (_, Some(_)) => Box::pin(forward(cluster, ask, about.is_grant)),
    };
    let wait = PendingCommand::new(about.name, Awaits::Anything, answer);
    Ok(Some(Next::Wait(wait)))
}

/// etcd has room for what a command writes.
fn check_room(cluster: &Cluster) -> Result<(), CommandError> {
    let room = cluster.node.room();
    match room.level.refuses_growth() {
        true => Err(CommandError(format!("MISCONF {room}."))),
        false => Ok(()),
    }
}

/// The node or partition that a command concerns.
fn place(
    client: &Client,
    cluster: &Cluster,
    about: &About,
    request: Request<'_>,
) -> Result<Place, CommandError> {
    if let Some(place) = names::place(client, cluster, about, request) {
        return Ok(place);
    }
    if about.name == "SHOW" && is_of_cluster(request) {
        return Ok(Place::All);
    }
    if LOOKS.contains(&about.name) {
        let is_whole = client.is_of_node() || client.is_in_exec || cluster.is_alone();
        return Ok(if is_whole { Place::Here } else { Place::All });
    }
    match about.subject {
        Subject::Value => values::of_value(client, cluster, about, request),
        Subject::Name if about.name == "RESERVE" => {
            values::of_reserve(client, cluster, request, false)
        }
        Subject::Name | Subject::Ticket | Subject::Nothing => Ok(Place::Here),
    }
}

/// A table is to have the rows of all nodes.
fn is_of_cluster(request: Request<'_>) -> bool {
    let mut words = request.words().skip(2);
    words.any(|word| word.eq_ignore_ascii_case(b"CLUSTER"))
}

/// How long a command waits by itself.
fn wait(client: &Client, request: Request<'_>) -> Duration {
    let wait = ValueAsk::of(request.words()).wait.unwrap_or_default();
    wait.min(client.config.server.wait_max)
}

/// Have this node answer what it would ask another.
async fn self_asked(cluster: Arc<Cluster>, mut ask: PeerAsk, is_grant: bool) -> OnReady {
    ask.hop = 0;
    match cluster.ask_self(ask).await {
        Ok(answer) => Box::new(move |client| client.out.extend_from_slice(&answer.reply)),
        Err(_) => down(&cluster, &NoRoute::Down(DownReason::Lost), is_grant),
    }
}

/// Have the owner execute a command. If it is this node by then, it is executed here.
async fn forward(cluster: Arc<Cluster>, mut ask: PeerAsk, is_grant: bool) -> OnReady {
    let mut is_second = false;
    loop {
        // A command that does not wait by itself waits for an owner all the same.
        let wait = ask.wait.filter(|wait| !wait.is_zero());
        let (to, epoch) = match cluster.route(ask.partition, wait).await {
            AskRoute::Here { epoch } if verbs::is_verb(&ask.command) => {
                ask.epoch = epoch;
                return self_asked(cluster, ask, is_grant).await;
            }
            AskRoute::Here { .. } => return Box::new(move |client| client.execute_here(&ask)),
            AskRoute::Hop { to, epoch } => (to, epoch),
            AskRoute::NotMine { .. } => return down(&cluster, &NoRoute::Moved, is_grant),
            AskRoute::Down(reason) => return down(&cluster, &NoRoute::Down(reason), is_grant),
        };
        ask.epoch = epoch;
        match cluster.ask(&to, &ask).await {
            Ok(answer) if answer.reply.starts_with(NOT_MINE) => {
                if is_second {
                    return down(&cluster, &NoRoute::Moved, is_grant);
                }
                is_second = true;
                cluster.moved(ask.partition, epoch).await;
            }
            Ok(answer) => {
                return Box::new(move |client| client.out.extend_from_slice(&answer.reply));
            }
            Err(error) => return down(&cluster, &NoRoute::Link(to, error), is_grant),
        }
    }
}

/// No node answered.
fn down(cluster: &Cluster, why: &NoRoute, is_grant: bool) -> OnReady {
    let text = down_text(cluster, why, is_grant);
    Box::new(move |client| {
        client.reply().error(text);
    })
}

/// Why no node answered, in words.
pub(crate) fn down_text(cluster: &Cluster, why: &NoRoute, is_grant: bool) -> String {
    cluster.counts.down.fetch_add(1, Ordering::Relaxed);
    match why {
        NoRoute::Down(DownReason::NoOwner) => {
            "CLUSTERDOWN no node serves this partition just now; nothing is held. Ask again.".into()
        }
        NoRoute::Down(DownReason::Full) => {
            "BUSY too many commands wait for a partition without owner: ask again soon.".into()
        }
        NoRoute::Down(DownReason::Lost) => {
            "CLUSTERDOWN this node has lost its place in the cluster; nothing is held.".into()
        }
        NoRoute::Moved => {
            "CLUSTERDOWN the partition changes its owner; nothing is held. Ask again.".into()
        }
        NoRoute::Link(to, LinkError::Busy) => format!(
            "BUSY too many commands are on their way to node {}: ask again soon.",
            to.name
        ),
        NoRoute::Link(to, LinkError::TooLong) => {
            format!(
                "ERR the command is too long to be sent to node {}.",
                to.name
            )
        }
        NoRoute::Link(to, LinkError::NoLink) => format!(
            "CLUSTERDOWN there is no link to node {}; nothing is held. Ask again.",
            to.name
        ),
        NoRoute::Link(to, LinkError::Broken | LinkError::TimedOut) if is_grant => format!(
            "CLUSTERDOWN node {} did not answer; nothing is held. Ask again.",
            to.name
        ),
        NoRoute::Link(to, LinkError::Broken | LinkError::TimedOut) => format!(
            "UNKNOWN node {} did not answer, and may have executed the command: check, or send it \
             again.",
            to.name
        ),
    }
}

impl Client {
    /// Send a RESERVE on for which this node turned out to have nothing: another client had
    /// the last value, or the node does not serve any more what it served a moment ago.
    ///
    /// # Errors
    ///
    /// If it cannot be sent on.
    pub(crate) fn instead_of_none(
        &self,
        request: Request<'_>,
    ) -> Result<Option<Next>, CommandError> {
        let Some(cluster) = &self.daemon.cluster else {
            return Ok(None);
        };
        let about = find(b"RESERVE").expect("it was just executed");
        if self.is_of_node() && cluster.is_partly_closed() {
            // Another node must not take this for a node without free values.
            let text = "NOTMINE this node does not serve all that it owns just now.";
            return Err(CommandError(text.into()));
        }
        let place = values::of_reserve(self, cluster, request, true)?;
        let missing = cluster.unserved();
        if matches!(place, Place::Here) && missing > 0 && !self.is_of_node() {
            // It is for this node alone, which may not serve what it should.
            let all = cluster.partitions.count();
            return Err(CommandError(format!(
                "CLUSTERDOWN no node serves {missing} of {all} partitions just now, and the \
                 others have no free value; nothing is held. Ask again."
            )));
        }
        elsewhere_in(self, about, request, place)
    }

    /// Does a RESERVE wait for values of this node alone?
    pub(crate) fn waits_here(&self, request: Request<'_>) -> bool {
        let Some(cluster) = &self.daemon.cluster else {
            return true;
        };
        let place = values::of_reserve(self, cluster, request, true);
        matches!(place, Ok(Place::Here | Place::Partition(_)))
    }

    /// A key was given out for one record alone. If no other node has vouched for that, what
    /// is known of keys is not all.
    pub(crate) fn gave_key(&self) {
        if let Some(cluster) = &self.daemon.cluster
            && self.sent.vouched.is_none()
        {
            cluster.keys.lock().clear();
        }
    }

    /// It is a client of another node.
    pub(crate) fn is_of_node(&self) -> bool {
        matches!(self.proof, Proof::Node(_))
    }

    /// Execute a command that was to be sent on, and is this node's now. It does not wait
    /// any more.
    fn execute_here(&mut self, ask: &PeerAsk) {
        let limits = RequestLimits {
            bulk_max: ask.command.len(),
            frame_max: ask.command.len(),
            ..RequestLimits::default()
        };
        let mut parser = RequestParser::default();
        let read = parser.next(&ask.command, &mut 0, &limits);
        let request = read.ok().flatten().expect("a client sent it before");
        let was_in_exec = std::mem::replace(&mut self.is_in_exec, true);
        // What would wait is answered at once.
        let _ = execute(self, request);
        self.is_in_exec = was_in_exec;
    }
}
