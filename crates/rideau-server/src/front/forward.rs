//! One request on its way to a process, and the answer on its way back.
//!
//! It all happens in the task of the client's connection: nothing is spawned
//! for a request, and when the client goes everything goes with it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use hyper::{Method, StatusCode};
use rideau_core::apps::{Ended, ProcessId};

use super::Front;
use super::body::{self, Answer, Fate, Live, Source, Upload};
use super::connections::{Asked, Early, Line, Said, is_bare};
use super::fields::{Fields, put};
use super::headers::{self, Toward};
use super::ids::Id;
use super::refusals::{No, Reader};
use super::reply::Reply;
use super::router::{Route, is_host};
use super::seat::Seat;
use crate::apps::{self, App, Session, Wanted};
use crate::config::AppConfig;

/// Processes that a request is tried on.
const PROCESSES_MAX: u32 = 2;
/// Apps with so few places are not kept waiting by slow clients.
const BUFFERED_BELOW: usize = 5;

/// A request as it was read.
pub(super) struct Heard<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a [u8],
    pub(super) fields: Fields<'a>,
    /// Whom it is for.
    pub(super) host: Option<&'a [u8]>,
    /// What the client reads.
    pub(super) accept: Option<&'a [u8]>,
    /// The connection names fields that are of it alone.
    pub(super) names_fields: bool,
    /// How long its body is, by its own words.
    pub(super) length: Option<u64>,
    /// It would go on with something else.
    pub(super) upgrades: bool,
}

/// A request that was understood, or not.
pub(super) struct Begun {
    /// What it is called.
    pub(super) id: Id,
    reads_html: bool,
    pub(super) errand: Result<Errand, No>,
}

/// A request whose app is known.
pub(super) struct Errand {
    pub(super) app: Arc<App>,
    pub(super) config: Arc<AppConfig>,
    /// When it came, by both clocks.
    pub(super) came: (Instant, SystemTime),
    pub(super) method: Method,
    path: Box<str>,
    /// The request as a process gets it, but for how long it is.
    head: Vec<u8>,
    /// What it would go on with.
    pub(super) upgrade: Option<Vec<u8>>,
    /// The process it was with before.
    sticky: Option<ProcessId>,
}

/// A body that a client sends.
pub(super) struct Sent {
    pub(super) source: Source,
    pub(super) len: Option<u64>,
    /// It may turn out to make no sense.
    pub(super) is_checked: bool,
}

/// A process that gave no answer.
struct Failed {
    no: No,
    /// What was to be sent, if another process may have it.
    again: Option<Upload>,
    /// The process took no connection.
    is_unreachable: bool,
}

impl Front {
    /// Find out what a request wants, and from whom.
    pub(super) fn begin(&self, seat: &Seat, heard: &Heard<'_>) -> Begun {
        let id = headers::id_of(heard.fields, seat, || self.ids.next());
        Begun {
            reads_html: heard.accept.is_some_and(headers::reads_html),
            errand: self.errand(seat, heard, &id),
            id,
        }
    }

    /// The answer to one that gets none from an app.
    pub(super) fn refuse(&self, no: &No, begun: &Begun) -> Reply {
        no.reply(&Reader {
            pages: self.config.load().error_pages,
            id: &begun.id,
            reads_html: begun.reads_html,
        })
    }

    /// The same for one that was not even understood.
    pub(super) fn refuse_at_once(&self, no: &No) -> Reply {
        no.reply(&Reader {
            pages: self.config.load().error_pages,
            id: &self.ids.next(),
            reads_html: false,
        })
    }

    /// Answer a request, whatever becomes of it.
    /// What a process says before its answer is told at once, where that is
    /// possible.
    pub(super) async fn answer(
        &self,
        seat: &Seat,
        begun: &Begun,
        sent: Option<Sent>,
        early: Option<&Early<'_>>,
    ) -> Reply {
        let errand = match &begun.errand {
            Ok(errand) => errand,
            Err(no) => return self.refuse(no, begun),
        };
        let visit = Visit {
            front: self,
            seat,
            id: &begun.id,
            early,
        };
        match errand.run(&visit, sent).await {
            Ok(reply) => reply,
            Err(no) => {
                errand.app.counts.refused(no.word());
                self.refuse(&no, begun)
            }
        }
    }

