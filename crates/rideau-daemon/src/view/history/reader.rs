//! Reads the server's numbers, and compares them with those before.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rideau::Histogram;

use super::HistoryRow;
use super::heat::{self, Column, ROWS};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::facts::{
    AppNow, BrokerNow, Facts, PoolNow, RangeNow, RegulatorNow, RuleNow, Surface, Value, in_unit,
};

/// The counters that were read last.
pub(crate) struct Reader {
    at: Instant,
    counters: HashMap<String, u64>,
    /// How many there were of each, and how many were how long.
    waits: HashMap<String, (u64, Vec<(Duration, u64)>)>,
    /// Seconds since the reading before.
    step: f64,
    /// Grants of all things in this reading.
    grants: f64,
}

impl Reader {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            at: now,
            counters: HashMap::new(),
            waits: HashMap::new(),
            step: 0.0,
            grants: 0.0,
        }
    }

    pub(super) fn read(&mut self, daemon: &Daemon, now: Instant) -> Vec<HistoryRow> {
        self.begin(now);
        let catalog = daemon.catalog.load();
        let mut rows = Vec::new();
        rows.extend(PoolNow::all(&catalog).iter().map(|pool| self.of(pool)));
        rows.extend(
            BrokerNow::all(&catalog)
                .iter()
                .map(|broker| self.of(broker)),
        );
        let regulators = RegulatorNow::all(&catalog);
        rows.extend(regulators.iter().map(|one| self.of(one)));
        rows.extend(RuleNow::all(&catalog).iter().map(|rule| self.of(rule)));
        let apps = AppNow::all(&daemon.apps, Viewer::ALL);
        rows.extend(apps.iter().map(|app| self.of(app)));
        let ranges = RangeNow::all(daemon, false);
        rows.extend(ranges.iter().map(|range| self.of(range)));
        rows.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        rows.insert(0, self.server(daemon));
        self.end(rows.len());
        rows
    }

    /// Begin a reading.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.step = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        self.grants = 0.0;
    }

    /// A reading of this many things is over.
    pub(crate) fn end(&mut self, things: usize) {
        // Names come and go: now and then all begin again.
        if self.counters.len() > 8 * (things + 16) {
            self.counters.clear();
            self.waits.clear();
        }
    }

    /// The numbers of the server. Its grants are those of the things that were read before.
    pub(crate) fn server(&mut self, daemon: &Daemon) -> HistoryRow {
        let counts = &daemon.counts;
        let commands = counts.commands.load(Ordering::Relaxed);
        let waiting = counts.waiting.load(Ordering::Relaxed);
        HistoryRow {
            kind: "server",
            name: String::new(),
            values: vec![
                ("clients".into(), daemon.clients.len() as f64),
                ("sessions".into(), daemon.sessions.len() as f64),
                ("waiting".into(), waiting as f64),
                ("keys".into(), daemon.lock_keys() as f64),
                (
                    "commands_per_s".into(),
                    self.rate("server.commands", commands),
                ),
                ("grants_per_s".into(), self.grants),
                (
                    "refusals_per_s".into(),
                    self.rate("server.refusals", daemon.refusals.total()),
                ),
            ],
            state: None,
            waits: None,
        }
    }

    /// The series of a thing.
    pub(crate) fn of<T: Facts>(&mut self, one: &T) -> HistoryRow {
        let name = one.called();
        let of = format!("{}.{name}", T::KIND.word);
        let mut values = Vec::new();
        let mut waits = None;
        for fact in T::ALL {
            let rates = fact.about.names(|surface| surface == Surface::Rate);
            let series = fact.about.names(|surface| surface == Surface::History);
            for rate in rates {
                let per_s = match (fact.value)(one) {
                    Value::Count(count) => self.rate(&format!("{of}.{rate}"), count),
                    _ => f64::NAN,
                };
                self.grants += if rate == "grants" { per_s } else { 0.0 };
                values.push((format!("{rate}_per_s").into(), per_s));
            }
            for series in series {
                match (fact.value)(one) {
                    Value::Count(count) => values.push((series.into(), count as f64)),
                    Value::Span(span) => values.push((series.into(), in_unit(span, series) as f64)),
                    Value::Size(size) => values.push((series.into(), size.to_f64())),
                    Value::Spans(spans) => {
                        let new = self.new_waits(&format!("{of}.{series}"), spans);
                        let (p50, p99) = (quantile(&new, 0.5), quantile(&new, 0.99));
                        waits = Some(column(&new));
                        values.push((format!("{series}_p50_us").into(), p50));
                        values.push((format!("{series}_p99_us").into(), p99));
                    }
                    _ => values.push((series.into(), f64::NAN)),
                }
            }
        }
        HistoryRow {
            kind: T::KIND.word,
            state: state(one),
            name,
            values,
            waits,
        }
    }

    /// How fast a counter grows; nothing the first time it is seen.
    fn rate(&mut self, name: &str, count: u64) -> f64 {
        let before = self.counters.insert(name.to_owned(), count);
        let more = count.saturating_sub(before.unwrap_or(count));
        if self.step > 0.0 {
            more as f64 / self.step
        } else {
            0.0
        }
    }

    /// What was counted since the last time.
    fn new_waits(&mut self, of: &str, waits: &Histogram) -> Vec<(Duration, u64)> {
        let before = self.waits.get(of);
        if before.is_some_and(|(len, _)| *len == waits.len()) {
            return Vec::new();
        }
        let now: Vec<_> = waits.buckets().collect();
        let before = self.waits.insert(of.to_owned(), (waits.len(), now.clone()));
        let before: HashMap<_, _> = before.unwrap_or_default().1.into_iter().collect();
        let new = now.into_iter().map(|(upper, count)| {
            let seen = before.get(&upper).copied().unwrap_or(0);
            (upper, count.saturating_sub(seen))
        });
        new.filter(|(_, count)| *count > 0).collect()
    }
}

