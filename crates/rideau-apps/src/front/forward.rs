//! One request on its way to a process, and the answer on its way back.
//!
//! It all happens in the task of the client's connection: nothing is spawned
//! for a request, and when the client goes everything goes with it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use hyper::{Method, StatusCode};
use rideau_core::apps::{Ended, ProcessId};

use super::Front;
use super::access_log::{LogEntry, LoggedRequest};
use super::body::{Allowance, Answer, AnswerKind, Live};
use super::budget::Reserved;
use super::conn::ClientConn;
use super::error_page::Reads;
use super::headers::{self, Noted};
use super::ids::Id;
use super::refusals::{Reader, RequestRefusal};
use super::reply::HttpReply;
use super::request::{Begun, ProxyRequest};
use super::retries::Retries;
use super::upload::{self, Fate, Inflow, Source, Upload};
use super::upstream_conn::{Early, Lost, Said, UpstreamConn, is_bare};
use crate::apps::{Refused, Session, Waiting, Wanted};
use crate::upstream::Connections;

/// A body that a client sends.
pub(super) struct Sent<'a> {
    pub(super) source: Source,
    pub(super) len: Option<u64>,
    /// It may turn out to make no sense.
    pub(super) is_checked: bool,
    /// The client waits to be told that it may send it.
    pub(super) expects: bool,
    /// Tells it so, if reading does not.
    pub(super) go_on: Option<&'a GoOn<'a>>,
}

/// Tells a client that it may send its body.
pub(super) type GoOn<'a> = dyn Fn() + Send + Sync + 'a;

/// How far a request has come.
pub(super) enum Start<'a> {
    /// No place was asked for.
    New,
    /// It waits for a place.
    Waits(Waiting<'a>),
    /// There is no place for it.
    Refused(Refused),
    /// It has a place, since then.
    Placed(Session, Instant),
    /// Its process closed the connection that it was sent on.
    Lost(Session, Instant, Lost),
}

/// A process that gave no answer.
pub(super) struct Failed {
    no: RequestRefusal,
    /// The upload, if the request may be sent to another process.
    again: Option<Upload>,
    /// The process took no connection.
    is_unreachable: bool,
    /// It was asked for none: it had died.
    was_dead: bool,
}

impl Front {
    /// The answer to one that gets none from an app.
    pub(super) fn refuse(
        &self,
        no: &RequestRefusal,
        begun: &Begun,
        conn: &ClientConn,
    ) -> HttpReply {
        if let Some(entry) = &begun.log {
            entry.refused(no.status().as_u16(), no.error());
        }
        let files = begun.rules.as_ref().map(|rules| &rules.pages);
        no.reply(&Reader {
            pages: self.config.load().error_pages,
            id: &begun.id,
            reads: begun.reads(),
            files: files.filter(|files| !files.is_empty()),
            hsts: conn.hsts.as_deref(),
        })
    }

    /// The same for one that was not even understood.
    pub(super) fn refuse_at_once(&self, no: &RequestRefusal, conn: &ClientConn) -> HttpReply {
        let table = self.table.load();
        let rules = table.rules.as_deref().map(|rules| rules.of(None));
        no.reply(&Reader {
            pages: self.config.load().error_pages,
            id: &self.ids.next(),
            reads: Reads::Text,
            files: rules.map(|rules| &rules.pages),
            hsts: conn.hsts.as_deref(),
        })
    }

    /// A line of the log for what was no request.
    pub(super) fn log_no_request(&self, no: &RequestRefusal, conn: &ClientConn, bytes: u64) {
        let table = self.table.load();
        let rules = table.rules.as_deref().map(|rules| rules.of(None));
        if let Some(log) = rules.and_then(|rules| rules.log.as_ref()) {
            let none = LoggedRequest::none(conn.peer.ip());
            let entry = log.begin(&none, Instant::now());
            entry.refused(no.status().as_u16(), no.error());
            entry.sent(bytes);
        }
    }

    /// Answer a request from where it is, whatever becomes of it.
    pub(super) async fn answer(
        &self,
        begun: &Begun,
        visit: &Visit<'_>,
        sent: Option<Sent<'_>>,
        start: Start<'_>,
    ) -> HttpReply {
        let proxy_request = match &begun.proxy_request {
            Ok(proxy_request) => proxy_request,
            Err(no) => {
                begun.is_refused(visit.conn, no.status().as_u16(), no.word());
                return self.refuse(no, begun, visit.conn);
            }
        };
        let answered = match &proxy_request.by_rules.file {
            Some(file) => Box::pin(proxy_request.answer_with_file(visit, file)).await,
            None => Ok(None),
        };
        let answered = match answered {
            Ok(None) => match proxy_request.wait_outside(visit) {
                None => proxy_request.run(visit, sent, start).await,
                Some(page) => Ok(page),
            },
            Ok(Some(reply)) => Ok(reply),
            Err(no) => Err(no),
        };
        match answered {
            Ok(reply) => reply,
            Err(no) => {
                if let Some(page) = proxy_request.wait_again(visit, &no) {
                    return page;
                }
                proxy_request.refused(&no, begun, visit.conn);
                self.refuse(&no, begun, visit.conn)
            }
        }
    }
}

