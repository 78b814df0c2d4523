//! Values as people write them: numbers, IPv4 and IPv6 addresses.
//!
//! Inside they are all numbers below 2^128. An IPv4 address is the number of
//! the IPv6 address that it is mapped to, `::ffff:a.b.c.d`.

use std::error::Error;
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::interval::Interval;
use super::size::Size;

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// In decimals.
    Number,
    /// As an IPv4 address.
    V4,
    /// As an IPv6 address.
    V6,
}

/// Where IPv4 addresses lie among the values: `::ffff:0:0/96`.
const MAPPED: u128 = 0xffff_0000_0000;

impl Kind {
    /// All values that can be written this way.
    pub const fn values(self) -> Interval {
        match self {
            Self::Number | Self::V6 => Interval::ALL,
            Self::V4 => match Interval::new(MAPPED, MAPPED + u32::MAX as u128) {
                Some(mapped) => mapped,
                None => unreachable!(),
            },
        }
    }

    /// The value as text.
    pub fn print(self, value: u128) -> String {
        self.show(value).to_string()
    }

    /// The value as text, without a place of its own in memory.
    pub fn text(self, value: u128) -> Text {
        let mut text = Text {
            bytes: [0; Text::LEN_MAX],
            len: 0,
        };
        match self {
            Self::V4 if self.values().contains(value) => text.push_v4((value - MAPPED) as u32),
            _ => write!(text, "{}", self.show(value)).expect("the longest address fits"),
        }
        text
    }

    /// The value as what can be put into a text.
    pub const fn show(self, value: u128) -> Shown {
        Shown { kind: self, value }
    }

    /// The value that a text of this kind means.
    pub fn parse(self, text: &str) -> Result<u128, ValueError> {
        let value = match self {
            _ if text.is_empty() => return Err(ValueError::Empty),
            Self::Number => parse_number(text)?.to_u128().ok_or(ValueError::TooGreat)?,
            Self::V4 => {
                let address: Ipv4Addr = text.parse().map_err(|_| ValueError::NotOf(self))?;
                MAPPED + u128::from(address.to_bits())
            }
            Self::V6 => {
                let address: Ipv6Addr = text.parse().map_err(|_| ValueError::NotOf(self))?;
                address.to_bits()
            }
        };
        Ok(value)
    }

    /// The kind of a value, by the look of its text.
    fn of(text: &str) -> Result<Self, ValueError> {
        match text {
            "" => Err(ValueError::Empty),
            _ if text.contains(':') => Ok(Self::V6),
            _ if text.contains('.') => Ok(Self::V4),
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Self::Number),
            _ => Err(ValueError::NotAValue),
        }
    }

    /// The noun for such values.
    const fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::V4 => "an IPv4 address",
            Self::V6 => "an IPv6 address",
        }
    }

    const fn sample(self) -> &'static str {
        match self {
            Self::Number => "4711",
            Self::V4 => "10.0.0.1",
            Self::V6 => "2001:db8::1",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value to be shown as its kind is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shown {
    kind: Kind,
    value: u128,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, value } = *self;
        match kind {
            Kind::Number => value.fmt(f),
            Kind::V4 if kind.values().contains(value) => {
                Ipv4Addr::from_bits((value - MAPPED) as u32).fmt(f)
            }
            // No IPv4 address has this number, so the only address with it.
            Kind::V4 | Kind::V6 => Ipv6Addr::from_bits(value).fmt(f),
        }
    }
}

/// A value as text.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl Text {
    /// The length of an IPv6 address with an IPv4 address at its end.
    const LEN_MAX: usize = 45;

    const fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Most values are such addresses, and are shown more often than anything
    /// else.
    fn push_v4(&mut self, address: u32) {
        for (at, byte) in address.to_be_bytes().into_iter().enumerate() {
            if at > 0 {
                self.push(b'.');
            }
            if byte >= 100 {
                self.push(b'0' + byte / 100);
            }
            if byte >= 10 {
                self.push(b'0' + byte / 10 % 10);
            }
            self.push(b'0' + byte % 10);
        }
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.bytes[self.len..].get_mut(..text.len());
        rest.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Why a text is no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// There is nothing in it.
    Empty,
    /// It is neither a number nor an address.
    NotAValue,
    /// It is none of the kind that is wanted here.
    NotOf(Kind),
    /// The number is 2^128 or more.
    TooGreat,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no value; write a number or an address"),
            Self::NotAValue => f.write_str(
                "not a value; write a number (4711), an IPv4 address (10.0.0.1) \
                 or an IPv6 address (2001:db8::1)",
            ),
            Self::NotOf(kind) => write!(f, "not {kind}; write one as {}", kind.sample()),
            Self::TooGreat => f.write_str("the number is too great; it has to be less than 2^128"),
        }
    }
}

impl Error for ValueError {}

