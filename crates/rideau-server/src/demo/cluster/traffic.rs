//! Clients with plain connections to any node, which reserve values and give them back.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau::Histogram;
use rideau_core::Rng;
use rideau_resp::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ledger::{Ledger, TTL, is_later};
use crate::wire::{Server, Wire, WireFault};

const CLIENTS: u64 = 12;
/// How many values a client holds, about.
const HELD: u64 = 200;
/// A client that has lost its node goes to the next after this long.
const NEXT: Duration = Duration::from_millis(200);

/// All clients.
pub(super) struct ShopTraffic {
    score: Arc<Mutex<Score>>,
    ledger: Ledger,
    end: watch::Sender<bool>,
    clients: JoinSet<()>,
}

/// Outcomes of the asks of the last second.
#[derive(Default)]
pub(super) struct Score {
    /// Values that were given out.
    pub(super) reserved: u64,
    /// Values that were given back.
    pub(super) released: u64,
    /// Asks that no node could answer.
    pub(super) down: u64,
    /// Connections that were lost.
    pub(super) cut: u64,
    /// How long it took to get a value.
    pub(super) took: Histogram,
}

/// One client, over one connection at a time.
struct Visitor {
    servers: Vec<Server>,
    at: usize,
    rng: Rng,
    ledger: Ledger,
    score: Arc<Mutex<Score>>,
    end: watch::Receiver<bool>,
    /// Values and tickets.
    held: Vec<(String, String)>,
}

impl ShopTraffic {
    /// Let clients come to all nodes.
    pub(super) fn start(servers: &[Server], ledger: &Ledger) -> Self {
        let (end, ended) = watch::channel(false);
        let score = Arc::new(Mutex::new(Score::default()));
        let mut clients = JoinSet::new();
        for id in 0..CLIENTS {
            let mut visitor = Visitor {
                servers: servers.to_vec(),
                at: id as usize,
                rng: Rng::new(id),
                ledger: ledger.clone(),
                score: Arc::clone(&score),
                end: ended.clone(),
                held: Vec::new(),
            };
            clients.spawn(async move { visitor.act(id).await });
        }
        Self {
            score,
            ledger: ledger.clone(),
            end,
            clients,
        }
    }

    /// The values that the clients hold.
    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Outcomes of the asks since the last call.
    pub(super) fn score(&self) -> Score {
        std::mem::take(&mut *self.score.lock())
    }

    /// Let each client finish what it does, and go.
    pub(super) async fn stop(mut self) {
        self.end.send_replace(true);
        while self.clients.join_next().await.is_some() {}
    }
}

impl Visitor {
    async fn act(&mut self, id: u64) {
        while !*self.end.borrow() {
            let server = &self.servers[self.at % self.servers.len()];
            let name = format!("shop-{id}");
            if let Ok(mut wire) = Wire::connect(server, &name).await {
                // A client that loses its node goes to the next.
                if self.stay(&mut wire).await.is_ok() {
                    return;
                }
                self.score.lock().cut += 1;
            }
            self.at += 1;
            sleep(NEXT).await;
        }
    }

    /// Reserve and release until the end.
    async fn stay(&mut self, wire: &mut Wire) -> Result<(), WireFault> {
        while !*self.end.borrow() {
            let held = self.held.len() as u64;
            if self.rng.below(2 * HELD) < held {
                let at = self.rng.below(held) as usize;
                self.release(wire, at).await?;
            } else {
                self.reserve(wire).await?;
            }
            sleep(Duration::from_millis(2 + self.rng.below(8))).await;
        }
        Ok(())
    }

    async fn reserve(&mut self, wire: &mut Wire) -> Result<(), WireFault> {
        let began = Instant::now();
        let answer = wire.ask(&["RESERVE", "demo", "TTL", TTL]).await?;
        let Some((value, ticket)) = granted(&answer) else {
            self.score.lock().down += 1;
            return Ok(());
        };
        self.ledger.granted(&value, &ticket);
        self.held.push((value, ticket));
        let mut score = self.score.lock();
        score.reserved += 1;
        score.took.record(began.elapsed());
        Ok(())
    }

    async fn release(&mut self, wire: &mut Wire, at: usize) -> Result<(), WireFault> {
        let (value, ticket) = self.held.swap_remove(at);
        self.ledger.releases(&value);
        match wire.ask(&["RELEASE", &ticket]).await? {
            Value::Simple(_) => self.score.lock().released += 1,
            // It may be given back, or not.
            Value::Error(text) if text.starts_with("UNKNOWN") => self.score.lock().down += 1,
            Value::Error(text) if is_later(&text) => {
                self.score.lock().down += 1;
                self.ledger.kept(&value, &ticket);
                self.held.push((value, ticket));
            }
            _ => self.ledger.lost(),
        }
        Ok(())
    }
}

/// The value and its ticket, if one was given out.
fn granted(answer: &Value) -> Option<(String, String)> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [
        Value::Bulk(word),
        Value::Bulk(value),
        Value::Bulk(ticket),
        ..,
    ] = &parts[..]
    else {
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (word == b"go").then(|| (text(value), text(ticket)))
}
