//! The data of a value: fields with names.

use std::borrow::Cow;

use super::bytes::{Reader, Torn, put_small, put_text};

/// The names and contents of a reservation's fields have at most this many bytes
/// together.
pub const DATA_LEN_MAX: usize = 64 * 1024;
/// The name of a field has at most this many bytes.
pub const FIELD_LEN_MAX: usize = 255;

const BYTES: u8 = 0;
const NUMBER: u8 = 1;
const NOTHING: u8 = 2;

/// The content of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field<'a> {
    /// Any bytes; texts too.
    Bytes(&'a [u8]),
    /// A whole number.
    Number(i64),
    /// Nothing: in a patch, the field goes.
    Nothing,
}

/// Fields in their order, each name once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// No field.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Set a field; a later one of the same name wins.
    ///
    /// # Panics
    ///
    /// If the name has more than [`FIELD_LEN_MAX`] bytes.
    pub fn set(&mut self, name: &[u8], field: Field<'_>) {
        assert!(name.len() <= FIELD_LEN_MAX, "the name of a field is short");
        if self.iter().any(|(other, _)| other == name) {
            let kept = self.clone();
            self.0.clear();
            for (other, field) in kept.iter().filter(|(other, _)| *other != name) {
                self.push(other, field);
            }
        }
        self.push(name, field);
    }

    /// All fields with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Field<'_>)> {
        fields(&self.0)
    }

    /// The bytes of all names and contents; a number counts as eight.
    pub fn weight(&self) -> usize {
        self.iter()
            .map(|(name, field)| {
                let content = match field {
                    Field::Bytes(bytes) => bytes.len(),
                    Field::Number(_) => 8,
                    Field::Nothing => 0,
                };
                name.len() + content
            })
            .sum()
    }

    /// Do they weigh more than this? Most are so short that there is no need to look.
    pub fn weighs_over(&self, most: usize) -> bool {
        // A number of one byte counts as eight, and has a name and a kind.
        self.0.len() > most / 4 && self.weight() > most
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These fields with a patch laid over them: what the patch has wins, and
    /// what is nothing there goes.
    #[must_use]
    pub fn merged(&self, patch: &Self) -> Self {
        merged(&self.0, patch)
    }

    /// Without those that are nothing, which are only for patches.
    pub(super) fn something(&self) -> Cow<'_, Self> {
        match self.iter().any(|(_, field)| field == Field::Nothing) {
            true => Cow::Owned(merged(&[], self)),
            false => Cow::Borrowed(self),
        }
    }

    /// As they are kept beside a value.
    pub(super) fn kept(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As they were encoded by us. Damage was found before, by a checksum.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Torn> {
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            next(&mut reader)?;
        }
        Ok(Self(bytes.to_vec()))
    }

    fn push(&mut self, name: &[u8], field: Field<'_>) {
        // Room at once for the kind and two lengths, too.
        const MORE: usize = 8;
        if let Field::Bytes(bytes) = field {
            self.0.reserve(name.len() + bytes.len() + MORE);
        }
        put_text(name, &mut self.0);
        match field {
            Field::Bytes(bytes) => {
                self.0.push(BYTES);
                put_text(bytes, &mut self.0);
            }
            Field::Number(number) => {
                self.0.push(NUMBER);
                put_small(number.cast_unsigned(), &mut self.0);
            }
            Field::Nothing => self.0.push(NOTHING),
        }
    }
}

/// Parses the bytes of [`Fields::as_bytes`].
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Field<'_>)> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(move || {
        (!reader.is_empty()).then(|| next(&mut reader).expect("only whole fields are kept"))
    })
}

/// As [`Fields::merged`], from fields as they are kept.
pub(super) fn merged(kept: &[u8], patch: &Fields) -> Fields {
    let mut all = Fields::new();
    for (name, field) in fields(kept) {
        if !patch.iter().any(|(other, _)| other == name) {
            all.push(name, field);
        }
    }
    for (name, field) in patch.iter().filter(|(_, field)| *field != Field::Nothing) {
        all.push(name, field);
    }
    all
}

fn next<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], Field<'a>), Torn> {
    let name = reader.text()?;
    let field = match reader.byte()? {
        BYTES => Field::Bytes(reader.text()?),
        NUMBER => Field::Number(reader.small()?.cast_signed()),
        NOTHING => Field::Nothing,
        _ => return Err(Torn),
    };
    Ok((name, field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Fields {
        let mut fields = Fields::new();
        fields.set(b"device", Field::Bytes(b"laptop"));
        fields.set(b"port", Field::Number(-7));
        fields
    }

    #[test]
    fn the_later_of_two_fields_with_one_name_wins() {
        let mut fields = some();
        fields.set(b"device", Field::Number(9));
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(
            all,
            [
                (b"port".as_slice(), Field::Number(-7)),
                (b"device".as_slice(), Field::Number(9))
            ]
        );
    }

    #[test]
    fn a_patch_wins_and_nothing_deletes() {
        let mut patch = Fields::new();
        patch.set(b"device", Field::Nothing);
        patch.set(b"gateway", Field::Bytes(b"a"));
        let all = some().merged(&patch);
        let names: Vec<_> = all.iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [b"port".to_vec(), b"gateway".to_vec()]);
    }

    #[test]
    fn fields_are_read_as_they_were_kept_and_never_by_half() {
        let fields = some();
        assert_eq!(Fields::from_bytes(fields.as_bytes()), Ok(fields.clone()));
        let bytes = fields.as_bytes();
        assert_eq!(Fields::from_bytes(&bytes[..bytes.len() - 1]), Err(Torn));
        assert_eq!(fields.weight(), 6 + 6 + 4 + 8);
    }
}
