//! Push messages for a connection.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rideau_resp::Reply;

use crate::state::answer::Outcome;
use crate::state::ticket::Ticket;

/// Pushes for one connection, until it writes them.
#[derive(Debug)]
pub struct PushQueue {
    pushes: Mutex<Vec<Push>>,
    /// The connection was woken, and has not looked yet.
    is_woken: AtomicBool,
    waker: AtomicWaker,
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// It speaks the third version of the protocol, which has words for what was not
    /// asked for.
    is_resp3: AtomicBool,
    /// It did not read for so long that it is given up.
    is_over: AtomicBool,
    killed: AtomicBool,
}

/// Something to tell a connection.
#[derive(Clone, Debug)]
pub enum Push {
    /// An ask was answered.
    Answer(Ticket, Outcome),
    /// The other party of a match is done.
    Done(Ticket, Option<Vec<u8>>),
    /// The other party of a match went away.
    Down(Ticket, &'static str),
    /// A lease was taken back.
    Revoked(Ticket, &'static str),
    /// A shared lease was lost, because the node lost its own lease in the cluster.
    Lost(Ticket),
    /// How sure the node is of what several nodes share.
    Certainty(&'static str),
    /// An event, on its channel.
    Message {
        /// The pattern that the channel fits, if one was subscribed to.
        pattern: Option<Arc<str>>,
        /// The channel.
        channel: Arc<str>,
        /// The event as JSON.
        text: Arc<str>,
        /// The kind and the name of what it tells of: a user that may not see that any
        /// more when it is written is not told.
        of: (&'static str, Arc<str>),
    },
    /// A command that a client sent.
    Monitor(Arc<str>),
}

impl PushQueue {
    /// An empty one that bears this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            pushes: Mutex::new(Vec::new()),
            is_woken: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            is_resp3: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            killed: AtomicBool::new(false),
        }
    }

    /// Bear this many bytes from now on.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether it can be told what was not asked for, from now on.
    pub fn set_resp3(&self, is_resp3: bool) {
        self.is_resp3.store(is_resp3, Ordering::Relaxed);
    }

    /// Whether it speaks the third version of the protocol.
    pub fn is_resp3(&self) -> bool {
        self.is_resp3.load(Ordering::Relaxed)
    }

    /// Give the connection up: it does not read.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake();
    }

    /// Tell the connection something.
    pub fn push(&self, push: Push) {
        // A connection that would not be told is not woken for it.
        if push.needs_pushes() && !self.is_resp3() {
            return;
        }
        let bytes = push.len();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
            > self.bytes_max.load(Ordering::Relaxed)
        {
            self.is_over.store(true, Ordering::Release);
        } else {
            self.pushes.lock().push(push);
        }
        self.wake();
    }

    /// Have the connection look at what it may do, and what it is to be told.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Ask the connection to end.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    /// The connection was asked to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// More was pushed than the connection reads.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Wait until there is something. One connection waits, and no more. For a task
    /// that waits for more than this it costs next to nothing.
    pub fn poll_woken(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        // Looking costs less than writing, and nearly always nothing was pushed.
        if self.is_woken.load(Ordering::Acquire) && self.is_woken.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// All that is there.
    pub fn take(&self) -> Vec<Push> {
        let pushes = mem::take(&mut *self.pushes.lock());
        let bytes = pushes.iter().map(Push::len).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        pushes
    }
}

impl Push {
    /// About how many bytes it takes.
    fn len(&self) -> usize {
        64 + match self {
            Self::Answer(_, outcome) => outcome.bytes(),
            Self::Done(_, payload) => payload.as_ref().map_or(0, Vec::len),
            Self::Message { channel, text, .. } => channel.len() + text.len(),
            Self::Monitor(line) => line.len(),
            Self::Down(..) | Self::Revoked(..) | Self::Lost(_) | Self::Certainty(_) => 0,
        }
    }

    /// Only clients that speak the third version of the protocol see it.
    pub const fn needs_pushes(&self) -> bool {
        !matches!(self, Self::Message { .. } | Self::Monitor(_))
    }

    /// Write it.
    pub fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Answer(ticket, outcome) => {
                let (word, mut parts) = outcome.parts();
                // A yes begins with its ticket, which every push names first.
                if outcome.is_go() {
                    parts = parts.get(1..).unwrap_or_default();
                }
                reply.push(2 + parts.len());
                reply.bulk(format!("rideau:{word}")).bulk(ticket.text());
                parts.iter().for_each(|part| part.write(reply));
            }
            Self::Done(ticket, payload) => {
                reply.push(3).bulk("rideau:done").bulk(ticket.text());
                match payload {
                    Some(payload) => reply.bulk(payload),
                    None => reply.null(),
                };
            }
            Self::Down(ticket, why) => {
                reply
                    .push(3)
                    .bulk("rideau:down")
                    .bulk(ticket.text())
                    .bulk(why);
            }
            Self::Revoked(ticket, why) => {
                reply
                    .push(3)
                    .bulk("rideau:revoked")
                    .bulk(ticket.text())
                    .bulk(why);
            }
            Self::Lost(ticket) => {
                reply.push(2).bulk("rideau:lost").bulk(ticket.text());
            }
            Self::Certainty(word) => {
                reply.push(1).bulk(format!("rideau:{word}"));
            }
            Self::Message {
                pattern: Some(pattern),
                channel,
                text,
                ..
            } => {
                reply.push(4).bulk("pmessage").bulk(&**pattern);
                reply.bulk(&**channel).bulk(&**text);
            }
            Self::Message { channel, text, .. } => {
                reply.push(3).bulk("message").bulk(&**channel).bulk(&**text);
            }
            Self::Monitor(line) => {
                reply.simple(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::state::ticket::TicketKind;

    #[test]
    fn a_client_without_pushes_is_not_woken() {
        let outbox = PushQueue::new(1_000);
        let mut context = Context::from_waker(Waker::noop());
        let push = || Push::Down(Ticket::new(TicketKind::Match, 0), "gone");
        outbox.push(push());
        assert!(outbox.poll_woken(&mut context).is_pending());
        assert!(outbox.take().is_empty());

        outbox.set_resp3(true);
        outbox.push(push());
        assert!(outbox.poll_woken(&mut context).is_ready());
        assert_eq!(outbox.take().len(), 1);
    }
}
