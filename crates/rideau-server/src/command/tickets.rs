//! What all tickets have in common: asks become leases, leases end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{page, ranges, still};
use crate::client::{Awaits, Client, Finish, Step, Tail, Wait, Wrong};
use crate::daemon::Daemon;
use crate::grant::Grant;
use crate::holdings::{Gone, Row, Thing, Why};
use crate::label::Label;
use crate::later::Later;
use crate::meeting::{End, Mail};
use crate::names::Named;
use crate::outbox::Push;
use crate::outcome::{Outcome, Part};
use crate::panics;
use crate::resp::{Mistake, Protocol, Quoted, Request, Upper};
use crate::ticket::{Kind, Ticket};

/// What an ask came to: what to tell besides the ticket, and what is granted; or
/// a no.
pub(super) type Answer = Result<(Vec<Part>, Grant), Outcome>;

/// Answer an ask.
pub(super) fn settle(
    client: &mut Client,
    kind: Kind,
    answer: Answer,
    tail: &Tail,
) -> Result<Step, Wrong> {
    match answer {
        Ok((parts, grant)) => {
            let mail = mail(&grant);
            let ticket = client.keep(kind, grant, tail)?;
            client.remember(tail, ticket, || parts.clone());
            let mut reply = client.reply_go(2 + parts.len() as u8, ticket);
            parts.iter().for_each(|part| part.write(&mut reply));
            if let Some(mail) = mail {
                mail.begin(ticket, &client.card.outbox);
            }
        }
        Err(no) => client.tell_no(&no),
    }
    Ok(Step::Done)
}

fn go(ticket: Ticket, parts: Vec<Part>) -> Outcome {
    let mut all = vec![Part::Text(ticket.text().as_ref().into())];
    all.extend(parts);
    Outcome::go(all)
}

