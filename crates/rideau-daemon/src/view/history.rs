//! What the server did lately: one sample in each step, and the newest for clients that
//! watch.
//!
//! Samples are taken once, however many watch. Counters become rates, and waits
//! become quantiles of those that ended within the step.

mod heat;
mod reader;
mod rings;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rideau_process::panics;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use heat::Heats;
use rings::{Reach, Rings};

pub(crate) use heat::{BOUNDS_US, Column};
pub(crate) use reader::Reader;
pub(crate) use rings::HistoryUse;

/// The last samples of a server.
pub(crate) struct History {
    step: Duration,
    rings: Mutex<Rings>,
    heats: Mutex<Heats>,
    newest: watch::Sender<Arc<Sample>>,
}

/// All numbers of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// One row for each thing.
    pub rows: Vec<HistoryRow>,
}

/// The numbers of one thing.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRow {
    /// The kind: `server`, `pool`, `broker`, `regulator`, `lock`, `range` or `app`.
    pub kind: &'static str,
    /// Its name; the server has none.
    pub name: String,
    /// Its numbers by name; what is not known is NaN.
    pub values: Vec<(Cow<'static, str>, f64)>,
    /// One word for how it is, if it has one.
    pub state: Option<String>,
    /// How long the waits were that ended since the last sample.
    pub waits: Option<Box<Column>>,
}

impl History {
    /// One that remembers what the config says.
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let config = daemon.config.load();
        let (fine, coarse) = (config.server.history.fine, config.server.history.coarse);
        let reaches = (
            Reach::new(fine.span, fine.step),
            Reach::new(coarse.span, coarse.step),
        );
        Self {
            step: fine.step,
            rings: Mutex::new(Rings::new(reaches.0, reaches.1)),
            heats: Mutex::new(Heats::new(fine.span, fine.step)),
            newest: watch::channel(Arc::default()).0,
        }
    }

    /// Take samples for ever.
    pub(crate) async fn keep(self: Arc<Self>, daemon: Arc<Daemon>) {
        let mut ticks = tokio::time::interval(self.step);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reader = Reader::new(Instant::now());
        loop {
            ticks.tick().await;
            // Of many things this takes a while: requests are answered meanwhile.
            let of = Arc::clone(&daemon);
            let read = panics::away(move || {
                let rows = reader.read(&of, Instant::now());
                (reader, rows)
            });
            let Ok((after, rows)) = read.await else {
                // It panicked, and what it remembered may be wrong.
                reader = Reader::new(Instant::now());
                continue;
            };
            reader = after;
            self.add(Sample {
                at_ms: now_ms(),
                rows,
            });
        }
    }

    fn add(&self, sample: Sample) {
        let mut rings = self.rings.lock();
        rings.begin(sample.at_ms);
        for row in &sample.rows {
            for (of, value) in &row.values {
                rings.add(row.series(of), *value as f32);
            }
        }
        rings.end();
        drop(rings);
        let mut heats = self.heats.lock();
        for row in &sample.rows {
            if let Some(waits) = &row.waits {
                heats.add(&row.series("wait"), waits);
            }
        }
        heats.end();
        drop(heats);
        self.newest.send_replace(Arc::new(sample));
    }

    /// See each sample from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Sample>> {
        self.newest.subscribe()
    }

    /// The newest sample.
    pub(crate) fn newest(&self) -> Arc<Sample> {
        Arc::clone(&self.newest.borrow())
    }

    /// How far samples of so long are apart.
    pub(crate) fn step(&self, span: Duration) -> Duration {
        self.rings.lock().step(span)
    }

    /// The names of all series, such as `pool.pg-1.held`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.rings.lock().names()
    }

    /// The values of a series over the last `span`, the oldest first: when, and
    /// what. None if there is no such series.
    pub(crate) fn values(&self, name: &str, span: Duration) -> Option<Vec<(u64, f32)>> {
        self.rings.lock().values(name, span, now_ms())
    }

    /// How long the waits of a thing were: columns, the oldest first, and how long each is.
    pub(crate) fn heat(&self, kind: &str, name: &str) -> (Vec<Column>, Duration) {
        let heats = self.heats.lock();
        let columns = heats.columns(&format!("{kind}.{name}.wait"));
        (columns, self.step * heats.each())
    }

    /// How much is kept, and in how much memory.
    pub(crate) fn kept(&self) -> HistoryUse {
        self.rings.lock().kept()
    }
}

impl HistoryRow {
    /// The name of one of its series.
    fn series(&self, of: &str) -> String {
        match self.name.as_str() {
            "" => format!("{}.{of}", self.kind),
            name => format!("{}.{name}.{of}", self.kind),
        }
    }

    fn json(&self) -> Value {
        let values = self.values.iter();
        let pairs = values.map(|(name, value)| (name.to_string(), json!(value)));
        Value::Object(pairs.collect())
    }
}

impl Sample {
    /// `{"at_ms": …, "server": {…}, "pool": {"pg-1": {…}}, …}`.
    pub(crate) fn json(&self, viewer: Viewer<'_>) -> Value {
        let mut all = Map::new();
        all.insert("at_ms".into(), json!(self.at_ms));
        for kind in [
            "server",
            "pool",
            "broker",
            "regulator",
            "lock",
            "range",
            "app",
        ] {
            all.insert(kind.into(), Value::Object(Map::new()));
        }
        let seen = self.rows.iter();
        for row in seen.filter(|row| viewer.sees(row.kind, &row.name)) {
            if row.name.is_empty() {
                all.insert(row.kind.into(), row.json());
            } else if let Some(Value::Object(kind)) = all.get_mut(row.kind) {
                kind.insert(row.name.clone(), row.json());
            }
        }
        Value::Object(all)
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, name: &str, held: f64) -> Sample {
        let row = HistoryRow {
            kind: "pool",
            name: name.into(),
            values: vec![("held".into(), held), ("wait_p99_us".into(), f64::NAN)],
            state: None,
            waits: None,
        };
        Sample {
            at_ms,
            rows: vec![row],
        }
    }

    #[test]
    fn what_is_not_known_is_null() {
        let json = sample(7, "pg", 1.0).json(Viewer::ALL);
        assert_eq!(json["pool"]["pg"]["held"], 1.0);
        assert!(json["pool"]["pg"]["wait_p99_us"].is_null());
        assert_eq!(json["broker"], json!({}));
    }
}
