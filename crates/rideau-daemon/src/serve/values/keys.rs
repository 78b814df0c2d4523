//! Keys that at most one record has, while the records are on several nodes.
//!
//! The owner of the partition of a key decides which ask gets it, one after the other. It knows
//! where the record is, or asks all nodes. It takes a value of its own partitions if there is
//! one, so that most commands with a key take one hop.

mod collect;
mod find;

use std::collections::BTreeSet;
use std::sync::Arc;

use rideau::allocator::{Refused, Vouched, parse_value};
use rideau_cluster::{LinkError, PeerAsk};
use rideau_core::cluster::{Incarnation, KeyAt, KeyTurn};
use rideau_resp::Value;
use tokio::time::Instant;

use super::wait::{Attempt, told};
use super::{AskVerdict, Obtained, ValueAsks, error, parse};
use crate::redis::commands::down_text;
use crate::state::cluster::{Cluster, NoRoute, verbs};

/// It is the turn of an ask for a key until this is settled. Dropped before, it leaves the
/// key unsure.
struct KeyLock {
    cluster: Arc<Cluster>,
    at: (u32, u64),
    key: Box<[u8]>,
    is_settled: bool,
}

impl KeyLock {
    fn settle(mut self, at: KeyAt) {
        self.is_settled = true;
        self.tell(at);
    }

    fn tell(&self, at: KeyAt) {
        let (partition, epoch) = self.at;
        let mut keys = self.cluster.keys.lock();
        keys.settle(partition, epoch, &self.key, at);
        drop(keys);
        self.cluster.keys_changed.notify_waiters();
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        if !self.is_settled {
            self.tell(KeyAt::Unsure);
        }
    }
}

impl ValueAsks {
    /// Execute a command that takes a key for its record.
    pub(super) async fn keyed(&self, ask: &PeerAsk, key: &[u8], command: &[u8]) -> Vec<u8> {
        let reply = match self.obtain_keyed(ask, key, command).await {
            Obtained::Nothing if ask.wait.is_none_or(|wait| wait.is_zero()) => {
                self.tell_none(ask, command, None).await
            }
            Obtained::Nothing => {
                let attempt = Attempt::Keyed(key, command);
                self.wait_in_line(ask, attempt).await
            }
            other => told(other),
        };
        let swept = self.cluster.keys.lock().sweep();
        if !swept.is_empty() {
            tokio::spawn(self.clone().sweep(swept));
        }
        reply
    }

