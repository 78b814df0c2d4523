//! Asks over HTTP: the commands of the Redis protocol, in a session.
//!
//! A request is executed as the command that it is, by one who has joined the
//! session for as long as it takes. Whoever hangs up while it waits gives its
//! place up; whoever does not hear the answer asks again with the same `id`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use rideau::Full;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tokio::time::{MissedTickBehavior, interval};

use super::grants::session_of;
use super::visit::{Answer, No, Visit, with_status};
use crate::attempts::Origin;
use crate::client::{Awaits, Client, Finish, Replies, Step, Wait, Wrong};
use crate::clients::ClientCard;
use crate::command;
use crate::daemon::Daemon;
use crate::grant::Grant;
use crate::held_back::HeldBack;
use crate::holdings::{Card, HolderId, Thing, Why};
use crate::login::{self, Proof};
use crate::outbox::Outbox;
use crate::resp::{Limits, Protocol, Reply, ReplyLimits, ReplyParser, RequestParser, Value};
use crate::ticket::{Kind, Ticket};
use crate::timing::Batch;
use crate::values;
use crate::watch::Watch;

/// Who is shed and is not told when to come back may do so then.
const SOON: Duration = Duration::from_secs(1);
/// What belongs to a lease of a regulator.
const LEASE: [&str; 3] = ["ticket", "lead_us", "waited_us"];
/// A session is renewed this often while one of its requests waits: an open
/// connection is a sign of life.
const RENEW: Duration = Duration::from_millis(200);

/// What a yes has, by what was asked for.
const TAKEN: &[&str] = &["ticket", "member", "waited_us"];
const LOCKED: &[&str] = &["ticket", "ordinal", "capacity", "fence", "waited_us"];
/// What every no has.
pub(super) const REFUSED: &[&str] = &["waited_us", "why", "reason", "retry_after_us", "id"];
const MATCHED: &[&str] = &["ticket", "value", "lead_us", "waited_us"];

/// What can be said with a take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    wait_ms: Option<u64>,
    flow: Option<String>,
    note: Option<String>,
    id: Option<String>,
}

/// What can be said with a lock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    per: Option<u64>,
    buckets: Option<u64>,
    units: Option<u64>,
    wait_ms: Option<u64>,
    note: Option<String>,
    id: Option<String>,
}

/// What can be said with an ask or an offer.
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
}

/// What can be said with an ask that has nothing of its own to say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    wait_ms: Option<u64>,
    note: Option<String>,
    id: Option<String>,
}

/// What can be said with a wait for an answer, or for a match's end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Await {
    wait_ms: Option<u64>,
}

pub(super) async fn take(visit: Visit) -> Answer {
    let said: Take = visit.json()?;
    let mut words = Words::new("TAKE", visit.name("pool"));
    words.number("WAIT", said.wait_ms);
    words.text("FLOW", said.flow);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    ask(&visit, words, TAKEN).await
}

pub(super) async fn lock(visit: Visit) -> Answer {
    let said: Lock = visit.json()?;
    let mut words = Words::new("LOCK", visit.name("key"));
    words.number("PER", said.per);
    words.number("BUCKETS", said.buckets);
    words.number("UNITS", said.units);
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    ask(&visit, words, LOCKED).await
}

pub(super) async fn ask_broker(visit: Visit) -> Answer {
    come(visit, "ASK").await
}

pub(super) async fn offer_broker(visit: Visit) -> Answer {
    come(visit, "OFFER").await
}

async fn come(visit: Visit, command: &'static str) -> Answer {
    let said: Come = visit.json()?;
    let mut words = Words::new(command, visit.name("broker"));
    words.text("VALUE", said.value);
    words.text("FLOW", said.flow);
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    if said.now {
        words.0.push("NB".into());
    }
    ask(&visit, words, MATCHED).await
}

