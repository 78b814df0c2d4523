//! Fields of a message, where they were read.

/// Where a field is: its name from here to the colon, its value from there to
/// the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) colon: u32,
    pub(super) end: u32,
}

/// All fields of a message.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Fields<'a> {
    /// Those that are here in these bytes.
    pub(super) const fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// One of them, with name and value.
    pub(super) fn at(self, at: usize) -> (&'a [u8], &'a [u8]) {
        let span = self.spans[at];
        let name = &self.bytes[span.start as usize..span.colon as usize];
        let value = &self.bytes[span.colon as usize + 1..span.end as usize];
        (name, value.trim_ascii())
    }

    /// All of them.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        (0..self.spans.len()).map(move |at| self.at(at))
    }

    /// The values of those with this name.
    pub(super) fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.iter().filter(move |(known, _)| is(known, name));
        named.map(|(_, value)| value)
    }

    /// The value of the first with this name.
    pub(super) fn get(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

/// Is it this name?
pub(super) fn is(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

/// The words of a value that are apart by commas.
pub(super) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter(|word| !word.is_empty())
}

/// Write a field.
pub(super) fn put(out: &mut Vec<u8>, name: &str, value: impl AsRef<[u8]>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_ref());
    out.extend_from_slice(b"\r\n");
}

/// Write a field whose value is a number.
pub(super) fn put_number(out: &mut Vec<u8>, name: &str, number: u64) {
    put(out, name, itoa::Buffer::new().format(number));
}
