//! Which things need a look, worst first, and why: decided from samples alone.
//!
//! A thing is bad if it refuses asks or has failed, and doubtful if asks wait long or it does
//! not give what it could. What is busy and serves well is fine, however full it is.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rideau_config::human::Span;

use crate::view::history::{HistoryRow, Sample};

/// Refusals and grants are looked at over this many samples.
const WINDOW: usize = 10;
/// A thing that refuses so much of what is asked is bad; below it is doubtful.
const REFUSED_BAD: f64 = 0.01;
/// Of a lock, `full` is an answer that its clients count with: it is doubtful from here on.
const REFUSED_LOCK: f64 = 0.5;
/// A wait of so long is worth a look, in microseconds.
const WAIT_LONG_US: f64 = 1_000_000.0;
/// A range of which no more than this part is free is almost used up.
const FREE_FEW: f64 = 0.05;
/// Words for how a thing is that has failed.
const FAILED: [&str; 4] = ["failing", "failed", "deploy_failed", "exhausted"];
/// Words for how a thing is that does not do what it could.
const HELD_BACK: [&str; 6] = [
    "paused",
    "closing",
    "draining",
    "quarantine",
    "on_trial",
    "unsure",
];

/// How much a thing needs a look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Level {
    #[default]
    Fine,
    Doubtful,
    Bad,
}

impl Level {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Doubtful => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A thing, and how it does.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub kind: &'static str,
    pub name: String,
    pub level: Level,
    /// Why it is not fine, in a sentence without a full stop.
    pub why: String,
    /// Since when it has not been fine, in milliseconds since 1970.
    pub since_ms: u64,
    /// How full it is, from 0 to 1, where that can be said.
    pub fill: Option<f64>,
    /// What is used of what there is, in words.
    pub full: String,
    /// Refusals per second, on average.
    pub refused_s: f64,
    pub waiting: f64,
    /// The 99th percentile of the last waits, in microseconds.
    pub wait_p99_us: f64,
}

/// All things of a moment, the worst first.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    pub at_ms: u64,
    pub all: Vec<Ranked>,
}

/// Follows samples.
#[derive(Default)]
pub(crate) struct Worst {
    seen: HashMap<(&'static str, String), Watched>,
    newest: Arc<Ranking>,
}

/// What is remembered of a thing.
#[derive(Default)]
struct Watched {
    grants: VecDeque<f64>,
    refusals: VecDeque<f64>,
    since_ms: Option<u64>,
    is_there: bool,
}

/// The numbers of a row that are judged.
struct Vitals<'a> {
    row: &'a HistoryRow,
    /// Of all asks of the last samples, those that were refused.
    share: f64,
    refused_s: f64,
}

impl Worst {
    /// What the newest sample says.
    pub(crate) fn newest(&self) -> &Arc<Ranking> {
        &self.newest
    }

    /// A sample has come.
    pub(crate) fn advance(&mut self, sample: &Sample) {
        let rows = sample.rows.iter().filter(|row| !row.name.is_empty());
        let mut all: Vec<_> = rows.map(|row| self.rank(row, sample.at_ms)).collect();
        self.seen
            .retain(|_, watched| std::mem::take(&mut watched.is_there));
        all.sort_by(worse);
        self.newest = Arc::new(Ranking {
            at_ms: sample.at_ms,
            all,
        });
    }

    fn rank(&mut self, row: &HistoryRow, at_ms: u64) -> Ranked {
        let watched = self.seen.entry((row.kind, row.name.clone())).or_default();
        watched.is_there = true;
        let grants = remember(&mut watched.grants, value(row, "grants_per_s"));
        let refused_s = remember(&mut watched.refusals, value(row, "refusals_per_s"));
        let came = grants + refused_s;
        let vitals = Vitals {
            row,
            share: if came > 0.0 { refused_s / came } else { 0.0 },
            refused_s,
        };
        let (level, why) = vitals.judge();
        watched.since_ms = match level {
            Level::Fine => None,
            _ => watched.since_ms.or(Some(at_ms)),
        };
        let (fill, full) = fullness(row);
        Ranked {
            kind: row.kind,
            name: row.name.clone(),
            level,
            why,
            since_ms: watched.since_ms.unwrap_or(at_ms),
            fill,
            full,
            refused_s,
            waiting: value(row, "waiting").max(value(row, "asks")),
            wait_p99_us: value(row, "wait_p99_us"),
        }
    }
}

/// The mean of the last values, with this one.
fn remember(values: &mut VecDeque<f64>, value: f64) -> f64 {
    if values.len() == WINDOW {
        values.pop_front();
    }
    values.push_back(if value.is_finite() { value } else { 0.0 });
    values.iter().sum::<f64>() / values.len() as f64
}

/// A number of a row; zero if it is not known.
fn value(row: &HistoryRow, name: &str) -> f64 {
    let found = row.values.iter().find(|(known, _)| known == name);
    let value = found.map_or(0.0, |(_, value)| *value);
    if value.is_finite() { value } else { 0.0 }
}

