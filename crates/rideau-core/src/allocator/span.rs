//! Parses the text of an interval: `10.0.0.0/8`, `20000-29999`, `::1`.

use std::error::Error;
use std::fmt;

use super::interval::Interval;
use super::size::Size;
use super::value::{Kind, ValueError, parse_number, parse_value};

/// Values next to each other, and how they are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// How they are written.
    pub kind: Kind,
    /// Which they are.
    pub interval: Interval,
}

impl Span {
    /// A network (`10.0.0.0/8`), a first and a last value (`10.0.0.1-10.0.0.9`,
    /// both included), a first value and one past the last (`0,10000`, see
    /// [`between`](Self::between)) or a single value.
    ///
    /// A network has all addresses that begin like the one written, so
    /// `10.1.2.3/8` is `10.0.0.0/8`.
    pub fn parse(text: &str) -> Result<Self, SpanError> {
        if let Some((first, end)) = text.split_once(',') {
            Self::between(first.trim(), end.trim())
        } else if let Some((address, prefix)) = text.split_once('/') {
            network(address, prefix)
        } else if let Some((first, last)) = text.split_once('-') {
            inclusive(first.trim(), last.trim())
        } else {
            inclusive(text, text)
        }
    }

    /// From `first` up to `end`, which is not in it.
    ///
    /// One past the last address is no address; it is written as a number:
    /// 281474976710656 after the IPv4 addresses, 2^128 after all others.
    pub fn between(first: &str, end: &str) -> Result<Self, SpanError> {
        let (kind, first) = parse_value(first).map_err(SpanError::First)?;
        let end = match parse_number(end) {
            Ok(number) if kind == Kind::Number || number == kind.values().end() => number,
            _ => {
                let (other, end) = parse_value(end).map_err(SpanError::Last)?;
                same(kind, other)?;
                Size::new(end)
            }
        };
        if end == Size::new(first) {
            return Err(SpanError::Empty);
        }
        let last = end.checked_sub(Size::ONE).and_then(Size::to_u128);
        let interval = last.and_then(|last| Interval::new(first, last));
        let interval = interval.ok_or(SpanError::Reversed)?;
        Ok(Self { kind, interval })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, interval } = *self;
        let (first, last) = (kind.show(interval.first()), kind.show(interval.last()));
        write!(f, "{first}-{last}")
    }
}

/// Why a text does not say which values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanError {
    /// The first value, or the only one, is none.
    First(ValueError),
    /// The last value is none.
    Last(ValueError),
    /// One is an address and the other is not, or not of the same family.
    Mixed(Kind, Kind),
    /// The last comes before the first.
    Reversed,
    /// The end is the beginning.
    Empty,
    /// The part after the slash is not a number.
    NotAPrefix,
    /// A prefix longer than the address.
    PrefixTooLong {
        /// How many bits the address has.
        most: u32,
    },
    /// Numbers have no networks.
    NetworkOfNumber,
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(error) => write!(f, "the first value: {error}"),
            Self::Last(error) => write!(f, "the last value: {error}"),
            Self::Mixed(first, last) => write!(
                f,
                "the first value is {first} and the last is {last}; write both the same way"
            ),
            Self::Reversed => f.write_str("the last value is before the first; swap them"),
            Self::Empty => f.write_str(
                "there is nothing between the two values, for the end is not included; \
                 write the value after the last",
            ),
            Self::NotAPrefix => {
                f.write_str("what follows the slash is not a length; write 10.0.0.0/8")
            }
            Self::PrefixTooLong { most } => write!(
                f,
                "the address has {most} bits only; write a length from 0 to {most} after the slash"
            ),
            Self::NetworkOfNumber => {
                f.write_str("numbers have no networks; write the first and the last: 0-4095")
            }
        }
    }
}

impl Error for SpanError {}