/// The answer of an ask that waits in the background. Of a match that was answered at
/// once it is the end, as [`wait_end`] tells it.
pub(super) async fn wait(visit: Visit) -> Answer {
    let ticket = Ticket::parse(visit.name("ticket").as_bytes());
    let is_match = |ticket: Ticket| {
        let holdings = &visit.daemon().holdings;
        let is_held = |thing: &mut Thing| matches!(thing, Thing::Held(Grant::Match(_)));
        holdings.look(ticket, visit.scope(), is_held) == Ok(true)
    };
    let command = match ticket.is_some_and(is_match) {
        true => "AWAIT.END",
        false => "AWAIT",
    };
    wait_for(visit, command).await
}

/// Ask a regulator for a lease.
pub(super) async fn lease(visit: Visit) -> Answer {
    let words = plain(&visit, "REG.ASK", "regulator")?;
    ask(&visit, words, &LEASE).await
}

/// Ask to keep a lease of a regulator.
pub(super) async fn keep(visit: Visit) -> Answer {
    let words = Words::new("REG.CONTINUE", visit.name("ticket"));
    let (reply, retry_after) = run(&visit, &words).await?;
    told(&reply, &LEASE, retry_after)
}

/// Have a place in a process of an application.
pub(super) async fn place(visit: Visit) -> Answer {
    let words = plain(&visit, "APP.GET", "app")?;
    let names = ["ticket", "address", "pid", "waited_us"];
    ask(&visit, words, &names).await
}

/// The words of an ask that has nothing of its own to say.
fn plain(visit: &Visit, command: &str, name: &str) -> Result<Words, No> {
    let said: Plain = visit.json()?;
    let mut words = Words::new(command, visit.name(name));
    words.number("WAIT", said.wait_ms);
    words.text("NOTE", said.note);
    words.text("ID", said.id);
    Ok(words)
}

/// Wait for the other party's end of a match.
pub(super) async fn wait_end(visit: Visit) -> Answer {
    wait_for(visit, "AWAIT.END").await
}

async fn wait_for(visit: Visit, command: &str) -> Answer {
    let said: Await = visit.json()?;
    let mut words = Words::new(command, visit.name("ticket"));
    words.0.extend(said.wait_ms.map(|wait| wait.to_string()));
    let (reply, more) = run(&visit, &words).await?;
    let ticket = Ticket::parse(visit.name("ticket").as_bytes());
    told(&reply, names_of(ticket), more)
}

/// What a yes of such a ticket has.
fn names_of(ticket: Option<Ticket>) -> &'static [&'static str] {
    match ticket.map(|ticket| ticket.kind) {
        Some(Kind::Member) => TAKEN,
        Some(Kind::Lock) => LOCKED,
        Some(Kind::Match) => MATCHED,
        Some(Kind::Lease) => &LEASE,
        Some(Kind::App) => &["ticket", "address", "pid", "waited_us"],
        _ => &["ticket"],
    }
}

/// What is known of an answer besides what it says.
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

async fn ask(visit: &Visit, words: Words, names: &[&str]) -> Answer {
    if visit.daemon().is_draining() {
        return Err(No::draining());
    }
    let (reply, more) = run(visit, &words).await?;
    told(&reply, names, more)
}

/// Execute a command within the request's session. Says what was answered, and
/// what is known besides.
async fn run(visit: &Visit, words: &Words) -> Result<(Value, Told), No> {
    execute(visit, words, Guest::enter(visit)?).await
}

/// Execute a command about values, for which nobody needs a session.
pub(super) async fn run_values(visit: &Visit, words: &Words) -> Result<Value, No> {
    let mut guest = match &visit.session {
        Some(_) => Guest::enter(visit)?,
        None => Guest::alone(visit),
    };
    // Maps are told from lists.
    guest.client.protocol = Protocol::Resp3;
    let (reply, _) = execute(visit, words, guest).await?;
    Ok(reply)
}

