//! Ranges that come, change and go while values are held.

use super::ask::Key;
use super::claimed::ClaimedValues;
use super::effects::Effects;
use super::entry::Entry;
use super::free::Free;
use super::interval::Interval;
use super::range::{Class, Order, Quarantine, Range, RangeError, RangeId, RangeOptions, Start};
use super::records::{Body, Head, Slot, State};
use super::refused::Refused;
use super::size::Size;
use super::{Allocator, Piece, RANGES_MAX, STRAY, end};
use crate::time::Instant;

impl Allocator {
    /// Add a range, or change the one of this name. All or nothing; no holder
    /// loses a value by it.
    ///
    /// Values that are new are as the options say that they start. Values that a
    /// range no longer has, and that have a holder, stay with it until they are
    /// given back, or another range has them. Those in quarantine leave it: a
    /// caller that takes them out and in again says that no holder has them.
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
        let id = match known {
            Some(id) => id,
            None => self.new_id()?,
        };
        self.put_range(id, name, options, now, effects)?;
        Ok(id)
    }

    /// As [`set_range`](Self::set_range), under a number that its caller knows, and with
    /// options that were checked. The values may be none.
    pub(super) fn put_range(
        &mut self,
        id: RangeId,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), RangeError> {
        match self.names.contains_key(name) {
            true => self.change_range(id, options, now, effects)?,
            false => self.add_range(id, name, options, now, effects),
        }
        self.log_promise(id, effects);
        Ok(())
    }

    /// For how long values may be told before it is written down is written down
    /// before that is done.
    pub(super) fn log_promise(&mut self, id: RangeId, effects: &mut Effects) {
        let options = &self.at(id).options;
        if options.class != Class::Claimed {
            return;
        }
        let span = options.promise();
        for interval in intervals(options) {
            effects.log(&Entry::Promised { interval, span });
        }
        self.at_mut(id).stock.wait_for(effects.position());
    }

    /// Take a range away: at once if no holder has any of its values, and else
    /// when the last has come back; until then it gives out nothing. Says whether
    /// it is gone.
    ///
    /// # Errors
    ///
    /// If there is no such range.
    pub fn remove_range(&mut self, id: RangeId, effects: &mut Effects) -> Result<bool, Refused> {
        let range = self.ranges.get_mut(id.index()).and_then(Option::as_mut);
        let range = range.ok_or(Refused::UnknownRange)?;
        if !range.is_draining && range.options.class != Class::Memory {
            for interval in intervals(&range.options) {
                effects.log(&Entry::Unknown { interval });
            }
        }
        range.is_draining = true;
        range.quarantine = None;
        range.free = empty(&range.options);
        range.stock.remove_all(Interval::ALL);
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
            check_overlap(&other.name, &other.options, options)?;
        }
        Ok(())
    }

    fn add_range(
        &mut self,
        id: RangeId,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) {
        let range = Range {
            name: name.to_owned(),
            size: Size::ZERO,
            free: empty(&options),
            stock: ClaimedValues::new(empty(&options)),
            quarantine: None,
            reserved: 0,
            detached: 0,
            cooling: 0,
            is_draining: false,
            tiers: [0; super::TIERS_MAX as usize],
            options,
        };
        let new = intervals(&range.options);
        if self.ranges.len() <= id.index() {
            self.ranges.resize_with(id.index() + 1, || None);
        }
        self.ranges[id.index()] = Some(range);
        self.names.insert(name.to_owned(), id);
        self.place(id, &new);
        self.add_values(id, &new, now, effects);
    }

    fn change_range(
        &mut self,
        id: RangeId,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), RangeError> {
        let range = self.at(id);
        if range.is_draining {
            return Err(RangeError::Draining);
        }
        let class_before = range.options.class;
        if class_before != options.class && range.held() > 0 {
            return Err(RangeError::ClassHeld);
        }
        let (before, after) = (intervals(&range.options), intervals(&options));
        for gone in minus(&before, &after) {
            self.drop_values(id, gone, effects);
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
        if class_before != range.options.class {
            let kept = both(before.clone(), after.clone());
            self.change_class(id, class_before, &kept, effects);
        }
        self.place(id, &after);
        self.add_values(id, &minus(&after, &before), now, effects);
        Ok(())
    }

    /// These are the values of the range, and no others.
    fn place(&mut self, id: RangeId, values: &[Interval]) {
        self.pieces.retain(|_, piece| piece.range != id);
        for interval in values {
            let last = interval.last();
            self.pieces
                .insert(interval.first(), Piece { last, range: id });
        }
    }

    /// The range no longer has these, but for those that have a holder.
    fn drop_values(&mut self, id: RangeId, gone: Interval, effects: &mut Effects) {
        let range = self.at_mut(id);
        let mut removed = range.free.remove_all(gone) + range.stock.remove_all(gone);
        if let Some(quarantine) = &mut range.quarantine {
            removed += quarantine.values.remove_all(gone);
        }
        range.size -= removed;
        let held = (gone.size() - removed).to_u64_saturating();
        self.apart += held as usize;
        if self.at(id).options.class != Class::Memory {
            effects.log(&Entry::Unknown { interval: gone });
        }
    }

    /// All is as it was, but written down in another way.
    fn change_class(
        &mut self,
        id: RangeId,
        class_before: Class,
        values: &[Interval],
        effects: &mut Effects,
    ) {
        let range = self.at_mut(id);
        for interval in range.stock.intervals().collect::<Vec<_>>() {
            range.stock.remove_all(interval);
            range.free.insert_all(interval);
        }
        let is_known = range.options.class != Class::Memory;
        if !is_known && class_before == Class::Memory {
            return;
        }
        for interval in values.iter().copied() {
            effects.log(&match is_known {
                true => Entry::Known { interval },
                false => Entry::Unknown { interval },
            });
        }
        self.log_quarantine(id, effects);
    }

    /// New values, as the options say that they start.
    fn add_values(&mut self, id: RangeId, new: &[Interval], now: Instant, effects: &mut Effects) {
        for interval in new.iter().copied() {
            let range = self.at_mut(id);
            range.free.insert_all(interval);
            range.size += interval.size();
            if range.options.class != Class::Memory {
                effects.log(&Entry::Known { interval });
            }
            self.take_in(id, interval, now, effects);
            self.freed.note(interval);
        }
        if self.at(id).options.start == Start::Quarantine {
            let until = end(now, self.at(id).options.quarantine);
            self.quarantine(id, new, until, now, effects);
        }
    }

    /// All of these that are free may have a holder. What is in quarantine
    /// already stays there for as long.
    pub(super) fn quarantine(
        &mut self,
        id: RangeId,
        values: &[Interval],
        until: Instant,
        now: Instant,
        effects: &mut Effects,
    ) {
        if until <= now || values.is_empty() {
            return;
        }
        let range = self.ranges[id.index()].as_mut();
        let range = range.expect("a range with values is there");
        let is_over = |held: &mut Quarantine| held.until <= now || held.values.count().is_zero();
        if let Some(held) = range.quarantine.take_if(is_over) {
            for interval in held.values.intervals() {
                range.free.insert_all(interval);
                self.freed.note(interval);
            }
        }
        let mut held = range.quarantine.take().unwrap_or_else(|| Quarantine {
            values: empty(&range.options),
            until,
        });
        held.until = held.until.max(until);
        for run in both(values.to_vec(), range.free.intervals().collect()) {
            range.free.remove_all(run);
            held.values.insert_all(run);
        }
        self.quarantine_next = self.quarantine_next.min(held.until);
        self.at_mut(id).quarantine = Some(held);
        self.log_quarantine(id, effects);
    }

    fn log_quarantine(&self, id: RangeId, effects: &mut Effects) {
        let range = self.at(id);
        if let Some(held) = &range.quarantine
            && range.options.class != Class::Memory
        {
            let until = held.until;
            for interval in held.values.intervals() {
                effects.log(&Entry::Quarantined { interval, until });
            }
        }
    }

    /// New values that have a holder, whose range was taken away or lost
    /// them, stay with it.
    fn take_in(&mut self, id: RangeId, new: Interval, now: Instant, effects: &mut Effects) {
        if self.apart == 0 {
            return;
        }
        if new.size() < Size::new(self.records.len() as u128) {
            for value in new.first()..=new.last() {
                if let Some(slot) = self.records.find(value) {
                    self.take_record_in(id, slot, now, effects);
                }
            }
            return;
        }
        let mut cursor = 0;
        while self.apart > 0
            && let Some(slot) = self.records.next_from(&mut cursor)
        {
            if new.contains(self.records.value(slot)) {
                self.take_record_in(id, slot, now, effects);
            }
        }
    }

    fn take_record_in(&mut self, id: RangeId, slot: Slot, now: Instant, effects: &mut Effects) {
        let value = self.records.value(slot);
        if self.records.head(slot).range == id.0 {
            // It was counted all the time.
            self.apart -= 1;
            let range = self.at_mut(id);
            range.free.remove(value);
            range.size -= Size::ONE;
            // It may have run out before it came back.
            self.slot(value, now, effects);
            return;
        }
        // If its time ran out, it did so in the range where it was.
        let Some(slot) = self.slot(value, now, effects) else {
            return;
        };
        self.apart -= 1;
        self.at_mut(id).free.remove(value);
        let head = self.records.head(slot);
        let was_logged = self.class(head.range) != Class::Memory;
        if head.range != STRAY {
            *self.counter(head.range, head.state) -= 1;
            self.at_mut(RangeId(head.range)).size -= Size::ONE;
            self.end_draining(RangeId(head.range));
        }
        self.move_in(slot, id);
        *self.counter(id.0, head.state) += 1;
        // What ran out by the rules of one range must not do so once more by
        // those of another.
        let is_said = was_logged && head.state == State::Reserved;
        match (was_logged, self.class(id.0) != Class::Memory) {
            (_, true) if !is_said => self.put_record(slot, effects.entry()),
            (true, false) => effects.log(&Entry::Freed {
                value,
                fence: head.fence,
            }),
            _ => (),
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
        let owner = kept.owner.map(<[u8]>::to_vec);
        let keys: Vec<(bool, Vec<u8>)> = kept
            .keys()
            .map(|key| (key.unique, key.bytes.to_vec()))
            .collect();
        let keys: Vec<Key<'_>> = keys
            .iter()
            .map(|(unique, bytes)| Key {
                unique: *unique,
                bytes,
            })
            .collect();
        let body = Body {
            created: kept.created,
            updated: kept.updated,
            updates: kept.updates,
            data: &data,
            owner: owner.as_deref(),
            keys: &keys,
        };
        self.records.replace(slot, head, body);
    }

    fn new_id(&self) -> Result<RangeId, RangeError> {
        let after_strays = self.ranges.iter().skip(1);
        let vacant = after_strays.take_while(|range| range.is_some());
        let at = vacant.count() + 1;
        match at {
            RANGES_MAX => Err(RangeError::TooMany),
            at => Ok(RangeId(at as u16)),
        }
    }
}

/// Two ranges cannot have the same values.
pub(super) fn check_overlap(
    name: &str,
    theirs: &RangeOptions,
    ours: &RangeOptions,
) -> Result<(), RangeError> {
    let both = theirs.spans.iter();
    let both = both.flat_map(|their| ours.spans.iter().map(move |our| (their, our)));
    for (their, our) in both {
        if let Some(interval) = their.interval.intersect(our.interval) {
            return Err(RangeError::Overlaps {
                name: name.to_owned(),
                interval,
                kind: their.kind,
            });
        }
    }
    Ok(())
}

/// The values that a range can give out.
pub(super) fn intervals(options: &RangeOptions) -> Vec<Interval> {
    let spans: Vec<_> = options.spans.iter().map(|span| span.interval).collect();
    let skip: Vec<_> = options.skip.iter().map(|span| span.interval).collect();
    minus(&spans, &skip)
}

/// The values in `these` but not in `those`.
pub(super) fn minus(these: &[Interval], those: &[Interval]) -> Vec<Interval> {
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

/// The values in both lists.
pub(super) fn both(mut these: Vec<Interval>, mut those: Vec<Interval>) -> Vec<Interval> {
    these.sort_by_key(|interval| interval.first());
    those.sort_by_key(|interval| interval.first());
    let mut both = Vec::new();
    let (mut this, mut that) = (0, 0);
    while let (Some(one), Some(other)) = (these.get(this), those.get(that)) {
        both.extend(one.intersect(*other));
        if one.last() < other.last() {
            this += 1;
        } else {
            that += 1;
        }
    }
    both
}

pub(super) fn check_name(name: &str) -> Result<(), RangeError> {
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