    fn errand(&self, seat: &Seat, heard: &Heard<'_>, id: &Id) -> Result<Errand, No> {
        if *heard.method == Method::CONNECT {
            return Err(No::Method);
        }
        let target = str::from_utf8(heard.target).map_err(|_| No::Bad("its path is no path"))?;
        let (authority, whole) = parted(target)?;
        let host = match authority {
            Some(authority) => authority,
            None => {
                let said = heard.host.unwrap_or_default();
                str::from_utf8(said).unwrap_or_default()
            }
        };
        let path = whole.split_once('?').map_or(whole, |(path, _)| path);
        let table = self.table.load();
        let route = table.router.find(host, path).ok_or(No::UnknownApp)?;
        let app = table.apps.get(route.place).ok_or(No::UnknownApp)?;
        let config = app.config.load_full();
        let cookie = config.http.sticky.as_deref();
        let sticky = cookie.and_then(|cookie| self.sticky.find(&app.name, cookie, heard.fields));
        let came = (Instant::now(), SystemTime::now());
        let toward = Toward {
            seat,
            id,
            came: came.1,
            names_fields: heard.names_fields,
            host: authority.map(str::as_bytes),
            prefix: route.strips().then_some(&route.prefix),
        };
        Ok(Errand {
            app: Arc::clone(app),
            config,
            came,
            method: heard.method.clone(),
            path: path.into(),
            head: head(heard, route.seen(whole), &toward),
            upgrade: heard
                .upgrades
                .then(|| headers::upgrade_of(heard.fields))
                .flatten(),
            sticky,
        })
    }
}

/// The host of a target that has one, and its path.
fn parted(target: &str) -> Result<(Option<&str>, &str), No> {
    if target.starts_with('/') || target == "*" {
        return Ok((None, target));
    }
    let (scheme, rest) = target
        .split_once("://")
        .ok_or(No::Bad("its path is no path"))?;
    let is_http = ["http", "https"].map(|known| scheme.eq_ignore_ascii_case(known));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !is_http.contains(&true) || !is_host(authority.as_bytes()) {
        return Err(No::Bad("whom it is for is no host"));
    }
    Ok((Some(authority), path))
}

/// A request as a process gets it, but for how long it is.
fn head(heard: &Heard<'_>, path: &str, toward: &Toward<'_>) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(heard.method.as_str().as_bytes());
    head.push(b' ');
    if !path.starts_with('/') && path != "*" {
        head.push(b'/');
    }
    head.extend_from_slice(path.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    headers::to_process(&mut head, heard.fields, toward);
    if heard.length == Some(0) {
        headers::put_length(&mut head, 0);
    }
    head
}

impl Route {
    /// The app does not see how its paths begin.
    fn strips(&self) -> bool {
        self.strips && !self.prefix.is_empty()
    }

    /// What of a path the app sees.
    fn seen<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(self.prefix.as_str()) {
            Some(rest) if self.strips() => rest,
            _ => path,
        }
    }
}

/// Whose request it is, and where it came in.
pub(super) struct Visit<'a> {
    pub(super) front: &'a Front,
    pub(super) seat: &'a Seat,
    pub(super) id: &'a Id,
    /// Tells the client what a process says before its answer.
    pub(super) early: Option<&'a Early<'a>>,
}

impl Errand {
    async fn run(&self, visit: &Visit<'_>, sent: Option<Sent>) -> Result<Reply, No> {
        let (upload, fate) = match sent {
            None => (Upload::Empty, None),
            // What few requests need is kept apart from what all of them carry.
            Some(sent) => Box::pin(self.upload(sent)).await?,
        };
        self.exchange(visit, upload, fate).await
    }

    /// What the client sends: read as a whole, or passed on as it comes.
    async fn upload(&self, sent: Sent) -> Result<(Upload, Option<Fate>), No> {
        let http = &self.config.http;
        if sent.len.is_some_and(|len| len > http.body_max) {
            return Err(No::BodyTooLarge);
        }
        if http.buffers_requests.unwrap_or(self.has_few_places()) {
            return Ok((body::read(sent.source, http.body_max).await?, None));
        }
        let is_checked = sent.is_checked && sent.len.is_none();
        let (upload, fate) = body::peek(sent.source, sent.len, http.body_max, is_checked).await?;
        Ok((upload, Some(fate)))
    }

    fn has_few_places(&self) -> bool {
        self.config.options.concurrency < BUFFERED_BELOW
    }

