//! Leases of regulators.

use std::sync::Arc;

use rideau::{Lead, Lease, Now, Refusal};
use rideau_resp::{Mistake, Quoted, Request, Upper};

use super::shared::{self, PlaceAsk};
use super::tickets::{self, Answer};
use crate::redis::client::{AskArgs, Client, CommandError, Next, refused};
use crate::state::answer::{AnswerField, Outcome, micros};
use crate::state::catalog::NamedRegulator;
use crate::state::cluster::PlaceKind;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::grant::Grant;
use crate::state::lease_table::LeaseEntry;
use crate::state::ticket::{Ticket, TicketKind};

pub(super) fn ask(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("REG.ASK", "a regulator")?;
    let mut tail = AskArgs::default();
    while let Some(option) = arguments.next() {
        let upper = Upper::of(option);
        if !tail.option(upper.as_bytes(), &mut arguments, client)? {
            return Err(Mistake::unknown("REG.ASK", option).into());
        }
    }
    super::may_use(client, "regulator", name)?;
    let place = regulator(client, name)?;
    tail.cap_by(|| place.regulator.options().queue);
    if let Some(step) = tickets::repeated(client, &tail) {
        return Ok(step);
    }
    if let Some(home) = place.shared.as_ref().map(|shared| shared.home.clone()) {
        let ask = PlaceAsk {
            kind: PlaceKind::Lease,
            name,
            value: b"",
            terms: client.terms(&tail),
            is_now: false,
        };
        return shared::come(client, &ask, home, tail);
    }
    client.may_wait()?;
    let terms = client.terms(&tail);
    let name = name.to_owned();
    let (daemon, at) = (Arc::clone(&client.daemon), Arc::clone(&place));
    let answer = move |granted| answer(&daemon, &at, granted);
    match place.regulator.ask_now(terms) {
        Now::Answered(granted) => {
            tickets::settle(client, TicketKind::Lease, answer(granted), &tail)
        }
        Now::Waiting(wait) if tail.is_async => {
            tickets::later(client, TicketKind::Lease, &name, &tail, async move {
                answer(wait.await)
            })
        }
        Now::Waiting(wait) => Ok(Next::Wait(tickets::blocked(
            TicketKind::Lease,
            name,
            tail,
            async move { answer(wait.await) },
        ))),
    }
}

fn answer(daemon: &Daemon, place: &Arc<NamedRegulator>, granted: Result<Lease, Refusal>) -> Answer {
    match granted {
        Ok(lease) => {
            let regulator = Arc::clone(place);
            Ok((numbers(&lease), Grant::Lease { lease, regulator }))
        }
        Err(refusal) => {
            let why = refusal.to_string();
            let explain = || place.regulator.explain();
            Err(refused(
                daemon,
                "regulator",
                &place.name,
                &refusal,
                why,
                explain,
            ))
        }
    }
}

/// The fields of a lease besides its ticket.
pub(crate) fn numbers(lease: &Lease) -> Vec<AnswerField> {
    let lead = AnswerField::Number(lease.lead().as_nanos() / 1_000);
    vec![lead, micros(lease.waited())]
}

pub(super) fn renew(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("REG.CONTINUE", "the ref of a lease")?;
    arguments.end("REG.CONTINUE")?;
    let ticket = lease_of(word)?;
    let row = client
        .daemon
        .lease_table
        .look(ticket, client.scope(), |thing| match thing.grant() {
            Some(Grant::Name(lease)) => Some((lease.partition(), lease.ticket())),
            _ => None,
        });
    if let Some(row) = row.map_err(|gone| tickets::gone_text(word, gone))? {
        return shared::renew(client, word, ticket, row);
    }
    // The lease is taken out while the regulator decides, under its own lock.
    let lease = client
        .daemon
        .lease_table
        .look(ticket, client.scope(), |thing| {
            let (lease, regulator, told) = match std::mem::replace(thing, LeaseEntry::None) {
                LeaseEntry::Held(Grant::Lease { lease, regulator }) => (lease, regulator, None),
                LeaseEntry::Answered(Grant::Lease { lease, regulator }, told) => {
                    (lease, regulator, Some(told))
                }
                other => {
                    *thing = other;
                    return None;
                }
            };
            let renewed = lease.renew().map(|lease| {
                let parts = numbers(&lease);
                let grant = Grant::Lease { lease, regulator };
                *thing = match told {
                    Some(told) => LeaseEntry::Answered(grant, told),
                    None => LeaseEntry::Held(grant),
                };
                parts
            });
            Some(renewed)
        });
    let renewed = lease.map_err(|gone| tickets::gone_text(word, gone))?;
    let Some(renewed) = renewed else {
        return Err(CommandError(format!(
            "NOTHELD {} still waits for its lease: AWAIT it, or CANCEL it.",
            Quoted(word)
        )));
    };
    match renewed {
        Ok(parts) => {
            let go = Outcome::granted(ticket, parts);
            go.write(&mut client.reply());
        }
        Err(stopped) => {
            let _ = client
                .daemon
                .lease_table
                .take(ticket, None, EndReason::Stopped);
            Outcome::new("stop", vec![micros(stopped.waited)]).write(&mut client.reply());
        }
    }
    Ok(Next::Done)
}

pub(super) fn done(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("REG.DONE", "the ref of a lease")?;
    let why = match arguments.next().map(Upper::of) {
        Some(how) if how.as_bytes() == b"FAIL" => EndReason::Failed,
        _ => EndReason::Released,
    };
    let ticket = lease_of(word)?;
    let released = client.daemon.release(ticket, client.scope(), why);
    released.map_err(|gone| tickets::gone_text(word, gone))?;
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn update(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("REG.UPDATE", "a regulator")?;
    let word = arguments.text("REG.UPDATE", "microseconds")?;
    arguments.end("REG.UPDATE")?;
    let micros: i64 = word
        .parse()
        .map_err(|_| Mistake::wrong("REG.UPDATE", "microseconds", word.as_bytes()))?;
    super::may_use(client, "regulator", name)?;
    let lead = Lead::from_nanos(micros.saturating_mul(1_000));
    let place = regulator(client, name)?;
    if !place.is_here() {
        return Err(shared::not_here("regulator", name));
    }
    place.regulator.update(lead);
    client.reply().simple("OK");
    Ok(Next::Done)
}

fn lease_of(word: &[u8]) -> Result<Ticket, CommandError> {
    let ticket = tickets::parse(word)?;
    if ticket.kind == TicketKind::Lease {
        return Ok(ticket);
    }
    Err(CommandError(format!(
        "WRONGTYPE {} is not a lease of a regulator.",
        Quoted(word)
    )))
}

fn regulator(client: &Client, name: &str) -> Result<Arc<NamedRegulator>, CommandError> {
    let catalog = client.daemon.catalog.load();
    catalog.regulators.get(name).cloned().ok_or_else(|| {
        CommandError::no_such(
            "regulator",
            name,
            "add [regulator] to the config, and CONFIG RELOAD.",
        )
    })
}
