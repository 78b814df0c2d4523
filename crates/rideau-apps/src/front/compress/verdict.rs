//! Whether an answer may be compressed, by what it says of itself; and what it says then.

use crate::front::accept_encoding::Coding;
use crate::front::media_type::is_compressible;
use crate::http1::fields::{is, put, tokens};

/// What the fields of an answer say.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct AnswerFacts {
    /// Its type is one that gets shorter.
    is_compressible: bool,
    /// It is encoded already, or a part; it must stay as it is; it has a cookie, which might be
    /// guessed by its length; or it says what exactly its bytes are.
    is_settled: bool,
    /// It says already that other clients get another one.
    varies: bool,
}

impl AnswerFacts {
    /// Read fields as they are written.
    pub(super) fn read(fields: &[u8]) -> Self {
        let mut facts = Self::default();
        for (name, value) in lines(fields) {
            match name.len() {
                4 if is(name, "vary") => {
                    let names = |word: &[u8]| is(word, "accept-encoding") || word == b"*";
                    facts.varies |= tokens(value).any(names);
                }
                6 if is(name, "digest") => facts.is_settled = true,
                10 if is(name, "set-cookie") => facts.is_settled = true,
                11 if is(name, "content-md5") || is(name, "repr-digest") => facts.is_settled = true,
                12 if is(name, "content-type") => facts.is_compressible = is_compressible(value),
                13 if is(name, "cache-control") => {
                    facts.is_settled |= tokens(value).any(|word| is(word, "no-transform"));
                }
                13 if is(name, "content-range") => facts.is_settled = true,
                14 if is(name, "content-digest") => facts.is_settled = true,
                16 if is(name, "content-encoding") => {
                    facts.is_settled |= !tokens(value).all(|word| is(word, "identity"));
                }
                _ => (),
            }
        }
        facts
    }

    pub(super) const fn may_be_compressed(&self) -> bool {
        self.is_compressible && !self.is_settled
    }
}

/// Have the fields say that the answer is compressed so, or that it is so for other clients.
pub(super) fn rewrite(fields: &mut Vec<u8>, facts: &AnswerFacts, coding: Option<Coding>) {
    if let Some(coding) = coding {
        let mut written = Vec::with_capacity(fields.len() + 64);
        for (name, value) in lines(fields) {
            // Its parts are those of what is not compressed.
            if is(name, "accept-ranges") || is(name, "content-encoding") {
                continue;
            }
            written.extend_from_slice(name);
            written.extend_from_slice(b": ");
            if is(name, "etag") && value.starts_with(b"\"") {
                // The bytes are others than those that it was made for.
                written.extend_from_slice(b"W/");
            }
            written.extend_from_slice(value);
            written.extend_from_slice(b"\r\n");
        }
        put(&mut written, "Content-Encoding", coding.word());
        *fields = written;
    }
    if !facts.varies {
        put(fields, "Vary", "Accept-Encoding");
    }
}

/// Names and values.
fn lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_be(fields: &str) -> bool {
        AnswerFacts::read(fields.as_bytes()).may_be_compressed()
    }

    #[test]
    fn what_must_stay_as_it_is_stays_so() {
        const HTML: &str = "Content-Type: text/html\r\n";
        assert!(may_be(HTML));
        assert!(!may_be("Content-Type: image/png\r\n"));
        assert!(!may_be("Server: x\r\n"), "its type is not known");
        for more in [
            "Content-Encoding: gzip",
            "content-encoding: identity, br",
            "Cache-Control: public, No-Transform",
            "Set-Cookie: a=b",
            "Content-Range: bytes 0-1/2",
            "Digest: x",
            "Repr-Digest: x",
            "Content-Digest: x",
            "Content-MD5: x",
        ] {
            assert!(!may_be(&format!("{more}\r\n{HTML}")), "{more}");
        }
        for more in [
            "Content-Encoding: identity",
            "Cache-Control: no-cache",
            "Cookie: a",
        ] {
            assert!(may_be(&format!("{more}\r\n{HTML}")), "{more}");
        }
    }

    #[test]
    fn a_compressed_answer_says_so() {
        let rewritten = |fields: &str, coding| {
            let mut fields = fields.as_bytes().to_vec();
            let facts = AnswerFacts::read(&fields);
            rewrite(&mut fields, &facts, coding);
            String::from_utf8(fields).expect("it was text")
        };
        let fields = "Content-Type: text/css\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n\
                      Content-Encoding: identity\r\nVary: Cookie\r\n";
        assert_eq!(
            rewritten(fields, Some(Coding::Zstd)),
            "Content-Type: text/css\r\nETag: W/\"a\"\r\nVary: Cookie\r\n\
             Content-Encoding: zstd\r\nVary: Accept-Encoding\r\n"
        );
        assert_eq!(
            rewritten(fields, None),
            format!("{fields}Vary: Accept-Encoding\r\n")
        );
        for known in ["Vary: Cookie, Accept-encoding\r\n", "Vary: *\r\n"] {
            assert_eq!(rewritten(known, None), known);
        }
        let weak = "ETag: W/\"a\"\r\nVary: *\r\n";
        let said = rewritten(weak, Some(Coding::Gzip));
        assert_eq!(said, format!("{weak}Content-Encoding: gzip\r\n"));
    }
}
