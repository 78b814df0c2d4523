//! What the server did lately: one sample in each step, and the newest for clients that
//! watch.
//!
//! Samples are taken once, however many watch. Counters become rates, and waits
//! become quantiles of those that ended within the step.

mod reader;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use reader::Reader;

/// The last samples of a server.
pub(crate) struct History {
    step: Duration,
    /// This many samples are remembered.
    most: usize,
    series: Mutex<Series>,
    newest: watch::Sender<Arc<Sample>>,
}

/// Every series has a value for each of `at`, unless it is younger.
#[derive(Default)]
struct Series {
    at: VecDeque<u64>,
    values: BTreeMap<String, VecDeque<f32>>,
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
    /// The kind: `server`, `pool`, `broker`, `regulator`, `lock` or `app`.
    pub kind: &'static str,
    /// Its name; the server has none.
    pub name: String,
    /// Its numbers by name; what is not known is NaN.
    pub values: Vec<(Cow<'static, str>, f64)>,
}

impl History {
    /// One that remembers what the config says.
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let fine = daemon.config.load().server.history.fine;
        let most = fine.span.as_nanos() / fine.step.as_nanos().max(1);
        Self {
            step: fine.step,
            most: most as usize,
            series: Mutex::default(),
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
            let rows = reader.read(&daemon, Instant::now());
            self.add(Sample {
                at_ms: now_ms(),
                rows,
            });
        }
    }

    fn add(&self, sample: Sample) {
        let mut series = self.series.lock();
        series.add(&sample, self.most);
        drop(series);
        self.newest.send_replace(Arc::new(sample));
    }

    /// See each sample from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Sample>> {
        self.newest.subscribe()
    }

    /// How far samples are apart.
    pub(crate) const fn step(&self) -> Duration {
        self.step
    }

    /// The names of all series, such as `pool.pg-1.held`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.series.lock().values.keys().cloned().collect()
    }

    /// The values of a series over the last `span`, the oldest first: when, and
    /// what. None if there is no such series.
    pub(crate) fn values(&self, name: &str, span: Duration) -> Option<Vec<(u64, f32)>> {
        let series = self.series.lock();
        let values = series.values.get(name)?;
        let since = now_ms().saturating_sub(span.as_millis() as u64);
        let ats = series.at.iter().rev().zip(values.iter().rev());
        let mut found: Vec<_> = ats
            .take_while(|(at, _)| **at >= since)
            .map(|(at, value)| (*at, *value))
            .collect();
        found.reverse();
        Some(found)
    }
}

impl Series {
    fn add(&mut self, sample: &Sample, most: usize) {
        self.at.push_back(sample.at_ms);
        let mut seen = std::collections::HashSet::new();
        for row in &sample.rows {
            for (of, value) in &row.values {
                let name = row.series(of);
                let values = self.values.entry(name.clone()).or_default();
                values.push_back(*value as f32);
                if values.len() > most {
                    values.pop_front();
                }
                seen.insert(name);
            }
        }
        // What has gone is forgotten: its name may come again as another.
        self.values.retain(|name, _| seen.contains(name));
        if self.at.len() > most {
            self.at.pop_front();
        }
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
        for kind in ["server", "pool", "broker", "regulator", "lock", "app"] {
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
        };
        Sample {
            at_ms,
            rows: vec![row],
        }
    }

    #[test]
    fn old_samples_and_things_that_went_are_forgotten() {
        let mut series = Series::default();
        for at in 0..5 {
            series.add(&sample(at, "pg", at as f64), 3);
        }
        assert_eq!(series.at, [2, 3, 4]);
        assert_eq!(series.values["pool.pg.held"], [2.0, 3.0, 4.0]);
        series.add(&sample(5, "other", 9.0), 3);
        assert!(!series.values.contains_key("pool.pg.held"));
        assert_eq!(series.values["pool.other.held"], [9.0]);
    }

    #[test]
    fn what_is_not_known_is_null() {
        let json = sample(7, "pg", 1.0).json(Viewer::ALL);
        assert_eq!(json["pool"]["pg"]["held"], 1.0);
        assert!(json["pool"]["pg"]["wait_p99_us"].is_null());
        assert_eq!(json["broker"], json!({}));
    }
}
