//! Commands of other nodes' clients: executed here, and undone if the answer gets lost.

use std::sync::Arc;

use rideau_cluster::{PeerAnswer, PeerAsk, ServeAsks, ServedAnswer};
use rideau_core::cluster::{AskRoute, Incarnation};
use rideau_resp::{ReplyLimits, ReplyParser, RequestLimits, RequestParser, Value};

use crate::redis::client::SentCommand;
use crate::redis::commands::{self, About, IN_SESSION, NO_PARTITION, NOT_MINE};
use crate::redis::remote::{self, RemoteCommand};
use crate::serve::values::ValueAsks;
use crate::state::cluster::{Cluster, verbs};
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::ticket::Ticket;

/// Begins the row of an answer that says that a connection is in a session.
const ATTACHED: &[u8] = b"attached ";
/// The answer to a connection whose session is over.
const SESSION_OVER: &[u8] = b"-NOSUCH session: it has ended, and what it held was released. \
    SESSION OPEN opens another, SESSION DETACH continues without one.\r\n";

/// Executes commands of other nodes.
pub(super) struct AskServer {
    pub(super) daemon: Arc<Daemon>,
    pub(super) cluster: Arc<Cluster>,
}

impl AskServer {
    fn values(&self) -> ValueAsks {
        ValueAsks {
            daemon: Arc::clone(&self.daemon),
            cluster: Arc::clone(&self.cluster),
        }
    }
}

impl ServeAsks for AskServer {
    fn serve(&self, from: &Incarnation, _id: u64, ask: PeerAsk) -> ServedAnswer {
        let (daemon, cluster) = (Arc::clone(&self.daemon), Arc::clone(&self.cluster));
        let from = from.clone();
        let asks = self.values();
        Box::pin(async move {
            // Whether it is the owner that matters the node itself decides for these.
            let is_verb = verbs::is_verb(&ask.command);
            if is_verb && !is_about_owner(&ask.command) {
                cluster.counts.served(ask.hop);
                return asks.answer(ask).await;
            }
            let is_here = match ask.partition {
                // It is about a ticket that this life of the node gave, or about a session.
                NO_PARTITION | IN_SESSION => cluster.me().is_some_and(|me| me.fence == ask.epoch),
                partition => {
                    let route = cluster.node.route_for_peer(partition, ask.epoch).await;
                    matches!(route, AskRoute::Here { .. })
                }
            };
            if !is_here {
                let reply = [NOT_MINE, b" the partition has another owner.\r\n"].concat();
                return PeerAnswer { row: None, reply };
            }
            cluster.counts.served(ask.hop);
            if is_named_verb(&ask.command, &[verbs::RENEW]) {
                return cluster.answer_renew(&from, &ask);
            }
            if is_verb {
                return asks.answer(ask).await;
            }
            let id = ask
                .holder
                .as_slice()
                .try_into()
                .map_or(0, u64::from_be_bytes);
            let mut session = None;
            if ask.partition == IN_SESSION {
                let ticket = cluster.far_session(&from, id);
                session = ticket.and_then(|ticket| daemon.sessions.find(ticket));
                if session.is_none() {
                    return PeerAnswer::new(SESSION_OVER.to_vec());
                }
            }
            // A node that looks for a value asks the next one if this has none.
            let is_reserve = is_named(&ask.command, "RESERVE");
            let command = RemoteCommand {
                user: Some(ask.user.into_boxed_str()).filter(|user| !user.is_empty()),
                protocol: ask.protocol,
                bytes: ask.command,
                session: session.map(|row| (row.ticket, row.holder)),
                sent: SentCommand {
                    hops: ask.hop,
                    ..SentCommand::default()
                },
                may_wait: !is_reserve || ask.wait.is_none_or(|wait| !wait.is_zero()),
            };
            let is_grant = is_grant(&command.bytes);
            let is_new = command.session.is_none();
            let (reply, session) = remote::execute(&daemon, &from, command).await;
            if let Some(session) = session.filter(|_| is_new) {
                // It is in the session until it leaves, or its answer gets lost.
                cluster.attached(&from, id, session);
                let row = Some([ATTACHED, &id.to_be_bytes()].concat());
                return PeerAnswer { row, reply };
            }
            let row = is_grant.then(|| tickets(&reply)).flatten();
            PeerAnswer { row, reply }
        })
    }

    fn undo(&self, from: &Incarnation, row: Vec<u8>) {
        if let Some(id) = attachment(&row) {
            self.daemon.leave_far(from, id, EndReason::Lost);
            return;
        }
        for ticket in row.split(|byte| *byte == b' ') {
            if let Some((value, fence)) = self.daemon.values.read_ticket(ticket) {
                // It may be given back already, or be another node's.
                let released = self.daemon.values.ranges.release(value, Some(fence));
                if released.into_parts().0.is_err() {
                    let ticket = ticket.to_vec();
                    tokio::spawn(self.values().give_back_elsewhere(value, ticket));
                }
            } else if let Some(ticket) = Ticket::parse(ticket) {
                let _ = self.daemon.release(ticket, None, EndReason::Cancelled);
            }
        }
    }

    fn unclaimed(&self, from: &Incarnation, answer: PeerAnswer) {
        // As where an answer is lost on its way to the client: what it took is held until
        // its time is up. But a connection that is gone is in no session.
        if let Some(id) = answer.row.as_deref().and_then(attachment) {
            self.cluster.leave_far(from, id, EndReason::Lost);
        }
    }
}

/// The attachment that a row stands for, if it does.
fn attachment(row: &[u8]) -> Option<u64> {
    let id = row.strip_prefix(ATTACHED)?.try_into().ok()?;
    Some(u64::from_be_bytes(id))
}

/// Is it for the owner of a partition, and for no other node?
fn is_about_owner(command: &[u8]) -> bool {
    is_named_verb(
        command,
        &[verbs::KEYED, verbs::BY, verbs::LINE, verbs::RENEW],
    )
}

/// Is it one of these?
fn is_named_verb(command: &[u8], all: &[&str]) -> bool {
    let words = verbs::read(command).unwrap_or_default();
    let name = words.first().map_or(&b""[..], Vec::as_slice);
    all.iter().any(|verb| verb.as_bytes() == name)
}

fn is_grant(command: &[u8]) -> bool {
    about(command).is_some_and(|about| about.is_grant)
}

fn is_named(command: &[u8], name: &str) -> bool {
    about(command).is_some_and(|about| about.name == name)
}

/// Which command it is.
fn about(command: &[u8]) -> Option<&'static About> {
    let mut parser = RequestParser::default();
    let read = parser.next(command, &mut 0, &RequestLimits::default());
    let request = read.ok().flatten();
    request.and_then(|request| commands::find(request.name()))
}

/// The tickets that an answer gives. What they stand for is given back if it gets lost.
fn tickets(reply: &[u8]) -> Option<Vec<u8>> {
    let parsed = ReplyParser::default().next(reply, &mut 0, &ReplyLimits::default());
    let mut found = Vec::new();
    let parsed = parsed.ok().flatten()?;
    collect_tickets(&parsed, &mut found);
    let tickets = found.join(&b' ');
    (!tickets.is_empty()).then_some(tickets)
}

fn collect_tickets<'a>(value: &'a Value, found: &mut Vec<&'a [u8]>) {
    match value {
        Value::Bulk(word) if word.starts_with(b"v-") || Ticket::parse(word).is_some() => {
            found.push(word);
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_tickets(part, found)),
        _ => (),
    }
}