impl Vitals<'_> {
    fn judge(&self) -> (Level, String) {
        let mut said = Vec::new();
        let mut level = Level::Fine;
        let mut say = |found: Level, why: String| {
            level = level.max(found);
            said.push((found, why));
        };
        let state = self.row.state.as_deref().unwrap_or_default();
        if FAILED.contains(&state) {
            say(Level::Bad, format!("it is {}", state.replace('_', " ")));
        } else if HELD_BACK.contains(&state) {
            say(
                Level::Doubtful,
                format!("it is {}", state.replace('_', " ")),
            );
        }
        if let Some(found) = self.refuses() {
            let (share, rate) = (percent(self.share), short(self.refused_s));
            say(
                found,
                format!("it refuses {share} of asks, {rate} a second"),
            );
        }
        if let Some(why) = self.waits() {
            say(Level::Doubtful, why);
        }
        if let Some(why) = self.is_almost_used_up() {
            say(Level::Doubtful, why);
        }
        // The gravest reason is read first.
        said.sort_by_key(|(found, _)| std::cmp::Reverse(*found));
        let said: Vec<_> = said.into_iter().map(|(_, why)| why).collect();
        (level, said.join("; "))
    }

    fn refuses(&self) -> Option<Level> {
        let is_lock = self.row.kind == "lock";
        match self.share {
            share if is_lock => (share >= REFUSED_LOCK).then_some(Level::Doubtful),
            share if share >= REFUSED_BAD => Some(Level::Bad),
            share if share > 0.0 => Some(Level::Doubtful),
            _ => None,
        }
    }

    fn waits(&self) -> Option<String> {
        let (waiting, oldest) = (
            value(self.row, "waiting").max(value(self.row, "asks")),
            value(self.row, "oldest_wait_us"),
        );
        let p99 = value(self.row, "wait_p99_us");
        if waiting > 0.0 && oldest >= WAIT_LONG_US {
            let (waiting, oldest) = (short(waiting), span(oldest));
            return Some(format!("{waiting} wait, the oldest for {oldest}"));
        }
        (p99 >= WAIT_LONG_US).then(|| format!("1 in 100 asks waits {} or longer", span(p99)))
    }

    fn is_almost_used_up(&self) -> Option<String> {
        let (free, size) = (value(self.row, "free"), value(self.row, "size"));
        let is_few = self.row.kind == "range" && free > 0.0 && free <= FREE_FEW * size;
        is_few.then(|| format!("only {} of {} values are free", short(free), short(size)))
    }
}

/// How full a thing is, and that in words.
fn fullness(row: &HistoryRow) -> (Option<f64>, String) {
    let (used, all) = match row.kind {
        "range" => {
            let size = value(row, "size");
            (size - value(row, "free"), size)
        }
        "app" => {
            let places = value(row, "ready") * value(row, "concurrency");
            (value(row, "held"), places)
        }
        "pool" | "regulator" => (value(row, "held"), value(row, "max")),
        _ => return (None, String::new()),
    };
    if all <= 0.0 {
        return (None, String::new());
    }
    let fill = (used / all).clamp(0.0, 1.0);
    (Some(fill), format!("{} of {}", short(used), short(all)))
}

/// The worst first: by level, then by refusals, by waiting asks and by how full they are.
fn worse(one: &Ranked, other: &Ranked) -> Ordering {
    let fill = |ranked: &Ranked| ranked.fill.unwrap_or(0.0);
    other
        .level
        .cmp(&one.level)
        .then(other.refused_s.total_cmp(&one.refused_s))
        .then(other.waiting.total_cmp(&one.waiting))
        .then(fill(other).total_cmp(&fill(one)))
        .then_with(|| one.name.cmp(&other.name))
}

/// A part in percent: `1.8 %`, `24 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        0.0 => "0 %".into(),
        few if few < 0.1 => "under 0.1 %".into(),
        few if few < 10.0 => format!("{few:.1} %"),
        many => format!("{many:.0} %"),
    }
}

/// A number with as many digits as matter.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        _ if !number.is_finite() => "–".into(),
        0.0 => "0".into(),
        few if few < 10.0 && number.fract() != 0.0 => format!("{number:.1}"),
        some if some < 1e6 => grouped(number.round() as i64),
        many if many < 1e9 => format!("{:.1} M", number / 1e6),
        many if many < 1e15 => format!("{:.1} G", number / 1e9),
        _ => format!("{number:.1e}"),
    }
}