async fn execute(visit: &Visit, words: &Words, mut guest: Guest) -> Result<(Value, Told), No> {
    let bytes = words.bytes();
    let daemon = Arc::clone(visit.daemon());
    daemon.counts.commands.fetch_add(1, Ordering::Relaxed);
    let step = {
        let mut parser = RequestParser::default();
        let limits = Limits {
            bulk_max: bytes.len().max(1),
            frame_max: bytes.len().max(1),
            ..Limits::default()
        };
        match parser.next(&bytes, &mut 0, &limits) {
            Ok(Some(request)) => command::execute(&mut guest.client, request),
            _ => return Err(No::wrong("The request is too long.")),
        }
    };
    if let Step::Wait(wait) = step {
        let finish = guest.wait(wait).await?;
        let begun = guest.client.now;
        guest.client.hear();
        finish(&mut guest.client);
        guest.client.now = begun;
    }
    guest.client.end_batch();
    if let Err(failed) = guest.client.held_back.over().await {
        return Err(No::of_command(&values::unsafe_text(&failed)));
    }
    let read = ReplyParser::default().next(&guest.client.out, &mut 0, &ReplyLimits::default());
    let reply = read.ok().flatten().ok_or_else(|| {
        No::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "ERR",
            "The server answered nothing: please report it.",
        )
    })?;
    let told = Told {
        retry_after: guest.client.retry_after,
        full: guest.client.full.take(),
    };
    Ok((reply, told))
}

/// One who has joined a session for one request, and leaves it when dropped.
struct Guest {
    client: Client,
    session: Option<Ticket>,
}

impl Guest {
    fn enter(visit: &Visit) -> Result<Self, No> {
        let Some(id) = &visit.session else {
            return Err(No::wrong(
                "Asks belong to a session: POST /v1/sessions opens one, and its id goes into the \
                 header Rideau-Session.",
            ));
        };
        let session = session_of(id)?;
        let daemon = visit.daemon();
        let row = daemon.sessions.attach(session, visit.by());
        let row = row.ok_or_else(|| super::grants::no_session(id))?;
        let mut client = client(daemon, &row.card, row.holder, Some(row.ticket));
        be(&mut client, visit);
        client.session = Some((session, row.holder));
        Ok(Self {
            client,
            session: Some(session),
        })
    }

    /// One who is in no session, and holds nothing by itself.
    fn alone(visit: &Visit) -> Self {
        let daemon = visit.daemon();
        let card = Arc::new(Card {
            name: Mutex::new("http".into()),
            user: visit.by().into(),
            session: None,
            connection: None,
        });
        let holder = daemon.holdings.open(Arc::clone(&card));
        let mut client = client(daemon, &card, holder, None);
        be(&mut client, visit);
        Self {
            client,
            session: None,
        }
    }

    /// Wait for the answer; the session stays alive meanwhile. Whoever may not have it
    /// any more is told so, and what was given in that moment goes back.
    async fn wait(&mut self, wait: Wait) -> Result<Finish, No> {
        let Wait {
            mut answer,
            name,
            awaits,
            ..
        } = wait;
        let waiting = self.client.begin_wait();
        let _waiting = waiting.map_err(|Wrong(text)| No::of_command(&text))?;
        let mut ticks = interval(RENEW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                finish = &mut answer => {
                    self.follow(&awaits, &name)?;
                    return Ok(finish);
                }
                _ = ticks.tick() => {
                    self.follow(&awaits, &name)?;
                    let user = self.client.user_name();
                    if let Some(session) = self.session {
                        let _ = self.client.daemon.sessions.renew(session, user);
                    }
                }
            }
        }
    }

    /// Follow a change of what its user may do.
    fn follow(&mut self, awaits: &Awaits, name: &str) -> Result<(), No> {
        let client = &mut self.client;
        let generation = client.daemon.settings.generation();
        if client.generation == generation {
            return Ok(());
        }
        let user = login::current(&client.daemon, client.user.as_ref(), client.password);
        let may = user.and_then(|user| {
            client.generation = generation;
            client.user = user;
            client.read_config();
            command::may_still(client, awaits, name)
        });
        may.map_err(|Wrong(text)| No::of_command(&text))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let daemon = &self.client.daemon;
        match self.session {
            Some(session) => daemon.sessions.detach(session, Why::Quit),
            None => drop(daemon.end_holder(self.client.holder, Why::Quit)),
        }
    }
}

