//! Spans, sizes, counts and names as people read them: in the dashboard, on the command
//! line and in sentences.
//!
//! What the config reads back is written by [`show_span`](crate::show_span) instead.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

/// A span with as much of it as matters: `240 us`, `1.8 ms`, `41 s`, `2 h 10 min`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl Span {
    /// This many microseconds.
    pub const fn micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
        match micros {
            0 => f.write_str("0"),
            1..1_000 => write!(f, "{micros} us"),
            1_000..10_000 => write!(f, "{:.1} ms", micros as f64 / 1e3),
            10_000..1_000_000 => write!(f, "{} ms", micros / 1_000),
            _ if seconds < 10 => write!(f, "{:.1} s", micros as f64 / 1e6),
            _ if minutes < 2 => write!(f, "{seconds} s"),
            _ if hours < 2 => write!(f, "{minutes} min"),
            _ if days < 2 => write!(f, "{hours} h {} min", minutes % 60),
            _ => write!(f, "{days} d {} h", hours % 24),
        }
    }
}

/// A number of bytes: `512 B`, `64 KiB`, `5.2 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let bytes = self.0;
        match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
            None if bytes == 0 => f.write_str("0"),
            None => write!(f, "{bytes} B"),
            Some((word, unit)) if bytes.is_multiple_of(*unit) || bytes / unit >= 10 => {
                write!(f, "{} {word}", bytes / unit)
            }
            Some((word, unit)) => write!(f, "{:.1} {word}", bytes as f64 / *unit as f64),
        }
    }
}

/// `1 error`, `2 errors`.
pub fn count(number: usize, what: &str) -> String {
    let plural = match number {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

/// The full stop that a sentence still needs.
pub fn stop(said: &str) -> &'static str {
    if said.ends_with(['.', '?', '!']) {
        ""
    } else {
        "."
    }
}

/// Text that is only text in HTML. Its lines stay; what would confuse a reader is written out.
#[derive(Clone, Copy, Debug)]
pub struct Html<'a>(pub &'a str);

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(letter)?,
                wild if is_wild(wild) => write!(f, "{}", wild.escape_default())?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// A terminal does something with it other than show it, a reader takes it for the end
/// of a line, or does not see it: controls, old and new, what turns the direction of
/// reading, and blanks without a width.
pub fn is_wild(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
        )
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

/// A text in one line, with nothing in it that commands a terminal.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_wild) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().flat_map(|letter| {
        let wild = is_wild(letter).then(|| letter.escape_default());
        let tame = wild.is_none().then_some(letter);
        wild.into_iter().flatten().chain(tame)
    });
    Cow::Owned(escaped.collect())
}

/// The beginning of a text that fits into this many bytes. An ellipsis says that there was
/// more.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut end = max.saturating_sub(ELLIPSIS.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

/// The mark for the rest of a text.
const ELLIPSIS: &str = "…";

/// The words of a text in lines of up to this width.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.into());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_with_as_much_as_matters() {
        for (micros, text) in [
            (0, "0"),
            (240, "240 us"),
            (1_840, "1.8 ms"),
            (212_300, "212 ms"),
            (4_100_000, "4.1 s"),
            (41_000_000, "41 s"),
            (420_000_000, "7 min"),
            (7_800_000_000, "2 h 10 min"),
            (1_051_200_000_000, "12 d 4 h"),
        ] {
            assert_eq!(Span::micros(micros).to_string(), text);
        }
    }

    #[test]
    fn sizes_have_their_units() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512 B"),
            (65_536, "64 KiB"),
            (5_452_595, "5.2 MiB"),
            (62_914_561, "60 MiB"),
            (3 << 30, "3 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn names_that_clients_choose_are_no_markup() {
        let name = "<script>\"a\" & 'b'</script>\n\u{1b}";
        assert_eq!(
            Html(name).to_string(),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\n\\u{1b}"
        );
    }

    #[test]
    fn counts_have_their_plural_and_sentences_one_end() {
        let said = [0, 1, 2].map(|number| count(number, "process"));
        assert_eq!(said, ["0 processes", "1 process", "2 processes"]);
        assert_eq!(count(2, "request"), "2 requests");
        for (said, end) in [("so", "."), ("so?", ""), ("so.", ""), ("so!", "")] {
            assert_eq!(stop(said), end);
        }
    }

    #[test]
    fn what_is_cut_has_an_ellipsis_and_whole_characters() {
        assert!(matches!(cut("größe", 7), Cow::Borrowed("größe")));
        assert_eq!(cut("größe", 6), "gr…");
        assert_eq!(cut("large", 4), "l…");
        assert_eq!(cut("日本", 5), "…");
    }

    #[test]
    fn what_is_shown_stays_on_its_line() {
        assert!(matches!(shown("größe"), Cow::Borrowed("größe")));
        assert_eq!(shown("a\r\nb\u{1b}[2Jé"), "a\\r\\nb\\u{1b}[2Jé");
    }
}
