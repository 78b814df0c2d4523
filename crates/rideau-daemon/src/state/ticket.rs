//! The name of an ask, and of the lease it becomes.
//!
//! A ticket is 128 bits: where it is kept, which start of a server gave it, and 72 bits
//! that no client can guess. A place is used again, but never with the same bits: a
//! client that comes with an old ticket gets nothing that belongs to another by now.
//!
//! On several nodes a tag stands before them, which tells clients of Redis Cluster where to
//! send the ticket. It is no part of what the ticket stands for.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use rideau_core::cluster::SlotTag;

/// The kind of a ticket, which is its first letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TicketKind {
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
    /// A place in a process of an app.
    App,
}

impl TicketKind {
    #[cfg(test)]
    const ALL: [Self; 8] = [
        Self::Member,
        Self::Lock,
        Self::Match,
        Self::Lease,
        Self::Session,
        Self::Offer,
        Self::Value,
        Self::App,
    ];

    const fn of(letter: u8) -> Option<Self> {
        Some(match letter {
            b'g' => Self::Member,
            b'l' => Self::Lock,
            b'm' => Self::Match,
            b'r' => Self::Lease,
            b's' => Self::Session,
            b'o' => Self::Offer,
            b'v' => Self::Value,
            b'a' => Self::App,
            _ => return None,
        })
    }

    const fn letter(self) -> u8 {
        match self {
            Self::Member => b'g',
            Self::Lock => b'l',
            Self::Match => b'm',
            Self::Lease => b'r',
            Self::Session => b's',
            Self::Offer => b'o',
            Self::Value => b'v',
            Self::App => b'a',
        }
    }

    /// The word for people and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Member | Self::Offer => "pool",
            Self::Lock => "lock",
            Self::Match => "broker",
            Self::Lease => "regulator",
            Self::Session => "session",
            Self::Value => "range",
            Self::App => "app",
        }
    }
}

/// The name of an ask from its beginning, and of the lease to its end.
#[derive(Clone, Copy, Eq)]
pub struct Ticket {
    pub kind: TicketKind,
    /// The partition of what it is of.
    pub(crate) tag: SlotTag,
    /// Where it is kept.
    pub(crate) place: u32,
    /// The start of the server, and what no client can guess, which is never 0.
    pub(crate) secret: u128,
}

/// `g-` and 32 digits.
const LEN: usize = 34;
/// The same with a tag between.
const LEN_MAX: usize = LEN + SlotTag::LEN_MAX;
const SECRET: u128 = (1 << 96) - 1;
/// This many bits of the secret are drawn for each ticket. Those above them are drawn
/// once, when the server starts.
const GUESS_BITS: u32 = 72;
const GUESS: u128 = (1 << GUESS_BITS) - 1;

/// The random part that all tickets of this start share.
static START: LazyLock<u128> = LazyLock::new(|| random() & SECRET & !GUESS);

/// Every byte of a word is this.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The digits of eight numbers below 16, one in each byte. Every grant writes a
/// ticket, and every release reads one: eight digits at a time, and no branch,
/// as none on random digits can be foreseen.
const fn digits(numbers: u64) -> u64 {
    const BEYOND_NINE: u64 = (b'a' - b'9' - 1) as u64;
    let is_letter = (numbers + all(6)) >> 4 & all(1);
    numbers + all(b'0') + is_letter * BEYOND_NINE
}

/// Eight digits, the first in the highest byte.
pub(crate) const fn spread(bits: u32) -> u64 {
    let mut numbers = bits as u64;
    numbers = (numbers | numbers << 16) & 0x0000_ffff_0000_ffff;
    numbers = (numbers | numbers << 8) & 0x00ff_00ff_00ff_00ff;
    numbers = (numbers | numbers << 4) & all(0x0f);
    digits(numbers)
}

/// What eight digits stand for, and whether they are digits: they are if they
/// would be written so.
const fn gather(text: u64) -> (u32, bool) {
    let mut numbers = ((text & all(0x0f)) + (text >> 6 & all(1)) * 9) & all(0x0f);
    let is_so = digits(numbers) == text;
    numbers = (numbers | numbers >> 4) & 0x00ff_00ff_00ff_00ff;
    numbers = (numbers | numbers >> 8) & 0x0000_ffff_0000_ffff;
    ((numbers | numbers >> 16) as u32, is_so)
}

/// The number that these hexadecimal digits write, if they are digits.
pub(crate) fn number(digits: &[u8; 32]) -> Option<u128> {
    let (mut number, mut is_hex) = (0, true);
    for eight in digits.as_chunks().0 {
        let (part, is_so) = gather(u64::from_be_bytes(*eight));
        number = number << 32 | u128::from(part);
        is_hex &= is_so;
    }
    is_hex.then_some(number)
}

impl Ticket {
    /// A ticket kept at this place.
    pub(crate) fn new(kind: TicketKind, place: u32) -> Self {
        let secret = secret();
        Self {
            kind,
            tag: SlotTag::NONE,
            place,
            secret,
        }
    }

