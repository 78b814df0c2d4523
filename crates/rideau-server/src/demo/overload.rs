//! Two brokers under the same overload, side by side in real time.
//!
//! Asks come at twice the rate that can be served, and keep coming whatever happens
//! to them. Nothing is simulated: the asks and the workers are tasks, the
//! brokers are the library's, and the waits are real.

mod span;
mod table;
mod trial;

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::runtime;
use tokio::signal;
use tokio::time::{Instant, interval_at};

use super::screen::{Paint, Screen};
use span::Span;
use trial::{Glance, Trial};

/// How the demo ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    Complete,
    Interrupted,
}

const TICK: Duration = Duration::from_millis(500);
const TICKS_PER_SECOND: u32 = 2;

/// Letters of a full bar, which stands for a wait of [`BAR_WAIT`].
const BAR: u32 = 10;
const BAR_WAIT: Duration = Duration::from_secs(1);

/// The rivals: a name, the words of their options, and what they are.
const RIVALS: [(&str, &str, &str); 2] = [
    (
        "timeout",
        "kind=timeout timeout=1s",
        "plain FIFO with a timeout",
    ),
    ("default", "kind=paced", "the default: shed by age"),
];

/// Show the demo for so long.
pub(crate) fn run(seconds: u32) -> io::Result<Finish> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(show(seconds, &mut Screen::stdout()))
}

async fn show(seconds: u32, screen: &mut Screen) -> io::Result<Finish> {
    introduce(seconds, screen)?;
    let trials = RIVALS.map(|(name, options, _)| Trial::start(name, options));
    let began = Instant::now();
    let mut ticks = interval_at(began + TICK, TICK);
    let mut interrupt = pin!(signal::ctrl_c());
    let mut glances = trials.each_ref().map(Trial::glance);
    for tick in 1..=seconds * TICKS_PER_SECOND {
        tokio::select! {
            _ = ticks.tick() => (),
            _ = &mut interrupt => {
                let after = Span(began.elapsed());
                screen.line(&format!("\nstopped after {after}; a run that is stopped prints no \
                    table"))?;
                return Ok(Finish::Interrupted);
            }
        }
        let before = glances;
        glances = trials.each_ref().map(Trial::glance);
        let pairs = before.iter().zip(&glances);
        let rows: Vec<_> = pairs
            .map(|(before, now)| row(began.elapsed(), before, now, screen))
            .collect();
        screen.redraw(&rows)?;
        if tick == seconds {
            trials.iter().for_each(Trial::judge_from_now);
        }
    }
    let verdicts = trials.each_ref().map(Trial::verdict);
    table::print(seconds, &verdicts, screen)?;
    Ok(Finish::Complete)
}

fn introduce(seconds: u32, screen: &mut Screen) -> io::Result<()> {
    screen.line(&format!(
        "Two brokers for {seconds} s, each with {} workers that can serve {} asks a second.",
        trial::WORKERS,
        trial::CAPACITY
    ))?;
    screen.line(&format!(
        "{} asks a second arrive, whatever becomes of them.\n",
        trial::ASKS
    ))?;
    for (name, options, what) in RIVALS {
        screen.line(&format!("  {name:<9}{options:<33}{what}"))?;
    }
    screen.line("")?;
    let heads = format!(
        "{:>6}  {:<8}{:>7}{:>9}{:>9}{:>8}{:>9}{:>9}  up to 1 s",
        "", "queue", "waiting", "oldest", "served/s", "shed/s", "p50", "p99"
    );
    screen.line(&screen.paint(Paint::Bold, &heads))
}

/// A row about one broker between two samples.
fn row(time: Duration, before: &Glance, now: &Glance, screen: &Screen) -> String {
    let span = now
        .at
        .duration_since(before.at)
        .as_secs_f64()
        .max(f64::EPSILON);
    let rate = |before: u64, now: u64| ((now - before) as f64 / span).round();
    let p99 = now.waits.quantile(0.99);
    let paint = if p99 < BAR_WAIT / 2 {
        Paint::Good
    } else {
        Paint::Bad
    };
    format!(
        "{:>4.1} s  {:<8}{:>7}{:>9}{:>9}{:>8}{:>9}{:>9}  {}",
        time.as_secs_f64(),
        now.name,
        now.waiting,
        Span(now.oldest).to_string(),
        rate(before.served, now.served),
        rate(before.shed, now.shed),
        Span(now.waits.quantile(0.5)).to_string(),
        Span(p99).to_string(),
        screen.paint(paint, &bar(p99))
    )
}

fn bar(wait: Duration) -> String {
    let part = (wait.as_secs_f64() / BAR_WAIT.as_secs_f64()).min(1.0);
    "#".repeat((part * f64::from(BAR)).round() as usize)
}
