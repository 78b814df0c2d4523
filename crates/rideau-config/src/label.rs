//! Everything that a client names: how long it may be, and which characters it may
//! have.
//!
//! Names end in logs, events, tables and on the page. So they are short, and have no
//! character that begins a line or commands a terminal. What is shown is escaped once
//! more where it is written, see [`shown`](crate::human::shown). Payloads are not names:
//! they are any bytes, and bounded by `limits.frame_max` and `limits.range_data_max`.

use std::fmt;

use rideau_core::allocator::{FIELD_LEN_MAX, KEY_LEN_MAX};

use crate::human::is_wild;
use crate::server::Limits;

/// A name that a client chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// The key of a lock.
    Key,
    /// A connection, by `CLIENT SETNAME` and `HELLO … SETNAME`.
    Connection,
    /// A session.
    Session,
    /// A client library or its version, by `CLIENT SETINFO`.
    Library,
    /// The note of a holder.
    Note,
    /// The client's own name of an ask.
    AskId,
    /// A key of a value.
    ValueKey,
    /// A field beside a value.
    Field,
    /// A flow of a fair queue.
    Flow,
    /// Why something was released as failed.
    Reason,
    /// A channel of events, or a pattern of channels.
    Channel,
    /// A user who logs in.
    User,
    /// A member that a client brings to a pool.
    Member,
    /// A pool, a group, a broker, a regulator, a range or an app.
    Thing,
}

/// How long a name may be, and what it may be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The noun in an error.
    pub what: &'static str,
    /// Bytes at least.
    pub min: usize,
    /// Bytes at most.
    pub max: Max,
    /// Its alphabet.
    pub alphabet: Alphabet,
}

/// A length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Max {
    /// This many.
    Bytes(usize),
    /// `limits.name_len_max` bytes.
    Name,
    /// `limits.name_len_max` bytes, and this many before the name.
    NameBehind(usize),
}

/// Characters that a name may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alphabet {
    /// From `!` to `~`: ASCII without spaces.
    Word,
    /// UTF-8 without characters that command a terminal or begin a line.
    Text,
}

/// Why something cannot be named so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLabel {
    rule: Rule,
    /// Bytes at most.
    max: usize,
    /// Bytes there are.
    len: usize,
}

impl Label {
    /// Every kind of name.
    pub const ALL: [Self; 14] = [
        Self::Key,
        Self::Connection,
        Self::Session,
        Self::Library,
        Self::Note,
        Self::AskId,
        Self::ValueKey,
        Self::Field,
        Self::Flow,
        Self::Reason,
        Self::Channel,
        Self::User,
        Self::Member,
        Self::Thing,
    ];

    /// The rule of names of this kind.
    pub const fn rule(self) -> Rule {
        use Alphabet::{Text, Word};
        use Max::{Bytes, Name, NameBehind};
        match self {
            Self::Key => rule("a key", 1, Name, Text),
            Self::Connection => rule("the name of a connection", 0, Name, Word),
            Self::Session => rule("the name of a session", 0, Name, Text),
            Self::Library => rule("CLIENT SETINFO", 0, Name, Word),
            Self::Note => rule("NOTE", 0, Bytes(64), Text),
            Self::AskId => rule("ID", 1, Bytes(128), Text),
            Self::ValueKey => rule("the key of a value", 1, Bytes(KEY_LEN_MAX), Text),
            Self::Field => rule("the name of a field", 1, Bytes(FIELD_LEN_MAX), Text),
            Self::Flow => rule("FLOW", 0, Bytes(256), Text),
            Self::Reason => rule("the reason of a failure", 0, Bytes(256), Text),
            // `rideau:events:KIND:` stands before the name.
            Self::Channel => rule("a channel", 1, NameBehind(64), Text),
            Self::User => rule("the name of a user", 1, Name, Text),
            Self::Member => rule("the value of a member", 0, Bytes(4096), Text),
            // `@` stands before the name of a group. Values of a range that is gone
            // have a range without a name.
            Self::Thing => rule("a name", 0, NameBehind(1), Text),
        }
    }

