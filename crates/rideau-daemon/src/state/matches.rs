//! Two clients that a broker introduced to each other.
//!
//! Each party brings a mailbox along with its value, and so gets the other's.
//! What one party does is put into the other's mailbox at once, whether or not
//! the other has been told of the match yet.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rideau::Peer;
use rideau_core::cluster::Incarnation;
use tokio::sync::Notify;

use crate::state::push::{Push, PushQueue};
use crate::state::ticket::Ticket;

/// What a client brings to a broker. A party that has it and goes away without a word,
/// perhaps before it knew of the match, is down.
#[derive(Debug)]
pub struct Party {
    /// For the other party.
    pub value: Arc<[u8]>,
    /// Where the other party leaves its last word.
    pub mail: Arc<Mailbox>,
}

/// Where one party of a match hears of the other's end.
#[derive(Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    ended: Notify,
    /// The row that its owner has, if it is a client of some node.
    row: Option<(Incarnation, u64)>,
}

#[derive(Default)]
struct Inner {
    end: Option<End>,
    /// Its owner's name of the match, and where to tell it.
    owner: Option<(Ticket, Arc<PushQueue>)>,
}

/// How the other party ended a match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It said that it is done, and perhaps more.
    Done(Option<Vec<u8>>),
    /// It went away.
    Down(&'static str),
}

/// A match, as one party holds it.
pub struct HeldMatch {
    /// Where they met.
    pub broker: Arc<str>,
    own: Arc<Mailbox>,
    other: Party,
    peer: Option<Peer>,
}

impl Party {
    /// A party with a value and an empty mailbox.
    pub fn new(value: &[u8]) -> Self {
        Self {
            value: value.into(),
            mail: Arc::default(),
        }
    }

    /// A party with a mailbox that it has already.
    pub(crate) fn with_mail(value: &[u8], mail: Arc<Mailbox>) -> Self {
        Self {
            value: value.into(),
            mail,
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // After a match, one of them has said something before.
        self.mail.tell(End::Down("cancel"));
    }
}

impl Mailbox {
    /// An empty mailbox of a client of some node.
    pub(crate) fn of_row(row: (Incarnation, u64)) -> Self {
        Self {
            row: Some(row),
            ..Self::default()
        }
    }

    /// The row of its owner.
    pub(crate) const fn row(&self) -> Option<&(Incarnation, u64)> {
        self.row.as_ref()
    }

    /// The owner knows its ticket now, and can be told.
    pub fn begin(&self, ticket: Ticket, outbox: &Arc<PushQueue>) {
        let mut inner = self.inner.lock();
        match &inner.end {
            Some(end) => outbox.push(end.push(ticket)),
            None => inner.owner = Some((ticket, Arc::clone(outbox))),
        }
    }

    /// The other party's last word. Only the first counts.
    pub(crate) fn tell(&self, end: End) {
        let mut inner = self.inner.lock();
        if inner.end.is_some() {
            return;
        }
        if let Some((ticket, outbox)) = inner.owner.take() {
            outbox.push(end.push(ticket));
        }
        inner.end = Some(end);
        drop(inner);
        self.ended.notify_waiters();
    }

    /// The owner has gone, and is told no more.
    pub(crate) fn leave(&self) {
        self.inner.lock().owner = None;
    }

    /// How the other party ended the match, if it did.
    pub fn end(&self) -> Option<End> {
        self.inner.lock().end.clone()
    }

    /// Wait for the other party's last word.
    pub async fn ended(&self) -> End {
        loop {
            let rung = self.ended.notified();
            if let Some(end) = self.end() {
                return end;
            }
            rung.await;
        }
    }
}

impl End {
    fn push(&self, ticket: Ticket) -> Push {
        match self {
            Self::Done(payload) => Push::Done(ticket, payload.clone()),
            Self::Down(why) => Push::Down(ticket, why),
        }
    }
}

impl HeldMatch {
    /// A match whose owner brought `own`.
    pub fn new(broker: Arc<str>, own: Arc<Mailbox>, other: Party, peer: Peer) -> Self {
        Self {
            broker,
            own,
            other,
            peer: Some(peer),
        }
    }

    /// A match that was made by another node.
    pub(crate) const fn adopted(broker: Arc<str>, own: Arc<Mailbox>, other: Party) -> Self {
        Self {
            broker,
            own,
            other,
            peer: None,
        }
    }

    /// The value that the other party brought.
    pub fn value(&self) -> &[u8] {
        &self.other.value
    }

    /// Where this party hears of the other.
    pub fn mail(&self) -> &Arc<Mailbox> {
        &self.own
    }

    /// Tell the other that this party is done.
    pub fn done(mut self, payload: Option<Vec<u8>>) {
        self.own.leave();
        self.other.mail.tell(End::Done(payload));
        if let Some(peer) = self.peer.take() {
            peer.done();
        }
    }

    /// Tell the other why this party went away.
    pub fn down(self, why: &'static str) {
        self.other.mail.tell(End::Down(why));
    }
}

impl Drop for HeldMatch {
    fn drop(&mut self) {
        self.own.leave();
        // A party that said something before is not heard again.
        self.other.mail.tell(End::Down("gone"));
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("end", &self.end()).finish()
    }
}
