//! Streams of samples and events, and their recent history.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use rideau_config::read_span;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::WATCHERS_MAX;
use super::answer::{Answer, HttpError, ok};
use super::request::AdminRequest;
use crate::state::quota::{Counted, Quota};

/// A watcher hears something at least this often, so that proxies and we
/// notice when one side is gone.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Series of one answer.
const SERIES_MAX: usize = 64;

/// The span that history is about, unless one asks for another.
const FINE: Duration = Duration::from_secs(1);

/// A stream may go on for so long before it is looked at whether it may.
const LOOK: Duration = Duration::from_secs(1);

/// Every sample, once in a step.
pub(super) async fn stream(request: AdminRequest) -> Answer {
    let watcher = Watcher::take(request, "show")?;
    let mut samples = watcher.request.admin.history.watch();
    // The one there is comes at once.
    samples.mark_changed();
    let events = unfold(Some((samples, watcher)), |state| async move {
        let (mut samples, mut watcher) = state?;
        loop {
            let changed = watcher.next(samples.changed()).await;
            match changed {
                Err(denied) => return Some((denied, None)),
                Ok(changed) => changed.ok()?,
            }
            let sample = Arc::clone(&samples.borrow_and_update());
            if sample.at_ms > 0 {
                let told = event("sample", None, &sample.json(watcher.request.viewer()));
                return Some((told, Some((samples, watcher))));
            }
        }
    });
    Ok(served(events))
}

/// Every event; with `?last=`, first that many of those before.
pub(super) async fn events(request: AdminRequest) -> Answer {
    let last = match request.query.find("last") {
        Some(_) => request.number("last", 0, 1024)?,
        None => 0,
    };
    let watcher = Watcher::take(request, "subscribe")?;
    let events = &watcher.request.daemon().events;
    let news = events.watch();
    let before = events.newest(last);
    let newest = before.first().map_or(0, |event| event.serial);
    // The oldest is told first, so it is the last of the list.
    let state = Some((before, newest, news, watcher));
    let told = unfold(state, |state| async move {
        let (mut before, newest, mut news, mut watcher) = state?;
        loop {
            let next = match before.pop() {
                Some(next) => watcher.next(async { Ok(next) }).await,
                None => match watcher.next(news.recv()).await {
                    Ok(Ok(next)) if next.serial <= newest => continue,
                    next => next,
                },
            };
            let viewer = watcher.request.viewer();
            let told = match next {
                Err(denied) => return Some((denied, None)),
                Ok(Ok(next)) if !viewer.sees_event(next.kind, &next.name) => continue,
                Ok(Ok(next)) => event("event", Some(next.serial), &viewer.json_of(&next)),
                Ok(Err(RecvError::Lagged(missed))) => {
                    event("missed", None, &json!({ "missed": missed }))
                }
                Ok(Err(RecvError::Closed)) => return None,
            };
            return Some((told, Some((before, newest, news, watcher))));
        }
    });
    Ok(served(told))
}

/// One of the clients that watch. What its user may see is looked up for each
/// event, and at least every second.
pub(super) struct Watcher {
    pub(super) request: AdminRequest,
    right: &'static str,
    look: Interval,
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Watcher {
    pub(super) fn take(request: AdminRequest, right: &'static str) -> Result<Self, HttpError> {
        let admin = &request.admin;
        let permit = Arc::clone(&admin.watchers).try_acquire_owned();
        let permit = permit.map_err(|_| {
            admin.counts.watchers.fetch_add(1, Ordering::Relaxed);
            HttpError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "BUSY",
                format!(
                    "{WATCHERS_MAX} streams are open, the most that may be: close one of \
                    them."
                ),
            )
        })?;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            _counted: request.count(Quota::Streams)?,
            right,
            look,
            _permit: permit,
            request,
        })
    }

    /// What comes next, unless its user may not see it any more: then the stream ends
    /// with a word that says so.
    pub(super) async fn next<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Told> {
        let mut next = pin!(next);
        loop {
            let came = tokio::select! {
                biased;
                came = &mut next => Some(came),
                _ = self.look.tick() => None,
            };
            self.follow().map_err(|no| {
                let logins = &self.request.daemon().logins;
                logins.denied(self.request.by(), self.right, &no.text);
                let said = json!({ "error": no.text, "code": no.code });
                event("denied", None, &said)
            })?;
            if let Some(came) = came {
                return Ok(came);
            }
        }
    }

    /// Follow a change of its user and of what it may do.
    fn follow(&mut self) -> Result<(), HttpError> {
        if self.request.follow()?
            && let Some(user) = &self.request.user
            && !user.may(self.right)
        {
            return Err(HttpError::of_command(&format!(
                "NOPERM user {} may not watch this any more: add \"{}\" to its allow list.",
                user.name, self.right
            )));
        }
        Ok(())
    }
}

pub(super) type Told = Result<Event, Infallible>;

pub(super) fn event(kind: &str, id: Option<u64>, body: &Value) -> Told {
    let event = Event::default().event(kind).data(body.to_string());
    Ok(match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    })
}

pub(super) fn served(
    events: impl Stream<Item = Told> + Send + 'static,
) -> axum::response::Response {
    let alive = KeepAlive::new().interval(QUIET_MAX);
    Sse::new(events).keep_alive(alive).into_response()
}

/// The last values of some series: `?series=pool.pg-1.held,server.waiting&span=10m`.
pub(super) async fn history(request: AdminRequest) -> Answer {
    let history = &request.admin.history;
    let Some(wanted) = request.query.find("series") else {
        let mut names = history.names();
        names.retain(|name| sees_series(&request, name));
        return ok(&json!({ "names": names, "series": {}, "step_ms": step_ms(&request, FINE) }));
    };
    let span = read_span(request.query.find("span").unwrap_or("10m"));
    let span = span.map_err(|why| HttpError::wrong(format!("span: {why}.")))?;
    let mut series = Map::new();
    for name in wanted.split(',').take(SERIES_MAX) {
        let seen = Some(name).filter(|name| sees_series(&request, name));
        let Some(values) = seen.and_then(|name| history.values(name, span)) else {
            let hint = "GET /api/v1/history without series lists their names.";
            return Err(HttpError::no_such("series", name, hint));
        };
        let pairs = values.into_iter().map(|(at, value)| json!([at, value]));
        series.insert(name.into(), pairs.collect());
    }
    ok(&json!({ "names": [], "series": series, "step_ms": step_ms(&request, span) }))
}

/// Whether one may know the name in `pool.pg-1.held`.
fn sees_series(request: &AdminRequest, series: &str) -> bool {
    let of = series.rsplit_once('.').map_or(series, |(of, _)| of);
    let named = of.split_once('.');
    named.is_none_or(|(kind, name)| request.viewer().sees(kind, name))
}

fn step_ms(request: &AdminRequest, span: Duration) -> u64 {
    request.admin.history.step(span).as_millis() as u64
}
