//! Log entries: each change, so that it can be applied again.
//!
//! An entry says how a value is from now on, not what changed: a snapshot may
//! be taken piece by piece while entries go on, and reading the pieces and then
//! the entries since it began gives what is true in the end. That time ran out is
//! not written down, because it follows from what is.

use std::time::Duration;

use super::ask::Key;
use super::bytes::{Reader, Torn, put_number, put_small, put_text, small_len};
use super::interval::Interval;
use crate::time::Instant;

const RESERVED: u8 = 1;
const PROLONGED: u8 = 2;
const FREED: u8 = 3;
const DETACHED: u8 = 4;
const COOLING: u8 = 5;
const QUARANTINED: u8 = 6;
const CLAIMED: u8 = 7;
const FENCE: u8 = 8;
const CLOCK: u8 = 9;
const STOPPED: u8 = 10;
const LAPSED: u8 = 11;
const KNOWN: u8 = 12;
const UNKNOWN: u8 = 13;
const PROMISED: u8 = 14;
/// As `RESERVED` and `LAPSED`, with an owner.
const RESERVED_BY: u8 = 15;
const LAPSED_BY: u8 = 16;
const FORGOTTEN: u8 = 17;

const NANOS_IN_MILLI: u64 = 1_000_000;

/// One thing that is true from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A value is reserved, with all that stands beside it.
    Reserved(Reserved<'a>),
    /// Its time ran out, and it waits for a client to decide, with all that
    /// stands beside it.
    Lapsed(Reserved<'a>),
    /// A reservation ends at another instant.
    Prolonged {
        /// Which value.
        value: u128,
        /// Whose.
        fence: u64,
        /// When it ends.
        until: Instant,
    },
    /// A value has no holder any more.
    Freed {
        /// Which value.
        value: u128,
        /// The fence of its last holder.
        fence: u64,
    },
    /// A value lost its holder, and waits for a client to decide.
    Detached {
        /// Which value.
        value: u128,
        /// The fence of its last holder.
        fence: u64,
        /// When it becomes free.
        until: Instant,
    },
    /// A value was given back, and rests.
    Cooling {
        /// Which value.
        value: u128,
        /// The fence of its last holder.
        fence: u64,
        /// When it becomes free.
        until: Instant,
    },
    /// It is not known whether these values have a holder.
    Quarantined {
        /// Which values.
        interval: Interval,
        /// When those that were not heard of become free.
        until: Instant,
    },
    /// All that happens to these values is written down from now on. They are
    /// free, but for those with a record.
    Known {
        /// Which values.
        interval: Interval,
    },
    /// Nothing more is written down of these values, but for those with a
    /// record.
    Unknown {
        /// Which values.
        interval: Interval,
    },
    /// These values may be given away before it is written down.
    Claimed {
        /// Which values.
        interval: Interval,
    },
    /// None of these values is given away or prolonged for longer than this
    /// before it is written down.
    Promised {
        /// Which values.
        interval: Interval,
        /// How long at most, in whole milliseconds.
        span: Duration,
    },
    /// No later fence is smaller or equal.
    Fence {
        /// The last that was given.
        last: u64,
    },
    /// How the clocks stood when a batch was closed.
    Clock(Clock),
    /// All that was done is written down, and nothing more will be.
    Stopped,
    /// The log up to here may have lost its end, so nothing of it counts: any value may have
    /// a holder.
    Forgotten,
}

/// A reservation as it stands in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved<'a> {
    /// Which value.
    pub value: u128,
    /// The number of this reservation.
    pub fence: u64,
    /// When it ends.
    pub until: Instant,
    /// When it began.
    pub created: Instant,
    /// When its holder was heard of last.
    pub updated: Instant,
    /// How often it was written or updated.
    pub updates: u32,
    /// Its fields, encoded.
    pub(super) data: &'a [u8],
    /// Its keys, encoded.
    pub(super) keys: &'a [u8],
    /// The owner, if known.
    pub owner: Option<&'a [u8]>,
}

