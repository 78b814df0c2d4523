//! Ranges as plain maps, one value at a time: what is true, by the rules alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::{Class, OnExpire, Place, RangeId, RangeOptions, Standing, Start};

/// No value of the model is larger.
pub(crate) const VALUES: u128 = 96;
const TICK: u64 = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Reserved,
    Detached,
    Cooling,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) fence: u64,
    pub(crate) until: Instant,
    pub(crate) data: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) keys: BTreeMap<Vec<u8>, bool>,
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) range: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) options: RangeOptions,
    pub(crate) values: BTreeSet<u128>,
    pub(crate) is_draining: bool,
}

impl Kept {
    pub(crate) fn is_logged(&self) -> bool {
        self.options.class != Class::Memory
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pub(crate) ranges: BTreeMap<String, Kept>,
    pub(crate) records: BTreeMap<u128, Record>,
    pub(crate) quarantined: BTreeMap<u128, Instant>,
    /// The values of which all is written down.
    pub(crate) known: BTreeSet<u128>,
    /// Values that became free by time, which may be noticed a tick late.
    pub(crate) lately: BTreeMap<u128, Instant>,
    /// Whose time ran out while their values were in no range: the last fence of
    /// each. That is not written down, so if a range has the value again, a
    /// restart may let it rest by the rules of that range.
    pub(crate) strays: BTreeMap<u128, u64>,
}

impl Model {
    /// Everything that time does until now.
    pub(crate) fn pass(&mut self, now: Instant) {
        self.quarantined.retain(|_, until| *until > now);
        let due: Vec<u128> = self
            .records
            .iter()
            .filter(|(_, record)| record.until <= now)
            .map(|(value, _)| *value)
            .collect();
        for value in due {
            self.end(value, now);
        }
        let passed = |until: Instant| until.as_nanos().div_ceil(TICK) <= now.as_nanos() / TICK;
        self.lately.retain(|_, until| !passed(*until));
        let records = &self.records;
        self.ranges.retain(|name, range| {
            !range.is_draining || records.values().any(|r| r.range.as_ref() == Some(name))
        });
    }

    fn end(&mut self, value: u128, now: Instant) {
        let Some(mut record) = self.records.remove(&value) else {
            return;
        };
        let options = record.range.as_ref().map(|name| &self.ranges[name].options);
        let rest = match (record.state, options) {
            (State::Reserved, Some(options)) => match options.on_expire {
                OnExpire::Notify => Some((State::Detached, options.detach)),
                OnExpire::Release => Some((State::Cooling, options.cool)),
            },
            _ => None,
        };
        if record.range.is_none() {
            self.strays.insert(value, record.fence);
        }
        let before = record.until;
        if let Some((state, rest)) = rest {
            record.until = end(before, rest);
            if record.until > now {
                record.state = state;
                if state == State::Cooling {
                    record.forget();
                }
                // The tick in which its old state is seen to end.
                self.lately.insert(value, before);
                self.records.insert(value, record);
                return;
            }
        }
        self.lately.insert(value, record.until);
    }

    /// The range that has this value and gives it out.
    pub(crate) fn home(&self, value: u128) -> Option<(&String, &Kept)> {
        let mut ranges = self.ranges.iter();
        ranges.find(|(_, range)| range.values.contains(&value) && !range.is_draining)
    }

    pub(crate) fn standing(&self, value: u128) -> Standing {
        match self.records.get(&value).map(|record| record.state) {
            Some(State::Reserved) => Standing::Reserved,
            Some(State::Detached) => Standing::Detached,
            Some(State::Cooling) => Standing::Cooling,
            None if self.home(value).is_none() => Standing::Outside,
            None if self.quarantined.contains_key(&value) => Standing::Quarantined,
            None => Standing::Free,
        }
    }

    pub(crate) fn is_free(&self, value: u128) -> bool {
        self.standing(value) == Standing::Free
    }

    /// Free, and long enough that the machine has noticed.
    pub(crate) fn is_surely_free(&self, value: u128) -> bool {
        self.is_free(value) && !self.lately.contains_key(&value)
    }

    pub(crate) fn with_key(&self, key: &[u8]) -> Vec<u128> {
        let has = |record: &Record| record.keys.contains_key(key);
        let with = self.records.iter().filter(|(_, record)| has(record));
        with.map(|(value, _)| *value).collect()
    }

    /// May this value, or a new one, have this key?
    pub(crate) fn is_taken(&self, key: &[u8], unique: bool, own: Option<u128>) -> bool {
        let mut others = self.with_key(key).into_iter().filter(|v| Some(*v) != own);
        others.any(|value| unique || self.records[&value].keys[key])
    }

    pub(crate) fn options_of(&self, value: u128) -> Option<&RangeOptions> {
        let name = self.records.get(&value)?.range.as_ref()?;
        Some(&self.ranges[name].options)
    }

    /// The record goes, or rests as its range wants.
    pub(crate) fn release(&mut self, value: u128, now: Instant) {
        let cool = self.options_of(value).map_or(Duration::ZERO, |o| o.cool);
        if cool.is_zero() {
            self.records.remove(&value);
        } else if let Some(record) = self.records.get_mut(&value) {
            record.state = State::Cooling;
            record.until = end(now, cool);
            record.forget();
        }
        self.lately.remove(&value);
        self.pass(now);
    }

