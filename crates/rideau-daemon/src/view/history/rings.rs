//! The last values of each series, finely for some minutes and coarsely for some hours, in
//! memory that has a limit.
//!
//! A coarse value is the mean of the fine ones that it stands for, or the highest of them
//! where it is about waits: a short peak is what one looks for there.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// All series of a server take no more than this, about.
const BYTES_MAX: usize = 32 << 20;
/// About what a series takes beside its values.
const AROUND: usize = 256;
/// Room is made for this many values at a time.
const GROWTH: usize = 128;

/// A span and a step: this many values of a series are kept, this far apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reach {
    pub step: Duration,
    pub most: usize,
}

/// The series there are.
///
/// Every series has a value for each of the newest instants, unless it is younger.
pub(super) struct Rings {
    fine: Reach,
    coarse: Reach,
    fine_at: VecDeque<u64>,
    coarse_at: VecDeque<u64>,
    /// When the first sample came.
    since: Option<u64>,
    lines: HashMap<String, Line>,
    /// This many series are kept.
    lines_max: usize,
    /// Series of the last sample for which there was no room.
    left_out: usize,
    serial: u64,
}

/// The values of a series.
#[derive(Default)]
struct Line {
    fine: VecDeque<f32>,
    coarse: VecDeque<f32>,
    /// The fine values since the last coarse one.
    sum: f32,
    count: u32,
    highest: f32,
    /// The number of the last sample that had it.
    seen: u64,
}

/// What is kept, for operators.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct HistoryUse {
    /// How many series are kept.
    pub series: usize,
    /// How many may be.
    pub series_max: usize,
    /// How many there was no room for.
    pub left_out: usize,
    /// The memory of all values, in bytes.
    pub bytes: usize,
    /// The most that it may become.
    pub bytes_max: usize,
}

impl Reach {
    pub(super) fn new(span: Duration, step: Duration) -> Self {
        let most = span.as_nanos() / step.as_nanos().max(1);
        Self {
            step,
            most: (most as usize).max(1),
        }
    }

    pub(super) fn span(self) -> Duration {
        self.step
            .saturating_mul(u32::try_from(self.most).unwrap_or(u32::MAX))
    }
}

impl Rings {
    pub(super) fn new(fine: Reach, coarse: Reach) -> Self {
        let bytes = (fine.most + coarse.most) * size_of::<f32>() + AROUND;
        Self {
            fine,
            coarse,
            fine_at: VecDeque::new(),
            coarse_at: VecDeque::new(),
            since: None,
            lines: HashMap::new(),
            lines_max: (BYTES_MAX / bytes).max(64),
            left_out: 0,
            serial: 0,
        }
    }

    /// Begin a sample of this instant. Its values follow, and then `end`.
    pub(super) fn begin(&mut self, at_ms: u64) {
        push(&mut self.fine_at, at_ms, self.fine.most);
        self.since = self.since.or(Some(at_ms));
        self.serial += 1;
        self.left_out = 0;
    }

    /// A value of the sample.
    pub(super) fn add(&mut self, name: String, value: f32) {
        if self.lines.len() >= self.lines_max && !self.lines.contains_key(&name) {
            self.left_out += 1;
            return;
        }
        let line = self.lines.entry(name).or_default();
        line.seen = self.serial;
        push(&mut line.fine, value, self.fine.most);
        if value.is_finite() {
            line.highest = if line.count == 0 {
                value
            } else {
                line.highest.max(value)
            };
            line.sum += value;
            line.count += 1;
        }
    }

    /// The sample is complete.
    pub(super) fn end(&mut self) {
        // What has gone is forgotten: its name may come again as another.
        let serial = self.serial;
        self.lines.retain(|_, line| line.seen == serial);
        let Some(now) = self.fine_at.back().copied() else {
            return;
        };
        let step = self.coarse.step.as_millis() as u64;
        let last = self.coarse_at.back().copied();
        let since = last.or(self.since);
        if now.saturating_sub(since.unwrap_or(now)) + self.fine.step.as_millis() as u64 / 2 < step {
            return;
        }
        push(&mut self.coarse_at, now, self.coarse.most);
        for (name, line) in &mut self.lines {
            let value = match line.count {
                0 => f32::NAN,
                _ if name.ends_with("_us") => line.highest,
                count => line.sum / count as f32,
            };
            push(&mut line.coarse, value, self.coarse.most);
            (line.sum, line.count, line.highest) = (0.0, 0, 0.0);
        }
    }

    /// The names of all series.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lines.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// How far the values of a span are apart.
    pub(super) fn step(&self, span: Duration) -> Duration {
        match self.is_coarse(span) {
            true => self.coarse.step,
            false => self.fine.step,
        }
    }

    /// Coarse values are taken for what is longer, once they reach further back.
    fn is_coarse(&self, span: Duration) -> bool {
        let begin = |at: &VecDeque<u64>| at.front().copied().unwrap_or(u64::MAX);
        span > self.fine.span() && begin(&self.coarse_at) < begin(&self.fine_at)
    }

