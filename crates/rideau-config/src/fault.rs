//! Faults of a file: what is wrong, where, and what to write instead.
//!
//! A fault carries its line of the file, with secrets blotted out, so that it
//! can be shown, logged and sent without the file.

use std::fmt::{self, Write};
use std::ops::Range;

use super::human::count;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The file cannot be used.
    Error,
    /// The file can be used, and probably does not say what was meant.
    Warning,
}

/// One thing that is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// How bad it is.
    pub level: Level,
    /// Which bytes of the file are at fault.
    pub at: Range<usize>,
    /// The line, counted from one.
    pub line: usize,
    /// The character of the line, counted from one.
    pub column: usize,
    /// The fault, as a sentence without a full stop.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// The line with its secrets blotted out.
    source: String,
    /// Where in it the fault is, and how many characters are at fault.
    indent: usize,
    width: usize,
}

/// All that is wrong with one file, from top to bottom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults {
    file: String,
    faults: Vec<Fault>,
    /// How many more there are.
    more: usize,
}

/// Lines are shown up to this width.
const WIDTH: usize = 88;
/// So much of a long line is shown before what is at fault.
const LEAD_IN: usize = 30;

impl Fault {
    /// A fault of the bytes `at` of `text`.
    pub(super) fn new(
        text: &str,
        level: Level,
        at: Range<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let start = floor(text, at.start);
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[start..].find('\n').map_or(text.len(), |n| start + n);
        let stop = floor(text, at.end).clamp(start, end);
        let line = &text[begin..end];
        let (source, places) = blot(line, start - begin..stop - begin);
        Self {
            level,
            line: 1 + text[..begin].matches('\n').count(),
            column: 1 + text[begin..start].chars().count(),
            message: message.into(),
            hint: hint.into(),
            indent: source[..places.start].chars().count(),
            width: source[places].trim_end().chars().count().max(1),
            source: source.trim_end().replace('\t', " "),
            at,
        }
    }

    fn render(&self, file: &str, colour: bool, out: &mut String) -> fmt::Result {
        let (word, paint) = match self.level {
            Level::Error => ("error", "\x1b[1;31m"),
            Level::Warning => ("warning", "\x1b[1;33m"),
        };
        let (paint, plain) = if colour { (paint, "\x1b[0m") } else { ("", "") };
        let Self { line, column, .. } = self;
        writeln!(
            out,
            "{file}:{line}:{column}  {paint}{word}{plain}  {}",
            self.message
        )?;
        let (source, indent) = self.window();
        writeln!(out, "{line:>5} | {source}")?;
        let room = source.chars().count().saturating_sub(indent).max(1);
        let carets = "^".repeat(self.width.min(room));
        let hint = if self.hint.is_empty() { "" } else { "  " };
        let hint = format!("{hint}{}", self.hint);
        writeln!(
            out,
            "{:>5} | {:indent$}{paint}{carets}{plain}{hint}",
            "", ""
        )
    }

    /// The part of the line that is shown, and where in it the fault is.
    fn window(&self) -> (String, usize) {
        let chars: Vec<char> = self.source.chars().collect();
        let at = self.indent;
        if chars.len() <= WIDTH {
            return (self.source.clone(), at);
        }
        let begin = if at + self.width < WIDTH {
            0
        } else {
            at.saturating_sub(LEAD_IN)
        };
        let end = (begin + WIDTH).min(chars.len());
        let mut shown: String = chars[begin..end].iter().collect();
        if end < chars.len() {
            shown.push('…');
        }
        if begin == 0 {
            return (shown, at);
        }
        (format!("…{shown}"), at - begin + 1)
    }
}

impl Faults {
    /// The faults of `file`, sorted, each once.
    pub(super) fn new(file: &str, mut faults: Vec<Fault>, more: usize) -> Self {
        faults.sort_by_key(|fault| (fault.at.start, fault.level, fault.at.end));
        let mut seen: Vec<Fault> = Vec::new();
        for fault in faults {
            if !seen.contains(&fault) {
                seen.push(fault);
            }
        }
        Self {
            file: file.into(),
            faults: seen,
            more,
        }
    }

