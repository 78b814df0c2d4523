//! Where a command is executed: on this node, or on the one that owns what it is about.
//!
//! Values of ranges belong to partitions, and a partition to one node at a time. A command
//! about a value of another node is sent there as it came, and answered as that node
//! answers. It is sent on once; if its owner has changed meanwhile, once more.

mod names;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau::allocator::parse_value;
use rideau_cluster::{LinkError, PeerAsk};
use rideau_core::cluster::{AskRoute, DownReason, Incarnation};
use rideau_resp::{Request, RequestLimits, RequestParser};

use crate::redis::client::{Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::redis::peer::Proof;
use crate::state::cluster::{Cluster, NoRoute};

use super::{About, Subject, execute, find};

pub(crate) use names::{IN_SESSION, NO_PARTITION};

/// How another node says that it does not own a partition in that epoch.
pub(crate) const NOT_MINE: &[u8] = b"-NOTMINE";

/// Commands that make etcd grow.
const GROWS: [&str; 4] = ["RESERVE", "CLAIM", "UPDATE", "WRITE"];

/// What a command is about, as far as nodes go.
enum Place {
    /// This node answers it.
    Here,
    /// The owner of this partition answers it.
    Partition(u32),
    /// A node that has free values of these ranges answers it: those of the first tier, if
    /// there are any, then those of the next.
    Free(Vec<Tier>),
    /// No node that is known has what it wants of these ranges.
    Nowhere(Vec<Tier>),
    /// This node answers it: it gave the ticket.
    Node(Incarnation),
    /// The node answers it whose session the client is in.
    Session(Incarnation, u64),
    /// It may concern every node.
    Everywhere,
}

/// Ranges that are wanted alike.
type Tier = Vec<Box<str>>;

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
    if GROWS.contains(&about.name) {
        check_room(cluster)?;
    }
    let place = place(client, cluster, about, request);
    go_to(client, cluster, about, request, place)
}

/// Send a command to the node that is the place for it, if that is not this one.
fn go_to(
    client: &Client,
    cluster: &Arc<Cluster>,
    about: &About,
    request: Request<'_>,
    place: Place,
) -> Result<Option<Next>, CommandError> {
    let partition = match &place {
        Place::Here => return Ok(None),
        // Nothing of a transaction waits for another node.
        Place::Free(_) if client.is_in_exec => return Ok(None),
        Place::Nowhere(tiers) => return not_known(cluster, tiers).map_or(Ok(None), Err),
        Place::Everywhere if cluster.is_alone() => return Ok(None),
        Place::Everywhere => return Err(by_key(about.name)),
        Place::Partition(partition) => Some(*partition),
        Place::Free(_) | Place::Node(_) | Place::Session(..) => None,
    };
    if partition.is_some_and(|partition| cluster.node.serves(partition).is_some()) {
        return Ok(None);
    }
    if client.is_of_node() {
        return Err(CommandError("NOTMINE another node has it.".into()));
    }
    if client.is_in_exec {
        return Err(CommandError(format!(
            "ERR {} is about a value of another node: send it outside of MULTI.",
            about.name
        )));
    }
    let mut command = Vec::new();
    request.write_to(&mut command);
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
    let answer: Pin<Box<dyn Future<Output = OnReady> + Send>> = match place {
        Place::Free(tiers) => Box::pin(seek(cluster, ask, tiers)),
        Place::Node(to) => Box::pin(names::at_node(cluster, ask, to, about.name == "SESSION")),
        Place::Session(to, id) => Box::pin(names::in_session(cluster, ask, to, id, about.is_grant)),
        _ => Box::pin(forward(cluster, ask, about.is_grant)),
    };
    let wait = PendingCommand::new(about.name, Awaits::Anything, answer);
    Ok(Some(Next::Wait(wait)))
}

/// Send a RESERVE on for which this node turned out to have nothing: another client had the
/// last value, or the node does not serve any more what it served a moment ago.
///
/// # Errors
///
/// If it cannot be sent on, or it is not known that no value is free.
pub(crate) fn instead_of_none(
    client: &Client,
    request: Request<'_>,
) -> Result<Option<Next>, CommandError> {
    let (Some(cluster), Some(about)) = (&client.daemon.cluster, find(b"RESERVE")) else {
        return Ok(None);
    };
    match wanted(client, cluster, request, Tried::Here) {
        // It is for this node alone, which has nothing if it serves what it should.
        Place::Here => not_known(cluster, &[]).map_or(Ok(None), Err),
        place => go_to(client, cluster, about, request, place),
    }
}

