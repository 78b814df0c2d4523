//! The numbers of runs, as JSON and as a table.

use std::io;

use rideau_core::Reason;
use rideau_resp::Value;
use rideau_simulate::RunOutcome;
use serde_json::{Map, Value as Json, json};

use super::cases::{Case, micros};
use crate::cli::table::Table;

/// One run, with its numbers.
#[derive(Clone, Debug)]
pub(super) struct RunRow {
    pub(super) label: String,
    pub(super) queue: String,
    pub(super) servers: u32,
    pub(super) load: f64,
    pub(super) requests: u64,
    pub(super) granted: u64,
    pub(super) left: u64,
    pub(super) waiting: u64,
    pub(super) waiting_max: usize,
    pub(super) asks: u64,
    /// The reasons for which any was shed.
    pub(super) shed: Vec<(Reason, u64)>,
    pub(super) goodput_per_s: f64,
    pub(super) utilisation: f64,
    /// The mean wait, its quantiles and the longest, in microseconds.
    pub(super) wait_us: [f64; 5],
    /// The part of the requests that got nothing.
    pub(super) lost: f64,
    seed: u64,
    span_s: f64,
    cpu_ms: f64,
}

/// The names of the waits.
const WAITS: [&str; 5] = ["mean_us", "p50_us", "p90_us", "p99_us", "max_us"];
/// Which of them the picture shows.
const P99: usize = 3;

impl RunRow {
    pub(super) fn new(case: &Case, mut outcome: RunOutcome, cpu_ms: f64) -> Self {
        let waits = &mut outcome.waits;
        let wait_us = [
            waits.mean(),
            waits.quantile(0.5),
            waits.quantile(0.9),
            waits.quantile(0.99),
            waits.longest(),
        ];
        Self {
            label: case.label(),
            queue: case.queue.clone(),
            servers: case.scenario.servers,
            load: case.scenario.load,
            requests: outcome.requests,
            granted: outcome.granted,
            left: outcome.left,
            waiting: outcome.waiting,
            waiting_max: outcome.waiting_max,
            asks: outcome.asks,
            shed: outcome.reasons().collect(),
            goodput_per_s: outcome.goodput_per_s(),
            utilisation: outcome.utilisation,
            wait_us: wait_us.map(micros),
            lost: outcome.lost(),
            seed: case.scenario.seed,
            span_s: outcome.span.as_secs_f64(),
            cpu_ms,
        }
    }

    /// The wait that 99 of 100 did not exceed, in milliseconds.
    pub(super) const fn p99_ms(&self) -> f64 {
        self.wait_us[P99] / 1e3
    }

    pub(super) fn json(&self) -> Json {
        let shed = self.shed.iter();
        let shed: Map<_, _> = shed
            .map(|(reason, count)| (reason.word().to_owned(), json!(count)))
            .collect();
        let waits = WAITS.iter().zip(self.wait_us);
        let waits: Map<_, _> = waits
            .map(|(name, us)| ((*name).to_owned(), json!(us)))
            .collect();
        json!({
            "queue": self.queue,
            "servers": self.servers,
            "load": self.load,
            "requests": self.requests,
            "asks": self.asks,
            "granted": self.granted,
            "shed": shed,
            "left": self.left,
            "waiting": self.waiting,
            "waiting_max": self.waiting_max,
            "goodput_per_s": self.goodput_per_s,
            "wait": waits,
            "utilisation": self.utilisation,
            "span_s": self.span_s,
            "seed": self.seed,
            "cpu_ms": self.cpu_ms,
        })
    }

    /// What became of those that were not served, in words.
    pub(super) fn losses(&self) -> String {
        let shed = self.shed.iter();
        let mut words: Vec<_> = shed
            .map(|(reason, count)| format!("{count} {}", reason.word()))
            .collect();
        if self.left > 0 {
            words.push(format!("{} left", self.left));
        }
        if self.waiting > 0 {
            words.push(format!("{} wait", self.waiting));
        }
        words.join(", ")
    }

    fn cells(&self) -> Value {
        let bulk = |text: String| Value::Bulk(text.into());
        let us = |us: f64| Value::Integer(us.round() as i64);
        let mut cells = vec![
            bulk(self.queue.clone()),
            Value::Integer(self.servers.into()),
            bulk(self.load.to_string()),
            Value::Integer(self.granted as i64),
            bulk(percent(self.lost)),
            bulk(rate(self.goodput_per_s)),
            bulk(percent(self.utilisation)),
        ];
        cells.extend(self.wait_us.map(us));
        cells.push(bulk(self.losses()));
        Value::Array(cells)
    }
}

/// Print all rows.
pub(super) fn print(rows: &[RunRow]) -> io::Result<()> {
    let head = [
        "queue",
        "servers",
        "load",
        "granted",
        "lost",
        "goodput/s",
        "busy",
        "mean_us",
        "p50_us",
        "p90_us",
        "p99_us",
        "max_us",
        "of which",
    ];
    let head = head.map(|name| Value::Bulk(name.into())).to_vec();
    let lines = [Value::Array(head)].into_iter();
    let lines = lines.chain(rows.iter().map(RunRow::cells)).collect();
    match Table::of(&Value::Array(lines)) {
        Some(table) => table.print(),
        None => Ok(()),
    }
}

/// A part of one, as a person reads it.
pub(super) fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    match percent {
        0.0 => "0 %".into(),
        _ if percent < 10.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// A number in a second, as a person reads it.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".into(),
        0.0..10.0 => format!("{per_s:.2}"),
        _ => format!("{per_s:.0}"),
    }
}
