//! What a server has recorded of a pool: how many takes came, and how long members were held.

use rideau_resp::Value;
use rideau_simulate::{Arrivals, RateStep, Service, ServiceBucket};
use serde_json::Value as Json;

use super::{Failure, Manner};
use crate::cli::{alone, control, show};

/// What a server has recorded of a pool.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PoolRecord {
    pub(super) name: String,
    /// How many members there may be.
    pub(super) members: u32,
    /// The words of its queue.
    pub(super) queue: String,
    /// How many takes came in a second, step by step.
    rates: Vec<f64>,
    step_ms: u64,
    holds: Vec<ServiceBucket>,
}

/// How the server calls us.
const NAME: &str = "rideau-cli";

/// Ask the server for what it has recorded of a pool.
pub(super) fn pool(name: &str, manner: &Manner) -> Result<PoolRecord, Failure> {
    let answers = alone()?.block_on(async {
        let mut wire = control::connect(manner, NAME).await?;
        let load = show::good(wire.ask(&["POOL.LOAD", name]).await?)?;
        let keys = format!("pool.{name}.queue.*");
        let queue = wire.ask(&["CONFIG", "GET", &keys]).await?;
        Ok::<_, Failure>((load, queue))
    });
    let (load, queue) = answers?;
    let load = serde_json::from_str(&show::text(&load));
    let load = load.map_err(|error| Failure::Broken(format!("POOL.LOAD: {error}")))?;
    Ok(PoolRecord::of(name, &load, queue_words(name, &queue)))
}

impl PoolRecord {
    fn of(name: &str, load: &Json, queue: String) -> Self {
        let list = |key: &str| load[key].as_array().cloned().unwrap_or_default();
        let members = load["members"].as_u64().unwrap_or(1).max(1);
        let rates = list("rates_per_s").into_iter();
        let holds = list("holds").into_iter().filter_map(|pair| {
            Some(ServiceBucket {
                upper: pair[0].as_u64()?.saturating_mul(1_000),
                count: pair[1].as_u64()?,
            })
        });
        Self {
            name: name.into(),
            members: u32::try_from(members).unwrap_or(u32::MAX),
            queue,
            // What is not known was nothing.
            rates: rates.map(|rate| rate.as_f64().unwrap_or(0.0)).collect(),
            step_ms: load["step_ms"].as_u64().unwrap_or(1_000).max(1),
            holds: holds.collect(),
        }
    }

    /// The arrivals of the history, again and again.
    pub(super) fn arrivals(&self) -> Result<Arrivals, Failure> {
        let name = &self.name;
        let missing = |why: String| Err(Failure::Broken(why));
        if self.rates.is_empty() {
            return missing(format!(
                "the server has no history of {name:?}: it keeps one while it has an HTTP address \
                 (`server.admin`), from a step after its start on. Name the arrivals, as poisson:\
                 100/s"
            ));
        }
        if self.rates.iter().all(|rate| *rate <= 0.0) {
            let seconds = self.rates.len() as u64 * self.step_ms / 1_000;
            return missing(format!(
                "no take came to {name:?} in the last {seconds} s. Name the arrivals, as poisson:\
                 100/s"
            ));
        }
        let nanos = self.step_ms.saturating_mul(1_000_000);
        let steps = self.rates.iter().map(|per_s| RateStep {
            nanos,
            per_s: per_s.max(0.0),
        });
        Ok(Arrivals::Curve {
            steps: steps.collect(),
            repeats: true,
        })
    }

    /// How long members were held.
    pub(super) fn service(&self) -> Result<Service, Failure> {
        if self.holds.iter().all(|bucket| bucket.count == 0) {
            let name = &self.name;
            return Err(Failure::Broken(format!(
                "no hold of a member of {name:?} has been measured yet: one in sixteen is, of \
                 those that find a member at once. Name the times, as --service exponential:10ms"
            )));
        }
        Ok(Service::Measured(self.holds.as_slice().into()))
    }
}

/// `kind=codel target=5ms` of the keys of a config; the default if there is none.
fn queue_words(pool: &str, answer: &Value) -> String {
    let prefix = format!("pool.{pool}.queue.");
    let pairs: Vec<(String, String)> = match answer {
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| (show::text(key), show::text(value)))
                .collect()
        }
        answer => {
            let pairs = show::elements(answer).chunks_exact(2);
            pairs
                .map(|pair| (show::text(&pair[0]), show::text(&pair[1])))
                .collect()
        }
    };
    let words = pairs.iter().filter_map(|(key, value)| {
        let value = value.trim_matches('"');
        let key = key.strip_prefix(&prefix)?;
        (!value.is_empty() && !value.contains(char::is_whitespace))
            .then(|| format!("{key}={value}"))
    });
    let words: Vec<_> = words.collect();
    if words.iter().any(|word| word.starts_with("kind=")) {
        words.join(" ")
    } else {
        "kind=paced".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: &Json) -> PoolRecord {
        PoolRecord::of("pg", json, "kind=paced".into())
    }

    #[test]
    fn a_record_becomes_arrivals_and_times() {
        let record = record(&serde_json::json!({
            "members": 4, "step_ms": 1_000, "rates_per_s": [100.0, null, 300.0],
            "holds": [[1_000, 5], [2_000, 15]],
        }));
        assert_eq!(record.members, 4);
        assert!((record.arrivals().unwrap().per_s().unwrap() - 400.0 / 3.0).abs() < 1e-6);
        let mean = record.service().unwrap().mean().unwrap();
        assert!((mean / 1.25e6 - 1.0).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let none = record(&serde_json::json!({ "members": 4 }));
        assert!(
            none.arrivals()
                .unwrap_err()
                .to_string()
                .contains("server.admin")
        );
        assert!(
            none.service()
                .unwrap_err()
                .to_string()
                .contains("--service")
        );
        let quiet = record(&serde_json::json!({ "rates_per_s": [0.0, 0.0] }));
        let said = quiet.arrivals().unwrap_err().to_string();
        assert!(said.contains("no take came"), "{said}");
    }

    #[test]
    fn the_queue_has_the_words_of_the_config() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let pairs = [
            ("pool.pg.queue.kind", "\"codel\""),
            ("pool.pg.queue.target", "5ms"),
            ("pool.pg.max", "3"),
        ];
        let flat = pairs
            .iter()
            .flat_map(|(key, value)| [bulk(key), bulk(value)]);
        let words = queue_words("pg", &Value::Array(flat.collect()));
        assert_eq!(words, "kind=codel target=5ms");
        assert_eq!(queue_words("pg", &Value::Null), "kind=paced");
    }
}
