//! What a process sends, taken from it as fast as it comes, for a client that
//! may be slower.
//!
//! The process is free when it has said all, however long the client takes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::body::Bytes;
use parking_lot::Mutex;
use rideau_process::panics;
use tokio::task::AbortHandle;

use super::Live;
use crate::front::broken::{Broken, CUT, Part};
use crate::front::spool::Spool;

/// Bytes of an answer that are kept in memory.
const MEMORY_MAX: usize = 1024 * 1024;
/// Bytes of an answer that are kept in a file; then the process has to wait.
const FILE_MAX: u64 = 128 * 1024 * 1024;

/// The part of an answer that the client has not read yet.
pub(in crate::front) struct Pumped {
    basin: Arc<Mutex<Basin>>,
    pump: AbortHandle,
}

/// Where it waits.
struct Basin {
    spool: Spool,
    end: End,
    /// The trailers, when the body is complete.
    trailers: Vec<u8>,
    /// The task that takes from it, and the one that gives to it, when they wait.
    taker: Option<Waker>,
    giver: Option<Waker>,
}

enum End {
    /// More may come.
    Open,
    /// All came.
    Whole,
    Broken(Broken),
}

impl Pumped {
    /// Take it from the process, from now on, after what came already.
    pub(super) fn begin(live: Live, first: Option<Bytes>) -> Self {
        let mut spool = Spool::new(MEMORY_MAX);
        let pushed = first.map_or(Ok(()), |first| spool.push(first));
        let basin = Arc::new(Mutex::new(Basin {
            spool,
            end: pushed.map_or(End::Broken(CUT), |()| End::Open),
            trailers: Vec::new(),
            taker: None,
            giver: None,
        }));
        let pump = tokio::spawn(pump(live, Arc::clone(&basin))).abort_handle();
        Self { basin, pump }
    }

    pub(super) fn is_over(&self) -> bool {
        let basin = self.basin.lock();
        let is_whole = matches!(basin.end, End::Whole);
        is_whole && basin.spool.len() == 0 && basin.trailers.is_empty()
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        match self.basin.lock().end {
            End::Broken(broken) => Some(broken),
            End::Open | End::Whole => None,
        }
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.basin.lock().trailers)
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let mut basin = self.basin.lock();
        let part = match basin.spool.pop() {
            Ok(part) => part,
            Err(_) => return Poll::Ready(Some(Err(Broken("its file cannot be read")))),
        };
        if let Some(part) = part {
            if let Some(giver) = basin.giver.take() {
                giver.wake();
            }
            return Poll::Ready(Some(Ok(part)));
        }
        match basin.end {
            End::Open => {
                basin.taker = Some(context.waker().clone());
                Poll::Pending
            }
            End::Whole => Poll::Ready(None),
            End::Broken(broken) => Poll::Ready(Some(Err(broken))),
        }
    }
}

impl Drop for Pumped {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

async fn pump(live: Live, basin: Arc<Mutex<Basin>>) {
    let (end, trailers) = match panics::contain_async(fill(live, &basin)).await {
        Ok(whole) => whole,
        Err(_) => (End::Broken(CUT), Vec::new()),
    };
    let mut basin = basin.lock();
    basin.end = end;
    basin.trailers = trailers;
    basin.wake_taker();
}

/// Take all that comes. Says how it ended, and what followed.
async fn fill(mut live: Live, basin: &Mutex<Basin>) -> (End, Vec<u8>) {
    let end = loop {
        match poll_fn(|context| live.poll_part(context)).await {
            None => break End::Whole,
            Some(Err(broken)) => break End::Broken(broken),
            Some(Ok(part)) => {
                let mut basin = basin.lock();
                if let Err(error) = basin.spool.push(part) {
                    tracing::warn!("an answer cannot be kept in a file: {error}");
                    break End::Broken(CUT);
                }
                basin.wake_taker();
            }
        }
        poll_fn(|context| basin.lock().poll_room(context)).await;
    };
    (end, live.take_trailers())
}

impl Basin {
    fn wake_taker(&mut self) {
        if let Some(taker) = self.taker.take() {
            taker.wake();
        }
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.spool.in_file() < FILE_MAX {
            return Poll::Ready(());
        }
        self.giver = Some(context.waker().clone());
        Poll::Pending
    }
}
