//! Commands as bytes, and as much of their answers as a load generator needs.

use std::ops::Range;

/// A command.
pub(crate) fn frame(words: &[&str]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len());
    for word in words {
        frame += &format!("${}\r\n{word}\r\n", word.len());
    }
    frame.into_bytes()
}

/// The beginning of a command of this many words, these first.
pub(crate) fn opening(words: usize, first: &[&str]) -> Vec<u8> {
    let mut opening = format!("*{words}\r\n").into_bytes();
    for word in first {
        opening.extend(bulk(word));
    }
    opening
}

/// One word of a command.
pub(crate) fn bulk(word: &str) -> Vec<u8> {
    format!("${}\r\n{word}\r\n", word.len()).into_bytes()
}

/// How a server answers.
#[derive(Clone)]
pub(crate) enum Form {
    /// Arrays that begin with `yes` have something to send back: the element at
    /// `back`. Other arrays are refusals.
    Resp { yes: Vec<u8>, back: usize },
    /// Rows have something to send back: the column at `back`.
    Postgres { back: usize },
}

impl Form {
    /// Looks for a whole answer that begins at `at`.
    pub(super) fn scan(&self, bytes: &[u8], at: usize) -> Scan {
        let reply = match self {
            Self::Resp { yes, back } => scan_resp(bytes, at, yes, *back),
            Self::Postgres { back } => scan_postgres(bytes, at, *back),
        };
        reply.map_or(Scan::Part, Scan::Whole)
    }
}

/// An answer in a buffer.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) end: usize,
    /// What is to be sent back, as it would stand in a command.
    pub(super) back: Option<Range<usize>>,
    pub(super) is_error: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Scan {
    Whole(Reply),
    /// More has to be read.
    Part,
}

fn scan_resp(bytes: &[u8], at: usize, yes: &[u8], back: usize) -> Option<Reply> {
    let kind = *bytes.get(at)?;
    if kind != b'*' {
        return Some(Reply {
            end: element_end(bytes, at)?,
            back: None,
            is_error: kind == b'-',
        });
    }
    let (len, mut end) = number(bytes, at + 1)?;
    let is_yes = bytes[end..].starts_with(yes);
    let mut found = None;
    for element in 0..usize::try_from(len).unwrap_or(0) {
        let start = end;
        end = element_end(bytes, start)?;
        if is_yes && element == back {
            found = Some(start..end);
        }
    }
    Some(Reply {
        end,
        back: found,
        is_error: false,
    })
}

/// Messages up to the one that says that the server is ready for more.
fn scan_postgres(bytes: &[u8], mut at: usize, back: usize) -> Option<Reply> {
    let (mut found, mut is_error) = (None, false);
    loop {
        let (kind, body) = (*bytes.get(at)?, at + 5);
        // The length counts itself, and not the kind.
        let end = at + 1 + big_endian(bytes, at + 1)?;
        if end > bytes.len() {
            return None;
        }
        match kind {
            b'D' => found = column(bytes, body, back),
            b'E' => is_error = true,
            b'Z' => {
                return Some(Reply {
                    end,
                    back: found,
                    is_error,
                });
            }
            _ => (),
        }
        at = end;
    }
}

/// Where the column is in a row that begins at `at`, with its length before it:
/// so it stands in a command, too.
fn column(bytes: &[u8], at: usize, column: usize) -> Option<Range<usize>> {
    let mut start = at + 2;
    for _ in 0..column {
        start += 4 + big_endian(bytes, start)?;
    }
    Some(start..start + 4 + big_endian(bytes, start)?)
}

fn big_endian(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(i32::from_be_bytes(number)).ok()
}

/// Where an element ends that is no array.
fn element_end(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'$' => {
            let (len, start) = number(bytes, at + 1)?;
            // Nothing has no length, and nothing behind it.
            let end = usize::try_from(len).map_or(start, |len| start + len + 2);
            (end <= bytes.len()).then_some(end)
        }
        kind => {
            assert_ne!(kind, b'*', "no answer here has an array in an array");
            let len = bytes[at..].iter().position(|byte| *byte == b'\n')?;
            Some(at + len + 1)
        }
    }
}

/// The number at `at`, and where the next line begins.
fn number(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    let (mut number, mut sign) = (0, 1);
    for (offset, byte) in bytes.get(at..)?.iter().enumerate() {
        match byte {
            b'\n' => return Some((sign * number, at + offset + 1)),
            b'-' => sign = -1,
            b'\r' => (),
            digit => number = number * 10 + i64::from(digit - b'0'),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resp() -> Form {
        let (yes, back) = (bulk("go"), 1);
        Form::Resp { yes, back }
    }

    #[test]
    fn an_answer_is_whole_only_with_its_last_byte() {
        for answer in [
            "+OK\r\n",
            ":12\r\n",
            "$3\r\nabc\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*3\r\n$2\r\ngo\r\n$4\r\nl-12\r\n:7\r\n",
        ] {
            let bytes = [answer, "+rest\r\n"].concat().into_bytes();
            for end in 0..answer.len() {
                assert_eq!(resp().scan(&bytes[..end], 0), Scan::Part, "{answer}");
            }
            let Scan::Whole(reply) = resp().scan(&bytes, 0) else {
                panic!("{answer}");
            };
            assert_eq!(reply.end, answer.len(), "{answer}");
        }
    }

    #[test]
    fn a_ticket_is_found_as_it_is_sent_back() {
        let bytes = b"+OK\r\n*3\r\n$2\r\ngo\r\n$4\r\nl-12\r\n:7\r\n";
        let Scan::Whole(reply) = resp().scan(bytes, 5) else {
            panic!("it is whole");
        };
        assert_eq!(&bytes[reply.back.unwrap()], bulk("l-12"));
        assert!(!reply.is_error);
    }

    #[test]
    fn an_array_without_a_yes_has_nothing_to_send_back() {
        let Scan::Whole(reply) = resp().scan(b"*2\r\n$4\r\nnone\r\n$1\r\n0\r\n", 0) else {
            panic!("it is whole");
        };
        assert_eq!(reply.back, None);
    }

    #[test]
    fn rows_are_whole_with_the_message_that_ends_them() {
        let row = b"D\0\0\0\x11\0\x02\0\0\0\x01a\0\0\0\x02bc";
        let bytes = [b"2\0\0\0\x04", &row[..], b"Z\0\0\0\x05I"].concat();
        let form = Form::Postgres { back: 1 };
        for end in 0..bytes.len() {
            assert_eq!(form.scan(&bytes[..end], 0), Scan::Part);
        }
        let Scan::Whole(reply) = form.scan(&bytes, 0) else {
            panic!("it is whole");
        };
        assert_eq!(reply.end, bytes.len());
        assert_eq!(&bytes[reply.back.unwrap()], b"\0\0\0\x02bc");
        assert!(!reply.is_error);
    }

    #[test]
    fn an_opening_and_its_last_word_are_a_frame() {
        let mut frames = opening(2, &["RELEASE"]);
        frames.extend(bulk("l-12"));
        assert_eq!(frames, frame(&["RELEASE", "l-12"]));
    }
}
