//! Side-by-side measurements of Rideau and its peers.
//!
//! Nothing here asserts a time: the numbers are for people and for scripts
//! that read `--json`.

mod apps;
mod broker;
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
use std::process::ExitCode;

use crate::measure::{Plan, WEIGH};
use crate::report::Format;

type Bench = fn(&Plan, Format);

/// Every benchmark by its name on the command line.
const BENCHES: &[(&str, Bench)] = &[
    ("apps", apps::run),
    ("broker", broker::run),
    ("daemon", daemon::run),
    ("eviction", eviction::run),
    ("front", front::run),
    ("locks", locks::run),
    ("pool", pool::run),
    ("ranges", ranges::run),
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
            bench(&plan, format);
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let names: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
            eprintln!("{reason}\n{USAGE}\nnames: {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(Bench, Plan, Format), String> {
    let mut bench = None;
    let mut plan = Plan::FULL;
    let mut runs = None;
    let mut format = Format::Table;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => plan = Plan::QUICK,
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
    plan.runs = runs.unwrap_or(plan.runs);
    Ok((bench.ok_or("which benchmark?")?, plan, format))
}

fn named(name: &str) -> Result<Bench, String> {
    BENCHES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, bench)| *bench)
        .ok_or_else(|| format!("no benchmark or option is called {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Bench, Plan, Format), String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn runs_outrank_quick_wherever_they_stand() {
        let (_, plan, _) = parsed("broker --runs 5 --quick").unwrap();
        assert_eq!(plan.runs.get(), 5);
        assert_eq!(plan.window, Plan::QUICK.window);
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
