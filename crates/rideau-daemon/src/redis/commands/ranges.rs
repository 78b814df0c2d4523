//! Values of ranges: asked for, claimed, and told.

mod count;
mod hold;
mod later;
mod manage;
mod no;
mod target;
mod words;

use std::sync::Arc;
use std::time::Duration;

use rideau::allocator::{Ask, Change, Place, Prefer, Refused, Reservation};
use rideau::{Committed, Failed, Instant, Reserving};

use crate::redis::client::{
    AskArgs, Awaits, Client, CommandError, Next, OnReady, PendingCommand, closed,
};
use crate::state::end::EndReason;
use crate::state::grant::{Grant, HeldValue};
use crate::state::ticket::TicketKind;
use crate::state::values::{ValueTicket, owner_of};
use rideau_resp::{Quoted, Reply, Request};
use words::{ValueContents, Words};

pub(super) use count::count as count_values;
pub(super) use hold::{cancel, is_value, lookup, refresh, release, update, write};
pub(super) use manage::{
    add, bulk_release, debug, drain, info, list, memory, remove, set, stat, watch,
};
pub(super) use words::{ask_id, may_use_places};

/// How much a value was preferred, in a word.
const TIERS: [&str; 8] = [
    "primary",
    "secondary",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
];

pub(super) fn reserve(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    client.held_back.begin();
    let words = Words::parse(client, request)?;
    if words.is_async() {
        return later::reserve(client, &words);
    }
    let waits_here = || !client.is_in_exec && client.waits_here(request);
    let Some(limit) = words.wait.filter(|_| waits_here()) else {
        let owner = owner_of(client.user.as_deref());
        let vouched = client.sent.vouched;
        let ask = Ask {
            vouched,
            ..words.ask(owner)
        };
        let ranges = &client.daemon.values.ranges;
        if client.sent.is_told_none {
            let none = ranges.count_exhausted(ask.prefer);
            let until = ranges.logged();
            settle(client, Err(none), until, &words.how(), words.prefer())?;
            return Ok(Next::Done);
        }
        let (decision, until) = ranges.reserve(&ask).into_parts();
        if words.has_own_key() && decision.is_ok() {
            client.gave_key();
        }
        let is_none = matches!(decision, Err(Failed::Refused(Refused::Exhausted { .. })));
        if is_none && let Some(next) = client.instead_of_none(request)? {
            return Ok(next);
        }
        settle(client, decision, until, &words.how(), words.prefer())?;
        return Ok(Next::Done);
    };
    let ranges = &client.daemon.values.ranges;
    let owner = owner_of(client.user.as_deref());
    match ranges.reserve_within(&words.ask(owner), limit).into_parts() {
        Ok((decision, until)) => settle(client, decision, until, &words.how(), words.prefer())?,
        Err(reserving) => {
            client.may_wait()?;
            let prefer: Arc<[Prefer]> = words.prefer().into();
            let awaits = Awaits::Values(Arc::clone(&prefer));
            let how = How {
                since: Some(std::time::Instant::now()),
                ..words.how()
            };
            let answer = Box::pin(wait(reserving, how, prefer));
            return Ok(Next::Wait(PendingCommand::new("RESERVE", awaits, answer)));
        }
    }
    Ok(Next::Done)
}

/// Is a RESERVE right as it is written, and may the client ask for that?
///
/// # Errors
///
/// If not.
pub(super) fn check(client: &Client, request: Request<'_>) -> Result<(), CommandError> {
    Words::parse(client, request).map(drop)
}

/// Details that the answer of a reserve needs besides the decision.
struct How {
    /// Since when it waits, if it did.
    since: Option<std::time::Instant>,
    /// Several were asked for, and the answer is a list.
    is_many: bool,
    tail: AskArgs,
    /// It waited for so long.
    waited: Option<Duration>,
}

