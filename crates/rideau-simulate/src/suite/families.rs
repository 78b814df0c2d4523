//! The cells of the suite, by what they are about.

use super::cell::{Asker, Holds, Pattern, Policy, SuiteCell};
use super::run;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Cells about one thing, and the ratios that they have to reach.
#[derive(Clone, Debug)]
pub struct Family {
    /// What they are about, in a word or two.
    pub name: &'static str,
    /// The policy that is judged.
    pub policy: Policy,
    /// The cells.
    pub cells: Vec<SuiteCell>,
    /// The least ratio of any cell.
    pub least: f64,
    /// The least mean of the ratios.
    pub mean: f64,
}

/// Servers and holds, few of the first with short ones of the second: a run has to be long
/// enough, and not too long.
const PLACES: [(u32, u64); 10] = [
    (1, MS),
    (1, 100 * MS),
    (1, 3 * SECOND),
    (4, 10 * MS),
    (4, SECOND),
    (4, 30 * SECOND),
    (10, 100 * MS),
    (10, 3 * SECOND),
    (100, SECOND),
    (100, 30 * SECOND),
];
const LOADS: [f64; 6] = [0.5, 0.9, 1.0, 1.2, 2.0, 5.0];
const FEW_PLACES: [(u32, u64); 4] = [(1, 10 * MS), (10, 10 * MS), (1, SECOND), (10, SECOND)];

/// All cells.
pub fn families() -> Vec<Family> {
    let family = |name, policy, cells, least, mean| Family {
        name,
        policy,
        cells,
        least,
        mean,
    };
    vec![
        family("steady", Policy::Default, steady(), 0.93, 0.99),
        family("blind", Policy::Blind, blind(), 0.88, 0.975),
        family("named waits", Policy::Default, named(), 0.94, 0.99),
        family("patterns", Policy::Default, patterns(), 0.90, 0.975),
        family("hang-ups", Policy::Default, leaving(), 0.93, 0.99),
        family("retries", Policy::Default, followers(), 0.85, 0.85),
    ]
}

/// Cells over servers and holds, each with a seed of its own.
pub fn places(cell: impl Fn(u32, u64) -> SuiteCell) -> Vec<SuiteCell> {
    let cells = PLACES
        .iter()
        .zip(11..)
        .map(|((servers, hold), seed)| SuiteCell {
            seed,
            ..cell(*servers, *hold)
        });
    cells.collect()
}

fn steady() -> Vec<SuiteCell> {
    let mut cells = Vec::new();
    for load in LOADS {
        cells.extend(places(|servers, hold| {
            SuiteCell::steady(load, servers, hold)
        }));
    }
    for holds in [Holds::Fixed, Holds::LogNormal, Holds::Mixed] {
        for load in [0.7, 1.2] {
            for servers in [1, 10] {
                cells.extend([10 * MS, SECOND].map(|hold| SuiteCell {
                    holds,
                    ..SuiteCell::steady(load, servers, hold)
                }));
            }
        }
    }
    cells
}

fn blind() -> Vec<SuiteCell> {
    let cells = LOADS.into_iter().flat_map(|load| {
        let all = places(|servers, hold| SuiteCell::steady(load, servers, hold));
        all.into_iter().step_by(3)
    });
    cells.collect()
}

fn named() -> Vec<SuiteCell> {
    let mut cells = Vec::new();
    for load in [0.7, 1.2, 2.0, 5.0] {
        for (servers, hold) in FEW_PLACES {
            cells.extend(
                [200 * MS, 2 * SECOND, 10 * hold, 100 * hold].map(|wait| SuiteCell {
                    asker: Asker::Named(wait),
                    ..SuiteCell::steady(load, servers, hold)
                }),
            );
        }
    }
    cells.extend(patterns().into_iter().map(|cell| SuiteCell {
        asker: Asker::Named(10 * SECOND),
        ..cell
    }));
    cells
}

/// Bursts, waves, ramps and stalls.
pub fn patterns() -> Vec<SuiteCell> {
    let mut cells = Vec::new();
    let places = [
        (1, 10 * MS, 120),
        (4, 10 * MS, 60),
        (1, 100 * MS, 240),
        (10, 100 * MS, 120),
        (10, SECOND, 600),
    ];
    for (servers, hold, seconds) in places {
        let loads = [
            Pattern::Bursts(100 * MS),
            Pattern::Bursts(SECOND),
            Pattern::Bursts(10 * SECOND),
            Pattern::OnOff(5 * SECOND),
            Pattern::Ramp,
            Pattern::Stall,
            Pattern::Recovery,
        ];
        cells.extend(loads.map(|load| SuiteCell {
            load,
            until: seconds * SECOND,
            ..SuiteCell::steady(1.0, servers, hold)
        }));
    }
    cells
}

/// Clients that are less patient than a few holds are served by chance alone, so cells where
/// too few are served in time are left out.
fn leaving() -> Vec<SuiteCell> {
    let mut cells = Vec::new();
    for load in [0.7, 1.2, 2.0] {
        for (servers, hold) in FEW_PLACES {
            cells.extend([200 * MS, 2 * SECOND, 10 * hold].map(|patience| SuiteCell {
                asker: Asker::Leaves(patience),
                ..SuiteCell::steady(load, servers, hold)
            }));
        }
    }
    cells.retain(|cell| run(cell, Policy::Never).is_ok_and(|run| run.useful >= 500));
    cells
}

fn followers() -> Vec<SuiteCell> {
    let mut cells = Vec::new();
    for load in [1.2, 2.0, 3.0] {
        cells.extend(FEW_PLACES.map(|(servers, hold)| SuiteCell {
            asker: Asker::Follows,
            ..SuiteCell::steady(load, servers, hold)
        }));
    }
    cells
}