/// Have the client be who makes the request, with what was known of it then.
fn be(client: &mut Client, visit: &Visit) {
    client.user.clone_from(&visit.user);
    client.password = visit.password;
    client.generation = visit.generation;
}

/// A client as commands want one. It is in no list: the session is the holder,
/// and is seen.
fn client(
    daemon: &Arc<Daemon>,
    holder_card: &Arc<Card>,
    holder: HolderId,
    session: Option<Ticket>,
) -> Client {
    let output_max = daemon.config.load().limits.output_max as usize;
    let card = ClientCard {
        id: 0,
        address: "http".into(),
        local: String::new(),
        card: Mutex::new(Arc::clone(holder_card)),
        holder: Mutex::new(holder),
        outbox: Arc::new(Outbox::new(output_max)),
        since: Instant::now(),
        heard_ms: AtomicU64::new(0),
        library: Mutex::default(),
        last: AtomicUsize::new(usize::MAX),
        session: Mutex::new(session.map(|session| session.to_string())),
        is_waiting: AtomicBool::new(false),
        is_listening: AtomicBool::new(false),
        foreign_releases: AtomicU64::new(0),
        commands: AtomicU64::new(0),
    };
    Client {
        daemon: Arc::clone(daemon),
        card: Arc::new(card),
        user: None,
        usage: daemon.quotas.of(&holder_card.user),
        connection: None,
        holder,
        session: None,
        protocol: Protocol::Resp2,
        out: Vec::new(),
        held_back: HeldBack::default(),
        watch: Watch::default(),
        proof: Proof::None,
        origin: Origin::Unknown,
        place: None,
        password: None,
        is_proven: false,
        generation: daemon.settings.generation(),
        config: daemon.config.load_full(),
        rules: Arc::clone(&daemon.places.load().rules),
        pool: Weak::new(),
        broker: Weak::new(),
        waker: Waker::noop().clone(),
        now: daemon.holdings.now(),
        batch: Batch::default(),
        heartbeat: None,
        ending: None,
        replies: Replies::On,
        retry_after: None,
        full: None,
        transaction: None,
        is_in_exec: false,
    }
}

/// A reply in JSON: its word is the outcome, and the rest gets names.
fn told(reply: &Value, names: &[&str], more: Told) -> Answer {
    let Told { retry_after, full } = more;
    let parts = match reply {
        Value::Error(text) => return Err(No::of_command(text)),
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let Some((Value::Bulk(word), rest)) = parts.split_first() else {
        return Err(No::wrong("There is no answer to that."));
    };
    let word = String::from_utf8_lossy(word).into_owned();
    let names = match word.as_str() {
        "go" => names,
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
            body.insert((*name).into(), json(part));
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

/// Who comes back in whole seconds does not come too early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// A no is no mistake, but scripts look at the status only.
fn status(word: &str) -> StatusCode {
    match word {
        "go" | "done" | "down" => StatusCode::OK,
        "timeout" => StatusCode::REQUEST_TIMEOUT,
        "shed" | "closed" => StatusCode::SERVICE_UNAVAILABLE,
        // Full, cancelled, and nobody there at once.
        _ => StatusCode::CONFLICT,
    }
}

pub(super) fn json(part: &Value) -> Json {
    match part {
        Value::Array(parts) => parts.iter().map(json).collect(),
        Value::Map(pairs) => {
            let text = |key: &Value| match key {
                Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
                _ => String::new(),
            };
            let pairs = pairs.iter().map(|(key, value)| (text(key), json(value)));
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
