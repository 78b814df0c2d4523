//! Makes text from others harmless to a terminal.
//!
//! A note, a name or a line of a log is whatever some client sent. A terminal
//! obeys what it is shown: it can be told to hide lines, or to type for us.

use std::borrow::Cow;
use std::io::IsTerminal;

use rideau_config::human::is_wild;

/// The text with all that commands a terminal written out; its lines stay.
pub(crate) fn tamed(text: &str) -> Cow<'_, str> {
    replaced(text, |c| {
        (is_wild(c) && c != '\n' && c != '\t').then(|| c.escape_default().to_string())
    })
}

/// The same as one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, |c| match c {
        '\n' | '\r' | '\t' => Some(" ".into()),
        c => is_wild(c).then(|| c.escape_default().to_string()),
    })
}

/// Text from clients: unchanged for programs, escaped on a terminal.
pub(crate) fn payload<'a>(text: &'a str, out: &impl IsTerminal) -> Cow<'a, str> {
    match out.is_terminal() {
        true => tamed(text),
        false => Cow::Borrowed(text),
    }
}

/// JSON that means the same. Such characters stand nowhere but in its strings.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    replaced(text, |c| {
        is_wild(c).then(|| format!("\\u{:04x}", u32::from(c)))
    })
}

fn replaced(text: &str, instead: impl Fn(char) -> Option<String>) -> Cow<'_, str> {
    if text.chars().all(|c| instead(c).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut tame = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match instead(c) {
            Some(text) => tame += &text,
            None => tame.push(c),
        }
    }
    Cow::Owned(tame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_written_out() {
        assert_eq!(tamed("a\n\tb é ✓"), "a\n\tb é ✓");
        assert_eq!(tamed("\x1b[31mred\x07"), r"\u{1b}[31mred\u{7}");
        assert_eq!(tamed("\u{9b}2J\u{7f}\r"), r"\u{9b}2J\u{7f}\r");
        assert_eq!(tamed("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(one_line("a\nb\x1bc"), r"a b\u{1b}c");
    }

    #[test]
    fn json_means_the_same_as_before() {
        let value = serde_json::json!({ "note": "\u{9b}2J\x1b[0m\u{202e}" });
        let text = value.to_string();
        let tame = json(&text);
        assert!(tame.chars().all(|c| !is_wild(c)), "{tame}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&tame).unwrap(),
            value
        );
    }
}
