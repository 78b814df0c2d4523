//! The last lines that a program has written.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// How many are kept,
const LINES_MAX: usize = 8;
/// and how much of each.
const LINE_MAX: usize = 512;

/// The last lines that a program has written.
#[derive(Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Hand on what a program writes, until it ends.
    pub(super) async fn follow(self, from: impl AsyncRead + Unpin, mut to: impl Write) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut part = (&mut from).take(64 << 10);
            match part.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => (),
            }
            // A reader that is gone does not want to know.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            self.add(&line);
        }
    }

    fn add(&self, line: &[u8]) {
        let line = &line[..line.len().min(LINE_MAX)];
        let line = String::from_utf8_lossy(line).trim_end().to_owned();
        let mut lines = self.0.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// All of them, after what is said of them; nothing if there are none.
    pub(super) fn said(&self) -> String {
        let lines = self.0.lock();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        match lines.is_empty() {
            true => String::new(),
            false => format!("; it wrote last: {}", lines.join(" | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_and_all_are_handed_on() {
        let lines = LastLines::default();
        let text: String = (0..20).map(|number| format!("line {number}\n")).collect();
        let mut handed_on = Vec::new();
        (lines.clone())
            .follow(text.as_bytes(), &mut handed_on)
            .await;
        assert_eq!(handed_on, text.as_bytes());
        let said = lines.said();
        assert!(said.starts_with("; it wrote last: line 12 | "), "{said}");
        assert!(said.ends_with("line 19"), "{said}");
    }
}
