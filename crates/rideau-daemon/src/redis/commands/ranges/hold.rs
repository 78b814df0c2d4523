//! Commands of holders about their values.

use rideau::allocator::{Change, Held, Proof, Refused, Released, Seen, Which};
use rideau::{Failed, Instant};
use rideau_resp::{Arguments, Mistake, Reply, Request, Upper};

use super::target::{Target, is_seen};
use super::words::{ValueContents, ttl};
use super::{no, write_fields};
use crate::redis::client::{Client, CommandError, Next};
use crate::redis::commands::{allowed, page};
use crate::state::end::EndReason;
use crate::state::ticket::{Ticket, TicketKind};
use crate::state::values::{owner_of, sees_fence};
use crate::view::tables::Page;

pub(in crate::redis::commands) fn write(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    alter(client, request, "WRITE")
}

pub(in crate::redis::commands) fn update(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    alter(client, request, "UPDATE")
}

fn alter(
    client: &mut Client,
    request: Request<'_>,
    command: &'static str,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut target = Target::parse(client, command, &mut arguments)?;
    let beside = ValueContents::parse(client, command, &mut arguments)?;
    target.check(client)?;
    if beside.claim {
        // It has a value then that no holder had.
        allowed(client, "reserve")?;
    }
    let Proof { fence, owner } = target.proof(client, beside.fence)?;
    let change = Change {
        fence,
        ttl: beside.ttl,
        keys: &beside.keys,
        claim: beside.claim,
        owner: Some(owner_of(client.user.as_deref())),
        any_owner: owner.is_none(),
        vouched: client.sent.vouched,
        ..Change::new(&beside.data)
    };
    let ranges = &client.daemon.values.ranges;
    let answer = match command {
        "WRITE" => ranges.write(target.which, &change),
        _ => ranges.update(target.which, &change),
    };
    let (decision, until) = answer.into_parts();
    let held = decision.map_err(|no| failed(client, &no, &target, beside.fence))?;
    if beside.has_own_key() {
        client.gave_key();
    }
    client.held_back.until(until);
    tell(client, &held);
    Ok(Next::Done)
}

/// Writes the lease of a value, and its state before.
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

impl Renewal<'_> {
    /// Hold it for longer, if it is the client's. What is wrong has a word for lists.
    fn run(&mut self, client: &mut Client) -> Result<Held, (&'static str, CommandError)> {
        let error = |wrong| ("error", wrong);
        self.target.check(client).map_err(error)?;
        let stale = |wrong| ("stale", wrong);
        let proof = self.target.proof(client, self.fence).map_err(stale)?;
        let ranges = &client.daemon.values.ranges;
        let answer = ranges.refresh(self.target.which, proof, self.ttl);
        let (decision, until) = answer.into_parts();
        if decision.is_ok() {
            client.held_back.until(until);
        }
        decision.map_err(|no| {
            let word = match &no {
                Failed::Refused(Refused::Conflict { .. } | Refused::Foreign) => "stale",
                Failed::Refused(Refused::NotReserved) => "notheld",
                _ => "error",
            };
            (word, failed(client, &no, &self.target, self.fence))
        })
    }
}

pub(in crate::redis::commands) fn refresh(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut renewals = renewals(client, &mut arguments)?;
    let now = client.daemon.values.ranges.now();
    if let [renewal] = &mut renewals[..] {
        let held = renewal.run(client).map_err(|(_, wrong)| wrong)?;
        write_renewed(&mut client.reply(), &held, now);
        return Ok(Next::Done);
    }
    client.reply().array(renewals.len());
    for renewal in &mut renewals {
        match renewal.run(client) {
            Ok(held) => write_renewed(&mut client.reply(), &held, now),
            Err((word, CommandError(text))) => drop(client.reply().array(2).bulk(word).bulk(text)),
        }
    }
    Ok(Next::Done)
}

fn write_renewed(reply: &mut Reply<'_>, held: &Held, now: Instant) {
    reply
        .array(3)
        .bulk("ok")
        .integer(no::millis(held.until, now))
        .integer(held.fence as i64);
}

/// `value [FENCE n] [TTL ms]`, as often as wanted.
fn renewals<'a>(
    client: &Client,
    arguments: &mut Arguments<'a>,
) -> Result<Vec<Renewal<'a>>, CommandError> {
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
                    let fence =
                        arguments.number("FENCE", "the fence of the value", 0..=u64::MAX)?;
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

/// Why nothing happened. A client with a fence that does not count is told the same
/// whether it is wrong or another user's.
fn failed(client: &Client, no: &Failed, target: &Target<'_>, fence: Option<u64>) -> CommandError {
    match no {
        Failed::Refused(Refused::Foreign) if fence.is_some() => no::stale(target.shown()),
        no => no::failed(client, no, target.shown()),
    }
}

pub(in crate::redis::commands) fn lookup(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut target = Target::parse(client, "LOOKUP", &mut arguments)?;
    let page = page::options(client, "LOOKUP", &mut arguments)?;
    if let Which::Value(_) = target.which {
        target.check(client)?;
    }
    let ranges = &client.daemon.values.ranges;
    let answer = match target.which {
        Which::Key(key) if client.sent.is_part => ranges.find(key),
        which => ranges.lookup(which),
    };
    let (seen, until) = answer.into_parts();
    let seen = seen.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    client.held_back.until(until);
    match (target.which, &seen[..]) {
        (Which::Value(value), []) => return look_unheld(client, value, &target),
        (Which::Value(_), [one, ..]) => write_seen(client, one, target.fence),
        (Which::Key(_), _) => write_all_seen(client, seen, &page, &target),
    }
    Ok(Next::Done)
}