/// Which client's request it is, and where it came in.
pub(super) struct Visit<'a> {
    pub(super) front: &'a Front,
    pub(super) conn: &'a ClientConn,
    pub(super) id: &'a Id,
    /// Its line of the log of requests.
    pub(super) log: Option<&'a LogEntry>,
    /// Tells the client what a process says before its answer, where that is
    /// possible.
    pub(super) early: Option<&'a Early<'a>>,
}

impl ProxyRequest {
    async fn run(
        &self,
        visit: &Visit<'_>,
        sent: Option<Sent<'_>>,
        start: Start<'_>,
    ) -> Result<HttpReply, RequestRefusal> {
        let (upload, fate) = match sent {
            None => (Upload::Empty, None),
            // What few requests need is kept apart from what all of them carry.
            Some(sent) => Box::pin(self.upload(visit, sent)).await?,
        };
        self.exchange(visit, upload, fate, start).await
    }

    /// The front answers instead of the app: count it, and say so in the log.
    pub(super) fn refused(&self, no: &RequestRefusal, begun: &Begun, conn: &ClientConn) {
        self.app.counts.refused(no.word());
        self.complain(begun, conn, no.status().as_u16(), no.word());
    }

    /// The upload of the client: read as a whole, or streamed.
    async fn upload(
        &self,
        visit: &Visit<'_>,
        sent: Sent<'_>,
    ) -> Result<(Upload, Option<Fate>), RequestRefusal> {
        let http = &self.config.http;
        if sent.len.is_some_and(|len| len > http.body_max) {
            return Err(RequestRefusal::BodyTooLarge);
        }
        // A client that asks first is told before it sends what would be of no use.
        if sent.expects
            && let Some(refused) = visit.front.apps.would_refuse(&self.app)
        {
            return Err(RequestRefusal::Refused(refused));
        }
        if let Some(go_on) = sent.go_on {
            go_on();
        }
        let rate_min = visit.front.config.load().body_rate_min;
        let inflow = Inflow::new(sent.source, http.body_max, rate_min);
        let reserved = self.reserve(visit);
        if http.buffers_requests && !self.is_grpc() {
            return Ok(upload::read(inflow, sent.len, reserved).await?);
        }
        let is_checked = sent.is_checked && sent.len.is_none();
        Ok(upload::peek(inflow, sent.len, is_checked, reserved).await?)
    }

    /// What is kept of a body for this client counts from now on.
    pub(super) fn reserve(&self, visit: &Visit<'_>) -> Reserved {
        let front = visit.front;
        let client = self.client(&front.config.load().trust, visit.conn);
        front.budget.reserve(client)
    }

    /// Ask for a place in a process.
    pub(super) async fn ask(
        &self,
        visit: &Visit<'_>,
        avoid: Option<ProcessId>,
    ) -> Result<Session, RequestRefusal> {
        let asked = visit.front.apps.ask(&self.app, self.wanted(avoid));
        let session = asked.await.map_err(RequestRefusal::Refused)?;
        Ok(self.listed(visit, session))
    }

    pub(super) fn wanted(&self, avoid: Option<ProcessId>) -> Wanted {
        Wanted {
            sticky: self.sticky,
            avoid,
            ..Wanted::default()
        }
    }

    /// List what the place is for, so that it can be looked at.
    pub(super) fn listed(&self, visit: &Visit<'_>, mut session: Session) -> Session {
        if let Some(room) = &self.by_rules.room {
            room.enter();
        }
        let client = visit.conn.peer.ip();
        session.list(&self.method, self.path(), Some(client), self.came.0);
        session
    }