/// Wait in the queue. What is given is given back if the client is gone.
async fn wait(mut reserving: Reserving, mut how: How, prefer: Arc<[Prefer]>) -> OnReady {
    let since = std::time::Instant::now();
    reserving.decided().await;
    how.waited = Some(since.elapsed());
    Box::new(move |client| {
        let Ok((decision, until)) = reserving.into_parts() else {
            unreachable!("it was just decided");
        };
        let before = client.out.len();
        if let Err(CommandError(text)) = settle(client, decision, until, &how, &prefer) {
            client.out.truncate(before);
            client.reply().error(text);
        }
    })
}

/// Answer a reserve.
fn settle(
    client: &mut Client,
    decision: Result<Vec<Reservation>, Failed>,
    until: Committed,
    how: &How,
    prefer: &[Prefer],
) -> Result<(), CommandError> {
    let granted = match decision {
        Ok(granted) => granted,
        Err(Failed::Refused(Refused::Exhausted { free, size })) => {
            exhaust(client, prefer);
            let waited = how.since.map(|since| since.elapsed());
            let waited = waited.or(client.sent.waited);
            let none = no::none(&client.daemon, prefer, free, size, waited);
            client.tell_no(&none);
            return Ok(());
        }
        Err(Failed::Closed) if how.waited.is_some() => {
            let refusal = closed(how.waited.unwrap_or_default());
            let no = no::stopped(&client.daemon, prefer, &refusal);
            client.tell_no(&no);
            return Ok(());
        }
        Err(failed) => return Err(no::failed(client, &failed, "RESERVE")),
    };
    client.held_back.until(until);
    let now = client.daemon.values.ranges.now();
    let hops = client.sent.hops.into();
    if let ([one], false) = (&granted[..], how.is_many) {
        let kept = keep(client, one, &how.tail);
        let ticket = kept.inspect_err(|_| give_back(client, &granted))?;
        let mut reply = client.reply();
        reply.array(7).bulk("go");
        write_granted(&mut reply, one, &ticket, hops, now);
        return Ok(());
    }
    let mut tickets = Vec::with_capacity(granted.len());
    for reservation in &granted {
        let kept = keep(client, reservation, &how.tail);
        tickets.push(kept.inspect_err(|_| give_back(client, &granted))?);
    }
    let mut reply = client.reply();
    if how.is_many {
        reply.array(1 + granted.len()).bulk("go");
    }
    for (reservation, ticket) in granted.iter().zip(&tickets) {
        match how.is_many {
            true => reply.array(6),
            false => reply.array(7).bulk("go"),
        };
        write_granted(&mut reply, reservation, ticket, hops, now);
    }
    Ok(())
}

/// Writes the fields of a value that was given out, after the `go`.
fn write_granted(
    reply: &mut Reply<'_>,
    one: &Reservation,
    ticket: &ValueTicket,
    hops: i64,
    now: Instant,
) {
    reply
        .bulk(one.kind.text(one.value))
        .bulk(ticket)
        .integer(no::millis(one.until, now))
        .bulk(TIERS[usize::from(one.tier) % TIERS.len()])
        .integer(hops)
        .integer(one.fence as i64);
}

/// Nothing is free: that is counted where it was wanted most.
fn exhaust(client: &Client, prefer: &[Prefer]) {
    let catalog = client.daemon.catalog.load();
    if let Some(Place::Range(id)) = prefer.first().map(|prefer| prefer.place)
        && let Some(place) = catalog.ranges.by_id(id)
    {
        place.counts.exhaust();
    }
}

