//! Members of pools.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rideau::{AskOptions, Flow, Held, NotTaken, Reason, Refusal};
use rideau_config::label::Label;
use rideau_config::text;
use rideau_core::Brief;
use rideau_resp::{Mistake, Request, Upper};

use super::ask_args;
use super::settings;
use super::shared::{self, PlaceAsk};
use super::tickets::{self, Answer};
use crate::redis::client::{AskArgs, Client, CommandError, Next, refused};
use crate::state::answer::{AnswerField, Outcome, micros};
use crate::state::catalog::{NamedGroup, NamedPool};
use crate::state::cluster::PlaceKind;
use crate::state::daemon::Daemon;
use crate::state::grant::Grant;
use crate::state::members::{Members, Offer, why_not_taken};
use crate::state::ticket::TicketKind;

/// No client waits longer for a pool to end or to be replaced: a day.
const WITHIN_MAX: u64 = 86_400_000;

/// Where members are taken from.
enum Target {
    Pool(Arc<NamedPool>),
    Group(Arc<NamedGroup>),
}

/// A value of a list that is made is there by then, unless the machine is very busy.
const MADE_WITHIN: Duration = Duration::from_secs(1);

impl Target {
    /// The home of what nodes share.
    fn home(&self, client: &Client) -> Option<Box<str>> {
        match self {
            Self::Pool(pool) => pool.shared.as_ref().map(|shared| shared.home.clone()),
            Self::Group(group) => {
                let name = format!("@{}", group.name);
                let catalog = client.daemon.catalog.load();
                catalog.home_of_pool(&name).map(Into::into)
            }
        }
    }

    /// Whether there is a value that no take has had yet, and no take waits for it.
    fn has_new_value(&self, client: &Client) -> bool {
        match self {
            Self::Pool(pool) => pool.has_new_value(),
            Self::Group(group) => {
                let catalog = client.daemon.catalog.load();
                let mut names = group.config.pools.iter();
                names.any(|name| {
                    let pool = catalog.pools.get(name);
                    pool.is_some_and(|pool| pool.has_new_value())
                })
            }
        }
    }
}

pub(super) fn take(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("TAKE", "a pool, or @group")?;
    let mut tail = AskArgs::default();
    let mut flow = Flow(0);
    while let Some(option) = arguments.next() {
        match Upper::of(option).as_bytes() {
            b"FLOW" => flow = ask_args::flow(&mut arguments, client)?,
            upper => {
                if !tail.option(upper, &mut arguments, client)? {
                    return Err(Mistake::unknown("TAKE", option).into());
                }
            }
        }
    }
    super::may_use(client, "pool", name)?;
    let target = target(client, name)?;
    if let Target::Pool(pool) = &target {
        tail.cap_by(|| pool.pool.options().queue);
    }
    if let Some(step) = tickets::repeated(client, &tail) {
        return Ok(step);
    }
    let terms = AskOptions {
        flow,
        ..client.terms(&tail)
    };
    if let Some(home) = target.home(client) {
        let ask = PlaceAsk {
            kind: PlaceKind::Take,
            name,
            value: b"",
            terms,
            is_now: false,
        };
        return shared::come(client, &ask, home, tail);
    }
    take_here(client, name, target, terms, tail)
}

