//! Values over HTTP: the same commands, and no session where a value is held
//! for a time only.

use axum::http::StatusCode;
use rideau_resp::Value;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::answer::{Answer, HttpError, ok, with_status};
use super::asks::{AWAITS, NONE, Words, json_of, run_values};
use super::fact_json::object;
use super::request::AdminRequest;
use crate::view::explain::explain;
use crate::view::facts::{RangeNow, ViewNow};
use crate::view::tables;

/// The body of a reserve.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserve {
    /// Where to look when nothing is free there, the best first.
    #[serde(default)]
    prefer: Vec<String>,
    ttl_ms: Option<u64>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    unique: Vec<String>,
    #[serde(default)]
    data: Map<String, Json>,
    count: Option<u64>,
    #[serde(default)]
    partial: bool,
    id: Option<String>,
    hint: Option<String>,
    wait_ms: Option<u64>,
    note: Option<String>,
    /// Answer with a ticket, and wait in the background.
    #[serde(default, rename = "async")]
    is_async: bool,
}

/// The body of a claim or a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    fence: Option<u64>,
    ttl_ms: Option<u64>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    unique: Vec<String>,
    #[serde(default)]
    data: Map<String, Json>,
    #[serde(default)]
    claim: bool,
}

/// The body of a refresh.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refresh {
    fence: Option<u64>,
    ttl_ms: Option<u64>,
}

const GIVEN: &[&str] = &[
    "value",
    "ticket",
    "expires_ms",
    "tier",
    "hops",
    "fence",
    "was",
];
const CHANGED: &[&str] = &["expires_ms", "fence", "was", "old"];
const SEEN: &[&str] = &[
    "value",
    "keys",
    "data",
    "expires_ms",
    "state",
    "node",
    "fence",
    "range",
    "age_ms",
    "updates",
];

pub(super) async fn reserve(request: AdminRequest) -> Answer {
    let said: Reserve = request.json()?;
    let mut words = Words::new("RESERVE", request.name("place"));
    for place in said.prefer {
        words.text("PREFER", Some(place));
    }
    words.number("TTL", said.ttl_ms);
    beside(&mut words, said.keys, said.unique, &said.data)?;
    words.number("COUNT", said.count);
    words.flag("PARTIAL", said.partial);
    words.text("ID", said.id);
    words.text("HINT", said.hint);
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.flag("ASYNC", said.is_async);
    if said.is_async && request.session.is_none() {
        return Err(HttpError::wrong(
            "What waits in the background belongs to a session: POST /v1/sessions opens one, and \
             its id goes into the header Rideau-Session.",
        ));
    }
    if request.daemon().is_draining() {
        return Err(HttpError::draining());
    }
    let reply = run_values(&request, &words).await?;
    let (word, rest) = outcome(&reply)?;
    if word == "go" && said.count.is_some() {
        let values = rest.iter().map(|one| named(GIVEN, elements(one)));
        let values: Vec<_> = values.collect();
        return ok(&json!({ "outcome": word, "values": values }));
    }
    told(&word, GIVEN, rest)
}

pub(super) async fn claim(request: AdminRequest) -> Answer {
    let said: Change = request.json()?;
    let mut words = Words::new("CLAIM", request.name("value"));
    words.number("TTL", said.ttl_ms);
    beside(&mut words, said.keys, said.unique, &said.data)?;
    answer(&request, &words, GIVEN).await
}

pub(super) async fn update(request: AdminRequest) -> Answer {
    change(request, "UPDATE").await
}

pub(super) async fn write(request: AdminRequest) -> Answer {
    change(request, "WRITE").await
}

async fn change(request: AdminRequest, command: &'static str) -> Answer {
    let said: Change = request.json()?;
    let mut words = Words::new(command, request.name("value"));
    words.number("FENCE", said.fence);
    words.number("TTL", said.ttl_ms);
    beside(&mut words, said.keys, said.unique, &said.data)?;
    words.flag("CLAIM", said.claim);
    answer(&request, &words, CHANGED).await
}

pub(super) async fn refresh(request: AdminRequest) -> Answer {
    let said: Refresh = request.json()?;
    let mut words = Words::new("REFRESH", request.name("value"));
    words.number("FENCE", said.fence);
    words.number("TTL", said.ttl_ms);
    answer(&request, &words, CHANGED).await
}

pub(super) async fn cancel(request: AdminRequest) -> Answer {
    let said: Refresh = request.json()?;
    let mut words = Words::new("CANCEL", request.name("value"));
    words.number("FENCE", said.fence);
    answer(&request, &words, CHANGED).await
}

pub(super) async fn release(request: AdminRequest) -> Answer {
    let mut words = Words::new("RELEASE", request.name("value"));
    let fence = request.query.find("fence");
    words.text("FENCE", fence.map(str::to_owned));
    done(&request, &words).await
}

/// Give back what a ticket of a value stands for.
pub(super) async fn release_ticket(request: &AdminRequest) -> Answer {
    done(request, &Words::new("RELEASE", request.name("ticket"))).await
}

async fn done(request: &AdminRequest, words: &Words) -> Answer {
    match run_values(request, words).await? {
        Value::Error(text) => Err(HttpError::of_command(&text)),
        _ => ok(&json!({ "outcome": "ok" })),
    }
}

