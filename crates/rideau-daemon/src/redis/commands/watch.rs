//! Watching: events by channel, and all commands of others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau_apps::KINDS;
use rideau_config::User;
use rideau_config::label::Label;
use rideau_resp::{Quoted, Request};
use serde_json::json;

use crate::redis::client::{Client, CommandError, Next};
use crate::redis::login;
use crate::redis::subscriptions::{Channel, VALUES};

/// One connection watches this many channels and patterns at most.
const CHANNELS_MAX: usize = 128;
/// The channel of all events; those of one kind, and of one name, are below it.
const EVENTS: &str = "rideau:events";

pub(super) fn subscribe(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    begin(client, request, false)
}

pub(super) fn psubscribe(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    begin(client, request, true)
}

fn begin(
    client: &mut Client,
    request: Request<'_>,
    is_pattern: bool,
) -> Result<Next, CommandError> {
    let command = if is_pattern {
        "PSUBSCRIBE"
    } else {
        "SUBSCRIBE"
    };
    let mut arguments = request.arguments();
    let mut channels = Vec::new();
    while arguments.len() > 0 {
        let name = arguments.text(command, "a channel")?;
        client.check_label(Label::Channel, name.as_bytes())?;
        check(name, is_pattern)?;
        channels.push(Channel {
            name: name.into(),
            is_pattern,
        });
    }
    if client.watch.len() + channels.len() > CHANNELS_MAX {
        return Err(CommandError(format!(
            "BUSY a connection watches {CHANNELS_MAX} channels at most: watch {EVENTS}, which has \
             them all."
        )));
    }
    for channel in channels {
        let name = Arc::clone(&channel.name);
        add(client, channel)?;
        confirm(client, &command.to_lowercase(), Some(&name));
    }
    Ok(Next::Done)
}

/// Hear of one channel more.
fn add(client: &mut Client, channel: Channel) -> Result<(), CommandError> {
    let (daemon, card) = (Arc::clone(&client.daemon), Arc::clone(&client.card));
    client.watch.set_user(client.user.clone());
    let count = client.stream();
    let watch = &mut client.watch;
    let added = match channel.name.starts_with(VALUES) {
        true => watch.subscribe_values(&daemon, &card, channel, count),
        false => watch.subscribe(&daemon, &card, channel, count),
    };
    Ok(added?)
}

/// Hear of what happens to the values of a range, or of all.
pub(super) fn values(client: &mut Client, range: Option<&str>) -> Result<(), CommandError> {
    let name: Arc<str> = match range {
        Some(range) => format!("{VALUES}:{range}").into(),
        None => VALUES.into(),
    };
    let channel = Channel {
        name: Arc::clone(&name),
        is_pattern: false,
    };
    add(client, channel)?;
    confirm(client, "subscribe", Some(&name));
    Ok(())
}

/// A client that waits for events that cannot be would wait for ever.
fn check(name: &str, is_pattern: bool) -> Result<(), CommandError> {
    let rest = name.strip_prefix(EVENTS);
    let kind = rest.and_then(|rest| match rest.strip_prefix(':') {
        Some(rest) => rest.split(':').next(),
        None => rest.is_empty().then_some(""),
    });
    match kind {
        _ if is_pattern || name == VALUES => Ok(()),
        _ if name.starts_with(VALUES) && name[VALUES.len()..].starts_with(':') => Ok(()),
        Some(kind) if kind.is_empty() && rest == Some("") => Ok(()),
        Some(kind) if KINDS.contains(&kind) => Ok(()),
        _ => Err(CommandError(format!(
            "ERR there is no channel {}: events are on {EVENTS}, {EVENTS}:KIND and \
             {EVENTS}:KIND:NAME, where KIND is one of {}; values are on {VALUES} and \
             {VALUES}:RANGE.",
            Quoted(name.as_bytes()),
            KINDS.join(", ")
        ))),
    }
}

pub(super) fn unsubscribe(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    end(client, request, false)
}

pub(super) fn punsubscribe(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    end(client, request, true)
}

fn end(client: &mut Client, request: Request<'_>, is_pattern: bool) -> Result<Next, CommandError> {
    let word = if is_pattern {
        "punsubscribe"
    } else {
        "unsubscribe"
    };
    let mut names: Vec<Arc<str>> = request
        .arguments()
        .map(|name| String::from_utf8_lossy(name).into())
        .collect();
    if names.is_empty() {
        names = client.watch.names(is_pattern);
    }
    if names.is_empty() {
        confirm(client, word, None);
    }
    for name in names {
        client.watch.unsubscribe(&Channel {
            name: Arc::clone(&name),
            is_pattern,
        });
        confirm(client, word, Some(&name));
    }
    Ok(Next::Done)
}