/// Take from what this node has.
fn take_here(
    client: &mut Client,
    name: &str,
    target: Target,
    mut terms: AskOptions,
    tail: AskArgs,
) -> Result<Next, CommandError> {
    // A value that no take has had yet is made when it is asked for, at once. That is
    // no wait.
    let is_first = terms.wait_max == Some(Duration::ZERO) && target.has_new_value(client);
    if is_first {
        terms.wait_max = Some(MADE_WITHIN);
    }
    let note = ask_args::note(client, &tail);
    match target {
        Target::Pool(pool) => {
            let mut taking = pool.pool.take_owned(terms);
            let mut context = Context::from_waker(&client.waker);
            if let Poll::Ready(taken) = Pin::new(&mut taking).poll(&mut context) {
                return settle(client, &pool, taken, &tail, note);
            }
            if tail.is_async {
                let daemon = Arc::clone(&client.daemon);
                let sees_output = super::look::viewer(client).sees_output("pool", name);
                let answer = async move {
                    let taken = taking.await;
                    answer(&daemon, &pool.name, Some(&pool), taken, &note, sees_output)
                };
                return waiting(client, name.to_owned(), tail, answer);
            }
            if !is_first {
                client.may_wait()?;
            }
            let answer = async move {
                let taken = taking.await;
                move |client: &mut Client| settle(client, &pool, taken, &tail, note)
            };
            let name = name.to_owned();
            let mut wait = tickets::blocked_until(TicketKind::Member, name, answer);
            wait.is_work = is_first;
            Ok(Next::Wait(wait))
        }
        Target::Group(group) => {
            let daemon = Arc::clone(&client.daemon);
            // It may be about any of its pools.
            let sees_output = super::look::viewer(client).sees_output("pool", "*");
            let answer = async move {
                let taken = group.group.take_on(terms).await;
                let name = format!("@{}", group.name);
                answer(&daemon, &name, None, taken, &note, sees_output)
            };
            waiting(client, name.to_owned(), tail, answer)
        }
    }
}

/// Answer a take, without any detour.
fn settle(
    client: &mut Client,
    pool: &Arc<NamedPool>,
    taken: Result<Held<'static, Members>, NotTaken>,
    tail: &AskArgs,
    note: Option<String>,
) -> Result<Next, CommandError> {
    let held = match taken {
        Ok(held) => held,
        Err(no) => {
            let sees_output = super::look::viewer(client).sees_output("pool", &pool.name);
            let no = refuse(&client.daemon, &pool.name, Some(pool), &no, sees_output);
            client.tell_no(&no);
            return Ok(Next::Done);
        }
    };
    if let Some(note) = note {
        Held::note(&held, note);
    }
    let waited = Held::waited(&held).as_micros() as i64;
    let (value, is_mortal) = (Arc::clone(held.value()), held.is_mortal());
    let grant = Grant::Member {
        held,
        pool: Arc::clone(pool),
    };
    let ticket = client.keep(TicketKind::Member, grant, tail)?;
    if is_mortal {
        client.daemon.look_for_death(ticket);
    }
    client.remember(tail, ticket, || {
        vec![(&*value).into(), AnswerField::Number(waited)]
    });
    client.reply_go(4, ticket).bulk(&*value).integer(waited);
    Ok(Next::Done)
}

