//! Waits for what becomes of a ticket: the answer of its ask, and the end of a match.

use std::sync::Arc;
use std::time::Duration;

use rideau_resp::{Quoted, Request};

use super::{About, Subject, about, tickets};
use crate::redis::client::{AskArgs, Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::answer::Outcome;
use crate::state::end::EndReason;
use crate::state::lease_table::LeaseEntry;
use crate::state::matches::{End, Mailbox};
use crate::state::pending::Later;
use crate::state::ticket::{Ticket, TicketKind};

pub(super) const AWAIT: About = about(
    "AWAIT",
    2,
    "await",
    Subject::Ticket,
    "ticket [ms]",
    "The answer of an ASYNC command, again and again until its lease ends",
    wait,
);

pub(super) const AWAIT_END: About = about(
    "AWAIT.END",
    2,
    "await",
    Subject::Ticket,
    "ref [ms]",
    "Wait for the other party's end of a match",
    wait_end,
);

/// The state of an ask that is awaited.
enum Awaited {
    Waits(Arc<Later>),
    Told(Outcome),
    /// It was answered at once, and is held.
    AtOnce,
}

fn wait(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (word, ticket, limit) = wait_words(client, request, "AWAIT")?;
    let awaited = client
        .daemon
        .lease_table
        .look(ticket, client.scope(), awaited);
    match awaited.map_err(|gone| tickets::gone_text(word, gone))? {
        Awaited::Told(outcome) => tell_answer(client, &outcome),
        Awaited::AtOnce => return Err(at_once(word, ticket)),
        Awaited::Waits(later) => {
            let name = later.name().to_owned();
            let answer = Box::pin(answer_within(later, limit));
            return Ok(Next::Wait(PendingCommand::new(
                name,
                Awaits::Anything,
                answer,
            )));
        }
    }
    Ok(Next::Done)
}

/// Wait for the other party's last word about a match, which ends it.
fn wait_end(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (word, ticket, limit) = wait_words(client, request, "AWAIT.END")?;
    if ticket.kind != TicketKind::Match {
        return Err(CommandError(format!(
            "WRONGTYPE {} is not a match: AWAIT gives the answer of an ASYNC ask, and RELEASE ends \
             what is held.",
            Quoted(word)
        )));
    }
    let found = |thing: &mut LeaseEntry| thing.grant().and_then(tickets::mail);
    let mail = client
        .daemon
        .lease_table
        .look(ticket, client.scope(), found);
    let Some(mail) = mail.map_err(|gone| tickets::gone_text(word, gone))? else {
        return Err(CommandError(format!(
            "NOTHELD {} is not a match yet: AWAIT it, or CANCEL it.",
            Quoted(word)
        )));
    };
    let answer = Box::pin(end_within(mail, ticket, limit));
    let name = ticket.kind.word();
    Ok(Next::Wait(PendingCommand::new(
        name,
        Awaits::Anything,
        answer,
    )))
}

/// A ticket, and how long to wait.
fn wait_words<'a>(
    client: &Client,
    request: Request<'a>,
    command: &'static str,
) -> Result<(&'a [u8], Ticket, Duration), CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word(command, "a ticket")?;
    let ticket = tickets::parse(word)?;
    let mut tail = AskArgs::default();
    if arguments.len() > 0 {
        let wait = arguments.number(command, "milliseconds", 0..=86_400_000)?;
        tail.wait = Some(Duration::from_millis(wait));
    }
    arguments.end(command)?;
    Ok((word, ticket, client.wait_max(&tail)))
}

#[cold]
fn at_once(word: &[u8], ticket: Ticket) -> CommandError {
    let ticket_of = Quoted(word);
    let instead = match ticket.kind {
        TicketKind::Match => "AWAIT.END waits for the end of the match",
        _ => "RELEASE ends it",
    };
    CommandError(format!(
        "ERR {ticket_of} was answered at once, and is held: AWAIT is for asks with ASYNC; \
         {instead}."
    ))
}

fn awaited(thing: &mut LeaseEntry) -> Awaited {
    match thing {
        LeaseEntry::Answered(_, outcome) => Awaited::Told(Outcome::clone(outcome)),
        LeaseEntry::Asked(later) => match later.answered() {
            Some(outcome) => Awaited::Told(outcome),
            None => Awaited::Waits(Arc::clone(later)),
        },
        LeaseEntry::Held(_) | LeaseEntry::None => Awaited::AtOnce,
    }
}

fn tell_answer(client: &mut Client, outcome: &Outcome) {
    match outcome.denial() {
        Some(error) => drop(client.reply().error(error)),
        None => outcome.write(&mut client.reply()),
    }
}

async fn answer_within(later: Arc<Later>, limit: Duration) -> OnReady {
    let answer = tokio::time::timeout(limit, later.wait()).await;
    Box::new(move |client| match answer {
        Ok(outcome) => tell_answer(client, &outcome),
        Err(_) => timed_out(client, limit, "it still waits; AWAIT again, or CANCEL it"),
    })
}

async fn end_within(mail: Arc<Mailbox>, ticket: Ticket, limit: Duration) -> OnReady {
    let end = tokio::time::timeout(limit, mail.ended()).await;
    Box::new(move |client| match end {
        Ok(end) => {
            let _ = client.daemon.release(ticket, None, EndReason::Over);
            let mut reply = client.reply();
            match end {
                End::Done(Some(payload)) => reply.array(2).bulk("done").bulk(payload),
                End::Done(None) => reply.array(1).bulk("done"),
                End::Down(why) => reply.array(2).bulk("down").bulk(why),
            };
        }
        Err(_) => timed_out(client, limit, "the match goes on; AWAIT.END again"),
    })
}

/// It is no answer to the ask, which goes on.
fn timed_out(client: &mut Client, limit: Duration, why: &str) {
    let outcome = Outcome::ended("timeout", limit, why.into(), "waits");
    outcome.write(&mut client.reply());
}
