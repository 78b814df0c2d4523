//! A place in a process, from the ask to its end.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rideau::driver::Step;
use rideau_core::apps::{self as core, AnswerHead, Ask, Came, Ended, ProcessId, SessionId};
use rideau_core::queue::AskOptions;
use rideau_core::{Flow, Refusal, Reply, Ticket};
use rideau_process::StartReport;
use tokio::sync::oneshot;

use super::app::App;
use super::running::{Listing, Running};
use super::{Apps, Inner};

/// On what terms an ask wants a place.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// It gives up after this long.
    pub wait_max: Option<Duration>,
    /// It named that itself.
    pub promised: bool,
    /// The process it was with before, and would be with again.
    pub sticky: Option<ProcessId>,
    /// The process that just failed it.
    pub avoid: Option<ProcessId>,
    /// The flow whose turn it takes in a fair queue.
    pub flow: Option<Flow>,
    /// Do not wait.
    pub at_once: bool,
}

/// A place in a process. Dropping it gives it back; [`end`](Self::end) says how
/// it went.
pub struct Session {
    inner: Arc<Inner>,
    id: SessionId,
    running: Arc<Running>,
    waited: Duration,
    is_cold: bool,
    /// Where the request is listed.
    listed: Option<Listing>,
    ended: Ended,
    /// The head of the answer, and when it came.
    head: Option<AnswerHead>,
    /// How it was answered says nothing of its code.
    is_void: bool,
}

/// An ask gets no place, and why.
#[derive(Debug)]
pub struct Refused {
    /// Why, with its numbers.
    pub refusal: Refusal,
    /// Why the last start failed, if that is the reason.
    pub report: Option<Arc<StartReport>>,
}

/// How a waiting ask is answered.
pub(super) struct Waiter(oneshot::Sender<Result<Session, Refusal>>);

/// The outcome of an ask.
pub(crate) enum Asking<'a> {
    /// There is a place.
    Granted(Session),
    /// There will be.
    Waits(Waiting<'a>),
    /// There is none.
    Refused(Refused),
}

/// An ask that waits for a place. Dropping it gives it up.
pub(crate) struct Waiting<'a> {
    /// Gone before the place is, which would wake us.
    answer: oneshot::Receiver<Result<Session, Refusal>>,
    place: Place<'a>,
}

/// Cancels a wait that was given up.
struct Place<'a> {
    inner: &'a Arc<Inner>,
    app: &'a App,
    ticket: Option<Ticket>,
}

/// The decision of the machine.
enum Decided {
    Granted(Session),
    /// And where the answer comes from.
    Waits(Ticket, oneshot::Receiver<Result<Session, Refusal>>),
    Refused(Refusal),
}

impl Reply for Waiter {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

impl Waiter {
    pub(super) fn give(self, answer: Result<Session, Refusal>) {
        // If the ask left meanwhile, the session is dropped, which gives it back.
        drop(self.0.send(answer));
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let cancelled = self
                .inner
                .step(|step| (step.machine).cancel(ticket, self.app.id, step.now, step.effects));
            // Its end of the channel wakes no task: ours is the one that waited.
            drop(cancelled);
        }
    }
}

impl Apps {
    /// Ask for a place. Dropping the future gives it up.
    ///
    /// # Errors
    ///
    /// If there is none, or none in time.
    pub async fn ask(&self, app: &Arc<App>, wanted: Wanted) -> Result<Session, Refused> {
        match self.begin_ask(app, &wanted) {
            Asking::Granted(session) => Ok(session),
            Asking::Waits(waiting) => waiting.done().await,
            Asking::Refused(refused) => Err(refused),
        }
    }

    /// The same, and do not wait yet.
    pub(crate) fn begin_ask<'a>(&'a self, app: &'a App, wanted: &Wanted) -> Asking<'a> {
        match self.0.step(|step| self.0.decide(step, app, wanted)) {
            Decided::Granted(session) => Asking::Granted(session),
            Decided::Waits(ticket, answer) => Asking::Waits(Waiting {
                place: Place {
                    inner: &self.0,
                    app,
                    ticket: Some(ticket),
                },
                answer,
            }),
            Decided::Refused(refusal) => Asking::Refused(app.refused(refusal)),
        }
    }

    /// Why an ask would be refused at once if it came now; none if it would not be.
    pub(crate) fn would_refuse(&self, app: &App) -> Option<Refused> {
        let refusal = self
            .0
            .step(|step| step.machine.would_refuse(app.id, step.now));
        refusal.map(|refusal| app.refused(refusal))
    }
}

