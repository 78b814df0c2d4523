//! A value that is asked for now and told later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau::Failed;
use rideau::allocator::{Place, Refused, Reservation, Size};

use super::words::Words;
use super::{TIERS, no};
use crate::client::{Client, Step, Tail, Wrong};
use crate::command::tickets::{self, Answer};
use crate::daemon::Daemon;
use crate::grant::{Grant, HeldValue};
use crate::outcome::{Outcome, Part};
use crate::ticket::Kind;
use crate::values::owner_of;

/// Give a ticket of the ask now. Its answer is what `RESERVE` would have told, after
/// that ticket.
pub(super) fn reserve(client: &mut Client, words: &Words<'_>) -> Result<Step, Wrong> {
    client.may_wait()?;
    let tail = words.how().tail;
    let limit = client.wait_max(&Tail {
        wait: words.wait,
        ..Tail::default()
    });
    let daemon = Arc::clone(&client.daemon);
    let ask = words.ask(owner_of(client.user.as_deref()));
    let reserving = daemon.values.ranges.reserve_within(&ask, limit);
    let name = name(client, words);
    let since = Instant::now();
    tickets::later(client, Kind::Value, &name, &tail, async move {
        let decision = reserving.await;
        answer(&daemon, decision, since.elapsed())
    })
}

fn answer(daemon: &Daemon, decision: Result<Vec<Reservation>, Failed>, took: Duration) -> Answer {
    let granted = decision.map_err(|failed| match failed {
        Failed::Refused(Refused::Exhausted { free, size }) => {
            Outcome::new("none", vec![part(free), part(size)])
        }
        failed => Outcome::new("failed", vec![failed.to_string().into()]),
    })?;
    let reservation = granted[0];
    let Reservation {
        value, kind, fence, ..
    } = reservation;
    let places = daemon.places.load();
    let place = places.ranges.of(value).map(|(place, _)| place);
    if let Some(place) = place {
        place.counts.give(took, 1);
    }
    let values = &daemon.values;
    let parts = vec![
        kind.print(value).into(),
        Part::Text(values.ticket(value, fence).as_ref().to_vec()),
        Part::Number(no::millis(reservation.until, values.ranges.now())),
        TIERS[usize::from(reservation.tier) % TIERS.len()].into(),
        Part::Number(0),
        Part::Number(fence as i64),
    ];
    let held = HeldValue {
        ranges: values.ranges.clone(),
        range: place.map_or_else(|| "".into(), |place| Arc::clone(&place.name)),
        value,
        kind,
        fence,
        is_lease: !place.is_some_and(|place| place.is_of_connection()),
    };
    Ok((parts, Grant::Value(held)))
}

fn part(size: Size) -> Part {
    match size.to_u128().and_then(|size| i64::try_from(size).ok()) {
        Some(size) => Part::Number(size),
        None => size.to_string().into(),
    }
}

/// What is asked for, for those who look at who waits.
fn name(client: &Client, words: &Words<'_>) -> String {
    let places = client.daemon.places.load();
    let first = words.prefer().first().map(|prefer| prefer.place);
    let place = match first {
        Some(Place::Range(id)) => places.ranges.by_id(id),
        Some(Place::Within(within)) => {
            let place = places.ranges.of(within.first());
            place.map(|(place, _)| place)
        }
        None => None,
    };
    place.map_or_else(String::new, |place| place.name.to_string())
}
