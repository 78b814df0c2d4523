//! What holders do with their values.

use rideau::allocator::{Change, Held, Refused, Seen, Which};
use rideau::{Failed, Instant};

use super::words::{Beside, Target, ttl};
use super::{no, write_fields};
use crate::client::{Client, Step, Wrong};
use crate::holdings::Why;
use crate::resp::{Arguments, Mistake, Reply, Request, Upper};
use crate::ticket::{Kind as TicketKind, Ticket};

pub(in crate::command) fn write(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    alter(client, request, "WRITE")
}

pub(in crate::command) fn update(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    alter(client, request, "UPDATE")
}

fn alter(client: &mut Client, request: Request<'_>, command: &'static str) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let target = Target::parse(client, command, &mut arguments)?;
    let beside = Beside::parse(client, command, &mut arguments)?;
    let change = Change {
        fence: beside.fence.or(target.fence),
        ttl: beside.ttl,
        data: &beside.data,
        keys: &beside.keys,
        claim: beside.claim,
    };
    let ranges = &client.daemon.values.ranges;
    let answer = match command {
        "WRITE" => ranges.write(target.which, &change),
        _ => ranges.update(target.which, &change),
    };
    let (decision, until) = answer.into_parts();
    let held = decision.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    client.held_back.until(until);
    tell(client, &held);
    Ok(Step::Done)
}

/// What is held from now on, and what was before.
fn tell(client: &mut Client, held: &Held) {
    let left = no::millis(held.until, client.daemon.values.ranges.now());
    let mut reply = client.reply();
    reply
        .array(5)
        .bulk("ok")
        .integer(left)
        .integer(held.fence as i64)
        .bulk(held.was.word());
    write_fields(&mut reply, &held.old);
}

/// One value to be held for longer.
struct Renewal<'a> {
    target: Target<'a>,
    fence: Option<u64>,
    ttl: Option<std::time::Duration>,
}

pub(in crate::command) fn refresh(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let renewals = renewals(client, &mut arguments)?;
    let mut decisions = Vec::with_capacity(renewals.len());
    for Renewal { target, fence, ttl } in &renewals {
        let fence = fence.or(target.fence);
        let answer = client
            .daemon
            .values
            .ranges
            .refresh(target.which, fence, *ttl);
        let (decision, until) = answer.into_parts();
        if decision.is_ok() {
            client.held_back.until(until);
        }
        decisions.push(decision);
    }
    let now = client.daemon.values.ranges.now();
    if let [decision] = &decisions[..] {
        let shown = || renewals[0].target.shown();
        let held = decision
            .as_ref()
            .map_err(|failed| no::failed(client, failed, shown()))?;
        write_renewed(&mut client.reply(), held, now);
        return Ok(Step::Done);
    }
    client.reply().array(decisions.len());
    for (decision, renewal) in decisions.iter().zip(&renewals) {
        match decision {
            Ok(held) => write_renewed(&mut client.reply(), held, now),
            Err(failed) => {
                let Wrong(text) = no::failed(client, failed, renewal.target.shown());
                let word = match failed {
                    Failed::Refused(Refused::Conflict { .. }) => "stale",
                    Failed::Refused(Refused::NotReserved) => "notheld",
                    _ => "error",
                };
                client.reply().array(2).bulk(word).bulk(text);
            }
        }
    }
    Ok(Step::Done)
}

fn write_renewed(reply: &mut Reply<'_>, held: &Held, now: Instant) {
    reply
        .array(3)
        .bulk("ok")
        .integer(no::millis(held.until, now))
        .integer(held.fence as i64);
}

/// `value [FENCE n] [TTL ms]`, as often as wanted.
fn renewals<'a>(client: &Client, arguments: &mut Arguments<'a>) -> Result<Vec<Renewal<'a>>, Wrong> {
    let mut renewals: Vec<Renewal<'a>> = Vec::new();
    let mut next = Some(arguments.word("REFRESH", "a value, a ticket or KEY")?);
    while let Some(word) = next {
        let target = Target::of(client, word, arguments)?;
        let mut renewal = Renewal {
            target,
            fence: None,
            ttl: None,
        };
        next = None;
        while let Some(word) = arguments.next() {
            match Upper::of(word).as_bytes() {
                b"FENCE" => {
                    let fence = arguments.number("FENCE", "the holder's number", 0..=u64::MAX)?;
                    renewal.fence = Some(fence);
                }
                b"TTL" => renewal.ttl = Some(ttl(arguments)?),
                _ => {
                    next = Some(word);
                    break;
                }
            }
        }
        renewals.push(renewal);
    }
    Ok(renewals)
}

pub(in crate::command) fn lookup(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let target = Target::parse(client, "LOOKUP", &mut arguments)?;
    arguments.end("LOOKUP")?;
    let answer = client.daemon.values.ranges.lookup(target.which);
    let (seen, until) = answer.into_parts();
    let seen = seen.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    client.held_back.until(until);
    match (target.which, &seen[..]) {
        (Which::Value(value), []) => return look_unheld(client, value, &target),
        (Which::Value(_), [one, ..]) => write_seen(client, one),
        (Which::Key(_), all) => {
            client.reply().array(all.len());
            all.iter().for_each(|one| write_seen(client, one));
        }
    }
    Ok(Step::Done)
}