pub(super) async fn lookup(request: AdminRequest) -> Answer {
    let words = Words::new("LOOKUP", request.name("value"));
    match run_values(&request, &words).await? {
        Value::Error(text) => Err(HttpError::of_command(&text)),
        seen => ok(&named(SEEN, elements(&seen))),
    }
}

pub(super) async fn lookup_key(request: AdminRequest) -> Answer {
    let mut words = Words::new("LOOKUP", "KEY");
    words.word(request.name("key"));
    let cursor = request.query.find("cursor");
    words.text("FROM", cursor.map(str::to_owned));
    match run_values(&request, &words).await? {
        Value::Error(text) => Err(HttpError::of_command(&text)),
        all => {
            let (mut all, mut cursor) = (elements(&all), None);
            // A row with one element says where the next page begins.
            if let Some((Value::Array(more), rest)) = all.split_last()
                && let [Value::Bulk(more)] = &more[..]
            {
                let more = String::from_utf8_lossy(more);
                cursor = more.rsplit(' ').next().map(str::to_owned);
                all = rest;
            }
            let all = all.iter().map(|seen| named(SEEN, elements(seen)));
            ok(&json!({ "values": all.collect::<Vec<_>>(), "cursor": cursor }))
        }
    }
}

pub(super) async fn ranges(request: AdminRequest) -> Answer {
    let all = RangeNow::all(request.daemon(), true).into_iter();
    let all = all.filter(|range| request.viewer().sees("range", range.name()));
    let all: Vec<_> = all
        .take(tables::COUNT)
        .map(|range| object(&range))
        .collect();
    ok(&json!({ "ranges": all }))
}

pub(super) async fn views(request: AdminRequest) -> Answer {
    let daemon = request.daemon();
    let all = ViewNow::all(&daemon.catalog.load(), &daemon.values, request.viewer());
    let all: Vec<_> = all.iter().take(tables::COUNT).map(object).collect();
    ok(&json!({ "views": all }))
}

pub(super) async fn one_range(request: AdminRequest) -> Answer {
    let (name, viewer) = (request.name("name"), request.viewer());
    let mut all = RangeNow::all(request.daemon(), true).into_iter();
    let found = all.find(|range| range.name() == name && viewer.sees("range", name));
    let explained = explain(request.daemon(), &format!("range:{name}"), viewer);
    match (found, explained) {
        (Some(range), Some(explained)) => {
            let mut shown = object(&range);
            shown["explain"] = explained.text.into();
            ok(&shown)
        }
        _ => {
            let hint = "GET /api/v1/ranges lists them.";
            Err(HttpError::no_such("range", name, hint))
        }
    }
}

/// Keys and data as words. Null takes a field away.
fn beside(
    words: &mut Words,
    keys: Vec<String>,
    unique: Vec<String>,
    data: &Map<String, Json>,
) -> Result<(), HttpError> {
    for key in keys {
        words.text("KEY", Some(key));
    }
    for key in unique {
        words.text("UNIQUE", Some(key));
    }
    for (name, content) in data {
        let content = match content {
            Json::Null => {
                words.text("UNSET", Some(name.clone()));
                continue;
            }
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            Json::Bool(is_so) => is_so.to_string(),
            Json::Array(_) | Json::Object(_) => {
                return Err(HttpError::wrong(format!(
                    "The field {name:?} of data takes a text, a number or null."
                )));
            }
        };
        words.word("SET");
        words.word(name);
        words.word(&content);
    }
    Ok(())
}

async fn answer(request: &AdminRequest, words: &Words, names: &[&str]) -> Answer {
    let reply = run_values(request, words).await?;
    let (word, rest) = outcome(&reply)?;
    told(&word, names, rest)
}

/// The word of a reply, and what belongs to it.
fn outcome(reply: &Value) -> Result<(String, &[Value]), HttpError> {
    match reply {
        Value::Error(text) => Err(HttpError::of_command(text)),
        Value::Array(parts) => match parts.split_first() {
            Some((Value::Bulk(word), rest)) => {
                Ok((String::from_utf8_lossy(word).into_owned(), rest))
            }
            _ => Err(HttpError::wrong(
                "The server gave an answer of an unknown form: please report \
                it.",
            )),
        },
        _ => Err(HttpError::wrong(
            "The server gave an answer of an unknown form: please report \
            it.",
        )),
    }
}

/// The answer if no value is free.
fn told(word: &str, names: &[&str], rest: &[Value]) -> Answer {
    let (status, names) = match word {
        "go" | "ok" => (StatusCode::OK, names),
        "await" => (StatusCode::ACCEPTED, AWAITS),
        "none" => (StatusCode::CONFLICT, NONE),
        _ => (StatusCode::CONFLICT, &["state"][..]),
    };
    let mut body = named(names, rest);
    body["outcome"] = word.into();
    Ok(with_status(status, &body))
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) => elements,
        _ => &[],
    }
}

fn named(names: &[&str], parts: &[Value]) -> Json {
    let pairs = names.iter().zip(parts);
    // What is not known is left out.
    let pairs = pairs.filter(|(_, part)| **part != Value::Null);
    let pairs = pairs.map(|(name, part)| ((*name).to_owned(), json_of(part)));
    Json::Object(pairs.collect())
}
