//! Holders that outlive a connection, or span several.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::state::end::EndReason;
use crate::state::holder::{Holder, HolderId};
use crate::state::quota::Counted;
use crate::state::ticket::{Ticket, TicketKind};

/// Room for this many sessions is always kept.
const ROOM_MIN: usize = 256;

/// The sessions there are.
#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<u128, Session>>,
    /// How many there have been. It is the part of a session's name that all may
    /// see, so that they can tell one from another.
    opened: AtomicU32,
}

struct Session {
    ticket: Ticket,
    holder: HolderId,
    card: Arc<Holder>,
    ttl: Option<Duration>,
    /// How long it lives without connections; none if its time alone says that.
    grace: Option<Duration>,
    attached: usize,
    /// How its last connection left it.
    left: EndReason,
    /// When its time is up unless a client renews it.
    expires: Option<Instant>,
    /// When its grace is over unless a connection comes.
    alone_until: Option<Instant>,
    /// It is one of its user's.
    _counted: Counted,
}

/// A session, to be shown.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    /// Its name on the wire.
    pub ticket: Ticket,
    /// The holder that it is.
    pub holder: HolderId,
    /// The card that it has as a holder.
    pub card: Arc<Holder>,
    /// How many connections are attached.
    pub attached: usize,
    /// How long until it ends by itself.
    pub left: Option<Duration>,
}

impl Sessions {
    /// Open one that ends when its time is up, or its grace after its last connection,
    /// whichever comes first. Without either it ends with its last connection. None if
    /// the limit is reached.
    pub(crate) fn open(
        &self,
        ttl: Option<Duration>,
        grace: Option<Duration>,
        most: usize,
        counted: Counted,
        holder: impl FnOnce(Ticket) -> (HolderId, Arc<Holder>),
    ) -> Option<SessionRow> {
        let mut all = self.all.lock();
        if all.len() >= most {
            return None;
        }
        let serial = self.opened.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let ticket = Ticket::new(TicketKind::Session, serial);
        let (holder, card) = holder(ticket);
        let session = Session {
            ticket,
            holder,
            card,
            ttl,
            grace: grace.or(ttl.is_none().then_some(Duration::ZERO)),
            attached: 0,
            left: EndReason::Expired,
            expires: ttl.map(|ttl| Instant::now() + ttl),
            alone_until: None,
            _counted: counted,
        };
        let row = session.row();
        all.insert(ticket.secret, session);
        Some(row)
    }

    /// A connection becomes part of a session of its user.
    pub(crate) fn attach(&self, ticket: Ticket, user: &str) -> Option<SessionRow> {
        let mut all = self.all.lock();
        let session = all.get_mut(&ticket.secret)?;
        if *session.card.user != *user {
            return None;
        }
        session.attached += 1;
        session.restart(Instant::now());
        Some(session.row())
    }

    /// A connection of a session is gone, in this manner. A session without any
    /// ends after its grace, or when its time is up if that is earlier.
    pub(crate) fn detach(&self, ticket: Ticket, why: EndReason) {
        let mut all = self.all.lock();
        let Some(session) = all.get_mut(&ticket.secret) else {
            return;
        };
        session.attached -= 1;
        session.left = why;
        if session.attached == 0 {
            session.alone_until = session.grace.map(|grace| Instant::now() + grace);
        }
    }

    /// Give a session its whole time again. Says how long that is.
    pub(crate) fn renew(&self, ticket: Ticket, user: &str) -> Option<Option<Duration>> {
        let mut all = self.all.lock();
        let session = all.get_mut(&ticket.secret)?;
        if *session.card.user != *user {
            return None;
        }
        session.restart(Instant::now());
        Some(session.ttl)
    }

    /// End a session of a user.
    pub(crate) fn close(&self, ticket: Ticket, user: Option<&str>) -> Option<SessionRow> {
        let mut all = self.all.lock();
        let session = all.get(&ticket.secret)?;
        if user.is_some_and(|user| *session.card.user != *user) {
            return None;
        }
        let closed = all.remove(&ticket.secret)?;
        give_back(&mut all);
        Some(closed.row())
    }

    /// The sessions that are over, and why; they are forgotten. One whose grace is
    /// over ends as its last connection did.
    pub(crate) fn expired(&self, now: Instant) -> Vec<(SessionRow, EndReason)> {
        let mut all = self.all.lock();
        let is_over = |_: &u128, session: &mut Session| session.ends().is_some_and(|at| at <= now);
        let over = all.extract_if(is_over);
        let over = over.map(|(_, session)| (session.row(), session.ending()));
        let over = over.collect();
        give_back(&mut all);
        over
    }

    /// One of them.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<SessionRow> {
        self.all.lock().get(&ticket.secret).map(Session::row)
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<SessionRow> {
        self.all.lock().values().map(Session::row).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Give back the room of a crowd that is gone.
fn give_back(all: &mut HashMap<u128, Session>) {
    if all.capacity() > ROOM_MIN.max(8 * all.len()) {
        all.shrink_to(ROOM_MIN.max(2 * all.len()));
    }
}

impl SessionRow {
    /// Grows with each session that is opened.
    pub(crate) fn key(&self) -> u128 {
        self.ticket.place.into()
    }
}

impl Session {
    /// Give it its whole time again, and its whole grace if no connection is in it.
    fn restart(&mut self, now: Instant) {
        self.expires = self.ttl.map(|ttl| now + ttl);
        let grace = self.grace.filter(|_| self.attached == 0);
        self.alone_until = grace.map(|grace| now + grace);
    }

    /// When it ends unless a client renews it or comes: the earlier of both.
    fn ends(&self) -> Option<Instant> {
        self.expires.into_iter().chain(self.alone_until).min()
    }

    fn ending(&self) -> EndReason {
        match self.expires {
            Some(expires) if Some(expires) == self.ends() => EndReason::Expired,
            _ => self.left,
        }
    }

    fn row(&self) -> SessionRow {
        let left = self
            .ends()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::lease_table::LeaseTable;
    use crate::state::quota::{Quota, Quotas};

    #[test]
    fn a_crowd_of_sessions_leaves_little_room() {
        let (sessions, lease_table) = (Sessions::default(), LeaseTable::default());
        let usage = Quotas::default().of("");
        let card = Arc::new(Holder {
            name: Mutex::default(),
            user: "".into(),
            session: None,
            connection: None,
        });
        let holder = |_| (lease_table.open(Arc::clone(&card)), Arc::clone(&card));
        let open = |ttl| {
            let counted = usage.count(Quota::Sessions);
            let opened = sessions.open(ttl, None, usize::MAX, counted, holder);
            opened.expect("there is no limit").ticket
        };
        for _ in 0..2 {
            let closed: Vec<Ticket> = (0..5_000).map(|_| open(None)).collect();
            for _ in 0..5_000 {
                open(Some(Duration::ZERO));
            }
            assert!(sessions.all.lock().capacity() >= 10_000);
            assert_eq!(sessions.expired(Instant::now()).len(), 5_000);
            for ticket in closed {
                assert!(sessions.close(ticket, None).is_some());
            }
            assert!(sessions.is_empty());
            assert!(sessions.all.lock().capacity() <= 4 * ROOM_MIN);
        }
    }
}
