//! How a record lies in the arena.
//!
//! A byte of counts, the value if it is far from the origin of its range, the fence,
//! the keys, the times, the data, the owner if it has a name; all numbers as short as
//! they are small.

use super::slab::{from_millis, to_millis};
use super::{Body, Key};
use crate::allocator::bytes::{put_small, short};
use crate::time::Instant;

/// The lower bits of the first byte count the keys, the upper say how many
/// bytes the value takes.
const KEYS_BITS: u32 = 5;
const KEYS_MAX: usize = (1 << KEYS_BITS) - 1;
/// What is known of the owner stands in the lowest bits of how often a record was
/// updated: nothing, that its name is empty, or that its name is behind the data.
const OWNER_KINDS: u64 = 4;
const OWNER_UNKNOWN: u64 = 0;
const OWNER_PLAIN: u64 = 1;
const OWNER_NAMED: u64 = 2;
const VALUE_BYTES: [usize; 7] = [0, 6, 8, 10, 12, 14, 16];

/// A record in the arena, with whatever lies behind it.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a>(pub(super) &'a [u8]);

/// A record without its head.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocator) struct View<'a> {
    pub(in crate::allocator) created: Instant,
    pub(in crate::allocator) updated: Instant,
    pub(in crate::allocator) updates: u32,
    pub(in crate::allocator) data: &'a [u8],
    pub(in crate::allocator) owner: Option<&'a [u8]>,
    keys: Keys<'a>,
}

impl<'a> View<'a> {
    pub(in crate::allocator) const fn keys(&self) -> Keys<'a> {
        self.keys
    }

    /// All else.
    pub(in crate::allocator) const fn without_keys(&self) -> Body<'a> {
        Body {
            created: self.created,
            updated: self.updated,
            updates: self.updates,
            data: self.data,
            owner: self.owner,
            keys: &[],
        }
    }
}

/// The keys of a record, in the order they were given.
#[derive(Clone, Copy, Debug)]
pub(in crate::allocator) struct Keys<'a> {
    left: u8,
    rest: Reader<'a>,
}

impl<'a> Iterator for Keys<'a> {
    type Item = Key<'a>;

    fn next(&mut self) -> Option<Key<'a>> {
        self.left = self.left.checked_sub(1)?;
        let len = self.rest.number() as usize;
        Some(Key {
            unique: len % 2 == 1,
            bytes: self.rest.take(len / 2),
        })
    }
}

impl<'a> Layout<'a> {
    /// How far the value is from the origin of its range.
    pub(super) fn distance(self) -> u128 {
        let mut bytes = [0; 16];
        let len = self.value_len();
        bytes[..len].copy_from_slice(&self.0[1..1 + len]);
        u128::from_le_bytes(bytes)
    }

    pub(super) fn fence(self) -> u64 {
        self.behind_value().number()
    }

    pub(super) fn keys(self) -> Keys<'a> {
        let mut rest = self.behind_value();
        rest.number();
        Keys {
            left: self.0[0] & KEYS_MAX as u8,
            rest,
        }
    }

    pub(super) fn has_key(self, key: &[u8]) -> bool {
        self.keys().any(|own| own.bytes == key)
    }

    pub(super) fn view(self) -> View<'a> {
        let keys = self.keys();
        let mut behind = keys;
        while behind.next().is_some() {}
        let mut rest = behind.rest;
        let created = rest.number();
        let updated = created.wrapping_add_signed(unzigzag(rest.number()));
        let updates = rest.number();
        let len = rest.number() as usize;
        let data = rest.take(len);
        let owner = match updates % OWNER_KINDS {
            OWNER_UNKNOWN => None,
            OWNER_PLAIN => Some(&[][..]),
            _ => {
                let len = rest.number() as usize;
                Some(rest.take(len))
            }
        };
        View {
            created: from_millis(created),
            updated: from_millis(updated),
            updates: (updates / OWNER_KINDS) as u32,
            data,
            owner,
            keys,
        }
    }

    const fn value_len(self) -> usize {
        VALUE_BYTES[(self.0[0] >> KEYS_BITS) as usize]
    }

    const fn behind_value(self) -> Reader<'a> {
        Reader(self.0.split_at(1 + self.value_len()).1)
    }
}

/// Write a record down, in place of what `out` held.
pub(super) fn write(out: &mut Vec<u8>, distance: u128, fence: u64, body: &Body<'_>) {
    out.clear();
    assert!(body.keys.len() <= KEYS_MAX, "a record has few keys");
    let needed = 16 - distance.leading_zeros() as usize / 8;
    let code = VALUE_BYTES.partition_point(|len| *len < needed);
    out.push((code << KEYS_BITS | body.keys.len()) as u8);
    out.extend_from_slice(&distance.to_le_bytes()[..VALUE_BYTES[code]]);
    put_small(fence, out);
    for key in body.keys {
        put_small((key.bytes.len() as u64) << 1 | u64::from(key.unique), out);
        out.extend_from_slice(key.bytes);
    }
    let (created, updated) = (to_millis(body.created), to_millis(body.updated));
    put_small(created, out);
    put_small(zigzag(updated.cast_signed() - created.cast_signed()), out);
    let owner = match body.owner {
        None => OWNER_UNKNOWN,
        Some([]) => OWNER_PLAIN,
        Some(_) => OWNER_NAMED,
    };
    put_small(u64::from(body.updates) * OWNER_KINDS + owner, out);
    put_small(body.data.len() as u64, out);
    out.extend_from_slice(body.data);
    if let (Some(name), OWNER_NAMED) = (body.owner, owner) {
        put_small(name.len() as u64, out);
        out.extend_from_slice(name);
    }
}

#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> u64 {
        if let Some((number, len)) = short(self.0) {
            self.0 = &self.0[len..];
            return number;
        }
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.0[0];
            self.0 = &self.0[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    const fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
}

/// Small numbers of either sign as small numbers.
const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
