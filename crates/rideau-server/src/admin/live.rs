//! What happens now, for as long as somebody watches, and what happened lately.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;

use super::visit::{Answer, No, Visit, ok};
use super::{Admin, WATCHERS_MAX};

/// A watcher hears something at least this often, so that proxies and we
/// notice when one side is gone.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// Series of one answer.
const SERIES_MAX: usize = 64;

/// Every sample, once in a step.
pub(super) async fn stream(visit: Visit) -> Answer {
    let seat = watch(&visit.admin)?;
    let mut samples = visit.admin.history.watch();
    // The one there is comes at once.
    samples.mark_changed();
    let state = (samples, seat, visit);
    let events = unfold(state, |(mut samples, seat, visit)| async move {
        loop {
            samples.changed().await.ok()?;
            let sample = Arc::clone(&samples.borrow_and_update());
            if sample.at_ms > 0 {
                let told = event("sample", None, &sample.json(visit.sight()));
                return Some((told, (samples, seat, visit)));
            }
        }
    });
    Ok(served(events))
}

/// Every event; with `?last=`, first so many of those before.
pub(super) async fn events(visit: Visit) -> Answer {
    let last = match visit.query.find("last") {
        Some(_) => visit.number("last", 0, 1024)?,
        None => 0,
    };
    let seat = watch(&visit.admin)?;
    let events = &visit.daemon().events;
    let news = events.watch();
    let mut before = events.newest(last);
    let newest = before.first().map_or(0, |event| event.serial);
    before.retain(|event| visit.sight().sees_event(event.kind, &event.name));
    // The oldest is told first, so it is the last of the list.
    let state = (before, newest, news, (seat, visit));
    let told = unfold(state, |(mut before, newest, mut news, seat)| async move {
        if let Some(next) = before.pop() {
            let told = event("event", Some(next.serial), &next.json(seat.1.sight()));
            return Some((told, (before, newest, news, seat)));
        }
        let sight = seat.1.sight();
        loop {
            match news.recv().await {
                Ok(next) if next.serial <= newest => (),
                Ok(next) if !sight.sees_event(next.kind, &next.name) => (),
                Ok(next) => {
                    let told = event("event", Some(next.serial), &next.json(sight));
                    return Some((told, (before, newest, news, seat)));
                }
                Err(RecvError::Lagged(missed)) => {
                    let told = event("missed", None, &json!({ "missed": missed }));
                    return Some((told, (before, newest, news, seat)));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Ok(served(told))
}

/// A seat among those who watch.
fn watch(admin: &Admin) -> Result<OwnedSemaphorePermit, No> {
    let seat = Arc::clone(&admin.watchers).try_acquire_owned();
    seat.map_err(|_| {
        admin.counts.watchers.fetch_add(1, Ordering::Relaxed);
        No::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "BUSY",
            format!("{WATCHERS_MAX} watch already, as many as may: close one of them."),
        )
    })
}

type Told = Result<Event, Infallible>;

fn event(kind: &str, id: Option<u64>, body: &Value) -> Told {
    let event = Event::default().event(kind).data(body.to_string());
    Ok(match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    })
}

fn served(events: impl Stream<Item = Told> + Send + 'static) -> axum::response::Response {
    let alive = KeepAlive::new().interval(QUIET_MAX);
    Sse::new(events).keep_alive(alive).into_response()
}

/// The last values of some series: `?series=pool.pg-1.held,server.waiting&span=10m`.
pub(super) async fn history(visit: Visit) -> Answer {
    let history = &visit.admin.history;
    let Some(wanted) = visit.query.find("series") else {
        let mut names = history.names();
        names.retain(|name| sees_series(&visit, name));
        return ok(&json!({ "names": names, "series": {}, "step_ms": step_ms(&visit) }));
    };
    let span = span(visit.query.find("span").unwrap_or("10m"))?;
    let mut series = Map::new();
    for name in wanted.split(',').take(SERIES_MAX) {
        let seen = Some(name).filter(|name| sees_series(&visit, name));
        let Some(values) = seen.and_then(|name| history.values(name, span)) else {
            let hint = "GET /api/v1/history without series lists their names.";
            return Err(No::no_such("series", name, hint));
        };
        let pairs = values.into_iter().map(|(at, value)| json!([at, value]));
        series.insert(name.into(), pairs.collect());
    }
    ok(&json!({ "names": [], "series": series, "step_ms": step_ms(&visit) }))
}

/// Whether one may know the name in `pool.pg-1.held`.
fn sees_series(visit: &Visit, series: &str) -> bool {
    let of = series.rsplit_once('.').map_or(series, |(of, _)| of);
    let named = of.split_once('.');
    named.is_none_or(|(kind, name)| visit.sight().sees(kind, name))
}

fn step_ms(visit: &Visit) -> u64 {
    visit.admin.history.step().as_millis() as u64
}

/// `90s`, `10m` or `2h`.
fn span(text: &str) -> Result<Duration, No> {
    let read = || {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        let number: u32 = number.parse().ok()?;
        Some(Duration::from_secs(u64::from(number) * unit))
    };
    read().ok_or_else(|| No::wrong(format!("span wants 90s, 10m or 2h, not {text:?}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_number_and_a_unit() {
        assert_eq!(span("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(span("10m").unwrap(), Duration::from_secs(600));
        for bad in ["", "s", "10", "-1m", "10d", "1é"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
