//! Spans, sizes, counts and names as people read them: on the status page, on the command
//! line and in sentences.
//!
//! What the config reads back is written by [`show_span`](crate::show_span) instead.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::label::is_wild;

/// A span with as much of it as matters: `240 us`, `1.8 ms`, `41 s`, `2 h 10 min`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl Span {
    /// So many microseconds.
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
}
