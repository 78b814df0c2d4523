//! One request on its way to a process, and the answer on its way back.
//!
//! It all happens in the task of the client's connection: nothing is spawned
//! for a request, and when the client goes everything goes with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use rideau_core::apps::{Ended, ProcessId};

use super::Front;
use super::body::{self, Answer, Fate, Live, Upload, Visit};
use super::connections::Line;
use super::headers;
use super::refusals::{No, Reader, reads_html};
use super::router::{Route, is_host};
use super::seat::{Seat, Turn};
use super::upgrade;
use crate::apps::{self, App, Session, Wanted};
use crate::config::AppConfig;

/// Processes that a request is tried on.
const PROCESSES_MAX: u32 = 2;
/// Apps with so few places are not kept waiting by slow clients.
const BUFFERED_BELOW: usize = 5;

/// A request whose app is known.
pub(super) struct Errand<'a> {
    pub(super) front: &'a Front,
    pub(super) seat: &'a Arc<Seat>,
    pub(super) app: Arc<App>,
    pub(super) config: Arc<AppConfig>,
    pub(super) id: &'a HeaderValue,
    /// The process it was with before.
    sticky: Option<ProcessId>,
}

/// A process that gave no answer.
pub(super) struct Failed {
    pub(super) no: No,
    /// The request, if another process may have it.
    again: Option<Request<Upload>>,
    /// The process took no connection.
    is_unreachable: bool,
}

impl Front {
    /// Answer a request, whatever becomes of it.
    pub(super) async fn answer(
        &self,
        seat: &Arc<Seat>,
        request: Request<Incoming>,
    ) -> Response<Answer> {
        let visit = Visit::new(seat);
        let id = headers::id_of(request.headers(), seat, || self.ids.next());
        let reads_html = reads_html(request.headers());
        let answer = self.serve(seat, request, &id).await;
        let answer = answer.unwrap_or_else(|no| {
            let reader = Reader {
                pages: self.config.load().error_pages,
                id: &id,
                reads_html,
            };
            no.answer(&reader)
        });
        if seat.decision() == Turn::Undecided && answer.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            seat.turn(Turn::Plain);
        }
        answer.map(|body| body.with(visit))
    }

    async fn serve(
        &self,
        seat: &Arc<Seat>,
        mut request: Request<Incoming>,
        id: &HeaderValue,
    ) -> Result<Response<Answer>, No> {
        if request.headers().contains_key(headers::REFUSED)
            && let Some(trouble) = seat.refused()
        {
            return Err(trouble.into());
        }
        if request.method() == Method::CONNECT {
            return Err(No::Method);
        }
        let wanted = headers::upgrade_of(request.headers());
        let client = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
        let (mut parts, incoming) = request.into_parts();
        let (errand, route) = self.errand(seat, &mut parts, id)?;
        headers::to_process(&mut parts.headers, seat, id);
        rewrite(&mut parts, &route)?;
        let count = |no: &No| errand.app.counts.refused(no.word());
        let uploaded = errand.upload(&mut parts, incoming).await;
        let (upload, fate) = uploaded.inspect_err(count)?;
        let request = Request::from_parts(parts, upload);
        let answer = match (wanted, client) {
            (Some(wanted), Some(client)) => {
                upgrade::exchange(&errand, request, wanted, client).await
            }
            _ => errand.exchange(request, fate).await,
        };
        answer.inspect_err(count)
    }

    /// Find out whom a request is for.
    fn errand<'a>(
        &'a self,
        seat: &'a Arc<Seat>,
        parts: &mut Parts,
        id: &'a HeaderValue,
    ) -> Result<(Errand<'a>, Arc<Route>), No> {
        settle_host(parts)?;
        let host = parts.headers.get(header::HOST);
        let host = host.map_or("", |host| host.to_str().unwrap_or(""));
        let table = self.table.load();
        let route = table.router.find(host, parts.uri.path());
        let route = route.ok_or(No::UnknownApp)?;
        let app = table.apps.get(&route.app).ok_or(No::UnknownApp)?;
        let config = app.config.load_full();
        let cookie = config.http.sticky.as_deref();
        let sticky = cookie.and_then(|cookie| self.sticky.find(&app.name, cookie, &parts.headers));
        let errand = Errand {
            front: self,
            seat,
            app: Arc::clone(app),
            config,
            id,
            sticky,
        };
        Ok((errand, Arc::clone(route)))
    }
}

