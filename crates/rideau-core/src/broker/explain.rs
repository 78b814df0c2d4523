//! Says in plain words why asks were shed and what would help.

use std::fmt::Write;
use std::time::Duration;

use super::party::Party;
use crate::ledger::Reply;
use crate::queue::{Overflow, Shedding};
use crate::refusal::{Reason, Refusal};

/// Why the last asks were shed, and what to try, most telling first.
pub(super) fn explain<A: Reply, O: Reply>(asks: &Party<A>, offers: &Party<O>) -> String {
    let recent = asks.recent();
    if recent.is_empty() {
        return format!(
            "No ask has been refused or shed. {} ask and {} offer themselves now.",
            asks.queue().len(),
            offers.queue().len()
        );
    }
    let mut counts: Vec<(usize, Reason)> = Reason::ALL
        .into_iter()
        .map(|reason| {
            (
                recent.iter().filter(|no| no.reason == reason).count(),
                reason,
            )
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    counts.sort_by_key(|(count, reason)| (usize::MAX - count, *reason));

    let mut text = format!("Of the last {} asks that got nothing:\n", recent.len());
    for (count, reason) in &counts {
        let (waited, longest) = waits(recent, *reason);
        let word = reason.word();
        let _ = writeln!(
            text,
            "- {count} ({word}): {reason}; they waited {waited:?} on average, {longest:?} at most."
        );
    }
    let tally = asks.tally();
    let _ = writeln!(
        text,
        "{} of {} asks were matched so far; half of them waited at most {:?}, 99 of 100 at most \
         {:?}.",
        tally.matched,
        tally.came,
        tally.waits.quantile(0.5),
        tally.waits.quantile(0.99)
    );
    text.push_str("What would help:\n");
    for (_, reason) in &counts {
        let _ = writeln!(text, "- {}", advice(*reason, asks, offers));
    }
    text
}

fn waits(recent: &[Refusal], reason: Reason) -> (Duration, Duration) {
    let mut of_reason: Vec<_> = recent
        .iter()
        .filter(|no| no.reason == reason)
        .map(|no| no.waited)
        .collect();
    of_reason.sort_unstable();
    let sum: Duration = of_reason.iter().sum();
    let count = u32::try_from(of_reason.len()).expect("few are remembered");
    (sum / count, of_reason[of_reason.len() - 1])
}

fn advice<A: Reply, O: Reply>(reason: Reason, asks: &Party<A>, offers: &Party<O>) -> String {
    let options = asks.queue().options();
    let few = if offers.tally().came == 0 {
        "Nobody has offered itself yet: start workers, or see why they do not come."
    } else {
        "Workers are scarce: add some, or make each match shorter."
    };
    match reason {
        Reason::Full => {
            let max = options.max.unwrap_or(u32::MAX);
            let whom = match options.overflow {
                Overflow::Newest => "newcomers are refused",
                Overflow::Oldest => "the oldest make room",
            };
            format!("{few} With `max` = {max}, {whom}; a higher `max` only means longer waits.")
        }
        Reason::Timeout => format!(
            "{few} A plain timeout lets everybody wait nearly the whole of it under overload; \
             `kind=bounded-codel` keeps the waits of the served short."
        ),
        Reason::CoDel | Reason::Bound | Reason::MinDelay | Reason::Standing => {
            let (target, interval) = spans(&options.shedding);
            format!(
                "{few} Waits were over the target ({target:?}) for an interval ({interval:?}); a \
                 higher target serves no more asks, it only lets them wait longer."
            )
        }
        Reason::Deadline => format!("{few} Or let askers set later deadlines."),
        Reason::Busy => format!("{few} Or wait for one rather than ask only at once."),
        Reason::Protected => format!(
            "{few} The protector turns asks away while those that got in wait too long; it opens \
             by itself when they do not."
        ),
        Reason::Cancelled => "Nothing: somebody withdrew these asks on purpose.".into(),
        Reason::Closed => "The broker is closing: ask another one.".into(),
    }
}

fn spans(shedding: &Shedding) -> (Duration, Duration) {
    match *shedding {
        Shedding::Never | Shedding::Timeout { .. } => (Duration::ZERO, Duration::ZERO),
        Shedding::CoDel { target, interval }
        | Shedding::BoundedCoDel {
            target, interval, ..
        }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => (target, interval),
    }
}
