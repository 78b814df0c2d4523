//! What the processes of an application write: the last lines in memory, all
//! of them in its log file if it has one.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use rideau_core::apps::ProcessId;
use rideau_process::{OutputLine, Stream};
use tokio::sync::broadcast;

/// How many lines are kept.
const LINES_MAX: usize = 1000;
/// And how many bytes.
const BYTES_MAX: usize = 256 << 10;
/// A follower that is further behind misses some.
const BEHIND_MAX: usize = 256;

/// The output of the processes of one application.
pub struct Output {
    kept: Mutex<Kept>,
    followers: broadcast::Sender<Arc<AppLine>>,
    file: Mutex<Option<LogFile>>,
    serial: AtomicU64,
}

/// A line of an application.
#[derive(Clone, Debug)]
pub struct AppLine {
    /// Its number, one more than that of the line before.
    pub serial: u64,
    /// When it was read.
    pub at: SystemTime,
    /// The process that wrote it.
    pub process: ProcessId,
    /// On which output.
    pub stream: Stream,
    /// What, with everything escaped that is no text.
    pub text: String,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<Arc<AppLine>>,
    bytes: usize,
}

struct LogFile {
    path: PathBuf,
    file: Option<File>,
    is_told: bool,
}

impl Output {
    pub(super) fn new(log: Option<&Path>) -> Self {
        Self {
            kept: Mutex::default(),
            followers: broadcast::channel(BEHIND_MAX).0,
            file: Mutex::new(log.map(LogFile::new)),
            serial: AtomicU64::new(0),
        }
    }

    /// Write to another file from now on, or open the same again: it may have been
    /// moved away.
    pub(super) fn reopen(&self, log: Option<&Path>) {
        *self.file.lock() = log.map(LogFile::new);
    }

    /// A process wrote a line.
    pub(super) fn add(&self, app: &str, process: ProcessId, line: &OutputLine) {
        let line = Arc::new(AppLine {
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            at: SystemTime::now(),
            process,
            stream: line.stream,
            text: line.text.clone(),
        });
        let mut file = self.file.lock();
        match &mut *file {
            Some(file) => file.write(app, &line),
            None => tracing::info!(target: "app", app, process = process.0, "{}", line.text),
        }
        drop(file);
        self.kept.lock().push(Arc::clone(&line));
        // There is no follower: that is no fault.
        let _ = self.followers.send(line);
    }

    /// The last lines, oldest first.
    pub fn last(&self, count: usize) -> Vec<Arc<AppLine>> {
        let kept = self.kept.lock();
        let from = kept.lines.len().saturating_sub(count);
        kept.lines.iter().skip(from).cloned().collect()
    }

    /// Hear of all lines from now on.
    pub fn follow(&self) -> broadcast::Receiver<Arc<AppLine>> {
        self.followers.subscribe()
    }
}

impl AppLine {
    /// One word for the output it was written to.
    pub const fn stream_word(&self) -> &'static str {
        match self.stream {
            Stream::Output => "out",
            Stream::Error => "err",
        }
    }
}

impl Kept {
    fn push(&mut self, line: Arc<AppLine>) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(gone) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= gone.text.len();
        }
    }
}

impl LogFile {
    fn new(path: &Path) -> Self {
        // Whatever the mask of the server is: programs write secrets, too.
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path);
        Self {
            path: path.to_owned(),
            file: file.ok(),
            is_told: false,
        }
    }

    /// A file that cannot be written must not stop an application.
    fn write(&mut self, app: &str, line: &AppLine) {
        let since = line.at.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let stream = line.stream_word();
        let text = format!(
            "{}.{:03} {} {stream} {}\n",
            since.as_secs(),
            since.subsec_millis(),
            line.process,
            line.text
        );
        let written = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).map_err(|e| e.to_string()),
            None => Err("it cannot be opened".into()),
        };
        if let Err(error) = written
            && !self.is_told
        {
            self.is_told = true;
            let path = self.path.display();
            tracing::warn!(app, "the log {path} cannot be written: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::apps::ProcessId;

    use super::{BYTES_MAX, LINES_MAX, Output};
    use rideau_process::{OutputLine, Stream};

    fn line(text: &str) -> OutputLine {
        OutputLine {
            stream: Stream::Output,
            text: text.into(),
            cut: false,
        }
    }

    #[test]
    fn a_log_is_for_the_account_of_the_server_alone() {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("rideau-output-{}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        let output = Output::new(Some(&path));
        output.add("shop", ProcessId(1), &line("secret"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn only_so_many_of_the_last_lines_are_kept() {
        let output = Output::new(None);
        for number in 0..LINES_MAX + 10 {
            output.add("shop", ProcessId(1), &line(&number.to_string()));
        }
        let last = output.last(usize::MAX);
        assert_eq!(last.len(), LINES_MAX);
        assert_eq!(last[0].text, "10");
        assert_eq!(output.last(1)[0].text, (LINES_MAX + 9).to_string());
    }

    #[test]
    fn only_so_many_bytes_are_kept() {
        let output = Output::new(None);
        for _ in 0..100 {
            output.add("shop", ProcessId(1), &line(&"x".repeat(16 << 10)));
        }
        let kept: usize = output.last(usize::MAX).iter().map(|l| l.text.len()).sum();
        assert!(kept <= BYTES_MAX && kept > BYTES_MAX / 2, "{kept}");
    }
}