/// How the clocks stood at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The machine's clock.
    pub now: Instant,
    /// Milliseconds since 1970.
    pub wall: u64,
    /// Which boot of the system it was.
    pub boot: u128,
    /// Since that boot.
    pub since_boot: Duration,
}

impl<'a> Entry<'a> {
    /// Write it at the end.
    pub fn put(&self, into: &mut Vec<u8>) {
        match self {
            Self::Reserved(reserved) => reserved.put(false, into),
            Self::Lapsed(reserved) => reserved.put(true, into),
            Self::Prolonged {
                value,
                fence,
                until,
            } => put_state(PROLONGED, *value, *fence, *until, into),
            Self::Freed { value, fence } => {
                into.push(FREED);
                put_number(*value, into);
                put_small(*fence, into);
            }
            Self::Detached {
                value,
                fence,
                until,
            } => put_state(DETACHED, *value, *fence, *until, into),
            Self::Cooling {
                value,
                fence,
                until,
            } => put_state(COOLING, *value, *fence, *until, into),
            Self::Quarantined { interval, until } => {
                into.push(QUARANTINED);
                put_interval(*interval, into);
                put_instant(*until, into);
            }
            Self::Known { interval } => put_values(KNOWN, *interval, into),
            Self::Unknown { interval } => put_values(UNKNOWN, *interval, into),
            Self::Claimed { interval } => put_values(CLAIMED, *interval, into),
            Self::Promised { interval, span } => {
                put_values(PROMISED, *interval, into);
                put_small(span.as_millis() as u64, into);
            }
            Self::Fence { last } => {
                into.push(FENCE);
                put_small(*last, into);
            }
            Self::Clock(clock) => clock.put(into),
            Self::Stopped => into.push(STOPPED),
            Self::Forgotten => into.push(FORGOTTEN),
        }
    }

