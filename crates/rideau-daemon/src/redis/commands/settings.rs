//! `CONFIG`: show, check, change and roll back the config.

use std::sync::Arc;

use rideau_config::text::PathFault;
use rideau_config::{Change, Faults, Plan, fits, text};
use rideau_process::panics;
use rideau_resp::{Arguments, Mistake, Reply, Request, Upper};

use crate::redis::client::{Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::daemon::{Daemon, Unchanged};
use crate::view::tables::Cell;

impl From<Unchanged> for CommandError {
    fn from(why: Unchanged) -> Self {
        Self(why.reply())
    }
}

pub(super) fn config(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let what = arguments.word("CONFIG", "GET, SET, CHECK, PLAN, APPLY or another word")?;
    match Upper::of(what).as_bytes() {
        b"GET" => return values(client, arguments),
        b"SET" => return set(client, arguments),
        _ => super::may_use_all(client, "the whole config")?,
    }
    match Upper::of(what).as_bytes() {
        b"CHECK" => {
            let text = arguments.text("CONFIG CHECK", "a config as TOML")?;
            arguments.end("CONFIG CHECK")?;
            let (_, faults) = client.daemon.check(text)?;
            write_faults(&faults, &mut client.reply());
        }
        b"PLAN" => {
            let text = arguments.text("CONFIG PLAN", "a config as TOML")?;
            arguments.end("CONFIG PLAN")?;
            let plan = client.daemon.plan(text)?;
            write_plan(&plan, &mut client.reply());
        }
        b"APPLY" => {
            let text = arguments.text("CONFIG APPLY", "a config as TOML")?;
            arguments.end("CONFIG APPLY")?;
            let text = text.to_owned();
            let apply = move |daemon: &Arc<Daemon>, by: &str| daemon.apply(&text, by);
            return change(client, apply, planned);
        }
        b"PUSH" => {
            let text = arguments.text("CONFIG PUSH", "a config as TOML")?;
            arguments.end("CONFIG PUSH")?;
            let text = text.to_owned();
            let push = move |daemon: &Arc<Daemon>, by: &str| daemon.push(&text, by);
            return change(client, push, planned);
        }
        b"RELOAD" => {
            arguments.end("CONFIG RELOAD")?;
            return change(client, |daemon, by| daemon.reload(by), planned);
        }
        b"ROLLBACK" => return rollback(client, arguments),
        b"REWRITE" => return rewrite(client, arguments),
        b"HISTORY" => {
            arguments.end("CONFIG HISTORY")?;
            history(client);
        }
        b"TEXT" => return show_text(client, arguments),
        b"RESETSTAT" => {
            return Err(CommandError(
                "ERR counters cannot be reset: compare two answers of INFO instead.".into(),
            ));
        }
        _ => return Err(Mistake::unknown("CONFIG", what).into()),
    }
    Ok(Next::Done)
}

/// The values that count, by path, by the path of what is above them, or by a
/// pattern with `*`.
fn values(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let mut rows = client.daemon.config.load().rows();
    rows.retain(|(path, _)| super::look::viewer(client).sees_path(path));
    let mut found: Vec<&(String, String)> = Vec::new();
    let mut next = Some(arguments.text("CONFIG GET", "a path such as pool.pg-1.max")?);
    while let Some(path) = next {
        let above = format!("{path}.");
        let is_wanted = |known: &str| {
            known == path || known.starts_with(&above) || (path.contains('*') && fits(path, known))
        };
        let before = found.len();
        for row in rows.iter().filter(|(known, _)| is_wanted(known)) {
            if !found.contains(&row) {
                found.push(row);
            }
        }
        // Keys of Redis have no dots, and clients that ask for them want to hear that
        // there is nothing.
        if found.len() == before && path.contains('.') && !path.contains('*') {
            may_use_path(client, path)?;
            text::get(&client.daemon.settings.text(), path).map_err(Unchanged::Path)?;
        }
        next = match arguments.len() {
            0 => None,
            _ => Some(arguments.text("CONFIG GET", "a path")?),
        };
    }
    let mut reply = client.reply();
    reply.map(found.len());
    for (path, value) in found {
        reply.bulk(path).bulk(value);
    }
    Ok(Next::Done)
}

fn set(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let mut values = Vec::new();
    while values.is_empty() || arguments.len() > 0 {
        let path = arguments.text("CONFIG SET", "a path such as pool.pg-1.max")?;
        let value = arguments.text("CONFIG SET", "a value")?;
        may_use_path(client, path)?;
        if let Some(kind) = text::grouped(path) {
            check_group(client, kind, &as_text(value))?;
        }
        values.push((path.to_owned(), value.to_owned()));
    }
    change(client, move |daemon, by| daemon.set(&values, by), done)
}

/// Make a change and answer it: at once, or on a node of a cluster when etcd has it.
pub(super) fn change(
    client: &mut Client,
    make: impl FnOnce(&Arc<Daemon>, &str) -> Result<Plan, Unchanged> + Send + 'static,
    answer: fn(&mut Client, &Plan),
) -> Result<Next, CommandError> {
    let by = client.user_name().to_owned();
    if client.daemon.cluster.is_none() {
        let plan = make(&client.daemon, &by).map_err(|why| without_hint(client, why))?;
        answer(client, &plan);
        return Ok(Next::Done);
    }
    let daemon = Arc::clone(&client.daemon);
    let made = async move {
        let made = panics::away(move || make(&daemon, &by)).await;
        let finish: OnReady = Box::new(move |client| match made {
            Ok(Ok(plan)) => answer(client, &plan),
            Ok(Err(why)) => {
                let CommandError(text) = without_hint(client, why).into();
                client.reply().error(text);
            }
            Err(panicked) => client.answer_panic(client.out.len(), panicked),
        });
        finish
    };
    Ok(Next::Wait(PendingCommand::work("CONFIG", Box::pin(made))))
}

/// Answer a change with its plan.
fn planned(client: &mut Client, plan: &Plan) {
    write_plan(plan, &mut client.reply());
}

/// Why nothing changed, without names that the client may not know.
fn without_hint(client: &Client, why: Unchanged) -> Unchanged {
    match why {
        Unchanged::Path(PathFault::NoName { part, name, near })
            if !super::look::viewer(client).sees_all_names() =>
        {
            let near = near.filter(|near| super::look::viewer(client).sees(&part, near));
            Unchanged::Path(PathFault::NoName { part, name, near })
        }
        why => why,
    }
}

/// The client may know and change this key.
fn may_use_path(client: &Client, path: &str) -> Result<(), CommandError> {
    if super::look::viewer(client).sees_path(path) {
        return Ok(());
    }
    Err(CommandError(format!(
        "NOPERM user {} may not use the key {path} of the config: its on list has no such thing.",
        client.user_name()
    )))
}

/// The text that is meant by a value as it is written, with or without quotes.
pub(super) fn as_text(value: &str) -> String {
    let parsed: Result<toml_edit::Value, _> = value.parse();
    let parsed = parsed.ok();
    let text = parsed.as_ref().and_then(toml_edit::Value::as_str);
    text.unwrap_or(value).into()
}

/// Answer a change: `OK` is what clients of Redis expect, and more is said only
/// if there is more to know.
pub(super) fn done(client: &mut Client, plan: &Plan) {
    // What a range was told about its values is told when it is written down.
    if plan.is_about_ranges() {
        client.held_back.until(client.daemon.values.ranges.logged());
    }
    let needs = |step: &&rideau_config::PlanStep| step.change == Change::Restart;
    let restarts: Vec<_> = plan
        .steps
        .iter()
        .filter(needs)
        .map(|step| step.path.as_str())
        .collect();
    if restarts.is_empty() {
        client.reply().simple("OK");
    } else {
        let paths = restarts.join(", ");
        let text = format!("OK, but {paths} takes effect after the next start");
        client.reply().simple(text);
    }
}

fn rollback(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let version = match arguments.len() {
        0 => None,
        _ => {
            let wants = "the number of a version of CONFIG HISTORY";
            Some(arguments.number("CONFIG ROLLBACK", wants, 1..=u64::MAX)?)
        }
    };
    arguments.end("CONFIG ROLLBACK")?;
    change(
        client,
        move |daemon, by| daemon.rollback(version, by),
        planned,
    )
}

fn rewrite(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let word = arguments.next();
    let is_forced = word.is_some_and(|word| Upper::of(word).as_bytes() == b"FORCE");
    if let Some(word) = word.filter(|_| !is_forced) {
        return Err(Mistake::wrong("CONFIG REWRITE", "FORCE or nothing", word).into());
    }
    arguments.end("CONFIG REWRITE")?;
    client.daemon.rewrite(is_forced, client.user_name())?;
    client.reply().simple("OK");
    Ok(Next::Done)
}

fn history(client: &mut Client) {
    let versions = client.daemon.settings.history();
    let mut reply = client.reply();
    reply.array(1 + versions.len()).array(4);
    for column in ["version", "at_ms", "by", "summary"] {
        reply.bulk(column);
    }
    for version in versions {
        reply.array(4);
        Cell::from(version.serial).write(&mut reply);
        Cell::from(version.at).write(&mut reply);
        reply.bulk(&version.by).bulk(&version.summary);
    }
}

/// A version as text, hashes of passwords included: a user that may change them may see
/// them.
fn show_text(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let versions = client.daemon.settings.history();
    let wanted = match arguments.len() {
        0 => None,
        _ => Some(arguments.number("CONFIG TEXT", "the number of a version", 1..=u64::MAX)?),
    };
    arguments.end("CONFIG TEXT")?;
    let found = match wanted {
        None => versions.first(),
        Some(serial) => versions.iter().find(|version| version.serial == serial),
    };
    let Some(version) = found else {
        return Err(Unchanged::NoVersion {
            serial: wanted.unwrap_or(0),
            oldest: versions.last().map_or(1, |version| version.serial),
            newest: versions.first().map_or(1, |version| version.serial),
        }
        .into());
    };
    client.reply().verbatim(&version.text);
    Ok(Next::Done)
}

fn write_plan(plan: &Plan, reply: &mut Reply<'_>) {
    reply.array(1 + plan.steps.len()).array(6);
    for column in ["path", "old", "new", "change", "meaning", "shed"] {
        reply.bulk(column);
    }
    for step in &plan.steps {
        reply.array(6).bulk(&step.path);
        for value in [&step.old, &step.new] {
            match value {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            };
        }
        let change = match step.change {
            Change::Live => "live",
            Change::Restart => "restart",
        };
        reply
            .bulk(change)
            .bulk(&step.meaning)
            .integer(step.shed as i64);
    }
}

fn write_faults(faults: &Faults, reply: &mut Reply<'_>) {
    reply.array(1 + faults.iter().count()).array(4);
    for column in ["line", "column", "warning", "hint"] {
        reply.bulk(column);
    }
    for fault in faults {
        reply
            .array(4)
            .integer(fault.line as i64)
            .integer(fault.column as i64)
            .bulk(&fault.message)
            .bulk(&fault.hint);
    }
}

/// Takes from a group get members of all its pools: a client brings a pool into a group
/// only if it may use the group.
pub(super) fn check_group(client: &Client, kind: &str, group: &str) -> Result<(), CommandError> {
    super::may_use(client, kind, &format!("@{group}"))
}
