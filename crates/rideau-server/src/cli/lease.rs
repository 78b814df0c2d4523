//! Holds a value of a range while a command runs, and keeps it that long.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_resp::Value;
use serde_json::json;

use super::child::{self, Keep, OnLoss};
use super::hold::{option, program_name, refuse, word};
use super::{Done, Manner, show, span};
use crate::wire::Wire;

/// Hold a value of a range while a command runs
///
/// The command finds the value in RIDEAU_VALUE and wherever its words have {value}, the ticket in
/// RIDEAU_TICKET, and in RIDEAU_FENCE a number that grows with each holder. The value is renewed
/// at half time while the command runs, over a new connection if the server was started again
/// in time, and given back at its end. Whatever ends this program kills the command, but not what
/// that has started itself. Ends with the code of the command, or with 3 if no value was free.
/// Without a command the value is printed, and held until its time runs out.
#[derive(Args, Debug)]
pub(crate) struct Lease {
    /// The range, or values as 10.0.0.0/24; with commas between several
    #[arg(value_name = "RANGE")]
    place: String,
    /// The next range to try when nothing is free; may be given several times
    #[arg(long, value_name = "RANGE")]
    prefer: Vec<String>,
    /// How long a hold lasts before it is renewed, as 30s or 1h
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    ttl: Duration,
    /// A key to look it up by; may be given several times
    #[arg(long = "by", value_name = "KEY")]
    keys: Vec<String>,
    /// A unique key: another ask with it gets the same value
    #[arg(long, value_name = "KEY")]
    unique: Vec<String>,
    /// Data to store with the value
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,
    /// How long to wait for one, as 200ms or 5s [default: not at all]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,
    /// If the value is lost, send the command SIGTERM
    #[arg(long)]
    kill_on_loss: bool,
    /// The command
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn lease(words: &Lease, manner: &Manner) -> Done {
    let mut request = vec!["RESERVE".to_owned(), words.place.clone()];
    for place in &words.prefer {
        option(&mut request, "PREFER", Some(place));
    }
    option(&mut request, "TTL", Some(span::millis(words.ttl)));
    for key in &words.keys {
        option(&mut request, "KEY", Some(key));
    }
    for key in &words.unique {
        option(&mut request, "UNIQUE", Some(key));
    }
    option(&mut request, "DATA", words.data.clone());
    option(&mut request, "WAIT", words.wait.map(span::millis));
    let mut wire = Wire::connect(&manner.server, &program_name()).await?;
    let answer = show::good(wire.ask(&request).await?)?;
    let parts = show::elements(&answer);
    if word(parts, 0) != "go" {
        wire.quit().await;
        return none(&answer, words, manner);
    }
    let (value, ticket, fence) = (word(parts, 1), word(parts, 2), word(parts, 6));
    if words.command.is_empty() {
        return tell(&value, &ticket, &fence, manner);
    }
    let command = child::filled(&words.command, &value);
    let variables = [
        ("RIDEAU_VALUE", value),
        ("RIDEAU_TICKET", ticket.clone()),
        ("RIDEAU_FENCE", fence),
    ];
    let keep = Keep {
        every: words.ttl / 2,
        request: vec![
            "REFRESH".to_owned(),
            ticket.clone(),
            "TTL".to_owned(),
            span::millis(words.ttl),
        ],
        within: words.ttl,
        server: manner.server.clone(),
        name: program_name(),
    };
    let on_loss = if words.kill_on_loss {
        OnLoss::Terminate
    } else {
        OnLoss::GoOn
    };
    let ended = child::run_keeping(&command, &variables, &mut wire, on_loss, Some(&keep)).await?;
    if ended.is_lost {
        // It may be ours all the same, if the server is there again.
        if let Ok(mut wire) = Wire::connect(&manner.server, &program_name()).await {
            let _ = wire.ask(&["RELEASE", &ticket]).await;
        }
    } else {
        match wire.ask(&["RELEASE", &ticket]).await {
            Ok(Value::Error(text)) => show::complain(show::in_our_words(&text)),
            Ok(_) => wire.quit().await,
            Err(fault) => show::complain(fault.to_string()),
        }
    }
    Ok(ended.code.into())
}

/// Nothing was free.
fn none(answer: &Value, words: &Lease, manner: &Manner) -> Done {
    if manner.json || word(show::elements(answer), 0) != "none" {
        return refuse(answer, &words.place, manner);
    }
    let parts = show::elements(answer);
    let (free, total) = (word(parts, 1), word(parts, 2));
    show::complain(format!(
        "none: {free} of {total} values of {} are free",
        words.place
    ));
    Ok(super::REFUSED.into())
}

/// Say what is held, for a user who gave no command.
fn tell(value: &str, ticket: &str, fence: &str, manner: &Manner) -> Done {
    if manner.json {
        show::print_json(&json!({ "value": value, "ticket": ticket, "fence": fence }))?;
    } else {
        show::print_text(&format!(
            "RIDEAU_VALUE={value}\nRIDEAU_TICKET={ticket}\nRIDEAU_FENCE={fence}"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
