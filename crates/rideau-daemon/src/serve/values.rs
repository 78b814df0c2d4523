//! What nodes ask each other about values, besides commands of clients, answered here.
//!
//! A node asks itself in the same way: where a value is looked for on several nodes, the node
//! that a client is connected to is one of them.

mod keys;
mod looks;
mod obtain;
mod parts;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use rideau::allocator::Vouched;
use rideau_cluster::{LinkError, PeerAnswer, PeerAsk};
use rideau_core::cluster::Incarnation;
use rideau_resp::{Protocol, Reply, ReplyLimits, ReplyParser, Value};

use crate::redis::client::SentCommand;
use crate::redis::commands::{NOT_MINE, ValueAsk};
use crate::redis::remote::{self, RemoteCommand};
use crate::state::cluster::{Cluster, verbs};
use crate::state::daemon::Daemon;
use wait::Attempt;

/// Answers what nodes ask about values.
#[derive(Clone)]
pub(super) struct ValueAsks {
    pub(super) daemon: Arc<Daemon>,
    pub(super) cluster: Arc<Cluster>,
}

/// The result of looking for a value.
enum Obtained {
    /// This is what the client is told.
    Answer(Vec<u8>),
    /// Nothing is free on any node.
    Nothing,
    /// It cannot be had, and this is why. Nothing was taken.
    Down(String),
    /// Something may have been taken that is not known.
    Unknown(String),
}

/// How a node has answered a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AskVerdict {
    /// It has done it.
    Done,
    /// It has nothing free.
    Nothing,
    /// It does not own what it would need for it.
    NotMine,
    /// It did not do it, and says why.
    Refused,
}

impl AskVerdict {
    fn of(reply: &[u8]) -> Self {
        let head = &reply[..reply.len().min(32)];
        let has = |word: &[u8]| head.windows(word.len()).any(|part| part == word);
        match reply.first() {
            Some(b'-') if reply.starts_with(NOT_MINE) => Self::NotMine,
            Some(b'-') if reply.starts_with(b"-CLUSTERDOWN partition ") => Self::NotMine,
            Some(b'-') => Self::Refused,
            _ if has(b"\r\nnone\r\n") => Self::Nothing,
            _ if has(b"\r\ntaken\r\n") => Self::Refused,
            _ => Self::Done,
        }
    }
}

impl ValueAsks {
    /// Answer what a node asks.
    pub(super) async fn answer(self, ask: PeerAsk) -> PeerAnswer {
        let words = verbs::read(&ask.command).unwrap_or_default();
        let name = words.first().map(|name| String::from_utf8_lossy(name));
        let (reply, takes) = match (name.as_deref(), words.get(1..).unwrap_or_default()) {
            (Some(verbs::SEEK), [command]) => (self.seek(&ask, command).await, true),
            (Some(verbs::LINE), [command]) => {
                let attempt = Attempt::Plain(command);
                (self.wait_in_line(&ask, attempt).await, true)
            }
            (Some(verbs::KEYED), [key, command]) => (self.keyed(&ask, key, command).await, true),
            (Some(verbs::BY), [key, command]) => (self.by_key(&ask, key, command).await, false),
            (Some(verbs::VOUCHED), [partition, epoch, beside, command]) => {
                let vouched = Vouched {
                    partition: number(partition) as u32,
                    epoch: number(epoch),
                    beside: (!beside.is_empty()).then(|| number(beside) as u32),
                };
                let reply = self.run_vouched(&ask, command, Some(vouched)).await;
                (reply, true)
            }
            (Some(verbs::FREE), ranges) => (self.tell_free(ranges), false),
            (Some(verbs::REPORT), [cursor, wanted @ ..]) => {
                (self.report(cursor, wanted).await, false)
            }
            (Some(verbs::FIND), keys) => (self.tell_found(keys).await, false),
            (Some(verbs::ALL), [command]) => (self.everywhere(&ask, command).await, false),
            (Some(verbs::PART), [command]) => {
                let sent = SentCommand {
                    is_part: true,
                    hops: ask.hop,
                    ..SentCommand::default()
                };
                (self.run(&ask, command, sent).await, false)
            }
            _ => {
                let text = "-ERR this node does not know what another asks: run the same release \
                            on both.\r\n";
                (text.as_bytes().to_vec(), false)
            }
        };
        let row = takes.then(|| tickets(&reply)).flatten();
        PeerAnswer { row, reply }
    }

