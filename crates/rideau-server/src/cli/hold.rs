//! Holds a member or a lock while a command runs, as flock does with a file.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_resp::Value;
use serde_json::{Map, json};

use super::child::{self, OnLoss};
use super::{Done, Failure, Manner, REFUSED, show, span};
use crate::wire::Wire;

/// Hold a member of a pool while a command runs
///
/// The command finds the member in RIDEAU_MEMBER and wherever its words have {value}, and the
/// ticket in RIDEAU_TICKET. The connection is the holder: whatever ends this program gives the
/// member back, and kills the command, but not what that has started itself or runs as another user
/// by sudo. Ends with the code of the command, or with 3 if there was no member for it.
#[derive(Args, Debug)]
pub(crate) struct Take {
    /// The pool, or @GROUP
    #[arg(value_name = "POOL")]
    pool: String,
    /// The flow to wait in, if the queue is fair
    #[arg(long, value_name = "KEY")]
    flow: Option<String>,
    #[command(flatten)]
    tail: Tail,
}

/// Hold units of a key while a command runs, as flock does
///
/// The command finds the ticket in RIDEAU_TICKET, and in RIDEAU_FENCE a number that grows with
/// each lock: a store that refuses smaller ones is safe from holders that lost theirs. Unlike
/// with flock, whatever ends this program frees the lock, and kills the command, but not what that
/// has started itself or runs as another user by sudo. Ends with the code of the command, or with 3
/// if the lock could not be had.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    /// The key
    key: String,
    /// Units in each bucket [default: that of the server's rule]
    #[arg(long, value_name = "N")]
    per: Option<u64>,
    /// Buckets, if the rule of the server lets clients choose
    #[arg(long, value_name = "M")]
    buckets: Option<u64>,
    /// Units to hold
    #[arg(long, value_name = "U")]
    units: Option<u32>,
    #[command(flatten)]
    tail: Tail,
}