/// etcd has room for what a command writes.
fn check_room(cluster: &Cluster) -> Result<(), CommandError> {
    let room = cluster.node.room();
    match room.level.refuses_growth() {
        true => Err(CommandError(format!("MISCONF {room}."))),
        false => Ok(()),
    }
}

/// What a command is about.
fn place(client: &Client, cluster: &Cluster, about: &About, request: Request<'_>) -> Place {
    let word = request.word(1).unwrap_or_default();
    if let Some(place) = names::place(client, cluster, about, request) {
        return place;
    }
    match about.subject {
        Subject::Value if word.eq_ignore_ascii_case(b"KEY") => Place::Everywhere,
        Subject::Value => {
            let value = value(client, word);
            let partition = value.map(|value| cluster.partitions.of_value(value));
            partition.map_or(Place::Here, Place::Partition)
        }
        Subject::Name if about.name == "RESERVE" => {
            wanted(client, cluster, request, Tried::Nothing)
        }
        Subject::Name | Subject::Ticket | Subject::Nothing => Place::Here,
    }
}

/// The value that a word is, or has a ticket of.
fn value(client: &Client, word: &[u8]) -> Option<u128> {
    if word.starts_with(b"v-") {
        return Some(client.daemon.values.read_ticket(word)?.0);
    }
    let text = std::str::from_utf8(word).ok()?;
    parse_value(text).ok().map(|(_, value)| value)
}

/// What was tried for a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Nothing,
    /// This node, which had nothing.
    Here,
}

/// Where a value is had from: here, if there is one of the first tier here.
fn wanted(client: &Client, cluster: &Cluster, request: Request<'_>, tried: Tried) -> Place {
    if cluster.is_alone() {
        return Place::Here;
    }
    let mut words = request.words().skip(1);
    let first = words.next().unwrap_or_default();
    if let Some(value) = value(client, first) {
        return Place::Partition(cluster.partitions.of_value(value));
    }
    let mut tiers = vec![tier(client, first)];
    while let Some(word) = words.next() {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"KEY") || is(b"UNIQUE") || is(b"ID") {
            return Place::Everywhere;
        } else if is(b"ASYNC") {
            return Place::Here;
        } else if is(b"PREFER") || is(b"SECONDARY") {
            tiers.push(tier(client, words.next().unwrap_or_default()));
        }
    }
    // What goes with a connection is had from the node that has the connection.
    let places = client.daemon.places.load();
    let is_of_connection = |name: &str| {
        let range = places.ranges.find(name);
        range.is_some_and(|range| range.is_of_connection())
    };
    if tiers.iter().flatten().any(|name| is_of_connection(name)) {
        return Place::Here;
    }
    let ranges = &client.daemon.values.ranges;
    let has_free = |name: &str| {
        let stats = ranges.range(name).and_then(|id| ranges.stats(id));
        stats.is_some_and(|stats| !stats.free.is_zero())
    };
    for (at, tier) in tiers.iter().enumerate() {
        if tried == Tried::Nothing && tier.iter().any(|name| has_free(name)) {
            return Place::Here;
        }
        if cluster.most_free(tier).is_some() || client.is_of_node() {
            return Place::Free(tiers.split_off(at));
        }
    }
    Place::Nowhere(tiers)
}

/// The ranges that a word names.
fn tier(client: &Client, word: &[u8]) -> Tier {
    let places = client.daemon.places.load();
    let text = std::str::from_utf8(word).unwrap_or_default();
    let named = text.split(',').filter_map(|name| places.ranges.find(name));
    named.map(|range| Box::from(&*range.name)).collect()
}

/// How long a command waits by itself.
fn wait(client: &Client, request: Request<'_>) -> Duration {
    let mut words = request.words();
    let named = words.find(|word| word.eq_ignore_ascii_case(b"WAIT"));
    let millis = named.and_then(|_| std::str::from_utf8(words.next()?).ok()?.parse().ok());
    let wait = Duration::from_millis(millis.unwrap_or(0));
    wait.min(client.config.server.wait_max)
}

