//! The output of a child as lines, bounded in number and length.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// How much is kept of what a child writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputLimits {
    /// This many of the last lines are kept.
    pub lines_max: usize,
    /// This many bytes of the last lines are kept.
    pub bytes_max: usize,
    /// A longer line is cut.
    pub line_bytes_max: usize,
    /// This many lines are heard in a second, and the others are counted.
    pub lines_per_second_max: u32,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            lines_max: 200,
            bytes_max: 64 << 10,
            line_bytes_max: 16 << 10,
            lines_per_second_max: 1000,
        }
    }
}

/// A line that a child wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OutputLine {
    /// Where it wrote it.
    pub stream: Stream,
    /// The line without its end. A byte that is no text is written as `\xff`.
    pub text: String,
    /// It was longer than this.
    pub cut: bool,
}

/// One of a child's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The standard output.
    Output,
    /// The standard error.
    Error,
}

/// The last lines.
///
/// Invariant: `bytes` is the sum of the lengths of all texts.
pub(super) struct LastLines {
    limits: OutputLimits,
    lines: VecDeque<OutputLine>,
    bytes: usize,
}

impl LastLines {
    pub(super) const fn new(limits: OutputLimits) -> Self {
        Self {
            limits,
            lines: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, line: OutputLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > self.limits.lines_max || self.bytes > self.limits.bytes_max {
            let oldest = self.lines.pop_front().expect("no lines have no bytes");
            self.bytes -= oldest.text.len();
        }
    }

    pub(super) fn all(&self) -> Vec<OutputLine> {
        self.lines.iter().cloned().collect()
    }
}

/// Makes lines of whatever pieces are read.
pub(super) struct Splitter {
    stream: Stream,
    line_bytes_max: usize,
    /// The line that has not ended yet, as far as it is kept.
    begun: Vec<u8>,
    cut: bool,
}

impl Splitter {
    pub(super) const fn new(stream: Stream, limits: OutputLimits) -> Self {
        Self {
            stream,
            line_bytes_max: limits.line_bytes_max,
            begun: Vec::new(),
            cut: false,
        }
    }

