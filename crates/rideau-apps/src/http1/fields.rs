//! Fields of a message, where they were read.

/// Where a field is: its name from its start to the colon, its value without the
/// spaces around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    colon: u32,
    value: u32,
    end: u32,
}

/// All fields of a message.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl Span {
    /// That of a line that begins here and has its colon there; none if that is too
    /// far away.
    pub(crate) fn new(start: usize, line: &[u8], colon: usize) -> Option<Self> {
        let value = line[colon + 1..].trim_ascii_start();
        let place = |at: usize| u32::try_from(start + at).ok();
        let at = line.len() - value.len();
        Some(Self {
            start: place(0)?,
            colon: place(colon)?,
            value: place(at)?,
            end: place(at + value.trim_ascii_end().len())?,
        })
    }
}

impl<'a> Fields<'a> {
    /// The fields with these spans in these bytes.
    pub(crate) const fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// One of them, with name and value.
    pub(crate) fn at(self, at: usize) -> (&'a [u8], &'a [u8]) {
        let span = self.spans[at];
        let name = &self.bytes[span.start as usize..span.colon as usize];
        let value = &self.bytes[span.value as usize..span.end as usize];
        (name, value)
    }

    /// All of them.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        (0..self.spans.len()).map(move |at| self.at(at))
    }

    /// The values of those with this name.
    pub(crate) fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.iter().filter(move |(known, _)| is(known, name));
        named.map(|(_, value)| value)
    }

    /// The value of the first with this name.
    pub(crate) fn get(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

/// Is it this name? Large letters and small ones are the same.
pub(crate) fn is(name: &[u8], known: &str) -> bool {
    let known = known.as_bytes();
    if name.len() != known.len() {
        return false;
    }
    // As many as eight at once, from both ends: those in the middle may be seen twice.
    let are_same = |one, other| small(one) == small(other);
    match (ends::<8>(name), ends::<8>(known)) {
        (Some(one), Some(other)) => {
            let words = |bytes: [&[u8; 8]; 2]| bytes.map(|end| u64::from_le_bytes(*end));
            let ([first, last], [known_first, known_last]) = (words(one), words(other));
            are_same(first, known_first)
                && are_same(last, known_last)
                && (name.len() <= 16 || name[8..].eq_ignore_ascii_case(&known[8..]))
        }
        _ => match (ends::<4>(name), ends::<4>(known)) {
            (Some(one), Some(other)) => {
                let word = |[first, last]: [&[u8; 4]; 2]| {
                    u64::from(u32::from_le_bytes(*first)) << 32
                        | u64::from(u32::from_le_bytes(*last))
                };
                are_same(word(one), word(other))
            }
            _ => name.eq_ignore_ascii_case(known),
        },
    }
}

/// The first and the last bytes, this many.
fn ends<const N: usize>(bytes: &[u8]) -> Option<[&[u8; N]; 2]> {
    Some([bytes.first_chunk()?, bytes.last_chunk()?])
}

/// Eight bytes, with small letters for large ones.
const fn small(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // In each byte, the highest bit says it.
    let low = word & (0x7f * EACH);
    let is_from_a = low + (0x80 - b'A' as u64) * EACH;
    let is_past_z = low + (0x7f - b'Z' as u64) * EACH;
    let is_large = (is_from_a ^ is_past_z) & !word & (0x80 * EACH);
    word | is_large >> 2
}

/// The words of a value that are apart by commas.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter(|word| !word.is_empty())
}

/// Write a field.
pub(crate) fn put(out: &mut Vec<u8>, name: &str, value: impl AsRef<[u8]>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_ref());
    out.extend_from_slice(b"\r\n");
}

/// Write a field whose value is a number.
pub(crate) fn put_number(out: &mut Vec<u8>, name: &str, number: u64) {
    put(out, name, itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::is;

    #[test]
    fn names_are_the_same_in_large_and_small_letters_and_no_others() {
        let known = "x-forwarded-for-somebody";
        for len in 0..=known.len() {
            let known = &known[..len];
            assert!(is(known.to_uppercase().as_bytes(), known));
            assert!(is(known.as_bytes(), &known.to_uppercase()));
            assert!(!is(b"another name of some length", known));
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    let mut name = known.as_bytes().to_vec();
                    name[at] = byte;
                    let is_same = name.eq_ignore_ascii_case(known.as_bytes());
                    assert_eq!(is(&name, known), is_same, "{byte} at {at} of {known}");
                }
            }
        }
    }
}
