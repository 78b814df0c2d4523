//! Clients that ask and clients that offer themselves.

use std::sync::Arc;
use std::time::Duration;

use rideau::{AskOptions, Flow, Lead, Match, Now, Refused, Side};
use rideau_resp::{Mistake, Quoted, Request, Upper};

use super::ask_args;
use super::shared::{self, PlaceAsk};
use super::tickets::{self, Answer};
use crate::redis::client::{AskArgs, Client, CommandError, Next, refused};
use crate::state::answer::{AnswerField, Outcome, micros};
use crate::state::catalog::NamedBroker;
use crate::state::cluster::PlaceKind;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::grant::Grant;
use crate::state::matches::{HeldMatch, Mailbox, Party};
use crate::state::ticket::TicketKind;

/// The arguments of `ASK` and `OFFER`.
struct Words<'a> {
    name: &'a str,
    value: &'a [u8],
    flow: Flow,
    /// Never wait.
    is_now: bool,
    /// Wait in the background if one has to wait.
    is_dynamic: bool,
    tail: AskArgs,
}

pub(super) fn ask(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    come(client, request, Side::Ask)
}

pub(super) fn offer(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    come(client, request, Side::Offer)
}

fn come(client: &mut Client, request: Request<'_>, side: Side) -> Result<Next, CommandError> {
    let command = match side {
        Side::Ask => "ASK",
        Side::Offer => "OFFER",
    };
    let mut words = Words::parse(client, request, command)?;
    super::may_use(client, "broker", words.name)?;
    let place = match words.name.strip_prefix('@') {
        Some(group) => one_of(client, group, side)?,
        None => known_broker(client, words.name)?,
    };
    words.tail.is_async |= words.is_dynamic;
    words.is_now |= client.is_in_exec && !words.tail.is_async;
    words.tail.cap_by(|| {
        let options = place.broker.options();
        match side {
            Side::Ask => options.asks,
            Side::Offer => options.offers,
        }
    });
    if let Some(step) = tickets::repeated(client, &words.tail) {
        return Ok(step);
    }
    if let Some(home) = place.shared.as_ref().map(|shared| shared.home.clone()) {
        return come_shared(client, words, home, side);
    }
    let party = Party::new(words.value);
    let own = Arc::clone(&party.mail);
    if words.is_now {
        return come_now(client, &place, party, own, side, &words.tail);
    }
    client.may_wait()?;
    let terms = AskOptions {
        flow: words.flow,
        ..client.terms(&words.tail)
    };
    let tail = words.tail;
    match side {
        Side::Ask => match place.broker.ask_now(party, terms) {
            Now::Answered(met) => settle(client, &place, own, met, &tail),
            Now::Waiting(met) => {
                let waits = met.ticket();
                waiting(client, place, own, tail, met, waits)
            }
        },
        Side::Offer => match place.broker.offer_now(party, terms) {
            Now::Answered(met) => settle(client, &place, own, met, &tail),
            Now::Waiting(met) => {
                let waits = met.ticket();
                waiting(client, place, own, tail, met, waits)
            }
        },
    }
}

/// Come to a broker that nodes share.
fn come_shared(
    client: &mut Client,
    words: Words<'_>,
    home: Box<str>,
    side: Side,
) -> Result<Next, CommandError> {
    let ask = PlaceAsk {
        kind: match side {
            Side::Ask => PlaceKind::Ask,
            Side::Offer => PlaceKind::Offer,
        },
        name: words.name,
        value: words.value,
        terms: AskOptions {
            flow: words.flow,
            ..client.terms(&words.tail)
        },
        is_now: words.is_now,
    };
    shared::come(client, &ask, home, words.tail)
}

