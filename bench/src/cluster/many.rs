//! Thirty-two nodes on one machine, two tiers of values, and a client that reserves all of them
//! one after the other at any node: how long each took, in the table of the allocator that
//! ours came from.
//!
//! There, a value was gone with its node, and one of the second tier took six times as long as
//! one of the first. Here each is in etcd before it is told.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rideau_core::Rng;

use super::TTL_MS;
use super::line::{Answer, Line};
use super::nodes::Nodes;
use crate::measure::Plan;
use crate::report::Format;
use crate::talk::{Disk, fail, program};

const NODES: usize = 32;
/// Values of both tiers.
const VALUES: usize = 65_536;
const VALUES_QUICK: usize = 4_096;
/// The slowest column of the table, in milliseconds.
const SLOWEST: usize = 10;
/// The second tier may take this many times as long as the first.
const GOAL: f64 = 1.5;

/// How long reservations of a tier took.
#[derive(Default)]
struct Tier {
    took: Vec<Duration>,
}

impl Tier {
    /// How many took this many milliseconds, rounded up.
    fn within(&self, millis: usize) -> usize {
        let is_it = |took: &&Duration| took.as_micros().div_ceil(1_000).max(1) == millis as u128;
        self.took.iter().filter(is_it).count()
    }

    fn over(&self) -> usize {
        let most = Duration::from_millis(SLOWEST as u64);
        self.took.iter().filter(|took| **took > most).count()
    }

    fn quantile(&mut self, share: f64) -> Duration {
        self.took.sort_unstable();
        let at = (self.took.len() as f64 * share) as usize;
        self.took[at.min(self.took.len() - 1)]
    }
}

pub(crate) fn run(plan: &Plan, _: Format) {
    let program = program();
    let Some(disk) = Disk::find() else {
        fail("no disk to keep anything on: set TMPDIR to a folder that is not in memory");
    };
    let values = match plan.runs == Plan::QUICK.runs {
        true => VALUES_QUICK,
        false => VALUES,
    };
    let half = values / 2;
    let ranges = format!(
        "[range.primary]\nvalues = [\"0-{}\"]\n[range.secondary]\nvalues = [\"{half}-{}\"]\n",
        half - 1,
        values - 1
    );
    let nodes = Nodes::start(&program, &disk.folder, NODES, &ranges);
    let before = free(&nodes);
    println!("Test: prepared to proceed with {values} allocations.");
    let (mut tiers, tickets) = reserve_all(&nodes, values);
    let peak = free(&nodes);
    println!("Test: all values reserved");
    print_counts(&tiers);
    let [first, second] = &mut tiers;
    assert_eq!((first.took.len(), second.took.len()), (half, half));
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (one, other) = (first.quantile(share), second.quantile(share));
        let times = other.as_secs_f64() / one.as_secs_f64();
        let verdict = match times <= GOAL {
            true => "met",
            false => "missed",
        };
        println!("{name}: primary {one:.2?}, secondary {other:.2?}, {times:.2}x");
        println!("  goal: at most {GOAL}x ({verdict})");
    }
    let resident: Vec<_> = nodes.all.iter().map(|node| node.resident() >> 20).collect();
    println!("memory of a node: at most {:?} MiB", resident.iter().max());
    release_all(&nodes, &tickets);
    let after = free(&nodes);
    println!("free: initial {before}, peak {peak}, final {after}");
    assert_eq!((before, peak, after), (values as u64, 0, values as u64));
}

/// Reserve every value at any node. The first half has to be of the first tier.
fn reserve_all(nodes: &Nodes, values: usize) -> ([Tier; 2], Vec<String>) {
    let mut lines: Vec<_> = nodes.addresses().into_iter().map(Line::open).collect();
    let mut rng = Rng::new(1);
    let mut tiers = [Tier::default(), Tier::default()];
    let (mut seen, mut tickets, mut again) = (HashSet::new(), Vec::new(), 0_u64);
    while seen.len() < values {
        let line = &mut lines[rng.below(NODES as u64) as usize];
        let since = Instant::now();
        let answer = line.ask(&["RESERVE", "primary", "PREFER", "secondary", "TTL", TTL_MS]);
        let took = since.elapsed();
        if answer.at(0) != "go" {
            // The node does not know yet which other has the last values.
            again += 1;
            assert!(again < values as u64, "{answer:?}");
            continue;
        }
        let value = answer.at(1);
        let number: usize = value.parse().expect("values are numbers");
        assert!(seen.insert(number), "{value} was given twice");
        tickets.push(answer.at(2).to_owned());
        tiers[usize::from(number >= values / 2)].took.push(took);
    }
    println!("asked again: {again} times");
    (tiers, tickets)
}

fn release_all(nodes: &Nodes, tickets: &[String]) {
    let mut line = Line::open(nodes.all[0].address);
    for ticket in tickets {
        let answer = line.ask(&["RELEASE", ticket]);
        assert!(!matches!(answer, Answer::Error(_)), "{answer:?}");
    }
}

/// Free values of both tiers on all nodes.
fn free(nodes: &Nodes) -> u64 {
    let lines = nodes.addresses().into_iter().map(Line::open);
    let frees = lines.map(|mut line| {
        let Answer::List(rows) = line.ask(&["SHOW", "RANGES"]) else {
            return 0;
        };
        let Some((Answer::List(heads), rows)) = rows.split_first() else {
            return 0;
        };
        let at = heads
            .iter()
            .position(|head| *head == Answer::Text("free".into()));
        let free = |row: &Answer| row.at(at.unwrap_or(0)).parse().unwrap_or(0);
        rows.iter().map(free).sum::<u64>()
    });
    frees.sum()
}

fn print_counts([first, second]: &[Tier; 2]) {
    println!("{{counters,[{{reserve_delay,primary,secondary}},");
    for millis in 1..=SLOWEST {
        let (one, other) = (first.within(millis), second.within(millis));
        println!("           {{count_{millis}ms,{one},{other}}},");
    }
    println!(
        "           {{count_over,{},{}}}]}}",
        first.over(),
        second.over()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_counted_in_the_millisecond_that_it_ends_in() {
        let micros = [1, 999, 1_000, 1_001, 10_000, 10_001];
        let tier = Tier {
            took: micros.map(Duration::from_micros).into(),
        };
        assert_eq!((tier.within(1), tier.within(2)), (3, 1));
        assert_eq!((tier.within(SLOWEST), tier.over()), (1, 1));
    }
}
