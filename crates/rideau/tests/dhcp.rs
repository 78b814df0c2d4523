//! The example that serves addresses, with clocks that a test moves.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "the program itself uses the rest")]
#[path = "../examples/dhcp/load.rs"]
mod load;
#[path = "../examples/dhcp/report.rs"]
mod report;
#[path = "../examples/dhcp/seed.rs"]
mod seed;
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "store/stage.rs"]
mod stage;

use std::collections::BTreeSet;
use std::time::Duration;

use rideau::store::Embedded;
use rideau::{ManualClocks, Ranges, RangesOptions};

use crate::load::Clients;
use crate::seed::Plan;
use crate::stage::Folder;

fn open(folder: &Folder, prefix: u32, clocks: &ManualClocks) -> Ranges {
    let options = RangesOptions {
        ranges: seed::ranges(prefix),
        ..RangesOptions::default()
    };
    let store = Embedded::open(&folder.0).unwrap();
    Ranges::open_by(Box::new(store), options, clocks).unwrap()
}

#[test]
fn all_values_are_given_once_primary_first_and_all_come_back() {
    let folder = Folder::quick();
    let clocks = ManualClocks::new();
    let ranges = open(&folder, Plan::FULL.prefix, &clocks);
    let report = seed::run(&ranges, Plan::FULL, |span| clocks.advance(span)).unwrap();

    let values: BTreeSet<u128> = report.given.iter().map(|one| one.value).collect();
    assert_eq!(Plan::FULL.values(), 65_536);
    assert_eq!((report.given.len(), values.len()), (65_536, 65_536));
    let (first, rest) = report.given.split_at(32_768);
    assert!(first.iter().all(|one| one.tier == 0));
    assert!(rest.iter().all(|one| one.tier == 1));
    assert!(report.peak.iter().all(|range| range.free.is_zero()));
    assert_eq!(report.initial, report.end);
    assert!(report.has_passed() && report.lapsed == 65_536);

    let printed = report.to_string();
    for line in [
        "  test_passed     true",
        "  initial         primary    base 10.128.0.0   size 32768  free 32768",
        "  peak            secondary  base 10.0.0.0     size 32768  free 0",
        "  final           primary    base 10.128.0.0   size 32768  free 32768",
        "  count_reserved       65536     65536",
    ] {
        assert!(printed.contains(line), "{line} is missing in\n{printed}");
    }
    assert!(printed.contains("p99 secondary/primary"), "{printed}");

    let again = seed::run_nearly_full(&ranges, Plan::QUICK).unwrap();
    let turns = Plan::QUICK.turns as u64;
    assert_eq!((again.0.len(0), again.0.len(1)), (turns, turns));
    drop(ranges);
    let ranges = open(&folder, Plan::FULL.prefix, &clocks);
    let held: u64 = ranges.all_stats().iter().map(|stats| stats.reserved).sum();
    assert_eq!(held, 0, "what came back is back after a restart too");
}

#[tokio::test(start_paused = true)]
async fn clients_come_renew_and_go() {
    let folder = Folder::quick();
    // Fewer than there are clients at a time in the first range.
    let ranges = open(&folder, 24, &ManualClocks::new());
    let clients = Clients {
        count: 400,
        ..Clients::FULL
    };
    let times = load::run(&ranges, clients, Duration::from_secs(1)).await;
    let times = times.unwrap().0;
    let each = clients.visits * (1 + clients.renewals);
    assert_eq!(times.len(0) + times.len(1), 400 * each as u64);
    assert!(times.len(1) > 0, "some had to take the second range");
    let free = ranges
        .all_stats()
        .iter()
        .all(|range| range.free == range.size);
    assert!(free, "all have gone");
}
