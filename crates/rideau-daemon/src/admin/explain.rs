//! Why something is as it is, in words.

use serde_json::{Map, json};

use super::answer::{Answer, HttpError, away, ok};
use super::request::AdminRequest;
use crate::view::explain;

/// Explain a refusal, a ticket, a connection, a place or a key.
pub(super) async fn explain(request: AdminRequest) -> Answer {
    away(move || explained(&request)).await?
}

fn explained(request: &AdminRequest) -> Answer {
    let id = request.name("id");
    let Some(found) = explain::explain(request.daemon(), id, request.viewer()) else {
        let hint = "explain takes the id of a refusal (d-…), a ticket, a session, the number of \
                    a connection, or the name of a pool, a broker, a regulator or a key.";
        return Err(HttpError::no_such("thing", id, hint));
    };
    let facts = found.facts.into_iter();
    let facts: Map<_, _> = facts
        .map(|(name, cell)| (name.to_owned(), cell.json()))
        .collect();
    ok(&json!({ "id": id, "kind": found.kind, "text": found.text, "about": facts }))
}