/// All addresses that begin with this many bits of the one written.
fn network(address: &str, prefix: &str) -> Result<Span, SpanError> {
    let (kind, value) = parse_value(address).map_err(SpanError::First)?;
    let most = match kind {
        Kind::Number => return Err(SpanError::NetworkOfNumber),
        Kind::V4 => 32,
        Kind::V6 => 128,
    };
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SpanError::NotAPrefix);
    }
    let prefix = prefix.parse::<u32>().ok().filter(|prefix| *prefix <= most);
    let prefix = prefix.ok_or(SpanError::PrefixTooLong { most })?;
    let host = u128::MAX.checked_shr(128 - (most - prefix)).unwrap_or(0);
    let interval = Interval::new(value & !host, value | host);
    let interval = interval.expect("clearing bits gives no more than setting them");
    Ok(Span { kind, interval })
}

fn inclusive(first: &str, last: &str) -> Result<Span, SpanError> {
    let (kind, first) = parse_value(first).map_err(SpanError::First)?;
    let (other, last) = parse_value(last).map_err(SpanError::Last)?;
    same(kind, other)?;
    let interval = Interval::new(first, last).ok_or(SpanError::Reversed)?;
    Ok(Span { kind, interval })
}

fn same(first: Kind, last: Kind) -> Result<(), SpanError> {
    if first == last {
        Ok(())
    } else {
        Err(SpanError::Mixed(first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, first and end of what a text means.
    fn parts(span: Span) -> (Kind, u128, String) {
        (
            span.kind,
            span.interval.first(),
            span.interval.end().to_string(),
        )
    }

    #[test]
    fn a_pair_with_a_comma_leaves_its_end_out() {
        let pairs = [
            ("0,10000", "0-9999"),
            ("10.0.0.0, 11.0.0.0", "10.0.0.0/8"),
            ("2001:db8::,2001:db9::", "2001:db8::/32"),
            (
                "0,340282366920938463463374607431768211456",
                "0-340282366920938463463374607431768211455",
            ),
        ];
        for (pair, same) in pairs {
            assert_eq!(Span::parse(pair), Span::parse(same), "{pair}");
        }
        assert_eq!(Span::parse("7,7"), Err(SpanError::Empty));
        assert_eq!(Span::parse("9,3"), Err(SpanError::Reversed));
        assert!(Span::parse("10.0.0.0,::1").is_err());
        assert!(Span::parse("1,2,3").is_err());
    }

    #[test]
    fn networks_mean_the_numbers_they_always_meant() {
        let vectors = [
            ("10.0.0.0/8", 281470849515520, "281470866292736"),
            ("172.16.0.0/12", 281473568473088, "281473569521664"),
            ("192.168.0.0/16", 281473913978880, "281473914044416"),
            ("::ffff:0.0.0.0/96", 281470681743360, "281474976710656"),
            (
                "2001:db8::/114",
                42540766411282592856903984951653826560,
                "42540766411282592856903984951653842944",
            ),
            (
                "2001:db8::/32",
                42540766411282592856903984951653826560,
                "42540766490510755371168322545197776896",
            ),
            (
                "2002::/16",
                42545680458834377588178886921629466624,
                "42550872755692912415807417417958686720",
            ),
            (
                "2000::/3",
                42535295865117307932921825928971026432,
                "85070591730234615865843651857942052864",
            ),
        ];
        for (text, first, end) in vectors {
            let span = Span::parse(text).unwrap();
            let kind = if text.contains(':') {
                Kind::V6
            } else {
                Kind::V4
            };
            assert_eq!(parts(span), (kind, first, end.to_owned()), "{text}");
        }
    }

    #[test]
    fn one_interval_can_be_written_in_many_ways() {
        let network = Span::parse("10.0.0.0/8").unwrap();
        assert_eq!(Span::between("10.0.0.0", "11.0.0.0"), Ok(network));
        assert_eq!(Span::parse("10.0.0.0-10.255.255.255"), Ok(network));
        assert_eq!(Span::parse("10.0.0.0 - 10.255.255.255"), Ok(network));
        assert_eq!(Span::parse("10.1.2.3/8"), Ok(network));
        let mapped = Span::parse("::ffff:10.0.0.0/104").unwrap();
        assert_eq!(
            (mapped.kind, mapped.interval),
            (Kind::V6, network.interval),
            "the same numbers, to be seen as an overlap"
        );
        assert_eq!(network.to_string(), "10.0.0.0-10.255.255.255");
    }

    #[test]
    fn everything_is_a_span_too() {
        let end = Size::ALL.to_string();
        let all = |kind| {
            Ok(Span {
                kind,
                interval: Interval::ALL,
            })
        };
        assert_eq!(Span::parse("::/0"), all(Kind::V6));
        assert_eq!(Span::between("::", &end), all(Kind::V6));
        assert_eq!(Span::between("0", &end), all(Kind::Number));
        let ipv4 = Span::parse("0.0.0.0/0").unwrap();
        assert_eq!(ipv4.interval, Kind::V4.values());
        assert_eq!(Span::between("0.0.0.0", "281474976710656"), Ok(ipv4));
    }

    #[test]
    fn a_single_value_is_a_span_of_one() {
        for text in ["10.0.0.1", "10.0.0.1/32", "::1", "::1/128", "7", "7-7"] {
            let span = Span::parse(text).unwrap();
            assert_eq!(span.interval.size(), Size::ONE, "{text}");
        }
        assert_eq!(Span::between("7", "8"), Span::parse("7"));
    }

    #[test]
    fn what_is_no_span_says_what_to_do() {
        let mixed = SpanError::Mixed(Kind::V4, Kind::V6);
        let faults = [
            ("", SpanError::First(ValueError::Empty)),
            ("-", SpanError::First(ValueError::Empty)),
            ("1-", SpanError::Last(ValueError::Empty)),
            ("1-x", SpanError::Last(ValueError::NotAValue)),
            ("1-2-3", SpanError::Last(ValueError::NotAValue)),
            ("10.0.0.9-10.0.0.1", SpanError::Reversed),
            ("10.0.0.1-::ffff:10.0.0.9", mixed),
            ("1-::9", SpanError::Mixed(Kind::Number, Kind::V6)),
            ("10.0.0.0/33", SpanError::PrefixTooLong { most: 32 }),
            ("::/129", SpanError::PrefixTooLong { most: 128 }),
            ("::/99999999999", SpanError::PrefixTooLong { most: 128 }),
            ("10.0.0.0/", SpanError::NotAPrefix),
            ("10.0.0.0/+8", SpanError::NotAPrefix),
            ("10.0.0.0/8/8", SpanError::NotAPrefix),
            ("4096/4", SpanError::NetworkOfNumber),
            ("10/8", SpanError::NetworkOfNumber),
            ("/8", SpanError::First(ValueError::Empty)),
        ];
        for (text, fault) in faults {
            assert_eq!(Span::parse(text), Err(fault), "{text:?}");
        }
        assert_eq!(
            mixed.to_string(),
            "the first value is an IPv4 address and the last is an IPv6 address; \
             write both the same way"
        );
    }

    #[test]
    fn what_lies_between_two_values_is_something() {
        let over = "340282366920938463463374607431768211457";
        let faults = [
            ("5", "5", SpanError::Empty),
            ("0", "0", SpanError::Empty),
            ("5", "4", SpanError::Reversed),
            ("5", "0", SpanError::Reversed),
            ("::1", "::", SpanError::Reversed),
            ("10.0.0.0", "::", SpanError::Mixed(Kind::V4, Kind::V6)),
            ("10.0.0.0", "11", SpanError::Mixed(Kind::V4, Kind::Number)),
            ("0", over, SpanError::Last(ValueError::TooGreat)),
            ("::", over, SpanError::Last(ValueError::TooGreat)),
            ("x", "1", SpanError::First(ValueError::NotAValue)),
        ];
        for (first, end, fault) in faults {
            assert_eq!(Span::between(first, end), Err(fault), "{first} {end}");
        }
    }
}
