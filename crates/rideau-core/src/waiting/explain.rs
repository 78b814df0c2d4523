//! Says in plain words why asks were shed and what would help.

use std::fmt::Write;
use std::time::Duration;

use super::{Tally, Waiting};
use crate::ledger::Reply;
use crate::queue::{Options, Overflow, Shedding};
use crate::refusal::{Reason, Refusal};
use crate::time::Brief;

/// The words in which a machine speaks of itself.
pub(crate) struct Account<'a> {
    /// The word for a successful ask.
    pub(crate) served: &'a str,
    /// Why there is too little, and what would help against that.
    pub(crate) scarce: &'a str,
    /// The name of the machine.
    pub(crate) machine: &'a str,
}

impl<R: Reply> Waiting<R> {
    /// Why the last asks were shed, and what to try, most telling first. None
    /// if no ask was.
    pub(crate) fn explain(&self, account: &Account<'_>, tally: &Tally) -> Option<String> {
        let recent = &self.recent;
        let mut counts: Vec<(usize, Reason)> = Reason::ALL
            .into_iter()
            .map(|reason| {
                let of_reason = recent.iter().filter(|no| no.reason == reason);
                (of_reason.count(), reason)
            })
            .filter(|(count, _)| *count > 0)
            .collect();
        if counts.is_empty() {
            return None;
        }
        counts.sort_by_key(|(count, reason)| (usize::MAX - count, *reason));

        let mut text = format!("Of the last {} asks that got nothing:\n", recent.len());
        for (count, reason) in &counts {
            let (waited, longest) = waits(recent, *reason);
            let (waited, longest) = (Brief(waited), Brief(longest));
            let word = reason.word();
            let _ = writeln!(
                text,
                "- {count} ({word}): {reason}; they waited {waited} on average, \
                 {longest} at most."
            );
        }
        let _ = writeln!(
            text,
            "{} of {} asks were {} so far; half of them waited at most {}, 99 of 100 at most \
             {}.",
            tally.served,
            tally.came,
            account.served,
            Brief(tally.waits.quantile(0.5)),
            Brief(tally.waits.quantile(0.99))
        );
        text.push_str("What would help:\n");
        let options = Options {
            max: self.queue.max(),
            ..self.queue.options().clone()
        };
        let mut advices: Vec<_> = counts
            .iter()
            .map(|(_, reason)| advice(*reason, &options, account))
            .collect();
        advices.dedup();
        for advice in advices {
            let _ = writeln!(text, "- {advice}");
        }
        Some(text)
    }
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

fn advice(reason: Reason, options: &Options, account: &Account<'_>) -> String {
    let few = account.scarce;
    match reason {
        Reason::Full => {
            let then = match (options.max, options.overflow) {
                (None, _) => return format!("{few} The queue has no `max` any more."),
                (Some(max), Overflow::Newest) => format!("= {max}, newcomers are refused"),
                (Some(max), Overflow::Oldest) => format!("= {max}, the oldest make room"),
            };
            format!("{few} With the queue's `max` {then}; a higher one only means longer waits.")
        }
        Reason::Timeout if is_paced(options) => format!(
            "{few} These asks named no wait, and waited as long as such an ask may: name a longer \
             one (`WAIT`, `wait_max`), or raise the default (`server.wait_default`)."
        ),
        Reason::Timeout => format!(
            "{few} Under overload a plain timeout lets every ask wait nearly the whole of it; \
             `kind=paced` keeps the waits of the served short."
        ),
        Reason::Bound if is_paced(options) => format!(
            "{few} More asks waited than the queue protects (four, or two for each that can be \
             served at once), and these had named no wait: beyond that number, such an ask may \
             wait for 400 ms or three holds, and for 150 ms once overload has lasted. Name a wait \
             (`WAIT`, `wait_max`) and the ask keeps its place, or protect more (`min`)."
        ),
        Reason::CoDel | Reason::Bound | Reason::MinDelay | Reason::Standing => {
            let Some((target, interval)) = spans(&options.shedding) else {
                return format!("{few} The queue's shedding policy was changed since.");
            };
            format!(
                "{few} Waits were over the target ({target:?}) for an interval ({interval:?}); a \
                 higher target serves no more asks, it only lets them wait longer."
            )
        }
        Reason::Custom => match &options.shedding {
            Shedding::Custom(law) => format!(
                "{few} The queue's custom shedding policy ({}) \
                sheds.",
                law.name()
            ),
            _ => format!("{few} The queue's shedding policy was changed since."),
        },
        Reason::Hopeless => format!(
            "{few} The queue had been slow for as long as these asks would have waited, and they \
             would have had to wait for more than twice as long. Name a longer wait (`WAIT`, \
             `wait_max`), or take `kind=never` to let such asks wait in vain."
        ),
        Reason::Deadline => {
            let most = match options.shedding {
                Shedding::Paced {
                    wait_cap: Some(cap),
                } => format!(" up to the queue's `wait_cap` ({cap:?})"),
                _ => String::new(),
            };
            format!("{few} Or name a longer wait (`WAIT`, `wait_max`){most}.")
        }
        Reason::Busy => {
            format!("{few} Or wait for one (`WAIT`, `wait_max`) rather than ask only at once.")
        }
        Reason::Protected => format!("{few} Or let the protector (`protect`) refuse fewer."),
        Reason::Cancelled => "Nothing: these asks were cancelled on purpose.".into(),
        Reason::Closed => format!("The {} is closing: ask another one.", account.machine),
        Reason::Suspended => format!("The {} is suspended: resume it, or wait.", account.machine),
        Reason::Nowhere => "Let a pool join the group.".into(),
        Reason::Excess => "Ask for at least one unit, and for no more than the capacity.".into(),
        Reason::Keys => "Release keys that are not needed, or allow for more.".into(),
        Reason::Down => "Find out why the servers do not answer: a list of them says it.".into(),
        Reason::Starting => {
            "Find out why starting fails: every refusal carries the last error.".into()
        }
    }
}

fn is_paced(options: &Options) -> bool {
    matches!(options.shedding, Shedding::Paced { .. })
}

fn spans(shedding: &Shedding) -> Option<(Duration, Duration)> {
    match *shedding {
        Shedding::Never
        | Shedding::Timeout { .. }
        | Shedding::Paced { .. }
        | Shedding::Custom(_) => None,
        Shedding::CoDel { target, interval }
        | Shedding::BoundedCoDel {
            target, interval, ..
        }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => Some((target, interval)),
    }
}