    /// How many of these bytes are whole entries that have at most `most` bytes
    /// together; the first one counts however long it is.
    pub fn whole(bytes: &[u8], most: usize) -> usize {
        let mut whole = 0;
        let mut reader = Reader(bytes);
        while bytes.len() > most && Entry::read(&mut reader).is_ok() {
            let read = bytes.len() - reader.0.len();
            if read > most && whole > 0 {
                return whole;
            }
            whole = read;
        }
        // All of it, or damage that is for others to find.
        if bytes.len() > most && whole > 0 {
            whole
        } else {
            bytes.len()
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Torn> {
        Ok(match reader.byte()? {
            RESERVED => Self::Reserved(Reserved::read(reader, false)?),
            LAPSED => Self::Lapsed(Reserved::read(reader, false)?),
            RESERVED_BY => Self::Reserved(Reserved::read(reader, true)?),
            LAPSED_BY => Self::Lapsed(Reserved::read(reader, true)?),
            PROLONGED => {
                let (value, fence, until) = state(reader)?;
                Self::Prolonged {
                    value,
                    fence,
                    until,
                }
            }
            FREED => Self::Freed {
                value: reader.number()?,
                fence: reader.small()?,
            },
            DETACHED => {
                let (value, fence, until) = state(reader)?;
                Self::Detached {
                    value,
                    fence,
                    until,
                }
            }
            COOLING => {
                let (value, fence, until) = state(reader)?;
                Self::Cooling {
                    value,
                    fence,
                    until,
                }
            }
            QUARANTINED => Self::Quarantined {
                interval: interval(reader)?,
                until: instant(reader)?,
            },
            KNOWN => Self::Known {
                interval: interval(reader)?,
            },
            UNKNOWN => Self::Unknown {
                interval: interval(reader)?,
            },
            CLAIMED => Self::Claimed {
                interval: interval(reader)?,
            },
            PROMISED => Self::Promised {
                interval: interval(reader)?,
                span: Duration::from_millis(reader.small()?),
            },
            FENCE => Self::Fence {
                last: reader.small()?,
            },
            CLOCK => Self::Clock(Clock::read(reader)?),
            STOPPED => Self::Stopped,
            FORGOTTEN => Self::Forgotten,
            _ => return Err(Torn),
        })
    }
}

impl<'a> Reserved<'a> {
    fn put(&self, is_lapsed: bool, into: &mut Vec<u8>) {
        self.put_all_but_keys(is_lapsed, into);
        put_text(self.keys, into);
        self.put_owner(into);
    }

    /// Write it as [`Entry::Reserved`], or as [`Entry::Lapsed`], with these keys
    /// in place of its own: a caller that has them as they are need not encode
    /// them first.
    pub(super) fn put_with<'k>(
        &self,
        is_lapsed: bool,
        keys: impl Iterator<Item = Key<'k>> + Clone,
        into: &mut Vec<u8>,
    ) {
        self.put_all_but_keys(is_lapsed, into);
        let len = |key: Key<'_>| 1 + small_len(key.bytes.len() as u64) + key.bytes.len();
        put_small(keys.clone().map(len).sum::<usize>() as u64, into);
        for key in keys {
            into.push(u8::from(key.unique));
            put_text(key.bytes, into);
        }
        self.put_owner(into);
    }

    fn put_owner(&self, into: &mut Vec<u8>) {
        if let Some(owner) = self.owner {
            put_text(owner, into);
        }
    }

    fn put_all_but_keys(&self, is_lapsed: bool, into: &mut Vec<u8>) {
        let kind = match (is_lapsed, self.owner.is_some()) {
            (false, false) => RESERVED,
            (true, false) => LAPSED,
            (false, true) => RESERVED_BY,
            (true, true) => LAPSED_BY,
        };
        put_state(kind, self.value, self.fence, self.until, into);
        put_instant(self.created, into);
        put_instant(self.updated, into);
        put_small(u64::from(self.updates), into);
        put_text(self.data, into);
    }

    fn read(reader: &mut Reader<'a>, has_owner: bool) -> Result<Self, Torn> {
        let (value, fence, until) = state(reader)?;
        Ok(Self {
            value,
            fence,
            until,
            created: instant(reader)?,
            updated: instant(reader)?,
            updates: reader.small()?.try_into().map_err(|_| Torn)?,
            data: reader.text()?,
            keys: reader.text()?,
            owner: if has_owner {
                Some(reader.text()?)
            } else {
                None
            },
        })
    }
}

impl Clock {
    fn put(&self, into: &mut Vec<u8>) {
        into.push(CLOCK);
        put_instant(self.now, into);
        put_small(self.wall, into);
        put_number(self.boot, into);
        let since_boot = u64::try_from(self.since_boot.as_millis()).unwrap_or(u64::MAX);
        put_small(since_boot, into);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Torn> {
        Ok(Self {
            now: instant(reader)?,
            wall: reader.small()?,
            boot: reader.number()?,
            since_boot: Duration::from_millis(reader.small()?),
        })
    }
}

/// The entries of a batch or of a piece of a snapshot.
///
/// # Errors
///
/// Where they cannot be read on, which only damage explains.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, BadEntry>> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let at = bytes.len() - reader.0.len();
        let entry = Entry::read(&mut reader).map_err(|Torn| {
            reader = Reader(&[]);
            BadEntry { at }
        });
        Some(entry)
    })
}

/// An entry that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadEntry {
    /// How many bytes before it could.
    pub at: usize,
}

impl std::fmt::Display for BadEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an entry at byte {} cannot be read", self.at)
    }
}

impl std::error::Error for BadEntry {}

fn put_state(kind: u8, value: u128, fence: u64, until: Instant, into: &mut Vec<u8>) {
    into.push(kind);
    put_number(value, into);
    put_small(fence, into);
    put_instant(until, into);
}

fn state(reader: &mut Reader<'_>) -> Result<(u128, u64, Instant), Torn> {
    Ok((reader.number()?, reader.small()?, instant(reader)?))
}

/// In milliseconds, the next whole one: nothing ends early by it.
fn put_instant(instant: Instant, into: &mut Vec<u8>) {
    put_small(instant.as_nanos().div_ceil(NANOS_IN_MILLI), into);
}