/// The value that a text means, and how it is written.
pub fn parse_value(text: &str) -> Result<(Kind, u128), ValueError> {
    let kind = Kind::of(text)?;
    let value = kind.parse(text)?;
    Ok((kind, value))
}

/// The number that a text means. It may be 2^128, which is no value but the
/// end of all of them.
pub(super) fn parse_number(text: &str) -> Result<Size, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::NotOf(Kind::Number));
    }
    match text.parse() {
        Ok(number) => Ok(Size::new(number)),
        Err(_) if text.trim_start_matches('0') == Size::ALL.to_string() => Ok(Size::ALL),
        Err(_) => Err(ValueError::TooGreat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_what_it_writes() {
        let samples = [
            (Kind::Number, 0, "0"),
            (Kind::Number, 4711, "4711"),
            (
                Kind::Number,
                u128::MAX,
                "340282366920938463463374607431768211455",
            ),
            (Kind::V4, 0xffff_0000_0000, "0.0.0.0"),
            (Kind::V4, 0xffff_0a00_0001, "10.0.0.1"),
            (Kind::V4, 0xffff_ffff_ffff, "255.255.255.255"),
            (Kind::V6, 0, "::"),
            (Kind::V6, 0x2001_0db8 << 96 | 1, "2001:db8::1"),
            (Kind::V6, 0xffff_0a00_0001, "::ffff:10.0.0.1"),
            (
                Kind::V6,
                u128::MAX,
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
        ];
        for (kind, value, text) in samples {
            assert_eq!(kind.print(value), text);
            assert_eq!(kind.text(value).as_ref(), text.as_bytes());
            assert_eq!(kind.parse(text), Ok(value), "{text}");
            assert_eq!(parse_value(text), Ok((kind, value)), "{text}");
            assert!(kind.values().contains(value), "{text}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_number_of_the_ipv4_address() {
        let value = Kind::V4.parse("10.0.0.1");
        assert_eq!(value, Kind::V6.parse("::ffff:10.0.0.1"));
        assert_eq!(value, Kind::V6.parse("::ffff:a00:1"));
    }

    #[test]
    fn a_number_without_an_ipv4_address_is_shown_as_the_address_it_has() {
        assert_eq!(Kind::V4.print(MAPPED - 1), "::fffe:ffff:ffff");
        assert_eq!(Kind::V4.print(1 << 48), "::1:0:0:0");
    }

    #[test]
    fn what_is_no_value_says_what_to_write() {
        let faults = [
            ("", ValueError::Empty),
            ("ten", ValueError::NotAValue),
            ("-1", ValueError::NotAValue),
            ("+1", ValueError::NotAValue),
            (" 1", ValueError::NotAValue),
            ("1_000", ValueError::NotAValue),
            ("\u{661}", ValueError::NotAValue),
            ("10.0.0.256", ValueError::NotOf(Kind::V4)),
            ("10.0.0", ValueError::NotOf(Kind::V4)),
            ("10.0.0.01", ValueError::NotOf(Kind::V4)),
            ("1.5", ValueError::NotOf(Kind::V4)),
            ("2001:db8", ValueError::NotOf(Kind::V6)),
            ("fe80::1%eth0", ValueError::NotOf(Kind::V6)),
            ("::12345", ValueError::NotOf(Kind::V6)),
            (
                "340282366920938463463374607431768211456",
                ValueError::TooGreat,
            ),
        ];
        for (text, fault) in faults {
            assert_eq!(parse_value(text), Err(fault), "{text:?}");
        }
        assert_eq!(
            ValueError::NotOf(Kind::V4).to_string(),
            "not an IPv4 address; write one as 10.0.0.1"
        );
    }

    #[test]
    fn a_kind_takes_no_text_of_another() {
        let texts = [
            (Kind::Number, "10.0.0.1"),
            (Kind::Number, "x"),
            (Kind::V4, "::ffff:10.0.0.1"),
            (Kind::V4, "281470849515520"),
            (Kind::V6, "10.0.0.1"),
            (Kind::V6, "1"),
        ];
        for (kind, text) in texts {
            assert_eq!(kind.parse(text), Err(ValueError::NotOf(kind)), "{text}");
        }
        for kind in [Kind::Number, Kind::V4, Kind::V6] {
            assert_eq!(kind.parse(""), Err(ValueError::Empty));
        }
    }

    #[test]
    fn only_as_an_end_may_a_number_be_all_of_them() {
        let end = "340282366920938463463374607431768211456";
        assert_eq!(parse_number(end), Ok(Size::ALL));
        assert_eq!(parse_number(&format!("00{end}")), Ok(Size::ALL));
        assert_eq!(Kind::Number.parse(end), Err(ValueError::TooGreat));
        let over = "340282366920938463463374607431768211457";
        assert_eq!(parse_number(over), Err(ValueError::TooGreat));
        assert_eq!(parse_number(&format!("{end}0")), Err(ValueError::TooGreat));
        assert_eq!(parse_number("007"), Ok(Size::new(7)));
    }
}
