//! The load of a pool as it was recorded: for a client that wants to simulate it.

use std::time::Duration;

use rideau_resp::Request;
use serde_json::{Value, json};

use super::{About, Subject, about, pools};
use crate::redis::client::{Client, CommandError, Next};
use crate::state::series::SeriesReader;

pub(super) const POOL_LOAD: About = about(
    "POOL.LOAD",
    2,
    "show",
    Subject::Name,
    "pool [ms]",
    "The recorded load of a pool as JSON: takes in a second, step by step, and how long holds were",
    load,
);

/// As far as the history reaches, and no further.
const SPAN_MAX: u64 = 7 * 86_400_000;
const SPAN: u64 = 600_000;
/// The counts of takes, as their rates are called in the history.
const RATES: [&str; 2] = ["grants_per_s", "refusals_per_s"];

fn load(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.LOAD", "a pool")?;
    let span = match arguments.len() == 0 {
        true => SPAN,
        false => arguments.number("POOL.LOAD", "milliseconds", 1..=SPAN_MAX)?,
    };
    arguments.end("POOL.LOAD")?;
    super::may_use(client, "pool", name)?;
    let place = pools::pool(client, name)?;
    let stats = place.stats();
    let holds = stats.holds.buckets();
    let holds = holds.map(|(upper, count)| json!([upper.as_micros() as u64, count]));
    let (series, span) = (client.daemon.series.get(), Duration::from_millis(span));
    let answer = json!({
        "pool": name,
        "members": stats.max,
        "step_ms": series.map(|series| (series.step)(span).as_millis() as u64),
        "rates_per_s": series.map_or_else(Vec::new, |series| {
            rates(series, name, span)
        }),
        "holds": holds.collect::<Vec<_>>(),
    });
    client.reply().bulk(answer.to_string());
    Ok(Next::Done)
}

/// How many takes came in a second: those that got a member, and those that got none.
fn rates(series: &SeriesReader, pool: &str, span: Duration) -> Vec<Value> {
    let of = |rate: &str| (series.values)(&format!("pool.{pool}.{rate}"), span).unwrap_or_default();
    let [grants, refusals] = RATES.map(of);
    let pairs = grants.iter().zip(refusals);
    // JSON has no word for what is not known.
    pairs
        .map(|((_, grants), (_, refusals))| json!(grants + refusals))
        .collect()
}
