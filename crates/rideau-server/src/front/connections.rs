//! Connections to one process that wait to be used again.
//!
//! Nobody owns a task for a connection: whoever uses a [`Line`] drives it, so
//! that a request and its answer need no other task to run. While lines are
//! idle one task per process looks after all of them, and notices which the
//! process closed.

mod line;
mod stream;
mod watch;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(super) use self::line::Line;
use self::stream::Stream;
use crate::process::Address;

/// A process that closes a connection sooner has another reason than that it
/// was idle.
const LEARN_MIN: Duration = Duration::from_millis(2);

/// How connections to a process are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// As many may be idle.
    pub idle_max: usize,
    /// An idle one is closed after so long, or sooner if the process is known
    /// to close them sooner; zero keeps none.
    pub idle_for: Duration,
    /// A new one is there within this.
    pub connect_within: Duration,
}

/// The connections to one process; cheap to clone.
#[derive(Clone)]
pub struct Connections(Arc<Shared>);

struct Shared {
    address: Address,
    keep: KeepAlive,
    /// Microseconds that an idle connection lives, as learned.
    idle_for: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Used last, used next: the others get old and are closed.
    idle: Vec<Idle>,
    /// None is kept any more.
    is_closed: bool,
    watch: Watch,
}

struct Idle {
    line: Box<Line>,
    since: Instant,
}

/// Who looks after those that are idle.
enum Watch {
    /// Nobody yet.
    Nobody,
    /// A task that was begun and did not run yet.
    Begun,
    /// A task, and whether it sleeps until somebody calls it.
    Task { waker: Waker, is_asleep: bool },
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            idle_max: 64,
            idle_for: Duration::from_millis(1500),
            connect_within: Duration::from_secs(1),
        }
    }
}

impl Connections {
    /// Nothing is connected before somebody asks.
    pub fn new(address: Address, keep: KeepAlive) -> Self {
        let inner = Inner {
            idle: Vec::new(),
            is_closed: false,
            watch: Watch::Nobody,
        };
        Self(Arc::new(Shared {
            address,
            keep,
            idle_for: AtomicU64::new(micros(keep.idle_for)),
            inner: Mutex::new(inner),
        }))
    }

    /// Close those that are idle, and keep none from now on.
    pub fn close_idle(&self) {
        let mut inner = self.0.inner.lock();
        inner.is_closed = true;
        let idle = std::mem::take(&mut inner.idle);
        drop(inner);
        drop(idle);
    }

    /// How many are idle.
    pub fn idle(&self) -> usize {
        self.0.inner.lock().idle.len()
    }

    /// How long an idle one is kept, by what was learned of the process.
    pub fn idle_for(&self) -> Duration {
        self.0.idle_for()
    }

    /// One that is open and was used before.
    pub(super) fn reuse(&self) -> Option<Box<Line>> {
        loop {
            let idle = self.0.inner.lock().idle.pop()?;
            if let Some(line) = idle.revive() {
                return Some(line);
            }
        }
    }

    /// The same, but one that the process will not just be closing.
    pub(super) fn reuse_fresh(&self) -> Option<Box<Line>> {
        let fresh = self.idle_for() / 2;
        let mut inner = self.0.inner.lock();
        // The last is the freshest.
        let idle = inner.idle.pop_if(|idle| idle.since.elapsed() < fresh)?;
        drop(inner);
        idle.revive()
    }

    /// A new one.
    ///
    /// # Errors
    ///
    /// If the process does not take it, or not in time.
    pub(super) async fn connect(&self) -> io::Result<Box<Line>> {
        let connected = Stream::connect(&self.0.address);
        let connected = tokio::time::timeout(self.0.keep.connect_within, connected);
        let stream = connected
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Line::open(stream).await
    }

    /// Keep one for the next request, if it is any good.
    pub(super) fn give_back(&self, mut line: Box<Line>) {
        let shared = &self.0;
        if shared.keep.idle_for.is_zero() {
            return;
        }
        let mut inner = shared.inner.lock();
        let waker = match &inner.watch {
            Watch::Task { waker, .. } => waker,
            _ => Waker::noop(),
        };
        let is_open = line.poll(&mut Context::from_waker(waker)).is_pending();
        let is_good = is_open && line.is_ready() && !inner.is_closed;
        if !is_good || inner.idle.len() >= shared.keep.idle_max {
            drop(inner);
            return;
        }
        let since = Instant::now();
        inner.idle.push(Idle { line, since });
        match &mut inner.watch {
            Watch::Nobody => {
                inner.watch = Watch::Begun;
                drop(inner);
                tokio::spawn(watch::look_after(Arc::downgrade(shared)));
            }
            Watch::Task { waker, is_asleep } if *is_asleep => {
                *is_asleep = false;
                waker.wake_by_ref();
            }
            _ => (),
        }
    }
}

impl Idle {
    /// The line, if it is still any good.
    fn revive(mut self) -> Option<Box<Line>> {
        // With nobody to wake: what the process sends now is no answer, and the
        // task that looks after idle ones has no more to do with it.
        let mut nobody = Context::from_waker(Waker::noop());
        let is_good = self.line.poll(&mut nobody).is_pending() && self.line.is_ready();
        is_good.then_some(self.line)
    }
}

impl Shared {
    fn idle_for(&self) -> Duration {
        Duration::from_micros(self.idle_for.load(Ordering::Relaxed))
    }

    /// The process closed a connection that was idle for so long: the next are
    /// closed before it does that.
    fn learn(&self, age: Duration) {
        if age < LEARN_MIN {
            return;
        }
        let sooner = micros(age.mul_f32(0.8));
        self.idle_for.fetch_min(sooner, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Watch::Task { waker, .. } = &self.inner.get_mut().watch {
            waker.wake_by_ref();
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.address.to_string();
        f.debug_struct("Connections")
            .field("address", &address)
            .field("idle", &self.idle())
            .finish()
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
