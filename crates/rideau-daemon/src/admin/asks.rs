//! Asks over HTTP: the commands of the Redis protocol, in a session.
//!
//! A request is executed as the command that it is, by a client that has joined the
//! session for as long as it takes. A client that hangs up while it waits gives its
//! place up; a client that does not hear the answer asks again with the same `id`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use rideau::Full;
use rideau_resp::{Protocol, Reply, ReplyLimits, ReplyParser, RequestLimits, RequestParser, Value};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::answer::{Answer, HttpError, ok, with_status};
use super::request::AdminRequest;
use super::session_client::SessionClient;
use super::tickets::ticket_of;
use crate::redis::client::Next;
use crate::redis::commands;
use crate::state::lease_table::LeaseEntry;
use crate::state::ticket::{Ticket, TicketKind};
use crate::state::values;

/// A client that is shed and is not told when to come back may do so then.
const SOON: Duration = Duration::from_secs(1);
/// The fields of a regulator's lease.
const LEASE: [&str; 3] = ["ticket", "lead_us", "waited_us"];
/// The fields of a grant, by the kind of ask.
const TAKEN: &[&str] = &["ticket", "member", "waited_us"];
const LOCKED: &[&str] = &["ticket", "ordinal", "capacity", "fence", "waited_us"];
/// The fields of every refusal.
pub(super) const REFUSED: &[&str] = &["waited_us", "why", "reason", "retry_after_us", "id"];
/// The fields of an ask in the background; the time is there if it was shortened.
pub(super) const AWAITS: &[&str] = &["ticket", "wait_ms"];
const PLACED: &[&str] = &["ticket", "address", "pid", "waited_us"];
/// What the answer of an ask for a value in the background has: the ticket of the ask, and the
/// value with its own.
const VALUE: &[&str] = &[
    "ticket",
    "value",
    "value_ticket",
    "expires_ms",
    "tier",
    "hops",
    "fence",
];
/// The fields when no value is free.
pub(super) const NONE: &[&str] = &["free", "total", "why", "reason", "retry_after_us", "id"];
const MATCHED: &[&str] = &["ticket", "value", "lead_us", "waited_us"];

/// The body of a take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    wait_ms: Option<u64>,
    flow: Option<String>,
    note: Option<String>,
    id: Option<String>,
    /// Answer with a ticket, and wait in the background.
    #[serde(default, rename = "async")]
    is_async: bool,
}

/// The body of a lock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    per: Option<u64>,
    buckets: Option<u64>,
    units: Option<u64>,
    wait_ms: Option<u64>,
    note: Option<String>,
    id: Option<String>,
    /// Answer with a ticket, and wait in the background.
    #[serde(default, rename = "async")]
    is_async: bool,
}

/// The body of an ask or an offer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Come {
    value: Option<String>,
    wait_ms: Option<u64>,
    flow: Option<String>,
    note: Option<String>,
    id: Option<String>,
    /// Never wait.
    #[serde(default)]
    now: bool,
    /// Answer with a ticket, and wait in the background.
    #[serde(default, rename = "async")]
    is_async: bool,
}

/// The body of an ask without options of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    wait_ms: Option<u64>,
    note: Option<String>,
    id: Option<String>,
    /// Answer with a ticket, and wait in the background.
    #[serde(default, rename = "async")]
    is_async: bool,
}

/// The body of a wait for an answer, or for a match's end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Await {
    wait_ms: Option<u64>,
}

pub(super) async fn take(request: AdminRequest) -> Answer {
    let said: Take = request.json()?;
    let mut words = Words::new("TAKE", request.name("pool"));
    words.number("WAIT", said.wait_ms);
    words.text("FLOW", said.flow);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    words.flag("ASYNC", said.is_async);
    ask(&request, words, TAKEN).await
}

pub(super) async fn lock(request: AdminRequest) -> Answer {
    let said: Lock = request.json()?;
    let mut words = Words::new("LOCK", request.name("key"));
    words.number("PER", said.per);
    words.number("BUCKETS", said.buckets);
    words.number("UNITS", said.units);
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    words.flag("ASYNC", said.is_async);
    ask(&request, words, LOCKED).await
}

