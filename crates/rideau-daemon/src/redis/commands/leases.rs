//! Leases by their tickets: given back, cancelled, and listed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau_config::label::Label;
use rideau_resp::{Mistake, Quoted, Request, Upper};

use super::look::{OwnedViewer, see_and_tell};
use super::tickets::{gone_text, parse};
use super::{About, Subject, about, page, ranges};
use crate::redis::client::{Client, CommandError, Next};
use crate::state::end::EndReason;
use crate::state::lease_table::{LeaseEntry, LeaseRow};
use crate::state::ticket::{Ticket, TicketKind};
use crate::view::tables::More;

pub(super) const SURE: About = about(
    "SURE",
    1,
    "held",
    Subject::Nothing,
    "",
    "For how many milliseconds this holder may rely on shared locks and values",
    sure,
);

pub(super) fn release(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("RELEASE", "a ticket or a value")?;
    // Nearly all are tickets of leases, and read once.
    let ticket = match Ticket::parse(word) {
        Some(ticket) if ticket.kind != TicketKind::Value => ticket,
        _ if ranges::is_value(word) => return ranges::release(client, request),
        _ => parse(word)?,
    };
    if ticket.kind == TicketKind::Session {
        return Err(CommandError(format!(
            "WRONGTYPE {} is a session, not a grant: SESSION CLOSE ends it.",
            Quoted(word)
        )));
    }
    let why = match arguments.next() {
        None => EndReason::Released,
        Some(how) => match Upper::of(how).as_bytes() {
            b"OK" => EndReason::Released,
            b"FAIL" => {
                let reason = arguments.next().unwrap_or_default();
                client.check_label(Label::Reason, reason)?;
                EndReason::Failed
            }
            _ => return Err(Mistake::wrong("RELEASE", "OK or FAIL", how).into()),
        },
    };
    let daemon = &client.daemon;
    let holder = match daemon.release_at(ticket, client.scope(), why, client.now) {
        Ok(holder) => holder,
        Err(gone) => {
            daemon.lease_table.tell_lost(ticket);
            return Err(gone_text(word, gone));
        }
    };
    if holder != client.owner() && client.session.is_none() {
        note_foreign(client);
    }
    client.reply_ok();
    Ok(Next::Done)
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

pub(super) fn cancel(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("CANCEL", "a ticket or a value")?;
    let asked = Ticket::parse(word).and_then(|ticket| {
        let asked = |thing: &mut LeaseEntry| match thing {
            LeaseEntry::Asked(later) => Some(Arc::clone(later)),
            _ => None,
        };
        let lease_table = &client.daemon.lease_table;
        let later = lease_table.look(ticket, client.scope(), asked).ok()??;
        Some((ticket, later))
    });
    let Some((ticket, later)) = asked else {
        if ranges::is_value(word) {
            return ranges::cancel(client, request);
        }
        parse(word)?;
        client.reply().integer(0);
        return Ok(Next::Done);
    };
    // It is out of its queue before any client is told so.
    let cancelled = later.cancel_waiting(EndReason::Cancelled.words());
    if cancelled || later.answered().is_some_and(|no| !no.is_go()) {
        let why = match cancelled {
            true => EndReason::Cancelled,
            false => EndReason::Refused,
        };
        let _ = client.daemon.lease_table.take(ticket, None, why);
    }
    client.reply().integer(cancelled.into());
    Ok(Next::Done)
}

pub(super) fn held(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let page = page::options(client, "HELD", &mut request.arguments())?;
    let owner = client.owner();
    let see = move |owned: &OwnedViewer| {
        let mut rows = owned.daemon.lease_table.rows(owner);
        // The newest first, as they are listed.
        let key = |row: &LeaseRow| u128::MAX - row.key();
        rows.sort_by_key(key);
        let bytes = |row: &LeaseRow| {
            let note = row.note.as_ref().map_or(0, String::len);
            160 + row.name.len() + row.value.len() + note
        };
        page.cut(rows, key, bytes)
    };
    see_and_tell(client, "HELD", see, |client, (rows, more)| {
        tell_held(client, rows, more);
        Ok(())
    })
}

/// For how long the holder may rely on what it holds, from when it sent this.
fn sure(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("SURE")?;
    let millis = match &client.daemon.cluster {
        // As long as the connection.
        None => -1,
        Some(cluster) => {
            let sure = cluster.sure(client.owner());
            i64::try_from(sure.as_millis()).unwrap_or(i64::MAX)
        }
    };
    client.reply().integer(millis);
    Ok(Next::Done)
}

fn tell_held(client: &mut Client, rows: Vec<LeaseRow>, more: Option<More>) {
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
}
