//! Requests that a person types: a line of words, split as Redis does it.

use super::fault::Fault;

/// Where a word starts and ends.
pub(super) type Span = (usize, usize);

/// Lines of other protocols that a client may send.
pub(super) fn foreign(line: &[u8]) -> Option<Fault> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    if first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:") {
        return Some(Fault::Smuggled);
    }
    let version = words.nth(1)?;
    (version.starts_with(b"HTTP/") && words.next().is_none()).then_some(Fault::Http)
}

/// Append the words of `line`, without quotes and escapes, to `text`, and where
/// they stand in it to `spans`.
pub(super) fn split(
    line: &[u8],
    arguments_max: usize,
    text: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), Fault> {
    if memchr::memchr(0, line).is_some() {
        return Err(Fault::Nul);
    }
    let mut rest = line;
    loop {
        rest = trim(rest);
        if rest.is_empty() {
            return Ok(());
        }
        if spans.len() == arguments_max {
            return Err(Fault::Arguments { max: arguments_max });
        }
        let start = text.len();
        rest = word(rest, text)?;
        spans.push((start, text.len()));
    }
}

/// Append the first word of `line` to `text`, and leave what is behind it.
fn word<'a>(mut line: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
    loop {
        match *line {
            [] => return Ok(line),
            [b' ' | b'\t' | b'\r', ..] => return Ok(line),
            [quote @ (b'"' | b'\''), ref rest @ ..] => {
                line = quoted(rest, quote, text)?;
                if line.first().is_some_and(|&byte| !is_space(byte)) {
                    return Err(Fault::Quotes);
                }
            }
            [byte, ref rest @ ..] => {
                text.push(byte);
                line = rest;
            }
        }
    }
}

/// Append what stands before the closing quote, and leave what is behind it.
fn quoted<'a>(mut line: &'a [u8], quote: u8, text: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
    let double = quote == b'"';
    loop {
        let (byte, rest) = match *line {
            [] => return Err(Fault::Quotes),
            [byte, ref rest @ ..] if byte == quote => return Ok(rest),
            [b'\\', b'x', high, low, ref rest @ ..]
                if double && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (16 * hex(high) + hex(low), rest)
            }
            [b'\\', byte, ref rest @ ..] if double => (unescape(byte), rest),
            [b'\\', b'\'', ref rest @ ..] => (b'\'', rest),
            [byte, ref rest @ ..] => (byte, rest),
        };
        text.push(byte);
        line = rest;
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        byte => byte,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn trim(line: &[u8]) -> &[u8] {
    let blank = line.iter().take_while(|&&byte| is_space(byte)).count();
    &line[blank..]
}

/// Wider than what ends a word, as in Redis: a vertical tab may stand in one.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, Fault> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), 9, &mut text, &mut spans)?;
        let word = |&(start, end): &Span| text[start..end].escape_ascii().to_string();
        Ok(spans.iter().map(word).collect())
    }

    #[test]
    fn words_are_split_and_quotes_removed() {
        for (line, expected) in [
            ("", vec![]),
            (" \t\r", vec![]),
            ("PING\r", vec!["PING"]),
            ("  a\tb  c ", vec!["a", "b", "c"]),
            ("\x0b a\x0bb\x0c", vec![r"a\x0bb\x0c"]),
            (r#"a "" '' b"#, vec!["a", "", "", "b"]),
            (r#"pre"fix" x"#, vec!["prefix", "x"]),
            (r#""\x41\n\q\"""#, vec![r#"A\nq\""#]),
            (r#""\x4" "\xzz""#, vec!["x4", "xzz"]),
            (r#""\r\t\b\a\\\'\xfF""#, vec![r"\r\t\x08\x07\\\'\xff"]),
            (r"'a\'b\n'", vec![r"a\'b\\n"]),
            (r#"'say "hi"'"#, vec![r#"say \"hi\""#]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn a_quote_ends_its_word_and_must_end() {
        for line in [
            r#"""#,
            "'",
            r#"a "b"#,
            r#""a"b"#,
            "'a'b",
            r#""a""b""#,
            r#""a\"#,
        ] {
            assert_eq!(words(line), Err(Fault::Quotes), "{line:?}");
        }
    }

    #[test]
    fn http_is_known_by_its_first_line() {
        let http = Some(Fault::Http);
        assert_eq!(foreign(b"GET / HTTP/1.1\r"), http);
        assert_eq!(foreign(b"PRI * HTTP/2.0\r"), http);
        assert_eq!(foreign(b"post /x HTTP/1.1"), Some(Fault::Smuggled));
        assert_eq!(foreign(b"Host: example\r"), Some(Fault::Smuggled));
        assert_eq!(foreign(b"GET HTTP/1.1"), None);
        assert_eq!(foreign(b"SET page HTTP/1.1 PX 9"), None);
        assert_eq!(foreign(b"\r"), None);
    }
}