/// A value that nobody holds.
fn look_unheld(client: &mut Client, value: u128, target: &Target<'_>) -> Result<Step, Wrong> {
    let daemon = std::sync::Arc::clone(&client.daemon);
    let ranges = &daemon.values.ranges;
    let places = daemon.places.load();
    let Some((place, kind)) = places.ranges.of(value) else {
        let no = Failed::Refused(Refused::OutOfRange);
        return Err(no::failed(client, &no, target.shown()));
    };
    let standing = ranges.stands(value);
    let until = ranges.stats(place.id).and_then(|s| s.quarantined_until);
    let until = until.filter(|_| standing.word() == "quarantined");
    let left = until.map_or(0, |until| no::millis(until, ranges.now()));
    let config = daemon.config.load();
    let mut reply = client.reply();
    reply.array(10).bulk(kind.print(value)).array(0).map(0);
    reply
        .integer(left)
        .bulk(standing.word())
        .bulk(&config.server.name)
        .integer(0)
        .bulk(&*place.name)
        .integer(0)
        .integer(0);
    Ok(Step::Done)
}

fn write_seen(client: &mut Client, seen: &Seen) {
    let daemon = std::sync::Arc::clone(&client.daemon);
    let ranges = &daemon.values.ranges;
    let now = ranges.now();
    let range = seen.range.and_then(|range| ranges.name(range));
    let config = daemon.config.load();
    let mut reply = client.reply();
    reply.array(10).bulk(seen.kind.print(seen.value));
    reply.array(seen.keys.len());
    for (key, _) in &seen.keys {
        reply.bulk(key);
    }
    write_fields(&mut reply, &seen.data);
    reply
        .integer(no::millis(seen.until, now))
        .bulk(seen.standing.word())
        .bulk(&config.server.name)
        .integer(seen.fence as i64)
        .bulk(range.unwrap_or_default())
        .integer(no::millis(now, seen.created))
        .integer(seen.updates.into());
}

/// `CANCEL` of a value: its holder is forgotten.
pub(in crate::command) fn cancel(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let target = Target::parse(client, "CANCEL", &mut arguments)?;
    let fence = fence(&mut arguments, "CANCEL")?.or(target.fence);
    let answer = client.daemon.values.ranges.cancel(target.which, fence);
    let (decision, until) = answer.into_parts();
    let held = decision.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    client.held_back.until(until);
    forget(client, held.value);
    tell(client, &held);
    Ok(Step::Done)
}

/// `RELEASE` of a value.
pub(in crate::command) fn release(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let target = Target::parse(client, "RELEASE", &mut arguments)?;
    let fence = fence(&mut arguments, "RELEASE")?.or(target.fence);
    let value = match target.which {
        Which::Value(value) => value,
        Which::Key(_) => only(client, &target)?,
    };
    let answer = client.daemon.values.ranges.release(value, fence);
    let (decision, until) = answer.into_parts();
    decision.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    client.held_back.until(until);
    forget(client, value);
    client.reply_ok();
    Ok(Step::Done)
}

/// The one value that has a key.
fn only(client: &Client, target: &Target<'_>) -> Result<u128, Wrong> {
    let (seen, _) = client
        .daemon
        .values
        .ranges
        .lookup(target.which)
        .into_parts();
    let seen = seen.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    let no = match &seen[..] {
        [one] => return Ok(one.value),
        [] => Refused::NotReserved,
        several => Refused::Ambiguous {
            count: several.len(),
        },
    };
    Err(no::failed(client, &Failed::Refused(no), target.shown()))
}

/// What went with a connection does so no more.
fn forget(client: &Client, value: u128) {
    let values = &client.daemon.values;
    if let Some(ticket) = values.held(value) {
        values.let_go(value, ticket);
        let _ = client.daemon.holdings.take(ticket, None, Why::Released);
    }
}

fn fence(arguments: &mut Arguments<'_>, command: &'static str) -> Result<Option<u64>, Wrong> {
    let mut fence = None;
    while let Some(word) = arguments.next() {
        match Upper::of(word).as_bytes() {
            b"FENCE" => {
                let number = arguments.number("FENCE", "the holder's number", 0..=u64::MAX)?;
                fence = Some(number);
            }
            // As for all other tickets.
            b"OK" | b"FAIL" => (),
            _ => return Err(Mistake::unknown(command, word).into()),
        }
    }
    Ok(fence)
}

/// A word behind `RELEASE` or `CANCEL` is about a value, and no other ticket.
pub(in crate::command) fn is_value(word: &[u8]) -> bool {
    match Ticket::parse(word) {
        Some(ticket) => ticket.kind == TicketKind::Value,
        None => {
            let is_said = word.starts_with(b"v-") || word.eq_ignore_ascii_case(b"KEY");
            let text = || std::str::from_utf8(word).unwrap_or_default();
            is_said || rideau::allocator::parse_value(text()).is_ok()
        }
    }
}
