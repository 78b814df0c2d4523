//! Several values at once, of several nodes.
//!
//! If no node has enough, each gives a part for a few seconds. When all are
//! there, they are held for as long as was wanted; else they are given back. What is left of
//! a node that fails in between ends by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use rideau::allocator::{Vouched, parse_value};
use rideau_cluster::PeerAsk;
use rideau_core::cluster::Incarnation;
use rideau_resp::{Reply, Upper, Value};

use super::obtain::PART_TTL;
use super::{AskVerdict, Obtained, ValueAsks, number, parse, wishes};
use crate::state::cluster::verbs;

/// A value that a node gave as a part.
struct PartValue {
    value: u128,
    text: Vec<u8>,
    ticket: Vec<u8>,
    left: i64,
    tier: Vec<u8>,
    hops: i64,
    fence: i64,
}

/// The values that each node gave; the key of this node is `None`.
type Given = BTreeMap<Option<Incarnation>, Vec<PartValue>>;

impl ValueAsks {
    /// Take all values from several nodes, or none.
    pub(super) async fn split(
        &self,
        ask: &PeerAsk,
        command: &[u8],
        vouched: Option<Vouched>,
    ) -> Obtained {
        if vouched.is_some() {
            return Obtained::Down(
                "ERR no node has that many values: COUNT with ID takes values of one node \
                 only."
                    .into(),
            );
        }
        let count = wishes(command).count;
        let mut given = Given::new();
        let nodes = self.cluster.others().into_iter().map(Some);
        for node in std::iter::once(None).chain(nodes) {
            let had: usize = given.values().map(Vec::len).sum();
            let left = count - had as u64;
            if left == 0 {
                break;
            }
            let part = part_of(command, left);
            match self.run_on(node.as_ref(), ask, &part, None).await {
                Ok(reply) if AskVerdict::of(&reply) == AskVerdict::Done => {
                    given.insert(node, values_of(&reply));
                }
                Ok(reply) if AskVerdict::of(&reply) == AskVerdict::Refused => {
                    self.give_back(ask, given).await;
                    return Obtained::Answer(reply);
                }
                // Another may have more than it said.
                Ok(_) | Err(_) => (),
            }
        }
        let had: usize = given.values().map(Vec::len).sum();
        if (had as u64) < count {
            self.give_back(ask, given).await;
            return Obtained::Nothing;
        }
        match self.hold_all(ask, command, &mut given).await {
            true => Obtained::Answer(write(ask, &given)),
            false => {
                self.give_back(ask, given).await;
                Obtained::Down(
                    "CLUSTERDOWN a node that gave some of the values did not keep them; nothing \
                     is held. Ask again."
                        .into(),
                )
            }
        }
    }

    /// Hold all parts for as long as was wanted.
    async fn hold_all(&self, ask: &PeerAsk, command: &[u8], given: &mut Given) -> bool {
        let wanted = wishes(command).ttl;
        for (node, parts) in given {
            let mut words = Vec::new();
            for part in &*parts {
                let ttl = wanted.unwrap_or_else(|| self.offered(part.value));
                words.extend([part.ticket.clone(), b"TTL".to_vec()]);
                words.push(ttl.to_string().into_bytes());
            }
            let refresh = verbs::write("REFRESH", &words);
            let Ok(reply) = self.run_on(node.as_ref(), ask, &refresh, None).await else {
                return false;
            };
            let Some(Value::Array(rows)) = parse(&reply) else {
                return false;
            };
            let rows = match &rows[..] {
                [Value::Bulk(_), ..] => vec![Value::Array(rows)],
                _ => rows,
            };
            if rows.len() != parts.len() {
                return false;
            }
            for (row, part) in rows.iter().zip(parts) {
                match row {
                    Value::Array(row) => match &row[..] {
                        [Value::Bulk(ok), Value::Integer(left), _] if ok == b"ok" => {
                            part.left = *left;
                        }
                        _ => return false,
                    },
                    _ => return false,
                }
            }
        }
        true
    }

