//! Connections to one process, or to one server, that wait to be used again.
//!
//! A connection has no task of its own: the task that uses a [`MessageIo`] drives it, so
//! that a request and its answer need no other task to run. While lines are
//! idle one task per process and I/O thread looks after all of them, and notices which
//! the process closed.

mod server_tls;
mod watch;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_process::Address;
use rideau_process::panics;

use crate::http1::message_io::MessageIo;
use crate::http1::stream::Stream;
use crate::io_threads::IoThreads;

pub(crate) use server_tls::{ServerTls, TlsTowardServers};

/// A process that closes a connection sooner has another reason than that it
/// was idle.
const LEARN_MIN: Duration = Duration::from_millis(2);

/// How connections to a process are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeepAlive {
    /// How many may be idle.
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
    tls: Option<ServerTls>,
    keep: KeepAlive,
    /// Microseconds that an idle connection lives, as learned.
    idle_for: AtomicU64,
    /// One for each I/O thread: a connection stays where it was opened.
    stacks: Box<[Mutex<Stack>]>,
}

#[derive(Default)]
struct Stack {
    /// Used last, used next: the others get old and are closed.
    idle: Vec<Idle>,
    /// None is kept any more.
    is_closed: bool,
    watch: Watch,
}

struct Idle {
    wire: Box<MessageIo>,
    since: Instant,
}

/// The task that watches idle connections.
#[derive(Default)]
enum Watch {
    /// Nothing yet.
    #[default]
    None,
    /// A task that was begun and did not run yet.
    Begun,
    /// A task, and whether it sleeps until it is called.
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
    /// Nothing is connected before it is asked for.
    pub(crate) fn new(address: Address, tls: Option<ServerTls>, keep: KeepAlive) -> Self {
        let count = thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Shared {
            address,
            tls,
            keep,
            idle_for: AtomicU64::new(micros(keep.idle_for)),
            stacks: (0..count).map(|_| Mutex::default()).collect(),
        }))
    }

    /// Close those that are idle, and keep none from now on.
    pub fn close_idle(&self) {
        for stack in &self.0.stacks {
            let mut stack = stack.lock();
            stack.is_closed = true;
            let idle = std::mem::take(&mut stack.idle);
            drop(stack);
            drop(idle);
        }
    }

    /// How many are idle.
    pub fn idle(&self) -> usize {
        self.0
            .stacks
            .iter()
            .map(|stack| stack.lock().idle.len())
            .sum()
    }

    /// How long an idle one is kept, by what was learned of the process.
    pub fn idle_for(&self) -> Duration {
        self.0.idle_for()
    }

    /// One that is open and was used before.
    pub(crate) fn reuse(&self) -> Option<Box<MessageIo>> {
        loop {
            let idle = self.0.here().lock().idle.pop()?;
            if let Some(wire) = idle.revive() {
                return Some(wire);
            }
        }
    }

    /// The same, but one that the process will not just be closing.
    pub(crate) fn reuse_fresh(&self) -> Option<Box<MessageIo>> {
        let fresh = self.idle_for() / 2;
        let mut stack = self.0.here().lock();
        // The last is the freshest.
        let idle = stack.idle.pop_if(|idle| idle.since.elapsed() < fresh)?;
        drop(stack);
        idle.revive()
    }

    /// A new one.
    ///
    /// # Errors
    ///
    /// If the process does not take it, or not in time.
    pub(crate) async fn connect(&self) -> io::Result<Box<MessageIo>> {
        Ok(Box::new(MessageIo::new(self.open().await?)))
    }

    /// The same without HTTP.
    ///
    /// # Errors
    ///
    /// The same.
    pub(crate) async fn open(&self) -> io::Result<Stream> {
        let connected = async {
            let stream = Stream::connect(&self.0.address).await?;
            match &self.0.tls {
                None => Ok(stream),
                Some(tls) => tls.secure(stream).await,
            }
        };
        let connected = tokio::time::timeout(self.0.keep.connect_within, connected);
        connected
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Keep one for the next request, if it is any good. It is idle since now.
    pub(crate) fn give_back(&self, wire: Box<MessageIo>, since: Instant) {
        let shared = &self.0;
        if shared.keep.idle_for.is_zero() {
            return;
        }
        let mut stack = shared.here().lock();
        let idle_max = shared.keep.idle_max.div_ceil(shared.stacks.len());
        if stack.is_closed || stack.idle.len() >= idle_max {
            drop(stack);
            return;
        }
        stack.idle.push(Idle { wire, since });
        match &mut stack.watch {
            Watch::None => {
                stack.watch = Watch::Begun;
                drop(stack);
                let (shared, index) = (Arc::downgrade(shared), shared.index());
                tokio::spawn(async move {
                    let look = || watch::look_after(Weak::clone(&shared), index);
                    panics::keep("the watch over idle connections", look).await;
                });
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
    /// The wire, if it is still any good.
    fn revive(mut self) -> Option<Box<MessageIo>> {
        self.wire.is_silent().then_some(self.wire)
    }
}

impl Shared {
    /// Which stack is that of this I/O thread.
    fn index(&self) -> usize {
        IoThreads::here().unwrap_or(0) % self.stacks.len()
    }

    fn here(&self) -> &Mutex<Stack> {
        &self.stacks[self.index()]
    }

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
        for stack in &mut self.stacks {
            if let Watch::Task { waker, .. } = &stack.get_mut().watch {
                waker.wake_by_ref();
            }
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