    /// Take the key and what goes with it, if that can be had at once.
    pub(super) async fn obtain_keyed(&self, ask: &PeerAsk, key: &[u8], command: &[u8]) -> Obtained {
        let at = (ask.partition, ask.epoch);
        let (lock, known) = match self.take_key(at, key).await {
            Ok(taken) => taken,
            Err(text) => return Obtained::Down(text),
        };
        let values = match known {
            KeyAt::Nowhere => BTreeSet::new(),
            KeyAt::At(values) => values,
            KeyAt::Unsure => match self.find_all(key).await {
                Ok(values) => values,
                // It stays unsure.
                Err(text) => return Obtained::Down(text),
            },
        };
        let (partition, epoch) = at;
        let vouched = Vouched {
            partition,
            epoch,
            beside: None,
        };
        let words = verbs::read(command).unwrap_or_default();
        let is_reserve = words
            .first()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"RESERVE"));
        let obtained = match (is_reserve, words.get(1)) {
            (false, Some(word)) => {
                self.change_keyed(ask, key, command, vouched, &values, word)
                    .await
            }
            _ => {
                self.reserve_keyed(ask, key, command, vouched, &values)
                    .await
            }
        };
        let before = match values.is_empty() {
            true => KeyAt::Nowhere,
            false => KeyAt::At(values),
        };
        match obtained {
            Obtained::Answer(reply) => {
                let taken = values_in(&reply);
                match AskVerdict::of(&reply) == AskVerdict::Done {
                    true if !taken.is_empty() => lock.settle(KeyAt::At(taken)),
                    // It was not a RESERVE: the value stands in the command.
                    true => lock.settle(match self.value_of(words.get(1)) {
                        Some(value) => KeyAt::At([value].into()),
                        None => KeyAt::Unsure,
                    }),
                    false => lock.settle(before),
                }
                Obtained::Answer(reply)
            }
            Obtained::Unknown(text) => {
                lock.settle(KeyAt::Unsure);
                Obtained::Unknown(text)
            }
            other => {
                lock.settle(before);
                other
            }
        }
    }

    /// Give what has the key already, or a value of this node, or one of another.
    async fn reserve_keyed(
        &self,
        ask: &PeerAsk,
        key: &[u8],
        command: &[u8],
        vouched: Vouched,
        values: &BTreeSet<u128>,
    ) -> Obtained {
        let mut values = values.clone();
        if values.len() > 1 {
            // Some of these records are gone.
            values = match self.find_all(key).await {
                Ok(values) => values,
                Err(text) => return Obtained::Down(text),
            };
        }
        let nodes = match self.owners_of(&values) {
            Ok(nodes) => nodes,
            Err(text) => return Obtained::Down(text),
        };
        let beside = values
            .first()
            .map(|value| self.cluster.partitions.of_value(*value));
        let near = Vouched { beside, ..vouched };
        if let Some(node) = nodes.first() {
            match self.run_keyed(node.as_ref(), ask, command, near).await {
                // The record is gone, and that node has nothing else. Before another node
                // gives a value for the key, it has to be written that it is gone.
                Obtained::Nothing => match self.find_all(key).await {
                    Ok(found) if found.is_empty() => (),
                    Ok(_) => {
                        return Obtained::Down(
                            "CLUSTERDOWN the record with the key moves; nothing was done. Ask \
                             again."
                                .into(),
                        );
                    }
                    Err(text) => return Obtained::Down(text),
                },
                other => return other,
            }
        }
        self.obtain(ask, command, Some(vouched)).await
    }

    /// Change a value that a command names, which gets the key.
    async fn change_keyed(
        &self,
        ask: &PeerAsk,
        key: &[u8],
        command: &[u8],
        vouched: Vouched,
        values: &BTreeSet<u128>,
        word: &[u8],
    ) -> Obtained {
        let Some(value) = self.value_of(Some(&word.to_vec())) else {
            // The command is wrong, and the client is told how.
            let reply = self.run_vouched(ask, command, Some(vouched)).await;
            return Obtained::Answer(reply);
        };
        let others: BTreeSet<u128> = values.iter().copied().filter(|of| *of != value).collect();
        if !others.is_empty() {
            match self.find_all(key).await {
                Ok(found) if found.iter().all(|of| *of == value) => (),
                Ok(_) => return Obtained::Down(format!("ERR {}.", Refused::KeyTaken)),
                Err(text) => return Obtained::Down(text),
            }
        }
        let node = match self.owner_of(value) {
            Ok(node) => node,
            Err(partition) => return Obtained::Down(unserved(partition)),
        };
        match self.run_keyed(node.as_ref(), ask, command, vouched).await {
            Obtained::Nothing => Obtained::Down(
                "CLUSTERDOWN the partition changes its owner; nothing was done. Ask again.".into(),
            ),
            other => other,
        }
    }

    /// Have one node execute a command whose key is vouched for.
    async fn run_keyed(
        &self,
        node: Option<&Incarnation>,
        ask: &PeerAsk,
        command: &[u8],
        vouched: Vouched,
    ) -> Obtained {
        let replied = self.run_on(node, ask, command, Some(vouched)).await;
        match (replied, node) {
            (Ok(reply), _) => match AskVerdict::of(&reply) {
                AskVerdict::Done | AskVerdict::Refused => Obtained::Answer(reply),
                AskVerdict::Nothing | AskVerdict::NotMine => Obtained::Nothing,
            },
            (Err(why), Some(node)) => {
                let is_unknown = matches!(why, LinkError::Broken | LinkError::TimedOut);
                let why = NoRoute::Link(node.clone(), why);
                let text = down_text(&self.cluster, &why, true);
                match is_unknown {
                    true => Obtained::Unknown(text),
                    false => Obtained::Down(text),
                }
            }
            (Err(_), None) => Obtained::Nothing,
        }
    }

    /// Execute a command about the record that has a key.
    pub(super) async fn by_key(&self, ask: &PeerAsk, key: &[u8], command: &[u8]) -> Vec<u8> {
        let at = (ask.partition, ask.epoch);
        let known = match self.look_at_key(at, key).await {
            Ok(known) => known,
            Err(text) => return error(text),
        };
        if let KeyAt::At(values) = known
            && let Ok(nodes) = self.owners_of(&values)
            && let [node] = &nodes.into_iter().collect::<Vec<_>>()[..]
        {
            match self.run_on(node.as_ref(), ask, command, None).await {
                Ok(reply) if AskVerdict::of(&reply) != AskVerdict::NotMine => return reply,
                Ok(_) => (),
                Err(why) => return self.unanswered(node.as_ref(), why),
            }
        }
        // Any node may have a record with it, or several.
        let values = match self.find_all(key).await {
            Ok(values) => values,
            Err(text) => return error(text),
        };
        let nodes = match self.owners_of(&values) {
            Ok(nodes) => nodes,
            Err(text) => return error(text),
        };
        let words = verbs::read(command).unwrap_or_default();
        let is_lookup = words
            .first()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"LOOKUP"));
        let mut nodes = nodes.into_iter();
        match (nodes.next(), nodes.next()) {
            // The owner of the key says that there is none.
            (None, _) => self.run_vouched(ask, command, None).await,
            (Some(node), None) => match self.run_on(node.as_ref(), ask, command, None).await {
                Ok(reply) => reply,
                Err(why) => self.unanswered(node.as_ref(), why),
            },
            _ if is_lookup => self.lookup_all(ask, command, &values).await,
            _ => {
                let count = values.len();
                error(format_args!("ERR {}.", Refused::Ambiguous { count }))
            }
        }
    }

    fn unanswered(&self, node: Option<&Incarnation>, why: LinkError) -> Vec<u8> {
        match node {
            Some(node) => {
                let why = NoRoute::Link(node.clone(), why);
                error(down_text(&self.cluster, &why, false))
            }
            None => error("CLUSTERDOWN this node has lost its place in the cluster."),
        }
    }

    /// Wait for the turn of an ask for a key.
    async fn take_key(&self, at: (u32, u64), key: &[u8]) -> Result<(KeyLock, KeyAt), String> {
        let until = Instant::now() + self.cluster.node.options().patience;
        loop {
            let mut changed = std::pin::pin!(self.cluster.keys_changed.notified());
            changed.as_mut().enable();
            let turn = self.cluster.keys.lock().take(at.0, at.1, key);
            match turn {
                KeyTurn::Now(known) => {
                    let lock = KeyLock {
                        cluster: Arc::clone(&self.cluster),
                        at,
                        key: key.into(),
                        is_settled: false,
                    };
                    return Ok((lock, known));
                }
                KeyTurn::Busy => {
                    let turned = tokio::time::timeout_at(until, changed).await;
                    turned.map_err(|_| {
                        "BUSY another ask for the same key is not decided yet: ask again soon."
                            .to_owned()
                    })?;
                }
                KeyTurn::Unready(_) => self.collect_keys(until).await?,
            }
        }
    }

    /// Where a key is, as far as this node knows when all others have reported.
    async fn look_at_key(&self, at: (u32, u64), key: &[u8]) -> Result<KeyAt, String> {
        let until = Instant::now() + self.cluster.node.options().patience;
        loop {
            let known = self.cluster.keys.lock().look(at.0, at.1, key);
            match known {
                Ok(known) => return Ok(known),
                Err(_) => self.collect_keys(until).await?,
            }
        }
    }

    /// The nodes that own these values; this one is none.
    fn owners_of(&self, values: &BTreeSet<u128>) -> Result<BTreeSet<Option<Incarnation>>, String> {
        let owners = values.iter().map(|value| self.owner_of(*value));
        let owners: Result<_, _> = owners.collect();
        owners.map_err(unserved)
    }

    /// The value that a word of a command is, or has a ticket of.
    fn value_of(&self, word: Option<&Vec<u8>>) -> Option<u128> {
        let word = word?;
        match self.daemon.values.read_ticket(word) {
            Some((value, _)) => Some(value),
            None => parse_value(str::from_utf8(word).ok()?)
                .ok()
                .map(|(_, value)| value),
        }
    }
}

fn unserved(partition: u32) -> String {
    format!(
        "CLUSTERDOWN no node serves partition {partition} just now, which may have a record with \
         the key; nothing was done. Ask again."
    )
}

/// The values that an answer of RESERVE gives.
fn values_in(reply: &[u8]) -> BTreeSet<u128> {
    let Some(Value::Array(parts)) = parse(reply) else {
        return BTreeSet::new();
    };
    let text = |part: Option<&Value>| match part {
        Some(Value::Bulk(text)) => parse_value(str::from_utf8(text).ok()?)
            .ok()
            .map(|(_, value)| value),
        _ => None,
    };
    let is_go = matches!(parts.first(), Some(Value::Bulk(word)) if word == b"go");
    if !is_go {
        return BTreeSet::new();
    }
    match parts.get(1) {
        Some(Value::Array(_)) => {
            let rows = parts[1..].iter();
            let rows = rows.filter_map(|row| match row {
                Value::Array(row) => text(row.first()),
                _ => None,
            });
            rows.collect()
        }
        one => text(one).into_iter().collect(),
    }
}
