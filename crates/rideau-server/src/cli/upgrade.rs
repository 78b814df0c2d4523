//! Has a newer program take over from the running server, and waits for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rideau_daemon::{StartedAs, Upgradable};
use rideau_resp::Value;
use serde_json::json;

use super::{Done, Failure, Manner, control, show};
use crate::wire::Wire;

const NAME: &str = "rideau-upgrade";
/// How often it is asked how far the upgrade is.
const LOOK: Duration = Duration::from_millis(100);
/// Nothing that the server does takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Args, Debug)]
pub(crate) struct Upgrade {
    /// The newer program, instead of what lies now where the running one was started from
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Do nothing if the running server's program is the one that lies there
    #[arg(long, conflicts_with = "program")]
    if_new: bool,
}

/// How a newer program is started in the place of this one; `check` are the arguments that
/// have it look at the same config.
pub(super) fn upgradable(is_from_input: bool, check: Option<Vec<OsString>>) -> Upgradable {
    if std::process::id() == 1 {
        return Upgradable::No(
            "this server is the first process of a container, which ends with it: start a new \
             container beside this one",
        );
    }
    if is_from_input {
        return Upgradable::No(
            "the config came from standard input, which a newer program cannot read again: start \
             the server with a file",
        );
    }
    match std::env::current_exe() {
        Ok(program) => Upgradable::As(StartedAs {
            program,
            arguments: std::env::args_os().skip(1).collect(),
            check,
        }),
        Err(_) => Upgradable::No("the system does not say where this program lies"),
    }
}

pub(crate) async fn upgrade(words: &Upgrade, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    if words.if_new && !is_new(&mut wire).await? {
        return said("the running program is the one that lies there", manner);
    }
    let program = words
        .program
        .as_ref()
        .map(std::path::absolute)
        .transpose()?;
    let program = program.map(|path| path.display().to_string());
    let mut request = vec!["UPGRADE"];
    if let Some(program) = &program {
        request.extend(["PROGRAM", program]);
    }
    let answer = show::good(wire.ask(&request).await?)?;
    let Value::Integer(serial) = answer else {
        return Err(Failure::Broken("the server does not know upgrades".into()));
    };
    wait(serial, Some(wire), manner).await
}

/// Whether another program lies now where the server was started from.
async fn is_new(wire: &mut Wire) -> Result<bool, Failure> {
    let answer = show::good(wire.ask(&["UPGRADE", "STATUS"]).await?)?;
    let Value::Map(pairs) = answer else {
        return Ok(true);
    };
    let mut found = pairs.iter().filter(|(key, _)| show::text(key) == "is_new");
    Ok(found
        .next()
        .is_none_or(|(_, value)| *value != Value::Integer(0)))
}

/// Ask how far it is until it is over. Connections end meanwhile, and the newer server
/// answers where the older one did.
async fn wait(serial: i64, mut wire: Option<Wire>, manner: &Manner) -> Done {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = status(&mut wire, manner).await
            && status.serial == Some(serial)
        {
            match status.state.as_str() {
                "done" => return done(&status, manner),
                "failed" => return Err(Failure::Broken(status.reason)),
                _ => (),
            }
        }
        if Instant::now() > until {
            return Err(Failure::Broken(format!(
                "upgrade {serial} is not over: `rideau status` says how far it is"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What a server says of its last upgrade.
struct Status {
    serial: Option<i64>,
    state: String,
    reason: String,
    pid: String,
    ms: String,
}

/// None if no server says anything now.
async fn status(wire: &mut Option<Wire>, manner: &Manner) -> Option<Status> {
    let mut server = match wire.take() {
        Some(server) => server,
        None => control::connect(manner, NAME).await.ok()?,
    };
    let answer = server.ask(&["UPGRADE", "STATUS"]).await.ok()?;
    *wire = Some(server);
    let Value::Map(pairs) = answer else {
        return None;
    };
    let find = |name: &str| pairs.iter().find(|(key, _)| show::text(key) == name);
    let text = |name: &str| find(name).map_or_else(String::new, |(_, value)| show::text(value));
    Some(Status {
        serial: find("upgrade").and_then(|(_, value)| match value {
            Value::Integer(serial) => Some(*serial),
            _ => None,
        }),
        state: text("state"),
        reason: text("reason"),
        pid: text("pid"),
        ms: text("ms"),
    })
}

fn done(status: &Status, manner: &Manner) -> Done {
    let Status { pid, ms, .. } = status;
    if manner.json {
        show::print_json(&json!({ "state": "done", "pid": pid.parse::<i64>().ok() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    said(
        &format!("process {pid} has taken over, within {ms} ms"),
        manner,
    )
}

fn said(text: &str, manner: &Manner) -> Done {
    match manner.json {
        true => show::print_json(&json!({ "state": text }))?,
        false => show::print_text(text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A line about an upgrade that is under way, for an overview.
pub(super) async fn line(wire: &mut Wire) -> Option<String> {
    let answer = wire.ask(&["UPGRADE", "STATUS"]).await.ok()?;
    let Value::Map(pairs) = answer else {
        return None;
    };
    let text = |name: &str| {
        let found = pairs.iter().find(|(key, _)| show::text(key) == name);
        found.map_or_else(String::new, |(_, value)| show::text(value))
    };
    let state = text("state");
    match state.as_str() {
        "none" | "done" | "" => None,
        "failed" => Some(format!("upgrade {}: {}", text("upgrade"), text("reason"))),
        _ => Some(format!(
            "upgrade {} is {state}, for {} ms",
            text("upgrade"),
            text("ms")
        )),
    }
}