    /// The values of a series since an instant, the oldest first. None if there is no such
    /// series.
    pub(super) fn values(
        &self,
        name: &str,
        span: Duration,
        now_ms: u64,
    ) -> Option<Vec<(u64, f32)>> {
        let line = self.lines.get(name)?;
        let since = now_ms.saturating_sub(span.as_millis() as u64);
        let (at, values) = match self.is_coarse(span) {
            true => (&self.coarse_at, &line.coarse),
            false => (&self.fine_at, &line.fine),
        };
        let pairs = at.iter().rev().zip(values.iter().rev());
        let mut found: Vec<_> = pairs
            .take_while(|(at, _)| **at >= since)
            .map(|(at, value)| (*at, *value))
            .collect();
        found.reverse();
        Some(found)
    }

    pub(super) fn kept(&self) -> HistoryUse {
        let values = |line: &Line| line.fine.capacity() + line.coarse.capacity();
        let values: usize = self.lines.values().map(values).sum();
        let one = (self.fine.most + self.coarse.most) * size_of::<f32>() + AROUND;
        HistoryUse {
            series: self.lines.len(),
            series_max: self.lines_max,
            left_out: self.left_out,
            bytes: values * size_of::<f32>() + self.lines.len() * AROUND,
            bytes_max: self.lines_max * one,
        }
    }
}

/// Add a value behind the others, and drop the oldest if there are enough.
fn push<T>(values: &mut VecDeque<T>, value: T, most: usize) {
    if values.len() >= most {
        values.pop_front();
    } else if values.len() == values.capacity() {
        values.reserve_exact((most - values.len()).min(GROWTH));
    }
    values.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rings(fine: usize, coarse: usize) -> Rings {
        let reach = |step: u32, most| Reach {
            step: SECOND * step,
            most,
        };
        Rings::new(reach(1, fine), reach(5, coarse))
    }

    fn sample(rings: &mut Rings, at_s: u64, values: &[(&str, f32)]) {
        rings.begin(at_s * 1000);
        for (name, value) in values {
            rings.add((*name).to_owned(), *value);
        }
        rings.end();
    }

    #[test]
    fn old_values_and_things_that_went_are_forgotten() {
        let mut rings = rings(3, 3);
        for at in 1..=5 {
            sample(&mut rings, at, &[("pool.pg.held", at as f32)]);
        }
        let values = rings.values("pool.pg.held", SECOND * 3, 5_000).unwrap();
        assert_eq!(values, [(3_000, 3.0), (4_000, 4.0), (5_000, 5.0)]);
        sample(&mut rings, 6, &[("pool.other.held", 9.0)]);
        assert_eq!(rings.names(), ["pool.other.held"]);
        let values = rings.values("pool.other.held", SECOND * 3, 6_000).unwrap();
        assert_eq!(values, [(6_000, 9.0)]);
    }

    #[test]
    fn hours_have_means_and_the_highest_waits() {
        let mut rings = rings(5, 100);
        for at in 0..=20 {
            let (held, wait) = (f32::from(at as u8), if at == 7 { 900.0 } else { 1.0 });
            sample(&mut rings, at, &[("a.held", held), ("a.wait_p99_us", wait)]);
        }
        let held = rings.values("a.held", SECOND * 3_600, 20_000).unwrap();
        let ats: Vec<_> = held.iter().map(|(at, _)| *at).collect();
        assert_eq!(ats, [5_000, 10_000, 15_000, 20_000]);
        assert_eq!(held[1].1, 8.0, "6 to 10");
        let waits = rings
            .values("a.wait_p99_us", SECOND * 3_600, 20_000)
            .unwrap();
        let waits: Vec<_> = waits.iter().map(|(_, wait)| *wait).collect();
        assert_eq!(waits, [1.0, 900.0, 1.0, 1.0]);
        assert_eq!(rings.step(SECOND * 3_600), SECOND * 5);
        assert_eq!(rings.step(SECOND * 5), SECOND);
    }

    #[test]
    fn what_is_not_known_is_in_no_mean() {
        let mut rings = rings(5, 100);
        for at in 0..=12 {
            let value = if at % 5 == 3 { at as f32 } else { f32::NAN };
            sample(&mut rings, at, &[("a", value)]);
        }
        let values = rings.values("a", SECOND * 60, 12_000).unwrap();
        assert_eq!(values, [(5_000, 3.0), (10_000, 8.0)]);
    }

    #[test]
    fn ten_thousand_things_take_no_more_than_the_limit() {
        let mut rings = rings(600, 1_440);
        let most = rings.kept().series_max;
        assert!((1_000..10_000).contains(&most), "{most}");
        for at in 0..2 {
            rings.begin(at * 1000);
            for thing in 0..20_000 {
                rings.add(format!("pool.{thing}.held"), 1.0);
            }
            rings.end();
        }
        let kept = rings.kept();
        assert_eq!((kept.series, kept.left_out), (most, 20_000 - most));
        assert!(kept.bytes <= kept.bytes_max && kept.bytes_max <= BYTES_MAX);
    }
}
