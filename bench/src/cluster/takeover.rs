//! How long it takes until every partition of a killed node is served again.

use std::time::{Duration, Instant};

use super::line::{Answer, Line};
use super::nodes::{LEASE, Nodes, PARTITIONS};
use super::{DATA, TTL_MS};
use crate::measure::Plan;
use crate::talk::frame;

/// Reservations that are there when the node is killed.
const HELD: usize = 1_000_000;
const HELD_QUICK: usize = 50_000;
/// Reservations that are asked for at once.
const CHUNK: usize = 500;
/// Beyond the lease.
const GOAL: Duration = Duration::from_secs(2);

pub(super) fn run(mut nodes: Nodes, plan: &Plan) {
    let held = match plan.runs == Plan::QUICK.runs {
        true => HELD_QUICK,
        false => HELD,
    };
    let values = fill(&nodes, held);
    let dead = nodes.all.len() - 1;
    let mut line = Line::open(nodes.all[0].address);
    let since = Instant::now();
    nodes.all[dead].kill();
    let mut open: Vec<usize> = (0..PARTITIONS).collect();
    let mut told = 0_u64;
    while !open.is_empty() {
        for partition in &open {
            line.send(&frame(&["LOOKUP", &values[*partition]]));
        }
        open.retain(|partition| match line.hear() {
            Answer::List(_) => false,
            Answer::Error(text) if text.starts_with("CLUSTERDOWN") => {
                told += 1;
                true
            }
            other => panic!(
                "value {} of partition {partition}: {other:?}",
                values[*partition]
            ),
        });
    }
    let took = since.elapsed();
    let verdict = match took <= LEASE + GOAL {
        true => "met",
        false => "missed",
    };
    println!("cluster: a node with {held} reservations in the cluster is killed");
    println!(
        "  every partition has answered rightly after {took:.2?}; the lease is {LEASE:?}; \
         CLUSTERDOWN was said {told} times"
    );
    println!("  goal: the lease and {GOAL:?} ({verdict})");
    println!();
    for (name, said) in Nodes::numbers_of(&nodes.all[..dead], &["takeovers", "load_p99_us"]) {
        eprintln!("{name}: {said}");
    }
}

/// Reserve this many. Returns a value of each partition.
fn fill(nodes: &Nodes, held: usize) -> Vec<String> {
    let since = Instant::now();
    let mut values = vec![String::new(); PARTITIONS];
    let mut lines: Vec<_> = nodes.addresses().into_iter().map(Line::open).collect();
    let reserve = frame(&["RESERVE", "pool", "TTL", TTL_MS, "DATA", DATA]);
    let mut asked = 0;
    while asked < held {
        for line in &mut lines {
            line.send(&reserve.repeat(CHUNK));
        }
        for line in &mut lines {
            for _ in 0..CHUNK {
                let answer = line.hear();
                assert_eq!(answer.at(0), "go", "{answer:?}");
                let partition = partition(answer.at(1));
                answer.at(1).clone_into(&mut values[partition]);
            }
        }
        asked += CHUNK * lines.len();
    }
    eprintln!("{asked} reserved within {:.1?}", since.elapsed());
    let is_known = values.iter().all(|value| !value.is_empty());
    assert!(is_known, "every partition has some");
    values
}

/// Where a value belongs.
fn partition(value: &str) -> usize {
    let address: std::net::Ipv4Addr = value.parse().expect("values are addresses");
    u32::from(address) as usize % PARTITIONS
}
