//! Tickets of all kinds: asks become leases, leases end.

use std::sync::Arc;

use rideau_process::panics;
use rideau_resp::Quoted;

use super::needs::needs;
use crate::redis::client::{AskArgs, Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::answer::{AnswerField, Outcome};
use crate::state::daemon::Daemon;
use crate::state::end::{EndReason, NotHeld};
use crate::state::grant::Grant;
use crate::state::lease_table::LeaseEntry;
use crate::state::matches::Mailbox;
use crate::state::nonces::Named;
use crate::state::pending::{Later, LaterWait};
use crate::state::push::Push;
use crate::state::ticket::{Ticket, TicketKind};

/// The outcome of an ask: the fields of the answer and the grant, or a refusal.
pub(super) type Answer = Result<(Vec<AnswerField>, Grant), Outcome>;

/// Answer an ask.
pub(super) fn settle(
    client: &mut Client,
    kind: TicketKind,
    answer: Answer,
    tail: &AskArgs,
) -> Result<Next, CommandError> {
    match answer {
        Ok((parts, grant)) => {
            let mail = mail(&grant);
            let ticket = client.keep(kind, grant, tail)?;
            if kind == TicketKind::Member {
                client.daemon.look_for_death(ticket);
            }
            client.remember(tail, ticket, || parts.clone());
            let mut reply = client.reply_go(2 + parts.len() as u8, ticket);
            parts.iter().for_each(|part| part.write(&mut reply));
            if let Some(mail) = mail {
                mail.begin(ticket, &client.card.outbox);
            }
        }
        Err(no) => client.tell_no(&no),
    }
    Ok(Next::Done)
}

pub(super) fn mail(grant: &Grant) -> Option<Arc<Mailbox>> {
    grant.mail().cloned()
}

/// The value that is held by this.
fn value(grant: &Grant) -> Option<u128> {
    match grant {
        Grant::Value(held) => Some(held.value),
        _ => None,
    }
}

/// Let a command wait for its answer.
pub(super) fn blocked(
    kind: TicketKind,
    name: String,
    tail: AskArgs,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> PendingCommand {
    blocked_until(kind, name, async move {
        let answer = answer.await;
        move |client: &mut Client| settle(client, kind, answer, &tail)
    })
}

/// Have a command answered by something that is no wait.
pub(super) fn work(
    name: String,
    answer: impl Future<Output = OnReady> + Send + 'static,
) -> PendingCommand {
    let mut wait = PendingCommand::new(name, Awaits::Anything, Box::pin(answer));
    wait.is_work = true;
    wait
}

/// Let a command wait for such a thing, until it can be answered in this way.
pub(super) fn blocked_until<F>(
    kind: TicketKind,
    name: String,
    answer: impl Future<Output = F> + Send + 'static,
) -> PendingCommand
where
    F: FnOnce(&mut Client) -> Result<Next, CommandError> + Send + 'static,
{
    let answer = async move {
        let answer = answer.await;
        let finish: OnReady = Box::new(move |client| {
            let before = client.out.len();
            if let Err(CommandError(text)) = answer(client) {
                client.out.truncate(before);
                client.reply().error(text);
            }
        });
        finish
    };
    PendingCommand::new(name, Awaits::Thing(kind.word()), Box::pin(answer))
}

/// Give a ticket now, and the answer later.
pub(super) fn later(
    client: &mut Client,
    kind: TicketKind,
    name: &str,
    tail: &AskArgs,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Result<Next, CommandError> {
    later_or_withdrawn(client, kind, name, tail, answer, None)
}

/// Takes an ask out of its queue, unless it has been answered there.
pub(super) type Withdraw = Box<dyn Fn() -> bool + Send + Sync>;

/// The same of an ask whose answer others see at once: it is cancelled where it waits,
/// or not at all.
pub(super) fn later_or_withdrawn(
    client: &mut Client,
    kind: TicketKind,
    name: &str,
    tail: &AskArgs,
    answer: impl Future<Output = Answer> + Send + 'static,
    withdraw: Option<Withdraw>,
) -> Result<Next, CommandError> {
    let waiting = client.begin_wait()?;
    let outbox = Arc::clone(&client.card.outbox);
    let later = Arc::new(Later::new(name, needs(client), outbox));
    let most = client.daemon.config.load().limits.held_max;
    let asked = LeaseEntry::Asked(Arc::clone(&later));
    let note = tail.note.clone();
    let named = (kind, client.daemon.tag_of_name(name.as_bytes()));
    let lease_table = &client.daemon.lease_table;
    let kept = lease_table.keep(client.owner(), named, asked, note, most, client.now);
    let Ok(ticket) = kept else {
        return Err(client.not_kept(most));
    };
    client.name_ask(tail, ticket, Vec::new);
    tell_wait(client, ticket, tail);
    let daemon = Arc::clone(&client.daemon);
    let told = Arc::downgrade(&later);
    let (owner, nonce) = (client.owner(), tail.nonce.clone());
    let generation = client.generation;
    let future = async move {
        // No client may wait for ever for an answer that does not come.
        let answer = panics::contain_async(answer).await;
        let answer = answer.unwrap_or_else(|panicked| Err(Outcome::failed(panicked)));
        drop(waiting);
        let Some(later) = told.upgrade() else {
            if let Ok((_, grant)) = answer {
                grant.end(EndReason::Cancelled);
            }
            return;
        };
        // What it may have is looked up again if that has changed since it asked.
        let answer = match answer {
            Ok(granted) if daemon.settings.generation() != generation => {
                allowed(&daemon, ticket, &later, granted)
            }
            answer => answer,
        };
        if let (Ok((parts, _)), Some(nonce)) = (&answer, nonce) {
            let told = parts.clone();
            let named = Named { ticket, told };
            daemon.lease_table.remember(owner, &nonce, named);
        }
        answer_later(&daemon, ticket, &later, answer);
    };
    later.begin(LaterWait {
        future: Box::pin(future),
        withdraw,
    });
    Ok(Next::Done)
}

/// Keep what an ask came to, and tell it. It is told again whenever it is awaited.
fn answer_later(daemon: &Daemon, ticket: Ticket, later: &Later, answer: Answer) {
    let outcome = match answer {
        Ok((parts, grant)) => {
            let outcome = Outcome::granted(ticket, parts);
            let (mail, value) = (mail(&grant), value(&grant));
            let thing = LeaseEntry::Answered(grant, Box::new(outcome.clone()));
            if let Err(thing) = daemon.lease_table.fill(ticket, thing) {
                if let Some(grant) = thing.into_grant() {
                    grant.end(EndReason::Cancelled);
                }
                return;
            }
            if let Some(mail) = mail {
                mail.begin(ticket, later.outbox());
            }
            if ticket.kind == TicketKind::Member {
                daemon.look_for_death(ticket);
            }
            if let Some(value) = value {
                daemon.hold_value(value, ticket);
            }
            outcome
        }
        Err(no) => {
            daemon.lease_table.refuse(ticket);
            no
        }
    };
    later.answer(outcome.clone());
    later.outbox().push(Push::Answer(ticket, outcome));
}

/// The grant, if its user still has the right to it; otherwise it is released.
#[cold]
fn allowed(
    daemon: &Daemon,
    ticket: Ticket,
    later: &Later,
    (parts, grant): (Vec<AnswerField>, Grant),
) -> Answer {
    let Ok(row) = daemon.lease_table.row(ticket, None) else {
        // It was cancelled just now, and is given back where that is seen.
        return Ok((parts, grant));
    };
    // Of several ranges that were asked for it is one.
    let range = match &grant {
        Grant::Value(_) => Some(grant.name()),
        _ => None,
    };
    let name = range.as_deref().unwrap_or(later.name());
    match daemon.may_still_have(&row.card, ticket, later, name) {
        Ok(()) => Ok((parts, grant)),
        Err(text) => {
            daemon.deny(later.needs, &row.card.user, &text);
            grant.end(EndReason::Cancelled);
            Err(Outcome::denied(text))
        }
    }
}

/// The grant of an earlier command with the same name, if there is one. One that was refused
/// can be asked again.
pub(super) fn repeated(client: &mut Client, tail: &AskArgs) -> Option<Next> {
    let nonce = tail.nonce.as_ref()?;
    let Named { ticket, told } = client.daemon.lease_table.recall(client.owner(), nonce)?;
    let shown = client
        .daemon
        .lease_table
        .look(ticket, None, |thing| match thing {
            LeaseEntry::Held(_) | LeaseEntry::Answered(..) => Some(Some(told)),
            LeaseEntry::Asked(later) if later.answered().is_some() => None,
            LeaseEntry::Asked(_) | LeaseEntry::None => Some(None),
        });
    match shown {
        Ok(Some(Some(parts))) => Outcome::granted(ticket, parts).write(&mut client.reply()),
        Ok(Some(None)) => tell_wait(client, ticket, tail),
        Ok(None) | Err(_) => return None,
    }
    Some(Next::Done)
}

/// The ticket that a client wrote.
pub(super) fn parse(word: &[u8]) -> Result<Ticket, CommandError> {
    Ticket::parse(word).ok_or_else(|| {
        CommandError(format!(
            "NOSUCH ticket {}: a ticket is what a grant answered with, such as \
             g-0400000c5f0e8c2b7a0d4f6e91c3a8b2.",
            Quoted(word)
        ))
    })
}

/// The error for a ticket that has ended.
#[cold]
pub(super) fn gone_text(word: &[u8], gone: NotHeld) -> CommandError {
    let (code, text) = gone.told(Quoted(word));
    CommandError(format!("{code} {text}"))
}

/// Say that the answer comes later; and after which wait at most, if that is
/// less than was asked for.
fn tell_wait(client: &mut Client, ticket: Ticket, tail: &AskArgs) {
    let mut reply = client.reply();
    let Some(cap) = tail.cap else {
        reply.array(2).bulk("await").bulk(ticket.text());
        return;
    };
    let cap = i64::try_from(cap.as_millis()).unwrap_or(i64::MAX);
    let reply = reply.array(3).bulk("await").bulk(ticket.text());
    reply.integer(cap);
}
