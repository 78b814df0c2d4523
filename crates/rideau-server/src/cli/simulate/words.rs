//! The words of `rideau simulate`, as parts of a scenario.

use std::time::Duration;

use rideau_config::{read_rate, read_span};
use rideau_core::{OptionError, Settings, queue, valve};
use rideau_simulate::{Arrivals, Patience, Place, Retries, Service};

/// Where the words of arrivals or of times lead.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Source<T> {
    /// They say it all.
    Here(T),
    /// To a file.
    File(String),
    /// To a pool of the server.
    Pool(String),
}

/// A refused client comes again so often at most.
const TIMES_MAX: u32 = 1_000;
/// A load is so far from one at most.
const LOAD_MAX: f64 = 1_000.0;
/// How many loads `0.5..4` means.
const LOADS: u32 = 8;
const LOADS_MAX: u32 = 100;
const DAY: Duration = Duration::from_secs(86_400);

/// `poisson:700/s`, `bursts:700/s,peak=3,on=1s,off=3s`, `csv:FILE`, and so on.
pub(super) fn arrivals(text: &str) -> Result<Source<Arrivals>, String> {
    let (kind, rest) = kind_of(text, "arrivals", "poisson:700/s")?;
    if let Some(source) = source(kind, rest) {
        return Ok(source);
    }
    let (rate, mut settings) = parts(rest)?;
    let rate = read_rate(rate)?;
    let per_s = f64::from(rate.count) / rate.per.as_secs_f64();
    let arrivals = match kind {
        "constant" => Arrivals::Constant { per_s },
        "poisson" => Arrivals::Poisson { per_s },
        "bursts" => {
            let peak = number(&mut settings, "peak")?.unwrap_or(3.0);
            let on = span(&mut settings, "on")?.unwrap_or(Duration::from_secs(1));
            let off = span(&mut settings, "off")?.unwrap_or(3 * on);
            let bursts = Arrivals::bursts(per_s, peak, nanos(on), nanos(off));
            bursts.filter(|_| peak >= 0.0).ok_or_else(|| {
                "bursts: `on` and `off` have to be more than zero, and `peak` at most (on + off) \
                 / on, so that the rate is the mean"
                    .to_owned()
            })?
        }
        "daily" => {
            let swing = number(&mut settings, "swing")?.unwrap_or(0.8);
            let day = span(&mut settings, "day")?.unwrap_or(DAY);
            if !(0.0..=1.0).contains(&swing) || day.is_zero() {
                return Err("daily: `swing` lies between 0 and 1, and `day` is not zero".into());
            }
            Arrivals::daily(per_s, swing, nanos(day))
        }
        _ => {
            return Err(format!(
                "there are no arrivals {kind:?}: write constant, poisson, bursts, daily, csv or \
                 history"
            ));
        }
    };
    settings.finish().map_err(|error| in_part(kind, &error))?;
    Ok(Source::Here(arrivals))
}

/// `exponential:10ms`, `lognormal:10ms,sigma=1.5`, and so on.
pub(super) fn service(text: &str) -> Result<Source<Service>, String> {
    let (kind, rest) = kind_of(text, "times", "exponential:10ms")?;
    if let Some(source) = source(kind, rest) {
        return Ok(source);
    }
    let (mean, mut settings) = parts(rest)?;
    let mean = nanos(read_span(mean)?);
    if mean == 0 {
        return Err(format!("{text:?}: a time is more than zero"));
    }
    let service = match kind {
        "fixed" => Service::Fixed { mean },
        "exponential" => Service::Exponential { mean },
        "lognormal" => {
            let sigma = number(&mut settings, "sigma")?.unwrap_or(1.0);
            if !(0.0..=5.0).contains(&sigma) {
                return Err("lognormal: `sigma` lies between 0 and 5".into());
            }
            Service::LogNormal { mean, sigma }
        }
        "pareto" => {
            let shape = number(&mut settings, "shape")?.unwrap_or(1.5);
            if !(shape > 1.0 && shape <= 100.0) {
                return Err("pareto: `shape` is over 1, for there is no mean otherwise".into());
            }
            Service::Pareto { mean, shape }
        }
        _ => {
            return Err(format!(
                "there are no times {kind:?}: write fixed, exponential, lognormal, pareto, csv \
                 or history"
            ));
        }
    };
    settings.finish().map_err(|error| in_part(kind, &error))?;
    Ok(Source::Here(service))
}

/// The words of a queue as in the config: those of its table, or its kind alone.
pub(super) fn queue(text: &str) -> Result<queue::Options, String> {
    let options = Settings::parse(&with_kind(text)).and_then(queue::Options::parse);
    options.map_err(|error| format!("the queue {text:?}: {error}"))
}

/// The words of a valve as in the config.
pub(super) fn valve(text: &str) -> Result<valve::Options, String> {
    let options = Settings::parse(&with_kind(text)).and_then(valve::Options::parse);
    options.map_err(|error| format!("the valve {text:?}: {error}"))
}