    async fn exchange(
        &self,
        visit: &Visit<'_>,
        mut upload: Upload,
        fate: Option<Fate>,
        mut start: Start<'_>,
    ) -> Result<HttpReply, RequestRefusal> {
        let mut avoid = None;
        let mut tries = Retries::default();
        loop {
            // It came just now, if nothing was read of it since.
            let is_new = tries.is_first() && matches!(upload, Upload::Empty);
            let (session, began, lost) = match std::mem::replace(&mut start, Start::New) {
                Start::New => {
                    let session = self.ask(visit, avoid).await?;
                    let began = match is_new {
                        // It asked when it came.
                        true => session.began(self.came.0),
                        false => Instant::now(),
                    };
                    (session, began, None)
                }
                Start::Waits(waiting) => {
                    let session = waiting.done().await.map_err(RequestRefusal::Refused)?;
                    let began = session.began(self.came.0);
                    (self.listed(visit, session), began, None)
                }
                Start::Refused(refused) => return Err(RequestRefusal::Refused(refused)),
                Start::Placed(session, began) => (session, began, None),
                Start::Lost(session, began, lost) => (session, began, Some(lost)),
            };
            let is_bare = matches!(upload, Upload::Empty);
            let tried = {
                let tried = pin!(self.try_on(visit, &session, upload, lost, &mut tries));
                self.within(tried, fate.as_ref()).await
            };
            let failed = match tried {
                Some((Ok((said, line)), allowance)) => {
                    let live = (line, allowance);
                    if is_bare && self.deserves_second(&session, &said) {
                        let second = self.second(visit, session, (said, live), began);
                        return Ok(Box::pin(second).await);
                    }
                    return Ok(self.hand_back(visit, session, said, live, began).await);
                }
                Some((Err(failed), _)) => failed,
                None => {
                    session.end(Ended::TimedOut);
                    return Err(RequestRefusal::RequestTimeout);
                }
            };
            avoid = Some(session.process().id);
            if let Some(unread) = fate.as_ref().and_then(Fate::unread) {
                session.end(Ended::Left);
                return Err(unread.into());
            }
            if failed.is_unreachable {
                session.unreachable();
            } else {
                session.end(Ended::Broken);
            }
            let goes_on = tries.failed(failed.was_dead);
            match failed.again {
                Some(again) if goes_on => upload = again,
                _ => return Err(failed.no),
            }
        }
    }

    /// As long as a process may take, with what is left of that; none if it took
    /// longer. The time that the client takes for its body does not count.
    pub(super) async fn within<T>(
        &self,
        mut done: Pin<&mut impl Future<Output = T>>,
        fate: Option<&Fate>,
    ) -> Option<(T, Option<Allowance>)> {
        let Some(within) = self.config.http.request_timeout else {
            return Some((done.await, None));
        };
        let mut allowance = Allowance::new(within);
        let done = poll_fn(|context| match done.as_mut().poll(context) {
            Poll::Ready(done) => {
                allowance.stop();
                Poll::Ready(Some(done))
            }
            Poll::Pending if fate.is_some_and(Fate::is_awaited) => {
                allowance.stop();
                Poll::Pending
            }
            Poll::Pending => allowance.poll_wait(context).map(|()| None),
        });
        let done = done.await?;
        Some((done, Some(allowance)))
    }

    /// Begin to hand an answer back.
    pub(super) async fn hand_back(
        &self,
        visit: &Visit<'_>,
        mut session: Session,
        said: Said,
        (line, allowance): (Box<UpstreamConn>, Option<Allowance>),
        began: Instant,
    ) -> HttpReply {
        let (mut reply, noted) = self.begun_reply(visit, &mut session, said, began);
        let http = &self.config.http;
        let is_buffered = http.buffers_responses && !noted.is_live;
        // A stream goes on for as long as a client listens.
        let allowance = allowance.filter(|_| !noted.is_stream);
        let kind = AnswerKind {
            granted: began,
            has_length: noted.length.is_some(),
            is_stream: noted.is_stream,
        };
        let live = Live::new(line, session, allowance, kind, reply.at);
        reply.body = match is_buffered {
            true => {
                let reserve = || self.reserve(visit);
                Box::pin(Answer::buffered(live, http.buffer_response_max, reserve)).await
            }
            false => Answer::Live(live),
        };
        if let Answer::Whole(bytes) = &reply.body
            && self.method != Method::HEAD
            && !is_bare(reply.status)
        {
            reply.length = Some(bytes.len() as u64);
        }
        self.compress(visit, &mut reply);
        reply
    }

    /// The head of a process's answer with our fields, without a body.
    pub(super) fn begun_reply(
        &self,
        visit: &Visit<'_>,
        session: &mut Session,
        said: Said,
        began: Instant,
    ) -> (HttpReply, Noted) {
        let mut reply = self.signed(visit, session, said.fields, said.status, began);
        reply.date.take_if(|_| said.noted.has_date);
        reply.length = said.noted.length;
        (reply, said.noted)
    }

