//! `rideau simulate`: a setting is tried on a virtual clock, before it is used.

mod cases;
mod chart;
mod page;
mod record;
mod recorded;
mod report;
mod suggest;
mod suite;
mod words;
mod work;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{Done, Failure, Manner, show, span};
use cases::Cases;
use report::RunRow;

/// Try a queue, a size or a valve under made-up load, on a virtual clock
///
/// The very code that serves decides; clients and time are made up. With the same seed, the same
/// requests come. Several of --queue and --servers are compared with each other.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: rideau simulate --servers 8 --arrivals poisson:700/s --service \
                        exponential:10ms --queue paced --queue 'kind=timeout timeout=1s' --load \
                        0.5..4 --html report.html"
)]
pub(crate) struct Simulate {
    /// How many serve at a time: 8, or 4,8,16 to compare [default: 8]
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    servers: Vec<u32>,
    /// When requests come: constant:700/s, poisson:700/s, bursts:700/s,peak=3,on=1s,off=3s,
    /// daily:700/s,swing=0.8,day=24h, csv:FILE or history:POOL [default: as many as can be served]
    #[arg(long, value_name = "WORDS")]
    arrivals: Option<String>,
    /// How long each is served: fixed:10ms, exponential:10ms, lognormal:10ms,sigma=1,
    /// pareto:10ms,shape=1.5, csv:FILE or history:POOL [default: exponential:10ms]
    #[arg(long, value_name = "WORDS")]
    service: Option<String>,
    /// How they wait, in the words of `[pool.NAME] queue`; several are compared
    /// [default: kind=paced]
    #[arg(long, value_name = "WORDS")]
    queue: Vec<String>,
    /// Which machine decides: pool, broker, regulator, or a queue alone
    #[arg(long, value_name = "MACHINE", value_parser = ["pool", "broker", "regulator", "queue"])]
    at: Option<String>,
    /// The valve of a regulator, in the words of `[regulator.NAME] valve`; more leases than
    /// --servers slow all down
    #[arg(long, value_name = "WORDS")]
    valve: Option<String>,
    /// How long a member of the pool takes to start; otherwise all are there
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    start: Option<Duration>,
    /// How many times as many requests come: 2, or 0.5..4 for a row of eight
    #[arg(long, value_name = "X", value_parser = words::loads)]
    load: Option<words::Loads>,
    /// How long clients wait: 2s and they hang up, named:2s, limit:2s, silent:2s or none
    #[arg(long, value_name = "WORDS", default_value = "none", value_parser = words::patience)]
    patience: rideau_simulate::Patience,
    /// How often a refused client comes again: 3 when it is told to, or 3,after=100ms
    #[arg(long, value_name = "WORDS", default_value = "0", value_parser = words::retries)]
    retries: rideau_simulate::Retries,
    /// A serve later than this after the first ask is no goodput
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    useful: Option<Duration>,
    /// The requests are of this many flows, for `fair_by`
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
    /// All servers are busy when the run begins
    #[arg(long)]
    busy: bool,
    /// How many requests come [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
    /// Stop after this time, instead of after a number of requests
    #[arg(long = "for", value_name = "SPAN", conflicts_with = "requests",
          value_parser = span::parse)]
    until: Option<Duration>,
    /// Waits before this time do not count
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    from: Option<Duration>,
    /// Where chance comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write waits, goodput and refusals over the load as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the same with all numbers as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Search sizes and policies for a goal: "p99 wait < 50ms and shed < 1% at 2x"
    #[arg(long, value_name = "GOAL", value_parser = rideau_simulate::Goal::parse,
          conflicts_with_all = ["load", "svg", "html", "at", "valve", "start"])]
    suggest: Option<rideau_simulate::Goal>,
    /// Judge the default policy: useful serves beside those of the best time-out in hindsight
    #[arg(long, conflicts_with_all = ["servers", "arrivals", "service", "queue", "at", "valve",
          "start", "load", "useful", "busy", "requests", "until", "from", "svg", "html",
          "suggest"])]
    suite: bool,
    /// Compare with more time-outs, for --suite
    #[arg(long, requires = "suite")]
    thorough: bool,
}

/// How many requests come if none says so.
const REQUESTS: u64 = 100_000;

pub(crate) fn run(words: &Simulate, manner: &Manner) -> Done {
    if words.suite {
        return suite::run(words.thorough, manner);
    }
    let cases = Cases::read(words, manner)?;
    if let Some(goal) = &words.suggest {
        return suggest::run(goal, &cases, manner);
    }
    let rows = run_all(&cases)?;
    if let Some(file) = &words.svg {
        write(file, &chart::svg(&rows))?;
    }
    if let Some(file) = &words.html {
        write(file, &page::html(&cases, &rows))?;
    }
    if manner.json {
        let rows: Vec<_> = rows.iter().map(RunRow::json).collect();
        show::print_json(&match <[_; 1]>::try_from(rows) {
            Ok([row]) => row,
            Err(rows) => json!({ "seed": words.seed, "runs": rows }),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    show::print_text(&cases.headline())?;
    show::print_text("")?;
    report::print(&rows)?;
    for (what, file) in [("picture", &words.svg), ("page", &words.html)] {
        if let Some(file) = file {
            show::print_text(&format!("\nThe {what} is in {}.", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_all(cases: &Cases) -> Result<Vec<RunRow>, Failure> {
    let all = cases.all();
    let whole = all.iter().map(cases::Case::size).sum();
    let done = work::for_each(&all, whole, |case, progress| case.run(progress))?;
    let pairs = all.iter().zip(done);
    Ok(pairs
        .map(|(case, worked)| RunRow::new(case, worked.result, worked.cpu_ms))
        .collect())
}

fn write(file: &PathBuf, text: &str) -> Result<(), Failure> {
    let fault = |error| Failure::Broken(format!("{} cannot be written: {error}", file.display()));
    fs::write(file, text).map_err(fault)
}
