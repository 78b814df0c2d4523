//! Follows a body in chunks to its end, and finds what is wrong with it.

/// Digits of the size of a chunk.
const DIGITS_MAX: u8 = 15;
/// Bytes of what a chunk says besides its size, and of what follows the last.
const ASIDE_MAX: u32 = 16 * 1024;

/// Where in the chunks we are.
#[derive(Default)]
pub(super) struct Chunks {
    place: Place,
    size: u64,
    digits: u8,
    aside: u32,
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
    /// Within such a line.
    Trailer,
    TrailerEnd,
    LastEnd,
}

impl Chunks {
    /// Go on; says how many bytes are part of the body and whether that was its
    /// end, or at which the trouble is.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.place == Place::Bytes {
                let rest = (bytes.len() - at) as u64;
                let len = rest.min(self.size);
                self.size -= len;
                at += usize::try_from(len).expect("no longer than what is there");
                if self.size == 0 {
                    self.place = Place::BytesReturn;
                }
                continue;
            }
            let is_last = self.place == Place::LastEnd;
            self.place = self.next(byte).ok_or(at)?;
            at += 1;
            if is_last {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Where a byte leads; none if it may not be there.
    fn next(&mut self, byte: u8) -> Option<Place> {
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
            (Place::Line, b' ' | b'\t' | b':') => None,
            (Place::Trailer, b'\r') => Some(Place::TrailerEnd),
            (Place::Line | Place::Trailer, _) => self.aside(byte).then_some(Place::Trailer),
            (Place::TrailerEnd, b'\n') => Some(Place::Line),
            // Said by whoever called: it is over.
            (Place::LastEnd, b'\n') => Some(Place::Size),
            _ => None,
        }
    }

    fn aside(&mut self, byte: u8) -> bool {
        self.aside += 1;
        self.aside <= ASIDE_MAX && (byte >= b' ' || byte == b'\t') && byte != 0x7f
    }
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    #[test]
    fn chunks_are_followed_to_their_end_however_they_come() {
        let body =
            b"5\r\nhello\r\n1a;name=value\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx: 1\r\n\r\n";
        let more = [&body[..], b"GET / "].concat();
        assert_eq!(Chunks::default().pass(&more), Ok((body.len(), true)));
        for step in 1..9 {
            let mut chunks = Chunks::default();
            let mut ends = body.chunks(step).map(|part| chunks.pass(part));
            assert!(
                ends.by_ref()
                    .any(|end| end.is_ok_and(|(_, is_over)| is_over))
            );
            assert!(ends.next().is_none());
        }
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
            "0\r\n\rX",
            ";\r\n",
        ];
        for body in bodies {
            let passed = Chunks::default().pass(body.as_bytes());
            assert!(passed.is_err(), "{body:?} passed: {passed:?}");
        }
    }
}
