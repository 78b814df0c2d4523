//! Gives out the values of ranges, each to one holder for a time.
//!
//! A value is free, reserved, quarantined (perhaps it has a holder), detached
//! (its holder is gone, and a client may decide), cooling (given back, and
//! resting) or outside of every range. Nothing is held without an end.
//!
//! Every change is written into the log that the effects carry, and every
//! reservation has a fence that is larger than all before it, so that a holder
//! that lost a value cannot change what its next holder has. Where the log is
//! kept, and when an answer may be given, is left to others; [`Effects::wait`]
//! tells.

mod ask;
mod asked;
mod bytes;
mod change;
mod claimed;
mod effects;
mod entry;
mod fields;
mod free;
mod freed;
mod handover;
mod hold;
mod interval;
mod known;
mod lapse;
mod limits;
mod look;
mod many;
mod part;
mod partition;
mod parts;
mod range;
mod records;
mod refused;
mod reserve;
mod restore;
mod size;
mod slot;
mod snapshot;
mod span;
mod split;
mod untils;
mod value;
mod values;
mod waiters;
mod wheel;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::rng::Rng;
use crate::time::Instant;
use entry::Reserved;
use freed::Freed;
use range::Range;
use records::{Body, Head, Records, State};
use reserve::Taken;
use slot::Slot;
use wheel::Wheel;

pub use ask::{Ask, Change, Key, Place, Prefer, Proof, Vouched, Which};
pub use effects::{Effects, Event, Rest, What};
pub use entry::{BadEntry, Clock, Entry};
pub use fields::{DATA_LEN_MAX, FIELD_LEN_MAX, Field, Fields};
pub use hold::{Held, Released};
pub use interval::Interval;
pub use limits::{COUNT_MAX, KEY_LEN_MAX, KEYS_MAX, OWNER_LEN_MAX, PLACES_MAX, TIERS_MAX};
pub use look::{Bytes, Count, Filter, Seen, Standing};
pub use many::{Many, ReadPart, ReportedKey, RestorePart};
pub use parts::{Parts, RestoreParts};
pub use range::{
    Class, OnExpire, Order, RangeError, RangeId, RangeOptions, RangeStats, Start, TIME_MAX,
};
pub use refused::Refused;
pub use restore::Restore;
pub use size::Size;
pub use snapshot::SnapshotAt;
pub use span::{Span, SpanError};
pub use split::LogSplit;
pub use value::{Kind, Shown, Text, ValueError, parse_value};
pub use waiters::{Told, Waiters};

pub use crate::waiting::Tally;

/// The first byte of an asker's id among the keys. No other key begins with it.
const ID_MARK: u8 = 0;
/// The range of a record whose range was taken away: no range has this number.
const STRAY: u16 = 0;
/// This many fences are set aside at once for those that are told before they are
/// written down.
const FENCES: u64 = 1 << 20;
/// There may be at most this many ranges.
const RANGES_MAX: usize = 4_096;

/// How an allocator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// At most this many values may have a holder at once.
    pub reservations_max: usize,
    /// No fence is smaller or equal. What is larger than ever before, for
    /// example the time in microseconds, keeps fences growing where nothing was
    /// written down.
    pub fence: u64,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reservations_max: 50_000_000,
            fence: 0,
            seed: 0,
        }
    }
}

/// A value that was given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The value.
    pub value: u128,
    /// How it is printed.
    pub kind: Kind,
    /// Its range.
    pub range: RangeId,
    /// Larger than that of every earlier holder.
    pub fence: u64,
    /// When it ends unless it is prolonged.
    pub until: Instant,
    /// How much it was preferred.
    pub tier: u8,
    /// It had been given to the same asker before.
    pub is_known: bool,
}

