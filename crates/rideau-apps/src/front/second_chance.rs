//! A second chance: what new code on trial failed is asked once more of the old.

use std::pin::pin;
use std::time::{Duration, Instant};

use hyper::Method;
use rideau_core::apps::Ended;

use super::body::Allowance;
use super::forward::Visit;
use super::reply::HttpReply;
use super::request::ProxyRequest;
use super::retries::Retries;
use super::upload::Upload;
use super::upstream_conn::{Said, UpstreamConn};
use crate::apps::{Session, Wanted};

/// A request that failed waits so long for a place in the old code.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// An answer that began, and what is left of its time.
type Failed = (Said, (Box<UpstreamConn>, Option<Allowance>));

impl ProxyRequest {
    /// Whether an answer is a failure of code on trial, and the request may be asked twice.
    pub(super) fn deserves_second(&self, session: &Session, said: &Said) -> bool {
        said.status.is_server_error()
            && matches!(self.method, Method::GET | Method::HEAD)
            && self.config.http.retries
            && self.app.is_on_trial(session.process().generation)
    }

    /// Ask the old code, if it has a place soon, and answer what that says. If it fails as
    /// well, that says nothing of either.
    pub(super) async fn second(
        &self,
        visit: &Visit<'_>,
        mut session: Session,
        (said, live): Failed,
        began: Instant,
    ) -> HttpReply {
        let generation = session.process().generation;
        let wanted = Wanted {
            avoid: Some(session.process().id),
            wait_max: Some(WAIT_MAX),
            ..Wanted::default()
        };
        let asked = match self.app.take_second_chance() {
            true => visit.front.apps.ask(&self.app, wanted).await.ok(),
            false => None,
        };
        let old = asked.filter(|old| old.process().generation != generation);
        let Some(old) = old else {
            return self.hand_back(visit, session, said, live, began).await;
        };
        let mut old = self.listed(visit, old);
        let since = Instant::now();
        let tried = {
            let mut tries = Retries::default();
            let tried = pin!(self.try_on(visit, &old, Upload::Empty, None, &mut tries));
            self.within(tried, None).await
        };
        let Some((Ok((better, line)), allowance)) = tried else {
            // What the new code said is all there is.
            old.end(Ended::Broken);
            session.make_void();
            return self.hand_back(visit, session, said, live, began).await;
        };
        match better.status.is_server_error() {
            true => {
                session.make_void();
                old.make_void();
            }
            false => session.answered(said.status, since.saturating_duration_since(began)),
        }
        drop(live);
        session.end(Ended::Answered);
        self.hand_back(visit, old, better, (line, allowance), since)
            .await
    }
}
