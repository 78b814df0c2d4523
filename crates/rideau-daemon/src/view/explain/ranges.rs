//! Explains a range or a value.

use std::fmt::Write;
use std::time::Duration;

use rideau::Instant;
use rideau::allocator::{RangeStats, Seen, Which, parse_value};
use rideau_config::human::count;
use rideau_config::{RangeConfig, show_span};

use super::{Explained, span};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

/// A range: how full it is, and what would help.
pub(super) fn range(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("range", name).then_some(())?;
    let ranges = &daemon.values.ranges;
    let stats = ranges.stats(ranges.range(name)?)?;
    let mut text = format!(
        "Range {name} has {} values from {} on: {} are free, {} reserved, {} quarantined, {} \
         detached, {} cooling.\n",
        stats.size,
        stats.kind.print(stats.first),
        stats.free,
        stats.reserved,
        stats.quarantined,
        stats.detached,
        stats.cooling,
    );
    if stats.is_draining {
        text.push_str("It is draining: it gives out nothing more, and goes with its last value.\n");
    }
    if let Some(until) = stats.quarantined_until {
        let left = span(left(until, ranges.now()));
        let _ = writeln!(
            text,
            "It is not known which of the quarantined ones have holders: those that are not \
             renewed are free in \
             {left}."
        );
    }
    if stats.free.is_zero() && !stats.is_draining {
        let config = daemon.config.load();
        let config = config.ranges.iter().find(|range| range.name == name);
        let _ = writeln!(text, "{}", remedy(&stats, config));
    }
    if let Some(failed) = ranges.failed() {
        let _ = writeln!(text, "No range answers: {failed}.");
    }
    Some(Explained {
        kind: "range",
        name: name.into(),
        text,
        facts: vec![
            ("size", stats.size.to_string().into()),
            ("free", stats.free.to_string().into()),
            ("reserved", stats.reserved.into()),
            ("quarantined", stats.quarantined.to_string().into()),
            ("detached", stats.detached.into()),
            ("cooling", stats.cooling.into()),
            ("is_draining", usize::from(stats.is_draining).into()),
        ],
    })
}

fn remedy(stats: &RangeStats, config: Option<&RangeConfig>) -> String {
    let name = &stats.name;
    let sooner = config.and_then(|config| sooner(stats, config));
    format!(
        "Nothing is free. More values: RANGE.SET {name} values '[…]'; {}elsewhere: RESERVE {name} \
         PREFER another.",
        sooner.unwrap_or_default()
    )
}

/// The option that keeps most values away for as long as it is, and half of that.
fn sooner(stats: &RangeStats, config: &RangeConfig) -> Option<String> {
    /// No client wants to renew more often.
    const SHORT: Duration = Duration::from_secs(2);
    let (name, options) = (&stats.name, &config.options);
    let kept = [
        (stats.reserved, "ttl", options.ttl),
        (stats.detached, "detach", options.detach),
        (stats.cooling, "cool", options.cool),
    ];
    let (_, key, now) = kept.into_iter().max_by_key(|(count, ..)| *count)?;
    // In whole seconds, as people write them.
    let half = Duration::from_secs(now.as_secs() / 2);
    (now >= SHORT).then(|| {
        let (half, now) = (show_span(half), show_span(now));
        format!("sooner back: RANGE.SET {name} {key} {half}, it is {now} now; ")
    })
}

/// A value, or the ticket of one.
pub(super) fn value(daemon: &Daemon, word: &str, viewer: Viewer<'_>) -> Option<Explained> {
    let ticket = daemon.values.read_ticket(word.as_bytes());
    let value = match ticket {
        Some((value, _)) => value,
        None => parse_value(word).ok()?.1,
    };
    let catalog = daemon.catalog.load();
    let name = catalog
        .ranges
        .of(value)
        .map_or("*", |(place, _)| &place.name);
    viewer.sees("range", name).then_some(())?;
    let ranges = &daemon.values.ranges;
    let (seen, _) = ranges.lookup(Which::Value(value)).into_parts();
    let seen = seen.ok().and_then(|seen| seen.into_iter().next());
    if let Some(seen) = seen {
        let is_old = ticket.is_some_and(|(_, fence)| fence != seen.fence);
        let is_new = ticket.is_some() && !is_old;
        let sees_fence = is_new || viewer.sees_fence(seen.owner.as_deref());
        return Some(held(daemon, &seen, is_old, sees_fence));
    }
    let (place, kind) = catalog.ranges.of(value)?;
    let (shown, state) = (kind.print(value), ranges.stands(value).word());
    let range = &place.name;
    Some(Explained {
        kind: "value",
        name: shown.clone(),
        text: format!("{shown} of range {range} is {state}: it is not held.\n"),
        facts: vec![("state", state.into()), ("range", (&**range).into())],
    })
}

fn held(daemon: &Daemon, seen: &Seen, is_old: bool, sees_fence: bool) -> Explained {
    let ranges = &daemon.values.ranges;
    let now = ranges.now();
    let range = seen.range.and_then(|range| ranges.name(range));
    let range = range.unwrap_or_else(|| "(removed)".into());
    let (shown, state) = (seen.kind.print(seen.value), seen.standing.word());
    let (ends, age) = (left(seen.until, now), left(now, seen.created));
    let fence = match sees_fence {
        true => format!(" with the fence {}", seen.fence),
        false => String::new(),
    };
    let mut text = format!(
        "{shown} of range {range} is {state}{fence}; given out {} ago, changed {} since, and ends \
         in {} unless it is renewed. It has {} and {}.\n",
        span(age),
        count(seen.updates as usize, "time"),
        span(ends),
        count(seen.keys.len(), "key"),
        count(seen.data.iter().count(), "field"),
    );
    if is_old {
        text.push_str("The ticket is that of a holder before: it can change nothing any more.\n");
    }
    Explained {
        kind: "value",
        name: shown,
        text,
        facts: vec![
            ("state", state.into()),
            ("range", range.into()),
            ("fence", sees_fence.then_some(seen.fence).into()),
            ("left_us", ends.into()),
            ("age_us", age.into()),
            ("updates", u64::from(seen.updates).into()),
            ("keys", seen.keys.len().into()),
        ],
    }
}

fn left(until: Instant, now: Instant) -> Duration {
    Duration::from_nanos(until.as_nanos().saturating_sub(now.as_nanos()))
}
