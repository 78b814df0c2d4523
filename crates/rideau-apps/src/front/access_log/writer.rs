//! The thread that writes the lines of all logs, so that no request waits for a disk.
//!
//! What does not fit into its queue, or cannot be written, is lost and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait to be written.
pub(in crate::front) const QUEUE_MAX: usize = 64 << 10;
/// Bytes that are written at a time.
const WRITE_LEN: usize = 64 << 10;
/// A file that could not be opened or written is tried again after this.
const RETRY: Duration = Duration::from_secs(1);
/// The log of the server says so no more often.
const COMPLAIN: Duration = Duration::from_secs(60);
/// Others than the group of the server may not read it.
const MODE: u32 = 0o640;

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::front) enum LogTarget {
    Stdout,
    File(PathBuf),
}

/// The thread, which is started with the first line.
#[derive(Default)]
pub(in crate::front) struct LogWriter {
    orders: OnceLock<Option<SyncSender<LogOrder>>>,
    counts: Arc<LogCounts>,
}

#[derive(Default)]
struct LogCounts {
    waiting: AtomicUsize,
    lost: AtomicU64,
    /// How often the files were to be opened anew. The queue may be full when they are.
    reopened: AtomicU64,
}

enum LogOrder {
    Line(Arc<LogTarget>, String),
    /// Look whether files are to be opened anew.
    Look,
    /// Say when all before this was written.
    Flush(SyncSender<()>),
}

/// The thread's own.
struct WriterThread {
    counts: Arc<LogCounts>,
    outputs: Vec<LogOutput>,
    reopened: u64,
}

/// One of its files.
struct LogOutput {
    target: Arc<LogTarget>,
    sink: LogSink,
    waiting: Vec<u8>,
    /// The last line was not written as a whole.
    is_torn: bool,
    complained: Option<Instant>,
}

enum LogSink {
    /// Not yet, or not any more.
    Closed,
    Open(File),
    Stdout,
    /// It could not be used at that moment.
    Failed(Instant),
}