pub(super) async fn ask_broker(request: AdminRequest) -> Answer {
    come(request, "ASK").await
}

pub(super) async fn offer_broker(request: AdminRequest) -> Answer {
    come(request, "OFFER").await
}

async fn come(request: AdminRequest, command: &'static str) -> Answer {
    let said: Come = request.json()?;
    let mut words = Words::new(command, request.name("broker"));
    words.text("VALUE", said.value);
    words.text("FLOW", said.flow);
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    words.flag("ASYNC", said.is_async);
    words.flag("NB", said.now);
    ask(&request, words, MATCHED).await
}

/// The answer of an ask that waits in the background. Of a match that was answered at
/// once it is the end, as [`wait_end`] tells it.
pub(super) async fn wait(request: AdminRequest) -> Answer {
    let ticket = Ticket::parse(request.name("ticket").as_bytes());
    let is_match = |ticket: Ticket| {
        let lease_table = &request.daemon().lease_table;
        let is_held = |thing: &mut LeaseEntry| match thing {
            LeaseEntry::Held(grant) => grant.mail().is_some(),
            _ => false,
        };
        lease_table.look(ticket, request.scope(), is_held) == Ok(true)
    };
    let command = match ticket.is_some_and(is_match) {
        true => "AWAIT.END",
        false => "AWAIT",
    };
    wait_for(request, command).await
}

/// Ask a regulator for a lease.
pub(super) async fn lease(request: AdminRequest) -> Answer {
    let words = plain(&request, "REG.ASK", "regulator")?;
    ask(&request, words, &LEASE).await
}

/// Ask to keep a lease of a regulator.
pub(super) async fn keep(request: AdminRequest) -> Answer {
    let words = Words::new("REG.CONTINUE", request.name("ticket"));
    let (reply, retry_after) = run(&request, &words).await?;
    told(&reply, &LEASE, retry_after)
}

/// Have a place in a process of an application.
pub(super) async fn place(request: AdminRequest) -> Answer {
    let words = plain(&request, "APP.GET", "app")?;
    ask(&request, words, PLACED).await
}

/// The words of an ask that has nothing of its own to say.
fn plain(request: &AdminRequest, command: &str, name: &str) -> Result<Words, HttpError> {
    let said: Plain = request.json()?;
    let mut words = Words::new(command, request.name(name));
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    words.flag("ASYNC", said.is_async);
    Ok(words)
}

/// Wait for the other party's end of a match.
pub(super) async fn wait_end(request: AdminRequest) -> Answer {
    wait_for(request, "AWAIT.END").await
}

async fn wait_for(request: AdminRequest, command: &str) -> Answer {
    let said: Await = request.json()?;
    let mut words = Words::new(command, request.name("ticket"));
    words.0.extend(said.wait_ms.map(|wait| wait.to_string()));
    let (reply, more) = run(&request, &words).await?;
    let ticket = Ticket::parse(request.name("ticket").as_bytes());
    told(&reply, names_of(ticket), more)
}

/// The fields of a grant with this kind of ticket.
fn names_of(ticket: Option<Ticket>) -> &'static [&'static str] {
    match ticket.map(|ticket| ticket.kind) {
        Some(TicketKind::Member) => TAKEN,
        Some(TicketKind::Lock) => LOCKED,
        Some(TicketKind::Match) => MATCHED,
        Some(TicketKind::Lease) => &LEASE,
        Some(TicketKind::App) => PLACED,
        Some(TicketKind::Value) => VALUE,
        _ => &["ticket"],
    }
}

