//! Reads replies of both versions, as a client needs it.
//!
//! What has been read is taken out of the buffer at once, so that a long reply
//! is looked at only once, in whatever pieces it comes.

use std::fmt;

use memchr::memchr;

use super::limits::ReplyLimits;
use super::number::{self, BadNumber};

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A word such as `OK`.
    Simple(String),
    /// A mistake, its kind first.
    Error(String),
    /// A number.
    Integer(i64),
    /// A number with a fraction.
    Double(f64),
    /// A number that may have any number of digits.
    Big(String),
    /// Yes or no.
    Boolean(bool),
    /// Bytes of any kind.
    Bulk(Vec<u8>),
    /// Text to be shown as it is.
    Verbatim {
        /// Three letters: `txt` or `mkd`.
        format: [u8; 3],
        /// The text.
        text: Vec<u8>,
    },
    /// A list.
    Array(Vec<Self>),
    /// A map, in the order in which it was sent.
    Map(Vec<(Self, Self)>),
    /// A set, in the order in which it was sent.
    Set(Vec<Self>),
    /// A push.
    Push(Vec<Self>),
}

/// Why a server's reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// No reply begins with this.
    Kind(u8),
    /// A number is none.
    Number(BadNumber),
    /// The line of this type is malformed.
    Line(u8),
    /// A line or a text does not end where it should.
    Ending,
    /// More bytes than [`frame_max`](ReplyLimits::frame_max).
    Frame,
    /// A text longer than [`bulk_max`](ReplyLimits::bulk_max).
    Bulk,
    /// More values than [`elements_max`](ReplyLimits::elements_max).
    Elements,
    /// Deeper than [`depth_max`](ReplyLimits::depth_max).
    Depth,
}

/// Where one client is within what its server sends.
///
/// Invariant: each of `open` waits for at least one more value.
#[derive(Debug, Default)]
pub struct ReplyParser {
    open: Vec<Open>,
    /// Bytes taken for the reply that is not yet complete.
    taken: usize,
    /// Values announced for it.
    elements: usize,
    /// Bytes of a line that hold no end.
    seen: usize,
}

/// Values that belong together and are not all there.
#[derive(Debug)]
struct Open {
    kind: u8,
    len: usize,
    values: Vec<Value>,
}

/// The next thing in a buffer.
enum Piece {
    Value(Value),
    Open(Open),
}

impl ReplyParser {
    /// The next reply in `buffer` from `at` on, if all of it is there.
    ///
    /// `at` moves behind what has been read, even if the reply is not complete.
    /// What lies before it may go; the next call must bring the rest again, and
    /// more.
    ///
    /// # Errors
    ///
    /// If this is no reply, or more than the limits allow. The connection is
    /// of no more use.
    pub fn next(
        &mut self,
        buffer: &[u8],
        at: &mut usize,
        limits: &ReplyLimits,
    ) -> Result<Option<Value>, BadReply> {
        loop {
            let rest = buffer.get(*at..).unwrap_or_default();
            let Some((piece, len)) = self.piece(rest, limits)? else {
                return Ok(None);
            };
            *at += len;
            self.taken += len;
            self.seen = 0;
            let value = match piece {
                Piece::Value(value) => Some(value),
                Piece::Open(open) if open.len == 0 => open.close(),
                Piece::Open(open) => {
                    self.elements += open.len;
                    self.open.push(open);
                    None
                }
            };
            let whole = value.and_then(|value| self.put(value));
            if whole.is_some() {
                (self.taken, self.elements) = (0, 0);
                return Ok(whole);
            }
        }
    }

    /// Add a value to those it belongs to; it is returned if there are none, or
    /// they are once it was the last.
    fn put(&mut self, mut value: Value) -> Option<Value> {
        loop {
            let Some(open) = self.open.last_mut() else {
                return Some(value);
            };
            open.values.push(value);
            if open.values.len() < open.len {
                return None;
            }
            value = self.open.pop()?.close()?;
        }
    }

    /// The first piece of `rest`, and its length.
    fn piece(
        &mut self,
        rest: &[u8],
        limits: &ReplyLimits,
    ) -> Result<Option<(Piece, usize)>, BadReply> {
        let Some((&kind, body)) = rest.split_first() else {
            return Ok(None);
        };
        let room = limits.frame_max.saturating_sub(self.taken + 1);
        let piece = match kind {
            b'$' | b'!' | b'=' => text(kind, body, room, limits)?,
            b'*' | b'%' | b'~' | b'>' | b'|' => self.opening(kind, body, limits)?,
            b':' => number::line(body)
                .map_err(BadReply::Number)?
                .map(|(number, len)| (Piece::Value(Value::Integer(number)), len)),
            b'+' | b'-' | b'_' | b',' | b'#' | b'(' => self.line(kind, body, room, limits)?,
            _ => return Err(BadReply::Kind(kind)),
        };
        match piece {
            Some((_, len)) if len > room => Err(BadReply::Frame),
            Some((piece, len)) => Ok(Some((piece, 1 + len))),
            None => Ok(None),
        }
    }

