//! Looking at all partitions at once.

use std::collections::HashMap;

use super::Many;
use super::directory::share;
use crate::allocator::ask::{Place, Prefer, Which};
use crate::allocator::effects::Effects;
use crate::allocator::interval::Interval;
use crate::allocator::look::{Bytes, Count, Filter, Seen, Standing};
use crate::allocator::range::{Range, RangeId, RangeOptions, RangeStats};
use crate::allocator::size::Size;
use crate::time::Instant;

/// The lower half of a cursor is that of a machine, the upper half says of which.
const HALF: u32 = u32::BITS;

impl Many {
    pub(in crate::allocator) fn lookup(
        &mut self,
        which: Which<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Seen> {
        let parts = match which {
            Which::Value(value) => {
                let part = self.partitions.of_value(value) as usize;
                part..part + 1
            }
            Which::Key(_) => 0..self.parts.len(),
        };
        let mut all: Vec<Seen> = Vec::new();
        for part in parts.clone() {
            if !self.is_open(part) {
                continue;
            }
            let before = all.len();
            self.visit(part, now, effects, |machine, at, now, effects| {
                let seen = machine.lookup(at.which(which), now, effects);
                all.extend(seen.into_iter().map(|seen| at.seen(seen)));
            });
            if all.len() > before || parts.len() == 1 {
                self.rest_on(part, effects);
            }
        }
        if all.is_empty() && parts.len() > 1 {
            self.rest_on_all(effects);
        }
        all.sort_by_key(|seen| seen.fence);
        all
    }

    pub(in crate::allocator) fn stands(
        &mut self,
        value: u128,
        now: Instant,
        effects: &mut Effects,
    ) -> Standing {
        let part = self.partitions.of_value(value) as usize;
        if !self.is_open(part) {
            return Standing::Outside;
        }
        self.visit(part, now, effects, |machine, at, now, effects| {
            machine.stands(at.index(value), now, effects)
        })
    }

    pub(in crate::allocator) fn range(&self, name: &str) -> Option<RangeId> {
        self.directory.find(name)
    }

    pub(in crate::allocator) fn name(&self, range: RangeId) -> Option<&str> {
        self.directory.known(range).map(|known| &*known.name)
    }

    pub(in crate::allocator) fn options(&self, range: RangeId) -> Option<&RangeOptions> {
        self.directory.known(range).map(|known| &known.options)
    }

    pub(in crate::allocator) fn names(&self) -> impl Iterator<Item = (&str, RangeId)> + '_ {
        self.directory.names()
    }

    pub(in crate::allocator) fn stats(&self, range: RangeId) -> Option<RangeStats> {
        let known = self.directory.known(range)?;
        let first = known.options.spans.first()?;
        let mut all = RangeStats {
            name: known.name.clone(),
            first: first.interval.first(),
            kind: first.kind,
            size: Size::ZERO,
            free: Size::ZERO,
            reserved: 0,
            quarantined: Size::ZERO,
            quarantined_until: None,
            detached: 0,
            cooling: 0,
            tiers: Default::default(),
            is_draining: known.is_draining,
            bytes: 0,
        };
        for part in self.open() {
            let Some(stats) = share(part, range).map(Range::stats) else {
                continue;
            };
            let quarantined_until = stats.quarantined_until.map(|until| part.at.outside(until));
            all.size = all.size.saturating_add(stats.size);
            all.free = all.free.saturating_add(stats.free);
            all.reserved += stats.reserved;
            all.quarantined = all.quarantined.saturating_add(stats.quarantined);
            all.quarantined_until = all.quarantined_until.max(quarantined_until);
            all.detached += stats.detached;
            all.cooling += stats.cooling;
            for (sum, tier) in all.tiers.iter_mut().zip(stats.tiers) {
                *sum += tier;
            }
            all.bytes += stats.bytes;
        }
        Some(all)
    }

    pub(in crate::allocator) fn count(&self, within: Interval) -> Count {
        let mut all = Count {
            size: Size::ZERO,
            free: Size::ZERO,
            quarantined: Size::ZERO,
            held: Size::ZERO,
        };
        for part in self.open() {
            let Some(here) = part.at.indexes(within) else {
                continue;
            };
            let count = part.machine.count(here);
            all.size = all.size.saturating_add(count.size);
            all.free = all.free.saturating_add(count.free);
            all.quarantined = all.quarantined.saturating_add(count.quarantined);
            all.held = all.held.saturating_add(count.held);
        }
        all
    }