/// One word for how a thing is, if it has one.
fn state<T: Facts>(one: &T) -> Option<String> {
    let fact = T::ALL.iter().find(|fact| fact.about.name == "state")?;
    match (fact.value)(one) {
        Value::Text(state) => Some(state.into_owned()),
        _ => None,
    }
}

/// Waits by the rows of a heat map.
fn column(waits: &[(Duration, u64)]) -> Box<Column> {
    let mut column: Box<Column> = Box::new([0; ROWS]);
    for (upper, count) in waits {
        let row = &mut column[heat::row(*upper)];
        *row = row.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX));
    }
    column
}

fn quantile(buckets: &[(Duration, u64)], part: f64) -> f64 {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = (part * all as f64).ceil() as u64;
    let mut below = 0;
    for (upper, count) in buckets {
        below += count;
        if below >= rank {
            return upper.as_nanos() as f64 / 1_000.0;
        }
    }
    f64::NAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_becomes_a_rate_from_its_second_reading_on() {
        let mut reader = Reader::new(Instant::now());
        reader.step = 2.0;
        assert_eq!(reader.rate("a", 100), 0.0);
        assert_eq!(reader.rate("a", 130), 15.0);
        assert_eq!(reader.rate("a", 7), 0.0, "it began again");
    }

    #[test]
    fn quantiles_are_of_the_new_waits_only() {
        let mut reader = Reader::new(Instant::now());
        let mut waits = Histogram::default();
        (0..100).for_each(|_| waits.record(Duration::from_millis(500)));
        reader.new_waits("a", &waits);
        (0..100).for_each(|_| waits.record(Duration::from_millis(1)));
        let new = reader.new_waits("a", &waits);
        let (p50, p99) = (quantile(&new, 0.5), quantile(&new, 0.99));
        assert!((900.0..1_200.0).contains(&p50), "{p50}");
        assert!((900.0..1_200.0).contains(&p99), "{p99}");
        let column = column(&new);
        assert_eq!(column.iter().sum::<u32>(), 100);
        let new = reader.new_waits("a", &waits);
        assert!(quantile(&new, 0.5).is_nan(), "no ask waited");
    }
}
