//! Side-by-side measurements of Rideau and its peers.
//!
//! Nothing here asserts a time: the numbers are for people and for scripts
//! that read `--json`.

mod apps;
mod broker;
mod cluster;
mod daemon;
mod eviction;
mod front;
mod locks;
mod measure;
mod pool;
mod ranges;
mod report;
mod talk;

use std::env;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use crate::measure::{Plan, WEIGH};
use crate::report::Format;

/// A benchmark by its name on the command line.
struct Bench {
    name: &'static str,
    run: fn(&Plan, Format),
    /// How often each subject runs, unless told otherwise.
    runs: NonZeroUsize,
}

/// Threads of one process.
const fn threads(name: &'static str, run: fn(&Plan, Format)) -> Bench {
    let runs = NonZeroUsize::new(9).expect("it is not zero");
    Bench { name, run, runs }
}

/// Processes that talk over sockets: one run differs more from the next.
const fn talks(name: &'static str, run: fn(&Plan, Format)) -> Bench {
    let runs = NonZeroUsize::new(15).expect("it is not zero");
    Bench { name, run, runs }
}

const BENCHES: &[Bench] = &[
    threads("apps", apps::run),
    threads("broker", broker::run),
    talks("cluster", cluster::run),
    talks("cluster32", cluster::run_many),
    talks("daemon", daemon::run),
    threads("eviction", eviction::run),
    talks("front", front::run),
    threads("locks", locks::run),
    threads("pool", pool::run),
    talks("ranges", ranges::run),
];

type Scale = fn(subject: &str, what: &str) -> f64;

/// Benchmarks that weigh their subjects, each in a process of its own.
const SCALES: &[(&str, Scale)] = &[
    ("broker", broker::weigh),
    ("locks", locks::weigh),
    ("ranges", ranges::weigh),
];

const USAGE: &str = "usage: bench NAME [--quick] [--json] [--runs N]";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [word, name, subject, what] = &args[..]
        && word == WEIGH
        && let Some((_, weigh)) = SCALES.iter().find(|(known, _)| known == name)
    {
        println!("{}", weigh(subject, what));
        return ExitCode::SUCCESS;
    }
    if let [word, words @ ..] = &args[..]
        && word == front::APP
    {
        front::serve_app(words);
    }
    if let [word, words @ ..] = &args[..]
        && word == talk::ROOF
    {
        talk::serve_roof(words);
    }
    match parse(args.into_iter()) {
        Ok((bench, plan, format)) => {
            (bench.run)(&plan, format);
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
            eprintln!("{reason}\n{USAGE}\nnames: {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}

type Order = (&'static Bench, Plan, Format);

fn parse(mut args: impl Iterator<Item = String>) -> Result<Order, String> {
    let mut bench = None;
    let mut quick = false;
    let mut runs = None;
    let mut format = Format::Table;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--json" => format = Format::Json,
            "--runs" => {
                runs = Some(
                    args.next()
                        .and_then(|n| n.parse().ok())
                        .ok_or("how many runs?")?,
                )
            }
            name => bench = Some(named(name)?),
        }
    }
    let bench = bench.ok_or("which benchmark?")?;
    let mut plan = if quick {
        Plan::QUICK
    } else {
        Plan::full(bench.runs)
    };
    plan.runs = runs.unwrap_or(plan.runs);
    Ok((bench, plan, format))
}

fn named(name: &str) -> Result<&'static Bench, String> {
    BENCHES
        .iter()
        .find(|bench| bench.name == name)
        .ok_or_else(|| format!("no benchmark or option is called {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Order, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn runs_outrank_quick_wherever_they_stand() {
        let (_, plan, _) = parsed("broker --runs 5 --quick").unwrap();
        assert_eq!(plan.runs.get(), 5);
        assert_eq!(plan.window, Plan::QUICK.window);
    }

    #[test]
    fn what_talks_over_sockets_runs_more_often() {
        let runs = |line| parsed(line).unwrap().1.runs.get();
        assert!(runs("front") > runs("pool"));
        assert_eq!(runs("front --quick"), runs("pool --quick"));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert!(parsed("").is_err());
        assert!(parsed("brokers").is_err());
        assert!(parsed("broker --fast").is_err());
        assert!(parsed("broker --runs 0").is_err());
        assert!(parsed("broker --runs").is_err());
    }
}
