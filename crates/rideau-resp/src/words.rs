//! Words of a request as commands compare them and as people read them.

use std::fmt::{self, Write};

/// No command or option has a longer name.
const UPPER_MAX: usize = 32;

/// How many bytes of a word are shown.
const SHOWN_MAX: usize = 64;

/// A word in upper case, to be matched with names.
///
/// One that is longer than any name is empty, and so matches none.
#[derive(Clone, Copy, Debug)]
pub struct Upper {
    bytes: [u8; UPPER_MAX],
    len: usize,
}

impl Upper {
    /// The word in upper case.
    pub fn of(word: &[u8]) -> Self {
        let mut bytes = [0; UPPER_MAX];
        let word = if word.len() > UPPER_MAX { b"" } else { word };
        for (upper, byte) in bytes.iter_mut().zip(word) {
            *upper = byte.to_ascii_uppercase();
        }
        let len = word.len();
        Self { bytes, len }
    }

    /// What to match: `match Upper::of(word).as_bytes() { b"PING" => … }`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A word in quotes, with nothing in it that could break a line, and cut where
/// it is too long to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As much as may be shown, and the rest of its last character.
        let near = &self.0[..self.0.len().min(SHOWN_MAX + 3)];
        let mut shown = 0;
        f.write_char('"')?;
        for chunk in near.utf8_chunks() {
            for letter in chunk.valid().chars() {
                shown += letter.len_utf8();
                match letter {
                    _ if shown > SHOWN_MAX => return f.write_str("…\""),
                    '\'' => f.write_char(letter)?,
                    _ => write!(f, "{}", letter.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                shown += 1;
                if shown > SHOWN_MAX {
                    return f.write_str("…\"");
                }
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_in_any_case_and_whole() {
        assert_eq!(Upper::of(b"pool.Add").as_bytes(), b"POOL.ADD");
        assert_eq!(Upper::of(b"").as_bytes(), b"");
        assert_eq!(Upper::of(&[b'a'; 32]).as_bytes(), [b'A'; 32]);
        assert_eq!(Upper::of(&[b'a'; 33]).as_bytes(), b"");
    }

    #[test]
    fn a_quoted_word_stays_on_its_line() {
        for (word, shown) in [
            (&b"abc"[..], r#""abc""#),
            (b"", r#""""#),
            (b"a\r\nb\0", r#""a\r\nb\0""#),
            (b"it's \"\\\"", r#""it's \"\\\"""#),
            (b"\xff\xc3\xa9\xc3", "\"\\xffé\\xc3\""),
        ] {
            assert_eq!(Quoted(word).to_string(), shown);
        }
        let long = [b'x'; SHOWN_MAX + 1];
        let shown = format!("\"{}…\"", "x".repeat(SHOWN_MAX));
        assert_eq!(Quoted(&long).to_string(), shown);
        let split = format!("x{}", "é".repeat(SHOWN_MAX));
        let shown = Quoted(split.as_bytes()).to_string();
        assert!(shown.ends_with("éé…\""), "{shown}");
    }
}