fn mail(grant: &Grant) -> Option<Arc<Mail>> {
    match grant {
        Grant::Match(meeting) => Some(Arc::clone(meeting.mail())),
        _ => None,
    }
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
    kind: Kind,
    name: String,
    tail: Tail,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Wait {
    blocked_until(kind, name, async move {
        let answer = answer.await;
        move |client: &mut Client| settle(client, kind, answer, &tail)
    })
}

/// Let a command wait for such a thing, until it can be answered in this way.
pub(super) fn blocked_until<F>(
    kind: Kind,
    name: String,
    answer: impl Future<Output = F> + Send + 'static,
) -> Wait
where
    F: FnOnce(&mut Client) -> Result<Step, Wrong> + Send + 'static,
{
    let answer = async move {
        let answer = answer.await;
        let finish: Finish = Box::new(move |client| {
            let before = client.out.len();
            if let Err(Wrong(text)) = answer(client) {
                client.out.truncate(before);
                client.reply().error(text);
            }
        });
        finish
    };
    Wait::new(name, Awaits::Thing(kind.word()), Box::pin(answer))
}

/// Give a ticket now, and the answer later.
pub(super) fn later(
    client: &mut Client,
    kind: Kind,
    name: &str,
    tail: &Tail,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Result<Step, Wrong> {
    let waiting = client.begin_wait()?;
    let outbox = Arc::clone(&client.card.outbox);
    let is_pushed = client.protocol == Protocol::Resp3;
    let later = Later::new(name, still::last(client), outbox, is_pushed);
    let later = Arc::new(later);
    let most = client.daemon.config.load().limits.held_max;
    let asked = Thing::Asked(Arc::clone(&later));
    let note = tail.note.clone();
    let kept = client
        .daemon
        .holdings
        .keep(client.owner(), kind, asked, note, most, client.now);
    let Ok(ticket) = kept else {
        return Err(client.not_kept(most));
    };
    client.remember(tail, ticket, Vec::new);
    tell_wait(client, ticket, tail);
    let daemon = Arc::clone(&client.daemon);
    let told = Arc::downgrade(&later);
    let (owner, nonce) = (client.owner(), tail.nonce.clone());
    let generation = client.generation;
    let task = tokio::spawn(async move {
        // Nobody may wait for ever for an answer that does not come.
        let answer = panics::contain_async(answer).await;
        let answer = answer.unwrap_or_else(|panicked| Err(Outcome::failed(panicked)));
        drop(waiting);
        let Some(later) = told.upgrade().filter(|later| later.decide()) else {
            if let Ok((_, grant)) = answer {
                grant.end(Why::Cancelled);
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
            daemon.holdings.remember(owner, &nonce, named);
        }
        answer_later(&daemon, ticket, &later, answer);
    });
    later.set_task(task.abort_handle());
    Ok(Step::Done)
}

/// Keep what an ask came to, and tell it.
fn answer_later(daemon: &Daemon, ticket: Ticket, later: &Later, answer: Answer) {
    let outcome = match answer {
        Ok((parts, grant)) => {
            let outcome = go(ticket, parts);
            let (mail, value) = (mail(&grant), value(&grant));
            let thing = match later.is_pushed() {
                true => Thing::Held(grant),
                false => Thing::Untold(grant, Box::new(outcome.clone())),
            };
            if let Err(Thing::Held(grant) | Thing::Untold(grant, _)) =
                daemon.holdings.fill(ticket, thing)
            {
                return grant.end(Why::Cancelled);
            }
            if let Some(mail) = mail {
                mail.begin(ticket, later.outbox());
            }
            if let Some(value) = value {
                daemon.values.hold(value, ticket, &daemon.holdings);
            }
            outcome
        }
        Err(no) => {
            if later.is_pushed() {
                let _ = daemon.holdings.take(ticket, None, Why::Over);
            }
            no
        }
    };
    later.answer(outcome.clone());
    later.outbox().push(Push::Answer(ticket, outcome));
}

/// What was granted, if its user may still have it; else it is given back.
#[cold]
fn allowed(
    daemon: &Daemon,
    ticket: Ticket,
    later: &Later,
    (parts, grant): (Vec<Part>, Grant),
) -> Answer {
    let Ok(row) = daemon.holdings.row(ticket, None) else {
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
        Err(Wrong(text)) => {
            grant.end(Why::Cancelled);
            Err(Outcome::denied(text))
        }
    }
}

/// The grant of an earlier command with the same name, if there is one.
pub(super) fn repeated(client: &mut Client, tail: &Tail) -> Option<Step> {
    let nonce = tail.nonce.as_ref()?;
    let Named { ticket, told } = client.daemon.holdings.recall(client.owner(), nonce)?;
    let shown = client
        .daemon
        .holdings
        .look(ticket, None, |thing| match thing {
            Thing::Held(_) | Thing::Untold(..) => Some(told),
            Thing::Asked(_) | Thing::None => None,
        });
    match shown {
        Ok(Some(parts)) => go(ticket, parts).write(&mut client.reply()),
        Ok(None) => tell_wait(client, ticket, tail),
        Err(_) => return None,
    }
    Some(Step::Done)
}

pub(super) fn release(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.word("RELEASE", "a ticket or a value")?;
    // Nearly all are tickets of leases, and read once.
    let ticket = match Ticket::parse(word) {
        Some(ticket) if ticket.kind != Kind::Value => ticket,
        _ if ranges::is_value(word) => return ranges::release(client, request),
        _ => parse(word)?,
    };
    let why = match arguments.next() {
        None => Why::Released,
        Some(how) => match Upper::of(how).as_bytes() {
            b"OK" => Why::Released,
            b"FAIL" => {
                let reason = arguments.next().unwrap_or_default();
                client.check_label(Label::Reason, reason)?;
                Why::Failed
            }
            _ => return Err(Mistake::wrong("RELEASE", "OK or FAIL", how).into()),
        },
    };
    let daemon = &client.daemon;
    let holder = match daemon.release_at(ticket, client.scope(), why, client.now) {
        Ok(holder) => holder,
        Err(gone) => return Err(gone_text(word, gone)),
    };
    if holder != client.owner() && client.session.is_none() {
        note_foreign(client);
    }
    client.reply_ok();
    Ok(Step::Done)
}

/// A pooled client gave back on one connection what another had taken: that
/// works until the other is closed.
fn note_foreign(client: &Client) {
    let library = client.card.library.lock().0.clone();
    let counts = &client.daemon.counts;
    counts.foreign_releases.add(client.user_name(), &library);
    let before = client.card.foreign_releases.fetch_add(1, Ordering::Relaxed);
    if before == 0 {
        let name = client.holder_card().name.lock().clone();
        let text = format!(
            "{name} releases what other connections took: open a SESSION or use a dedicated \
             connection"
        );
        client.daemon.events.add("client", &name, text, None);
    }
}

/// The ticket that a client wrote.
pub(super) fn parse(word: &[u8]) -> Result<Ticket, Wrong> {
    Ticket::parse(word).ok_or_else(|| {
        Wrong(format!(
            "NOSUCH ticket {}: a ticket is what a grant answered with, such as \
             g-0400000c5f0e8c2b7a0d4f6e91c3a8b2.",
            Quoted(word)
        ))
    })
}

/// What became of a ticket.
#[cold]
pub(super) fn gone_text(word: &[u8], gone: Gone) -> Wrong {
    let ticket = Quoted(word);
    Wrong(match gone {
        Gone::Stale { ago, why } => format!(
            "STALE ticket {ticket} was {} {:.1?} ago: there is nothing left to release.",
            why.words(),
            ago
        ),
        Gone::Unknown => format!(
            "STALE ticket {ticket} stands for nothing: it was ended long ago, or by another server."
        ),
        Gone::Foreign => format!("NOPERM ticket {ticket} belongs to another user."),
    })
}

pub(super) fn held(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let page = page::options(client, "HELD", &mut request.arguments())?;
    let mut rows = client.daemon.holdings.rows(client.owner());
    // The newest first, as they are listed.
    let key = |row: &Row| u128::MAX - row.key();
    rows.sort_by_key(key);
    let bytes = |row: &Row| {
        let note = row.note.as_ref().map_or(0, String::len);
        160 + row.name.len() + row.value.len() + note
    };
    let (rows, more) = page.cut(rows, key, bytes);
    let mut reply = client.reply();
    reply.array(rows.len() + usize::from(more.is_some()));
    for row in rows {
        let micros = i64::try_from(row.held.as_micros()).unwrap_or(i64::MAX);
        reply
            .array(6)
            .bulk(row.ticket.kind.word())
            .bulk(row.name)
            .bulk(row.ticket.text())
            .bulk(if row.is_waiting {
                "waits".into()
            } else {
                row.value
            })
            .integer(micros)
            .bulk(row.note.unwrap_or_default());
    }
    page::write_more(&mut reply, more, "HELD");
    Ok(Step::Done)
}

pub(super) fn cancel(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.word("CANCEL", "a ticket or a value")?;
    let waits = Ticket::parse(word).is_some_and(|ticket| {
        let waits =
            |thing: &mut Thing| matches!(thing, Thing::Asked(later) if later.answered().is_none());
        let holdings = &client.daemon.holdings;
        holdings.look(ticket, client.scope(), waits) == Ok(true)
    });
    if !waits && ranges::is_value(word) {
        return ranges::cancel(client, request);
    }
    let ticket = parse(word)?;
    let cancelled = waits
        && client
            .daemon
            .release(ticket, client.scope(), Why::Cancelled)
            .is_ok();
    client.reply().integer(cancelled.into());
    Ok(Step::Done)
}

/// Say that the answer comes later; and after which wait at most, if that is
/// less than was asked for.
fn tell_wait(client: &mut Client, ticket: Ticket, tail: &Tail) {
    let mut reply = client.reply();
    let Some(cap) = tail.cap else {
        reply.array(2).bulk("await").bulk(ticket.text());
        return;
    };
    let cap = i64::try_from(cap.as_millis()).unwrap_or(i64::MAX);
    let reply = reply.array(3).bulk("await").bulk(ticket.text());
    reply.integer(cap);
}

/// What somebody can wait for under a ticket.
enum Awaited {
    Answer(Arc<Later>),
    Told(Outcome),
    End(Arc<Mail>),
    Nothing,
}

pub(super) fn wait(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.word("AWAIT", "a ticket")?;
    let ticket = parse(word)?;
    let mut tail = Tail::default();
    if arguments.len() > 0 {
        let wait = arguments.number("AWAIT", "milliseconds", 0..=86_400_000)?;
        tail.wait = Some(Duration::from_millis(wait));
    }
    let awaited = client.daemon.holdings.look(ticket, client.scope(), awaited);
    let limit = client.wait_max(&tail);
    match awaited.map_err(|gone| gone_text(word, gone))? {
        Awaited::Told(outcome) => outcome.write(&mut client.reply()),
        Awaited::Nothing => {
            return Err(Wrong(format!(
                "ERR there is nothing to wait for: {} is held, and not a match.",
                Quoted(word)
            )));
        }
        Awaited::Answer(later) => {
            let name = later.name().to_owned();
            let answer = Box::pin(answer_within(later, ticket, limit));
            return Ok(Step::Wait(Wait::new(name, Awaits::Anything, answer)));
        }
        Awaited::End(mail) => {
            let answer = Box::pin(end_within(mail, ticket, limit));
            let name = ticket.kind.word();
            return Ok(Step::Wait(Wait::new(name, Awaits::Anything, answer)));
        }
    }
    Ok(Step::Done)
}

fn awaited(thing: &mut Thing) -> Awaited {
    match std::mem::replace(thing, Thing::None) {
        Thing::Untold(grant, outcome) => {
            *thing = Thing::Held(grant);
            Awaited::Told(*outcome)
        }
        Thing::Asked(later) => {
            *thing = Thing::Asked(Arc::clone(&later));
            Awaited::Answer(later)
        }
        Thing::Held(grant) => {
            let mail = mail(&grant);
            *thing = Thing::Held(grant);
            mail.map_or(Awaited::Nothing, Awaited::End)
        }
        Thing::None => Awaited::Nothing,
    }
}

async fn answer_within(later: Arc<Later>, ticket: Ticket, limit: Duration) -> Finish {
    let answer = tokio::time::timeout(limit, later.wait()).await;
    Box::new(move |client| match answer {
        Ok(outcome) => {
            // From now on it is told, or over.
            if outcome.is_go() {
                // Who was pushed the answer as well has been told already.
                let _ = client.daemon.holdings.look(ticket, None, |thing| {
                    *thing = match std::mem::replace(thing, Thing::None) {
                        Thing::Untold(grant, _) => Thing::Held(grant),
                        other => other,
                    };
                });
            } else {
                let _ = client.daemon.holdings.take(ticket, None, Why::Over);
            }
            match outcome.denial() {
                Some(error) => drop(client.reply().error(error)),
                None => outcome.write(&mut client.reply()),
            }
        }
        Err(_) => timed_out(client, limit, "it still waits; AWAIT again, or CANCEL it"),
    })
}

async fn end_within(mail: Arc<Mail>, ticket: Ticket, limit: Duration) -> Finish {
    let end = tokio::time::timeout(limit, mail.ended()).await;
    Box::new(move |client| match end {
        Ok(end) => {
            let _ = client.daemon.release(ticket, None, Why::Over);
            let mut reply = client.reply();
            match end {
                End::Done(Some(payload)) => reply.array(2).bulk("done").bulk(payload),
                End::Done(None) => reply.array(1).bulk("done"),
                End::Down(why) => reply.array(2).bulk("down").bulk(why),
            };
        }
        Err(_) => timed_out(client, limit, "the match goes on; AWAIT again"),
    })
}

fn timed_out(client: &mut Client, limit: Duration, why: &str) {
    let micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
    client
        .reply()
        .array(3)
        .bulk("timeout")
        .integer(micros)
        .bulk(why);
}