/// Gives out the values of ranges.
#[derive(Debug)]
pub struct Allocator {
    reservations_max: usize,
    ranges: Vec<Option<Range>>,
    names: BTreeMap<String, RangeId>,
    /// By their first value, all values that can ever be given out.
    pieces: BTreeMap<u128, Piece>,
    records: Records,
    wheel: Wheel,
    fence: u64,
    /// Fences up to this were set aside, by the entry at that place.
    fence_logged: u64,
    fence_at: u64,
    /// And up to this it is safe.
    fence_safe: u64,
    events: u64,
    /// When the next quarantine ends.
    quarantine_next: Instant,
    /// This many records have values that are not among those of their range.
    apart: usize,
    rng: Rng,
    taken: Vec<Taken>,
    /// A machine of another partition has one of the keys that this one is asked for.
    keys_taken: bool,
    /// Where an ask last got a value.
    asked: Option<RangeId>,
    /// Values that became free and were not offered to an ask yet, while any ask waits.
    freed: Freed,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    last: u128,
    range: RangeId,
}

impl Allocator {
    /// An allocator without ranges.
    pub fn new(options: &Options) -> Self {
        Self {
            reservations_max: options.reservations_max,
            // Strays have the first number.
            ranges: vec![None],
            names: BTreeMap::new(),
            pieces: BTreeMap::new(),
            records: Records::new(options.seed),
            wheel: Wheel::new(),
            fence: options.fence,
            fence_logged: 0,
            fence_at: 0,
            fence_safe: options.fence,
            events: 0,
            quarantine_next: Instant::NEVER,
            apart: 0,
            rng: Rng::new(options.seed),
            taken: Vec::new(),
            keys_taken: false,
            asked: None,
            freed: Freed::default(),
        }
    }

    /// The caller that drives the machine has made all entries up to `position` safe.
    pub fn durable(&mut self, position: u64) {
        if position >= self.fence_at {
            self.fence_safe = self.fence_logged;
        }
        for range in self.ranges.iter_mut().flatten() {
            if range.options.class == Class::Claimed {
                range.stock.durable(position);
            }
        }
    }

    /// The range of this name.
    pub fn range(&self, name: &str) -> Option<RangeId> {
        self.names.get(name).copied()
    }

    /// The name of a range.
    pub fn name(&self, range: RangeId) -> Option<&str> {
        let range = self.ranges.get(range.index())?.as_ref()?;
        Some(&range.name)
    }

    /// How a range is.
    pub fn options(&self, range: RangeId) -> Option<&RangeOptions> {
        let range = self.ranges.get(range.index())?.as_ref()?;
        Some(&range.options)
    }

    fn at(&self, range: RangeId) -> &Range {
        let range = self.ranges[range.index()].as_ref();
        range.expect("a range with values is there")
    }

    fn at_mut(&mut self, range: RangeId) -> &mut Range {
        let range = self.ranges[range.index()].as_mut();
        range.expect("a range with values is there")
    }