    /// The faults from the top of the file to its end.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.faults.iter()
    }

    /// How many faults make the file unusable.
    pub fn errors(&self) -> usize {
        let is_error = |fault: &&Fault| fault.level == Level::Error;
        self.iter().filter(is_error).count()
    }

    /// How many faults do not.
    pub fn warnings(&self) -> usize {
        self.faults.len() - self.errors()
    }

    /// Nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// The faults as a person reads them, each with its line and carets.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for fault in &self.faults {
            let written = fault.render(&self.file, colour, &mut out);
            written.expect("a string takes all that is written");
        }
        if self.more > 0 {
            out += &format!("and {} more\n", self.more);
        }
        let (errors, warnings) = (self.errors(), self.warnings());
        out += &match (errors, warnings) {
            (0, 0) => format!("{}: nothing is wrong\n", self.file),
            (errors, 0) => format!("{}\n", count(errors, "error")),
            (0, warnings) => format!("{}\n", count(warnings, "warning")),
            _ => format!(
                "{}, {}\n",
                count(errors, "error"),
                count(warnings, "warning")
            ),
        };
        out
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Faults {}

/// The line without the passwords in it, and where in that `places` is.
fn blot(line: &str, mut places: Range<usize>) -> (String, Range<usize>) {
    const BLOT: &str = "\"…\"";
    let mut out = line.to_owned();
    let mut from = 0;
    while let Some(value) = password(&out, from) {
        let moved = |at: usize| match at {
            at if at <= value.start => at,
            at if at < value.end => value.start,
            at => at - value.len() + BLOT.len(),
        };
        let is_within = value.start <= places.start && places.start < value.end;
        places = if is_within {
            value.start..value.start + BLOT.len()
        } else {
            moved(places.start)..moved(places.end)
        };
        out.replace_range(value.clone(), BLOT);
        from = value.start + BLOT.len();
    }
    (out, places)
}

/// Where the value of the next key is that ends in `password`.
fn password(line: &str, from: usize) -> Option<Range<usize>> {
    const KEY: &str = "password";
    let lower = line.to_ascii_lowercase();
    let mut from = from;
    loop {
        let key_end = from + lower[from..].find(KEY)? + KEY.len();
        let rest = line[key_end..].trim_start_matches(['"', '\'', ' ', '\t']);
        let Some(value) = rest.strip_prefix('=') else {
            from = key_end;
            continue;
        };
        let value = value.trim_start();
        let start = line.len() - value.len();
        let end = closing(value).map_or(line.trim_end().len(), |len| start + len);
        return (start < end).then_some(start..end);
    }
}

/// The length of the text in quotes that `value` begins with, if it ends here.
fn closing(value: &str) -> Option<usize> {
    let quote = value.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let is_long = value.chars().take(3).filter(|c| *c == quote).count() == 3;
    let mut is_escaped = false;
    for (at, c) in value.char_indices().skip(1) {
        // What is in three quotes is blotted out to the end of the line.
        if c == quote && !is_escaped && !is_long {
            return Some(at + 1);
        }
        is_escaped = c == '\\' && quote == '"' && !is_escaped;
    }
    None
}

/// The nearest place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown_wherever_the_fault_is() {
        for (line, at, shown, carets) in [
            (
                "password = \"hunter2\" # a",
                11..20,
                "password = \"…\" # a",
                (11, 3),
            ),
            ("password = hunter2", 11..12, "password = \"…\"", (11, 3)),
            ("password = \"hunter2", 19..19, "password = \"…\"", (14, 1)),
            (
                "{ PGPASSWORD=\"é\", alow=1 }",
                19..23,
                "{ PGPASSWORD=\"…\", alow=1 }",
                (18, 4),
            ),
            (
                r#"password = "a\"b", c = 1"#,
                0..8,
                "password = \"…\", c = 1",
                (0, 8),
            ),
            ("password = '''hunter2'''", 0..8, "password = \"…\"", (0, 8)),
            (
                "a = 1, password = 'x'",
                0..1,
                "a = 1, password = \"…\"",
                (0, 1),
            ),
            (
                "password_file = \"/a\"",
                16..20,
                "password_file = \"/a\"",
                (16, 4),
            ),
            ("password = ", 11..11, "password =", (11, 1)),
        ] {
            let fault = Fault::new(line, Level::Error, at, "", "");
            assert_eq!(fault.source, shown);
            assert_eq!((fault.indent, fault.width), carets, "{line}");
        }
    }
}
