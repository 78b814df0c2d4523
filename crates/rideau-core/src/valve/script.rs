//! Scripts of what happens to a valve and what it answers, in milliseconds.

use std::time::Duration;

use super::{Circuit, Options, Valve};
use crate::settings::{Settings, span};
use crate::time::{Instant, Lead};

/// Play `script` on a valve of `options` that exists since 0 and is empty.
///
/// A line is `time input -> answer, status`. An ask answers the open time, a
/// renewal `go` and the open time, or `stop`. A status is `open`, or `closed`
/// with the deadline if there is one.
pub(super) fn check(options: &str, script: &str) {
    let mut valve = Valve::new(&parse(options), 0, Instant::START).unwrap();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (input, wanted) = line.split_once("->").unwrap();
        let words: Vec<_> = input.split_whitespace().collect();
        let now = Instant::START + millis(words[0]);
        let answer = play(&mut valve, &words[1..], now);
        let status = status(&valve, now);
        let got = answer.map_or(status.clone(), |answer| format!("{answer}, {status}"));
        assert_eq!(got, wanted.trim(), "{line}");
    }
}

/// The options of these words.
pub(super) fn parse(options: &str) -> Options {
    Options::parse(Settings::parse(options).unwrap()).unwrap()
}

fn play(valve: &mut Valve, words: &[&str], now: Instant) -> Option<String> {
    match words {
        ["ask"] => return Some(show(valve.ask(now))),
        ["renew"] => {
            let go = valve.renew(now);
            return Some(go.map_or("stop".into(), |go| format!("go {}", show(go))));
        }
        ["release", "after", held] => valve.release(millis(held), true, now),
        ["fail", "after", held] => valve.release(millis(held), false, now),
        ["update", lead] => valve.update(read_lead(lead), now),
        ["wait"] => (),
        ["options", options @ ..] => valve.reconfigure(&parse(&options.join(" ")), now).unwrap(),
        ["stats"] => {
            let stats = valve.stats();
            return Some(match stats[0].circuit {
                Some(Circuit::Closed { failures }) => format!("circuit closed {failures}"),
                Some(Circuit::Tripped { until }) => format!("circuit tripped {}", show(until)),
                Some(Circuit::Probing { granted, passed }) => {
                    format!("circuit probing {passed}/{granted}")
                }
                None => format!("from {} to {}", stats[0].min, stats[0].max),
            });
        }
        _ => panic!("no such input: {words:?}"),
    }
    None
}

fn status(valve: &Valve, now: Instant) -> String {
    match (valve.is_open(now), valve.deadline()) {
        (true, _) => "open".into(),
        (false, Some(deadline)) => format!("closed until {}", show(deadline)),
        (false, None) => "closed".into(),
    }
}

fn millis(words: &str) -> Duration {
    span(&format!("{words}ms")).unwrap()
}

fn read_lead(words: &str) -> Lead {
    let mut settings = Settings::new([("lead", format!("{words}ms").as_str())]).unwrap();
    settings.lead("lead").unwrap().unwrap()
}

fn show(instant: Instant) -> String {
    let nanos = instant.as_nanos();
    let millis = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    millis.trim_end_matches('0').trim_end_matches('.').into()
}