    /// The ticket that is written so, if it is one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if !(LEN..=LEN_MAX).contains(&text.len()) {
            return None;
        }
        let (&[letter, dash], rest) = text.split_first_chunk()?;
        let kind = TicketKind::of(letter)?;
        if dash != b'-' {
            return None;
        }
        let (tag, rest) = SlotTag::split_from(rest)?;
        let bits = number(rest.try_into().ok()?)?;
        let place = (bits >> 96) as u32;
        let secret = bits & SECRET;
        (secret != 0).then_some(Self {
            kind,
            tag,
            place,
            secret,
        })
    }

    /// The server has given it since its start, as far as it tells.
    pub(crate) fn is_of_this_start(self) -> bool {
        self.secret & !GUESS == *START
    }

    /// The start of a server that gave it.
    pub(crate) const fn start(self) -> u32 {
        (self.secret >> GUESS_BITS) as u32
    }

    /// As it is written.
    #[inline]
    pub fn text(self) -> Text {
        let mut text = Text {
            bytes: [0; LEN_MAX],
            len: LEN,
        };
        text.bytes[0] = self.kind.letter();
        text.bytes[1] = b'-';
        let mut at = 2;
        if !self.tag.is_none() {
            let (tag, len) = self.tag.text();
            text.bytes[at..at + len].copy_from_slice(&tag[..len]);
            at += len;
            text.len += len;
        }
        let bits = u128::from(self.place) << 96 | self.secret;
        let parts = [bits >> 96, bits >> 64, bits >> 32, bits];
        for (eight, part) in text.bytes[at..].as_chunks_mut().0.iter_mut().zip(parts) {
            *eight = spread(part as u32).to_be_bytes();
        }
        text
    }
}

/// A tag is no part of what a ticket stands for.
impl PartialEq for Ticket {
    fn eq(&self, other: &Self) -> bool {
        let key = |ticket: &Self| (ticket.kind, ticket.place, ticket.secret);
        key(self) == key(other)
    }
}

impl Hash for Ticket {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.place, self.secret).hash(state);
    }
}

/// A ticket as it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl Text {
    /// This many bytes, without a tag.
    pub const LEN: usize = LEN;
}

impl AsRef<[u8]> for Text {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(text.as_ref()).expect("letters and digits"))
    }
}

/// Tickets are secrets: a client that has one can release what it stands for.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}…", self.kind.letter() as char, self.place)
    }
}

/// A number that tells this start of the server from others.
pub(crate) fn this_start() -> u32 {
    (*START >> GUESS_BITS) as u32
}

/// The secret of the next ticket.
pub(crate) fn secret() -> u128 {
    loop {
        let guess = random() & GUESS;
        if guess != 0 {
            return *START | guess;
        }
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
    use rideau_core::cluster::Partitions;

    use super::*;

    #[test]
    fn a_ticket_is_read_as_it_is_written() {
        for kind in TicketKind::ALL {
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
        let good = Ticket::new(TicketKind::Lock, 7).to_string();
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
    fn a_tag_says_where_a_ticket_goes_and_not_what_it_is() {
        let partitions = Partitions::new(1024, 0).unwrap();
        for (partition, tag) in (0..).zip(SlotTag::all(partitions)) {
            let bare = Ticket::new(TicketKind::Lock, 7);
            let ticket = Ticket { tag, ..bare };
            let text = ticket.to_string();
            assert!(text.starts_with(&format!("l-{tag}00000007")), "{text}");
            assert_eq!(partitions.of_name(text.as_bytes()), partition);
            let read = Ticket::parse(text.as_bytes()).unwrap();
            assert_eq!((read, read.tag), (bare, tag));
            assert!(!format!("{ticket:?}").contains(&text[text.len() - 8..]));
        }
        for bad in ["l-{}", "l-{0}", "l-{0A}", "l-{0000}", "l-{00", "l-00}"] {
            let text = Ticket::new(TicketKind::Lock, 7).to_string();
            let text = text.replacen("l-", bad, 1);
            assert_eq!(Ticket::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_byte_but_a_digit_is_found_wherever_it_stands() {
        let good = Ticket::new(TicketKind::Lock, 7).to_string();
        for at in 2..LEN {
            for byte in 0..=u8::MAX {
                let mut text = good.clone().into_bytes();
                text[at] = byte;
                let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                let read = Ticket::parse(&text);
                assert_eq!(read.is_some(), is_digit, "{byte} at {at}");
                assert!(read.is_none_or(|ticket| ticket.text().as_ref() == text));
            }
        }
    }

    #[test]
    fn no_two_tickets_are_alike() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let ticket = Ticket::new(TicketKind::Match, 0);
            assert!(seen.insert(ticket.secret));
            assert!(ticket.is_of_this_start());
        }
    }

    #[test]
    fn a_ticket_of_another_start_is_told_from_ours() {
        let ours = Ticket::new(TicketKind::Lock, 7);
        for bit in GUESS_BITS..96 {
            let other = Ticket {
                secret: ours.secret ^ 1 << bit,
                ..ours
            };
            let read = Ticket::parse(other.to_string().as_bytes());
            assert!(read.is_some_and(|read| !read.is_of_this_start()));
        }
    }
}
