//! The dashboard's pages over HTTP: once, or again with each sample.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use parking_lot::Mutex;
use rideau_config::read_span;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::answer::{Answer, HttpError, away, ok};
use super::live::{Watcher, event, served};
use super::request::AdminRequest;
use crate::view::history::Sample;
use crate::view::pages::{self, KeyCounts, Look, ROWS, ROWS_MAX};
use crate::view::worst::{Ranking, Worst};

/// A page is sent again no sooner, however fast samples come.
const AGAIN: Duration = Duration::from_secs(1);
/// Charts go back no further than this.
const SPAN_MAX: Duration = Duration::from_secs(7 * 86_400);

/// What all pages share: the order of things, and a look at the keys of locks.
#[derive(Default)]
pub(super) struct Board {
    worst: Mutex<Worst>,
    keys: KeyCounts,
}

impl Board {
    /// Rank the things of each sample.
    pub(super) async fn keep(self: Arc<Self>, mut samples: watch::Receiver<Arc<Sample>>) {
        while samples.changed().await.is_ok() {
            let sample = Arc::clone(&samples.borrow_and_update());
            self.worst.lock().advance(&sample);
        }
    }

    fn ranking(&self) -> Arc<Ranking> {
        Arc::clone(self.worst.lock().newest())
    }
}

/// A page, with what its charts have had so far.
pub(super) async fn page(request: AdminRequest) -> Answer {
    let span = read_span(request.query.find("span").unwrap_or("10m"));
    let span = span.map_err(|why| HttpError::wrong(format!("span: {why}.")))?;
    look_at_usage(&request).await;
    let seen = away(move || {
        let seen = see(&request, Some(span.min(SPAN_MAX)))?;
        seen.ok_or_else(|| nowhere(&request))
    });
    ok(&seen.await??)
}

/// A page again with each sample, without what its charts have had.
pub(super) async fn watch(request: AdminRequest) -> Answer {
    let watcher = Watcher::take(request, "show")?;
    let mut samples = watcher.request.admin.history.watch();
    samples.mark_unchanged();
    let state = Some((samples, watcher, Instant::now()));
    let events = unfold(state, |state| async move {
        let (mut samples, mut watcher, due) = state?;
        let next = async {
            sleep_until(due).await;
            samples.changed().await
        };
        match watcher.next(next).await {
            Err(denied) => return Some((denied, None)),
            Ok(changed) => changed.ok()?,
        }
        samples.mark_unchanged();
        let due = Instant::now() + AGAIN;
        look_at_usage(&watcher.request).await;
        let seen = away(move || {
            let seen = see(&watcher.request, None);
            (watcher, seen)
        });
        let (watcher, seen) = seen.await.ok()?;
        Some(match seen {
            Ok(Some(seen)) => (event("page", None, &seen), Some((samples, watcher, due))),
            Ok(None) => (
                event("gone", None, &json!({ "error": "It is gone." })),
                None,
            ),
            Err(no) => (event("denied", None, &json!({ "error": no.text })), None),
        })
    });
    Ok(served(events))
}

/// What the request wants to see; none if there is no such page or thing.
fn see(request: &AdminRequest, span: Option<Duration>) -> Result<Option<Value>, HttpError> {
    let admin = &request.admin;
    let query = |name| request.query.find(name).unwrap_or_default();
    let from = query("from");
    let from = match from {
        "" => Ok(0),
        from => from.parse(),
    };
    let from = from.map_err(|_| HttpError::wrong("from takes how many rows to leave out."))?;
    let path = request.name("page");
    let look = Look {
        daemon: request.daemon(),
        history: &admin.history,
        sample: admin.history.newest(),
        ranking: admin.board.ranking(),
        keys: &admin.board.keys,
        viewer: request.viewer(),
        user: request.user.as_ref(),
        find: query("find"),
        sort: query("sort"),
        only: query("only"),
        from,
        count: request.number("count", ROWS, ROWS_MAX)?,
        span,
    };
    Ok(pages::page(&look, path))
}

/// What the processes of an application use is looked at when its page is.
async fn look_at_usage(request: &AdminRequest) {
    let name = request.name("page").strip_prefix("apps/");
    let apps = &request.daemon().apps;
    if let Some(app) = name.and_then(|name| apps.find(name)) {
        apps.look_at_usage(&app).await;
    }
}

fn nowhere(request: &AdminRequest) -> HttpError {
    let hint = "overview, pools, brokers, locks, apps, ranges, holders, events, config and \
                cluster are there, and one thing, as pools/NAME.";
    HttpError::no_such("page", request.name("page"), hint)
}
