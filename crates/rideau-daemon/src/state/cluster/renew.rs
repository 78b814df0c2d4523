//! Leases of regulators that go on: the owner of the partition is asked.

use std::sync::Arc;
use std::time::Duration;

use rideau::Lead;
use rideau_cluster::{PeerAnswer, PeerAsk};
use rideau_core::cluster::{AskRoute, Incarnation};
use rideau_resp::{Protocol, Reply};

use super::{Cluster, NoRoute, verbs};

/// The outcome of an ask to keep a lease.
#[derive(Debug)]
pub(crate) enum Renewed {
    /// It goes on: for how long the valve has been open for that, and how long the answer
    /// took.
    Go(Lead, Duration),
    /// It is over. How long the answer took.
    Stopped(Duration),
    /// There is no such lease.
    Gone,
    /// No owner said anything.
    Down(NoRoute),
}

/// How another node says that it does not own the partition.
const NOT_MINE: &[u8] = b"-NOTMINE";

impl Cluster {
    /// Ask to keep the lease with this ticket of a row.
    pub(crate) async fn renew(self: &Arc<Self>, partition: u32, row: u64) -> Renewed {
        let mut ask = PeerAsk {
            hop: 1,
            partition,
            epoch: 0,
            holder: Vec::new(),
            user: String::new(),
            wait: None,
            protocol: Protocol::Resp2,
            command: verbs::write(verbs::RENEW, &[row.to_string()]),
        };
        for _ in 0..2 {
            let answer = match self.route(partition, None).await {
                AskRoute::Here { epoch } => {
                    (ask.hop, ask.epoch) = (0, epoch);
                    let answer = self.ask_self(ask.clone()).await;
                    answer.map_err(|error| (self.me(), error))
                }
                AskRoute::Hop { to, epoch } => {
                    (ask.hop, ask.epoch) = (1, epoch);
                    let answer = self.ask(&to, &ask).await;
                    answer.map_err(|error| (Some(to), error))
                }
                AskRoute::NotMine { .. } => return Renewed::Down(NoRoute::Moved),
                AskRoute::Down(reason) => return Renewed::Down(NoRoute::Down(reason)),
            };
            match answer {
                Ok(answer) if answer.reply.starts_with(NOT_MINE) => {
                    self.moved(partition, ask.epoch).await;
                }
                Ok(answer) => return read(&answer.reply),
                Err((to, error)) => {
                    let to = to.unwrap_or_else(|| Incarnation::new("", 0));
                    return Renewed::Down(NoRoute::Link(to, error));
                }
            }
        }
        Renewed::Down(NoRoute::Moved)
    }

    /// Answer another node, or this one, that wants to keep a lease of its client.
    pub(crate) fn answer_renew(&self, from: &Incarnation, ask: &PeerAsk) -> PeerAnswer {
        let words = verbs::read(&ask.command).unwrap_or_default();
        let row = words.get(1).and_then(|word| str::from_utf8(word).ok());
        let row = row.and_then(|word| word.parse().ok()).unwrap_or(0);
        let renewed = self.renew_here(ask.partition, &(from.clone(), row));
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
        match renewed {
            Some(Ok((lead, waited))) => {
                let reply = reply.array(3).bulk("go");
                reply.bulk(lead.as_nanos().to_string()).bulk(nanos(waited));
            }
            Some(Err(waited)) => _ = reply.array(2).bulk("stop").bulk(nanos(waited)),
            None => _ = reply.array(1).bulk("gone"),
        }
        PeerAnswer {
            row: None,
            reply: bytes,
        }
    }
}

fn nanos(span: Duration) -> String {
    span.as_nanos().to_string()
}

fn read(reply: &[u8]) -> Renewed {
    let words = verbs::read(reply).unwrap_or_default();
    let number = |at: usize| {
        let word = words.get(at).and_then(|word| str::from_utf8(word).ok());
        word.and_then(|word| word.parse::<i64>().ok()).unwrap_or(0)
    };
    let span = |at| Duration::from_nanos(number(at).unsigned_abs());
    match words.first().map(Vec::as_slice) {
        Some(b"go") => Renewed::Go(Lead::from_nanos(number(1)), span(2)),
        Some(b"stop") => Renewed::Stopped(span(1)),
        _ => Renewed::Gone,
    }
}
