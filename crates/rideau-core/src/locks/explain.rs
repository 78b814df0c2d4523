//! Says in plain words why asks wait, why they were shed and what would help.

use std::fmt::Write;

use super::claim::Claim;
use super::line::Line;
use crate::ledger::Reply;
use crate::time::{Brief, Instant};
use crate::waiting::{Account, Waiting};

/// How it is now, and for each queue why its last asks were shed and what to
/// try; `unqueued` has the asks that joined no queue.
pub(super) fn explain<R: Reply>(
    lines: &[Line<R>],
    unqueued: &Waiting<R>,
    held: u64,
    is_closing: bool,
    now: Instant,
) -> String {
    if is_closing {
        return format!(
            "The queues are closing: no ask may wait any more. {}.",
            are_held(held)
        );
    }
    let mut text = state(lines, held, now);
    let account = Account {
        served: "granted",
        scarce: "The units are held: raise the capacity, or hold them more shortly.",
        machine: "lock",
    };
    let mut quiet = true;
    let mut add = |head: String, waiting: &Waiting<R>| {
        if let Some(why) = waiting.explain(&account, waiting.tally()) {
            quiet = false;
            let _ = write!(text, "\n{head}:\n{}", why.trim_end());
        }
    };
    for line in lines {
        add(format!("Asks for {}", wanted(line.claim())), &line.waiting);
    }
    add("Asks that joined no queue".into(), unqueued);
    if quiet {
        text.push_str(" No ask has been refused or shed.");
    }
    text
}

fn state<R: Reply>(lines: &[Line<R>], held: u64, now: Instant) -> String {
    let oldest = lines
        .iter()
        .filter_map(|line| Some((line.age()?, line.claim())))
        .min_by_key(|(age, _)| *age);
    let Some(((sent, _), claim)) = oldest else {
        return format!("No ask waits. {}.", are_held(held));
    };
    let len: usize = lines.iter().map(|line| line.waiting.len()).sum();
    let busy = lines.iter().filter(|line| !line.is_empty()).count();
    format!(
        "{len} {} in {busy} {}, and {}. The oldest has waited {} for {}; until it fits, only \
         those are served before it that see a larger capacity.",
        if len == 1 { "ask waits" } else { "asks wait" },
        if busy == 1 { "queue" } else { "queues" },
        are_held(held),
        Brief(now.since(sent)),
        wanted(claim)
    )
}

fn are_held(units: u64) -> String {
    match units {
        1 => "1 unit is held".into(),
        units => format!("{units} units are held"),
    }
}

fn wanted(claim: Claim) -> String {
    format!("{} of {}", claim.units, claim.capacity)
}