impl Errand<'_> {
    /// What the client sends: read as a whole, or passed on as it comes.
    async fn upload(
        &self,
        parts: &mut Parts,
        incoming: Incoming,
    ) -> Result<(Upload, Option<Fate>), No> {
        if incoming.is_end_stream() {
            return Ok((Upload::Empty, None));
        }
        let http = &self.config.http;
        let len = incoming.size_hint().exact();
        if len.is_some_and(|len| len > http.body_max) {
            return Err(No::BodyTooLarge);
        }
        let fields = &mut parts.headers;
        if http.buffers_requests.unwrap_or(self.has_few_places()) {
            let upload = body::read(incoming, http.body_max).await?;
            let len = upload.len().unwrap_or(0);
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
            return Ok((upload, None));
        }
        let is_checked = len.is_none() && parts.version < Version::HTTP_2;
        let (upload, fate) = body::peek(incoming, http.body_max, is_checked).await?;
        if upload.len() == Some(0) {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        } else if len.is_none() {
            let chunked = HeaderValue::from_static("chunked");
            fields.insert(header::TRANSFER_ENCODING, chunked);
        }
        Ok((upload, Some(fate)))
    }

    fn has_few_places(&self) -> bool {
        self.config.options.concurrency < BUFFERED_BELOW
    }

    /// Ask for a place in a process.
    pub(super) async fn ask<B>(
        &self,
        request: &Request<B>,
        avoid: Option<ProcessId>,
    ) -> Result<Session, No> {
        let wanted = Wanted {
            sticky: self.sticky,
            avoid,
            request: Some(apps::Request {
                method: request.method().clone(),
                path: request.uri().clone(),
                client: Some(self.seat.peer.ip()),
                since: Instant::now(),
            }),
            ..Wanted::default()
        };
        self.front
            .apps
            .ask(&self.app, wanted)
            .await
            .map_err(No::Refused)
    }

    async fn exchange(
        &self,
        mut request: Request<Upload>,
        fate: Option<Fate>,
    ) -> Result<Response<Answer>, No> {
        let mut avoid = None;
        let mut tries = 1;
        loop {
            let session = self.ask(&request, avoid).await?;
            let began = Instant::now();
            let tried = self.within(try_on(&session, request, self.config.http.retries));
            let failed = match tried.await {
                Some(Ok((answer, line))) => {
                    return Ok(self.hand_back(session, answer, line, began).await);
                }
                Some(Err(failed)) => failed,
                None => {
                    session.end(Ended::TimedOut);
                    return Err(No::RequestTimeout);
                }
            };
            avoid = Some(session.process().id);
            if let Some(no) = fate.as_ref().and_then(Fate::no) {
                session.end(Ended::Left);
                return Err(no);
            }
            // Who was dead already when it was asked does not count.
            let tries_max = PROCESSES_MAX + u32::from(failed.is_unreachable);
            if failed.is_unreachable {
                session.unreachable();
            } else {
                session.end(Ended::Broken);
            }
            match failed.again {
                Some(again) if tries < tries_max => request = again,
                _ => return Err(failed.no),
            }
            tries += 1;
        }
    }

    /// As long as a request may take; none if it took longer.
    pub(super) async fn within<T>(&self, done: impl Future<Output = T>) -> Option<T> {
        match self.config.http.request_timeout {
            None => Some(done.await),
            Some(within) => tokio::time::timeout(within, done).await.ok(),
        }
    }

    /// Begin to hand an answer back.
    pub(super) async fn hand_back(
        &self,
        session: Session,
        answer: Response<Incoming>,
        line: Box<Line>,
        began: Instant,
    ) -> Response<Answer> {
        let (mut parts, incoming) = answer.into_parts();
        // Who asked speaks another one, perhaps, and hyper knows which.
        parts.version = Version::HTTP_11;
        headers::to_client(&mut parts.headers);
        let took = began.elapsed();
        self.app.counts.answered(parts.status, took);
        self.sign(&mut parts.headers, &session, took);
        let http = &self.config.http;
        let is_buffered = http.buffers_responses.unwrap_or(self.has_few_places())
            && !headers::is_live(&parts.headers);
        let live = Live::new(incoming, line, session);
        let body = if is_buffered {
            Answer::buffered(live).await
        } else {
            Answer::live(live)
        };
        Response::from_parts(parts, body)
    }

    /// What we say of an answer.
    pub(super) fn sign(&self, fields: &mut hyper::HeaderMap, session: &Session, took: Duration) {
        fields.insert(headers::REQUEST_ID, self.id.clone());
        if session.is_cold() {
            fields.insert(headers::COLD, HeaderValue::from_static("1"));
        }
        if self.config.http.tells_timing {
            let timing = headers::timing(session.waited(), took);
            fields.append(headers::SERVER_TIMING, timing);
        }
        let process = session.process();
        if let Some(cookie) = &self.config.http.sticky
            && self.sticky != Some(process.id)
        {
            let made = self.front.sticky.cookie(
                &self.app.name,
                cookie,
                process.id,
                process.generation,
                self.seat.is_tls,
            );
            if let Some(made) = made {
                fields.append(header::SET_COOKIE, made);
            }
        }
    }
}

