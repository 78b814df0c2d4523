//! Tags of tickets. A tag has its slot in the partition of what the ticket is of, so that
//! clients of Redis Cluster send commands about the ticket to the owner of that partition.

use std::fmt;

use super::partitions::Partitions;

/// Two or three letters or digits in braces, or nothing.
///
/// It is two bytes, as every lease has one: its letters as digits of a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotTag(u16);

const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// A digit of the number is zero, or the place of a letter and one.
const RADIX: u16 = LETTERS.len() as u16 + 1;

impl SlotTag {
    /// No tag.
    pub const NONE: Self = Self(0);
    /// The most bytes of a tag as it is written, with its braces.
    pub const LEN_MAX: usize = 5;

    /// A tag for each partition.
    pub fn all(partitions: Partitions) -> Box<[Self]> {
        let mut all = vec![Self::NONE; partitions.count() as usize];
        let mut missing = all.len();
        let tags = (1..).map(Self).filter(|tag| tag.letters().1 > 1);
        for tag in tags {
            let (letters, len) = tag.letters();
            let partition = partitions.of_name(&letters[..len]);
            let place = &mut all[partition as usize];
            if place.is_none() {
                *place = tag;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        all.into()
    }

    /// Whether it is none.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Parses the tag that a text begins with, and returns what follows. A text without
    /// braces has none.
    pub fn split_from(text: &[u8]) -> Option<(Self, &[u8])> {
        let Some(rest) = text.strip_prefix(b"{") else {
            return Some((Self::NONE, text));
        };
        let len = rest.iter().position(|byte| *byte == b'}')?;
        let (letters, rest) = (&rest[..len], &rest[len + 1..]);
        if !(2..=3).contains(&len) {
            return None;
        }
        let mut number = 0;
        for letter in letters {
            let at = LETTERS.iter().position(|known| known == letter)?;
            number = number * RADIX + at as u16 + 1;
        }
        Some((Self(number), rest))
    }

    /// As it is written, and how many bytes of it count.
    pub fn text(self) -> ([u8; Self::LEN_MAX], usize) {
        let mut text = [0; Self::LEN_MAX];
        let (letters, len) = self.letters();
        if len == 0 {
            return (text, 0);
        }
        text[0] = b'{';
        text[1..=len].copy_from_slice(&letters[..len]);
        text[len + 1] = b'}';
        (text, len + 2)
    }

    /// Its letters, and how many there are; none if a zero stands between them.
    fn letters(self) -> ([u8; 3], usize) {
        let digits = [
            self.0 / (RADIX * RADIX),
            self.0 / RADIX % RADIX,
            self.0 % RADIX,
        ];
        let mut letters = [0; 3];
        let mut len = 0;
        for digit in digits {
            match digit.checked_sub(1) {
                Some(at) => {
                    letters[len] = LETTERS[usize::from(at)];
                    len += 1;
                }
                None if len == 0 => (),
                None => return (letters, 0),
            }
        }
        (letters, len)
    }
}

impl fmt::Display for SlotTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, len) = self.text();
        f.write_str(std::str::from_utf8(&text[..len]).expect("letters and digits"))
    }
}

impl fmt::Debug for SlotTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotTag({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_a_tag_of_its_own_slots() {
        for bits in 0..=10 {
            let partitions = Partitions::new(1 << bits, 0).expect("it is a power of two");
            let tags = SlotTag::all(partitions);
            assert_eq!(tags.len(), 1 << bits);
            for (partition, tag) in (0..).zip(&tags) {
                // A client takes the slot of the whole ticket.
                let ticket = format!("l-{tag}0123");
                assert_eq!(partitions.of_name(ticket.as_bytes()), partition, "{tag}");
                let len = if bits <= 8 { 4 } else { 5 };
                assert!((4..=len).contains(&tag.text().1), "{tag}");
            }
        }
    }

    #[test]
    fn a_tag_is_read_as_it_is_written() {
        for tag in SlotTag::all(Partitions::new(1_024, 0).expect("it is a power of two")) {
            let text = format!("{tag}{{rest");
            let read = SlotTag::split_from(text.as_bytes());
            assert_eq!(read, Some((tag, &b"{rest"[..])));
        }
        assert_eq!(
            SlotTag::split_from(b"0a"),
            Some((SlotTag::NONE, &b"0a"[..]))
        );
        assert_eq!(SlotTag::NONE.to_string(), "");
        for bad in ["{", "{}", "{a}", "{abcd}", "{a-}", "{AB}", "{ab"] {
            assert_eq!(SlotTag::split_from(bad.as_bytes()), None, "{bad}");
        }
    }
}