/// Give up an ask in the background. Says whether it still waited.
pub(super) async fn cancel(request: AdminRequest) -> Answer {
    let ticket = ticket_of(request.name("ticket"))?;
    let lease_table = &request.daemon().lease_table;
    let is_asked = |thing: &mut LeaseEntry| matches!(thing, LeaseEntry::Asked(_));
    // What was granted is given back by its ticket, and not by mistake.
    let waits = lease_table.look(ticket, request.scope(), is_asked) == Ok(true);
    if !waits {
        return ok(&json!({ "is_cancelled": false }));
    }
    let words = Words::new("CANCEL", request.name("ticket"));
    let (reply, _) = run(&request, &words).await?;
    match reply {
        Value::Error(text) => Err(HttpError::of_executed(&text)),
        reply => ok(&json!({ "is_cancelled": reply == Value::Integer(1) })),
    }
}

/// Details of an answer besides its fields.
#[derive(Default)]
struct Told {
    /// When to ask again.
    retry_after: Option<Duration>,
    /// How many units of a lock are held.
    full: Option<Box<Full>>,
}

/// The words of a command.
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn new(command: &str, name: &str) -> Self {
        Self(vec![command.into(), name.into()])
    }

    pub(super) fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    pub(super) fn flag(&mut self, word: &str, is_said: bool) {
        if is_said {
            self.word(word);
        }
    }

    pub(super) fn text(&mut self, option: &str, value: Option<String>) {
        if let Some(value) = value {
            self.0.extend([option.into(), value]);
        }
    }

    pub(super) fn number(&mut self, option: &str, value: Option<u64>) {
        self.text(option, value.map(|number| number.to_string()));
    }

    /// As a client would send them.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
        reply.array(self.0.len());
        for word in &self.0 {
            reply.bulk(word);
        }
        bytes
    }
}

async fn ask(request: &AdminRequest, words: Words, names: &[&str]) -> Answer {
    if request.daemon().is_draining() {
        return Err(HttpError::draining());
    }
    let (reply, more) = run(request, &words).await?;
    told(&reply, names, more)
}

/// Execute a command within the request's session. Says what was answered, and
/// what is known besides.
async fn run(request: &AdminRequest, words: &Words) -> Result<(Value, Told), HttpError> {
    execute(request, words, SessionClient::enter(request)?).await
}

/// Execute a command about values, which needs no session.
pub(super) async fn run_values(request: &AdminRequest, words: &Words) -> Result<Value, HttpError> {
    let mut session = match &request.session {
        Some(_) => SessionClient::enter(request)?,
        None => SessionClient::alone(request),
    };
    // Maps are told from lists.
    session.client.protocol = Protocol::Resp3;
    let (reply, _) = execute(request, words, session).await?;
    Ok(reply)
}

async fn execute(
    request: &AdminRequest,
    words: &Words,
    mut session: SessionClient,
) -> Result<(Value, Told), HttpError> {
    let bytes = words.bytes();
    let daemon = Arc::clone(request.daemon());
    daemon.counts.commands.fetch_add(1, Ordering::Relaxed);
    let step = {
        let mut parser = RequestParser::default();
        let limits = RequestLimits {
            bulk_max: bytes.len().max(1),
            frame_max: bytes.len().max(1),
            ..RequestLimits::default()
        };
        match parser.next(&bytes, &mut 0, &limits) {
            Ok(Some(request)) => commands::execute(&mut session.client, request),
            _ => return Err(HttpError::wrong("The request is too long.")),
        }
    };
    if let Next::Wait(wait) = step {
        let finish = session.wait(wait).await?;
        let begun = session.client.now;
        session.client.hear();
        finish(&mut session.client);
        session.client.now = begun;
    }
    session.client.end_batch();
    if let Err(failed) = session.client.held_back.over().await {
        return Err(HttpError::of_command(&values::unsafe_text(&failed)));
    }
    let read = ReplyParser::default().next(&session.client.out, &mut 0, &ReplyLimits::default());
    let reply = read.ok().flatten().ok_or_else(|| {
        HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "ERR",
            "The server answered nothing: please report it.",
        )
    })?;
    let told = Told {
        retry_after: session.client.retry_after,
        full: session.client.full.take(),
    };
    Ok((reply, told))
}