    /// Which values of a place a range may give.
    pub(crate) fn within(&self, place: Place, names: &BTreeMap<RangeId, String>) -> Vec<u128> {
        let all = 0..VALUES;
        match place {
            Place::Range(id) => {
                let name = &names[&id];
                all.filter(|v| self.ranges[name].values.contains(v))
                    .collect()
            }
            Place::Within(within) => all.filter(|v| within.contains(*v)).collect(),
        }
    }

    /// A range comes, or changes.
    pub(crate) fn set_range(&mut self, name: &str, options: RangeOptions, now: Instant) {
        let values = values(&options);
        let before = self.ranges.get(name).map(|range| range.values.clone());
        let before = before.unwrap_or_default();
        let class_before = self.ranges.get(name).map(|range| range.options.class);
        for value in before.difference(&values) {
            self.quarantined.remove(value);
            self.known.remove(value);
        }
        let is_logged = options.class != Class::Memory;
        if class_before.is_some_and(|class| class != options.class) {
            for value in before.intersection(&values) {
                match is_logged {
                    true => self.known.insert(*value),
                    false => self.known.remove(value),
                };
            }
        }
        let new: Vec<u128> = values.difference(&before).copied().collect();
        for value in &new {
            if is_logged {
                self.known.insert(*value);
            }
            if let Some(record) = self.records.get_mut(value) {
                record.range = Some(name.to_owned());
            }
        }
        let until = end(now, options.quarantine);
        let is_unknown = options.start == Start::Quarantine && until > now && !new.is_empty();
        let range = Kept {
            options,
            values,
            is_draining: false,
        };
        self.ranges.insert(name.to_owned(), range);
        if is_unknown {
            self.keep_apart(name, &new, until);
        }
        self.pass(now);
    }

    /// These may have a holder, and all of their range wait for as long.
    pub(crate) fn keep_apart(&mut self, name: &str, new: &[u128], until: Instant) {
        for value in new {
            if !self.records.contains_key(value) {
                self.quarantined.insert(*value, until);
            }
        }
        let all = self.ranges[name].values.clone();
        let kept = |value: &u128| self.quarantined.get(value).copied();
        let last = all.iter().filter_map(kept).chain([until]).max();
        for value in all {
            if let Some(until) = self.quarantined.get_mut(&value) {
                *until = last.unwrap_or(*until);
            }
        }
    }

    pub(crate) fn remove_range(&mut self, name: &str, now: Instant) {
        let Some(range) = self.ranges.get_mut(name) else {
            return;
        };
        range.is_draining = true;
        for value in &range.values {
            self.quarantined.remove(value);
            self.known.remove(value);
        }
        self.pass(now);
    }

    /// What is true after a restart with these ranges, if this was all that
    /// was written down.
    pub(crate) fn restarted(mut self, config: &[(String, RangeOptions)], now: Instant) -> Self {
        let old = std::mem::take(&mut self.ranges);
        for (name, options) in config {
            let range = Kept {
                values: values(options),
                options: options.clone(),
                is_draining: false,
            };
            self.ranges.insert(name.clone(), range);
        }
        let homes: BTreeMap<u128, String> = self.homes();
        self.records.retain(|value, record| {
            let was = record.range.as_ref().and_then(|name| old.get(name));
            record.range = homes.get(value).cloned();
            was.is_none_or(Kept::is_logged)
        });
        let known = &self.known;
        self.quarantined.retain(|value, until| {
            known.contains(value) && homes.contains_key(value) && *until > now
        });
        let mut known = BTreeSet::new();
        for (name, range) in self.ranges.clone() {
            let until = end(now, range.options.quarantine);
            let mut new: Vec<u128> = range.values.iter().copied().collect();
            if range.is_logged() {
                new.retain(|value| !self.known.contains(value));
                known.extend(&range.values);
            }
            if range.options.start == Start::Quarantine && !new.is_empty() && until > now {
                self.keep_apart(&name, &new, until);
            } else if let Some(first) = range.values.iter().find_map(|v| self.quarantined.get(v)) {
                self.keep_apart(&name, &[], *first);
            }
        }
        self.known = known;
        self.pass(now);
        self
    }

    fn homes(&self) -> BTreeMap<u128, String> {
        let mut homes = BTreeMap::new();
        for (name, range) in &self.ranges {
            for value in &range.values {
                homes.insert(*value, name.clone());
            }
        }
        homes
    }
}

impl Record {
    pub(crate) fn forget(&mut self) {
        self.data.clear();
        self.keys.clear();
        self.id = None;
    }
}

/// The values that options name, one by one.
pub(crate) fn values(options: &RangeOptions) -> BTreeSet<u128> {
    let spans = options.spans.iter();
    let all = spans.flat_map(|span| span.interval.first()..=span.interval.last());
    let skipped = |value: &u128| options.skip.iter().any(|s| s.interval.contains(*value));
    all.filter(|value| !skipped(value)).collect()
}

/// The next whole millisecond after a span.
pub(crate) fn end(now: Instant, span: Duration) -> Instant {
    let nanos = (now + span).as_nanos().div_ceil(1_000_000) * 1_000_000;
    Instant::from_nanos(nanos)
}