    /// Whether something can be named so.
    ///
    /// # Errors
    ///
    /// If not: the error says what can.
    #[inline]
    pub fn check(self, name: &[u8], limits: &Limits) -> Result<(), BadLabel> {
        let rule = self.rule();
        let max = rule.max(limits);
        if (rule.min..=max).contains(&name.len()) && rule.alphabet.has_all(name) {
            return Ok(());
        }
        Err(BadLabel {
            rule,
            max,
            len: name.len(),
        })
    }
}

const fn rule(what: &'static str, min: usize, max: Max, alphabet: Alphabet) -> Rule {
    Rule {
        what,
        min,
        max,
        alphabet,
    }
}

impl Rule {
    /// Bytes at most.
    const fn max(self, limits: &Limits) -> usize {
        match self.max {
            Max::Bytes(max) => max,
            Max::Name => limits.name_len_max,
            Max::NameBehind(more) => limits.name_len_max + more,
        }
    }
}

impl Alphabet {
    /// These bytes are made of it.
    #[inline]
    fn has_all(self, name: &[u8]) -> bool {
        let (first, count) = match self {
            Self::Word => (b'!', b'~' - b'!' + 1),
            Self::Text => (b' ', b'~' - b' ' + 1),
        };
        // Without an early end it is done for many bytes at once. Keys of locks
        // pass here.
        let is_one_of = |byte: &u8| byte.wrapping_sub(first) < count;
        if name.iter().fold(true, |all, byte| all & is_one_of(byte)) {
            return true;
        }
        self == Self::Text && std::str::from_utf8(name).is_ok_and(|text| !text.contains(is_wild))
    }
}

impl BadLabel {
    /// It is too long for `limits.name_len_max`.
    pub fn is_over_name_len(&self) -> bool {
        self.len > self.max && !matches!(self.rule.max, Max::Bytes(_))
    }
}

impl fmt::Display for BadLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, max, len } = self;
        write!(f, "{} has {} to {max} bytes", rule.what, rule.min)?;
        if !matches!(rule.max, Max::Bytes(_)) {
            f.write_str(" (limits.name_len_max)")?;
        }
        f.write_str(match rule.alphabet {
            Alphabet::Word => " of ASCII without spaces and control characters",
            Alphabet::Text => " of UTF-8 without control characters",
        })?;
        match (rule.min..=*max).contains(len) {
            true => f.write_str("; these have others"),
            false => write!(f, ", not {len}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_has_a_length_and_an_alphabet() {
        let limits = Limits::default();
        for label in Label::ALL {
            let rule = label.rule();
            let max = rule.max(&limits);
            assert!(label.check(&vec![b'a'; max], &limits).is_ok(), "{label:?}");
            assert!(label.check(&vec![b'a'; max + 1], &limits).is_err());
            let is_empty = label.check(b"", &limits).is_ok();
            assert_eq!(is_empty, rule.min == 0, "{label:?}");
            for bad in [
                &b"a\nb"[..],
                b"a\rb",
                b"\x1b[2J",
                b"a\0",
                b"\x7f",
                b"\xff\xfe",
                "\u{9b}2J".as_bytes(),
                "a\u{2028}b".as_bytes(),
                "a\u{202e}b".as_bytes(),
            ] {
                assert!(label.check(bad, &limits).is_err(), "{label:?} {bad:?}");
            }
            let is_text = rule.alphabet == Alphabet::Text;
            for text in ["tenant 42", "größe/日本"] {
                assert_eq!(label.check(text.as_bytes(), &limits).is_ok(), is_text);
            }
        }
    }

    #[test]
    fn an_error_says_what_is_allowed() {
        let limits = Limits::default();
        let said = |label: Label, name: &[u8]| label.check(name, &limits).unwrap_err().to_string();
        assert_eq!(
            said(Label::Key, b""),
            "a key has 1 to 128 bytes (limits.name_len_max) of UTF-8 without control characters, \
             not 0"
        );
        assert_eq!(
            said(Label::Library, b"a b"),
            "CLIENT SETINFO has 0 to 128 bytes (limits.name_len_max) of ASCII without spaces and \
             control characters; these have others"
        );
        assert_eq!(
            said(Label::Note, &[b'n'; 65]),
            "NOTE has 0 to 64 bytes of UTF-8 without control characters, not 65"
        );
    }
}
