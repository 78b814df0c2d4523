//! Numbers and texts as bytes, as they stand in the log and beside a value.
//!
//! Small numbers are short: seven bits a byte, the lowest first, and the eighth
//! says that more follow. Every record and every entry is full of them, so those
//! of up to eight bytes are written and read at once.

/// The eighth bit of every byte.
const MORE: u64 = 0x8080_8080_8080_8080;

/// A text that ends before it should, or a number that is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Torn;

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Torn> {
        let (&byte, rest) = self.0.split_first().ok_or(Torn)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u128, Torn> {
        if let Some((number, len)) = short(self.0) {
            self.0 = &self.0[len..];
            return Ok(number.into());
        }
        let mut number = 0_u128;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if shift > 126 || (bits << shift) >> shift != bits {
                return Err(Torn);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    pub(super) fn small(&mut self) -> Result<u64, Torn> {
        self.number()?.try_into().map_err(|_| Torn)
    }

    /// Bytes with their number before them.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Torn> {
        let len = usize::try_from(self.small()?).map_err(|_| Torn)?;
        let (text, rest) = self.0.split_at_checked(len).ok_or(Torn)?;
        self.0 = rest;
        Ok(text)
    }
}

/// A number of at most eight bytes and how many it has, if eight are there.
pub(super) fn short(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let ends = !word & MORE;
    let len = (ends.trailing_zeros() as usize + 1) / 8;
    (ends != 0).then(|| (gather(word & (ends ^ (ends - 1))), len))
}

/// Seven bits of every byte, side by side.
const fn gather(word: u64) -> u64 {
    let mut bits = word & !MORE;
    bits = bits & 0x007f_007f_007f_007f | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
    bits = bits & 0x0000_3fff_0000_3fff | (bits & 0x3fff_0000_3fff_0000) >> 2;
    bits & 0x0fff_ffff | (bits & 0x0fff_ffff_0000_0000) >> 4
}

/// Seven bits of 56 into every byte.
const fn scatter(bits: u64) -> u64 {
    let mut word = bits & 0x0fff_ffff | (bits & 0x00ff_ffff_f000_0000) << 4;
    word = word & 0x0000_3fff_0000_3fff | (word & 0x0fff_c000_0fff_c000) << 2;
    word & 0x007f_007f_007f_007f | (word & 0x3f80_3f80_3f80_3f80) << 1
}

/// How many bytes a number has.
pub(super) const fn small_len(number: u64) -> usize {
    (63 - (number | 1).leading_zeros() as usize) / 7 + 1
}

pub(super) fn put_number(mut number: u128, into: &mut Vec<u8>) {
    if let Ok(small) = u64::try_from(number) {
        return put_small(small, into);
    }
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

pub(super) fn put_small(mut number: u64, into: &mut Vec<u8>) {
    if number < 0x80 {
        return into.push(number as u8);
    }
    let len = small_len(number);
    if len <= 8 {
        let more = MORE & ((1 << (8 * (len - 1))) - 1);
        let end = into.len() + len;
        into.extend_from_slice(&(scatter(number) | more).to_le_bytes());
        into.truncate(end);
        return;
    }
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

pub(super) fn put_text(text: &[u8], into: &mut Vec<u8>) {
    put_small(text.len() as u64, into);
    into.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_went() {
        for shift in 0..=127 {
            for number in [1_u128 << shift, (1 << shift) - 1, u128::MAX >> shift] {
                let mut bytes = Vec::new();
                put_number(number, &mut bytes);
                let mut reader = Reader(&bytes);
                assert_eq!(reader.number(), Ok(number));
                assert!(reader.is_empty());
                // Whatever follows.
                for after in [0, 0x7f, 0x80, 0xff] {
                    let bytes = [&bytes[..], &[after; 9]].concat();
                    let mut reader = Reader(&bytes);
                    assert_eq!(reader.number(), Ok(number));
                    assert_eq!(reader.0, [after; 9]);
                }
                bytes.pop();
                assert_eq!(Reader(&bytes).number(), Err(Torn));
            }
        }
    }

    #[test]
    fn a_small_number_has_as_many_bytes_as_it_needs() {
        let cases = [(0, 1), (0x7f, 1), (0x80, 2), (0x3fff, 2), (0x4000, 3)];
        let long = [((1 << 56) - 1, 8), (1 << 56, 9), (u64::MAX, 10)];
        for (number, len) in cases.into_iter().chain(long) {
            let mut bytes = Vec::new();
            put_small(number, &mut bytes);
            assert_eq!((bytes.len(), small_len(number)), (len, len), "{number}");
            // Byte by byte it is the same.
            let slow = (0..len).map(|at| {
                let more = u8::from(at + 1 < len) << 7;
                (number >> (7 * at)) as u8 & 0x7f | more
            });
            assert_eq!(bytes, slow.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_number_that_is_too_large_is_torn() {
        assert_eq!(Reader(&[0xff; 19]).number(), Err(Torn));
        assert_eq!(Reader(&[0xff; 40]).number(), Err(Torn));
        let mut bytes = Vec::new();
        put_number(1 << 64, &mut bytes);
        assert_eq!(Reader(&bytes).small(), Err(Torn));
    }

    #[test]
    fn a_text_that_ends_early_is_torn() {
        let mut bytes = Vec::new();
        put_text(b"laptop", &mut bytes);
        assert_eq!(Reader(&bytes).text(), Ok(b"laptop".as_slice()));
        assert_eq!(Reader(&bytes[..6]).text(), Err(Torn));
    }
}
