//! What a place in a process costs the machine of apps: asked for, granted and
//! given back, with half of all places taken.
//!
//! One app has eight processes of sixteen places; the others only are there. The
//! peer is the least that could do: a queue of permits. Both are behind a lock.

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_core::Reply;
use rideau_core::apps::{AppId, Apps, Ask, Came, Effect, Ended, Limits, Options, SessionId};
use rideau_core::queue::AskOptions;

use crate::measure::{Metric, Plan, Sample, Stall, Subject, compare, cpu_time};
use crate::report::{Format, OURS, Verdict, print, print_lines};

const BENCH: &str = "apps";
const PROCESSES: usize = 8;
const PLACES: usize = 16;
/// Sessions that are open all the time.
const OPEN: usize = PROCESSES * PLACES / 2;
/// What a grant and a release may cost together, in nanoseconds of processor time.
const PAIR_MAX: f64 = 300.0;
/// Between two asks, in nanoseconds.
const GAP: u64 = 10_000;
/// Pairs between two looks at the clock.
const STRETCH: usize = 1000;

pub(crate) fn run(plan: &Plan, format: Format) {
    for apps in [1, 10, 1000] {
        let subjects = [
            subject(OURS, plan, move || ours(apps)),
            subject("queue of permits", plan, permits),
        ];
        let rows = compare(&subjects, plan);
        let case = format!("grant and release, {apps} apps");
        match format {
            Format::Table => {
                let cpu = rows[0].spread(Metric::Cpu).expect("it was measured");
                let what = "cpu_ns of ours".into();
                let verdict = Verdict::at_most(what, cpu.median, PAIR_MAX);
                print_lines(&format!("{BENCH} {case}"), &rows, iter::once(verdict));
            }
            Format::Json => print(BENCH, &case, &rows, format),
        }
    }
}

/// Measures a pair that `start` makes ready.
fn subject<C: FnMut()>(
    name: &'static str,
    plan: &Plan,
    start: impl Fn() -> C + 'static,
) -> Subject<'static> {
    let (warm_up, window) = (plan.warm_up, plan.window);
    let run = move || -> Result<Sample, Stall> {
        let mut pair = start();
        repeat(&mut pair, warm_up);
        let before = cpu_time();
        let pairs = repeat(&mut pair, window);
        let spent = cpu_time() - before;
        Ok(vec![(Metric::Cpu, spent.as_nanos() as f64 / pairs as f64)])
    };
    Subject {
        name,
        run: Box::new(run),
    }
}

fn repeat(pair: &mut impl FnMut(), window: Duration) -> usize {
    let since = Instant::now();
    let mut pairs = 0;
    while since.elapsed() < window {
        iter::repeat_with(&mut *pair).take(STRETCH).for_each(drop);
        pairs += STRETCH;
    }
    pairs
}

#[derive(Debug)]
struct Client;

impl Reply for Client {}

/// The machine with its clock.
struct AppsHarness {
    apps: Apps<Client>,
    effects: Vec<Effect<Client>>,
    now: rideau_core::Instant,
}

impl AppsHarness {
    /// This many apps, the first of which has its processes.
    fn new(count: usize) -> Self {
        let limits = Limits {
            max: PROCESSES,
            ..Limits::default()
        };
        let now = rideau_core::Instant::START;
        let mut harness = Self {
            apps: Apps::new(limits, 1, now).expect("these limits break no rule"),
            effects: Vec::new(),
            now,
        };
        for _ in 0..count {
            let options = Options {
                concurrency: Some(PLACES),
                ..Options::default()
            };
            let added = harness.apps.add(options, now, &mut harness.effects);
            added.expect("these options break no rule");
        }
        for _ in 0..PROCESSES {
            harness.apps.start_one(AppId(0), now, &mut harness.effects);
            let effects = std::mem::take(&mut harness.effects);
            for effect in effects {
                if let Effect::Start { process, .. } = effect {
                    harness.apps.started(process, now, &mut harness.effects);
                }
            }
        }
        harness.effects.clear();
        harness
    }

    fn grant(&mut self) -> SessionId {
        self.now = self.now.after(GAP);
        let ask = Ask {
            terms: AskOptions::new(self.now),
            sticky: None,
            avoid: None,
        };
        let effects = &mut self.effects;
        match self.apps.ask(AppId(0), &ask, || Client, self.now, effects) {
            Came::Granted(session) => session.id,
            other => panic!("half of the places are free: {other:?}"),
        }
    }

    fn release(&mut self, session: SessionId) {
        let effects = &mut self.effects;
        self.apps
            .release(session, Ended::Answered, self.now, effects);
    }
}

fn ours(apps: usize) -> impl FnMut() {
    let mut harness = AppsHarness::new(apps);
    let mut open: VecDeque<_> = iter::repeat_with(|| harness.grant()).take(OPEN).collect();
    let harness = Mutex::new(harness);
    move || {
        let granted = harness.lock().grant();
        open.push_back(granted);
        let oldest = open.pop_front().expect("one was put in");
        harness.lock().release(oldest);
    }
}

fn permits() -> impl FnMut() {
    let all = (0..PLACES).flat_map(|_| 0..PROCESSES);
    let mut all: VecDeque<usize> = all.collect();
    let mut open: VecDeque<_> = all.drain(..OPEN).collect();
    let free = Mutex::new(all);
    move || {
        let granted = free.lock().pop_front();
        open.push_back(granted.expect("half of the places are free"));
        let oldest = open.pop_front().expect("one was put in");
        free.lock().push_back(oldest);
    }
}
