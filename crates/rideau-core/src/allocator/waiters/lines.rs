//! Which asks wait for which values, oldest first.

use std::collections::{BTreeMap, VecDeque};

use super::super::ask::Place;
use super::super::asked::Asked;
use super::super::interval::Interval;
use super::super::range::RangeId;
use super::super::values::Values;
use crate::ids::Ticket;

/// The asks that are gone may be this many more than those that wait before they
/// are swept out, so that leaving costs nothing.
const GONE_MAX: usize = 64;

/// Tickets by what they wait for. A ticket that is gone stays for a while: the
/// caller that looks says which are there.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Asks that would have any value of a range.
    whole: BTreeMap<RangeId, VecDeque<Ticket>>,
    /// Asks that would have some of certain values.
    within: VecDeque<Ticket>,
    /// Asks that want several at once.
    several: VecDeque<Ticket>,
    /// This many of the two have not left.
    costly: usize,
    /// This many have left since those were swept out.
    gone: usize,
}

impl Lines {
    pub(super) fn costly(&self) -> usize {
        self.costly
    }

    /// Has every offer to be held against this one?
    pub(super) fn is_costly(&self, asked: &Asked, machine: &impl Values) -> bool {
        asked.is_several() || certain(asked, machine).next().is_some()
    }

    pub(super) fn join(
        &mut self,
        ticket: Ticket,
        asked: &Asked,
        is_costly: bool,
        machine: &impl Values,
    ) {
        for place in asked.places() {
            if let Place::Range(id) = place {
                let line = self.whole.entry(id).or_default();
                // It may be named twice.
                if line.back() != Some(&ticket) {
                    line.push_back(ticket);
                }
            }
        }
        if certain(asked, machine).next().is_some() {
            self.within.push_back(ticket);
        }
        if asked.is_several() {
            self.several.push_back(ticket);
        }
        self.costly += usize::from(is_costly);
    }

    /// An ask has left. Now and then those that have are swept out.
    pub(super) fn leave(&mut self, is_costly: bool, len: usize, is_there: impl Fn(Ticket) -> bool) {
        self.costly -= usize::from(is_costly);
        self.gone += 1;
        if self.gone > 2 * len + GONE_MAX {
            self.gone = 0;
            let lines = self.whole.values_mut();
            for line in lines.chain([&mut self.within, &mut self.several]) {
                line.retain(|ticket| is_there(*ticket));
            }
            self.whole.retain(|_, line| !line.is_empty());
        }
    }

    /// The first ask after `after` that would have some of these values of a range.
    pub(super) fn next<'a>(
        &self,
        range: RangeId,
        values: Interval,
        after: Option<Ticket>,
        asked: impl Fn(Ticket) -> Option<&'a Asked>,
    ) -> Option<Ticket> {
        let whole = self.whole.get(&range);
        let whole = whole.and_then(|line| {
            let mut later = later(line, after);
            later.find(|ticket| asked(*ticket).is_some())
        });
        let wants = |asked: &Asked| {
            asked
                .places()
                .any(|place| matches!(place, Place::Within(w) if !w.is_disjoint(values)))
        };
        let mut within = later(&self.within, after)
            .take_while(|ticket| whole.is_none_or(|whole| *ticket < whole));
        let within = within.find(|ticket| asked(*ticket).is_some_and(wants));
        within.or(whole)
    }

    /// All asks that would have any value of a range.
    pub(super) fn of_range(&mut self, range: RangeId) -> VecDeque<Ticket> {
        self.whole.remove(&range).unwrap_or_default()
    }

    pub(super) fn several(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.several.iter().copied()
    }
}

/// The asks of a queue that came after this one.
fn later(line: &VecDeque<Ticket>, after: Option<Ticket>) -> impl Iterator<Item = Ticket> + '_ {
    let from = line.partition_point(|ticket| Some(*ticket) <= after);
    line.range(from..).copied()
}

/// Values that are wanted beside those of whole ranges.
fn certain<'a>(asked: &'a Asked, machine: &'a impl Values) -> impl Iterator<Item = Interval> + 'a {
    let is_named = |within: Interval| {
        asked.places().any(|place| match place {
            Place::Range(id) => {
                let spans = machine.options(id).map(|options| options.spans.iter());
                let mut spans = spans.into_iter().flatten();
                spans.any(|span| span.interval.covers(within))
            }
            Place::Within(_) => false,
        })
    };
    asked.places().filter_map(move |place| match place {
        Place::Within(within) if !is_named(within) => Some(within),
        _ => None,
    })
}
