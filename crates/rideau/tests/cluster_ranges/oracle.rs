//! What clients were told, and what must be true of it.

use std::collections::BTreeMap;
use std::time::Duration;

/// All holds that any client was told of.
#[derive(Default)]
pub(crate) struct Oracle {
    /// By value and fence.
    holds: BTreeMap<u128, BTreeMap<u64, Hold>>,
    pub(crate) told: usize,
    pub(crate) unknown: usize,
}

/// A hold, by the time of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// When it was asked for, so it was not decided before.
    since: Duration,
    /// It does not end before.
    until: Duration,
    /// A client wanted to give it back then.
    released: Option<Duration>,
    /// All ends that it may have been given.
    latest: Duration,
    /// Its release was told.
    pub(crate) is_over: bool,
}

impl Oracle {
    pub(crate) fn granted(&mut self, value: u128, fence: u64, since: Duration, until: Duration) {
        self.told += 1;
        let hold = Hold {
            since,
            until,
            released: None,
            latest: until,
            is_over: false,
        };
        let before = self.holds.entry(value).or_default().insert(fence, hold);
        assert!(before.is_none(), "{value} was given twice with {fence}");
    }

    /// A client asks to give it back, whatever comes of it.
    pub(crate) fn releases(&mut self, value: u128, fence: u64, now: Duration) {
        let hold = self.hold(value, fence);
        hold.released = Some(hold.released.map_or(now, |at| at.min(now)));
    }

    pub(crate) fn released(&mut self, value: u128, fence: u64) {
        self.hold(value, fence).is_over = true;
    }

    /// A client asks to hold it until then, whatever comes of it.
    pub(crate) fn prolongs(&mut self, value: u128, fence: u64, until: Duration) {
        let hold = self.hold(value, fence);
        hold.latest = hold.latest.max(until);
        hold.until = hold.until.min(until);
    }

    /// It was told that it is held until then.
    pub(crate) fn prolonged(&mut self, value: u128, fence: u64, until: Duration) {
        let hold = self.hold(value, fence);
        if hold.released.is_none() {
            hold.until = until;
        }
    }

    fn hold(&mut self, value: u128, fence: u64) -> &mut Hold {
        let holds = self.holds.get_mut(&value).unwrap();
        holds.get_mut(&fence).unwrap()
    }

    /// What is certainly held now.
    pub(crate) fn held(&self, now: Duration) -> Vec<(u128, u64)> {
        let all = self.holds.iter();
        let all = all.flat_map(|(value, holds)| holds.iter().map(|(at, hold)| (*value, *at, hold)));
        let held = all.filter(|(.., hold)| hold.released.is_none() && now < hold.until);
        held.map(|(value, fence, _)| (value, fence)).collect()
    }

    /// Those that a client was told of last, if they may still be held.
    pub(crate) fn open(&self, now: Duration) -> Vec<(u128, u64)> {
        let last = self.holds.iter().filter_map(|(value, holds)| {
            let (fence, hold) = holds.last_key_value()?;
            let is_open = !hold.is_over && now < hold.latest;
            is_open.then_some((*value, *fence))
        });
        last.collect()
    }

    /// No value has two holders at once, and fences grow from holder to holder.
    pub(crate) fn check(&self) {
        for (value, holds) in &self.holds {
            let all: Vec<_> = holds.iter().collect();
            for two in all.windows(2) {
                let [(fence, hold), (next_fence, next)] = two else {
                    unreachable!("windows have two");
                };
                let over = hold.released.unwrap_or(hold.until).min(hold.until);
                assert!(
                    next.since >= over,
                    "{value}: {fence} {hold:?} and {next_fence} {next:?} overlap"
                );
            }
        }
    }
}