/// Options that both share.
#[derive(Args, Debug)]
struct Tail {
    /// How long to wait for it, as 200ms or 5s [default: that of the server; locks do not wait]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,
    /// A note that others see beside the holder
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// If the command ends with an error, have the member replaced
    #[arg(long)]
    fail_on_error: bool,
    /// If the connection is lost, send the command SIGTERM
    #[arg(long)]
    kill_on_loss: bool,
    /// Without a command: keep it for this long after this program has ended, as 60s
    #[arg(long, value_name = "SPAN", value_parser = span::parse, conflicts_with = "command")]
    session: Option<Duration>,
    /// The command
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A granted lease.
struct Lease {
    ticket: String,
    /// The value of `{value}` in the command, if any.
    value: Option<String>,
    /// For the command, and for the user who asked.
    variables: Vec<(&'static str, String)>,
}

pub(crate) async fn take(words: &Take, manner: &Manner) -> Done {
    let mut request = vec!["TAKE".to_owned(), words.pool.clone()];
    option(&mut request, "FLOW", words.flow.clone());
    let lease = |parts: &[Value]| Lease {
        ticket: word(parts, 1),
        value: Some(word(parts, 2)),
        variables: vec![
            ("RIDEAU_TICKET", word(parts, 1)),
            ("RIDEAU_MEMBER", word(parts, 2)),
        ],
    };
    hold(request, &words.pool, &words.tail, lease, manner).await
}

pub(crate) async fn lock(words: &Lock, manner: &Manner) -> Done {
    let mut request = vec!["LOCK".to_owned(), words.key.clone()];
    option(&mut request, "PER", words.per);
    option(&mut request, "BUCKETS", words.buckets);
    option(&mut request, "UNITS", words.units);
    let lease = |parts: &[Value]| Lease {
        ticket: word(parts, 1),
        value: None,
        variables: vec![
            ("RIDEAU_TICKET", word(parts, 1)),
            ("RIDEAU_FENCE", word(parts, 4)),
        ],
    };
    hold(request, &words.key, &words.tail, lease, manner).await
}

async fn hold(
    mut request: Vec<String>,
    name: &str,
    tail: &Tail,
    lease: impl FnOnce(&[Value]) -> Lease,
    manner: &Manner,
) -> Done {
    if tail.command.is_empty() && tail.session.is_none() {
        return Err(Failure::Misuse(format!(
            "a lease ends with its connection, so a command is needed: \
             rideau {} {name} -- CMD; or keep it with --session 60s",
            request[0].to_lowercase()
        )));
    }
    option(&mut request, "WAIT", tail.wait.map(span::millis));
    option(&mut request, "NOTE", tail.note.clone());
    let mut wire = Wire::connect(&manner.server, &program_name()).await?;
    let session = match tail.session {
        Some(span) => Some(open_session(&mut wire, span).await?),
        None => None,
    };
    let answer = wire.ask(&request).await?;
    let parts = show::elements(&answer);
    if word(parts, 0) != "go" {
        if session.is_some() {
            // Else it would stay for its time, and hold nothing.
            let _ = wire.ask(&["SESSION", "CLOSE"]).await;
        }
        wire.quit().await;
        return refuse(&show::good(answer)?, name, manner);
    }
    let lease = lease(parts);
    if let Some(session) = session {
        return keep(wire, &lease, &session, manner).await;
    }
    run(wire, &lease, tail).await
}

/// Run the command, and give back what it held.
async fn run(mut wire: Wire, lease: &Lease, tail: &Tail) -> Done {
    let on_loss = if tail.kill_on_loss {
        OnLoss::Terminate
    } else {
        OnLoss::GoOn
    };
    let command = match &lease.value {
        Some(value) => child::filled(&tail.command, value),
        None => tail.command.clone(),
    };
    let ended = child::run(&command, &lease.variables, &mut wire, on_loss).await?;
    if !ended.is_lost {
        let is_failed = tail.fail_on_error && ended.code != 0;
        let how = if is_failed { "FAIL" } else { "OK" };
        match wire.ask(&["RELEASE", &lease.ticket, how]).await {
            Ok(Value::Error(text)) => show::complain(show::in_our_words(&text)),
            Ok(_) => wire.quit().await,
            Err(fault) => show::complain(fault.to_string()),
        }
    }
    Ok(ended.code.into())
}

/// A session that lives on for so long after our connection.
async fn open_session(wire: &mut Wire, span: Duration) -> Result<String, Failure> {
    let ms = span::millis(span);
    let request = [
        "SESSION",
        "OPEN",
        "TTL",
        &ms,
        "GRACE",
        &ms,
        "NAME",
        &program_name(),
    ];
    let answer = show::good(wire.ask(&request).await?)?;
    Ok(word(show::elements(&answer), 0))
}

/// Say what the session holds, and leave it.
async fn keep(wire: Wire, lease: &Lease, session: &str, manner: &Manner) -> Done {
    let mut all = lease.variables.clone();
    all.push(("RIDEAU_SESSION", session.to_owned()));
    if manner.json {
        let plain = |name: &str| name.trim_start_matches("RIDEAU_").to_lowercase();
        let pairs = all.iter().map(|(name, value)| (plain(name), json!(value)));
        show::print_json(&pairs.collect::<Map<_, _>>().into())?;
    } else {
        for (name, value) in &all {
            show::print_payload(&format!("{name}={}", quoted(value)))?;
        }
        let ticket = &lease.ticket;
        show::complain(format!("give it back with `rideau revoke {ticket}`"));
    }
    // Either way the session stays for its grace.
    wire.quit().await;
    Ok(ExitCode::SUCCESS)
}

/// So that `eval` can read it, whatever is in it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The server said no.
pub(crate) fn refuse(answer: &Value, name: &str, manner: &Manner) -> Done {
    if manner.json {
        show::print_json(&show::json(answer))?;
        return Ok(REFUSED.into());
    }
    let parts = show::elements(answer);
    let verdict = word(parts, 0);
    let why = match (parts.get(1), parts.get(2)) {
        (Some(Value::Integer(0)), Some(why)) => format!("{name}: {}", show::text(why)),
        (Some(Value::Integer(waited)), Some(why)) => {
            format!("{name} after {}: {}", span::shown(*waited), show::text(why))
        }
        _ => name.to_owned(),
    };
    let hint = match parts.last() {
        Some(Value::Bulk(id)) if id.starts_with(b"d-") => {
            let id = String::from_utf8_lossy(id);
            format!("; `rideau explain {id}` says more")
        }
        _ => String::new(),
    };
    show::complain(format!("{verdict}: {why}{hint}"));
    Ok(REFUSED.into())
}

/// How the server calls us, so that others can find us.
pub(crate) fn program_name() -> String {
    format!("rideau-cli-{}", std::process::id())
}

/// Add an option to a request, if it was given.
pub(crate) fn option(request: &mut Vec<String>, name: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        request.extend([name.to_owned(), value.to_string()]);
    }
}

/// The text of an element, empty if there is none.
pub(crate) fn word(parts: &[Value], at: usize) -> String {
    parts.get(at).map_or_else(String::new, show::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_evaluates_is_quoted() {
        assert_eq!(quoted("unix:/run/pg-1.sock"), "unix:/run/pg-1.sock");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