    /// Have this node execute a command. It does not wait.
    async fn run(&self, ask: &PeerAsk, command: &[u8], sent: SentCommand) -> Vec<u8> {
        let table = self.cluster.node.table();
        let Some(me) = &table.me else {
            return error("CLUSTERDOWN this node has lost its place in the cluster.");
        };
        let command = RemoteCommand {
            user: Some(ask.user.clone().into_boxed_str()).filter(|user| !user.is_empty()),
            protocol: ask.protocol,
            bytes: command.to_vec(),
            session: None,
            sent,
            may_wait: false,
        };
        remote::execute(&self.daemon, me, command).await.0
    }

    /// The same, of a command whose key is vouched for, if it has one.
    async fn run_vouched(
        &self,
        ask: &PeerAsk,
        command: &[u8],
        vouched: Option<Vouched>,
    ) -> Vec<u8> {
        let sent = SentCommand {
            hops: ask.hop,
            vouched,
            ..SentCommand::default()
        };
        self.run(ask, command, sent).await
    }

    /// Have a node execute a command, this one or another.
    async fn run_on(
        &self,
        node: Option<&Incarnation>,
        ask: &PeerAsk,
        command: &[u8],
        vouched: Option<Vouched>,
    ) -> Result<Vec<u8>, LinkError> {
        let Some(node) = node else {
            return Ok(self.run_vouched(ask, command, vouched).await);
        };
        let (partition, epoch) = self.cluster.first_of(node).ok_or(LinkError::NoLink)?;
        let command = match vouched {
            None => command.to_vec(),
            Some(vouched) => {
                let beside = vouched.beside.map(|beside| beside.to_string());
                let (partition, epoch) = (vouched.partition.to_string(), vouched.epoch.to_string());
                let beside = beside.unwrap_or_default();
                let [partition, epoch, beside] =
                    [&partition, &epoch, &beside].map(|text| text.as_bytes());
                verbs::write(verbs::VOUCHED, &[partition, epoch, beside, command])
            }
        };
        let ask = PeerAsk {
            hop: ask.hop.saturating_add(1),
            partition,
            epoch,
            wait: Some(Duration::ZERO),
            command,
            ..ask.clone()
        };
        self.cluster
            .ask(node, &ask)
            .await
            .map(|answer| answer.reply)
    }

    /// Ask a node something that no client has asked, and read what it says.
    async fn query(&self, node: &Incarnation, command: Vec<u8>) -> Option<Vec<Value>> {
        let (partition, epoch) = self.cluster.first_of(node)?;
        let ask = PeerAsk {
            hop: 1,
            partition,
            epoch,
            holder: Vec::new(),
            user: String::new(),
            wait: Some(Duration::ZERO),
            protocol: Protocol::Resp2,
            command,
        };
        let answer = self.cluster.ask(node, &ask).await.ok()?;
        match parse(&answer.reply)? {
            Value::Array(parts) => Some(parts),
            _ => None,
        }
    }

    /// The node that owns a value: this one is none. Fails if no node does.
    fn owner_of(&self, value: u128) -> Result<Option<Incarnation>, u32> {
        let partition = self.cluster.partitions.of_value(value);
        if self.cluster.node.serves(partition).is_some() {
            return Ok(None);
        }
        let table = self.cluster.node.table();
        let owner = table.owner(partition).map(|(owner, _)| owner);
        let other = owner.filter(|owner| table.me.as_ref() != Some(*owner));
        other.cloned().map(Some).ok_or(partition)
    }

    /// Give a value of another node back that a client does not want any more. What cannot
    /// be given back ends by itself.
    pub(super) async fn give_back_elsewhere(self, value: u128, ticket: Vec<u8>) {
        if let Ok(Some(node)) = self.owner_of(value) {
            let _ = self.query(&node, verbs::write("RELEASE", &[ticket])).await;
        }
    }

