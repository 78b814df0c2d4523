//! Runs the asks of a peer.
//!
//! An ask that can be answered at once is, on the task that read it. Any other runs on a
//! task of its own, and goes on if the link breaks: the peer cancels it on the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::ServedAnswer;
use super::message::{Frame, PeerAnswer, PeerAsk};
use super::peer::{LinkedPeer, count};
use super::served::{AskAdmission, CancelledAsk};
use super::shared::LinksShared;

/// The reply if an answer is too long, or too much is unread.
const NO_ROOM: &[u8] = b"-BUSY the answer does not fit into the link between two nodes\r\n";
/// The reply if the node that ran the command panicked.
const PANICKED: &[u8] = b"-ERR the node that owns this failed; its log says why\r\n";

/// The peer has sent more asks than it may.
pub(super) struct AskFlood;

/// An ask came.
pub(super) fn begin(
    shared: &Arc<LinksShared>,
    peer: &Arc<LinkedPeer>,
    id: u64,
    ask: PeerAsk,
) -> Result<(), AskFlood> {
    let len = ask.command.len() + ask.holder.len() + ask.user.len();
    let admitted = peer.traffic().served.admit(id, len, &shared.options.limits);
    match admitted {
        AskAdmission::New => (),
        AskAdmission::Copy => {
            count(&shared.totals.copies, 1);
            return Ok(());
        }
        AskAdmission::Flood => return Err(AskFlood),
    }
    count(&peer.counts.asks_in, 1);
    count(&shared.totals.asks_in, 1);
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut answer = shared.server.serve(&peer.node, id, ask);
        // If it is not ready, a task polls it again with a waker of its own.
        match answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => Ok(answer),
            Poll::Pending => Err(answer),
        }
    }));
    match polled {
        Ok(Ok(answer)) => finish(shared, peer, id, answer),
        Ok(Err(answer)) => run_on(shared, peer, id, answer),
        Err(_) => finish(shared, peer, id, PeerAnswer::new(PANICKED.to_vec())),
    }
    Ok(())
}

/// The peer does not want an ask any more, nor what it became.
pub(super) fn cancel(shared: &LinksShared, peer: &LinkedPeer, id: u64) {
    let cancelled = peer.traffic().served.cancel(id);
    match cancelled {
        CancelledAsk::Running(Some(task)) => task.abort(),
        CancelledAsk::Took(row) => shared.undo(&peer.node, row),
        CancelledAsk::Running(None) | CancelledAsk::Nothing => (),
    }
    peer.traffic().out.control(&Frame::Cancelled { id });
    peer.wake.notify_one();
}

fn run_on(shared: &Arc<LinksShared>, peer: &Arc<LinkedPeer>, id: u64, answer: ServedAnswer) {
    let mut running = Running {
        shared: Arc::clone(shared),
        peer: Arc::clone(peer),
        id,
        is_over: false,
    };
    let task = shared.runtime.spawn(async move {
        let answer = answer.await;
        running.is_over = true;
        finish(&running.shared, &running.peer, id, answer);
    });
    peer.traffic().served.runs_in(id, task.abort_handle());
}

/// An ask on a task of its own. If the task ends by a panic, the peer gets an answer too.
struct Running {
    shared: Arc<LinksShared>,
    peer: Arc<LinkedPeer>,
    id: u64,
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let answer = PeerAnswer::new(PANICKED.to_vec());
            finish(&self.shared, &self.peer, self.id, answer);
        }
    }
}

/// Send an answer. What it took is undone if the ask was cancelled, or if the answer does
/// not fit; it is kept until the peer has heard it.
fn finish(shared: &LinksShared, peer: &LinkedPeer, id: u64, mut answer: PeerAnswer) {
    let mut traffic = peer.traffic();
    let is_wanted = traffic.served.finish(id);
    let mut undone = None;
    if !is_wanted {
        undone = answer.row.take();
    } else if !traffic.out.is_open() {
        // The peer has noted the id, and cancels it on the next link.
        if let Some(row) = answer.row.take() {
            traffic.served.took(id, row);
        }
    } else if traffic.out.answer(id, &answer) {
        let is_ping_due = match answer.row.take() {
            Some(row) => traffic.served.took(id, row),
            None => false,
        };
        if is_ping_due {
            let seq = traffic.served.ping(Instant::now());
            traffic.out.control(&Frame::Ping { seq });
        }
    } else {
        undone = answer.row.take();
        let answer = PeerAnswer::new(NO_ROOM.to_vec());
        traffic.out.control(&Frame::Answer { id, answer });
    }
    drop(traffic);
    peer.wake.notify_one();
    if let Some(row) = undone {
        shared.undo(&peer.node, row);
    }
}