/// A reply in JSON: its word is the outcome, and the rest gets names.
fn told(reply: &Value, names: &[&str], more: Told) -> Answer {
    let Told { retry_after, full } = more;
    let parts = match reply {
        Value::Error(text) => return Err(HttpError::of_executed(text)),
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let Some((Value::Bulk(word), rest)) = parts.split_first() else {
        return Err(HttpError::wrong(
            "The server gave an answer of an unknown form: please report \
            it.",
        ));
    };
    let word = String::from_utf8_lossy(word).into_owned();
    let names = match word.as_str() {
        "go" => names,
        "await" => AWAITS,
        "none" => NONE,
        "done" => &["payload"],
        "down" => &["why"],
        _ => REFUSED,
    };
    let status = status(&word);
    let mut body = Map::new();
    body.insert("outcome".into(), word.into());
    for (name, part) in names.iter().zip(rest) {
        // What is not known is left out.
        if *part != Value::Null {
            body.insert((*name).into(), json_of(part));
        }
    }
    if let Some(full) = full {
        body.insert("held".into(), full.held.into());
        body.insert("capacity".into(), full.capacity.into());
    }
    let id = body.get("id").and_then(Json::as_str);
    let id = id.and_then(|id| HeaderValue::from_str(id).ok());
    let mut response = with_status(status, &Json::Object(body));
    if let Some(id) = id {
        response.headers_mut().insert("rideau-id", id);
    }
    let is_shed = status == StatusCode::SERVICE_UNAVAILABLE;
    if let Some(wait) = retry_after.or(is_shed.then_some(SOON)) {
        let seconds = HeaderValue::from(whole_seconds(wait));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    Ok(response)
}

/// A client that comes back in whole seconds does not come too early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// A refusal is no mistake, but scripts look at the status only.
fn status(word: &str) -> StatusCode {
    match word {
        "go" | "done" | "down" => StatusCode::OK,
        "await" => StatusCode::ACCEPTED,
        "timeout" => StatusCode::REQUEST_TIMEOUT,
        "shed" | "closed" => StatusCode::SERVICE_UNAVAILABLE,
        // Full, cancelled, and no match at once.
        _ => StatusCode::CONFLICT,
    }
}

pub(super) fn json_of(part: &Value) -> Json {
    match part {
        Value::Array(parts) => parts.iter().map(json_of).collect(),
        Value::Map(pairs) => {
            let text = |key: &Value| match key {
                Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
                _ => String::new(),
            };
            let pairs = pairs.iter().map(|(key, value)| (text(key), json_of(value)));
            Json::Object(pairs.collect())
        }
        Value::Integer(number) => (*number).into(),
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned().into(),
        _ => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn a_no_has_its_id_in_a_header() {
        let why = [
            bulk("none is left"),
            bulk("busy"),
            Value::Null,
            bulk("d-1f"),
        ];
        let mut reply = vec![bulk("full"), Value::Integer(7)];
        reply.extend(why);
        let answer = told(&Value::Array(reply), &[], Told::default()).unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        assert_eq!(answer.headers().get(header::RETRY_AFTER), None);
        assert_eq!(answer.headers()["rideau-id"], "d-1f");
    }

    #[test]
    fn one_is_told_to_come_back_when_there_is_a_chance_and_not_before() {
        let shed = || Value::Array(vec![bulk("shed"), Value::Integer(7), bulk("why")]);
        for (wait, seconds) in [(None, "1"), (Some(10), "1"), (Some(2_001), "3")] {
            let wait = wait.map(Duration::from_millis);
            let more = Told {
                retry_after: wait,
                full: None,
            };
            let answer = told(&shed(), &[], more).unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers()[header::RETRY_AFTER], seconds);
        }
    }

    #[test]
    fn a_mistake_keeps_its_kind() {
        let error = Value::Error("STALE ticket is over.".into());
        let no = told(&error, &[], Told::default()).unwrap_err();
        assert_eq!((no.status, no.code.as_str()), (StatusCode::GONE, "STALE"));
        assert_eq!(no.text, "ticket is over.");
    }
}
