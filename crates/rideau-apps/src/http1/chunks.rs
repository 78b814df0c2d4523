//! Follows a body in chunks to its end, and finds what is wrong with it.

use super::head::is_of_token;

/// Digits of the size of a chunk.
const DIGITS_MAX: u8 = 15;
/// Bytes of what a chunk says besides its size, and of what follows the last.
const ASIDE_MAX: u32 = 16 * 1024;

/// Where in the chunks we are.
#[derive(Default)]
pub(crate) struct Chunks {
    place: Place,
    size: u64,
    digits: u8,
    aside: u32,
    /// The trailers, each line with its end.
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Bytes,
    BytesReturn,
    BytesEnd,
    /// At the start of a line after the last chunk.
    Line,
    /// Within the name of such a line.
    TrailerName,
    /// Behind the name of such a line.
    Trailer,
    TrailerEnd,
    LastEnd,
}

/// A part that was found in the bytes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Found<'a> {
    /// How many were gone over.
    pub(crate) used: usize,
    /// The last of these are part of the body.
    pub(crate) data: &'a [u8],
    /// The body is complete.
    pub(crate) is_over: bool,
}

impl Chunks {
    /// Go on to the end of the next part of the body, or of the bytes; none if
    /// they are no chunks.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.place == Place::Bytes {
                let rest = &bytes[at..];
                let len = usize::try_from(self.size).map_or(rest.len(), |len| len.min(rest.len()));
                self.size -= len as u64;
                if self.size == 0 {
                    self.place = Place::BytesReturn;
                }
                return Some(Found {
                    used: at + len,
                    data: &rest[..len],
                    is_over: false,
                });
            }
            let is_over = self.place == Place::LastEnd;
            self.place = self.lead(byte)?;
            at += 1;
            if is_over {
                return Some(Found::nothing(at, true));
            }
        }
        Some(Found::nothing(at, false))
    }

    /// The trailers, when the body is complete.
    pub(crate) fn into_trailers(self) -> Vec<u8> {
        self.trailers
    }

    /// Where a byte leads; none if it may not be there.
    fn lead(&mut self, byte: u8) -> Option<Place> {
        match (self.place, byte) {
            (Place::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16)?;
                self.digits += 1;
                self.size = self.size << 4 | u64::from(digit);
                (self.digits <= DIGITS_MAX).then_some(Place::Size)
            }
            (Place::Size, b'\r') if self.digits > 0 => Some(Place::SizeEnd),
            (Place::Size, b';') if self.digits > 0 => Some(Place::Extension),
            (Place::Extension, b'\r') => Some(Place::SizeEnd),
            (Place::Extension, _) => self.aside(byte).then_some(Place::Extension),
            (Place::SizeEnd, b'\n') => {
                self.digits = 0;
                Some(if self.size == 0 {
                    Place::Line
                } else {
                    Place::Bytes
                })
            }
            (Place::BytesReturn, b'\r') => Some(Place::BytesEnd),
            (Place::BytesEnd, b'\n') => Some(Place::Size),
            (Place::Line, b'\r') => Some(Place::LastEnd),
            (Place::Line | Place::TrailerName, _) if is_of_token(byte) => {
                self.trailers.push(byte);
                self.aside(byte).then_some(Place::TrailerName)
            }
            (Place::TrailerName, b':') => {
                self.trailers.push(byte);
                self.aside(byte).then_some(Place::Trailer)
            }
            (Place::Trailer, b'\r') => {
                self.trailers.extend_from_slice(b"\r\n");
                Some(Place::TrailerEnd)
            }
            (Place::Trailer, _) => {
                self.trailers.push(byte);
                self.aside(byte).then_some(Place::Trailer)
            }
            (Place::TrailerEnd, b'\n') => Some(Place::Line),
            // Said by the caller: it is over.
            (Place::LastEnd, b'\n') => Some(Place::Size),
            _ => None,
        }
    }

    fn aside(&mut self, byte: u8) -> bool {
        self.aside += 1;
        self.aside <= ASIDE_MAX && (byte >= b' ' || byte == b'\t') && byte != 0x7f
    }
}

impl Found<'_> {
    const fn nothing(used: usize, is_over: bool) -> Self {
        Self {
            used,
            data: &[],
            is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    /// The body, and what follows it; none if there are no chunks or no end.
    fn whole<'a>(mut parts: impl Iterator<Item = &'a [u8]>) -> Option<(Vec<u8>, usize)> {
        let mut chunks = Chunks::default();
        let mut body = Vec::new();
        loop {
            let mut part = parts.next()?;
            while !part.is_empty() {
                let found = chunks.next(part)?;
                body.extend_from_slice(found.data);
                part = &part[found.used..];
                if found.is_over {
                    return Some((body, part.len() + parts.map(<[u8]>::len).sum::<usize>()));
                }
            }
        }
    }

    #[test]
    fn chunks_are_followed_to_their_end_however_they_come() {
        let text =
            b"5\r\nhello\r\n1a;name=value\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx: 1\r\n\r\n";
        let more = [&text[..], b"GET / "].concat();
        let body = b"helloabcdefghijklmnopqrstuvwxyz".to_vec();
        for step in 1..more.len() + 1 {
            let found = whole(more.chunks(step));
            assert_eq!(found, Some((body.clone(), 6)), "in steps of {step}");
        }
    }

    #[test]
    fn what_follows_the_last_chunk_is_kept() {
        let mut chunks = Chunks::default();
        let mut rest = &b"0\r\na: 1\r\nb: 2\r\n\r\n"[..];
        while !rest.is_empty() {
            rest = &rest[chunks.next(rest).expect("they are chunks").used..];
        }
        assert_eq!(chunks.into_trailers(), b"a: 1\r\nb: 2\r\n");
    }

    #[test]
    fn what_is_no_chunk_is_found() {
        let bodies = [
            "\r\n",
            "x\r\n",
            " 5\r\nhello\r\n",
            "5 \r\nhello\r\n",
            "+5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "5\nhello\r\n",
            "5\r\nhellooo\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5;a\nb\r\nhello",
            "1000000000000000\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\nx: 1\r\n folded\r\n\r\n",
            "0\r\n: 1\r\n\r\n",
            "0\r\nx : 1\r\n\r\n",
            "0\r\nGET / HTTP/1.1\r\n\r\n",
            "0\r\nx\r\n\r\n",
            "0\r\n\rX",
            ";\r\n",
        ];
        for body in bodies {
            let mut chunks = Chunks::default();
            let mut rest = body.as_bytes();
            let is_wrong = loop {
                match chunks.next(rest) {
                    None => break true,
                    Some(found) if found.used == rest.len() => break false,
                    Some(found) => rest = &rest[found.used..],
                }
            };
            assert!(is_wrong, "{body:?} passed");
        }
    }
}