/// `2s` or `hangup:2s`, `named:2s`, `limit:2s`, `silent:2s`, `none`.
pub(super) fn patience(text: &str) -> Result<Patience, String> {
    if text == "none" {
        return Ok(Patience::Endless);
    }
    let (kind, rest) = text.split_once(':').unwrap_or(("hangup", text));
    let wait = read_span(rest)?;
    Ok(match kind {
        "hangup" => Patience::HangsUp(wait),
        "named" => Patience::Named(wait),
        "limit" => Patience::Limit(wait),
        "silent" => Patience::Silent(wait),
        _ => {
            return Err(format!(
                "there is no patience {kind:?}: write 2s (they hang up), named:2s, limit:2s, \
                 silent:2s or none"
            ));
        }
    })
}

/// `3` as often and when they are told to, or `3,after=100ms`.
pub(super) fn retries(text: &str) -> Result<Retries, String> {
    let (times, mut settings) = parts(text)?;
    let times = times.parse().ok().filter(|times| *times <= TIMES_MAX);
    let times = times.ok_or_else(|| {
        format!("{text:?}: write how often, up to {TIMES_MAX}, such as 3 or 3,after=100ms")
    })?;
    let after = span(&mut settings, "after")?;
    settings
        .finish()
        .map_err(|error| in_part("retries", &error))?;
    Ok(match after {
        _ if times == 0 => Retries::None,
        None => Retries::AsTold { times },
        Some(span) if span.is_zero() => return Err("`after` is more than zero".into()),
        Some(span) => Retries::After { times, span },
    })
}

/// How many times as many requests come, one run for each.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Loads(pub(super) Vec<f64>);

/// `0.5..4`, `0.5..4/15` for fifteen of them, `1,2,4`, or `2`.
pub(super) fn loads(text: &str) -> Result<Loads, String> {
    let fault = || {
        format!(
            "{text:?} are no loads: write 0.5..4, 0.5..4/15 for fifteen of them, 1,2,4 or 2; \
             each more than zero and up to {LOAD_MAX}"
        )
    };
    let load = |word: &str| {
        let number = word.trim().trim_end_matches('x').parse::<f64>().ok();
        number.filter(|load| *load > 0.0 && *load <= LOAD_MAX)
    };
    let loads = match text.split_once("..") {
        None => text.split(',').map(load).collect::<Option<Vec<_>>>(),
        Some((first, rest)) => {
            let (last, count) = match rest.split_once('/') {
                Some((last, count)) => (last, count.parse().map_err(|_| fault())?),
                None => (rest, LOADS),
            };
            let (first, last) = (
                load(first).ok_or_else(fault)?,
                load(last).ok_or_else(fault)?,
            );
            if first >= last || !(2..=LOADS_MAX).contains(&count) {
                return Err(fault());
            }
            let step = (last - first) / f64::from(count - 1);
            // A load has no more digits than a person would write.
            let load = |at: u32| ((first + f64::from(at) * step) * 1e4).round() / 1e4;
            Some((0..count).map(load).collect())
        }
    };
    let loads = loads.filter(|loads| loads.len() <= LOADS_MAX as usize);
    loads.map(Loads).ok_or_else(fault)
}

/// The machine that decides.
pub(super) fn place(
    word: Option<&str>,
    valve_words: Option<&str>,
    start: Option<Duration>,
) -> Result<Place, String> {
    let word = word.unwrap_or(match valve_words {
        Some(_) => "regulator",
        None => "pool",
    });
    if valve_words.is_some() != (word == "regulator") {
        return Err("a valve belongs to a regulator, and a regulator needs one: --valve".into());
    }
    if start.is_some() && word != "pool" {
        return Err("--start is for the members of a pool".into());
    }
    Ok(match (word, valve_words) {
        ("broker", _) => Place::Broker,
        ("queue", _) => Place::Queue { is_blind: false },
        (_, Some(words)) => Place::Regulator {
            valve: valve(words)?,
        },
        _ => Place::Pool {
            start: start.unwrap_or_default(),
        },
    })
}

fn kind_of<'a>(text: &'a str, what: &str, such: &str) -> Result<(&'a str, &'a str), String> {
    let parts = text.split_once(':').filter(|(_, rest)| !rest.is_empty());
    parts.ok_or_else(|| format!("{text:?} are no {what}: write them as {such}"))
}

fn source<T>(kind: &str, rest: &str) -> Option<Source<T>> {
    match kind {
        "csv" => Some(Source::File(rest.into())),
        "history" => Some(Source::Pool(rest.into())),
        _ => None,
    }
}

/// `kind` is what a word alone means.
fn with_kind(text: &str) -> String {
    let is_kind = !text.trim().is_empty() && !text.contains('=');
    match is_kind {
        true => format!("kind={}", text.trim()),
        false => text.into(),
    }
}