fn waiting(
    client: &mut Client,
    name: String,
    tail: AskArgs,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Result<Next, CommandError> {
    client.may_wait()?;
    if tail.is_async {
        return tickets::later(client, TicketKind::Member, &name, &tail, answer);
    }
    Ok(Next::Wait(tickets::blocked(
        TicketKind::Member,
        name,
        tail,
        answer,
    )))
}

/// Writes the answer of a take.
fn answer(
    daemon: &Daemon,
    name: &str,
    pool: Option<&Arc<NamedPool>>,
    taken: Result<Held<'static, Members>, NotTaken>,
    note: &Option<String>,
    sees_output: bool,
) -> Answer {
    match taken {
        Ok(held) => {
            let found = || daemon.catalog.load().pools.get(&**held.pool()).cloned();
            let pool = pool.cloned().or_else(found);
            let Some(pool) = pool else {
                // It was removed just now.
                let refusal = Refusal {
                    reason: Reason::Closed,
                    waited: Held::waited(&held),
                    len: 0,
                    retry_after: Duration::ZERO,
                };
                let why = refusal.to_string();
                let no = refused(daemon, "pool", name, &refusal, why, String::new);
                return Err(no);
            };
            if let Some(note) = note {
                Held::note(&held, note.clone());
            }
            let parts = vec![(&**held.value()).into(), micros(Held::waited(&held))];
            Ok((parts, Grant::Member { held, pool }))
        }
        Err(no) => Err(refuse(daemon, name, pool, &no, sees_output)),
    }
}

/// A refusal that is remembered for all, and told with all that the client may know.
#[cold]
fn refuse(
    daemon: &Daemon,
    name: &str,
    pool: Option<&Arc<NamedPool>>,
    no: &NotTaken,
    sees_output: bool,
) -> Outcome {
    let explain = || pool.map_or_else(String::new, |pool| pool.explain());
    let said = refused(
        daemon,
        "pool",
        name,
        &no.refusal,
        why_not_taken(no, false),
        explain,
    );
    match sees_output && no.refusal.reason != Reason::Closed {
        true => said.with_why(why_not_taken(no, true)),
        false => said,
    }
}

fn target(client: &mut Client, name: &str) -> Result<Target, CommandError> {
    match name.strip_prefix('@') {
        Some(group) => client
            .daemon
            .catalog
            .load()
            .groups
            .get(group)
            .filter(|group| !group.config.pools.is_empty())
            .map(|group| Target::Group(Arc::clone(group)))
            .ok_or_else(|| {
                CommandError::no_such("pool", name, "SHOW POOLS lists pools and groups.")
            }),
        None => known_pool(client, name).map(Target::Pool),
    }
}

/// The pool of this name; most clients that take from a pool took from it before.
fn known_pool(client: &mut Client, name: &str) -> Result<Arc<NamedPool>, CommandError> {
    if let Some(known) = client.pool.upgrade()
        && *known.name == *name
    {
        return Ok(known);
    }
    let pool = any_pool(client, name)?;
    client.pool = Arc::downgrade(&pool);
    Ok(pool)
}

/// The pool of this name, wherever it is.
fn any_pool(client: &Client, name: &str) -> Result<Arc<NamedPool>, CommandError> {
    let catalog = client.daemon.catalog.load();
    catalog.pools.get(name).cloned().ok_or_else(|| {
        CommandError::no_such("pool", name, "SHOW POOLS lists them, POOL.ADD adds one.")
    })
}

/// The pool of this name, if this node decides about it.
pub(super) fn pool(client: &Client, name: &str) -> Result<Arc<NamedPool>, CommandError> {
    let found = any_pool(client, name)?;
    match found.is_here() {
        true => Ok(found),
        false => Err(shared::not_here("pool", name)),
    }
}

pub(super) fn offer(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.OFFER", "a pool")?;
    let mut value = arguments.text("POOL.OFFER", "a value")?;
    let mut tail = AskArgs::default();
    while let Some(option) = arguments.next() {
        match Upper::of(option).as_bytes() {
            b"VALUE" => value = arguments.text("VALUE", "a value")?,
            upper => {
                if !tail.option(upper, &mut arguments, client)? {
                    return Err(Mistake::unknown("POOL.OFFER", option).into());
                }
            }
        }
    }
    client.check_label(Label::Member, value.as_bytes())?;
    super::may_use(client, "pool", name)?;
    let pool = pool(client, name)?;
    let offer = Arc::new(Offer::new(value));
    let grant = Grant::Offer {
        offer: Arc::clone(&offer),
        pool: Arc::clone(&pool),
    };
    let ticket = client.keep(TicketKind::Offer, grant, &tail)?;
    if !pool.members.offer(&offer) {
        let _ =
            client
                .daemon
                .lease_table
                .take(ticket, None, crate::state::end::EndReason::Cancelled);
        return Err(CommandError(format!(
            "WRONGTYPE pool {name} takes no offers: its config needs member = \"offered\"."
        )));
    }
    client.reply().bulk(ticket.text());
    Ok(Next::Done)
}

pub(super) fn add(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.ADD", "a name")?;
    let keys = arguments.text("POOL.ADD", "the keys of the pool as TOML")?;
    arguments.end("POOL.ADD")?;
    super::may_use(client, "pool", name)?;
    let env = |name: &str| std::env::var(name).ok();
    let parsed = client.daemon.config.load().parse_pool(name, keys, &env);
    if let Some(group) = parsed.ok().and_then(|pool| pool.group) {
        settings::check_group(client, "pool", &group)?;
    }
    let (name, keys) = (name.to_owned(), keys.to_owned());
    let add = move |daemon: &Arc<Daemon>, by: &str| daemon.add_pool(&name, &keys, by);
    settings::change(client, add, settings::done)
}

pub(super) fn delete(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.DEL", "a pool")?;
    let mut within = client.daemon.config.load().server.drain;
    if let Some(how) = arguments.next() {
        match Upper::of(how).as_bytes() {
            b"NOW" => within = Duration::ZERO,
            b"GRACEFUL" => {
                let ms = arguments.number("GRACEFUL", "milliseconds", 0..=WITHIN_MAX)?;
                within = Duration::from_millis(ms);
            }
            _ => return Err(Mistake::wrong("POOL.DEL", "GRACEFUL ms or NOW", how).into()),
        }
    }
    arguments.end("POOL.DEL")?;
    super::may_use(client, "pool", name)?;
    let name = name.to_owned();
    let remove = move |daemon: &Arc<Daemon>, by: &str| daemon.remove_pool(&name, Some(within), by);
    settings::change(client, remove, settings::done)
}

pub(super) fn set(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.SET", "a pool")?;
    super::may_use(client, "pool", name)?;
    pool(client, name)?;
    let above = toml_edit::Key::new(name);
    let above = above.display_repr();
    let mut values = Vec::new();
    while values.is_empty() || arguments.len() > 0 {
        let key = arguments.text("POOL.SET", "a key such as MAX")?;
        let value = arguments.text("POOL.SET", "a value")?;
        let path = format!("pool.{above}.{}", key.to_lowercase());
        if let Some(kind) = text::grouped(&path) {
            settings::check_group(client, kind, &settings::as_text(value))?;
        }
        values.push((path, value.to_owned()));
    }
    let set = move |daemon: &Arc<Daemon>, by: &str| daemon.set(&values, by);
    settings::change(client, set, settings::done)
}

pub(super) fn recycle(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.RECYCLE", "a pool")?;
    let mut over = Duration::ZERO;
    if let Some(word) = arguments.next() {
        if Upper::of(word).as_bytes() != b"OVER" {
            return Err(Mistake::unknown("POOL.RECYCLE", word).into());
        }
        let ms = arguments.number("OVER", "milliseconds", 0..=WITHIN_MAX)?;
        over = Duration::from_millis(ms);
    }
    arguments.end("POOL.RECYCLE")?;
    super::may_use(client, "pool", name)?;
    pool(client, name)?.pool.replace(over);
    let text = match over {
        Duration::ZERO => format!("all members of pool {name} are replaced at once"),
        over => format!(
            "all members of pool {name} are replaced over {}",
            Brief(over)
        ),
    };
    let events = &client.daemon.events;
    events.add("pool", name, text, Some(client.user_name()));
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn pause(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let said = "was paused";
    act(client, request, "POOL.PAUSE", said, |pool| {
        pool.pool.suspend();
    })
}

pub(super) fn resume(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let said = "was resumed";
    act(client, request, "POOL.RESUME", said, |pool| {
        pool.pool.resume();
    })
}

fn act(
    client: &mut Client,
    request: Request<'_>,
    command: &'static str,
    said: &str,
    act: impl FnOnce(&NamedPool),
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text(command, "a pool")?;
    arguments.end(command)?;
    super::may_use(client, "pool", name)?;
    act(&*pool(client, name)?);
    let text = format!("pool {name} {said}");
    let events = &client.daemon.events;
    events.add("pool", name, text, Some(client.user_name()));
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn stat(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("POOL.STAT", "a pool")?;
    arguments.end("POOL.STAT")?;
    super::may_use(client, "pool", name)?;
    let place = pool(client, name)?;
    let stats = place.stats();
    let rows = [
        ("max", stats.max as i64),
        ("idle", stats.members.idle as i64),
        ("held", stats.members.held as i64),
        ("starting", stats.members.starting as i64),
        ("stopping", stats.members.stopping as i64),
        ("waiting", stats.waiting.iter().sum::<usize>() as i64),
    ];
    let mut reply = client.reply();
    reply.map(rows.len());
    for (name, value) in rows {
        reply.bulk(name).integer(value);
    }
    Ok(Next::Done)
}
