//! Commands that concern what all nodes have: each does its part, and the parts are put
//! together. If a node does not do its part, the client is told which.

use std::collections::BTreeMap;

use rideau_cluster::PeerAsk;
use rideau_core::cluster::Incarnation;
use rideau_resp::{Reply, Upper, Value};
use tokio::task::JoinSet;

use super::{AskVerdict, ValueAsks, elements, error, number, parse};
use crate::redis::client::SentCommand;
use crate::state::cluster::verbs;

/// How many rows RANGE.LS has without COUNT.
const ROWS: u64 = 100;

impl ValueAsks {
    /// Have all nodes do their part of a command.
    pub(super) async fn everywhere(&self, ask: &PeerAsk, command: &[u8]) -> Vec<u8> {
        let words = verbs::read(command).unwrap_or_default();
        match Upper::of(words.first().map_or(&b""[..], |name| name)).as_bytes() {
            b"RANGE.LS" => self.list(ask, &words).await,
            b"RANGE.RELEASE" => self.release_all(ask, command).await,
            b"SHOW" => self.show_all(ask, words).await,
            _ => self.count_all(ask, command).await,
        }
    }

    /// Have a node do its part of a command.
    async fn part_of(
        &self,
        node: Option<&Incarnation>,
        ask: &PeerAsk,
        command: &[u8],
    ) -> Option<Vec<u8>> {
        match node {
            None => {
                let sent = SentCommand {
                    is_part: true,
                    ..SentCommand::default()
                };
                Some(self.run(ask, command, sent).await)
            }
            Some(node) => {
                let part = verbs::write(verbs::PART, &[command]);
                self.run_on(Some(node), ask, &part, None).await.ok()
            }
        }
    }

    /// The answers of all nodes to a command, and the names of those without an answer.
    async fn parts(&self, ask: &PeerAsk, command: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
        let (parts, lost) = self.named_parts(ask, command).await;
        (parts.into_iter().map(|(_, reply)| reply).collect(), lost)
    }

    /// The same, with the names of the nodes that answered.
    async fn named_parts(
        &self,
        ask: &PeerAsk,
        command: &[u8],
    ) -> (Vec<(String, Vec<u8>)>, Vec<String>) {
        let mut asks = JoinSet::new();
        for node in self.cluster.others() {
            let (asks_of, ask, command) = (self.clone(), ask.clone(), command.to_vec());
            asks.spawn(async move {
                let part = asks_of.part_of(Some(&node), &ask, &command).await;
                match part {
                    Some(reply) => Ok((node.name, reply)),
                    None => Err(node.name),
                }
            });
        }
        let here = self.part_of(None, ask, command).await;
        let name = self.cluster.node.options().name.clone();
        let mut replies: Vec<_> = here
            .into_iter()
            .map(|reply| (name.clone(), reply))
            .collect();
        let mut lost = Vec::new();
        while let Some(part) = asks.join_next().await {
            match part {
                Ok(Ok(reply)) => replies.push(reply),
                Ok(Err(name)) => lost.push(name),
                Err(_) => lost.push("one that failed".into()),
            }
        }
        lost.sort_unstable();
        replies.sort_unstable();
        (replies, lost)
    }

    /// The rows of a table on all nodes, each with the name of its node. A node without an
    /// answer has a row that says so.
    async fn show_all(&self, ask: &PeerAsk, mut words: Vec<Vec<u8>>) -> Vec<u8> {
        words.retain(|word| !word.eq_ignore_ascii_case(b"CLUSTER"));
        if words.iter().any(|word| word.eq_ignore_ascii_case(b"FROM")) {
            return error("ERR SHOW has no FROM with CLUSTER: COUNT counts on each node.");
        }
        let command = verbs::write("SHOW", words.get(1..).unwrap_or_default());
        let (replies, lost) = self.named_parts(ask, &command).await;
        let (mut head, mut rows) = (Vec::new(), Vec::new());
        for (node, reply) in &replies {
            if reply.starts_with(b"-") {
                return reply.clone();
            }
            let mut parts = elements(reply).into_iter();
            if let Some(columns) = parts.next().filter(|_| head.is_empty()) {
                head = columns.to_vec();
            }
            rows.extend(parts.map(|row| (node, row)));
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, ask.protocol);
        reply.array(1 + rows.len() + lost.len());
        let mut row = |name: &str, cells: &[u8]| {
            let cells = elements(cells);
            let mut reply = Reply::new(&mut out, ask.protocol);
            reply.array(1 + cells.len()).bulk(name);
            cells.iter().for_each(|cell| out.extend_from_slice(cell));
        };
        row("node", &head);
        rows.iter().for_each(|(node, cells)| row(node, cells));
        for name in &lost {
            let mut said = Vec::new();
            Reply::new(&mut said, ask.protocol)
                .array(1)
                .bulk("no answer came");
            row(name, &said);
        }
        out
    }

    /// Give back what matches on all nodes.
    async fn release_all(&self, ask: &PeerAsk, command: &[u8]) -> Vec<u8> {
        let (replies, lost) = self.parts(ask, command).await;
        let mut released = 0;
        for reply in &replies {
            match parse(reply) {
                Some(Value::Integer(count)) => released += count,
                _ => return reply.clone(),
            }
        }
        let unserved = self.cluster.unserved();
        if !lost.is_empty() || unserved > 0 {
            let lost = match lost.is_empty() {
                true => format!("{unserved} partitions have no owner"),
                false => format!("no answer came from {}", lost.join(", ")),
            };
            return error(format_args!(
                "UNKNOWN {released} values were released, but {lost}: send it again."
            ));
        }
        let mut out = Vec::new();
        Reply::new(&mut out, ask.protocol).integer(released);
        out
    }