/// The ticket of a value that was given out; it goes with its holder where its
/// range says so.
fn keep(
    client: &mut Client,
    reservation: &Reservation,
    tail: &AskArgs,
) -> Result<ValueTicket, CommandError> {
    let Reservation { value, fence, .. } = *reservation;
    let catalog = client.daemon.catalog.load();
    let place = catalog.ranges.of(value).map(|(place, _)| place);
    if let Some(place) = place {
        client.held_back.give(&place.counts);
    }
    let values = &client.daemon.values;
    let Some(place) = place.filter(|place| place.is_of_connection()) else {
        return Ok(values.ticket(value, fence));
    };
    if client.session.is_none() && client.card.connection_less() {
        return Err(CommandError(format!(
            "ERR values of range {} end with their holder, which has to be a session over HTTP: \
             open one with POST /v1/sessions, and send its id in the header Rideau-Session.",
            place.name
        )));
    }
    if reservation.is_known {
        let lease_table = &client.daemon.lease_table;
        let is_it = |grant: &Grant| match grant {
            Grant::Value(held) => (held.value, held.fence) == (value, fence),
            _ => false,
        };
        if let Some(ticket) = lease_table.newest(client.owner(), is_it) {
            return Ok(ticket.into());
        }
        // A client that asks again as the same takes it over.
        if let Some(ticket) = values.held(value) {
            let _ = lease_table.take(ticket, None, EndReason::Lapsed);
        }
    }
    let held = Grant::Value(HeldValue {
        ranges: values.ranges.clone(),
        range: Arc::clone(&place.name),
        value,
        kind: reservation.kind,
        fence,
        is_lease: false,
    });
    let ticket = client.keep(TicketKind::Value, held, tail)?;
    client.daemon.hold_value(value, ticket);
    Ok(ticket.into())
}

/// Not all of them could be kept, so none is.
fn give_back(client: &Client, granted: &[Reservation]) {
    let values = &client.daemon.values;
    for Reservation { value, fence, .. } in granted {
        if let Some(ticket) = values.held(*value) {
            let _ = client
                .daemon
                .lease_table
                .take(ticket, None, EndReason::Cancelled);
            values.let_go(*value, ticket);
        }
        drop(values.ranges.release(*value, Some(*fence)));
    }
}

pub(super) fn claim(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    client.held_back.begin();
    let mut arguments = request.arguments();
    let word = arguments.text("CLAIM", "a value")?;
    let (value, kind) = words::value(client, word)?;
    let beside = ValueContents::parse(client, "CLAIM", &mut arguments)?;
    let change = Change {
        ttl: beside.ttl,
        keys: &beside.keys,
        claim: true,
        owner: Some(owner_of(client.user.as_deref())),
        vouched: client.sent.vouched,
        ..Change::new(&beside.data)
    };
    let answer = client.daemon.values.ranges.claim(value, &change);
    let (decision, until) = answer.into_parts();
    if beside.has_own_key() && decision.is_ok() {
        client.gave_key();
    }
    let held = match decision {
        Ok(held) => held,
        Err(Failed::Refused(Refused::Reserved | Refused::Resting)) => {
            let standing = client.daemon.values.ranges.stands(value);
            client.reply().array(2).bulk("taken").bulk(standing.word());
            return Ok(Next::Done);
        }
        Err(failed) => return Err(no::failed(client, &failed, Quoted(word.as_bytes()))),
    };
    client.held_back.until(until);
    let catalog = client.daemon.catalog.load();
    let Some((place, kind)) = catalog.ranges.of(value) else {
        return Err(no::failed(
            client,
            &Failed::Refused(Refused::OutOfRange),
            kind.show(value),
        ));
    };
    let reservation = Reservation {
        value,
        kind,
        range: place.id,
        fence: held.fence,
        until: held.until,
        tier: 0,
        is_known: false,
    };
    let ticket = keep(client, &reservation, &beside.tail).inspect_err(|_| {
        give_back(client, &[reservation]);
    })?;
    let left = no::millis(held.until, client.daemon.values.ranges.now());
    let hops = client.sent.hops.into();
    let mut reply = client.reply();
    reply
        .array(8)
        .bulk("go")
        .bulk(kind.print(value))
        .bulk(ticket)
        .integer(left)
        .bulk(TIERS[0])
        .integer(hops)
        .integer(held.fence as i64)
        .bulk(held.was.word());
    Ok(Next::Done)
}

/// Writes the data of a record as a map.
fn write_fields(reply: &mut Reply<'_>, fields: &rideau::allocator::Fields) {
    use rideau::allocator::Field;
    reply.map(fields.iter().count());
    for (name, field) in fields.iter() {
        reply.bulk(name);
        match field {
            Field::Bytes(bytes) => reply.bulk(bytes),
            Field::Number(number) => reply.integer(number),
            Field::Nothing => reply.null(),
        };
    }
}
