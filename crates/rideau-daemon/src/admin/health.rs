//! Whether the server lives, whether it is of use, and its numbers.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Answer, HttpError, away};
use super::request::AdminRequest;
use crate::view::metrics;

/// It answers, so it lives.
pub(super) async fn alive(_visit: AdminRequest) -> Answer {
    Ok(word(StatusCode::OK, "ok"))
}

/// Whether to send clients here.
pub(super) async fn ready(request: AdminRequest) -> Answer {
    if request.daemon().is_draining() {
        return Ok(word(StatusCode::SERVICE_UNAVAILABLE, "draining"));
    }
    if let Some(failed) = request.daemon().values.ranges.failed() {
        let text = format!("store failed: {failed}");
        return Ok(word(StatusCode::SERVICE_UNAVAILABLE, &text));
    }
    Ok(word(StatusCode::OK, "ready"))
}

fn word(status: StatusCode, word: &str) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, kind, format!("{word}\n")).into_response()
}

/// There is room for nothing but health checks.
pub(super) fn full(why: &str) -> Response {
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", why).into_response()
}

/// All numbers, for Prometheus.
pub(super) async fn metrics(request: AdminRequest) -> Answer {
    request.sees_all("the numbers of everything")?;
    let limits = request.admin.limits().to_vec();
    let daemon = request.daemon().clone();
    daemon.apps.look_at_all_usage().await;
    // With many keys it takes a while, and no other task is to wait for that.
    let form = metrics::Form::accepted(&request.accept);
    let text = away(move || metrics::render(&daemon, limits, form)).await?;
    let kind = [
        (header::CONTENT_TYPE, form.content_type()),
        (header::VARY, "Accept"),
    ];
    Ok((kind, text).into_response())
}

/// Panic on another thread.
#[cfg(test)]
pub(super) async fn panic_away(_visit: AdminRequest) -> Answer {
    away(|| -> Answer { panic!("planted") }).await?
}