    /// Add up what all nodes count.
    async fn count_all(&self, ask: &PeerAsk, command: &[u8]) -> Vec<u8> {
        let (replies, lost) = self.parts(ask, command).await;
        let unserved = self.cluster.unserved();
        if !lost.is_empty() || unserved > 0 {
            let lost = match lost.is_empty() {
                true => format!("{unserved} partitions have no owner"),
                false => format!("no answer came from {}", lost.join(", ")),
            };
            return error(format_args!("CLUSTERDOWN {lost}. Ask again."));
        }
        let mut order = Vec::new();
        let mut sums: BTreeMap<Vec<u8>, Summed> = BTreeMap::new();
        for reply in &replies {
            if AskVerdict::of(reply) == AskVerdict::Refused {
                return reply.clone();
            }
            for (name, value) in fields(reply) {
                match sums.get_mut(&name) {
                    Some(sum) => sum.add(&value),
                    None => {
                        order.push(name.clone());
                        sums.insert(name, Summed::of(&value));
                    }
                }
            }
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, ask.protocol);
        reply.map(order.len());
        for name in &order {
            reply.bulk(name);
            match &sums[name] {
                Summed::Text(text) => reply.bulk(text),
                Summed::Number(sum) => match i64::try_from(*sum) {
                    Ok(sum) => reply.integer(sum),
                    Err(_) => reply.bulk(sum.to_string()),
                },
            };
        }
        out
    }

    /// Some reservations, partition by partition, from where the cursor is.
    async fn list(&self, ask: &PeerAsk, words: &[Vec<u8>]) -> Vec<u8> {
        let (mut count, mut cursor, mut others) = (ROWS, 0, Vec::new());
        let mut rest = words.iter().skip(1);
        while let Some(word) = rest.next() {
            match Upper::of(word).as_bytes() {
                b"COUNT" => count = rest.next().map_or(ROWS, |word| number(word)),
                b"CURSOR" => cursor = rest.next().map_or(0, |word| number(word)),
                _ => others.push(word.clone()),
            }
        }
        let mut rows: Vec<Vec<u8>> = Vec::new();
        while (rows.len() as u64) < count {
            let partition = (cursor >> u32::BITS) as u32;
            if partition >= self.cluster.partitions.count() {
                cursor = 0;
                break;
            }
            let left = count - rows.len() as u64;
            let mut page = others.clone();
            let more = ["COUNT", &left.to_string(), "CURSOR", &cursor.to_string()];
            page.extend(more.map(|word| word.as_bytes().to_vec()));
            let page = verbs::write("RANGE.LS", &page);
            let reply = match self.node_of(partition) {
                Some(node) => self.part_of(node.as_ref(), ask, &page).await,
                None => None,
            };
            let Some(reply) = reply.filter(|reply| AskVerdict::of(reply) != AskVerdict::NotMine)
            else {
                return error(format_args!(
                    "CLUSTERDOWN no node told what partition {partition} has: ask again with \
                     CURSOR {cursor}."
                ));
            };
            let parts = elements(&reply);
            let ([Some(Value::Integer(next)), _], [_, told]) = (
                [parts.first().and_then(|part| parse(part)), None],
                &parts[..],
            ) else {
                return reply;
            };
            rows.extend(elements(told).into_iter().map(<[u8]>::to_vec));
            cursor = next.unsigned_abs();
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, ask.protocol);
        let next = i64::try_from(cursor).unwrap_or(0);
        reply.array(2).integer(next).array(rows.len());
        rows.iter().for_each(|row| out.extend_from_slice(row));
        out
    }

    /// The node that owns a partition; this one is none. None at all if no node does.
    fn node_of(&self, partition: u32) -> Option<Option<Incarnation>> {
        if self.cluster.node.serves(partition).is_some() {
            return Some(None);
        }
        let table = self.cluster.node.table();
        let (owner, _) = table.owner(partition)?;
        (table.me.as_ref() != Some(owner)).then(|| Some(owner.clone()))
    }
}

/// Answers of several nodes about one thing, added up.
enum Summed {
    Text(Vec<u8>),
    Number(u128),
}

impl Summed {
    fn of(value: &Value) -> Self {
        match (number_of(value), value) {
            (Some(number), _) => Self::Number(number),
            (None, Value::Bulk(text)) => Self::Text(text.clone()),
            (None, _) => Self::Text(Vec::new()),
        }
    }

    fn add(&mut self, value: &Value) {
        if let (Self::Number(sum), Some(number)) = (self, number_of(value)) {
            *sum = sum.saturating_add(number);
        }
    }
}

fn number_of(value: &Value) -> Option<u128> {
    match value {
        Value::Integer(number) => u128::try_from(*number).ok(),
        _ => None,
    }
}

/// The fields of a map, in either protocol.
fn fields(reply: &[u8]) -> Vec<(Vec<u8>, Value)> {
    let named = |(name, value)| match name {
        Value::Bulk(name) => Some((name, value)),
        _ => None,
    };
    match parse(reply) {
        Some(Value::Map(pairs)) => pairs.into_iter().filter_map(named).collect(),
        Some(Value::Array(parts)) => {
            let (mut pairs, mut parts) = (Vec::new(), parts.into_iter());
            while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                pairs.extend(named((name, value)));
            }
            pairs
        }
        _ => Vec::new(),
    }
}
