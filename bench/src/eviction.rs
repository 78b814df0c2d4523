//! Which app loses its process: ours beside other policies and beside what
//! could be known only afterwards, on made-up traffic.
//!
//! Starts are counted and not made, so the first three tables are the same in
//! every run and on every machine.

mod optimum;
mod pace;
mod policy;
mod table;
#[path = "../../crates/rideau-core/tests/laws/worth/traces.rs"]
mod traces;

use rideau_core::Rng;

use self::optimum::{fewest_starts, least_cost};
use self::policy::{Ask, CONTESTANTS, Contestant, LRU};
use self::table::{Line, Table, print};
use self::traces::{APPS, Dice, Request, TRACES, Trace};
use crate::measure::Plan;
use crate::report::{Format, OURS, Verdict};

const BENCH: &str = "eviction";
/// Processes that there may be, where nothing else is said.
const MAX: usize = 10;
const SEEDS: [u64; 2] = [1, 2];
/// Seconds that starts take, from the shortest to the longest.
const START_TIMES: (f64, f64) = (0.2, 20.0);

pub(crate) fn run(plan: &Plan, format: Format) {
    for table in [starts(), start_times(), sizes()] {
        print(&table, format);
    }
    pace::run(plan, format);
}

/// How many starts each policy needs where all cost the same.
fn starts() -> Table {
    let lines = TRACES.iter().map(|trace| {
        ratios(trace, 30_000, |apps, _| {
            (vec![1.0; APPS], fewest_starts(apps, MAX) as f64)
        })
    });
    let (lines, verdicts) = judged(lines.collect(), 1.40);
    Table {
        case: "starts",
        title: "starts over the fewest possible",
        metric: "ratio",
        lines,
        verdicts,
    }
}

/// How long starts take together under each policy, where some apps start
/// fast and others slowly.
fn start_times() -> Table {
    let traces = TRACES
        .iter()
        .filter(|trace| !LEFT_OUT.contains(&trace.name));
    let lines = traces.map(|trace| {
        ratios(trace, 20_000, |apps, seed| {
            let costs = unequal_costs(seed);
            let best = least_cost(apps, &costs, MAX);
            (costs, best)
        })
    });
    let (lines, verdicts) = judged(lines.collect(), 1.55);
    Table {
        case: "start-times",
        title: "seconds of starts over the fewest possible, starts of 0.2 to 20 s",
        metric: "ratio",
        lines,
        verdicts,
    }
}

/// Traffic that says nothing more where costs differ.
const LEFT_OUT: [&str; 3] = ["zipf 0.6", "phases", "zipf + monitor"];

/// How many starts each policy needs in pools of other sizes.
fn sizes() -> Table {
    let mut lines = Vec::new();
    for name in ["zipf 1.0", "visitors", "pages 1/s"] {
        let trace = TRACES.iter().find(|trace| trace.name == name);
        let trace = trace.expect("there is such traffic");
        for max in [5, 10, 15, 20, 30, 50] {
            lines.push(starts_with(trace, max));
        }
    }
    let over_lru = |line: &Line| column(line, OURS) / column(line, LRU);
    let worst = lines.iter().map(over_lru).fold(0.0, f64::max);
    Table {
        case: "sizes",
        title: "starts for a thousand requests, in pools of other sizes",
        metric: "starts_1000",
        verdicts: vec![Verdict::at_most("worst of ours / lru".into(), worst, 1.03)],
        lines,
    }
}

fn starts_with(trace: &Trace, max: usize) -> Line {
    let count = 30_000;
    let requests = SEEDS.map(|seed| trace.requests(count, seed));
    let per_thousand = |starts: f64| starts * 1000.0 / (count * SEEDS.len()) as f64;
    let best = requests.each_ref().map(|requests| {
        let starts = fewest_starts(&names(requests), max);
        starts as f64
    });
    let values = CONTESTANTS.iter().map(|contestant| {
        let costs = requests
            .each_ref()
            .map(|requests| cost(contestant, requests, &[1.0; APPS], max));
        per_thousand(costs.iter().sum())
    });
    Line {
        name: format!("{} in {max}", trace.name),
        best: per_thousand(best.iter().sum()),
        values: values.collect(),
    }
}

/// The lines with their mean at the end, which should be at most so much for
/// ours.
fn judged(mut lines: Vec<Line>, max: f64) -> (Vec<Line>, Vec<Verdict>) {
    let mean = |at: usize| {
        let logarithms = lines.iter().map(|line| line.values[at].ln());
        (logarithms.sum::<f64>() / lines.len() as f64).exp()
    };
    let means = Line {
        name: "geometric mean".into(),
        best: f64::NAN,
        values: (0..CONTESTANTS.len()).map(mean).collect(),
    };
    let verdict = Verdict::at_most("mean of ours".into(), column(&means, OURS), max);
    lines.push(means);
    (lines, vec![verdict])
}

/// What each policy costs in times of the least possible, in the mean of the
/// seeds. From names and a seed `price` tells what starts cost, and the least
/// that they can cost together.
fn ratios(trace: &Trace, count: usize, price: impl Fn(&[u32], u64) -> (Vec<f64>, f64)) -> Line {
    let mut line = Line {
        name: trace.name.into(),
        best: 0.0,
        values: vec![0.0; CONTESTANTS.len()],
    };
    for seed in SEEDS {
        let requests = trace.requests(count, seed);
        let (costs, best) = price(&names(&requests), seed);
        let share = 1.0 / SEEDS.len() as f64;
        line.best += best * 1000.0 / count as f64 * share;
        for (value, contestant) in line.values.iter_mut().zip(&CONTESTANTS) {
            *value += cost(contestant, &requests, &costs, MAX) / best * share;
        }
    }
    line
}

fn cost(contestant: &Contestant, requests: &[Request], costs: &[f64], max: usize) -> f64 {
    let mut policy = (contestant.start)(max);
    let asks = requests.iter().map(|request| Ask {
        app: request.app,
        cost: costs[request.app as usize],
        at: request.at,
    });
    asks.filter(|ask| policy.ask(ask)).map(|ask| ask.cost).sum()
}

fn unequal_costs(seed: u64) -> Vec<f64> {
    let mut dice = Dice(Rng::new(seed + 1000));
    let (min, max) = START_TIMES;
    let cost = |_| dice.between(min.ln(), max.ln()).exp();
    (0..APPS).map(cost).collect()
}

fn names(requests: &[Request]) -> Vec<u32> {
    requests.iter().map(|request| request.app).collect()
}

fn column(line: &Line, name: &str) -> f64 {
    let mut values = CONTESTANTS.iter().zip(&line.values);
    let found = values.find(|(contestant, _)| contestant.name == name);
    *found.expect("it is one of us").1
}