    /// Free values and all values in these places. One that is in two places counts twice.
    pub(in crate::allocator) fn counts(&self, prefer: &[Prefer]) -> (Size, Size) {
        let (mut free, mut size) = (Size::ZERO, Size::ZERO);
        for prefer in prefer {
            for part in self.served() {
                let Some(here) = part.at.prefer(prefer) else {
                    continue;
                };
                if let Place::Range(id) = here.place
                    && share(part, id).is_none()
                {
                    continue;
                }
                let counts = part.machine.counts(&[here]);
                free = free.saturating_add(counts.0);
                size = size.saturating_add(counts.1);
            }
        }
        if self.served().count() < self.parts.len() {
            // What is elsewhere may come here.
            size = self.directory.size_of(prefer);
        }
        (free, size)
    }

    /// How many values there are in these places, in whatever partitions.
    pub fn size_of(&self, prefer: &[Prefer]) -> Size {
        self.directory.size_of(prefer)
    }

    pub(in crate::allocator) fn free_in(&self, range: RangeId, values: Interval) -> Size {
        let mut free = Size::ZERO;
        for part in self.served() {
            if let (Some(share), Some(here)) = (share(part, range), part.at.indexes(values)) {
                free = free.saturating_add(share.free.count_in(here));
                free = free.saturating_add(share.stock.count_in(here));
            }
        }
        free
    }

    pub(in crate::allocator) fn piece_in(&self, values: Interval) -> Option<(RangeId, Interval)> {
        self.directory.pieces_in(values).next()
    }

    pub(in crate::allocator) fn bytes(&self) -> Bytes {
        let here = self.parts.iter().flatten();
        let all = here.map(|part| part.machine.bytes());
        all.fold(Bytes::default(), |sum, bytes| Bytes {
            records: sum.records + bytes.records,
            records_len: sum.records_len + bytes.records_len,
            timers: sum.timers + bytes.timers,
            timers_len: sum.timers_len + bytes.timers_len,
            free: sum.free + bytes.free,
        })
    }

    pub(in crate::allocator) fn page(&self, cursor: &mut u64, most: usize) -> Vec<Seen> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(part) = self.parts.get(part_at(*cursor))
        {
            let Some(part) = part.as_ref().filter(|part| part.phase.is_open()) else {
                go_on(cursor, 0, true);
                continue;
            };
            let mut within = *cursor as u32;
            let seen = part.machine.page(&mut within, most - all.len());
            let is_last = seen.is_empty();
            all.extend(seen.into_iter().map(|seen| part.at.seen(seen)));
            go_on(cursor, within, is_last);
        }
        all
    }

    pub(in crate::allocator) fn count_ending(
        &self,
        until: Instant,
        cursor: &mut u64,
        most: usize,
        counts: &mut HashMap<RangeId, u64>,
    ) -> bool {
        let Some(part) = self.parts.get(part_at(*cursor)) else {
            return false;
        };
        let mut within = *cursor as u32;
        let part = part.as_ref().filter(|part| part.phase.is_open());
        let has_more = part.is_some_and(|part| {
            let until = part.at.inside(until);
            part.machine.count_ending(until, &mut within, most, counts)
        });
        go_on(cursor, within, !has_more);
        true
    }

    pub(in crate::allocator) fn release_some(
        &mut self,
        filter: &Filter,
        range: Option<RangeId>,
        cursor: &mut u64,
        most: usize,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<usize> {
        let part = part_at(*cursor);
        if part >= self.parts.len() {
            return None;
        }
        let mut within = *cursor as u32;
        if !self.serves(part) {
            go_on(cursor, within, true);
            return Some(0);
        }
        self.rest_on(part, effects);
        let released = self.visit(part, now, effects, |machine, _, now, effects| {
            machine.release_some(filter, range, &mut within, most, now, effects)
        });
        go_on(cursor, within, released.is_none());
        Some(released.unwrap_or(0))
    }
}

fn part_at(cursor: u64) -> usize {
    (cursor >> HALF) as usize
}

/// The cursor comes to the next machine when it was at the end of one.
fn go_on(cursor: &mut u64, within: u32, is_last: bool) {
    let part = *cursor >> HALF;
    *cursor = match is_last {
        true => (part + 1) << HALF,
        false => part << HALF | u64::from(within),
    };
}