/// Confirms a subscription: the action, the channel, and how many are left.
fn confirm(client: &mut Client, word: &str, name: Option<&str>) {
    let len = client.watch.len() as i64;
    client.card.is_listening.store(len > 0, Ordering::Relaxed);
    let mut reply = client.reply();
    reply.push(3).bulk(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    };
    reply.integer(len);
}

pub(super) fn monitor(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("MONITOR")?;
    may_see_commands(client)?;
    let (daemon, card) = (Arc::clone(&client.daemon), Arc::clone(&client.card));
    client.watch.set_user(client.user.clone());
    let count = client.stream();
    client.watch.monitor(&daemon, &card, count)?;
    client.reply().simple("OK");
    Ok(Next::Done)
}

/// Follow a change of the client's user or of what it may do. What it may not watch any
/// more ends, with one message that says why.
pub(crate) fn follow(client: &mut Client) {
    if client.watch.is_idle() {
        return;
    }
    if client.watch.is_of(client.user.as_ref()) && !login::is_needed(client) {
        return;
    }
    let before = client.watch.user();
    let user = client.user.clone().or(before);
    client.watch.set_user(client.user.clone());
    if client.watch.is_monitor()
        && let Err(CommandError(text)) = may_monitor(client)
    {
        client.watch.end_monitor();
        deny(client, user.as_ref(), "MONITOR", &text);
        client.reply().error(text);
    }
    let mut why = None;
    let channels = client.watch.channels();
    let mut lost = channels.clone();
    lost.retain(|channel| match may_hear(client, channel) {
        Ok(()) => false,
        Err(wrong) => {
            why.get_or_insert(wrong);
            true
        }
    });
    if let Some(CommandError(text)) = why {
        deny(client, user.as_ref(), "SUBSCRIBE", &text);
        end_all(client, &lost, &text);
    }
    let (usage, count) = (Arc::clone(&client.usage), client.stream());
    let Err(over) = client.watch.recount(&usage, count) else {
        return;
    };
    let CommandError(text) = over.into();
    match channels.iter().any(|channel| !lost.contains(channel)) {
        true => {
            let rest = channels.iter().filter(|channel| !lost.contains(channel));
            end_all(client, &rest.cloned().collect::<Vec<_>>(), &text);
        }
        // There was only the stream of commands.
        false => drop(client.reply().error(text)),
    }
}

/// Write down that a user may not watch this any more.
fn deny(client: &Client, user: Option<&Arc<User>>, command: &str, error: &str) {
    if let Some(about) = super::find(command.as_bytes()) {
        client
            .daemon
            .deny(about.needs(), User::name_of(user), error);
    }
}

/// Whether the client may still see the commands of all.
fn may_monitor(client: &Client) -> Result<(), CommandError> {
    super::may_run(client, "MONITOR")?;
    may_see_commands(client)
}

fn may_see_commands(client: &Client) -> Result<(), CommandError> {
    super::may_use_all(client, "all commands of others")
}

/// Whether the client may still hear of this channel.
fn may_hear(client: &Client, channel: &Channel) -> Result<(), CommandError> {
    let range = channel.name.strip_prefix(VALUES);
    let range = range.and_then(|rest| rest.strip_prefix(':'));
    super::may_run(client, "SUBSCRIBE")?;
    match range.filter(|_| !channel.is_pattern) {
        Some(range) => super::may_use(client, "range", range),
        None => Ok(()),
    }
}

/// The last message on the first of these channels says why they end.
fn end_all(client: &mut Client, channels: &[Channel], text: &str) {
    let Some(first) = channels.first() else {
        return;
    };
    let said = json!({ "error": text }).to_string();
    let mut reply = client.reply();
    match first.is_pattern {
        true => reply.push(4).bulk("pmessage").bulk(&*first.name),
        false => reply.push(3).bulk("message"),
    };
    reply.bulk(&*first.name).bulk(said);
    for channel in channels {
        client.watch.unsubscribe(channel);
        let word = match channel.is_pattern {
            true => "punsubscribe",
            false => "unsubscribe",
        };
        confirm(client, word, Some(&channel.name));
    }
}