/// Answer an ask or an offer that came, without any detour.
fn settle(
    client: &mut Client,
    place: &Arc<NamedBroker>,
    own: Arc<Mailbox>,
    met: Met,
    tail: &AskArgs,
) -> Result<Next, CommandError> {
    let Match {
        value: other,
        lead,
        waited,
        peer,
        ..
    } = match met {
        Ok(met) => met,
        Err(Refused { refusal, .. }) => {
            client.tell_no(&no(&client.daemon, place, &refusal));
            return Ok(Next::Done);
        }
    };
    let value = Arc::clone(&other.value);
    let held_match = HeldMatch::new(Arc::clone(&place.name), Arc::clone(&own), other, peer);
    let ticket = client.keep(TicketKind::Match, Grant::Match(held_match), tail)?;
    client.remember(tail, ticket, || parts(&value, lead, waited));
    let waited = i64::try_from(waited.as_micros()).unwrap_or(i64::MAX);
    let mut reply = client.reply_go(5, ticket);
    reply
        .bulk(&value)
        .integer(lead_micros(lead))
        .integer(waited);
    own.begin(ticket, &client.card.outbox);
    Ok(Next::Done)
}

/// Meet a party that is there, or none.
fn come_now(
    client: &mut Client,
    place: &Arc<NamedBroker>,
    party: Party,
    own: Arc<Mailbox>,
    side: Side,
    tail: &AskArgs,
) -> Result<Next, CommandError> {
    let met = match side {
        Side::Ask => place.broker.try_ask(party),
        Side::Offer => place.broker.try_offer(party),
    };
    let daemon = Arc::clone(&client.daemon);
    let answer = met_or_no(place, own, met).map_err(|refusal| {
        let no = no(&daemon, place, &refusal);
        match refusal.reason {
            rideau::Reason::Busy => no.with_word("retry"),
            _ => no,
        }
    });
    tickets::settle(client, TicketKind::Match, answer, tail)
}

fn waiting(
    client: &mut Client,
    place: Arc<NamedBroker>,
    own: Arc<Mailbox>,
    tail: AskArgs,
    met: impl Future<Output = Met> + Send + 'static,
    waits: Option<rideau::Ticket>,
) -> Result<Next, CommandError> {
    let name = Arc::clone(&place.name);
    if tail.is_async {
        let daemon = Arc::clone(&client.daemon);
        // The broker says whether the other party came before it was cancelled: that
        // party has been told of the match.
        let broker = place.broker.clone();
        let withdraw: tickets::Withdraw =
            Box::new(move || waits.is_some_and(|ticket| broker.cancel(ticket)));
        let answer = async move { answer(&daemon, &place, own, met.await) };
        let (kind, withdraw) = (TicketKind::Match, Some(withdraw));
        return tickets::later_or_withdrawn(client, kind, &name, &tail, answer, withdraw);
    }
    let answer = async move {
        let met = met.await;
        move |client: &mut Client| settle(client, &place, own, met, &tail)
    };
    let name = name.to_string();
    let wait = tickets::blocked_until(TicketKind::Match, name, answer);
    Ok(Next::Wait(wait))
}

type Met = Result<Match<Party>, Refused<Party>>;

fn answer(daemon: &Daemon, place: &Arc<NamedBroker>, own: Arc<Mailbox>, met: Met) -> Answer {
    met_or_no(place, own, met).map_err(|refusal| no(daemon, place, &refusal))
}

fn met_or_no(
    place: &Arc<NamedBroker>,
    own: Arc<Mailbox>,
    met: Met,
) -> Result<(Vec<AnswerField>, Grant), rideau::Refusal> {
    let met = met.map_err(|no| no.refusal)?;
    let parts = parts(&met.value.value, met.lead, met.waited);
    let held_match = HeldMatch::new(Arc::clone(&place.name), own, met.value, met.peer);
    Ok((parts, Grant::Match(held_match)))
}

fn parts(value: &[u8], lead: Lead, waited: Duration) -> Vec<AnswerField> {
    vec![
        AnswerField::Text(value.into()),
        AnswerField::Number(lead_micros(lead)),
        micros(waited),
    ]
}

