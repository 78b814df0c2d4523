//! Actions of operators on pools, connections and leases.
//!
//! Every action leaves an event that says who did it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use rideau_config::label::Label;
use rideau_core::Brief;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Answer, HttpError, away, ok};
use super::config;
use super::request::AdminRequest;
use super::shown::find_pool;
use super::tickets::{gone_text, ticket_of};
use crate::state::catalog::NamedPool;
use crate::state::end::{EndReason, NotHeld};
use crate::state::lease_table::LeaseEntry;
use crate::state::push::Push;

/// No pool takes longer to replace its members.
const OVER_MAX: u64 = 86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    init: Option<usize>,
    max: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recycle {
    #[serde(default)]
    over_ms: u64,
}

pub(super) async fn resize(request: AdminRequest) -> Answer {
    let said: Resize = request.json()?;
    let place = own_pool(&request)?;
    if said.init.is_none() && said.max.is_none() {
        return Err(HttpError::wrong(
            "Say what to change: {\"max\": 20}, {\"init\": 2}, or both.",
        ));
    }
    let name = toml_edit::Key::new(&*place.name);
    let name = name.display_repr();
    let values = [("init", said.init), ("max", said.max)];
    let values: Vec<_> = values
        .into_iter()
        .filter_map(|(key, value)| Some((format!("pool.{name}.{key}"), value?.to_string())))
        .collect();
    let daemon = Arc::clone(request.daemon());
    let by = request.by().to_owned();
    config::changed(away(move || daemon.set(&values, &by)).await?)
}

pub(super) async fn pause(request: AdminRequest) -> Answer {
    let place = own_pool(&request)?;
    place.pool.suspend();
    note(&request, &place, format!("{} was paused", place.name));
    ok(&json!({ "outcome": "ok" }))
}

pub(super) async fn resume(request: AdminRequest) -> Answer {
    let place = own_pool(&request)?;
    place.pool.resume();
    note(&request, &place, format!("{} was resumed", place.name));
    ok(&json!({ "outcome": "ok" }))
}

/// Replace every member there is.
pub(super) async fn recycle(request: AdminRequest) -> Answer {
    let said: Recycle = request.json()?;
    let place = own_pool(&request)?;
    if said.over_ms > OVER_MAX {
        let text = format!("over_ms takes at most {OVER_MAX}, a day.");
        return Err(HttpError::wrong(text));
    }
    let over = Duration::from_millis(said.over_ms);
    place.pool.replace(over);
    let text = format!("all members of {} are replaced over {over:?}", place.name);
    note(&request, &place, text);
    ok(&json!({ "outcome": "ok" }))
}

/// The pool of the address, if the user may use it.
fn own_pool(request: &AdminRequest) -> Result<Arc<NamedPool>, HttpError> {
    let name = request.name("name");
    request.check_label(Label::Thing, name)?;
    match &request.user {
        // Whether there is such a pool or not.
        Some(user) if !user.may_use("pool", name) => Err(HttpError::new(
            StatusCode::FORBIDDEN,
            "NOPERM",
            format!(
                "User {} may not use pool {name}: add \"pool:{name}\" to its on list.",
                user.name
            ),
        )),
        _ => find_pool(request),
    }
}

fn note(request: &AdminRequest, place: &NamedPool, text: String) {
    let by = Some(request.by());
    request.daemon().events.add("pool", &place.name, text, by);
}

/// End a connection; all that it holds is given back.
pub(super) async fn kill(request: AdminRequest) -> Answer {
    let id = request.name("id");
    let daemon = request.daemon();
    let card = id.parse().ok().and_then(|id| daemon.clients.find(id));
    let card = card.filter(|card| request.viewer().sees_holder(&card.card.lock()));
    let Some(card) = card else {
        let hint = "GET /api/v1/clients lists them.";
        return Err(HttpError::no_such("client", id, hint));
    };
    card.outbox.kill();
    let name = card.card.lock().name.lock().clone();
    let text = format!("connection {id} ({name}) was killed");
    daemon.events.add("client", &name, text, Some(request.by()));
    ok(&json!({ "outcome": "ok" }))
}

/// Take something back from its holder. The holder is told if it can be.
pub(super) async fn revoke(request: AdminRequest) -> Answer {
    let ticket = ticket_of(request.name("ticket"))?;
    let daemon = request.daemon();
    let row = daemon.lease_table.row(ticket, None);
    let row = row.map_err(|gone| gone_text(ticket, gone))?;
    if !request.viewer().sees(ticket.kind.word(), &row.name) {
        // As if it were not there.
        return Err(gone_text(ticket, NotHeld::Unknown));
    }
    let taken = daemon.lease_table.take_from(ticket, EndReason::Revoked);
    let taken = taken.map_err(|gone| gone_text(ticket, gone))?;
    let name = match taken.thing {
        LeaseEntry::Held(grant) | LeaseEntry::Answered(grant, _) => {
            let name = grant.name();
            grant.end(EndReason::Revoked);
            name
        }
        LeaseEntry::Asked(later) => {
            later.cancel(EndReason::Revoked.words());
            later.name().to_owned()
        }
        LeaseEntry::None => String::new(),
    };
    daemon.counts.reclaims.add(ticket.kind, EndReason::Revoked);
    let connection = row.card.connection.and_then(|id| daemon.clients.find(id));
    if let Some(card) = connection {
        let why = "an operator took it back";
        card.outbox.push(Push::Revoked(ticket, why));
    }
    let holder = row.card.name.lock().clone();
    let kind = ticket.kind.word();
    let held = row.held;
    let held = Brief(held);
    let text = format!("{kind} {name} was revoked from {holder} after {held}");
    daemon
        .events
        .add("client", &holder, text, Some(request.by()));
    ok(&json!({ "outcome": "ok", "name": name, "holder": holder }))
}
