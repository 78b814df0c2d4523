//! Those who ask and those who offer themselves.

use std::sync::Arc;

use rideau::{Flow, Lead, Match, Now, Refused, Side, Terms};

use super::tickets::{self, Answer};
use crate::client::{Client, Step, Tail, Wrong, refused};
use crate::daemon::Daemon;
use crate::grant::Grant;
use crate::holdings::{Thing, Why};
use crate::meeting::{Mail, Meeting, Party};
use crate::outcome::{Outcome, Part, micros};
use crate::places::BrokerPlace;
use crate::resp::{Mistake, Quoted, Request, Upper};
use crate::ticket::Kind;

/// What `ASK` and `OFFER` say.
struct Words<'a> {
    name: &'a str,
    value: &'a [u8],
    flow: Flow,
    /// Never wait.
    is_now: bool,
    /// Wait in the background if one has to wait.
    is_dynamic: bool,
    tail: Tail,
}

pub(super) fn ask(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    come(client, request, Side::Ask)
}

pub(super) fn offer(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    come(client, request, Side::Offer)
}

fn come(client: &mut Client, request: Request<'_>, side: Side) -> Result<Step, Wrong> {
    let command = match side {
        Side::Ask => "ASK",
        Side::Offer => "OFFER",
    };
    let words = Words::parse(client, request, command)?;
    super::may_use(client, "broker", words.name)?;
    let place = broker(client, words.name)?;
    if let Some(step) = tickets::repeated(client, &words.tail) {
        return Ok(step);
    }
    let party = Party::new(words.value);
    let own = Arc::clone(&party.mail);
    if words.is_now {
        return come_now(client, &place, party, own, side, &words.tail);
    }
    client.may_wait()?;
    let terms = Terms {
        wait_max: Some(client.wait_max(&words.tail)),
        flow: words.flow,
        ..Terms::default()
    };
    let mut tail = words.tail;
    tail.is_async |= words.is_dynamic;
    let name = words.name.to_owned();
    let (daemon, at) = (Arc::clone(&client.daemon), Arc::clone(&place));
    let answer = move |met| answer(&daemon, &at, own, met);
    match side {
        Side::Ask => match place.broker.ask_now(party, terms) {
            Now::Answered(met) => tickets::settle(client, Kind::Match, answer(met), &tail),
            Now::Waiting(wait) => waiting(client, name, tail, async move { answer(wait.await) }),
        },
        Side::Offer => match place.broker.offer_now(party, terms) {
            Now::Answered(met) => tickets::settle(client, Kind::Match, answer(met), &tail),
            Now::Waiting(wait) => waiting(client, name, tail, async move { answer(wait.await) }),
        },
    }
}

/// Meet somebody who is there, or nobody.
fn come_now(
    client: &mut Client,
    place: &Arc<BrokerPlace>,
    party: Party,
    own: Arc<Mail>,
    side: Side,
    tail: &Tail,
) -> Result<Step, Wrong> {
    let met = match side {
        Side::Ask => place.broker.try_ask(party),
        Side::Offer => place.broker.try_offer(party),
    };
    let daemon = Arc::clone(&client.daemon);
    let answer = met_or_no(place, own, met).map_err(|refusal| {
        if refusal.reason == rideau::Reason::Busy {
            return Outcome::new("retry", vec![micros(refusal.waited)]);
        }
        no(&daemon, place, &refusal)
    });
    tickets::settle(client, Kind::Match, answer, tail)
}

fn waiting(
    client: &mut Client,
    name: String,
    tail: Tail,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Result<Step, Wrong> {
    if tail.is_async {
        return tickets::later(client, Kind::Match, &name, &tail, answer);
    }
    Ok(Step::Wait(tickets::blocked(
        Kind::Match,
        name,
        tail,
        answer,
    )))
}

type Met = Result<Match<Party>, Refused<Party>>;

fn answer(daemon: &Daemon, place: &Arc<BrokerPlace>, own: Arc<Mail>, met: Met) -> Answer {
    met_or_no(place, own, met).map_err(|refusal| no(daemon, place, &refusal))
}

fn met_or_no(
    place: &Arc<BrokerPlace>,
    own: Arc<Mail>,
    met: Met,
) -> Result<(Vec<Part>, Grant), rideau::Refusal> {
    let met = met.map_err(|no| no.refusal)?;
    let parts = vec![
        Part::Text(met.value.value.clone()),
        Part::Number(lead_micros(met.lead)),
        micros(met.waited),
    ];
    let meeting = Meeting::new(Arc::clone(place), own, met.value, met.peer);
    Ok((parts, Grant::Match(meeting)))
}

fn lead_micros(lead: Lead) -> i64 {
    lead.as_nanos() / 1_000
}

fn no(daemon: &Daemon, place: &BrokerPlace, refusal: &rideau::Refusal) -> Outcome {
    let why = refusal.to_string();
    refused(daemon, "broker", &place.name, refusal, why, || {
        place.broker.explain()
    })
}

fn broker(client: &Client, name: &str) -> Result<Arc<BrokerPlace>, Wrong> {
    let places = client.daemon.places.load();
    places.brokers.get(name).cloned().ok_or_else(|| {
        Wrong::no_such(
            "broker",
            name,
            "SHOW BROKERS lists those there are; add [broker] to the config for more.",
        )
    })
}

pub(super) fn len(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let name = arguments.text("LEN", "a broker")?;
    arguments.end("LEN")?;
    super::may_use(client, "broker", name)?;
    let place = broker(client, name)?;
    let (asks, offers) = (place.broker.len(Side::Ask), place.broker.len(Side::Offer));
    client
        .reply()
        .array(2)
        .integer(asks as i64)
        .integer(offers as i64);
    Ok(Step::Done)
}

pub(super) fn done(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.word("DONE", "the ref of a match")?;
    let payload = arguments.next().map(<[u8]>::to_vec);
    arguments.end("DONE")?;
    let ticket = tickets::parse(word)?;
    if ticket.kind != Kind::Match {
        return Err(Wrong(format!(
            "WRONGTYPE {} is no match: end it with RELEASE.",
            Quoted(word)
        )));
    }
    let taken = client
        .daemon
        .holdings
        .take(ticket, client.scope(), Why::Released);
    let taken = taken.map_err(|gone| tickets::gone_text(word, gone))?;
    if let Thing::Held(Grant::Match(meeting)) | Thing::Untold(Grant::Match(meeting), _) =
        taken.thing
    {
        meeting.done(payload);
    }
    client.reply().simple("OK");
    Ok(Step::Done)
}

impl<'a> Words<'a> {
    fn parse(client: &Client, request: Request<'a>, command: &'static str) -> Result<Self, Wrong> {
        let mut arguments = request.arguments();
        let mut words = Self {
            name: arguments.text(command, "a broker")?,
            value: b"",
            flow: Flow(0),
            is_now: false,
            is_dynamic: false,
            tail: Tail::default(),
        };
        while let Some(option) = arguments.next() {
            match Upper::of(option).as_bytes() {
                b"VALUE" => words.value = arguments.word("VALUE", "a value")?,
                b"FLOW" => words.flow = Flow::of(arguments.word("FLOW", "a flow's name")?),
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