fn lead_micros(lead: Lead) -> i64 {
    lead.as_nanos() / 1_000
}

fn no(daemon: &Daemon, place: &NamedBroker, refusal: &rideau::Refusal) -> Outcome {
    let why = refusal.to_string();
    refused(daemon, "broker", &place.name, refusal, why, || {
        place.broker.explain()
    })
}

/// A broker of a group, chosen for an ask or offer that comes to this side.
fn one_of(client: &Client, name: &str, side: Side) -> Result<Arc<NamedBroker>, CommandError> {
    let catalog = client.daemon.catalog.load();
    let chosen = catalog.groups.get(name);
    chosen
        .and_then(|group| group.brokers.choose(side))
        .ok_or_else(|| {
            CommandError::no_such(
                "broker",
                format!("@{name}"),
                "SHOW GROUPS lists groups; write group in a [broker] to have it in one.",
            )
        })
}

/// The broker of this name; most clients that come to one came to it before.
fn known_broker(client: &mut Client, name: &str) -> Result<Arc<NamedBroker>, CommandError> {
    if let Some(known) = client.broker.upgrade()
        && *known.name == *name
    {
        return Ok(known);
    }
    let place = broker(client, name)?;
    client.broker = Arc::downgrade(&place);
    Ok(place)
}

fn broker(client: &Client, name: &str) -> Result<Arc<NamedBroker>, CommandError> {
    let catalog = client.daemon.catalog.load();
    catalog.brokers.get(name).cloned().ok_or_else(|| {
        CommandError::no_such(
            "broker",
            name,
            "SHOW BROKERS lists them; add [broker] to the config for more.",
        )
    })
}

pub(super) fn len(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("LEN", "a broker")?;
    arguments.end("LEN")?;
    super::may_use(client, "broker", name)?;
    let place = broker(client, name)?;
    if !place.is_here() {
        return Err(shared::not_here("broker", name));
    }
    let (asks, offers) = (place.broker.len(Side::Ask), place.broker.len(Side::Offer));
    client
        .reply()
        .array(2)
        .integer(asks as i64)
        .integer(offers as i64);
    Ok(Next::Done)
}

pub(super) fn done(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("DONE", "the ref of a match")?;
    let payload = arguments.next().map(<[u8]>::to_vec);
    arguments.end("DONE")?;
    let ticket = tickets::parse(word)?;
    if ticket.kind != TicketKind::Match {
        return Err(CommandError(format!(
            "WRONGTYPE {} is not a match: end it with RELEASE.",
            Quoted(word)
        )));
    }
    let lease_table = &client.daemon.lease_table;
    let taken = lease_table.take_at(ticket, client.scope(), EndReason::Released, client.now);
    let taken = taken.map_err(|gone| tickets::gone_text(word, gone))?;
    if let Some(grant) = taken.thing.into_grant() {
        grant.done(payload);
    }
    client.reply_ok();
    Ok(Next::Done)
}

impl<'a> Words<'a> {
    fn parse(
        client: &Client,
        request: Request<'a>,
        command: &'static str,
    ) -> Result<Self, CommandError> {
        let mut arguments = request.arguments();
        let mut words = Self {
            name: arguments.text(command, "a broker")?,
            value: b"",
            flow: Flow(0),
            is_now: false,
            is_dynamic: false,
            tail: AskArgs::default(),
        };
        while let Some(option) = arguments.next() {
            match Upper::of(option).as_bytes() {
                b"VALUE" => words.value = arguments.word("VALUE", "a value")?,
                b"FLOW" => words.flow = ask_args::flow(&mut arguments, client)?,
                b"NB" => words.is_now = true,
                b"DYN" => words.is_dynamic = true,
                upper => {
                    if !words.tail.option(upper, &mut arguments, client)? {
                        return Err(Mistake::unknown(command, option).into());
                    }
                }
            }
        }
        Ok(words)
    }
}