    /// How much this node has free of ranges, if it serves all that it owns.
    fn tell_free(&self, ranges: &[Vec<u8>]) -> Vec<u8> {
        if self.cluster.is_partly_closed() {
            return error("NOTMINE this node does not serve all that it owns just now.");
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        reply.array(ranges.len());
        for range in ranges {
            let free = self.free_here(std::str::from_utf8(range).unwrap_or_default());
            reply.bulk(free.to_string());
        }
        out
    }

    fn free_here(&self, range: &str) -> u64 {
        let ranges = &self.daemon.values.ranges;
        let stats = ranges.range(range).and_then(|id| ranges.stats(id));
        stats.map_or(0, |stats| stats.free.to_u64_saturating())
    }
}

/// The values that a command wants.
fn wishes(command: &[u8]) -> ValueAsk {
    let words = verbs::read(command).unwrap_or_default();
    ValueAsk::of(words.iter().map(Vec::as_slice))
}

/// An error as a client is told it.
fn error(text: impl std::fmt::Display) -> Vec<u8> {
    let mut out = Vec::new();
    Reply::new(&mut out, Protocol::Resp2).error(text);
    out
}

fn parse(reply: &[u8]) -> Option<Value> {
    let limits = ReplyLimits {
        frame_max: reply.len().max(1),
        bulk_max: reply.len().max(1),
        ..ReplyLimits::default()
    };
    let parsed = ReplyParser::default().next(reply, &mut 0, &limits);
    parsed.ok().flatten()
}

/// The number that a word is, or zero.
fn number(word: &[u8]) -> u64 {
    let text = std::str::from_utf8(word).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The words of a list.
fn words_of(value: &Value) -> Vec<&[u8]> {
    fn word(part: &Value) -> Option<&[u8]> {
        match part {
            Value::Bulk(word) => Some(word),
            _ => None,
        }
    }
    match value {
        Value::Array(parts) => parts.iter().filter_map(word).collect(),
        _ => Vec::new(),
    }
}

/// The elements of an array, as they are written.
fn elements(reply: &[u8]) -> Vec<&[u8]> {
    let head = reply.iter().position(|byte| *byte == b'\n');
    let mut at = head.map_or(reply.len(), |end| end + 1);
    let limits = ReplyLimits {
        frame_max: reply.len().max(1),
        bulk_max: reply.len().max(1),
        ..ReplyLimits::default()
    };
    let mut found = Vec::new();
    while at < reply.len() {
        let from = at;
        match ReplyParser::default().next(reply, &mut at, &limits) {
            Ok(Some(_)) if at > from => found.push(&reply[from..at]),
            _ => break,
        }
    }
    found
}

/// The tickets of values that an answer to RESERVE gives. They are given back if it gets
/// lost.
pub(super) fn tickets(reply: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    let parsed = parse(reply)?;
    collect_tickets(&parsed, &mut found);
    let tickets = found.join(&b' ');
    (!tickets.is_empty()).then_some(tickets)
}

fn collect_tickets<'a>(value: &'a Value, found: &mut Vec<&'a [u8]>) {
    match value {
        Value::Bulk(word) if word.starts_with(b"v-") => found.push(word),
        Value::Array(parts) => parts.iter().for_each(|part| collect_tickets(part, found)),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_as_they_are_written() {
        let reply = b"*2\r\n*1\r\n$1\r\na\r\n:7\r\n";
        assert_eq!(elements(reply), [&b"*1\r\n$1\r\na\r\n"[..], b":7\r\n"]);
        assert!(elements(b"*0\r\n").is_empty());
    }

    #[test]
    fn answers_are_told_apart() {
        for (reply, verdict) in [
            (&b"*7\r\n$2\r\ngo\r\n$1\r\n5\r\n"[..], AskVerdict::Done),
            (b"*4\r\n$4\r\nnone\r\n:0\r\n", AskVerdict::Nothing),
            (b"*2\r\n$5\r\ntaken\r\n", AskVerdict::Refused),
            (b"-NOTMINE no.\r\n", AskVerdict::NotMine),
            (
                b"-CLUSTERDOWN partition 3 has gone.\r\n",
                AskVerdict::NotMine,
            ),
            (b"-CLUSTERDOWN no node.\r\n", AskVerdict::Refused),
            (b"-ERR none\r\n", AskVerdict::Refused),
        ] {
            assert_eq!(AskVerdict::of(reply), verdict, "{reply:?}");
        }
    }
}