/// A whole number with a narrow space between thousands.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + 4);
    if number < 0 {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn span(micros: f64) -> Span {
    Span(Duration::from_micros(micros as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, name: &str, values: &[(&'static str, f64)]) -> HistoryRow {
        let values = values.iter().map(|(name, value)| ((*name).into(), *value));
        HistoryRow {
            kind,
            name: name.into(),
            values: values.collect(),
            state: None,
            waits: None,
        }
    }

    fn ranked(rows: Vec<HistoryRow>) -> Vec<Ranked> {
        let mut worst = Worst::default();
        worst.advance(&Sample { at_ms: 1, rows });
        worst.newest().all.clone()
    }

    fn one(row: HistoryRow) -> (Level, String) {
        let ranked = ranked(vec![row]).remove(0);
        (ranked.level, ranked.why)
    }

    #[test]
    fn a_full_thing_that_serves_well_is_fine() {
        let busy = [("held", 10.0), ("max", 10.0), ("grants_per_s", 500.0)];
        let found = ranked(vec![row("pool", "pg", &busy)]).remove(0);
        assert_eq!((found.level, found.why.as_str()), (Level::Fine, ""));
        assert_eq!((found.fill, found.full.as_str()), (Some(1.0), "10 of 10"));
    }

    #[test]
    fn refusals_are_bad_from_one_in_a_hundred_on() {
        let shed = |refused| {
            let values = [("grants_per_s", 990.0), ("refusals_per_s", refused)];
            one(row("broker", "checkout", &values))
        };
        let (level, why) = shed(10.0);
        assert_eq!(level, Level::Bad);
        assert_eq!(why, "it refuses 1.0 % of asks, 10 a second");
        assert_eq!(shed(5.0).0, Level::Doubtful);
        assert_eq!(shed(0.0).0, Level::Fine);
    }

    #[test]
    fn a_lock_that_is_full_now_and_then_is_fine() {
        let lock = |refused| {
            let values = [("grants_per_s", 60.0), ("refusals_per_s", refused)];
            one(row("lock", "*", &values)).0
        };
        assert_eq!(lock(40.0), Level::Fine);
        assert_eq!(lock(60.0), Level::Doubtful);
    }

    #[test]
    fn a_refusal_is_remembered_for_ten_samples() {
        let mut worst = Worst::default();
        let mut advance = |at_ms, refused| {
            let values = [("grants_per_s", 0.0), ("refusals_per_s", refused)];
            let rows = vec![row("pool", "pg", &values)];
            worst.advance(&Sample { at_ms, rows });
            let newest = &worst.newest().all[0];
            (newest.level, newest.since_ms)
        };
        assert_eq!(advance(100, 0.0).0, Level::Fine);
        assert_eq!(advance(200, 3.0), (Level::Bad, 200));
        for at in 3..12 {
            assert_eq!(advance(at * 100, 0.0), (Level::Bad, 200), "{at}");
        }
        assert_eq!(advance(1_200, 0.0).0, Level::Fine);
        assert_eq!(advance(1_300, 1.0), (Level::Bad, 1_300));
    }

    #[test]
    fn long_waits_and_words_say_what_is_wrong() {
        let waits = [("waiting", 14.0), ("oldest_wait_us", 4.1e6)];
        let (level, why) = one(row("pool", "pg", &waits));
        assert_eq!(
            (level, &*why),
            (Level::Doubtful, "14 wait, the oldest for 4.1 s")
        );
        let mut paused = row("pool", "pg", &waits);
        paused.state = Some("paused".into());
        assert_eq!(one(paused).1, "it is paused; 14 wait, the oldest for 4.1 s");
        let mut failed = row("app", "shop", &[("wait_p99_us", 2e6)]);
        failed.state = Some("deploy_failed".into());
        let (level, why) = one(failed);
        assert_eq!(level, Level::Bad);
        assert_eq!(
            why,
            "it is deploy failed; 1 in 100 asks waits 2.0 s or longer"
        );
    }

    #[test]
    fn a_range_is_doubtful_when_few_values_are_left() {
        let range = |free| one(row("range", "office", &[("free", free), ("size", 1000.0)]));
        assert_eq!(range(51.0).0, Level::Fine);
        let few = (
            Level::Doubtful,
            "only 50 of 1000 values are free".to_owned(),
        );
        assert_eq!(range(50.0), few);
    }

    #[test]
    fn the_worst_comes_first() {
        let shed = |refused: f64| [("grants_per_s", 10.0), ("refusals_per_s", refused)];
        let all = ranked(vec![
            row("pool", "quiet", &[("held", 1.0), ("max", 10.0)]),
            row("pool", "full", &[("held", 10.0), ("max", 10.0)]),
            row("pool", "some", &shed(1.0)),
            row("pool", "slow", &[("wait_p99_us", 3e6)]),
            row("pool", "many", &shed(9.0)),
            row("pool", "also", &[("held", 1.0), ("max", 10.0)]),
        ]);
        let names: Vec<_> = all.iter().map(|ranked| &*ranked.name).collect();
        assert_eq!(names, ["many", "some", "slow", "full", "also", "quiet"]);
    }

    #[test]
    fn numbers_are_short() {
        let said = [0.0, 7.44, 12.6, 1204.0, 48_211.0, 2.5e6, f64::NAN].map(short);
        assert_eq!(
            said,
            ["0", "7.4", "13", "1204", "48\u{202f}211", "2.5 M", "–"]
        );
        let parts = [0.0, 0.0001, 0.018, 0.24].map(percent);
        assert_eq!(parts, ["0 %", "under 0.1 %", "1.8 %", "24 %"]);
    }
}