    /// More was read.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut heard: impl FnMut(OutputLine)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            bytes = &bytes[end + 1..];
            heard(self.end());
        }
        self.keep(bytes);
    }

    /// There will be no more: what was begun is a line too.
    pub(super) fn finish(&mut self, mut heard: impl FnMut(OutputLine)) {
        if !self.begun.is_empty() || self.cut {
            heard(self.end());
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.line_bytes_max - self.begun.len();
        self.cut |= bytes.len() > room;
        self.begun
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end(&mut self) -> OutputLine {
        if !self.cut && self.begun.last() == Some(&b'\r') {
            self.begun.pop();
        }
        let (text, cut) = text(&self.begun, self.line_bytes_max);
        self.begun.clear();
        OutputLine {
            stream: self.stream,
            text,
            cut: std::mem::take(&mut self.cut) || cut,
        }
    }
}

/// How many lines are heard, second by second.
pub(super) struct Pace {
    most: u32,
    since: Option<Instant>,
    heard: u32,
    dropped: u64,
}

impl Pace {
    pub(super) const fn new(limits: OutputLimits) -> Self {
        Self {
            most: limits.lines_per_second_max,
            since: None,
            heard: 0,
            dropped: 0,
        }
    }

    /// A line that tells how many were dropped, when their second is over.
    pub(super) fn told(&mut self, now: Instant) -> Option<OutputLine> {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if !self.since.is_none_or(is_over) {
            return None;
        }
        self.since = Some(now);
        self.heard = 0;
        self.rest()
    }

    /// The same, whenever it is.
    pub(super) fn rest(&mut self) -> Option<OutputLine> {
        let count = std::mem::take(&mut self.dropped);
        let lines = if count == 1 { "line" } else { "lines" };
        (count > 0).then(|| OutputLine {
            stream: Stream::Error,
            text: format!("{count} {lines} dropped"),
            cut: false,
        })
    }

    /// Is the next line heard?
    pub(super) const fn admits(&mut self) -> bool {
        let admits = self.heard < self.most;
        if admits {
            self.heard += 1;
        } else {
            self.dropped += 1;
        }
        admits
    }
}

/// Bytes as text, whatever they are, and whether they were too many for that.
/// Nothing in it ends a string elsewhere.
fn text(bytes: &[u8], len_max: usize) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut letter = [0; 4];
        for c in chunk.valid().chars() {
            let part = match c {
                '\0' => "\\x00",
                c => c.encode_utf8(&mut letter),
            };
            if text.len() + part.len() > len_max {
                return (text, true);
            }
            text.push_str(part);
        }
        for byte in chunk.invalid() {
            let part = format!("\\x{byte:02x}");
            if text.len() + part.len() > len_max {
                return (text, true);
            }
            text.push_str(&part);
        }
    }
    (text, false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{LastLines, OutputLimits, OutputLine, Pace, Splitter, Stream};

    const LIMITS: OutputLimits = OutputLimits {
        lines_max: 3,
        bytes_max: 10,
        line_bytes_max: 6,
        lines_per_second_max: 2,
    };

    fn lines(pieces: &[&[u8]]) -> Vec<(String, bool)> {
        let mut splitter = Splitter::new(Stream::Output, LIMITS);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.feed(piece, |line| lines.push((line.text, line.cut)));
        }
        splitter.finish(|line| lines.push((line.text, line.cut)));
        lines
    }

    fn whole(text: &str) -> (String, bool) {
        (text.to_owned(), false)
    }

    fn cut(text: &str) -> (String, bool) {
        (text.to_owned(), true)
    }

    #[test]
    fn lines_do_not_depend_on_how_they_are_read() {
        let wanted = [whole("one"), whole(""), whole("two"), whole("end")];
        assert_eq!(lines(&[b"one\r\n\ntwo\nend"]), wanted);
        assert_eq!(lines(&[b"o", b"ne\r", b"\n\ntw", b"o\n", b"end"]), wanted);
        let bytes: Vec<&[u8]> = b"one\r\n\ntwo\nend".chunks(1).collect();
        assert_eq!(lines(&bytes), wanted);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        assert_eq!(lines(&[b"1234567890\nab\n"]), [cut("123456"), whole("ab")]);
        assert_eq!(lines(&[b"12345", b"67", b"89\n"]), [cut("123456")]);
        assert_eq!(lines(&[b"123456\n"]), [whole("123456")]);
        assert_eq!(lines(&[&[b'x'; 100_000]]), [cut("xxxxxx")]);
    }

    #[test]
    fn what_is_no_text_is_written_in_numbers() {
        assert_eq!(lines(&[b"\xffb\n"]), [whole("\\xffb")]);
        assert_eq!(lines(&[b"a\0b\n"]), [whole("a\\x00b")]);
        assert_eq!(lines(&[b"\0\0\n"]), [cut("\\x00")]);
        assert_eq!(lines(&["zü\x1bx\n".as_bytes()]), [whole("zü\x1bx")]);
        // A line may be cut in the middle of a letter.
        assert_eq!(lines(&["12345é\n".as_bytes()]), [cut("12345")]);
    }

    #[test]
    fn lines_beyond_the_pace_are_counted() {
        let start = Instant::now();
        let mut pace = Pace::new(LIMITS);
        let heard = |pace: &mut Pace, now| (pace.told(now).map(|line| line.text), pace.admits());
        assert_eq!(heard(&mut pace, start), (None, true));
        assert_eq!(heard(&mut pace, start), (None, true));
        assert_eq!(heard(&mut pace, start), (None, false));
        assert_eq!(heard(&mut pace, start), (None, false));
        let later = start + Duration::from_secs(1);
        let told = Some("2 lines dropped".to_owned());
        assert_eq!(heard(&mut pace, later), (told, true));
        assert_eq!(heard(&mut pace, later), (None, true));
        assert_eq!(heard(&mut pace, later), (None, false));
        assert_eq!(pace.rest().unwrap().text, "1 line dropped");
        assert_eq!(pace.rest(), None);
    }

    #[test]
    fn only_the_last_lines_are_kept_by_count_and_by_bytes() {
        let mut last = LastLines::new(LIMITS);
        let mut texts = |text: &str| {
            last.push(OutputLine {
                stream: Stream::Error,
                text: text.to_owned(),
                cut: false,
            });
            let lines = last.all().into_iter().map(|line| line.text);
            lines.collect::<Vec<_>>().join(",")
        };
        assert_eq!(texts("a"), "a");
        assert_eq!(texts("b"), "a,b");
        assert_eq!(texts("c"), "a,b,c");
        assert_eq!(texts("d"), "b,c,d");
        assert_eq!(texts("12345678"), "c,d,12345678");
        assert_eq!(texts("123"), "123");
        assert_eq!(texts("12345678901"), "");
        assert_eq!(texts("z"), "z");
    }
}
