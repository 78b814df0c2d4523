//! Clients that come and go, hold for a moment or far too long, and are told no
//! when there are too many of them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau::Histogram;
use rideau_core::Rng;
use rideau_resp::Value;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::wire::{Server, Wire, WireFault};

/// All clients that come. They go when it is dropped.
pub(super) struct Traffic {
    scores: [Arc<Mutex<Score>>; 3],
    clients: JoinSet<()>,
}

/// Outcomes of the asks of the last second.
#[derive(Default)]
struct Score {
    granted: u64,
    refused: u64,
    waits: Histogram,
}

/// Calm and rush follow each other in rounds.
pub(super) const ROUND: Duration = Duration::from_secs(30);
/// How long a rush is.
pub(super) const RUSH: Duration = Duration::from_secs(12);
/// When in a round it begins.
const RUSH_AT: Duration = Duration::from_secs(5);

const WEB: u64 = 32;
const ASKERS: u64 = 40;
const WORKERS: u64 = 10;
const TENANTS: u64 = 8;

/// The shown pool, broker and lock.
const NAMES: [&str; 3] = ["pool pg", "broker checkout", "lock tenant/*"];

/// One client, over one connection.
struct Visitor {
    wire: Wire,
    rng: Rng,
    began: Instant,
}

impl Traffic {
    /// Let them come to this server.
    pub(super) fn start(server: &Server) -> Self {
        let scores: [Arc<Mutex<Score>>; 3] = Default::default();
        let mut clients = JoinSet::new();
        let began = Instant::now();
        let mut come = |name: String, id: u64, role: Role| {
            let (server, scores) = (server.clone(), scores.clone());
            clients.spawn(async move {
                // A client that loses the server goes home; the server says why it ends.
                let Ok(wire) = Wire::connect(&server, &name).await else {
                    return;
                };
                let mut visitor = Visitor {
                    wire,
                    rng: Rng::new(id),
                    began,
                };
                let _ = visitor.act(role, id, &scores).await;
            });
        };
        for id in 0..WEB {
            come(format!("web-{id}"), id, Role::Web);
        }
        for id in 0..ASKERS {
            come(format!("checkout-{id}"), 100 + id, Role::Asker);
        }
        for id in 0..WORKERS {
            come(format!("worker-{id}"), 200 + id, Role::Worker);
        }
        for id in 0..TENANTS {
            come(format!("tenant-{id}"), 300 + id, Role::Tenant);
        }
        come("reports".into(), 400, Role::Long("pg", "nightly report"));
        come("cad-04".into(), 401, Role::Long("licences", "bridge.dwg"));
        come("cad-07".into(), 402, Role::Long("licences", "tower.dwg"));
        Self { scores, clients }
    }

    /// Send them home.
    pub(super) fn stop(mut self) {
        self.clients.abort_all();
    }

    /// The last second in one line.
    pub(super) fn line(&self, second: u32) -> String {
        let mut line = format!("{second:>5} s");
        for score in &self.scores {
            let score = std::mem::take(&mut *score.lock());
            let wait = crate::span::shown(score.waits.quantile(0.99).as_micros() as i64);
            line += &format!("  {:>7}{:>7}{:>9}", score.granted, score.refused, wait);
        }
        line
    }

    /// The last second as JSON.
    pub(super) fn json(&self, second: u32) -> serde_json::Value {
        let mut all = serde_json::Map::new();
        all.insert("second".into(), second.into());
        for (name, score) in NAMES.iter().zip(&self.scores) {
            let score = std::mem::take(&mut *score.lock());
            let numbers = json!({
                "granted": score.granted,
                "refused": score.refused,
                "wait_p99_us": score.waits.quantile(0.99).as_micros() as u64,
            });
            all.insert((*name).into(), numbers);
        }
        all.into()
    }
}