    /// What a process is sent.
    pub(super) fn asked<'a>(&self, head: &'a [u8]) -> Asked<'a> {
        Asked {
            head,
            wants_head: self.method == Method::HEAD,
            wants_upgrade: false,
            early: None,
        }
    }

    /// The head with the wish for something else.
    pub(super) fn head_for(&self, upgrade: &[u8]) -> Vec<u8> {
        let mut head = self.head.clone();
        put(&mut head, "Connection", "upgrade");
        put(&mut head, "Upgrade", upgrade);
        head
    }

    /// Ask for a place in a process.
    pub(super) async fn ask(
        &self,
        visit: &Visit<'_>,
        avoid: Option<ProcessId>,
    ) -> Result<Session, No> {
        let wanted = Wanted {
            sticky: self.sticky,
            avoid,
            request: Some(apps::Request {
                method: self.method.clone(),
                path: self.path.clone(),
                client: Some(visit.seat.peer.ip()),
                since: self.came.0,
            }),
            ..Wanted::default()
        };
        let asked = visit.front.apps.ask(&self.app, wanted);
        asked.await.map_err(No::Refused)
    }

    async fn exchange(
        &self,
        visit: &Visit<'_>,
        mut upload: Upload,
        fate: Option<Fate>,
    ) -> Result<Reply, No> {
        let mut avoid = None;
        let mut tries = 1;
        loop {
            let session = self.ask(visit, avoid).await?;
            let began = match tries {
                1 => session.began(self.came.0),
                _ => Instant::now(),
            };
            let tried = {
                let tried = pin!(self.try_on(visit, &session, upload));
                self.within(tried).await
            };
            let failed = match tried {
                Some(Ok((said, line))) => {
                    return Ok(self.hand_back(visit, session, said, line, began).await);
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
                Some(again) if tries < tries_max => upload = again,
                _ => return Err(failed.no),
            }
            tries += 1;
        }
    }

    /// As long as a request may take; none if it took longer.
    pub(super) async fn within<T>(&self, done: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match self.config.http.request_timeout {
            None => Some(done.await),
            Some(within) => Box::pin(tokio::time::timeout(within, done)).await.ok(),
        }
    }

    /// Begin to hand an answer back.
    pub(super) async fn hand_back(
        &self,
        visit: &Visit<'_>,
        session: Session,
        said: Said,
        line: Box<Line>,
        began: Instant,
    ) -> Reply {
        let mut reply = self.signed(visit, &session, said.fields, said.status, began);
        reply.date.take_if(|_| said.noted.has_date);
        reply.length = said.noted.length;
        let http = &self.config.http;
        let is_buffered =
            http.buffers_responses.unwrap_or(self.has_few_places()) && !said.noted.is_live;
        let live = Live::new(line, session);
        reply.body = match is_buffered {
            true => Box::pin(Answer::buffered(live)).await,
            false => Answer::Live(live),
        };
        if let Answer::Whole(bytes) = &reply.body
            && self.method != Method::HEAD
            && !is_bare(said.status)
        {
            reply.length = Some(bytes.len() as u64);
        }
        reply
    }

    /// An answer with what we say of it, and without a body.
    pub(super) fn signed(
        &self,
        visit: &Visit<'_>,
        session: &Session,
        fields: Vec<u8>,
        status: StatusCode,
        began: Instant,
    ) -> Reply {
        let at = Instant::now();
        let took = at.saturating_duration_since(began);
        self.app.counts.answered(status, took);
        let (came, date) = self.came;
        let mut reply = Reply {
            status,
            fields,
            at,
            date: Some(date + at.saturating_duration_since(came)),
            length: None,
            body: Answer::Whole(Default::default()),
            closes: false,
        };
        reply.put(headers::REQUEST_ID, visit.id);
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
                visit.seat.is_tls,
            );
            reply.put("Set-Cookie", made);
        }
        reply
    }

    /// Try a request on one process: on a connection that is open, and if that
    /// was closed meanwhile, on a new one.
    async fn try_on(
        &self,
        visit: &Visit<'_>,
        session: &Session,
        mut upload: Upload,
    ) -> Result<(Said, Box<Line>), Failed> {
        let asked = Asked {
            early: visit.early,
            ..self.asked(&self.head)
        };
        let connections = &session.process().connections;
        let mut spare = self.spare(&upload);
        let reused = match &spare {
            Some(_) => connections.reuse(),
            // What cannot be sent twice is not sent where nobody may be listening.
            None => connections.reuse_fresh(),
        };
        if let Some(mut line) = reused {
            let lost = match line.send(asked, upload).await {
                Ok(said) => return Ok((said, line)),
                Err(lost) => lost,
            };
            tracing::debug!("an app closed a connection that was idle: {}", lost.error);
            if lost.is_garbage {
                return Err(Failed::new(No::BadAnswer, None));
            }
            upload = match lost.upload.or_else(|| spare.take()) {
                Some(upload) => upload,
                None => return Err(Failed::new(No::Closed, None)),
            };
            spare = self.spare(&upload);
        }
        let mut line = match Box::pin(connections.connect()).await {
            Ok(line) => line,
            Err(error) => {
                tracing::debug!("an app takes no connection: {error}");
                let is_unreachable = true;
                return Err(Failed {
                    is_unreachable,
                    ..Failed::new(No::Unreachable, Some(upload))
                });
            }
        };
        match line.send(asked, upload).await {
            Ok(said) => Ok((said, line)),
            Err(lost) if lost.is_garbage => Err(Failed::new(No::BadAnswer, None)),
            Err(lost) => {
                tracing::debug!("an app gave no answer: {}", lost.error);
                let spare = spare.filter(|spare| matches!(spare, Upload::Empty));
                Err(Failed::new(No::Closed, lost.upload.or(spare)))
            }
        }
    }

    /// The same upload once more, if asking twice is the same as asking once.
    fn spare(&self, upload: &Upload) -> Option<Upload> {
        let is_safe = self.config.http.retries && self.method.is_idempotent();
        is_safe.then(|| upload.again()).flatten()
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

impl Failed {
    fn new(no: No, again: Option<Upload>) -> Self {
        Self {
            no,
            again,
            is_unreachable: false,
        }
    }
}
