//! Numbers and texts as bytes, as they stand in the log and beside a value.
//!
//! Small numbers are short: seven bits a byte, the lowest first.

/// A text that ends before it should, or a number that is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Torn;

/// What is left to read.
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

    /// As many bytes as the number before them says.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Torn> {
        let len = usize::try_from(self.small()?).map_err(|_| Torn)?;
        let (text, rest) = self.0.split_at_checked(len).ok_or(Torn)?;
        self.0 = rest;
        Ok(text)
    }
}

pub(super) fn put_number(mut number: u128, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

pub(super) fn put_small(mut number: u64, into: &mut Vec<u8>) {
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
                bytes.pop();
                assert_eq!(Reader(&bytes).number(), Err(Torn));
            }
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
