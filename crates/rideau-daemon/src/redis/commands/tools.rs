//! What tools for Redis ask of any server, answered as it is here: nothing is stored, so
//! there are no keys to list, and no module, slow command or spike is written down.

use std::time::{SystemTime, UNIX_EPOCH};

use rideau_config::OWN;
use rideau_resp::{Arguments, Mistake, Quoted, Request, Upper};

use super::{About, Subject, about};
use crate::redis::client::{Client, CommandError, Next};

/// These commands. They tell nothing of others, so every user may use them.
pub(super) const TABLE: &[About] = &[
    about(
        "TIME",
        1,
        OWN,
        Subject::Nothing,
        "",
        "The server's clock: seconds since 1970, and microseconds",
        time,
    ),
    about(
        "DBSIZE",
        1,
        OWN,
        Subject::Nothing,
        "",
        "How many keys are stored: none; LOCK.LS has the keys of locks",
        size,
    ),
    about(
        "SCAN",
        2,
        OWN,
        Subject::Nothing,
        "cursor [MATCH pattern] [COUNT n] [TYPE type]",
        "The keys that are stored: none; LOCK.LS has the keys of locks",
        scan,
    ),
    about(
        "SLOWLOG",
        2,
        OWN,
        Subject::Nothing,
        "GET [n] | LEN | RESET",
        "Slow commands: none are recorded; rideau_command_seconds of /metrics has all",
        slow,
    ),
    about(
        "LATENCY",
        2,
        OWN,
        Subject::Nothing,
        "LATEST | HISTORY event | HISTOGRAM [command ...] | RESET [event ...] | DOCTOR",
        "Spikes: none are recorded; rideau_command_seconds of /metrics has all",
        latency,
    ),
    about(
        "ACL",
        2,
        OWN,
        Subject::Nothing,
        "WHOAMI",
        "The user of this connection",
        acl,
    ),
    about(
        "MODULE",
        2,
        OWN,
        Subject::Nothing,
        "LIST",
        "The modules: none",
        module,
    ),
];

fn time(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("TIME")?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    client
        .reply()
        .array(2)
        .bulk(now.as_secs().to_string())
        .bulk(now.subsec_micros().to_string());
    Ok(Next::Done)
}

fn size(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("DBSIZE")?;
    client.reply().integer(0);
    Ok(Next::Done)
}

fn scan(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    arguments.number("SCAN", "a cursor", 0..=u64::MAX)?;
    while let Some(option) = arguments.next() {
        match Upper::of(option).as_bytes() {
            b"MATCH" => drop(arguments.word("MATCH", "a pattern")?),
            b"COUNT" => drop(arguments.number("COUNT", "keys", 1..=u64::MAX)?),
            b"TYPE" => drop(arguments.word("TYPE", "a type")?),
            _ => return Err(Mistake::unknown("SCAN", option).into()),
        }
    }
    client.reply().array(2).bulk("0").array(0);
    Ok(Next::Done)
}

fn slow(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (what, mut arguments) = part(request)?;
    match what.as_bytes() {
        b"GET" => {
            if arguments.len() > 0 {
                arguments.word("SLOWLOG GET", "a number")?;
            }
            client.reply().array(0);
        }
        b"LEN" => drop(client.reply().integer(0)),
        b"RESET" => drop(client.reply().simple("OK")),
        _ => return Err(unknown(request)),
    }
    Ok(Next::Done)
}

fn latency(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (what, _) = part(request)?;
    match what.as_bytes() {
        b"LATEST" | b"HISTORY" => drop(client.reply().array(0)),
        b"HISTOGRAM" => drop(client.reply().map(0)),
        b"RESET" => drop(client.reply().integer(0)),
        b"DOCTOR" => {
            let text = "No spikes are recorded here. rideau_command_seconds of /metrics has \
                        how long each command took, and EXPLAIN says why something waits.";
            client.reply().verbatim(text);
        }
        _ => return Err(unknown(request)),
    }
    Ok(Next::Done)
}

fn acl(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (what, arguments) = part(request)?;
    if what.as_bytes() != b"WHOAMI" {
        return Err(CommandError(
            "ERR ACL has WHOAMI alone: users are in the config, and CONFIG GET user shows them."
                .into(),
        ));
    }
    arguments.end("ACL WHOAMI")?;
    // Redis calls a client that has not said so `default`.
    let user = client.user.as_ref().map(|user| user.name.clone());
    let user = user.unwrap_or_else(|| "default".into());
    client.reply().bulk(user);
    Ok(Next::Done)
}

fn module(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (what, arguments) = part(request)?;
    if what.as_bytes() != b"LIST" {
        return Err(unknown(request));
    }
    arguments.end("MODULE LIST")?;
    client.reply().array(0);
    Ok(Next::Done)
}

/// The word that says what to do, and those behind it.
fn part(request: Request<'_>) -> Result<(Upper, Arguments<'_>), CommandError> {
    let mut arguments = request.arguments();
    let what = Upper::of(arguments.word("it", "a word")?);
    Ok((what, arguments))
}

fn unknown(request: Request<'_>) -> CommandError {
    let name = Upper::of(request.name());
    let name = String::from_utf8_lossy(name.as_bytes());
    let usage = super::usage(&name).unwrap_or_default();
    CommandError(format!(
        "ERR {name} does not know {}: write {name} {usage}.",
        Quoted(request.word(1).unwrap_or_default())
    ))
}
