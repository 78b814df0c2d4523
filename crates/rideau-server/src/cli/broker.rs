//! Asks a broker for an offer, or makes one.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_resp::Value;
use serde_json::json;

use super::child::{self, OnLoss};
use super::hold::{option, program_name, refuse, word};
use super::{Done, Manner, show, span};
use crate::wire::Wire;

/// The words of `ask` and `offer`.
///
/// Without a command the other's value is printed and the match is over. With one, the match
/// lasts as long as it runs: the command finds the other's value in RIDEAU_VALUE and the match in
/// RIDEAU_TICKET, and the other learns its exit code.
#[derive(Args, Debug)]
pub(crate) struct Meet {
    /// The broker
    broker: String,
    /// The value for the other party
    #[arg(long, value_name = "TEXT", default_value = "")]
    value: String,
    /// How long to wait for a match, as 200ms or 5s [default: that of the server]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,
    /// The flow to wait in, if the queue is fair
    #[arg(long, value_name = "KEY")]
    flow: Option<String>,
    /// A note that is shown beside the holder
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Stay until the other party is done, and print its payload
    #[arg(long, conflicts_with = "command")]
    until_done: bool,
    /// If the connection is lost, send the command SIGTERM
    #[arg(long)]
    kill_on_loss: bool,
    /// The command
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// One step of waiting for the other; the server lets no client wait for long.
const STEP_MS: &str = "1000";

pub(crate) async fn ask(words: &Meet, manner: &Manner) -> Done {
    meet("ASK", words, manner).await
}

pub(crate) async fn offer(words: &Meet, manner: &Manner) -> Done {
    meet("OFFER", words, manner).await
}

async fn meet(command: &str, words: &Meet, manner: &Manner) -> Done {
    let mut request = vec![command.to_owned(), words.broker.clone()];
    let value = Some(&words.value).filter(|value| !value.is_empty());
    option(&mut request, "VALUE", value);
    option(&mut request, "FLOW", words.flow.as_ref());
    option(&mut request, "WAIT", words.wait.map(span::millis));
    option(&mut request, "NOTE", words.note.as_ref());
    let mut wire = Wire::connect(&manner.server, &program_name()).await?;
    let answer = show::good(wire.ask(&request).await?)?;
    let parts = show::elements(&answer);
    if word(parts, 0) != "go" {
        wire.quit().await;
        return refuse(&answer, &words.broker, manner);
    }
    if words.command.is_empty() {
        return tell(wire, parts, words, manner).await;
    }
    let (ticket, value) = (word(parts, 1), word(parts, 2));
    let variables = [("RIDEAU_TICKET", ticket.clone()), ("RIDEAU_VALUE", value)];
    let on_loss = if words.kill_on_loss {
        OnLoss::Terminate
    } else {
        OnLoss::GoOn
    };
    let ended = child::run(&words.command, &variables, &mut wire, on_loss).await?;
    if !ended.is_lost {
        done(wire, &ticket, Some(&format!("exit {}", ended.code))).await;
    }
    Ok(ended.code.into())
}

/// Print which client we met, and what became of it if that is wanted.
async fn tell(mut wire: Wire, parts: &[Value], words: &Meet, manner: &Manner) -> Done {
    let (ticket, value) = (word(parts, 1), word(parts, 2));
    let mut end = None;
    if words.until_done {
        end = Some(await_end(&mut wire, &ticket).await?);
        wire.quit().await;
    } else {
        done(wire, &ticket, None).await;
    }
    if manner.json {
        let number = |at: usize| parts.get(at).map(show::json);
        show::print_json(&json!({
            "ticket": ticket,
            "value": value,
            "lead_us": number(3),
            "waited_us": number(4),
            "end": end.as_ref().map(show::json),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::print_payload(value.trim_end())?;
    if let Some(end) = end {
        show::print_payload(show::text(&end).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How the match ended, however long that takes.
async fn await_end(wire: &mut Wire, ticket: &str) -> Result<Value, super::Failure> {
    loop {
        let answer = show::good(wire.ask(&["AWAIT.END", ticket, STEP_MS]).await?)?;
        if word(show::elements(&answer), 0) != "timeout" {
            return Ok(answer);
        }
    }
}

async fn done(mut wire: Wire, ticket: &str, payload: Option<&str>) {
    let mut request = vec!["DONE", ticket];
    request.extend(payload);
    // The other may have gone first; then there is nothing to end.
    let _ = wire.ask(&request).await;
    wire.quit().await;
}
