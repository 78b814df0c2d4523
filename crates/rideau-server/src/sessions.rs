//! Holders that outlive a connection, or span several.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::holdings::{Card, HolderId, Why};
use crate::quota::Counted;
use crate::ticket::{Kind, Ticket};

/// The sessions there are.
#[derive(Default)]
pub struct Sessions {
    all: Mutex<HashMap<u128, Session>>,
    /// How many there have been. It is the part of a session's name that all may
    /// see, so that they can tell one from another.
    opened: AtomicU32,
}

struct Session {
    ticket: Ticket,
    holder: HolderId,
    card: Arc<Card>,
    ttl: Option<Duration>,
    grace: Duration,
    attached: usize,
    /// How its last connection left it.
    left: Why,
    /// When it ends unless somebody renews it.
    ends: Option<Instant>,
    /// It is one of its user's.
    _counted: Counted,
}

/// A session, to be shown.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Its name on the wire.
    pub ticket: Ticket,
    /// What it is as a holder.
    pub holder: HolderId,
    /// Who it is as a holder.
    pub card: Arc<Card>,
    /// How many connections are attached.
    pub attached: usize,
    /// How long until it ends by itself.
    pub left: Option<Duration>,
}

impl Sessions {
    /// Open one. None if there are as many as may be.
    pub fn open(
        &self,
        ttl: Option<Duration>,
        grace: Duration,
        most: usize,
        counted: Counted,
        holder: impl FnOnce(Ticket) -> (HolderId, Arc<Card>),
    ) -> Option<SessionRow> {
        let mut all = self.all.lock();
        if all.len() >= most {
            return None;
        }
        let serial = self.opened.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let ticket = Ticket::new(Kind::Session, serial);
        let (holder, card) = holder(ticket);
        let session = Session {
            ticket,
            holder,
            card,
            ttl,
            grace,
            attached: 0,
            left: Why::Expired,
            ends: ttl.map(|ttl| Instant::now() + ttl),
            _counted: counted,
        };
        let row = session.row();
        all.insert(ticket.secret, session);
        Some(row)
    }

    /// A connection becomes part of a session of its user.
    pub fn attach(&self, ticket: Ticket, user: &str) -> Option<SessionRow> {
        let mut all = self.all.lock();
        let session = all.get_mut(&ticket.secret)?;
        if *session.card.user != *user {
            return None;
        }
        session.attached += 1;
        session.ends = session.ttl.map(|ttl| Instant::now() + ttl);
        Some(session.row())
    }

    /// A connection of a session is gone, in this manner. A session without any
    /// ends after its grace, or when its time is up.
    pub fn detach(&self, ticket: Ticket, why: Why) {
        let mut all = self.all.lock();
        let Some(session) = all.get_mut(&ticket.secret) else {
            return;
        };
        session.attached -= 1;
        session.left = why;
        if session.attached == 0 {
            let grace = Instant::now() + session.grace;
            // One with a time of its own may live on without connections.
            session.ends = match (session.ttl, session.ends) {
                (Some(_), Some(ends)) => Some(ends.max(grace)),
                _ => Some(grace),
            };
        }
    }

    /// Give a session its whole time again. Says how long that is.
    pub fn renew(&self, ticket: Ticket, user: &str) -> Option<Option<Duration>> {
        let mut all = self.all.lock();
        let session = all.get_mut(&ticket.secret)?;
        if *session.card.user != *user {
            return None;
        }
        session.ends = match session.ttl {
            Some(ttl) => Some(Instant::now() + ttl),
            // Without a time of its own it lives on only while somebody is in it.
            None if session.attached == 0 => Some(Instant::now() + session.grace),
            None => None,
        };
        Some(session.ttl)
    }

    /// End a session of a user.
    pub fn close(&self, ticket: Ticket, user: Option<&str>) -> Option<SessionRow> {
        let mut all = self.all.lock();
        let session = all.get(&ticket.secret)?;
        if user.is_some_and(|user| *session.card.user != *user) {
            return None;
        }
        all.remove(&ticket.secret).map(|session| session.row())
    }

    /// The sessions that are over, and why; they are forgotten. One without a
    /// time of its own ends as its last connection did.
    pub fn expired(&self, now: Instant) -> Vec<(SessionRow, Why)> {
        let mut all = self.all.lock();
        let is_over = |_: &u128, session: &mut Session| session.ends.is_some_and(|at| at <= now);
        all.extract_if(is_over)
            .map(|(_, session)| (session.row(), session.ending()))
            .collect()
    }

    /// One of them.
    pub fn find(&self, ticket: Ticket) -> Option<SessionRow> {
        self.all.lock().get(&ticket.secret).map(Session::row)
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<SessionRow> {
        self.all.lock().values().map(Session::row).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SessionRow {
    /// Grows with each session that is opened.
    pub fn key(&self) -> u128 {
        self.ticket.place.into()
    }
}

impl Session {
    fn ending(&self) -> Why {
        match self.ttl {
            Some(_) => Why::Expired,
            None => self.left,
        }
    }

    fn row(&self) -> SessionRow {
        let left = self
            .ends
            .map(|ends| ends.saturating_duration_since(Instant::now()));
        SessionRow {
            ticket: self.ticket,
            holder: self.holder,
            card: Arc::clone(&self.card),
            attached: self.attached,
            left,
        }
    }
}
