//! Decimal numbers as Redis reads them: each has one spelling.

use std::fmt;

/// Why bytes are not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    /// There are no digits.
    Empty,
    /// This stands where a digit should.
    Byte(u8),
    /// A zero stands before other digits, or a sign before zero.
    Padded,
    /// It does not fit.
    Huge,
    /// It is below zero and must not be.
    Negative,
    /// This stands where the line feed should.
    Ending(u8),
}

impl fmt::Display for BadNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no digits"),
            Self::Byte(byte) => write!(f, "'{}' is not a digit", byte.escape_ascii()),
            Self::Padded => f.write_str("it starts with a needless zero"),
            Self::Huge => f.write_str("it has too many digits"),
            Self::Negative => f.write_str("it is negative"),
            Self::Ending(byte) => {
                write!(f, "'{}' follows its CR instead of LF", byte.escape_ascii())
            }
        }
    }
}

/// The number that `bytes` are.
pub(super) fn natural(bytes: &[u8]) -> Result<u64, BadNumber> {
    if bytes.len() > 1 && bytes[0] == b'0' && bytes.iter().all(u8::is_ascii_digit) {
        return Err(BadNumber::Padded);
    }
    let mut number = 0_u64;
    for &byte in bytes {
        let digit = match byte {
            b'0'..=b'9' => u64::from(byte - b'0'),
            _ => return Err(BadNumber::Byte(byte)),
        };
        number = number
            .checked_mul(10)
            .and_then(|number| number.checked_add(digit))
            .ok_or(BadNumber::Huge)?;
    }
    match bytes {
        [] => Err(BadNumber::Empty),
        _ => Ok(number),
    }
}

/// The number in the line that `bytes` start with, and the length of that line
/// with its end; nothing if the line has not ended.
///
/// What it says of some bytes it says of them in any longer buffer, so it does
/// not matter in which pieces they come.
#[inline]
pub(super) fn line(bytes: &[u8]) -> Result<Option<(i64, usize)>, BadNumber> {
    // Most lengths have one digit.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = bytes {
        return Ok(Some((i64::from(digit - b'0'), 3)));
    }
    let negative = bytes.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut number = 0_i64;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'0'..=b'9' => {
                if at > start && number == 0 {
                    return Err(BadNumber::Padded);
                }
                let digit = i64::from(byte - b'0');
                // Counted away from zero, as the least number has no opposite.
                let digit = if negative { -digit } else { digit };
                number = number
                    .checked_mul(10)
                    .and_then(|number| number.checked_add(digit))
                    .ok_or(BadNumber::Huge)?;
            }
            b'\r' if at == start => return Err(BadNumber::Empty),
            b'\r' if negative && number == 0 => return Err(BadNumber::Padded),
            b'\r' => {
                return match bytes.get(at + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, at + 2))),
                    Some(&byte) => Err(BadNumber::Ending(byte)),
                };
            }
            _ => return Err(BadNumber::Byte(byte)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_one_number_in_its_one_spelling() {
        assert_eq!(line(b"0\r\n"), Ok(Some((0, 3))));
        assert_eq!(line(b"-1\r\nrest"), Ok(Some((-1, 4))));
        let least = line(b"-9223372036854775808\r\n");
        assert_eq!(least, Ok(Some((i64::MIN, 22))));
        let most = line(b"9223372036854775807\r\n");
        assert_eq!(most, Ok(Some((i64::MAX, 21))));
        for unfinished in ["", "-", "1", "12\r"] {
            assert_eq!(line(unfinished.as_bytes()), Ok(None), "{unfinished:?}");
        }
        for (text, bad) in [
            ("\r\n", BadNumber::Empty),
            ("-\r\n", BadNumber::Empty),
            ("+1\r\n", BadNumber::Byte(b'+')),
            ("1 \r\n", BadNumber::Byte(b' ')),
            ("1\n", BadNumber::Byte(b'\n')),
            ("01", BadNumber::Padded),
            ("-0\r", BadNumber::Padded),
            ("9223372036854775808", BadNumber::Huge),
            ("-9223372036854775809", BadNumber::Huge),
            ("1\rx", BadNumber::Ending(b'x')),
        ] {
            assert_eq!(line(text.as_bytes()), Err(bad), "{text:?}");
        }
    }

    #[test]
    fn a_natural_number_is_digits_and_nothing_else() {
        assert_eq!(natural(b"0"), Ok(0));
        assert_eq!(natural(b"18446744073709551615"), Ok(u64::MAX));
        for (text, bad) in [
            ("", BadNumber::Empty),
            ("+1", BadNumber::Byte(b'+')),
            ("-1", BadNumber::Byte(b'-')),
            ("1 ", BadNumber::Byte(b' ')),
            ("0x1", BadNumber::Byte(b'x')),
            ("00", BadNumber::Padded),
            ("18446744073709551616", BadNumber::Huge),
        ] {
            assert_eq!(natural(text.as_bytes()), Err(bad), "{text:?}");
        }
    }
}