/// The values with a key that the answer has room for.
fn write_all_seen(client: &mut Client, mut all: Vec<Seen>, page: &Page, target: &Target<'_>) {
    all.retain(|one| is_seen(client, one));
    let key = |one: &Seen| one.value.saturating_add(1);
    all.sort_unstable_by_key(key);
    let bytes = |one: &Seen| {
        let keys: usize = one.keys.iter().map(|(key, _)| key.len() + 16).sum();
        512 + keys + 2 * one.data.weight()
    };
    let (all, more) = page.cut(all, key, bytes);
    let len = all.len() + usize::from(more.is_some());
    client.reply().array(len);
    all.iter().for_each(|one| write_seen(client, one, None));
    let command = format!("LOOKUP KEY {}", String::from_utf8_lossy(target.word));
    page::write_more(&mut client.reply(), more, &command);
}

/// A value without a holder.
fn look_unheld(
    client: &mut Client,
    value: u128,
    target: &Target<'_>,
) -> Result<Next, CommandError> {
    let daemon = std::sync::Arc::clone(&client.daemon);
    let ranges = &daemon.values.ranges;
    let catalog = daemon.catalog.load();
    let Some((place, kind)) = catalog.ranges.of(value) else {
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
    Ok(Next::Done)
}

/// A value that is held. Its fence is told to its owner, and to a client that has its
/// ticket.
fn write_seen(client: &mut Client, seen: &Seen, ticket: Option<u64>) {
    let sees_fence =
        ticket == Some(seen.fence) || sees_fence(client.user.as_deref(), seen.owner.as_deref());
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
        .bulk(&config.server.name);
    match sees_fence {
        true => reply.integer(seen.fence as i64),
        false => reply.null(),
    };
    reply
        .bulk(range.unwrap_or_default())
        .integer(no::millis(now, seen.created))
        .integer(seen.updates.into());
}

/// `CANCEL` of a value: its holder is forgotten.
pub(in crate::redis::commands) fn cancel(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut target = Target::parse(client, "CANCEL", &mut arguments)?;
    let fence = fence(&mut arguments, "CANCEL")?;
    target.check_end(client, "cancel")?;
    let proof = target.proof(client, fence)?;
    let answer = client.daemon.values.ranges.cancel(target.which, proof);
    let (decision, until) = answer.into_parts();
    let held = decision.map_err(|no| failed(client, &no, &target, fence))?;
    client.held_back.until(until);
    forget(client, held.value);
    tell(client, &held);
    Ok(Next::Done)
}

/// `RELEASE` of a value.
pub(in crate::redis::commands) fn release(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut target = Target::parse(client, "RELEASE", &mut arguments)?;
    let fence = fence(&mut arguments, "RELEASE")?;
    target.check_end(client, "release")?;
    let mut proof = target.proof(client, fence)?;
    let value = match target.which {
        Which::Value(value) => value,
        Which::Key(_) => {
            let seen = only(client, &target)?;
            if proof.fence.is_none() && !needs_fence(client, &seen) {
                // No other that comes to have the value meanwhile loses it.
                proof.fence = Some(seen.fence);
            }
            seen.value
        }
    };
    let answer = client.daemon.values.ranges.release(value, proof);
    let (decision, until) = answer.into_parts();
    let released = decision.map_err(|no| failed(client, &no, &target, fence))?;
    client.held_back.until(until);
    if released == Released::Already {
        let no = Failed::Refused(Refused::NotReserved);
        return Err(no::failed(client, &no, target.shown()));
    }
    forget(client, value);
    client.reply_ok();
    Ok(Next::Done)
}

/// The one reservation that has a key.
fn only(client: &Client, target: &Target<'_>) -> Result<Seen, CommandError> {
    let ranges = &client.daemon.values.ranges;
    let (seen, _) = ranges.lookup(target.which).into_parts();
    let mut seen = seen.map_err(|failed| no::failed(client, &failed, target.shown()))?;
    let no = match (seen.pop(), seen.len()) {
        (Some(one), 0) => return Ok(one),
        (None, _) => Refused::NotReserved,
        (Some(_), others) => Refused::Ambiguous { count: others + 1 },
    };
    Err(no::failed(client, &Failed::Refused(no), target.shown()))
}

fn needs_fence(client: &Client, seen: &Seen) -> bool {
    let ranges = &client.daemon.values.ranges;
    let options = seen.range.and_then(|range| ranges.options(range));
    options.is_some_and(|options| options.needs_fence)
}

/// The value no longer ends with its connection.
fn forget(client: &Client, value: u128) {
    let values = &client.daemon.values;
    if let Some(ticket) = values.held(value) {
        values.let_go(value, ticket);
        let _ = client
            .daemon
            .lease_table
            .take(ticket, None, EndReason::Released);
    }
}

fn fence(
    arguments: &mut Arguments<'_>,
    command: &'static str,
) -> Result<Option<u64>, CommandError> {
    let mut fence = None;
    while let Some(word) = arguments.next() {
        match Upper::of(word).as_bytes() {
            b"FENCE" => {
                let number = arguments.number("FENCE", "the fence of the value", 0..=u64::MAX)?;
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
pub(in crate::redis::commands) fn is_value(word: &[u8]) -> bool {
    match Ticket::parse(word) {
        Some(ticket) => ticket.kind == TicketKind::Value,
        None => {
            let is_said = word.starts_with(b"v-") || word.eq_ignore_ascii_case(b"KEY");
            let text = || std::str::from_utf8(word).unwrap_or_default();
            is_said || rideau::allocator::parse_value(text()).is_ok()
        }
    }
}
