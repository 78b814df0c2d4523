//! How much longer the first answer takes if our server has to start the
//! application for it, than from the application that is started by hand.

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::clients::ask_once;
use super::ours::{self, Listen, Setting};
use super::started::{Place, Started, free_address};
use super::{BY_HAND, OURS_SOCKET, app, goals, show};
use crate::measure::{Metric, Plan, Sample, Stall, Subject, compare};
use crate::report::{Format, OURS};

/// How long it takes until it listens. A front that waits for it with longer
/// and longer pauses is late only if it takes a while.
const DELAYS: [(&str, Duration); 2] = [
    ("cold", Duration::ZERO),
    ("cold-300", Duration::from_millis(300)),
];

/// A start is over soon, and lies apart from the next more than load does.
const RUNS_TIMES: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

pub(super) fn run(program: &Path, plan: &Plan, format: Format) {
    for (case, delay) in DELAYS {
        let runs = match delay.is_zero() {
            true => plan.runs.saturating_mul(RUNS_TIMES),
            false => plan.runs,
        };
        let plan = Plan { runs, ..*plan };
        let ours = |listen| move || ours_first_answer(program, listen, delay);
        let subjects = [
            Subject {
                name: BY_HAND,
                run: Box::new(|| first_answer_by_hand(delay)),
            },
            Subject {
                name: OURS,
                run: Box::new(ours(Listen::Port)),
            },
            Subject {
                name: OURS_SOCKET,
                run: Box::new(ours(Listen::Socket)),
            },
        ];
        // The files are read from the disk once.
        for subject in &subjects {
            let _ = (subject.run)();
        }
        let rows = compare(&subjects, &plan);
        let title = format!("front: first answer, {delay:?} until the application listens");
        show(&title, case, &rows, goals::cold(&rows), format);
    }
}

fn first_answer_by_hand(delay: Duration) -> Result<Sample, Stall> {
    let address = free_address();
    let mut command = app::app_command(&Place::Port(address), delay);
    let since = Instant::now();
    let _app = Started::at_once(&mut command, None).expect("the bench can be its own application");
    // A hand that asks as soon as it can, and leaves the core to the start.
    while ask_once(address).is_err() {
        thread::sleep(Duration::from_micros(100));
    }
    sample(since)
}

fn ours_first_answer(program: &Path, listen: Listen, delay: Duration) -> Result<Sample, Stall> {
    let app = app::Options {
        delay,
        ..app::Options::default()
    };
    let setting = Setting {
        listen,
        min: 0,
        max: 1,
        app,
    };
    let ours = ours::start(program, &setting).expect("it started before");
    // What it does at its own start is not part of it.
    thread::sleep(Duration::from_millis(30));
    let since = Instant::now();
    ask_once(ours.address).expect("the first request is answered");
    sample(since)
}

fn sample(since: Instant) -> Result<Sample, Stall> {
    Ok(vec![(Metric::P50, since.elapsed().as_nanos() as f64)])
}
