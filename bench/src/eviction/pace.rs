//! What it costs to learn from an ask, and to tell a worth.

use std::hint::black_box;
use std::iter;
use std::time::{Duration, Instant};

use rideau_core::Rng;
use rideau_core::eviction_score::EvictionScore;

use super::BENCH;
use crate::measure::{Metric, Plan, Sample, Stall, Subject, compare, cpu_time};
use crate::report::{Format, Verdict, print as print_rows, print_lines};

/// What learning from an ask may cost that no shadow has the app of, in
/// nanoseconds of processor time.
const MISS_MAX: f64 = 2000.0;
const START_TIME: Duration = Duration::from_secs(1);
/// Between two asks.
const GAP: u64 = 250_000_000;
/// Calls between two looks at the clock.
const STRETCH: usize = 1000;

pub(super) fn run(plan: &Plan, format: Format) {
    for max in [10, 100] {
        let subjects = [
            subject("asked, all hit", plan, move || asked(max, max / 2)),
            subject("asked, all miss", plan, move || asked(max, 100 * max)),
            subject("value", plan, move || value(max)),
        ];
        let rows = compare(&subjects, plan);
        let case = format!("pace {max}");
        match format {
            Format::Table => {
                let cpu = rows[1].spread(Metric::Cpu).expect("it was measured");
                let what = "cpu_ns of asked, all miss".into();
                let verdict = Verdict::at_most(what, cpu.median, MISS_MAX);
                let verdict = (max == super::MAX).then_some(verdict);
                let title = format!("{BENCH} {case}: one call, in a pool of {max}");
                print_lines(&title, &rows, verdict.into_iter());
            }
            Format::Json => print_rows(BENCH, &case, &rows, format),
        }
    }
}

/// Measures a call that `start` makes ready.
fn subject<C: FnMut()>(
    name: &'static str,
    plan: &Plan,
    start: impl Fn() -> C + 'static,
) -> Subject<'static> {
    let (warm_up, window) = (plan.warm_up, plan.window);
    let run = move || -> Result<Sample, Stall> {
        let mut call = start();
        repeat(&mut call, warm_up);
        let before = cpu_time();
        let calls = repeat(&mut call, window);
        let spent = cpu_time() - before;
        Ok(vec![(Metric::Cpu, spent.as_nanos() as f64 / calls as f64)])
    };
    Subject {
        name,
        run: Box::new(run),
    }
}

fn repeat(call: &mut impl FnMut(), window: Duration) -> usize {
    let since = Instant::now();
    let mut calls = 0;
    while since.elapsed() < window {
        iter::repeat_with(&mut *call).take(STRETCH).for_each(drop);
        calls += STRETCH;
    }
    calls
}

/// Asks for one of this many apps in no order.
fn asked(max: usize, apps: usize) -> impl FnMut() {
    let mut worth = EvictionScore::new(max, false);
    let mut rng = Rng::new(1);
    let mut now = rideau_core::Instant::START;
    move || {
        now = now.after(GAP);
        worth.asked(rng.below(apps as u64) as u32, START_TIME, now);
    }
}

fn value(max: usize) -> impl FnMut() {
    let mut worth = EvictionScore::new(max, false);
    let mut now = rideau_core::Instant::START;
    let apps = max as u32;
    for app in 0..apps {
        worth.asked(app, START_TIME, now);
    }
    let mut app = 0;
    move || {
        now = now.after(GAP / 1000);
        app = (app + 1) % apps;
        black_box(worth.value(app, START_TIME, now));
    }
}
