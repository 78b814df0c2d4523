//! Holders that outlive a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_config::label::Label;
use rideau_resp::{Arguments, Mistake, Quoted, Request, Upper};

use super::look::{OwnedViewer, see_and_tell};
use super::{allowed, page, tickets};
use crate::redis::client::{Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::end::EndReason;
use crate::state::holder::Holder;
use crate::state::quota::Quota;
use crate::state::sessions::SessionRow;
use crate::state::ticket::{Ticket, TicketKind};
use crate::view::tables::More;

/// No session lives longer without a word.
const TTL_MAX: u64 = 7 * 86_400_000;

pub(super) fn session(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let what = arguments.word("SESSION", "OPEN, ATTACH, DETACH, RENEW, CLOSE or LS")?;
    let what_upper = Upper::of(what);
    // What a user has opened it can close, whatever it may do by now.
    if what_upper.as_bytes() != b"CLOSE" {
        allowed(client, "session")?;
    }
    match what_upper.as_bytes() {
        b"OPEN" => open(client, arguments),
        b"ATTACH" => attach(client, arguments),
        b"DETACH" => {
            client.leave_session(EndReason::Quit);
            client.reply().simple("OK");
            Ok(Next::Done)
        }
        b"RENEW" => renew(client, arguments),
        b"CLOSE" => close(client, arguments),
        b"LS" => list(client, arguments),
        _ => Err(Mistake::unknown("SESSION", what).into()),
    }
}

fn open(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let (mut ttl, mut grace, mut name) = (None, None, String::new());
    while let Some(option) = arguments.next() {
        match Upper::of(option).as_bytes() {
            b"TTL" => {
                let ms = arguments.number("TTL", "milliseconds", 1..=TTL_MAX)?;
                ttl = Some(Duration::from_millis(ms));
            }
            b"GRACE" => {
                let ms = arguments.number("GRACE", "milliseconds", 0..=TTL_MAX)?;
                grace = Some(Duration::from_millis(ms));
            }
            b"NAME" => {
                let text = arguments.text("NAME", "a name")?;
                client.check_label(Label::Session, text.as_bytes())?;
                name = text.into();
            }
            _ => return Err(Mistake::unknown("SESSION OPEN", option).into()),
        }
    }
    let limits = &client.config.limits;
    let counted = client
        .usage
        .take(Quota::Sessions, client.user.as_deref(), limits);
    let counted = counted.map_err(|over| refused(client, over.into()))?;
    let most = limits.sessions_max;
    let user: Arc<str> = client.user_name().into();
    let daemon = Arc::clone(&client.daemon);
    let opened = daemon.sessions.open(ttl, grace, most, counted, |ticket| {
        let name = if name.is_empty() {
            format!("session {:?}", ticket)
        } else {
            name
        };
        let card = Arc::new(Holder {
            name: Mutex::new(name),
            user,
            session: Some(ticket.to_string()),
            connection: None,
        });
        (daemon.lease_table.open(Arc::clone(&card)), card)
    });
    let Some(row) = opened else {
        let wrong = CommandError(format!(
            "BUSY limits.sessions_max ({most}) reached: close some sessions or raise it."
        ));
        return Err(refused(client, wrong));
    };
    enter(client, row.ticket)?;
    let ttl = ttl.map_or(-1, |ttl| ttl.as_millis() as i64);
    client.reply().array(2).bulk(row.ticket.text()).integer(ttl);
    Ok(Next::Done)
}

#[cold]
fn refused(client: &Client, why: CommandError) -> CommandError {
    let counts = &client.daemon.counts;
    counts.sessions_refused.fetch_add(1, Ordering::Relaxed);
    why
}

/// Become part of a session, and of no other.
fn enter(client: &mut Client, ticket: Ticket) -> Result<(), CommandError> {
    let row = client.daemon.sessions.attach(ticket, client.user_name());
    let row = row.ok_or_else(|| unknown(ticket.to_string().as_bytes()))?;
    client.leave_session(EndReason::Quit);
    client.session = Some((ticket, row.holder));
    *client.card.session.lock() = Some(ticket.to_string());
    Ok(())
}

fn attach(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let ticket = of(arguments.word("SESSION ATTACH", "a session")?)?;
    arguments.end("SESSION ATTACH")?;
    enter(client, ticket)?;
    client.reply().simple("OK");
    Ok(Next::Done)
}

fn renew(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let ticket = own_or(client, arguments.next())?;
    let renewed = client.daemon.sessions.renew(ticket, client.user_name());
    let ttl = renewed.ok_or_else(|| unknown(ticket.to_string().as_bytes()))?;
    let left = ttl.map_or(-1, |ttl| ttl.as_millis() as i64);
    client.reply().integer(left);
    Ok(Next::Done)
}

fn close(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let mut word = arguments.next();
    let mut why = EndReason::Quit;
    let is_fail = |word: &[u8]| Upper::of(word).as_bytes() == b"FAIL";
    if word.is_some_and(is_fail) {
        word = None;
        why = EndReason::Broken;
    } else if arguments.next().is_some_and(is_fail) {
        why = EndReason::Broken;
    }
    let ticket = own_or(client, word)?;
    let closed = client.daemon.sessions.close(ticket, client.scope());
    let row = closed.ok_or_else(|| unknown(ticket.to_string().as_bytes()))?;
    if client.session.is_some_and(|(own, _)| own == ticket) {
        client.session = None;
        *client.card.session.lock() = None;
    }
    let daemon = Arc::clone(&client.daemon);
    let answer = async move {
        let count = daemon.end_holder_in_slices(row.holder, why).await;
        let finish: OnReady = Box::new(move |client: &mut Client| {
            client.reply().integer(count as i64);
        });
        finish
    };
    Ok(Next::Wait(PendingCommand::work(
        "SESSION CLOSE",
        Box::pin(answer),
    )))
}

fn list(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let page = page::options(client, "SESSION LS", &mut arguments)?;
    let user = client.user_name().to_owned();
    let see = move |owned: &OwnedViewer| {
        let mut rows = owned.daemon.sessions.all();
        rows.retain(|row| *row.card.user == *user);
        rows.sort_unstable_by_key(SessionRow::key);
        let bytes = |row: &SessionRow| 160 + row.card.name.lock().len();
        page.cut(rows, SessionRow::key, bytes)
    };
    see_and_tell(client, "SESSION LS", see, |client, (rows, more)| {
        tell_all(client, rows, more);
        Ok(())
    })
}

fn tell_all(client: &mut Client, rows: Vec<SessionRow>, more: Option<More>) {
    let daemon = Arc::clone(&client.daemon);
    let mut reply = client.reply();
    reply.array(rows.len() + usize::from(more.is_some()));
    for row in rows {
        let left = row.left.map_or(-1, |left| left.as_millis() as i64);
        reply
            .array(5)
            .bulk(row.ticket.text())
            .bulk(row.card.name.lock().as_str())
            .integer(row.attached as i64)
            .integer(daemon.lease_table.count(row.holder) as i64)
            .integer(left);
    }
    page::write_more(&mut reply, more, "SESSION LS");
}

fn own_or(client: &Client, word: Option<&[u8]>) -> Result<Ticket, CommandError> {
    match (word, client.session) {
        (Some(word), _) => of(word),
        (None, Some((ticket, _))) => Ok(ticket),
        (None, None) => Err(CommandError(
            "ERR this connection is in no session: SESSION OPEN, or name one.".into(),
        )),
    }
}

fn of(word: &[u8]) -> Result<Ticket, CommandError> {
    let ticket = tickets::parse(word).map_err(|_| unknown(word))?;
    if ticket.kind != TicketKind::Session {
        return Err(unknown(word));
    }
    Ok(ticket)
}

fn unknown(word: &[u8]) -> CommandError {
    CommandError(format!(
        "NOSUCH session {}: it has ended, or is another user's. SESSION OPEN opens one.",
        Quoted(word)
    ))
}