/// Have the owner execute a command. If it is this node by then, it is executed here.
async fn forward(cluster: Arc<Cluster>, mut ask: PeerAsk, is_grant: bool) -> OnReady {
    let mut is_second = false;
    loop {
        // A command that does not wait by itself waits for an owner all the same.
        let wait = ask.wait.filter(|wait| !wait.is_zero());
        let (to, epoch) = match cluster.route(ask.partition, wait).await {
            AskRoute::Here { .. } => return Box::new(move |client| client.execute_here(&ask)),
            AskRoute::Hop { to, epoch } => (to, epoch),
            AskRoute::NotMine { .. } => return down(&cluster, NoRoute::Moved, is_grant),
            AskRoute::Down(reason) => return down(&cluster, NoRoute::Down(reason), is_grant),
        };
        ask.epoch = epoch;
        match cluster.ask(&to, &ask).await {
            Ok(answer) if answer.reply.starts_with(NOT_MINE) => {
                if is_second {
                    return down(&cluster, NoRoute::Moved, is_grant);
                }
                is_second = true;
                cluster.moved(ask.partition, epoch).await;
            }
            Ok(answer) => {
                return Box::new(move |client| client.out.extend_from_slice(&answer.reply));
            }
            Err(error) => return down(&cluster, NoRoute::Link(to, error), is_grant),
        }
    }
}

/// Have a node that has free values execute a command. If no node has any, it is executed
/// here, and answered with the reason.
async fn seek(cluster: Arc<Cluster>, mut ask: PeerAsk, tiers: Vec<Tier>) -> OnReady {
    for tier in &tiers {
        while let Some((to, partition)) = cluster.most_free(tier) {
            let table = cluster.node.table();
            let owned = table.owner(partition).filter(|(owner, _)| **owner == to);
            if let Some((_, epoch)) = owned {
                (ask.partition, ask.epoch) = (partition, epoch);
                match cluster.ask(&to, &ask).await {
                    Ok(answer) if answer.reply.starts_with(NOT_MINE) => (),
                    Ok(answer) => {
                        return Box::new(move |client| client.out.extend_from_slice(&answer.reply));
                    }
                    Err(error) => return down(&cluster, NoRoute::Link(to, error), true),
                }
            }
            cluster.had_none(tier, &to);
        }
    }
    if let Some(CommandError(text)) = not_known(&cluster, &tiers) {
        return Box::new(move |client| {
            client.reply().error(text);
        });
    }
    Box::new(move |client| client.execute_here(&ask))
}

/// Why it is not known that no value is free: no node serves some partition, or an owner has
/// not said how much it has.
fn not_known(cluster: &Cluster, tiers: &[Tier]) -> Option<CommandError> {
    let (missing, all) = (cluster.unserved(), cluster.partitions.count());
    if missing > 0 {
        return Some(CommandError(format!(
            "CLUSTERDOWN no node serves {missing} of {all} partitions just now, and the others \
             have no free value; nothing is held. Ask again."
        )));
    }
    let node = cluster.silent_about(&tiers.concat())?;
    Some(CommandError(format!(
        "CLUSTERDOWN this node does not know yet what node {node} has free; nothing is held. Ask \
         again."
    )))
}

/// No node answered.
fn down(cluster: &Cluster, why: NoRoute, is_grant: bool) -> OnReady {
    let text = down_text(cluster, why, is_grant);
    Box::new(move |client| {
        client.reply().error(text);
    })
}

/// Why no node answered, as a client is told.
pub(super) fn down_text(cluster: &Cluster, why: NoRoute, is_grant: bool) -> String {
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
            "BUSY too much is on its way to node {}: ask again soon.",
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
            "UNKNOWN node {} did not answer, and may have done it: look, or ask again.",
            to.name
        ),
    }
}

/// Why a command cannot go by a key.
fn by_key(name: &str) -> CommandError {
    CommandError(format!(
        "ERR {name} goes without KEY, UNIQUE and ID while several nodes own partitions: name the \
         value or its ticket."
    ))
}

impl Client {
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
