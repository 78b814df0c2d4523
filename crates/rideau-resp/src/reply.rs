//! Writes replies, as the client's version of the protocol has them.
//!
//! Nothing is built first: what holds others is opened with their number, and
//! they follow. The caller that opens it writes exactly this many.

use std::fmt::{self, Write};

/// The version that a client speaks; it starts with the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Knows lines, numbers, bulk strings and arrays.
    #[default]
    Resp2,
    /// Knows maps, sets, pushes and more, once `HELLO 3` asked for it.
    Resp3,
}

/// Appends one reply to what will be written.
///
/// ```
/// # use rideau_resp::{Protocol, Reply};
/// let mut out = Vec::new();
/// let mut reply = Reply::new(&mut out, Protocol::Resp3);
/// reply.map(1).bulk("idle").array(2).integer(7).null();
/// assert_eq!(out, b"%1\r\n$4\r\nidle\r\n*2\r\n:7\r\n_\r\n");
/// ```
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// A reply for a client that speaks `protocol`, behind what is in `out`.
    pub const fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// A word such as `OK`. Line ends in it become spaces.
    pub fn simple(&mut self, text: impl fmt::Display) -> &mut Self {
        self.line(b'+', text)
    }

    /// A mistake of the client, its kind first: `NOSUCH pool "pg"`. Line ends
    /// in it become spaces.
    pub fn error(&mut self, text: impl fmt::Display) -> &mut Self {
        self.line(b'-', text)
    }

    /// A number.
    #[inline]
    pub fn integer(&mut self, number: i64) -> &mut Self {
        self.head(b':', number)
    }

    /// Bytes of any kind.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Writes null.
    pub fn null(&mut self) -> &mut Self {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
        self
    }

    /// A list; its `len` elements follow.
    pub fn array(&mut self, len: usize) -> &mut Self {
        self.head(b'*', len)
    }

    /// A map; `len` times a key and its value follow. In the second version it
    /// is a list of twice that number.
    pub fn map(&mut self, len: usize) -> &mut Self {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', 2 * len),
            Protocol::Resp3 => self.head(b'%', len),
        }
    }

    /// A set; its `len` elements follow. In the second version it is a list.
    pub fn set(&mut self, len: usize) -> &mut Self {
        self.array_or(b'~', len)
    }

    /// What was not asked for, with its kind as the first of `len` elements. In
    /// the second version it is a list, as subscribers expect it.
    pub fn push(&mut self, len: usize) -> &mut Self {
        self.array_or(b'>', len)
    }

    /// A number with a fraction; its text in the second version.
    pub fn double(&mut self, number: f64) -> &mut Self {
        let mut digits = Digits::default();
        let written = if number.is_nan() {
            digits.write_str("nan")
        } else {
            // Unlike `{}`, this is short for the largest and the smallest.
            write!(digits, "{number:?}")
        };
        written.expect("a double has 24 characters at most");
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(digits.as_bytes());
                self.out.extend_from_slice(b"\r\n");
                self
            }
        }
    }

    /// Yes or no; 1 or 0 in the second version.
    pub fn boolean(&mut self, yes: bool) -> &mut Self {
        self.out.extend_from_slice(match (self.protocol, yes) {
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
        });
        self
    }

    /// Text to be shown to a person as it is, with its lines.
    pub fn verbatim(&mut self, text: &str) -> &mut Self {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.head(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
                self
            }
        }
    }

    fn array_or(&mut self, kind: u8, len: usize) -> &mut Self {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', len),
            Protocol::Resp3 => self.head(kind, len),
        }
    }

    fn head(&mut self, kind: u8, number: impl itoa::Integer) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        match digits.format(number).as_bytes() {
            // Most are small, and written in one piece.
            &[digit] => self.out.extend_from_slice(&[kind, digit, b'\r', b'\n']),
            &[ten, one] => self.out.extend_from_slice(&[kind, ten, one, b'\r', b'\n']),
            digits => {
                self.out.push(kind);
                self.out.extend_from_slice(digits);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        self
    }

    fn line(&mut self, kind: u8, text: impl fmt::Display) -> &mut Self {
        self.out.push(kind);
        let line = write!(Line(self.out), "{text}");
        line.expect("a vector takes all, and what we show does not fail");
        self.out.extend_from_slice(b"\r\n");
        self
    }
}

/// Takes text that must not end the line it is in.
struct Line<'a>(&'a mut Vec<u8>);

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = self.0.len();
        self.0.extend_from_slice(text.as_bytes());
        for byte in &mut self.0[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        Ok(())
    }
}

/// The digits of a double, which must be counted before they are sent.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    len: usize,
}

impl Digits {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply is handed back, so that calls can be chained.
    fn written<F>(protocol: Protocol, f: F) -> String
    where
        F: for<'a, 'b> Fn(&'a mut Reply<'b>) -> &'a mut Reply<'b>,
    {
        let mut out = Vec::new();
        f(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out).unwrap()
    }

    fn check<F>(second: &str, third: &str, f: F)
    where
        F: for<'a, 'b> Fn(&'a mut Reply<'b>) -> &'a mut Reply<'b>,
    {
        assert_eq!(written(Protocol::Resp2, &f), second);
        assert_eq!(written(Protocol::Resp3, &f), third);
    }

    #[test]
    fn numbers_of_every_length_are_written() {
        let powers = (0..19).map(|power| 10_i64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, -power]);
        for number in around.chain([i64::MIN, i64::MAX, 1_234_567_890_123_456_789]) {
            let line = format!(":{number}\r\n");
            check(&line, &line, |reply| reply.integer(number));
        }
        let longest = format!("*{}\r\n", usize::MAX);
        check(&longest, &longest, |reply| reply.array(usize::MAX));
    }

    #[test]
    fn each_version_gets_its_own_types() {
        check("+OK\r\n", "+OK\r\n", |reply| reply.simple("OK"));
        check(":-7\r\n", ":-7\r\n", |reply| reply.integer(-7));
        check("$0\r\n\r\n", "$0\r\n\r\n", |reply| reply.bulk(""));
        check("$-1\r\n", "_\r\n", |reply| reply.null());
        check("*3\r\n", "*3\r\n", |reply| reply.array(3));
        check("*6\r\n", "%3\r\n", |reply| reply.map(3));
        check("*3\r\n", "~3\r\n", |reply| reply.set(3));
        check("*3\r\n", ">3\r\n", |reply| reply.push(3));
        check(":1\r\n:0\r\n", "#t\r\n#f\r\n", |reply| {
            reply.boolean(true).boolean(false)
        });
        check("$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n", |reply| {
            reply.verbatim("a\nb")
        });
    }

    #[test]
    fn doubles_are_short_and_keep_their_value() {
        for (number, text) in [
            (0.1, "0.1"),
            (-1.0, "-1.0"),
            (1e300, "1e300"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (-f64::MAX, "-1.7976931348623157e308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let second = format!("${}\r\n{text}\r\n", text.len());
            let third = format!(",{text}\r\n");
            check(&second, &third, |reply| reply.double(number));
        }
    }

    #[test]
    fn an_error_cannot_smuggle_a_second_reply() {
        let text = "ERR no\r\n+OK\nreally";
        let line = "-ERR no  +OK really\r\n";
        check(line, line, |reply| reply.error(text));
    }
}
