//! Why a value was not given out or changed, in words one can act on.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rideau::allocator::{Place, Prefer, Refused, Size};
use rideau::{Failed, Instant, Reason, Refusal};
use rideau_core::Brief;
use rideau_resp::Reply;

use crate::redis::client::{Client, CommandError, STOPPING, refused as refused_ask};
use crate::state::answer::{AnswerField, Outcome};
use crate::state::catalog::Catalog;
use crate::state::daemon::Daemon;
use crate::state::values::unsafe_text;
use crate::view::explain;

/// Why there is no answer; `what` is the value, or what else was named.
pub(super) fn failed(client: &Client, failed: &Failed, what: impl Display) -> CommandError {
    match failed {
        Failed::Refused(no) => refused(client, no, &what),
        Failed::Closed => CommandError(format!("READONLY {STOPPING}.")),
        failed => CommandError(unsafe_text(failed)),
    }
}

/// A fence that does not count. Whose value it is, and with which fence, is for no
/// other client to know.
pub(super) fn stale(what: impl Display) -> CommandError {
    CommandError(format!(
        "STALE {what}: another holder has it. Your lease has ended, and nothing was changed."
    ))
}

/// No value is free, at once or after such a wait.
pub(super) fn none(
    daemon: &Daemon,
    prefer: &[Prefer],
    free: Size,
    size: Size,
    waited: Option<Duration>,
) -> Outcome {
    let quarantined = quarantined(daemon, prefer);
    let refusal = Refusal {
        reason: match waited {
            Some(_) => Reason::Timeout,
            None => Reason::Busy,
        },
        waited: waited.unwrap_or_default(),
        len: 0,
        retry_after: quarantined
            .as_ref()
            .map_or(Duration::ZERO, |(_, left)| *left),
    };
    let why = match quarantined {
        Some((why, _)) => why,
        None => format!("{free} of {size} values are free"),
    };
    let name = name(daemon, prefer);
    let no = refused_ask(daemon, "range", &name, &refusal, why, String::new);
    no.none(part(free), part(size))
}

/// The server stops.
pub(super) fn stopped(daemon: &Daemon, prefer: &[Prefer], refusal: &Refusal) -> Outcome {
    let name = name(daemon, prefer);
    refused_ask(
        daemon,
        "range",
        &name,
        refusal,
        STOPPING.into(),
        String::new,
    )
}

/// The range where it was wanted most.
pub(super) fn name(daemon: &Daemon, prefer: &[Prefer]) -> String {
    let catalog = daemon.catalog.load();
    let place = match prefer.first().map(|prefer| prefer.place) {
        Some(Place::Range(id)) => catalog.ranges.by_id(id),
        Some(Place::Within(within)) => {
            let place = catalog.ranges.of(within.first());
            place.map(|(place, _)| place)
        }
        None => None,
    };
    place.map_or_else(String::new, |place| place.name.to_string())
}

/// Why nothing is free where it was wanted most, and for how long, if the holders of
/// its values are unknown: a client that is told only how many there are would look for
/// holders.
fn quarantined(daemon: &Daemon, prefer: &[Prefer]) -> Option<(String, Duration)> {
    let Place::Range(id) = prefer.first()?.place else {
        return None;
    };
    let ranges = &daemon.values.ranges;
    let stats = ranges.stats(id)?;
    let until = stats.quarantined_until?;
    let left = Duration::from_millis(millis(until, ranges.now()).unsigned_abs());
    let why = format!(
        "{} are quarantined for {}: EXPLAIN {} says why",
        stats.quarantined,
        explain::span(left),
        stats.name
    );
    Some((why, left))
}

fn refused(client: &Client, no: &Refused, what: &dyn Display) -> CommandError {
    let counts = &client.daemon.counts;
    CommandError(match no {
        Refused::UnknownRange => {
            format!("NOSUCH range {what}: SHOW RANGES lists them.")
        }
        Refused::OutOfRange => {
            format!("NOSUCH value {what}: it is outside every range; SHOW RANGES lists them.")
        }
        Refused::Draining => format!("READONLY {no}: name another range."),
        Refused::NotReserved => format!("NOTHELD {what}: {no}."),
        Refused::Conflict { .. } => return stale(what),
        Refused::Foreign => format!(
            "NOPERM {what} belongs to another user, and nothing was changed: name its ticket."
        ),
        Refused::NoFence => format!(
            "ERR {what}: {no}; write FENCE and the number that RESERVE answered, or name the \
             ticket."
        ),
        Refused::TooLong { ttl_max } => {
            let most = ttl_max.as_millis();
            format!("ERR TTL is over the range's ttl_max: it takes at most {most} milliseconds.")
        }
        Refused::Full { reservations_max } => {
            count_refused(&counts.reservations_refused);
            format!(
                "BUSY limits.reservations_max ({reservations_max}) reached: release some values or \
                 raise it."
            )
        }
        Refused::Crowded(refusal) => {
            count_refused(&counts.waits_refused);
            format!(
                "BUSY {} asks wait for values, the most that may: retry in {} (retry_after_us={}).",
                refusal.len,
                Brief(refusal.retry_after),
                refusal.retry_after.as_micros()
            )
        }
        Refused::NotHere { partition } => format!(
            "CLUSTERDOWN partition {partition} has just moved to another node; nothing was done. \
             Ask again."
        ),
        Refused::TooManyKeys => {
            count_refused(&counts.range_keys_refused);
            format!("ERR {no}.")
        }
        Refused::TooMuchData => {
            count_refused(&counts.range_data_refused);
            format!("ERR {no}.")
        }
        no => format!("ERR {no}."),
    })
}

/// A limit turned a client away.
pub(super) fn count_refused(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// There is no range of this name.
pub(super) fn no_range(catalog: &Catalog, name: &str) -> CommandError {
    match catalog.views.find(name) {
        Some(_) => only_counts(name),
        None => CommandError::no_such("range", name, "SHOW RANGES lists them, RANGE.ADD adds one."),
    }
}

/// A client wants of a view what only ranges have.
pub(super) fn only_counts(name: &str) -> CommandError {
    CommandError(format!(
        "ERR {name} is a view, which only counts: name a range; SHOW RANGES lists them."
    ))
}

/// A word that means nothing was rather meant as a name than as values.
pub(super) fn is_name(word: &str) -> bool {
    let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic()) && !word.contains(':');
    is_name || word.is_empty()
}

/// How many values: an integer where one can say it, and else a text.
fn part(size: Size) -> AnswerField {
    match size.to_u128().and_then(|size| i64::try_from(size).ok()) {
        Some(size) => AnswerField::Number(size),
        None => size.to_string().into(),
    }
}

/// The same, written.
pub(super) fn write_size(reply: &mut Reply<'_>, size: Size) {
    part(size).write(reply);
}

/// Whole milliseconds until then.
pub(super) fn millis(until: Instant, now: Instant) -> i64 {
    let left = until.as_nanos().saturating_sub(now.as_nanos());
    i64::try_from(Duration::from_nanos(left).as_millis()).unwrap_or(i64::MAX)
}
