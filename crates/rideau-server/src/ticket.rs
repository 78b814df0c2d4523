//! The name of an ask, and of the lease it becomes.
//!
//! A ticket is 128 bits: where it is kept, and 96 bits that nobody can guess. A
//! place is used again, but never with the same bits: whoever comes with an old
//! ticket gets nothing that belongs to somebody else by now.

use std::cell::RefCell;
use std::fmt;

/// What a ticket is for, as its first letter says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A member of a pool.
    Member,
    /// Units of a key.
    Lock,
    /// A match of a broker.
    Match,
    /// A lease of a regulator.
    Lease,
    /// A session.
    Session,
    /// A member that a connection brought.
    Offer,
    /// A value that goes with a connection.
    Value,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Member,
        Self::Lock,
        Self::Match,
        Self::Lease,
        Self::Session,
        Self::Offer,
        Self::Value,
    ];

    const fn letter(self) -> u8 {
        match self {
            Self::Member => b'g',
            Self::Lock => b'l',
            Self::Match => b'm',
            Self::Lease => b'r',
            Self::Session => b's',
            Self::Offer => b'o',
            Self::Value => b'v',
        }
    }

    /// What it is, for people and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Member | Self::Offer => "pool",
            Self::Lock => "lock",
            Self::Match => "broker",
            Self::Lease => "regulator",
            Self::Session => "session",
            Self::Value => "range",
        }
    }
}

/// The name of an ask from its beginning, and of the lease to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// What it is for.
    pub kind: Kind,
    /// Where it is kept.
    pub(crate) place: u32,
    /// What nobody can guess; never 0.
    pub(crate) secret: u128,
}

/// `g-` and 32 digits.
const LEN: usize = 34;
const SECRET: u128 = (1 << 96) - 1;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// What each digit stands for, and more than 15 for what is none: every release
/// reads a ticket, and no branch on random digits can be foreseen.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

impl Ticket {
    /// A ticket kept at this place.
    pub(crate) fn new(kind: Kind, place: u32) -> Self {
        let secret = loop {
            let secret = random() & SECRET;
            if secret != 0 {
                break secret;
            }
        };
        Self {
            kind,
            place,
            secret,
        }
    }

    /// The ticket that is written so, if it is one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; LEN] = text.try_into().ok()?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.letter() == text[0])?;
        if text[1] != b'-' {
            return None;
        }
        let mut bytes = [0; 16];
        let mut wrong = 0;
        for (byte, pair) in bytes.iter_mut().zip(text[2..].chunks_exact(2)) {
            let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
            wrong |= high | low;
            *byte = high << 4 | low;
        }
        if wrong > 15 {
            return None;
        }
        let bits = u128::from_be_bytes(bytes);
        let place = (bits >> 96) as u32;
        let secret = bits & SECRET;
        (secret != 0).then_some(Self {
            kind,
            place,
            secret,
        })
    }

    /// As it is written.
    pub fn text(self) -> Text {
        let mut text = [0; LEN];
        text[0] = self.kind.letter();
        text[1] = b'-';
        let bits = u128::from(self.place) << 96 | self.secret;
        for (at, byte) in bits.to_be_bytes().into_iter().enumerate() {
            text[2 + 2 * at] = DIGITS[usize::from(byte >> 4)];
            text[3 + 2 * at] = DIGITS[usize::from(byte & 15)];
        }
        Text(text)
    }
}

/// A ticket as it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text([u8; LEN]);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text.0).expect("letters and digits"))
    }
}

/// Tickets are secrets: whoever has one can release what it stands for.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}…", self.kind.letter() as char, self.place)
    }
}

/// Bits from the system, fetched for many tickets at once.
fn random() -> u128 {
    const LEN: usize = 256 * size_of::<u128>();
    thread_local! {
        static BITS: RefCell<(Box<[u8]>, usize)> =
            RefCell::new((vec![0; LEN].into_boxed_slice(), LEN));
    }
    BITS.with_borrow_mut(|(bits, at)| {
        if *at == LEN {
            getrandom::fill(bits).expect("the system has random bits");
            *at = 0;
        }
        let (word, _) = bits[*at..].split_first_chunk().expect("a whole number fit");
        *at += size_of::<u128>();
        u128::from_ne_bytes(*word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_as_it_is_written() {
        for kind in Kind::ALL {
            let ticket = Ticket::new(kind, 0xdead_beef);
            let text = ticket.to_string();
            assert!(text.ends_with(&text[10..]) && text[2..10] == *"deadbeef");
            assert_eq!(Ticket::parse(text.as_bytes()), Some(ticket));
            assert!(
                !format!("{ticket:?}").contains(&text[12..]),
                "it is a secret"
            );
        }
    }

    #[test]
    fn nothing_else_is_a_ticket() {
        let good = Ticket::new(Kind::Lock, 7).to_string();
        let cases = [
            "",
            "l-",
            &good[..33],
            &good.to_uppercase(),
            &good.replacen('l', "x", 1),
            &good.replacen('-', "_", 1),
            &format!("{good}0"),
            "l-00000007000000000000000000000000",
        ];
        for case in cases {
            assert_eq!(Ticket::parse(case.as_bytes()), None, "{case}");
        }
    }

    #[test]
    fn no_two_tickets_are_alike() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            assert!(seen.insert(Ticket::new(Kind::Match, 0).secret));
        }
    }
}