impl Fate {
    /// Why the client itself is to blame.
    fn no(&self) -> Option<No> {
        if self.was_too_long() {
            return Some(No::BodyTooLarge);
        }
        self.was_broken()
            .then_some(No::Bad("its body makes no sense, or was broken off"))
    }
}

/// Try a request on one process: on a connection that is open, and if that was
/// closed meanwhile, on a new one.
async fn try_on(
    session: &Session,
    mut request: Request<Upload>,
    retries: bool,
) -> Result<(Response<Incoming>, Box<Line>), Failed> {
    let connections = &session.process().connections;
    let spare = if retries { again(&request) } else { None };
    let reused = match &spare {
        Some(_) => connections.reuse(),
        // What cannot be sent twice is not sent where nobody may be listening.
        None => connections.reuse_fresh(),
    };
    let mut spare = spare;
    if let Some(mut line) = reused {
        let lost = match line.send(request).await {
            Ok(answer) => return Ok((answer, line)),
            Err(lost) => lost,
        };
        tracing::debug!("an app closed a connection that was idle: {lost}");
        if lost.is_garbage {
            return Err(Failed::new(No::BadAnswer, None));
        }
        request = match lost.request.or_else(|| spare.take()) {
            Some(request) => request,
            None => return Err(Failed::new(No::Closed, None)),
        };
        spare = if retries { again(&request) } else { None };
    }
    let mut line = match connections.connect().await {
        Ok(line) => line,
        Err(error) => {
            tracing::debug!("an app takes no connection: {error}");
            let is_unreachable = true;
            return Err(Failed {
                is_unreachable,
                ..Failed::new(No::Unreachable, Some(request))
            });
        }
    };
    match line.send(request).await {
        Ok(answer) => Ok((answer, line)),
        Err(lost) if lost.is_garbage => Err(Failed::new(No::BadAnswer, None)),
        Err(lost) => {
            tracing::debug!("an app gave no answer: {lost}");
            let spare = spare.filter(|spare| spare.body().is_end_stream());
            Err(Failed::new(No::Closed, lost.request.or(spare)))
        }
    }
}

impl Failed {
    pub(super) fn new(no: No, again: Option<Request<Upload>>) -> Self {
        Self {
            no,
            again,
            is_unreachable: false,
        }
    }
}

/// The same request once more, if asking twice is the same as asking once.
fn again(request: &Request<Upload>) -> Option<Request<Upload>> {
    let is_idempotent = request.method().is_idempotent();
    let upload = request.body().again().filter(|_| is_idempotent)?;
    let mut again = Request::new(upload);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

/// Have the host in one place: HTTP/2 and requests for proxies have it in
/// another, which counts more.
fn settle_host(parts: &mut Parts) -> Result<(), No> {
    let bad = || No::Bad("whom it is for is no host");
    if let Some(authority) = parts.uri.authority() {
        if !is_host(authority.as_str().as_bytes()) {
            return Err(bad());
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
        parts.headers.insert(header::HOST, host);
    } else if parts.version >= Version::HTTP_2 {
        let mut hosts = parts.headers.get_all(header::HOST).iter();
        let is_good = hosts.next().is_some_and(|host| is_host(host.as_bytes()));
        if !is_good || hosts.next().is_some() {
            return Err(bad());
        }
    }
    Ok(())
}

/// What the app is asked for: a path, without what led to the app if it is not
/// to see that.
fn rewrite(parts: &mut Parts, route: &Route) -> Result<(), No> {
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    let strips = route.strips && !route.prefix.is_empty();
    if parts.uri.authority().is_none() && !strips {
        return Ok(());
    }
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = match path.strip_prefix(route.prefix.as_str()) {
        Some(rest) if strips => rest,
        _ => path,
    };
    let whole = match path.starts_with('/') || path == "*" {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    if strips && let Ok(prefix) = HeaderValue::from_str(&route.prefix) {
        parts.headers.insert(headers::FORWARDED_PREFIX, prefix);
    }
    let path = PathAndQuery::from_maybe_shared(whole.into_bytes());
    parts.uri = Uri::from(path.map_err(|_| No::Bad("its path is no path"))?);
    Ok(())
}
