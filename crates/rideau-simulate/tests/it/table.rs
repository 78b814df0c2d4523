//! Twice as many come as can be served: the numbers of the specification.
//!
//! An ask comes every 5 ms from 0 on, and from 10 ms on an ask is matched every 10 ms. At one
//! instant deadlines come first, then an ask, then a match. Waits are of those matched in the
//! second half of 20 s.

use std::time::Duration;

use rideau_core::queue::{Options, Overflow};
use rideau_simulate::{Arrivals, Place, RunEnd, Scenario, Service};

use crate::{MS, run, scenario};

/// Median, 99th percentile, shed, and left in the queue.
const SPECIFIED: &[(&str, [u64; 4])] = &[
    ("kind=timeout timeout=1s", [995, 995, 1802, 199]),
    ("kind=timeout timeout=1s order=lifo", [0, 0, 1901, 101]),
    ("kind=never max=100", [995, 995, 1902, 100]),
    ("kind=codel", [7215, 9445, 103, 1899]),
    ("kind=codel max=50", [460, 475, 1952, 50]),
    ("kind=codel max=50 overflow=oldest", [245, 245, 1952, 50]),
    ("kind=codel target=5ms interval=100ms", [25, 50, 1997, 5]),
    (
        "kind=codel target=5ms interval=100ms order=lifo",
        [0, 0, 2001, 0],
    ),
    ("kind=min-delay", [200, 205, 1960, 42]),
    (
        "kind=min-delay target=5ms interval=100ms",
        [10, 15, 1998, 4],
    ),
    ("kind=standing", [95, 95, 1982, 19]),
    ("kind=standing target=5ms interval=100ms", [50, 95, 2000, 2]),
];

#[test]
fn twice_the_load_has_the_numbers_of_the_specification() {
    let places = [
        Place::Broker,
        Place::Queue { is_blind: true },
        Place::Pool {
            start: Duration::ZERO,
        },
    ];
    for place in places {
        for (words, wanted) in SPECIFIED {
            let mut outcome = run(&Scenario {
                place: place.clone(),
                ..overload(words)
            });
            let p50 = outcome.waits.quantile(0.5).as_millis();
            let p99 = outcome.waits.quantile(0.99).as_millis();
            let [p50, p99] = [p50, p99].map(|ms| u64::try_from(ms).unwrap());
            let found = [p50, p99, outcome.shed_total(), outcome.waiting];
            assert_eq!(found, *wanted, "{words} {place:?}");
            assert_eq!(outcome.granted, 1999, "{words}");
        }
    }
}

fn overload(words: &str) -> Scenario {
    let scenario = scenario(words);
    let mut queue = scenario.queue;
    // No limit but the one that is named.
    if queue.max == Options::default().max && queue.overflow == Overflow::Newest {
        queue.max = None;
    }
    Scenario {
        queue,
        servers: 1,
        is_busy: true,
        arrivals: Arrivals::Constant { per_s: 200.0 },
        service: Service::Fixed { mean: 10 * MS },
        end: RunEnd::At(Duration::from_secs(20)),
        from: Duration::from_secs(10),
        ..scenario
    }
}
