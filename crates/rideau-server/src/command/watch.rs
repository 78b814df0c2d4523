//! Watching: events by channel, and everybody's commands.

use std::sync::Arc;

use crate::client::{Client, Step, Wrong};
use crate::events::KINDS;
use crate::resp::{Quoted, Request};
use crate::watch::{Channel, VALUES};

/// One connection watches so many channels and patterns at most.
const CHANNELS_MAX: usize = 128;
/// The channel of all events; those of one kind, and of one name, are below it.
const EVENTS: &str = "rideau:events";

pub(super) fn subscribe(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    begin(client, request, false)
}

pub(super) fn psubscribe(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    begin(client, request, true)
}

fn begin(client: &mut Client, request: Request<'_>, is_pattern: bool) -> Result<Step, Wrong> {
    let command = if is_pattern {
        "PSUBSCRIBE"
    } else {
        "SUBSCRIBE"
    };
    let mut arguments = request.arguments();
    let mut channels = Vec::new();
    while arguments.len() > 0 {
        let name = arguments.text(command, "a channel")?;
        check(name, is_pattern)?;
        channels.push(Channel {
            name: name.into(),
            is_pattern,
        });
    }
    if client.watch.len() + channels.len() > CHANNELS_MAX {
        return Err(Wrong(format!(
            "BUSY a connection watches {CHANNELS_MAX} channels at most: watch {EVENTS}, which has \
             them all."
        )));
    }
    let (daemon, card) = (Arc::clone(&client.daemon), Arc::clone(&client.card));
    for channel in channels {
        let name = Arc::clone(&channel.name);
        let user = client.user.clone();
        let watch = &mut client.watch;
        if name.starts_with(VALUES) {
            watch.subscribe_values(&daemon, &card, user, channel);
        } else {
            watch.subscribe(&daemon, &card, user, channel);
        }
        confirm(client, &command.to_lowercase(), Some(&name));
    }
    Ok(Step::Done)
}

/// Hear of what happens to the values of a range, or of all.
pub(super) fn values(client: &mut Client, range: Option<&str>) {
    let name: Arc<str> = match range {
        Some(range) => format!("{VALUES}:{range}").into(),
        None => VALUES.into(),
    };
    let (daemon, card) = (Arc::clone(&client.daemon), Arc::clone(&client.card));
    let channel = Channel {
        name: Arc::clone(&name),
        is_pattern: false,
    };
    let user = client.user.clone();
    client.watch.subscribe_values(&daemon, &card, user, channel);
    confirm(client, "subscribe", Some(&name));
}

/// Whoever waits for events that cannot be would wait for ever.
fn check(name: &str, is_pattern: bool) -> Result<(), Wrong> {
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
        _ => Err(Wrong(format!(
            "ERR there is no channel {}: events are on {EVENTS}, {EVENTS}:KIND and \
             {EVENTS}:KIND:NAME, where KIND is one of {}; values are on {VALUES} and \
             {VALUES}:RANGE.",
            Quoted(name.as_bytes()),
            KINDS.join(", ")
        ))),
    }
}

pub(super) fn unsubscribe(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    end(client, request, false)
}

pub(super) fn punsubscribe(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    end(client, request, true)
}

fn end(client: &mut Client, request: Request<'_>, is_pattern: bool) -> Result<Step, Wrong> {
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
    Ok(Step::Done)
}

/// What was done, to which channel, and how many are left.
fn confirm(client: &mut Client, word: &str, name: Option<&str>) {
    let len = client.watch.len() as i64;
    let mut reply = client.reply();
    reply.push(3).bulk(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    };
    reply.integer(len);
}

pub(super) fn monitor(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    request.arguments().end("MONITOR")?;
    super::may_use_all(client, "everybody's commands")?;
    let (daemon, card) = (Arc::clone(&client.daemon), Arc::clone(&client.card));
    client.watch.monitor(&daemon, &card);
    client.reply().simple("OK");
    Ok(Step::Done)
}