impl Waiting<'_> {
    /// Wait for it.
    ///
    /// # Errors
    ///
    /// If there is none after all.
    pub(crate) async fn done(mut self) -> Result<Session, Refused> {
        let answered = (&mut self.answer).await;
        self.place.ticket = None;
        let answered = answered.unwrap_or_else(|_| Err(closed()));
        answered.map_err(|refusal| self.place.app.refused(refusal))
    }
}

impl App {
    fn refused(&self, refusal: Refusal) -> Refused {
        Refused {
            report: self.report_for(&refusal),
            refusal,
        }
    }
}

/// The machine dropped the waiter: it is closing.
const fn closed() -> Refusal {
    Refusal {
        reason: rideau_core::Reason::Closed,
        waited: Duration::ZERO,
        len: 0,
        retry_after: Duration::ZERO,
    }
}

impl Inner {
    fn decide(
        self: &Arc<Self>,
        step: &mut Step<'_, core::Apps<Waiter>>,
        app: &App,
        wanted: &Wanted,
    ) -> Decided {
        let ask = Ask {
            terms: AskOptions {
                sent: step.sent,
                deadline: wanted.wait_max.map(|wait| step.now + wait),
                flow: wanted.flow.unwrap_or_default(),
                tag: None,
                wait: !wanted.at_once,
                promised: wanted.promised,
            },
            sticky: wanted.sticky,
            avoid: wanted.avoid,
        };
        let mut answer = None;
        let reply = || {
            let (sender, receiver) = oneshot::channel();
            answer = Some(receiver);
            Waiter(sender)
        };
        let came = (step.machine).ask(app.id, &ask, reply, step.now, step.effects);
        match (came, answer) {
            (Came::Granted(session), _) => {
                let running = self.tables().granted(session.id.process);
                Decided::Granted(Session::new(Arc::clone(self), running, session))
            }
            (Came::Waits(ticket), Some(answer)) => Decided::Waits(ticket, answer),
            (Came::Waits(_), None) => Decided::Refused(closed()),
            (Came::Refused(refusal), _) => Decided::Refused(refusal),
        }
    }
}

impl Session {
    /// The guard of a session that the machine granted.
    pub(super) fn new(inner: Arc<Inner>, running: Arc<Running>, session: core::Session) -> Self {
        Self {
            inner,
            id: session.id,
            running,
            waited: session.waited,
            is_cold: session.is_cold,
            listed: None,
            ended: Ended::Left,
            head: None,
            is_void: false,
        }
    }

    /// The process that serves it.
    pub fn process(&self) -> &Arc<Running> {
        &self.running
    }

    /// How long it waited for its place.
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// When it had its place, if it asked then.
    pub fn began(&self, asked: std::time::Instant) -> std::time::Instant {
        asked + self.waited
    }

    /// It waited for a start.
    pub const fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// Its process answered, so long after the grant.
    pub(crate) fn answered(&mut self, status: hyper::StatusCode, after: Duration) {
        let failed = status.is_server_error();
        self.head = Some(AnswerHead { failed, after });
    }

    /// How it is answered says nothing of its code: another failed in the same way.
    pub(crate) fn make_void(&mut self) {
        self.is_void = true;
    }

    /// It is over, and went so.
    pub fn end(mut self, ended: Ended) {
        self.ended = ended;
    }

    /// Lists the request, so that operators see it.
    pub fn list(
        &mut self,
        method: &hyper::Method,
        path: &[u8],
        client: Option<IpAddr>,
        since: std::time::Instant,
    ) {
        let listed = self.running.requests.add(method, path, client, since);
        if let Some(before) = self.listed.replace(listed) {
            self.running.requests.remove(before);
        }
    }

    /// It turned out to be a stream.
    pub fn streamed(&self) {
        let head = self.head.filter(|_| !self.is_void);
        self.inner
            .step(|step| (step.machine).streamed(self.id, head, step.now, step.effects));
    }

    /// The process does not answer at its address: it is replaced.
    pub fn unreachable(mut self) {
        self.ended = Ended::Unused;
        let process = self.id.process;
        self.inner
            .step(|step| step.machine.unreachable(process, step.now, step.effects));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(at) = self.listed {
            self.running.requests.remove(at);
        }
        self.inner.step(|step| {
            let (ended, head) = match self.is_void {
                true => (Ended::Left, None),
                false => (self.ended, self.head),
            };
            (step.machine).release_answered(self.id, ended, head, step.now, step.effects);
        });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}
