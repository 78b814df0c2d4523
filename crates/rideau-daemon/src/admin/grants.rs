//! Sessions and grants over HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_config::label::Label;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Answer, HttpError, ok};
use super::request::AdminRequest;
use super::tickets::{gone_text, no_session, session_of, ticket_of};
use super::values;
use crate::state::end::EndReason;
use crate::state::holder::Holder;
use crate::state::quota::Quota;
use crate::state::ticket::TicketKind;

/// The time of a session that says none: HTTP has no connection to watch, so
/// there must be one.
const TTL: u64 = 30_000;
/// No session lives longer without a word.
const TTL_MAX: u64 = 7 * 86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    ttl_ms: Option<u64>,
    grace_ms: Option<u64>,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    payload: Option<String>,
}

pub(super) async fn open(request: AdminRequest) -> Answer {
    let said: Open = request.json()?;
    let ttl = said.ttl_ms.unwrap_or(TTL);
    if !(1..=TTL_MAX).contains(&ttl) || said.grace_ms.is_some_and(|ms| ms > TTL_MAX) {
        return Err(HttpError::wrong(format!(
            "ttl_ms takes 1 to {TTL_MAX}, and grace_ms 0 to {TTL_MAX}."
        )));
    }
    request.check_label(Label::Session, &said.name)?;
    let daemon = request.daemon();
    if daemon.is_draining() {
        return Err(HttpError::draining());
    }
    let config = daemon.config.load_full();
    let most = config.limits.sessions_max;
    let counted = request.count(Quota::Sessions).inspect_err(|_| {
        let refused = &daemon.counts.sessions_refused;
        refused.fetch_add(1, Ordering::Relaxed);
    })?;
    let user: Arc<str> = request.by().into();
    let (span, grace) = (
        Duration::from_millis(ttl),
        said.grace_ms.map(Duration::from_millis),
    );
    let opened = daemon
        .sessions
        .open(Some(span), grace, most, counted, |ticket| {
            let name = match said.name.as_str() {
                "" => format!("session {ticket:?}"),
                name => name.to_owned(),
            };
            let card = Arc::new(Holder {
                name: Mutex::new(name),
                user,
                session: Some(ticket.to_string()),
                connection: None,
            });
            (daemon.lease_table.open(Arc::clone(&card)), card)
        });
    match opened {
        Some(row) => ok(&json!({ "id": row.ticket.to_string(), "ttl_ms": ttl })),
        None => {
            let refused = &daemon.counts.sessions_refused;
            refused.fetch_add(1, Ordering::Relaxed);
            Err(HttpError::of_command(&format!(
                "BUSY limits.sessions_max ({most}) reached: close some sessions or raise it."
            )))
        }
    }
}

pub(super) async fn renew(request: AdminRequest) -> Answer {
    let id = request.name("id");
    let session = session_of(id)?;
    let renewed = request.daemon().sessions.renew(session, request.by());
    let ttl = renewed.ok_or_else(|| no_session(id))?;
    ok(&json!({ "id": id, "ttl_ms": ttl.map(|ttl| ttl.as_millis() as u64) }))
}

pub(super) async fn close(request: AdminRequest) -> Answer {
    let id = request.name("id");
    let session = session_of(id)?;
    let daemon = request.daemon();
    let closed = daemon.sessions.close(session, request.scope());
    let row = closed.ok_or_else(|| no_session(id))?;
    let why = match request.query.find("fail") {
        Some(_) => EndReason::Broken,
        None => EndReason::Quit,
    };
    let released = daemon.end_holder_in_slices(row.holder, why).await;
    ok(&json!({ "released": released }))
}

pub(super) async fn release(request: AdminRequest) -> Answer {
    if request.name("ticket").starts_with("v-") {
        return values::release_ticket(&request).await;
    }
    let ticket = ticket_of(request.name("ticket"))?;
    let reason = request.query.find("fail");
    request.check_label(Label::Reason, reason.unwrap_or_default())?;
    let why = match reason {
        Some(_) => EndReason::Failed,
        None => EndReason::Released,
    };
    let released = request.daemon().release(ticket, request.scope(), why);
    released.map_err(|gone| gone_text(ticket, gone))?;
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        let text = format!("{ticket:?} was released as failed: {reason}");
        let by = request.by();
        request.daemon().events.add("client", by, text, Some(by));
    }
    ok(&json!({ "outcome": "ok" }))
}

/// End a match; the other party gets the payload.
pub(super) async fn done(request: AdminRequest) -> Answer {
    let said: Done = request.json()?;
    let ticket = ticket_of(request.name("ticket"))?;
    if ticket.kind != TicketKind::Match {
        return Err(HttpError::of_command(
            "WRONGTYPE This is not a match: end it with DELETE /v1/grants/{ticket}.",
        ));
    }
    let lease_table = &request.daemon().lease_table;
    let taken = lease_table.take(ticket, request.scope(), EndReason::Released);
    let taken = taken.map_err(|gone| gone_text(ticket, gone))?;
    if let Some(grant) = taken.thing.into_grant() {
        grant.done(said.payload.map(String::into_bytes));
    }
    ok(&json!({ "outcome": "ok" }))
}