/// The headings above the lines.
pub(super) fn heads() -> String {
    let names = NAMES.map(|name| format!("  {name:>23}")).concat();
    let heads = format!("  {:>7}{:>7}{:>9}", "yes/s", "no/s", "p99 wait").repeat(NAMES.len());
    format!("       {names}\n       {heads}")
}

/// The role of a client.
#[derive(Clone, Copy)]
enum Role {
    /// Takes a connection for a moment.
    Web,
    /// Asks for a worker and stays until it is done.
    Asker,
    /// Serves clients that ask.
    Worker,
    /// Locks a key for a moment.
    Tenant,
    /// Holds a member of a pool for long, and says what for.
    Long(&'static str, &'static str),
}

impl Visitor {
    async fn act(
        &mut self,
        role: Role,
        id: u64,
        scores: &[Arc<Mutex<Score>>; 3],
    ) -> Result<(), WireFault> {
        let [pool, broker, lock] = scores;
        // Not all at once.
        self.pause(0..300).await;
        loop {
            match role {
                Role::Web => {
                    let request = ["TAKE", "pg", "WAIT", "500", "NOTE", "GET /cart"];
                    self.lease(&request, 10..40, "RELEASE", Some(pool)).await?;
                    self.think(5..20, 200..400).await;
                }
                Role::Asker => {
                    let request = ["ASK", "checkout", "WAIT", "1000", "VALUE", "basket"];
                    self.lease(&request, 1..2, "DONE", Some(broker)).await?;
                    self.think(20..60, 300..600).await;
                }
                Role::Worker => {
                    let request = ["OFFER", "checkout", "WAIT", "2000"];
                    self.lease(&request, 20..60, "DONE", None).await?;
                }
                Role::Tenant => {
                    let key = format!("tenant/{}", id % 3);
                    let request = ["LOCK", &key, "NOTE", "import"];
                    self.lease(&request, 50..150, "RELEASE", Some(lock)).await?;
                    self.think(20..80, 200..400).await;
                }
                Role::Long(pool, note) => {
                    let request = ["TAKE", pool, "WAIT", "2000", "NOTE", note];
                    self.lease(&request, 20_000..60_000, "RELEASE", None)
                        .await?;
                    self.pause(200..500).await;
                }
            }
        }
    }

    /// Ask, hold what is granted for some milliseconds, and end it.
    async fn lease(
        &mut self,
        request: &[&str],
        hold: std::ops::Range<u64>,
        end: &str,
        score: Option<&Arc<Mutex<Score>>>,
    ) -> Result<(), WireFault> {
        let began = Instant::now();
        let answer = self.wire.ask(request).await?;
        let Value::Array(parts) = &answer else {
            // It is being stopped, or was changed so that this makes no sense.
            self.pause(500..1_000).await;
            return Ok(());
        };
        let is_go = matches!(&parts[..], [Value::Bulk(word), ..] if word == b"go");
        if let Some(score) = score {
            let mut score = score.lock();
            if is_go {
                score.granted += 1;
                score.waits.record(began.elapsed());
            } else {
                score.refused += 1;
            }
        }
        if let (true, Some(Value::Bulk(ticket))) = (is_go, parts.get(1)) {
            self.pause(hold).await;
            let words: [&[u8]; 2] = [end.as_bytes(), ticket];
            self.wire.ask(&words).await?;
        }
        Ok(())
    }

    /// Do something else; in a rush there is less of that.
    async fn think(&mut self, rush: std::ops::Range<u64>, calm: std::ops::Range<u64>) {
        let into = self.began.elapsed().as_millis() % ROUND.as_millis();
        let is_rush = (RUSH_AT.as_millis()..(RUSH_AT + RUSH).as_millis()).contains(&into);
        self.pause(if is_rush { rush } else { calm }).await;
    }

    async fn pause(&mut self, millis: std::ops::Range<u64>) {
        let span = millis.end.saturating_sub(millis.start).max(1);
        let millis = millis.start + self.rng.below(span);
        sleep(Duration::from_millis(millis)).await;
    }
}
