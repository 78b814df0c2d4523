//! Finds the records with a key by asking all nodes.

use std::collections::{BTreeMap, BTreeSet};

use rideau::allocator::parse_value;
use rideau_cluster::PeerAsk;
use rideau_core::cluster::{Incarnation, SweptKey};
use rideau_resp::{Protocol, Reply, Value};
use tokio::task::JoinSet;

use crate::serve::values::{ValueAsks, elements, error, number, parse, words_of};
use crate::state::cluster::verbs;

impl ValueAsks {
    /// Which values have these keys here, and of which partitions that is told.
    pub(in crate::serve::values) async fn tell_found(&self, keys: &[Vec<u8>]) -> Vec<u8> {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            match self.found_here(key).await {
                Some(found) => all.push(found),
                None => return error("CLUSTERDOWN it is not known what is written."),
            }
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        reply.array(1 + keys.len());
        let served = self.cluster.served();
        reply.array(served.len());
        for (partition, _) in &served {
            reply.bulk(partition.to_string());
        }
        for found in all {
            reply.array(found.len());
            for value in found {
                reply.bulk(value.to_string());
            }
        }
        out
    }

    /// The values that have a key here. What is said is written: a release that is not
    /// would come back with the next owner, and with it the key. None if that is not known.
    async fn found_here(&self, key: &[u8]) -> Option<BTreeSet<u128>> {
        let (seen, until) = self.daemon.values.ranges.find(key).into_parts();
        until.await.ok()?;
        Some(seen.ok()?.iter().map(|seen| seen.value).collect())
    }

    /// The values that have a key on any node. Fails unless all partitions were looked at.
    pub(super) async fn find_all(&self, key: &[u8]) -> Result<BTreeSet<u128>, String> {
        let mut asks = JoinSet::new();
        for node in self.cluster.others() {
            let (asks_of, command) = (self.clone(), verbs::write(verbs::FIND, &[key]));
            asks.spawn(async move { asks_of.query(&node, command).await });
        }
        let served = self.cluster.served().into_iter();
        let mut covered: BTreeSet<u32> = served.map(|(partition, _)| partition).collect();
        let mut values = self.found_here(key).await.unwrap_or_else(|| {
            covered.clear();
            BTreeSet::new()
        });
        while let Some(told) = asks.join_next().await {
            if let Ok(Some(told)) = told
                && let [of, found] = &told[..]
            {
                covered.extend(words_of(of).into_iter().map(|of| number(of) as u32));
                values.extend(values_of(found));
            }
        }
        let all = self.cluster.partitions.count();
        match all as usize - covered.len().min(all as usize) {
            0 => Ok(values),
            missing => Err(format!(
                "CLUSTERDOWN {missing} of {all} partitions cannot be asked for the key just now; \
                 nothing was done. Ask again."
            )),
        }
    }

    /// LOOKUP of a key that several records have, on several nodes.
    pub(super) async fn lookup_all(
        &self,
        ask: &PeerAsk,
        command: &[u8],
        values: &BTreeSet<u128>,
    ) -> Vec<u8> {
        let nodes = match self.owners_of(values) {
            Ok(nodes) => nodes,
            Err(text) => return error(text),
        };
        let words = verbs::read(command).unwrap_or_default();
        let wanted = count_of(&words);
        let command = verbs::write(verbs::PART, &[command]);
        let mut rows: Vec<(u128, Vec<u8>)> = Vec::new();
        let mut whole_until = u128::MAX;
        for node in nodes {
            let ask = PeerAsk {
                command: command.clone(),
                ..ask.clone()
            };
            let reply = match &node {
                None => Box::pin(self.clone().answer(ask)).await.reply,
                Some(node) => match self.run_on(Some(node), &ask, &command, None).await {
                    Ok(reply) => reply,
                    Err(why) => return self.unanswered(Some(node), why),
                },
            };
            if reply.first() == Some(&b'-') {
                return reply;
            }
            let told = elements(&reply);
            let before = rows.len();
            rows.extend(
                told.iter()
                    .filter_map(|row| Some((value_in(row)?, row.to_vec()))),
            );
            let last = rows[before..].iter().map(|(value, _)| *value).max();
            if rows.len() - before < told.len() {
                // There was no room for all that this node has.
                whole_until = whole_until.min(last.unwrap_or(0));
            }
        }
        rows.retain(|(value, _)| *value <= whole_until);
        rows.sort_unstable_by_key(|(value, _)| *value);
        rows.truncate(wanted);
        let is_cut = whole_until < u128::MAX && rows.len() < wanted;
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, ask.protocol);
        reply.array(rows.len() + usize::from(is_cut));
        rows.iter().for_each(|(_, row)| out.extend_from_slice(row));
        if is_cut {
            let key = String::from_utf8_lossy(words.get(2).map_or(&b""[..], |key| key));
            let from = whole_until.saturating_add(1);
            let mut reply = Reply::new(&mut out, ask.protocol);
            let more = format!("there are more: LOOKUP KEY {key} FROM {from} shows them");
            reply.array(1).bulk(more);
        }
        out
    }

    /// Forget keys whose records are gone.
    pub(super) async fn sweep(self, swept: Vec<SweptKey>) {
        let mut by_node: BTreeMap<Option<Incarnation>, Vec<&SweptKey>> = BTreeMap::new();
        for key in &swept {
            if let Ok(nodes) = self.owners_of(&key.values) {
                for node in nodes {
                    by_node.entry(node).or_default().push(key);
                }
            }
        }
        let mut held: BTreeSet<&[u8]> = BTreeSet::new();
        let mut looked: BTreeSet<&[u8]> = BTreeSet::new();
        for (node, keys) in by_node {
            let names: Vec<&[u8]> = keys.iter().map(|key| &*key.key).collect();
            let found: Vec<BTreeSet<u128>> = match &node {
                None => {
                    let mut all = Vec::with_capacity(names.len());
                    for key in &names {
                        match self.found_here(key).await {
                            Some(found) => all.push(found),
                            None => break,
                        }
                    }
                    all
                }
                Some(node) => match self.query(node, verbs::write(verbs::FIND, &names)).await {
                    Some(told) => told.iter().skip(1).map(values_of).collect(),
                    None => continue,
                },
            };
            for (key, found) in names.iter().zip(&found) {
                looked.insert(key);
                if !found.is_empty() {
                    held.insert(key);
                }
            }
        }
        let mut keys = self.cluster.keys.lock();
        for key in &swept {
            if looked.contains(&*key.key) && !held.contains(&*key.key) {
                keys.gone(key);
            }
        }
    }
}

/// The value that a row is about; none if it says how many rows are left.
fn value_in(row: &[u8]) -> Option<u128> {
    let Some(Value::Array(parts)) = parse(row) else {
        return None;
    };
    match &parts[..] {
        [Value::Bulk(text), _, ..] => parse_value(str::from_utf8(text).ok()?)
            .ok()
            .map(|(_, value)| value),
        _ => None,
    }
}

/// How many rows are wanted.
fn count_of(words: &[Vec<u8>]) -> usize {
    let at = words
        .iter()
        .skip(3)
        .position(|word| word.eq_ignore_ascii_case(b"COUNT"));
    let count = at.and_then(|at| words.get(at + 4));
    count.map_or(usize::MAX, |count| number(count) as usize)
}

fn values_of(list: &Value) -> BTreeSet<u128> {
    let words = words_of(list).into_iter();
    let values = words.filter_map(|word| str::from_utf8(word).ok()?.parse().ok());
    values.collect()
}