impl LogWriter {
    /// Write a line, without waiting.
    pub(super) fn write(&self, target: &Arc<LogTarget>, line: String) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if !self.send(LogOrder::Line(Arc::clone(target), line)) {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Open all files anew: they may have been moved away.
    pub(in crate::front) fn reopen(&self) {
        self.counts.reopened.fetch_add(1, Ordering::Release);
        if self.orders.get().is_some() {
            self.send(LogOrder::Look);
        }
    }

    /// Wait until all that was logged is written, but not for longer than this.
    pub(in crate::front) fn flush(&self, within: Duration) {
        let Some(Some(orders)) = self.orders.get() else {
            return;
        };
        let until = Instant::now() + within;
        let (done, is_done) = sync_channel(1);
        let mut order = LogOrder::Flush(done);
        while let Err(TrySendError::Full(full)) = orders.try_send(order) {
            order = full;
            if Instant::now() > until {
                return;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        let left = until.saturating_duration_since(Instant::now());
        if is_done.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the log of requests is not written to its end");
        }
    }

    /// How many lines wait to be written.
    pub(in crate::front) fn waiting(&self) -> usize {
        self.counts.waiting.load(Ordering::Relaxed)
    }

    /// How many lines were lost.
    pub(in crate::front) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    fn send(&self, order: LogOrder) -> bool {
        let orders = self.orders.get_or_init(|| begin(&self.counts));
        orders
            .as_ref()
            .is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

/// Start the thread; none if it cannot be.
fn begin(counts: &Arc<LogCounts>) -> Option<SyncSender<LogOrder>> {
    let (orders, received) = sync_channel(QUEUE_MAX);
    let writer = WriterThread {
        counts: Arc::clone(counts),
        outputs: Vec::new(),
        reopened: counts.reopened.load(Ordering::Acquire),
    };
    let thread = thread::Builder::new().name("rideau-log".into());
    match thread.spawn(move || writer.run(&received)) {
        Ok(_) => Some(orders),
        Err(error) => {
            tracing::warn!("requests are not logged: the thread cannot be started: {error}");
            None
        }
    }
}

impl WriterThread {
    fn run(mut self, orders: &Receiver<LogOrder>) {
        while let Ok(order) = orders.recv() {
            let mut flushed = self.carry_out(order);
            // What came meanwhile is written with it.
            while flushed.is_none()
                && let Ok(order) = orders.try_recv()
            {
                flushed = self.carry_out(order);
            }
            for output in &mut self.outputs {
                output.write(&self.counts);
            }
            if let Some(flushed) = flushed {
                let _ = flushed.try_send(());
            }
        }
    }

    /// Returns the caller that waits until all before was written.
    fn carry_out(&mut self, order: LogOrder) -> Option<SyncSender<()>> {
        let reopened = self.counts.reopened.load(Ordering::Acquire);
        if reopened != self.reopened {
            self.reopened = reopened;
            self.reopen();
        }
        match order {
            LogOrder::Line(target, line) => {
                self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
                let output = self.output(&target);
                output.waiting.extend_from_slice(line.as_bytes());
                if output.waiting.len() >= WRITE_LEN {
                    let counts = Arc::clone(&self.counts);
                    self.output(&target).write(&counts);
                }
                None
            }
            LogOrder::Look => None,
            LogOrder::Flush(done) => Some(done),
        }
    }

    fn output(&mut self, target: &Arc<LogTarget>) -> &mut LogOutput {
        let known = self
            .outputs
            .iter()
            .position(|known| known.target == *target);
        let at = known.unwrap_or_else(|| {
            self.outputs.push(LogOutput::new(Arc::clone(target)));
            self.outputs.len() - 1
        });
        &mut self.outputs[at]
    }

    fn reopen(&mut self) {
        for output in &mut self.outputs {
            output.write(&self.counts);
            output.sink = LogSink::Closed;
            // Programs that move logs away want the new file to be there.
            output.open();
        }
    }
}

impl LogOutput {
    fn new(target: Arc<LogTarget>) -> Self {
        Self {
            target,
            sink: LogSink::Closed,
            waiting: Vec::new(),
            is_torn: false,
            complained: None,
        }
    }

    /// Write what waits. What cannot be written is lost.
    fn write(&mut self, counts: &LogCounts) {
        if self.waiting.is_empty() {
            return;
        }
        self.open();
        let mut lines = std::mem::take(&mut self.waiting);
        let was_torn = self.is_torn;
        if was_torn {
            lines.insert(0, b'\n');
        }
        let (len, failed) = match &mut self.sink {
            LogSink::Open(file) => write_all(file, &lines),
            LogSink::Stdout => write_all(&mut io::stdout().lock(), &lines),
            LogSink::Closed | LogSink::Failed(_) => (0, None),
        };
        let (written, rest) = lines.split_at(len);
        self.is_torn = match written.last() {
            Some(last) => *last != b'\n',
            None => self.is_torn,
        };
        // The end of a line that was torn before is no line.
        let ends = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        let lost = ends - u64::from(was_torn && written.is_empty());
        counts.lost.fetch_add(lost, Ordering::Relaxed);
        if let Some(error) = failed {
            self.fail("written", &error);
        }
        lines.clear();
        if lines.capacity() <= 2 * WRITE_LEN {
            self.waiting = lines;
        }
    }

    fn open(&mut self) {
        let is_tried = match &self.sink {
            LogSink::Closed => true,
            LogSink::Failed(at) => at.elapsed() >= RETRY,
            LogSink::Open(_) | LogSink::Stdout => false,
        };
        if !is_tried {
            return;
        }
        let LogTarget::File(path) = &*self.target else {
            self.sink = LogSink::Stdout;
            return;
        };
        let mut options = OpenOptions::new();
        match options.append(true).create(true).mode(MODE).open(path) {
            Ok(file) => self.sink = LogSink::Open(file),
            Err(error) => self.fail("opened", &error),
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        self.sink = LogSink::Failed(Instant::now());
        let said = self.complained;
        if said.is_none_or(|at| at.elapsed() >= COMPLAIN) {
            self.complained = Some(Instant::now());
            let target = match &*self.target {
                LogTarget::Stdout => "standard output".into(),
                LogTarget::File(path) => path.display().to_string(),
            };
            tracing::warn!("the log of requests at {target} cannot be {what}: {error}");
        }
    }
}

/// Write as much as goes; says how much that was.
fn write_all(out: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut at = 0;
    while at < bytes.len() {
        match out.write(&bytes[at..]) {
            Ok(0) => return (at, Some(io::ErrorKind::WriteZero.into())),
            Ok(len) => at += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return (at, Some(error)),
        }
    }
    match out.flush() {
        Ok(()) => (at, None),
        Err(error) => (at, Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(60);

    fn folder(name: &str) -> PathBuf {
        let name = format!("rideau-log-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn target(path: &Path) -> Arc<LogTarget> {
        Arc::new(LogTarget::File(path.to_owned()))
    }

    #[test]
    fn lines_of_all_threads_are_written_as_they_are() {
        let folder = folder("many");
        let writer = LogWriter::default();
        let (one, two) = (target(&folder.join("one")), target(&folder.join("two")));
        thread::scope(|scope| {
            for number in 0..4 {
                let (writer, one, two) = (&writer, &one, &two);
                scope.spawn(move || {
                    for line in 0..1000 {
                        let target = if line % 2 == 0 { one } else { two };
                        writer.write(target, format!("thread {number} line {line}\n"));
                    }
                });
            }
        });
        writer.flush(LONG);
        for name in ["one", "two"] {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text.lines().count(), 2000);
            assert!(text.lines().all(|line| line.starts_with("thread ")));
        }
        assert_eq!((writer.lost(), writer.waiting()), (0, 0));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = folder("moved");
        let path = folder.join("log");
        let writer = LogWriter::default();
        let write = |line: &str| {
            writer.write(&target(&path), line.into());
            writer.flush(LONG);
        };
        write("1\n");
        fs::rename(&path, folder.join("old")).unwrap();
        write("2\n");
        writer.reopen();
        writer.flush(LONG);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "",
            "it is there at once"
        );
        write("3\n");
        assert_eq!(fs::read_to_string(folder.join("old")).unwrap(), "1\n2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let writer = LogWriter::default();
        let missing = target(Path::new("/nowhere/log"));
        let full = target(Path::new("/dev/full"));
        for line in 0..10 {
            writer.write(&missing, format!("{line}\n"));
            writer.write(&full, format!("{line}\n"));
        }
        writer.flush(LONG);
        assert_eq!((writer.lost(), writer.waiting()), (20, 0));
    }

    #[test]
    fn a_line_that_was_broken_off_does_not_spoil_the_next() {
        let folder = folder("torn");
        let path = folder.join("log");
        let mut output = LogOutput::new(target(&path));
        output.is_torn = true;
        output.waiting.extend_from_slice(b"whole\n");
        output.write(&LogCounts::default());
        assert_eq!(fs::read_to_string(&path).unwrap(), "\nwhole\n");
        assert!(!output.is_torn);
        fs::remove_dir_all(folder).unwrap();
    }
}