    fn opening(
        &self,
        kind: u8,
        body: &[u8],
        limits: &ReplyLimits,
    ) -> Result<Option<(Piece, usize)>, BadReply> {
        let Some((count, used)) = number::line(body).map_err(BadReply::Number)? else {
            return Ok(None);
        };
        if kind == b'*' && count == -1 {
            return Ok(Some((Piece::Value(Value::Null), used)));
        }
        let count = u64::try_from(count).map_err(|_| BadReply::Number(BadNumber::Negative))?;
        let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        let len = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(each))
            .filter(|&len| len <= limits.elements_max.saturating_sub(self.elements))
            .ok_or(BadReply::Elements)?;
        if self.open.len() >= limits.depth_max {
            return Err(BadReply::Depth);
        }
        // Not the number that was announced: that costs the server nothing.
        let values = Vec::with_capacity(len.min(16));
        Ok(Some((Piece::Open(Open { kind, len, values }), used)))
    }

    fn line(
        &mut self,
        kind: u8,
        body: &[u8],
        room: usize,
        limits: &ReplyLimits,
    ) -> Result<Option<(Piece, usize)>, BadReply> {
        let found = memchr(b'\r', body.get(self.seen..).unwrap_or_default());
        let len = found.map_or(body.len(), |found| self.seen + found);
        // The smaller limit speaks, as it does when the line comes in pieces.
        if len > room.min(limits.bulk_max) {
            let narrow = room < limits.bulk_max;
            return Err(if narrow {
                BadReply::Frame
            } else {
                BadReply::Bulk
            });
        }
        match body.get(len + 1) {
            None => {
                self.seen = len;
                Ok(None)
            }
            Some(b'\n') => {
                let value = line_value(kind, &body[..len]).ok_or(BadReply::Line(kind))?;
                Ok(Some((Piece::Value(value), len + 2)))
            }
            Some(_) => Err(BadReply::Ending),
        }
    }
}

impl Open {
    /// The value they make; attributes make none, as they only speak of the
    /// next one.
    fn close(self) -> Option<Value> {
        Some(match self.kind {
            b'%' => {
                let mut values = self.values.into_iter();
                let pairs = std::iter::from_fn(|| Some((values.next()?, values.next()?)));
                Value::Map(pairs.collect())
            }
            b'~' => Value::Set(self.values),
            b'>' => Value::Push(self.values),
            b'|' => return None,
            _ => Value::Array(self.values),
        })
    }
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a reply starts with '{}'", kind.escape_ascii()),
            Self::Number(bad) => write!(f, "a number in a reply is none: {bad}"),
            Self::Line(kind) => write!(f, "a reply of type '{}' is garbled", kind.escape_ascii()),
            Self::Ending => f.write_str("a reply does not end in CR LF"),
            Self::Frame => f.write_str("a reply is too long"),
            Self::Bulk => f.write_str("a text in a reply is too long"),
            Self::Elements => f.write_str("a reply has too many elements"),
            Self::Depth => f.write_str("a reply is nested too deep"),
        }
    }
}

impl std::error::Error for BadReply {}

fn text(
    kind: u8,
    body: &[u8],
    room: usize,
    limits: &ReplyLimits,
) -> Result<Option<(Piece, usize)>, BadReply> {
    let Some((len, start)) = number::line(body).map_err(BadReply::Number)? else {
        return Ok(None);
    };
    if kind == b'$' && len == -1 {
        return Ok(Some((Piece::Value(Value::Null), start)));
    }
    let len = u64::try_from(len).map_err(|_| BadReply::Number(BadNumber::Negative))?;
    let short = usize::try_from(len).ok();
    let short = short.filter(|&len| len <= limits.bulk_max);
    let len = short.ok_or(BadReply::Bulk)?;
    if len.saturating_add(start + 2) > room {
        return Err(BadReply::Frame);
    }
    let end = start + len;
    match body.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => {
            let value = text_value(kind, &body[start..end]).ok_or(BadReply::Line(kind))?;
            Ok(Some((Piece::Value(value), end + 2)))
        }
        Some(_) => Err(BadReply::Ending),
    }
}

fn text_value(kind: u8, text: &[u8]) -> Option<Value> {
    Some(match (kind, text) {
        (b'!', _) => Value::Error(String::from_utf8_lossy(text).into_owned()),
        (b'=', &[a, b, c, b':', ref text @ ..]) => Value::Verbatim {
            format: [a, b, c],
            text: text.to_vec(),
        },
        (b'=', _) => return None,
        _ => Value::Bulk(text.to_vec()),
    })
}

fn line_value(kind: u8, line: &[u8]) -> Option<Value> {
    let shown = || String::from_utf8_lossy(line).into_owned();
    Some(match (kind, line) {
        (b'+', _) => Value::Simple(shown()),
        (b'-', _) => Value::Error(shown()),
        (b'_', b"") => Value::Null,
        (b'#', b"t") => Value::Boolean(true),
        (b'#', b"f") => Value::Boolean(false),
        (b',', _) => Value::Double(shown().parse().ok()?),
        (b'(', [b'-', digits @ ..] | digits)
            if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) =>
        {
            Value::Big(shown())
        }
        _ => return None,
    })
}
