//! Facts of a connection, of a session, and of leases and pending asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::facts;
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::holder::Holder;
use crate::state::lease_table::LeaseRow;
use crate::state::sessions::SessionRow;
use crate::state::ticket::TicketKind;
use crate::state::viewer::Viewer;

/// A connection at one moment.
pub(crate) struct ClientNow {
    card: Arc<ClientCard>,
    holder: Arc<Holder>,
    name: String,
    session: Option<String>,
    last: &'static str,
    held: usize,
}

impl ClientNow {
    pub(crate) fn of(daemon: &Daemon, card: &Arc<ClientCard>) -> Self {
        let holder = Arc::clone(&card.card.lock());
        let name = holder.name.lock().clone();
        Self {
            name,
            holder,
            session: card.session.lock().clone(),
            last: daemon.last_command(card),
            held: daemon.lease_table.count(*card.holder.lock()),
            card: Arc::clone(card),
        }
    }

    fn library(&self) -> String {
        let (library, version) = &*self.card.library.lock();
        format!("{library} {version}").trim().into()
    }

    fn is_pooled(&self) -> bool {
        self.card.foreign_releases.load(Ordering::Relaxed) > 0
    }

    fn protocol(&self) -> u64 {
        if self.card.outbox.is_resp3() { 3 } else { 2 }
    }
}

/// Enough of a session's name to tell it from others, and not to enter it: its
/// letter and its number.
fn short(id: &str) -> String {
    id.chars().take(10).chain(['…']).collect()
}

facts! { ClientNow: "client" by "client", joined {};
    id: Count, [PAGE, JSON], |it| it.card.id, "Its number.";
    name: Text, [PAGE, JSON], |it| &*it.name, "The name that it gave itself.";
    user: Text, [PAGE, JSON], |it| &*it.holder.user, "The user that it is logged in as.";
    address: Text, [PAGE, JSON], |it| &*it.card.address, "Where it comes from.";
    age_s: Span, [PAGE, JSON.named("age_ms")], |it| it.card.since.elapsed(), "Its age.";
    idle_s: Span, [SHOW, JSON.named("idle_ms")],
        |it| it.card.silent(), "How long it has sent nothing.";
    resp: Count, [SHOW, JSON.named("protocol")],
        |it| it.protocol(), "The version of the protocol that it speaks.";
    library: Text, [SHOW, JSON], |it| it.library(), "The client library and its version.";
    last: Text, [SHOW], |it| it.last.to_lowercase(), "Its last command.";
    last: Text, [JSON], |it| it.last, "Its last command.";
    commands: Count, [SHOW, JSON],
        |it| it.card.commands.load(Ordering::Relaxed), "Commands that it sent.";
    held: Count, [PAGE, JSON], |it| it.held, "What it holds.";
    is_waiting: Flag, [PAGE, JSON],
        |it| it.card.is_waiting.load(Ordering::Relaxed), "Whether one of its commands waits.";
    session: Text|null, [SHOW],
        |it| it.session.as_deref().map(short), "The session that it is attached to.";
    is_in_session: Flag, [JSON], |it| it.session.is_some(), "Whether it is attached to a session.";
    advice: Text|null, [SHOW], |it| it.is_pooled().then_some(
            "uses a pooled client: open a SESSION or a dedicated connection"),
        "Advice to its author, if it misuses the protocol.";
    advice: Text|null, [JSON], |it| it.is_pooled().then_some(
            "It releases what other connections took: open a SESSION, or use a dedicated \
             connection."),
        "Advice to its author, if it misuses the protocol.";
}

/// A session at one moment, as a user sees it.
pub(crate) struct SessionNow {
    id: String,
    name: String,
    user: Arc<str>,
    attached: usize,
    held: usize,
    left: Option<Duration>,
}

impl SessionNow {
    pub(crate) fn of(daemon: &Daemon, row: &SessionRow, viewer: Viewer<'_>) -> Self {
        Self {
            id: viewer.ticket(row.ticket, &row.card),
            name: row.card.name.lock().clone(),
            user: Arc::clone(&row.card.user),
            attached: row.attached,
            held: daemon.lease_table.count(row.holder),
            left: row.left,
        }
    }
}

facts! { SessionNow: "session" by "session", joined {};
    id: Text, [SHOW, JSON], |it| &*it.id, "Its ticket, in full only for its own user.";
    name: Text, [SHOW, JSON], |it| &*it.name, "The name that it gave itself.";
    user: Text, [SHOW, JSON], |it| &*it.user, "The user that opened it.";
    connections: Count, [SHOW, JSON.named("attached")],
        |it| it.attached, "Connections that are attached.";
    held: Count, [SHOW, JSON], |it| it.held, "What it holds.";
    left_us: Span|null, [SHOW, JSON.named("left_ms")],
        |it| it.left, "How long until it expires.";
}

/// Something that is held or waited for, as a user sees it.
pub(crate) struct HolderNow {
    row: LeaseRow,
    ticket: String,
    holder: String,
    is_leak: bool,
}

impl HolderNow {
    pub(crate) fn of(daemon: &Daemon, row: &LeaseRow, viewer: Viewer<'_>) -> Self {
        let leak_after = leak_after(daemon, row);
        Self {
            row: row.clone(),
            ticket: viewer.ticket(row.ticket, &row.card),
            holder: row.card.name.lock().clone(),
            is_leak: leak_after.is_some_and(|after| row.held > after),
        }
    }
}

/// A holder that holds this for longer is reported.
fn leak_after(daemon: &Daemon, row: &LeaseRow) -> Option<Duration> {
    if row.is_waiting || row.ticket.kind != TicketKind::Member {
        return None;
    }
    let catalog = daemon.catalog.load();
    let place = catalog.pools.get(&row.name)?;
    place.config.load().leak_after
}

facts! { HolderNow: "holder" by "holder", joined {};
    kind: Text, [PAGE, JSON], |it| it.row.ticket.kind.word(), "The kind of the thing.";
    name: Text, [PAGE, JSON], |it| &*it.row.name, "The name of the thing.";
    ticket: Text, [SHOW, JSON], |it| &*it.ticket, "Its ticket, in full only for its own user.";
    state: Text, [PAGE],
        |it| if it.row.is_waiting { "waits" } else { "held" }, "One of `held` and `waits`.";
    is_waiting: Flag, [JSON], |it| it.row.is_waiting, "Whether it is not held yet.";
    value: Text, [PAGE, JSON], |it| &*it.row.value, "What is held.";
    held_us: Span, [PAGE, JSON], |it| it.row.held, "How long it has been held or waited for.";
    holder: Text, [PAGE, JSON], |it| &*it.holder, "The name of its holder.";
    user: Text, [SHOW, JSON], |it| &*it.row.card.user, "The user of its holder.";
    connection: Count|null, [SHOW, JSON],
        |it| it.row.card.connection, "The connection that holds it.";
    session: Text|null, [SHOW],
        |it| it.row.card.session.as_deref().map(short), "The session that holds it.";
    note: Text|null, [PAGE, JSON], |it| it.row.note.as_deref(), "The note of its holder.";
    is_leak: Flag, [SHOW],
        |it| it.is_leak, "Whether it is held for longer than the leak_after of its pool.";
}
