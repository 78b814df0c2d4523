//! Times by tier, and how the ranges were, as text.

use std::fmt;
use std::time::Duration;

use rideau::Histogram;
use rideau::allocator::{RangeStats, Size};

/// What the second tier may take at p99, in times of the first.
const GOAL: f64 = 1.5;
const BAR: usize = 40;

/// How long answers took, for each tier.
#[derive(Clone, Default, Debug)]
pub(crate) struct Times {
    tiers: [Tier; 2],
}

#[derive(Clone, Default, Debug)]
struct Tier {
    spans: Histogram,
    /// Up to one millisecond, two, and so on; the last is of all that took longer.
    millis: [u64; 11],
}

impl Times {
    pub(crate) fn record(&mut self, tier: u8, span: Duration) {
        let tier = &mut self.tiers[usize::from(tier)];
        tier.spans.record(span);
        let millis = usize::try_from(span.as_millis()).unwrap_or(usize::MAX);
        tier.millis[millis.min(10)] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (tier, other) in self.tiers.iter_mut().zip(&other.tiers) {
            tier.spans.add(&other.spans);
            let counts = tier.millis.iter_mut().zip(other.millis);
            counts.for_each(|(count, more)| *count += more);
        }
    }

    pub(crate) fn len(&self, tier: u8) -> u64 {
        self.tiers[usize::from(tier)].spans.len()
    }

    /// The second tier's p99 in times of the first's.
    pub(crate) fn ratio(&self) -> f64 {
        let [first, second] = [0, 1].map(|tier| self.quantile(tier, 0.99).as_secs_f64());
        second / first
    }

    fn quantile(&self, tier: usize, part: f64) -> Duration {
        self.tiers[tier].spans.quantile(part)
    }

    /// The counters, a line each.
    pub(crate) fn counters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<16}{:>10}{:>10}",
            "reserve_delay", "primary", "secondary"
        )?;
        let [first, second] = &self.tiers;
        for (at, (one, two)) in first.millis.iter().zip(second.millis).enumerate() {
            let name = match at {
                10 => "count_over".to_owned(),
                _ => format!("count_{}ms", at + 1),
            };
            writeln!(f, "  {name:<16}{one:>10}{two:>10}")?;
        }
        Ok(())
    }

    /// Both tiers side by side, by doubling times.
    pub(crate) fn bars(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (tier, name) in self.tiers.iter().zip(["primary", "secondary"]) {
            if tier.spans.is_empty() {
                continue;
            }
            writeln!(f, "  {name}, {} answers", tier.spans.len())?;
            let mut counts = [0_u64; 65];
            for (span, count) in tier.spans.buckets() {
                let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
                counts[64 - micros.leading_zeros() as usize] += count;
            }
            let most = counts.iter().copied().max().unwrap_or(1).max(1);
            for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let bar = "#".repeat((*count as usize * BAR).div_ceil(most as usize));
                let until = Duration::from_micros(1 << at);
                writeln!(f, "  {:>10} {bar:<BAR$} {count}", format!("<{until:?}"))?;
            }
        }
        Ok(())
    }

    /// p50, p99 and the ratio of both tiers, in a line.
    pub(crate) fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (tier, name) in ["primary", "secondary"].into_iter().enumerate() {
            let (p50, p99) = (self.quantile(tier, 0.5), self.quantile(tier, 0.99));
            write!(f, "{name} p50 {p50:.0?} p99 {p99:.0?}, ")?;
        }
        let ratio = self.ratio();
        write!(f, "p99 secondary/primary {ratio:.2} (goal: at most {GOAL})")
    }
}

/// A range as the report shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) base: String,
    pub(crate) size: Size,
    pub(crate) free: Size,
}

impl Shown {
    pub(crate) fn of(stats: &RangeStats) -> Self {
        Self {
            name: stats.name.clone(),
            base: stats.kind.print(stats.first),
            size: stats.size,
            free: stats.free,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            base,
            size,
            free,
        } = self;
        write!(f, "{name:<10} base {base:<12} size {size:<6} free {free}")
    }
}