    /// A value that is nowhere gets a holder.
    fn begin(
        &mut self,
        value: u128,
        range: RangeId,
        until: Instant,
        body: Body<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> u64 {
        self.fence += 1;
        let head = Head {
            fence: self.fence,
            until,
            range: range.0,
            state: State::Reserved,
        };
        self.set_fences_aside(range.0, effects);
        let slot = self.records.insert(value, head, body);
        self.records.watch(slot, &mut self.wheel);
        self.at_mut(range).reserved += 1;
        self.log_begun(value, head, &body, effects);
        self.tell(What::Reserved, slot, now, effects);
        head.fence
    }

    /// Fences grow over a crash, also those that are told before they are written
    /// down. More are set aside while there are some, so that hardly any ask
    /// waits for it.
    fn set_fences_aside(&mut self, range: u16, effects: &mut Effects) {
        if self.class(range) == Class::Sync {
            return;
        }
        if self.fence.saturating_add(FENCES / 2) > self.fence_logged {
            self.log_fences(effects);
        }
        effects.wait |= self.fence > self.fence_safe;
    }

    fn log_fences(&mut self, effects: &mut Effects) {
        self.fence_logged = self.fence.saturating_add(FENCES);
        let last = self.fence_logged;
        effects.log(&Entry::Fence { last });
        self.fence_at = effects.position();
    }

    /// Must all be safe before something is told of this holder's value?
    fn must_wait(&self, range: u16, fence: u64) -> bool {
        fence > self.fence_safe
            || match self.class(range) {
                Class::Sync => true,
                Class::Claimed => self.at(RangeId(range)).stock.is_waiting(),
                Class::Memory => false,
            }
    }

    /// What was just logged must be safe before it is told, and before anything
    /// else is told of this range, although it may claim values before.
    fn wait_for(&mut self, range: RangeId, effects: &mut Effects) {
        if self.class(range.0) != Class::Memory {
            effects.wait = true;
            self.at_mut(range).stock.wait_for(effects.position());
        }
    }

    /// Write a whole record down, if its range does that.
    fn log_reserved(&self, slot: Slot, effects: &mut Effects) {
        let head = self.records.head(slot);
        effects.wait |= self.must_wait(head.range, head.fence);
        if self.class(head.range) != Class::Memory {
            self.put_record(slot, effects.entry());
        }
    }

    /// The same of one that just began, without reading it again.
    fn log_begun(&self, value: u128, head: Head, body: &Body<'_>, effects: &mut Effects) {
        effects.wait |= self.must_wait(head.range, head.fence);
        if self.class(head.range) != Class::Memory {
            let all = reserved(value, head, body);
            all.put_with(false, body.keys.iter().copied(), effects.entry());
        }
    }

    /// A record as it is written down.
    fn put_record(&self, slot: Slot, into: &mut Vec<u8>) {
        let head = self.records.head(slot);
        let value = self.records.value(slot);
        let Head { fence, until, .. } = head;
        if head.state == State::Cooling {
            let entry = Entry::Cooling {
                value,
                fence,
                until,
            };
            return entry.put(into);
        }
        let view = self.records.body(slot);
        let all = reserved(value, head, &view.without_keys());
        all.put_with(head.state == State::Detached, view.keys(), into);
    }

    /// Write down anything else about a holder's value.
    fn log(&self, head: Head, entry: &Entry<'_>, effects: &mut Effects) {
        effects.wait |= self.must_wait(head.range, head.fence);
        if self.class(head.range) != Class::Memory {
            effects.log(entry);
        }
    }

    fn class(&self, range: u16) -> Class {
        // What has lost its range had been written down.
        match range {
            STRAY => Class::Sync,
            range => self.at(RangeId(range)).options.class,
        }
    }

    fn tell(&mut self, what: What, slot: Slot, now: Instant, effects: &mut Effects) {
        self.events += 1;
        if let Some(events) = &mut effects.events {
            let head = self.records.head(slot);
            events.push(Event {
                number: self.events,
                at: now,
                what,
                value: self.records.value(slot),
                range: (head.range != STRAY).then_some(RangeId(head.range)),
                fence: head.fence,
                owner: self.records.body(slot).owner.map(Into::into),
            });
        }
    }

    /// Which ranges have values within these, and which values, in order.
    fn pieces_in(&self, within: Interval) -> impl Iterator<Item = (RangeId, Interval)> + '_ {
        pieces_in(&self.pieces, within)
    }

    /// The range that may give this value out.
    fn range_of(&self, value: u128) -> Option<RangeId> {
        let (_, piece) = self.pieces.range(..=value).next_back()?;
        (value <= piece.last).then_some(piece.range)
    }

    fn kind(&self, value: u128, range: RangeId) -> Kind {
        let spans = &self.at(range).options.spans;
        let span = spans.iter().find(|span| span.interval.contains(value));
        // A partition may have none of the values of a range.
        let span = span.or(spans.first());
        span.map_or(Kind::Number, |span| span.kind)
    }

