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

/// The beginning of a command of so many words, these first.
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

/// An answer in a buffer.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) end: usize,
    /// The second element of an array, if there is one, as it would stand in a
    /// command.
    pub(super) second: Option<Range<usize>>,
    pub(super) is_error: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Scan {
    Whole(Reply),
    /// More has to be read.
    Part,
}

/// Looks for a whole answer that begins at `at`.
pub(super) fn scan(bytes: &[u8], at: usize) -> Scan {
    scan_whole(bytes, at).map_or(Scan::Part, Scan::Whole)
}

fn scan_whole(bytes: &[u8], at: usize) -> Option<Reply> {
    let kind = *bytes.get(at)?;
    let is_error = kind == b'-';
    if kind != b'*' {
        return Some(Reply {
            end: element_end(bytes, at)?,
            second: None,
            is_error,
        });
    }
    let (len, mut end) = number(bytes, at + 1)?;
    let mut second = None;
    for element in 0..len {
        let start = end;
        end = element_end(bytes, start)?;
        if element == 1 {
            second = Some(start..end);
        }
    }
    Some(Reply {
        end,
        second,
        is_error,
    })
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
                assert_eq!(scan(&bytes[..end], 0), Scan::Part, "{answer}");
            }
            let Scan::Whole(reply) = scan(&bytes, 0) else {
                panic!("{answer}");
            };
            assert_eq!(reply.end, answer.len(), "{answer}");
        }
    }

    #[test]
    fn a_ticket_is_found_as_it_is_sent_back() {
        let bytes = b"+OK\r\n*3\r\n$2\r\ngo\r\n$4\r\nl-12\r\n:7\r\n";
        let Scan::Whole(reply) = scan(bytes, 5) else {
            panic!("it is whole");
        };
        assert_eq!(&bytes[reply.second.unwrap()], bulk("l-12"));
        assert!(!reply.is_error);
    }

    #[test]
    fn an_opening_and_its_last_word_are_a_frame() {
        let mut frames = opening(2, &["RELEASE"]);
        frames.extend(bulk("l-12"));
        assert_eq!(frames, frame(&["RELEASE", "l-12"]));
    }
}
