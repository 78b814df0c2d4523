//! Says in plain words why asks wait, why they were shed and what would help.

use crate::ledger::Reply;
use crate::time::Instant;
use crate::valve::{Circuit, Stats, Valve};
use crate::waiting::{Account, Waiting};

/// How it is now, why the last asks were shed, and what to try.
pub(super) fn explain<R: Reply>(
    asks: &Waiting<R>,
    valve: &Valve,
    is_open: bool,
    is_closing: bool,
    now: Instant,
) -> String {
    let (len, size) = (asks.len(), valve.size());
    if is_closing {
        return format!(
            "The regulator is closing: nothing is granted or renewed. {size} leases are \
             held."
        );
    }
    let parts = valve.stats();
    let shut: Vec<_> = parts.iter().filter(|part| !is_open_by(part, now)).collect();
    let state = if is_open {
        format!("The valve is open: the next ask is granted at once. {size} leases are held.")
    } else {
        let why: Vec<_> = shut.iter().map(|part| why_shut(part, size, now)).collect();
        let why = if why.is_empty() {
            "it opens with the next input".into()
        } else {
            why.join(", and ")
        };
        format!("The valve is closed: {why}. {size} leases are held and {len} asks wait.")
    };
    let telling = shut.first().copied().unwrap_or(&parts[0]);
    let account = Account {
        served: "granted",
        scarce: scarce(telling, size),
        machine: "regulator",
    };
    match asks.explain(&account, asks.tally()) {
        None => format!("{state} No ask has been refused or shed."),
        Some(text) => format!("{state}\n{text}"),
    }
}

fn is_open_by(part: &Stats, now: Instant) -> bool {
    part.open_time.is_some_and(|open_time| open_time <= now)
}

/// Why one part of the valve is closed.
fn why_shut(part: &Stats, size: usize, now: Instant) -> String {
    let (kind, max) = (part.kind, part.max);
    if size >= max {
        return format!("{kind} allows {max} leases");
    }
    let until = part.open_time.map(|open_time| open_time.since(now));
    match (kind, until) {
        ("rate", Some(until)) => format!("rate has no slot left for another {until:?}"),
        ("rate", None) => "rate has no slot left until a lease ends".into(),
        ("breaker", Some(until)) => {
            format!("too many leases went wrong, and breaker pauses for another {until:?}")
        }
        ("breaker", None) => "breaker waits for how its probes go".into(),
        (_, Some(until)) => format!("{kind} opens in {until:?} if leads stay below its target"),
        (_, None) => format!("{kind} has seen no new lead below its target"),
    }
}

/// Why leases are scarce, as one part of the valve sees it, and what would
/// help against that.
fn scarce(part: &Stats, size: usize) -> &'static str {
    match (part.kind, part.circuit) {
        ("gradient", _) => {
            "More leases would make each other slower: make what they are for faster."
        }
        (_, Some(Circuit::Tripped { .. } | Circuit::Probing { .. })) => {
            "Leases went wrong: see why what they are for fails."
        }
        _ if size >= part.max => "All leases are held: raise `max`, or hold each more shortly.",
        ("rate", _) => "The rate is used up: raise its `limit`, or ask less often.",
        ("relative" | "codel", _) => {
            "Leases are added only while leads are below the target: see that updates arrive, or \
             raise `min` or the target."
        }
        _ => "Leases are scarce: raise `max`, or hold each more shortly.",
    }
}
