//! A value that is asked for now and told later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau::Failed;
use rideau::allocator::{Prefer, Refused, Reservation};

use super::words::Words;
use super::{TIERS, no};
use crate::redis::client::{AskArgs, Client, CommandError, Next, closed};
use crate::redis::commands::tickets::{self, Answer};
use crate::state::answer::{AnswerField, Outcome};
use crate::state::daemon::Daemon;
use crate::state::grant::{Grant, HeldValue};
use crate::state::ticket::TicketKind;
use crate::state::values::owner_of;

/// Give a ticket of the ask now. Its answer is what `RESERVE` would have told, after
/// that ticket.
pub(super) fn reserve(client: &mut Client, words: &Words<'_>) -> Result<Next, CommandError> {
    client.may_wait()?;
    let tail = words.how().tail;
    let limit = client.wait_max(&AskArgs {
        wait: words.wait,
        ..AskArgs::default()
    });
    let daemon = Arc::clone(&client.daemon);
    let ask = words.ask(owner_of(client.user.as_deref()));
    let reserving = daemon.values.ranges.reserve_within(&ask, limit);
    let prefer = words.prefer().to_vec();
    let name = no::name(&daemon, &prefer);
    let since = Instant::now();
    tickets::later(client, TicketKind::Value, &name, &tail, async move {
        let decision = reserving.await;
        answer(&daemon, &prefer, decision, since.elapsed())
    })
}

fn answer(
    daemon: &Daemon,
    prefer: &[Prefer],
    decision: Result<Vec<Reservation>, Failed>,
    took: Duration,
) -> Answer {
    let granted = decision.map_err(|failed| match failed {
        Failed::Refused(Refused::Exhausted { free, size }) => {
            no::none(daemon, prefer, free, size, Some(took))
        }
        Failed::Closed => no::stopped(daemon, prefer, &closed(took)),
        failed => Outcome::new("failed", vec![failed.to_string().into()]),
    })?;
    let reservation = granted[0];
    let Reservation {
        value, kind, fence, ..
    } = reservation;
    let catalog = daemon.catalog.load();
    let place = catalog.ranges.of(value).map(|(place, _)| place);
    if let Some(place) = place {
        place.counts.give(took, 1);
    }
    let values = &daemon.values;
    let parts = vec![
        kind.print(value).into(),
        AnswerField::Text(values.ticket(value, fence).as_ref().to_vec()),
        AnswerField::Number(no::millis(reservation.until, values.ranges.now())),
        TIERS[usize::from(reservation.tier) % TIERS.len()].into(),
        AnswerField::Number(0),
        AnswerField::Number(fence as i64),
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
