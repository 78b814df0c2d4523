//! Ranges that come, change and go while values are held.

use super::effects::Effects;
use super::entry::Entry;
use super::free::Free;
use super::interval::Interval;
use super::range::{Class, Order, Quarantine, Range, RangeError, RangeId, RangeOptions, Start};
use super::records::{Body, Head, KeyRef, Slot};
use super::refused::Refused;
use super::size::Size;
use super::stock::Stock;
use super::{Allocator, Piece, RANGES_MAX, STRAY, end};
use crate::time::Instant;

impl Allocator {
    /// Add a range, or change the one of this name. All or nothing; nobody
    /// loses a value by it.
    ///
    /// A range that is new is as its options say that it starts. Values that a
    /// range no longer has, and that have a holder, stay with it until they
    /// are given back.
    ///
    /// # Errors
    ///
    /// If the options do not fit together, or another range has some of the
    /// values.
    pub fn set_range(
        &mut self,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<RangeId, RangeError> {
        check_name(name)?;
        options.check()?;
        let known = self.names.get(name).copied();
        self.check_overlaps(&options, known)?;
        match known {
            Some(id) => self.change_range(id, options).map(|()| id),
            None => self.add_range(name, options, now, effects),
        }
    }

    /// Take a range away: at once if nobody holds any of its values, and else
    /// when the last has come back; until then it gives out nothing. Says
    /// whether it is gone.
    ///
    /// # Errors
    ///
    /// If there is no such range.
    pub fn remove_range(&mut self, id: RangeId) -> Result<bool, Refused> {
        let range = self.ranges.get_mut(id.index()).and_then(Option::as_mut);
        let range = range.ok_or(Refused::UnknownRange)?;
        range.is_draining = true;
        range.quarantine = None;
        range.free = empty(&range.options);
        range.stock = Stock::new(empty(&range.options));
        range.size = Size::new(range.held().into());
        Ok(self.end_draining(id))
    }

    /// A range that drains and has nothing left goes.
    pub(super) fn end_draining(&mut self, id: RangeId) -> bool {
        let is_done = matches!(
            &self.ranges[id.index()],
            Some(range) if range.is_draining && range.held() == 0
        );
        if is_done {
            let range = self.ranges[id.index()].take().expect("it was just seen");
            self.names.remove(&range.name);
            self.pieces.retain(|_, piece| piece.range != id);
        }
        is_done
    }

    fn check_overlaps(
        &self,
        options: &RangeOptions,
        own: Option<RangeId>,
    ) -> Result<(), RangeError> {
        for (at, other) in self.ranges.iter().enumerate() {
            let Some(other) = other else { continue };
            if own.is_some_and(|own| own.index() == at) {
                continue;
            }
            let theirs = other.options.spans.iter();
            let both = theirs.flat_map(|their| options.spans.iter().map(move |our| (their, our)));
            for (their, our) in both {
                if let Some(interval) = their.interval.intersect(our.interval) {
                    return Err(RangeError::Overlaps {
                        name: other.name.clone(),
                        interval,
                        kind: their.kind,
                    });
                }
            }
        }
        Ok(())
    }

    fn add_range(
        &mut self,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<RangeId, RangeError> {
        let id = self.new_id()?;
        let intervals = intervals(&options);
        let size = intervals.iter().fold(Size::ZERO, |sum, i| sum + i.size());
        let mut free = empty(&options);
        for interval in &intervals {
            free.insert_all(*interval);
        }
        for interval in &intervals {
            let last = interval.last();
            self.pieces
                .insert(interval.first(), Piece { last, range: id });
        }
        let range = Range {
            name: name.to_owned(),
            size,
            free,
            stock: Stock::new(empty(&options)),
            quarantine: None,
            reserved: 0,
            detached: 0,
            cooling: 0,
            is_draining: false,
            tiers: [0; super::TIERS_MAX as usize],
            options,
        };
        self.ranges[id.index()] = Some(range);
        self.names.insert(name.to_owned(), id);
        self.take_strays_in(id);
        if self.at(id).options.start == Start::Quarantine {
            self.quarantine(id, now, effects);
        }
        Ok(id)
    }

    /// All that is free may have a holder.
    pub(super) fn quarantine(&mut self, id: RangeId, now: Instant, effects: &mut Effects) {
        let range = self.at_mut(id);
        let until = end(now, range.options.quarantine);
        if until <= now {
            return;
        }
        let values = std::mem::replace(&mut range.free, empty(&range.options));
        if range.options.class != Class::Memory {
            effects.wait = true;
            for interval in values.intervals() {
                effects.log(&Entry::Quarantined { interval, until });
            }
        }
        range.quarantine = Some(Quarantine { values, until });
        self.quarantine_next = self.quarantine_next.min(until);
    }

    fn change_range(&mut self, id: RangeId, options: RangeOptions) -> Result<(), RangeError> {
        let range = self.at(id);
        if range.is_draining {
            return Err(RangeError::Draining);
        }
        if range.options.class != options.class && range.held() > 0 {
            return Err(RangeError::ClassHeld);
        }
        let (before, after) = (intervals(&range.options), intervals(&options));
        for gone in minus(&before, &after) {
            let range = self.at_mut(id);
            let mut removed = range.free.remove_all(gone) + range.stock.remove_all(gone);
            if let Some(quarantine) = &mut range.quarantine {
                removed += quarantine.values.remove_all(gone);
            }
            range.size -= removed;
        }
        let range = self.at_mut(id);
        if range.options.order != options.order {
            let mut free = empty(&options);
            for interval in range.free.intervals() {
                free.insert_all(interval);
            }
            range.free = free;
        }
        range.options = options;
        self.pieces.retain(|_, piece| piece.range != id);
        for interval in &after {
            let last = interval.last();
            self.pieces
                .insert(interval.first(), Piece { last, range: id });
        }
        for new in minus(&after, &before) {
            self.add_values(id, new);
        }
        self.take_strays_in(id);
        Ok(())
    }

    /// New values are free, but for those that came back while still held.
    fn add_values(&mut self, id: RangeId, new: Interval) {
        let range = self.at_mut(id);
        range.free.insert_all(new);
        range.size += new.size();
        if range.held() == 0 {
            return;
        }
        let mut cursor = 0;
        while let Some(slot) = self.records.next_from(&mut cursor) {
            let value = self.records.value(slot);
            if new.contains(value) && self.records.head(slot).range == id.0 {
                let range = self.at_mut(id);
                range.free.remove(value);
                range.size -= Size::ONE;
            }
        }
    }

    /// Records whose range was taken away may have one again.
    fn take_strays_in(&mut self, id: RangeId) {
        let mut cursor = 0;
        while self.strays > 0
            && let Some(slot) = self.records.next_from(&mut cursor)
        {
            let head = self.records.head(slot);
            let value = self.records.value(slot);
            if head.range != STRAY || self.range_of(value) != Some(id) {
                continue;
            }
            self.strays -= 1;
            self.move_in(slot, id);
            self.at_mut(id).free.remove(value);
            *self.counter(id.0, head.state) += 1;
        }
    }

    /// A record's value is kept by its range, so it has to be written anew.
    fn move_in(&mut self, slot: Slot, id: RangeId) {
        let head = Head {
            range: id.0,
            ..self.records.head(slot)
        };
        let kept = self.records.body(slot);
        let data = kept.data.to_vec();
        let keys: Vec<(bool, Vec<u8>)> = kept
            .keys()
            .map(|key| (key.unique, key.bytes.to_vec()))
            .collect();
        let keys: Vec<KeyRef<'_>> = keys
            .iter()
            .map(|(unique, bytes)| KeyRef {
                unique: *unique,
                bytes,
            })
            .collect();
        let body = Body {
            created: kept.created,
            updated: kept.updated,
            updates: kept.updates,
            data: &data,
            keys: &keys,
        };
        self.records.replace(slot, head, body);
    }

    fn new_id(&mut self) -> Result<RangeId, RangeError> {
        let after_strays = self.ranges.iter().skip(1);
        let vacant = after_strays.take_while(|range| range.is_some());
        let at = vacant.count() + 1;
        if at == RANGES_MAX {
            return Err(RangeError::TooMany);
        }
        if at == self.ranges.len() {
            self.ranges.push(None);
        }
        Ok(RangeId(at as u16))
    }
}

/// The values that a range can give out.
pub(super) fn intervals(options: &RangeOptions) -> Vec<Interval> {
    let spans: Vec<_> = options.spans.iter().map(|span| span.interval).collect();
    let skip: Vec<_> = options.skip.iter().map(|span| span.interval).collect();
    minus(&spans, &skip)
}

/// What is in these and not in those.
fn minus(these: &[Interval], those: &[Interval]) -> Vec<Interval> {
    let mut left = these.to_vec();
    for gone in those {
        left = left
            .into_iter()
            .flat_map(|interval| match interval.is_disjoint(*gone) {
                true => [Some(interval), None],
                false => [interval.before(*gone), interval.after(*gone)],
            })
            .flatten()
            .collect();
    }
    left
}

fn check_name(name: &str) -> Result<(), RangeError> {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(is_good);
    is_name.then_some(()).ok_or(RangeError::BadName)
}

/// No value, in a range like this.
pub(super) fn empty(options: &RangeOptions) -> Free {
    match options.order {
        Order::OldestFreed => Free::queued(),
        Order::Lowest | Order::Random => Free::new(),
    }
}
