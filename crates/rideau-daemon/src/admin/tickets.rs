//! The tickets and sessions that a request names.

use axum::http::StatusCode;

use super::answer::HttpError;
use crate::state::end::NotHeld;
use crate::state::ticket::{Ticket, TicketKind};

/// The session that is called so.
pub(super) fn session_of(id: &str) -> Result<Ticket, HttpError> {
    let ticket = Ticket::parse(id.as_bytes());
    let session = ticket.filter(|ticket| ticket.kind == TicketKind::Session);
    session.ok_or_else(|| no_session(id))
}

pub(super) fn no_session(id: &str) -> HttpError {
    HttpError::no_such(
        "session",
        id,
        "it has ended, or is another user's. POST /v1/sessions opens one.",
    )
}

/// The ticket that is written so.
pub(super) fn ticket_of(text: &str) -> Result<Ticket, HttpError> {
    let ticket = Ticket::parse(text.as_bytes());
    let ticket = ticket.filter(|ticket| ticket.kind != TicketKind::Session);
    ticket.ok_or_else(|| {
        HttpError::no_such(
            "ticket",
            text,
            "a ticket is what a grant answered with, such as g-0400000c5f0e8c2b7a0d4f6e91c3a8b2.",
        )
    })
}

/// The error for a ticket that has ended.
pub(super) fn gone_text(ticket: Ticket, gone: NotHeld) -> HttpError {
    let (code, text) = gone.told(format_args!("{ticket:?}"));
    let status = match gone {
        NotHeld::Foreign => StatusCode::FORBIDDEN,
        _ => StatusCode::GONE,
    };
    HttpError::new(status, code, text)
}