    /// Does this record have the key for itself?
    fn has_alone(&self, slot: Slot, key: &[u8]) -> bool {
        let mut keys = self.records.body(slot).keys();
        keys.any(|other| other.unique && other.bytes == key)
    }
}

/// The keys of a record, with the asker's id among them, each once.
struct Keys<'a>(Cow<'a, [Key<'a>]>);

impl<'a> Keys<'a> {
    fn new(keys: &'a [Key<'a>], id: Option<&'a [u8]>) -> Self {
        let differ = |at: usize| keys[..at].iter().all(|key| key.bytes != keys[at].bytes);
        if id.is_none() && (0..keys.len()).all(differ) {
            return Self(Cow::Borrowed(keys));
        }
        let mut all = Self::none();
        for key in keys {
            all.add(key.bytes, key.unique);
        }
        if let Some(id) = id {
            all.add(id, false);
        }
        all
    }

    const fn none() -> Self {
        Self(Cow::Borrowed(&[]))
    }

    /// Add a key, unless it is there or there is no room.
    fn add(&mut self, bytes: &'a [u8], unique: bool) -> bool {
        let keys = self.0.to_mut();
        if let Some(known) = keys.iter_mut().find(|key| key.bytes == bytes) {
            known.unique |= unique;
            return true;
        }
        let has_room = keys.len() <= KEYS_MAX;
        if has_room {
            keys.push(Key { unique, bytes });
        }
        has_room
    }

    fn as_slice(&self) -> &[Key<'a>] {
        &self.0
    }
}

/// Which ranges have values within these, and which values, in order.
fn pieces_in(
    pieces: &BTreeMap<u128, Piece>,
    within: Interval,
) -> impl Iterator<Item = (RangeId, Interval)> + '_ {
    let before = pieces.range(..=within.first()).next_back();
    let rest = pieces.range(within.first()..=within.last());
    // One that begins just there is in both.
    let before = before.filter(move |(first, _)| **first < within.first());
    before
        .into_iter()
        .chain(rest)
        .filter_map(move |(first, piece)| {
            let all = Interval::new(*first, piece.last)?;
            Some((piece.range, all.intersect(within)?))
        })
}

/// How long, if the range allows it.
fn span(
    options: &RangeOptions,
    wanted: Option<Duration>,
    usual: Duration,
) -> Result<Duration, Refused> {
    let ttl_max = options.ttl_max;
    match wanted {
        None => Ok(usual),
        Some(Duration::ZERO) => Err(Refused::NoTime),
        Some(ttl) if ttl > ttl_max => Err(Refused::TooLong { ttl_max }),
        Some(ttl) => Ok(ttl),
    }
}

/// The instant after a span, in whole milliseconds as they are written down.
fn end(now: Instant, span: Duration) -> Instant {
    const NANOS_IN_MILLI: u64 = 1_000_000;
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let end = now.after(nanos).as_nanos().div_ceil(NANOS_IN_MILLI);
    Instant::from_nanos(end.saturating_mul(NANOS_IN_MILLI))
}

/// A record as it is written down, but for its keys.
fn reserved<'a>(value: u128, head: Head, body: &Body<'a>) -> Reserved<'a> {
    Reserved {
        value,
        fence: head.fence,
        until: head.until,
        created: body.created,
        updated: body.updated,
        updates: body.updates,
        data: body.data,
        keys: &[],
        owner: body.owner,
    }
}

/// The data and keys of a new record.
fn body<'a>(
    data: &'a Fields,
    keys: &'a Keys<'_>,
    owner: Option<&'a [u8]>,
    now: Instant,
) -> Body<'a> {
    let now = end(now, Duration::ZERO);
    Body {
        created: now,
        updated: now,
        updates: 0,
        data: data.as_bytes(),
        owner,
        keys: keys.as_slice(),
    }
}

/// The id of an ask as a key of its records.
pub fn id_key(id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(id.len() + 1);
    key.push(ID_MARK);
    key.extend_from_slice(id);
    key
}