    /// For how long the range of a value offers it, in milliseconds.
    fn offered(&self, value: u128) -> u64 {
        let catalog = self.daemon.catalog.load();
        let range = catalog.ranges.of(value).map(|(place, _)| place.id);
        let options = range.and_then(|id| self.daemon.values.ranges.options(id));
        let ttl = options.map_or(PART_TTL, |options| options.offer_ttl);
        u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
    }

    async fn give_back(&self, ask: &PeerAsk, given: Given) {
        for (node, parts) in given {
            for part in parts {
                let release = verbs::write("RELEASE", &[part.ticket]);
                // What cannot be given back ends by itself.
                let _ = self.run_on(node.as_ref(), ask, &release, None).await;
            }
        }
    }
}

/// The same command for fewer values, for a few seconds.
fn part_of(command: &[u8], count: u64) -> Vec<u8> {
    let words = verbs::read(command).unwrap_or_default();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut ttl = PART_TTL;
    let mut rest = words.into_iter().skip(1);
    while let Some(word) = rest.next() {
        match Upper::of(&word).as_bytes() {
            b"COUNT" | b"WAIT" | b"DEADLINE" => _ = rest.next(),
            b"PARTIAL" => (),
            b"TTL" => {
                let wanted = rest.next().map_or(0, |word| number(&word));
                ttl = ttl.min(Duration::from_millis(wanted));
            }
            b"SET" => {
                kept.push(word);
                kept.extend(rest.next());
                kept.extend(rest.next());
            }
            b"PREFER" | b"SECONDARY" | b"HINT" | b"KEY" | b"DATA" | b"UNSET" | b"NOTE" => {
                kept.push(word);
                kept.extend(rest.next());
            }
            _ => kept.push(word),
        }
    }
    let count = count.to_string();
    let ttl = ttl.as_millis().max(1).to_string();
    let added = ["COUNT", &count, "PARTIAL", "TTL", &ttl];
    kept.extend(added.map(|word| word.as_bytes().to_vec()));
    verbs::write("RESERVE", &kept)
}

/// The values that were given.
fn values_of(reply: &[u8]) -> Vec<PartValue> {
    let Some(Value::Array(rows)) = parse(reply) else {
        return Vec::new();
    };
    let value = |row: &Value| match row {
        Value::Array(row) => match &row[..] {
            [
                Value::Bulk(text),
                Value::Bulk(ticket),
                Value::Integer(left),
                Value::Bulk(tier),
                Value::Integer(hops),
                Value::Integer(fence),
            ] => Some(PartValue {
                value: parse_value(std::str::from_utf8(text).ok()?).ok()?.1,
                text: text.clone(),
                ticket: ticket.clone(),
                left: *left,
                tier: tier.clone(),
                hops: *hops,
                fence: *fence,
            }),
            _ => None,
        },
        _ => None,
    };
    rows.iter().skip(1).filter_map(value).collect()
}

/// The answer of a RESERVE that has all of them.
fn write(ask: &PeerAsk, given: &Given) -> Vec<u8> {
    let all: Vec<&PartValue> = given.values().flatten().collect();
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, ask.protocol);
    reply.array(1 + all.len()).bulk("go");
    for part in all {
        reply
            .array(6)
            .bulk(&part.text)
            .bulk(&part.ticket)
            .integer(part.left)
            .bulk(&part.tier)
            .integer(part.hops)
            .integer(part.fence);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_command_for_fewer_and_not_for_long() {
        let whole = "a COUNT 9 DATA COUNT SET TTL 5 TTL 100000 PREFER b WAIT 10 KEY PARTIAL";
        let words: Vec<&str> = whole.split(' ').collect();
        let part = verbs::read(&part_of(&verbs::write("RESERVE", &words), 4)).unwrap();
        let part: Vec<_> = part
            .iter()
            .map(|word| str::from_utf8(word).unwrap())
            .collect();
        let wanted = "RESERVE a DATA COUNT SET TTL 5 PREFER b KEY PARTIAL COUNT 4 PARTIAL TTL 5000";
        assert_eq!(part.join(" "), wanted);
    }
}
