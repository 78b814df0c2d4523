//! The log of requests: a line for each, when it is over.
//!
//! A request has an entry from when its head was understood until its answer was sent, and
//! the line is written when the entry is dropped: whatever becomes of a request, it has one.

mod line;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_config::{AccessFormat, AccessLog, HiddenPart};

use self::line::{LineParts, finish};
use self::writer::LogTarget;
pub(super) use self::writer::{LogWriter, QUEUE_MAX};
use crate::apps::Session;

/// A log, and what its lines are like.
#[derive(Clone)]
pub(super) struct RequestLog {
    writer: Arc<LogWriter>,
    target: Arc<LogTarget>,
    format: AccessFormat,
    hidden: Arc<[HiddenPart]>,
}

/// A request as it came.
pub(super) struct LoggedRequest<'a> {
    pub(super) client: IpAddr,
    pub(super) id: &'a [u8],
    pub(super) method: &'a str,
    /// With what follows the `?`.
    pub(super) target: &'a [u8],
    pub(super) version: &'static str,
    pub(super) host: &'a [u8],
    pub(super) referer: &'a [u8],
    pub(super) agent: &'a [u8],
    pub(super) app: Option<&'a str>,
}

/// A request whose line is written when this is dropped.
pub(super) struct LogEntry {
    log: RequestLog,
    /// What was known when it came: before the answer's part of the line, and behind it.
    parts: LineParts,
    since: Instant,
    answer: Mutex<LoggedAnswer>,
}

/// The answer to a request.
#[derive(Default)]
struct LoggedAnswer {
    /// Zero before there is one.
    status: u16,
    /// Of the body, as far as it was sent.
    bytes: u64,
    /// Why the front answered, or why the client does not have all.
    error: Option<&'static str>,
    served: Option<ServedBy>,
}

/// The process that answered.
#[derive(Clone)]
struct ServedBy {
    waited: Duration,
    took: Duration,
    process: u64,
    pid: Option<i32>,
    /// The address of a server that others start.
    server: Option<String>,
    generation: u64,
}

impl LoggedRequest<'_> {
    /// Of what a client sent that is no request.
    pub(super) const fn none(client: IpAddr) -> Self {
        Self {
            client,
            id: &[],
            method: "",
            target: &[],
            version: "",
            host: &[],
            referer: &[],
            agent: &[],
            app: None,
        }
    }
}

impl RequestLog {
    /// None if there is none.
    pub(super) fn new(
        writer: &Arc<LogWriter>,
        place: &AccessLog,
        format: AccessFormat,
        hidden: impl IntoIterator<Item = HiddenPart>,
    ) -> Option<Self> {
        let target = match place {
            AccessLog::None => return None,
            AccessLog::Stdout => LogTarget::Stdout,
            AccessLog::File(path) => LogTarget::File(path.clone()),
        };
        Some(Self {
            writer: Arc::clone(writer),
            target: Arc::new(target),
            format,
            hidden: hidden.into_iter().collect(),
        })
    }

    /// A request came.
    pub(super) fn begin(&self, request: &LoggedRequest<'_>, since: Instant) -> Box<LogEntry> {
        Box::new(LogEntry {
            parts: LineParts::new(request, self.format, &self.hidden),
            log: self.clone(),
            since,
            answer: Mutex::default(),
        })
    }
}

impl LogEntry {
    /// A process answered, so long after it got the request.
    pub(super) fn answered(&self, status: u16, session: &Session, took: Duration) {
        let process = session.process();
        let mut answer = self.answer.lock();
        answer.status = status;
        answer.served = Some(ServedBy {
            waited: session.waited(),
            took,
            process: process.id.0,
            pid: process.pid(),
            server: process.server().map(|_| process.address.to_string()),
            generation: process.generation,
        });
    }

    /// The front answers with a file.
    pub(super) fn answered_by_file(&self, status: u16) {
        self.refused(status, None);
    }

    /// The front answers instead.
    pub(super) fn refused(&self, status: u16, error: Option<&'static str>) {
        let mut answer = self.answer.lock();
        answer.status = status;
        answer.error = error;
        answer.served = None;
    }

    /// The client does not get all of an answer. If it got none, the status is this.
    pub(super) fn broke(&self, status: u16, error: &'static str) {
        let mut answer = self.answer.lock();
        answer.error = Some(error);
        if answer.status == 0 {
            answer.status = status;
        }
    }

    /// As many bytes of the body were sent.
    pub(super) fn sent(&self, bytes: u64) {
        self.answer.lock().bytes = bytes;
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        let mut answer = self.answer.lock();
        if answer.status == 0 {
            (answer.status, answer.error) = match thread::panicking() {
                true => (500, Some("internal_error")),
                false => (499, Some("client_gone")),
            };
        }
        let line = finish(&self.parts, &answer, self.since.elapsed(), self.log.format);
        self.log.writer.write(&self.log.target, line);
    }
}