fn instant(reader: &mut Reader<'_>) -> Result<Instant, Torn> {
    Ok(Instant::from_nanos(
        reader.small()?.saturating_mul(NANOS_IN_MILLI),
    ))
}

fn put_values(kind: u8, interval: Interval, into: &mut Vec<u8>) {
    into.push(kind);
    put_interval(interval, into);
}

fn put_interval(interval: Interval, into: &mut Vec<u8>) {
    put_number(interval.first(), into);
    put_number(interval.last() - interval.first(), into);
}

fn interval(reader: &mut Reader<'_>) -> Result<Interval, Torn> {
    let first = reader.number()?;
    let last = first.checked_add(reader.number()?).ok_or(Torn)?;
    Interval::new(first, last).ok_or(Torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Entry<'static>> {
        let until = Instant::from_nanos(5_000_000);
        let (value, fence) = (u128::MAX, 77);
        let interval = Interval::new(7, u128::MAX).unwrap();
        let reserved = Reserved {
            value: 0xffff_0a00_0001,
            fence,
            until,
            created: Instant::from_nanos(1_000_000),
            updated: Instant::from_nanos(2_000_000),
            updates: 3,
            data: b"data",
            keys: b"keys",
            owner: None,
        };
        let owned = |owner| Reserved {
            owner: Some(owner),
            ..reserved.clone()
        };
        vec![
            Entry::Reserved(owned(b"anna")),
            Entry::Reserved(owned(b"")),
            Entry::Lapsed(owned(b"anna")),
            Entry::Reserved(reserved.clone()),
            Entry::Lapsed(reserved),
            Entry::Prolonged {
                value,
                fence,
                until,
            },
            Entry::Freed { value, fence },
            Entry::Detached {
                value,
                fence,
                until,
            },
            Entry::Cooling {
                value,
                fence,
                until,
            },
            Entry::Quarantined { interval, until },
            Entry::Known { interval },
            Entry::Unknown { interval },
            Entry::Claimed { interval },
            Entry::Promised {
                interval,
                span: Duration::from_millis(3_600_001),
            },
            Entry::Fence { last: u64::MAX },
            Entry::Clock(Clock {
                now: until,
                wall: 1_800_000_000_000,
                boot: u128::MAX / 3,
                since_boot: Duration::from_millis(99),
            }),
            Entry::Stopped,
            Entry::Forgotten,
        ]
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        all().iter().for_each(|entry| entry.put(&mut bytes));
        bytes
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let bytes = bytes();
        let read: Result<Vec<_>, _> = entries(&bytes).collect();
        assert_eq!(read, Ok(all()));
    }

    #[test]
    fn a_batch_cut_anywhere_gives_whole_entries_and_then_an_error() {
        let bytes = bytes();
        for len in 0..bytes.len() {
            let read: Vec<_> = entries(&bytes[..len]).collect();
            let whole = read.iter().take_while(|entry| entry.is_ok()).count();
            assert!(read.len() <= whole + 1, "nothing follows an error");
            for (read, written) in read.iter().flatten().zip(all()) {
                assert_eq!(*read, written);
            }
        }
    }

    #[test]
    fn a_long_log_is_cut_between_entries() {
        let bytes = bytes();
        for most in 0..bytes.len() + 2 {
            let mut read = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (part, after) = rest.split_at(Entry::whole(rest, most));
                let before = read.len();
                read.extend(entries(part).map(Result::unwrap));
                assert!(part.len() <= most || read.len() == before + 1, "{most}");
                rest = after;
            }
            assert_eq!(read, all());
        }
    }

    #[test]
    fn instants_are_never_written_down_early() {
        let mut bytes = Vec::new();
        let until = Instant::from_nanos(1_000_001);
        let entry = Entry::Prolonged {
            value: 1,
            fence: 1,
            until,
        };
        entry.put(&mut bytes);
        let Some(Ok(Entry::Prolonged { until, .. })) = entries(&bytes).next() else {
            panic!("it is read again");
        };
        assert_eq!(until.as_nanos(), 2_000_000);
    }
}