/// What stands before the first comma, and the `key=value` words after it.
fn parts(text: &str) -> Result<(&str, Settings), String> {
    let (first, rest) = text.split_once(',').unwrap_or((text, ""));
    let settings = Settings::parse(&rest.replace(',', " "));
    Ok((first, settings.map_err(|error| error.to_string())?))
}

fn span(settings: &mut Settings, option: &'static str) -> Result<Option<Duration>, String> {
    settings.span(option).map_err(|error| error.to_string())
}

fn number(settings: &mut Settings, option: &'static str) -> Result<Option<f64>, String> {
    let Some(word) = settings.take(option) else {
        return Ok(None);
    };
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
    number
        .map(Some)
        .ok_or_else(|| format!("`{option}` is a number, not {word:?}"))
}

fn in_part(kind: &str, error: &OptionError) -> String {
    format!("{kind}: {error}")
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_read() {
        let poisson = Arrivals::Poisson { per_s: 700.0 };
        assert_eq!(arrivals("poisson:700/s"), Ok(Source::Here(poisson)));
        let slow = Arrivals::Constant { per_s: 0.5 };
        assert_eq!(arrivals("constant:30/m"), Ok(Source::Here(slow)));
        assert!(arrivals("bursts:700/s").is_ok());
        assert!(arrivals("bursts:700/s,peak=4,on=1s,off=3s").is_ok());
        assert!(arrivals("daily:700/s,day=10m,swing=1").is_ok());
        let file = Source::File("a,b.csv".into());
        assert_eq!(arrivals("csv:a,b.csv"), Ok(file));
        for (text, said) in [
            ("700/s", "poisson:700/s"),
            ("poisson:", "poisson:700/s"),
            ("poisson:fast", "20/s"),
            ("poison:700/s", "constant, poisson"),
            ("poisson:700/s,peak=3", "peak"),
            ("bursts:700/s,peak=5,on=1s,off=3s", "`peak`"),
            ("bursts:700/s,on=0s", "`on`"),
            ("daily:700/s,swing=2", "`swing`"),
            ("daily:700/s,swing=big", "`swing`"),
        ] {
            let fault = arrivals(text).unwrap_err();
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }

    #[test]
    fn times_are_read() {
        let fixed = Service::Fixed { mean: 10_000_000 };
        assert_eq!(service("fixed:10ms"), Ok(Source::Here(fixed)));
        assert!(service("pareto:10ms,shape=2.5").is_ok());
        assert_eq!(service("history:pg"), Ok(Source::Pool("pg".into())));
        for (text, said) in [
            ("10ms", "exponential:10ms"),
            ("fixed:10", "has no unit"),
            ("fixed:0s", "more than zero"),
            ("gamma:10ms", "lognormal"),
            ("pareto:10ms,shape=1", "`shape`"),
            ("fixed:10ms,sigma=1", "sigma"),
        ] {
            let fault = service(text).unwrap_err();
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }

    #[test]
    fn queues_have_the_words_of_the_config() {
        assert_eq!(queue("").unwrap(), queue::Options::default());
        assert_eq!(queue("codel"), queue("kind=codel"));
        assert!(queue("kind=codel target=5ms").is_ok());
        let fault = queue("codell").unwrap_err();
        assert!(fault.contains("kind"), "{fault}");
    }

    #[test]
    fn loads_are_a_range_a_list_or_one() {
        let half_steps = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
        assert_eq!(loads("0.5..4").unwrap().0, half_steps);
        assert_eq!(loads("1..2/3").unwrap().0, [1.0, 1.5, 2.0]);
        assert_eq!(loads("1,2x,4").unwrap().0, [1.0, 2.0, 4.0]);
        assert_eq!(loads("2").unwrap().0, [2.0]);
        for text in [
            "", "0", "-1", "4..1", "1..2/1", "1..2/x", "nan", "1,", "1e9",
        ] {
            assert!(loads(text).is_err(), "{text}");
        }
    }

    #[test]
    fn clients_are_patient_and_come_again_as_they_are_told() {
        let two = Duration::from_secs(2);
        assert_eq!(patience("2s"), Ok(Patience::HangsUp(two)));
        assert_eq!(patience("named:2s"), Ok(Patience::Named(two)));
        assert_eq!(patience("none"), Ok(Patience::Endless));
        assert!(patience("long").is_err() && patience("for:2s").is_err());
        assert_eq!(retries("0"), Ok(Retries::None));
        assert_eq!(retries("3"), Ok(Retries::AsTold { times: 3 }));
        let (times, span) = (3, two);
        assert_eq!(retries("3,after=2s"), Ok(Retries::After { times, span }));
        for text in ["", "x", "3,after=0s", "3,often=1", "100000"] {
            assert!(retries(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_valve_belongs_to_a_regulator() {
        assert!(matches!(
            place(None, Some("kind=open max=3"), None),
            Ok(Place::Regulator { .. })
        ));
        assert!(place(Some("pool"), Some("kind=open"), None).is_err());
        assert!(place(Some("regulator"), None, None).is_err());
        assert!(place(Some("broker"), None, Some(Duration::ZERO)).is_err());
    }
}
