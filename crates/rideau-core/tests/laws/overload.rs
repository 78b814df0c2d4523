//! Twice as many come as can be served, and they come whatever happens.
//!
//! An ask comes every 5 ms from 0 on, and from 10 ms on an ask is served every
//! 10 ms. At one instant the queue is advanced first if that is due, then an
//! ask comes, then an ask is served. The first event at 20 s is the last. Waits
//! are of those served in the second half.

use rideau_core::queue::{AskOptions, Options, Queue, Turn};
use rideau_core::{Instant, Ledger, Settings};

const COME_EVERY: u64 = 5_000_000;
const SERVE_EVERY: u64 = 10_000_000;
const END: u64 = 20_000_000_000;

/// How many can be served until the end.
const CAPACITY: usize = 1999;

/// What became of the asks.
struct Run {
    /// Milliseconds, the shortest first.
    waits: Vec<usize>,
    served: usize,
    shed: usize,
    left: usize,
}

impl Run {
    fn percentile(&self, percent: usize) -> usize {
        self.waits[self.waits.len() * percent / 100]
    }
}

/// The table of the specification, for laws that it describes fully.
const SPECIFIED: &[(&str, [usize; 4])] = &[
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

/// What we measure where the specification has no row, or another law.
const MEASURED: &[(&str, [usize; 4])] = &[
    // The specification has 0 / 50, 2000 shed and 2 left: it serves the newest
    // only while the queue stands, where this always does.
    (
        "kind=standing target=5ms interval=100ms order=lifo",
        [0, 0, 1996, 6],
    ),
    ("kind=paced", [150, 150, 1971, 31]),
    ("kind=min-delay order=lifo", [0, 0, 1980, 22]),
    ("kind=min-delay order=adaptive slow=100ms", [0, 0, 1980, 22]),
    (
        "kind=min-delay target=5ms interval=100ms order=lifo",
        [0, 0, 1999, 3],
    ),
    ("kind=bounded-codel", [200, 200, 1961, 41]),
    (
        "kind=bounded-codel target=5ms interval=100ms",
        [10, 10, 2001, 0],
    ),
    (
        "kind=bounded-codel order=adaptive slow=100ms",
        [0, 0, 1981, 21],
    ),
    (
        "kind=timeout timeout=1s order=adaptive slow=100ms",
        [0, 0, 1901, 101],
    ),
];

#[test]
fn twice_the_load_has_the_numbers_of_the_specification() {
    println!("  p50 ms  p99 ms    shed    left  options");
    for (options, wanted) in SPECIFIED.iter().chain(MEASURED) {
        let run = overload(options);
        let numbers = [run.percentile(50), run.percentile(99), run.shed, run.left];
        let [p50, p99, shed, left] = numbers;
        println!("{p50:8}{p99:8}{shed:8}{left:8}  {options}");
        assert_eq!(numbers, *wanted, "{options}");
        assert_eq!(run.served, CAPACITY, "{options}");
    }
}

/// Askers that keep coming would wait for ever longer behind plain CoDel.
#[test]
fn a_bound_keeps_waits_near_the_target_and_the_server_busy() {
    for target in [5, 100, 200, 500] {
        let interval = target * if target < 100 { 20 } else { 10 };
        let options = format!("kind=bounded-codel target={target}ms interval={interval}ms");
        let run = overload(&options);
        assert!(10 * run.percentile(99) < 21 * target, "{options}");
        assert!(100 * run.served >= 99 * CAPACITY, "{options}");
    }
}

/// Run a queue with these options; it has no limit but the one they name.
fn overload(options: &str) -> Run {
    let mut options = Options::parse(Settings::parse(options).unwrap()).unwrap();
    if options.max == Options::default().max {
        options.max = None;
    }
    let mut queue = Queue::new(options, Instant::START).unwrap();
    let (mut ledger, mut shed) = (Ledger::<u64>::default(), Vec::new());
    let (mut come, mut serve) = (0, SERVE_EVERY);
    let (mut came, mut served, mut waits) = (0, 0, Vec::new());
    let mut now = 0;
    while now < END {
        let due = queue.deadline().map_or(u64::MAX, Instant::as_nanos);
        now = due.min(come).min(serve);
        let instant = Instant::from_nanos(now);
        if now == due {
            queue.advance(&mut ledger, instant, &mut shed);
        } else if now == come {
            let ticket = ledger.open(now);
            let terms = AskOptions::new(instant);
            queue.push(ticket, &terms, &mut ledger, instant, &mut shed);
            (came, come) = (came + 1, come + COME_EVERY);
        } else {
            if let Turn::Of(ticket) = queue.pop(&mut ledger, instant, &mut shed) {
                served += 1;
                let waited = now - ledger.close(ticket).unwrap();
                if now >= END / 2 {
                    waits.push(usize::try_from(waited / 1_000_000).unwrap());
                }
            }
            serve += SERVE_EVERY;
        }
    }
    assert_eq!(came, served + shed.len() + queue.len(), "nobody is lost");
    waits.sort_unstable();
    Run {
        waits,
        served,
        shed: shed.len(),
        left: queue.len(),
    }
}