    /// An answer with what we say of it, and without a body.
    pub(super) fn signed(
        &self,
        visit: &Visit<'_>,
        session: &mut Session,
        fields: Vec<u8>,
        status: StatusCode,
        began: Instant,
    ) -> HttpReply {
        let at = Instant::now();
        let took = at.saturating_duration_since(began);
        self.app.counts.answered(status, took);
        session.answered(status, took);
        let (came, date) = self.came;
        // Most have their place as soon as they come.
        let since = match began == came {
            true => took,
            false => at.saturating_duration_since(came),
        };
        let mut reply = HttpReply {
            status,
            fields,
            at,
            date: Some(date + since),
            length: None,
            body: Answer::Whole(Default::default()),
            closes: false,
        };
        if let Some(route) = &self.by_rules.route {
            reply.replace(&route.fields);
        }
        reply.put(headers::REQUEST_ID, visit.id);
        if let Some(hsts) = &visit.conn.hsts
            && !headers::has_hsts(&reply.fields)
        {
            reply.put(headers::HSTS, &**hsts);
        }
        if let Some(entry) = visit.log {
            entry.answered(status.as_u16(), session, took);
        }
        if session.is_cold() {
            reply.put(headers::COLD, "1");
        }
        if self.config.http.tells_timing {
            reply.put(
                headers::SERVER_TIMING,
                headers::timing(session.waited(), took),
            );
        }
        let process = session.process();
        if let Some(cookie) = &self.config.http.sticky
            && self.sticky != Some(process.id)
        {
            let made = visit.front.sticky.cookie(
                &self.app.name,
                cookie,
                process.id,
                process.generation,
                visit.conn.is_tls,
            );
            reply.put("Set-Cookie", made);
        }
        reply
    }

    /// Try a request on one process: on a connection that is open, and if that
    /// was closed meanwhile, on a new one.
    pub(super) async fn try_on(
        &self,
        visit: &Visit<'_>,
        session: &Session,
        mut upload: Upload,
        mut lost: Option<Lost>,
        tries: &mut Retries,
    ) -> Result<(Said, Box<UpstreamConn>), Failed> {
        let asked = self.asked(visit.early);
        let connections = &session.process().connections;
        let mut spare = self.spare(&upload);
        if lost.is_none()
            && let Some(mut line) = self.reuse(connections, &upload)
        {
            match line
                .send(asked, std::mem::replace(&mut upload, Upload::Empty))
                .await
            {
                Ok(said) => return Ok((said, line)),
                Err(failed) => lost = Some(failed),
            }
        }
        let was_closed = lost.is_some();
        if let Some(lost) = lost {
            tracing::debug!("an app closed a connection that was idle: {}", lost.error);
            if lost.is_garbage {
                return Err(Failed::new(RequestRefusal::BadAnswer, None));
            }
            upload = match lost.upload.or_else(|| spare.take()) {
                Some(upload) => upload,
                None => return Err(Failed::new(RequestRefusal::Closed, None)),
            };
            spare = self.spare(&upload);
        }
        // There are few connections to ask for, and none for a process that has just died.
        if (was_closed || !tries.is_first()) && session.process().is_ending() {
            return Err(Failed::unreachable(upload, true));
        }
        tries.connect();
        let mut line = match Box::pin(connections.connect()).await {
            Ok(wire) => Box::new(UpstreamConn::new(wire)),
            Err(error) => {
                tracing::debug!("an app takes no connection: {error}");
                return Err(Failed::unreachable(upload, false));
            }
        };
        match line.send(asked, upload).await {
            Ok(said) => Ok((said, line)),
            Err(lost) if lost.is_garbage => Err(Failed::new(RequestRefusal::BadAnswer, None)),
            Err(lost) => {
                tracing::debug!("an app gave no answer: {}", lost.error);
                let spare = spare.filter(|spare| matches!(spare, Upload::Empty));
                Err(Failed::new(RequestRefusal::Closed, lost.upload.or(spare)))
            }
        }
    }

    /// A connection that is open.
    pub(super) fn reuse(
        &self,
        connections: &Connections,
        upload: &Upload,
    ) -> Option<Box<UpstreamConn>> {
        let wire = match self.is_safe() && upload.is_kept() {
            true => connections.reuse(),
            // What cannot be sent twice is not sent where no process may be listening.
            false => connections.reuse_fresh(),
        };
        Some(Box::new(UpstreamConn::new(wire?)))
    }

    /// The same upload once more, if asking twice is the same as asking once.
    fn spare(&self, upload: &Upload) -> Option<Upload> {
        self.is_safe().then(|| upload.again()).flatten()
    }

    fn is_safe(&self) -> bool {
        self.config.http.retries && self.method.is_idempotent()
    }
}

impl Failed {
    fn new(no: RequestRefusal, again: Option<Upload>) -> Self {
        Self {
            no,
            again,
            is_unreachable: false,
            was_dead: false,
        }
    }

    fn unreachable(again: Upload, was_dead: bool) -> Self {
        Self {
            is_unreachable: true,
            was_dead,
            ..Self::new(RequestRefusal::Unreachable, Some(again))
        }
    }
}
