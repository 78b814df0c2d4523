//! What is in a partition here: a few values, reserved for a while. It stands in for the
//! allocator, and is small enough to be checked entry by entry.

use std::collections::BTreeMap;

/// How many values a partition has.
pub(crate) const VALUES: u64 = 5;
/// How many bits of a fence count grants of one epoch.
pub(crate) const COUNTER_BITS: u32 = 4;

/// The state of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Register {
    /// How many entries there were.
    pub(crate) number: u64,
    /// The partition's own clock at the last entry, in microseconds.
    pub(crate) clock: u64,
    /// The last fence that was given.
    pub(crate) fence: u64,
    pub(crate) holds: BTreeMap<u64, Hold>,
    /// The last entry about each value.
    touched: [u64; VALUES as usize],
}

/// A value that is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) ask: u64,
    pub(crate) fence: u64,
    pub(crate) end: u64,
    /// The key that it has for itself, or zero.
    pub(crate) key: u64,
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) clock: u64,
    pub(crate) value: u64,
    /// The value is reserved so, or free.
    pub(crate) hold: Option<Hold>,
}

const ENTRY_LEN: usize = 64;

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let hold = self.hold.unwrap_or(Hold {
            ask: 0,
            fence: 0,
            end: 0,
            key: 0,
        });
        let is_held = u64::from(self.hold.is_some());
        numbers_to_bytes(&[
            self.number,
            self.clock,
            self.value,
            is_held,
            hold.ask,
            hold.fence,
            hold.end,
            hold.key,
        ])
    }

    pub(crate) fn decode_all(bytes: &[u8]) -> Vec<Self> {
        let read = |bytes: &[u8]| {
            let fields = numbers(bytes);
            Self {
                number: fields[0],
                clock: fields[1],
                value: fields[2],
                hold: (fields[3] == 1).then_some(Hold {
                    ask: fields[4],
                    fence: fields[5],
                    end: fields[6],
                    key: fields[7],
                }),
            }
        };
        bytes.chunks_exact(ENTRY_LEN).map(read).collect()
    }
}

impl Register {
    /// Apply an entry, or say what is wrong with it.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        self.count(entry)?;
        self.touched[entry.value as usize] = entry.number;
        match entry.hold {
            Some(hold) => {
                if hold.fence <= self.fence {
                    return Err(format!("G2: fence {} after {}", hold.fence, self.fence));
                }
                self.fence = hold.fence;
                if let Some(held) = self.holds.insert(entry.value, hold) {
                    return Err(format!("G3: value {} was held: {held:?}", entry.value));
                }
            }
            None => {
                if self.holds.remove(&entry.value).is_none() {
                    return Err(format!("value {} was freed twice", entry.value));
                }
            }
        }
        Ok(())
    }

    /// Apply an entry to what a snapshot showed, which may have it already.
    pub(crate) fn replay(&mut self, entry: &Entry) -> Result<(), String> {
        self.count(entry)?;
        let fence = entry.hold.map_or(0, |hold| hold.fence);
        self.fence = self.fence.max(fence);
        let touched = &mut self.touched[entry.value as usize];
        if *touched >= entry.number {
            return Ok(());
        }
        *touched = entry.number;
        match entry.hold {
            Some(hold) => _ = self.holds.insert(entry.value, hold),
            None => _ = self.holds.remove(&entry.value),
        }
        Ok(())
    }

    fn count(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.number != self.number + 1 {
            return Err(format!(
                "entry {} stands behind entry {}: one is twice in the log, or missing",
                entry.number, self.number
            ));
        }
        self.number = entry.number;
        self.clock = self.clock.max(entry.clock);
        Ok(())
    }

    /// The first piece of a snapshot, after this many entries.
    pub(crate) fn head(&self, number: u64) -> Vec<u8> {
        numbers_to_bytes(&[number, self.clock, self.fence])
    }

    /// The piece of a snapshot with one value, as it is now.
    pub(crate) fn piece(&self, value: u64) -> Vec<u8> {
        let touched = self.touched[value as usize];
        let mut all = vec![value, touched];
        if let Some(hold) = self.holds.get(&value) {
            all.extend([hold.ask, hold.fence, hold.end, hold.key]);
        }
        numbers_to_bytes(&all)
    }

    /// What the pieces of a snapshot show, each of its own moment.
    pub(crate) fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut register = Self::default();
        for (place, piece) in pieces.enumerate() {
            match (place, &numbers(piece)[..]) {
                (0, &[number, clock, fence]) => {
                    register.number = number;
                    register.clock = clock;
                    register.fence = fence;
                }
                (_, &[value, touched, ref hold @ ..]) => {
                    register.touched[value as usize] = touched;
                    if let &[ask, fence, end, key] = hold {
                        let hold = Hold {
                            ask,
                            fence,
                            end,
                            key,
                        };
                        register.holds.insert(value, hold);
                    }
                }
                _ => panic!("a piece of a snapshot"),
            }
        }
        register
    }
}

fn numbers_to_bytes(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers
        .iter()
        .map(|bytes| u64::from_be_bytes(*bytes))
        .collect()
}
