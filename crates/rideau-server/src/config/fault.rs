//! What is wrong with a file, where, and what to write instead.
//!
//! A fault carries its line of the file, with secrets blotted out, so that it
//! can be shown, logged and sent without the file.

use std::fmt::{self, Write};
use std::ops::Range;

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
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// The line as it stands there, and how many of its characters are at
    /// fault.
    source: String,
    width: usize,
}

/// All that is wrong with one file, from top to bottom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults {
    file: String,
    faults: Vec<Fault>,
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
        Self {
            level,
            line: 1 + text[..begin].matches('\n').count(),
            column: 1 + text[begin..start].chars().count(),
            message: message.into(),
            hint: hint.into(),
            source: text[begin..end].trim_end().replace('\t', " "),
            width: text[start..stop].trim_end().chars().count().max(1),
            at,
        }
    }

    /// The same fault with what is at fault blotted out.
    pub(super) fn blotted(mut self) -> Self {
        let chars: Vec<char> = self.source.chars().collect();
        let stop = (self.column - 1 + self.width).min(chars.len());
        let before = chars.iter().take(self.column - 1);
        let blot = "\"…\"".chars();
        let source = before.copied().chain(blot).chain(chars[stop..].to_vec());
        self.source = source.collect();
        self.width = 3;
        self
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
        let at = self.column - 1;
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
    pub(super) fn new(file: &str, mut faults: Vec<Fault>) -> Self {
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

/// `1 error`, `2 errors`.
pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The nearest place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}
