//! One connection as the commands see it: which user it is, what it holds, what it is told.

mod keep;
mod make;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use rideau::allocator::{Prefer, Vouched};
use rideau::{AskOptions, Full, Reason, Refusal};
use rideau_config::label::{BadLabel, Label};
use rideau_config::{Config, User};
use rideau_process::panics::Panicked;
use rideau_resp::{Protocol, Reply};

use crate::redis::commit_wait::CommitWait;
use crate::redis::peer::Proof;
use crate::redis::subscriptions::Watch;
use crate::redis::transaction::Transaction;
use crate::state::answer::Outcome;
use crate::state::attempts::Origin;
use crate::state::catalog::{NamedBroker, NamedPool, RulePlace};
use crate::state::clients::ClientCard;
use crate::state::cluster::FarSession;
use crate::state::command_stats::Batch;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::holder::{Holder, HolderId};
use crate::state::logins::{Fingerprint, LoginPlace};
use crate::state::quota::{Counted, Over, Quota, Usage};
use crate::state::ticket::Ticket;

/// The state of one connection.
pub(crate) struct Client {
    /// The server.
    pub daemon: Arc<Daemon>,
    /// The part of its state that others see.
    pub card: Arc<ClientCard>,
    /// The user it is; none until it has said so where that is needed.
    pub user: Option<Arc<User>>,
    /// The usage of its user.
    pub usage: Arc<Usage>,
    /// It is one of its user's connections; none for a request of another protocol.
    pub connection: Option<Counted>,
    /// Its own holder.
    pub holder: HolderId,
    /// The session it is attached to.
    pub session: Option<(Ticket, HolderId)>,
    /// The session of another node that it is attached to instead.
    pub far: Option<FarSession>,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Bytes that will be written next.
    pub out: Vec<u8>,
    /// Commits that have to be safe before that.
    pub held_back: CommitWait,
    /// Its subscriptions.
    pub watch: Watch,
    /// How it shows which user it is without a password.
    pub proof: Proof,
    /// Where it comes from, as far as limits go.
    pub origin: Origin,
    /// It is counted among those that have not logged in.
    pub place: Option<Arc<LoginPlace>>,
    /// The password that it has logged in with, as it was then.
    pub password: Option<Fingerprint>,
    /// It is the user that the proof shows, and has not logged in as another.
    pub is_proven: bool,
    /// Its rights are those of the config of this generation.
    pub generation: u64,
    pub config: Arc<Config>,
    /// Its rules for locks.
    pub rules: Arc<Vec<Arc<RulePlace>>>,
    /// The pool that it last took from, as long as the config is the same.
    pub pool: Weak<NamedPool>,
    /// The broker that it last came to, for as long.
    pub broker: Weak<NamedBroker>,
    /// The waker of its connection, with which a waiting command registers from the start.
    pub waker: Waker,
    /// When it was last heard, by the clock of the lease table: that is when all that
    /// it says at once is done.
    pub now: u64,
    /// The commands of this batch, to be counted.
    pub batch: Batch,
    /// It has promised to say something this often.
    pub heartbeat: Option<Duration>,
    /// How it will end: properly, unless it vanishes.
    pub ending: Option<EndReason>,
    /// Which answers it wants.
    pub replies: Replies,
    /// When asking again has a chance, as the last no says.
    pub retry_after: Option<Duration>,
    /// How many units were held, and of how many, as the last no of a lock says.
    pub full: Option<Box<Full>>,
    /// The commands that it has queued behind `MULTI`.
    pub transaction: Option<Box<Transaction>>,
    /// `EXEC` is running, and none of its commands waits.
    pub is_in_exec: bool,
    /// What the other node said of a command that it forwarded here.
    pub sent: SentCommand,
    /// It is told where names of other nodes are, as a client of Redis Cluster.
    pub is_straight: bool,
    /// What it sends is encrypted, so it is told where nodes listen for such clients.
    pub is_tls: bool,
}

/// Details of a command that a node forwards to another node, or to itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentCommand {
    /// How many nodes have forwarded it.
    pub hops: u8,
    /// Its key was looked for on all nodes.
    pub vouched: Option<Vouched>,
    /// It has waited so long for values of any node, and there were none.
    pub waited: Option<Duration>,
    /// It gets nothing: others wait for what there is, or nothing is left anywhere.
    pub is_told_none: bool,
    /// Every node does its part of it.
    pub is_part: bool,
}

/// Which answers a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replies {
    /// All.
    On,
    /// None until it says otherwise.
    Off,
    /// All but that of the next command.
    Skip,
    /// The reply of this command is skipped.
    Skipping,
}

/// The work that a command leaves to its connection.
pub(crate) enum Next {
    /// Nothing: it was answered.
    Done,
    /// It waits.
    Wait(PendingCommand),
    /// The connection ends once the answer is written.
    Close,
    /// The queued commands are executed and answered together.
    Exec(Box<Transaction>),
}

/// A command that waits.
pub(crate) struct PendingCommand {
    /// Resolves to what is left to do then.
    pub answer: Pin<Box<dyn Future<Output = OnReady> + Send>>,
    /// The name of the thing that it waits for.
    pub name: String,
    /// The rights that its user needs when it is answered.
    pub awaits: Awaits,
    /// The answer is not wanted.
    pub is_silent: bool,
    /// It waits for work of the server, and for nothing that others have: it is not
    /// counted among the commands that wait.
    pub is_work: bool,
    /// It is an ask for a lock, which another node answers: asks for other locks need not
    /// wait for it.
    pub is_hop: bool,
}

/// The thing that a command waits for, to check the rights of its user at the answer.
#[derive(Clone, Debug)]
pub(crate) enum Awaits {
    /// Nothing that is not open to all.
    Anything,
    /// A thing of this kind, with the name that the wait has.
    Thing(&'static str),
    /// Values of these places.
    Values(Arc<[Prefer]>),
}

impl PendingCommand {
    /// Wait for something with this name.
    pub(crate) fn new(
        name: impl Into<String>,
        awaits: Awaits,
        answer: Pin<Box<dyn Future<Output = OnReady> + Send>>,
    ) -> Self {
        Self {
            answer,
            name: name.into(),
            awaits,
            is_silent: false,
            is_work: false,
            is_hop: false,
        }
    }

    /// Wait until the server has done something that takes a while.
    pub(crate) fn work(
        name: impl Into<String>,
        answer: Pin<Box<dyn Future<Output = OnReady> + Send>>,
    ) -> Self {
        Self {
            is_work: true,
            ..Self::new(name, Awaits::Anything, answer)
        }
    }
}

/// The work to do when a wait is over.
pub(crate) type OnReady = Box<dyn FnOnce(&mut Client) + Send>;

/// Tell the client of a panic.
#[cold]
pub(crate) fn answer_panic(panicked: Panicked) -> OnReady {
    Box::new(move |client| client.answer_panic(client.out.len(), panicked))
}

/// A mistake of the client, as it is told.
#[derive(Debug)]
pub(crate) struct CommandError(pub String);

/// Options that all acquiring commands share.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskArgs {
    /// Wait so long at most.
    pub wait: Option<Duration>,
    /// The longest wait there is where it waits, if it named a longer one.
    pub cap: Option<Duration>,
    /// Answer later.
    pub is_async: bool,
    /// The client's own name of the ask.
    pub nonce: Option<Vec<u8>>,
    /// The note of the holder.
    pub note: Option<Box<str>>,
}

impl From<Over> for CommandError {
    fn from(over: Over) -> Self {
        Self(format!("BUSY {over}."))
    }
}

impl CommandError {
    /// There is no such thing.
    pub(crate) fn no_such(kind: &str, name: impl fmt::Display, help: &str) -> Self {
        Self(format!("NOSUCH {kind} \"{name}\": {help}"))
    }
}

impl Client {
    /// Where answers go.
    pub(crate) fn reply(&mut self) -> Reply<'_> {
        Reply::new(&mut self.out, self.protocol)
    }

    /// Speak this version of the protocol from now on.
    pub(crate) fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.card.outbox.set_resp3(protocol == Protocol::Resp3);
    }

    /// It said something just now, or was answered after a wait.
    pub(crate) fn hear(&mut self) {
        let now = Instant::now();
        self.card.hear(now);
        self.now = self.daemon.lease_table.at(now);
    }

    /// All that it said at once is done. Says when.
    pub(crate) fn end_batch(&mut self) -> u64 {
        let now = self.daemon.lease_table.now();
        let took = now.saturating_sub(self.now);
        let timings = &self.daemon.timings;
        timings.add(self.card.id, &mut self.batch, took);
        now
    }

    /// Have the config as it is now.
    pub(crate) fn read_config(&mut self) {
        self.config = self.daemon.config.load_full();
        self.rules = Arc::clone(&self.daemon.catalog.load().rules);
        self.pool = Weak::new();
        self.broker = Weak::new();
    }

    /// Take back what was answered since the output had this length, and say that
    /// the server failed.
    #[cold]
    pub(crate) fn answer_panic(&mut self, before: usize, panicked: Panicked) {
        self.out.truncate(before);
        match self.replies {
            Replies::On | Replies::Skip => {
                self.reply().error(format_args!("ERR {panicked}."));
            }
            // This was the one to skip.
            Replies::Skipping => self.replies = Replies::On,
            Replies::Off => (),
        }
    }

    /// Whether the client may name something so.
    ///
    /// # Errors
    ///
    /// If it is too long, or has other characters than it may.
    #[inline]
    pub(crate) fn check_label(&self, label: Label, name: &[u8]) -> Result<(), CommandError> {
        let checked = label.check(name, &self.config.limits);
        checked.map_err(|bad| self.bad_label(&bad))
    }

    #[cold]
    fn bad_label(&self, bad: &BadLabel) -> CommandError {
        self.daemon.count_label(bad);
        CommandError(format!("ERR {bad}."))
    }

    /// Answer `OK`.
    pub(crate) fn reply_ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// The holder of its grants: the session, if it is attached to one.
    pub(crate) fn owner(&self) -> HolderId {
        self.session.map_or(self.holder, |(_, holder)| holder)
    }

    /// The name of its user.
    pub(crate) fn user_name(&self) -> &str {
        User::name_of(self.user.as_ref())
    }

    /// The same, to find what belongs to it; none if everything does, as to the
    /// operator, or to every client where there are no users.
    pub(crate) fn scope(&self) -> Option<&str> {
        self.daemon.operator.scope_of(self.user.as_ref())
    }

    /// Answer a refusal, with its reason and the name under which it is remembered.
    pub(crate) fn refuse(
        &mut self,
        kind: &'static str,
        name: &str,
        refusal: &Refusal,
        why: String,
        explained: impl FnOnce() -> String,
    ) {
        let no = refused(&self.daemon, kind, name, refusal, why, explained);
        self.tell_no(&no);
    }

    /// Answer a refusal.
    pub(crate) fn tell_no(&mut self, no: &Outcome) {
        self.retry_after = no.retry_after();
        no.write(&mut self.reply());
    }

    /// The wait of a command: what it says, or the usual, and no longer than
    /// one may.
    pub(crate) fn wait_max(&self, tail: &AskArgs) -> Duration {
        if self.is_in_exec && !tail.is_async {
            return Duration::ZERO;
        }
        let server = &self.config.server;
        let wait = tail.wait.unwrap_or(server.wait_default);
        wait.min(server.wait_max)
    }

    /// The terms on which a command waits. A wait that it names is a promise,
    /// the usual one a limit.
    pub(crate) fn terms(&self, tail: &AskArgs) -> AskOptions {
        let limit = self.wait_max(tail);
        let is_named = tail.wait.is_some() || self.is_in_exec && !tail.is_async;
        AskOptions {
            wait_max: is_named.then_some(limit),
            wait_default: Some(limit),
            ..AskOptions::default()
        }
    }

    /// Leave the session in this manner; it keeps what it holds.
    pub(crate) fn leave_session(&mut self, why: EndReason) {
        if let Some(far) = self.far.take() {
            far.leave(why);
        }
        if let Some((ticket, _)) = self.session.take() {
            self.daemon.sessions.detach(ticket, why);
            *self.card.session.lock() = None;
        }
    }

    /// Whether one more command may wait.
    ///
    /// # Errors
    ///
    /// If too many do.
    pub(crate) fn may_wait(&self) -> Result<(), CommandError> {
        let most = self.config.limits.waiters_max;
        let counts = &self.daemon.counts;
        if counts.waiting.load(Ordering::Relaxed) < most {
            let (user, limits) = (self.user.as_deref(), &self.config.limits);
            let checked = self.usage.check(Quota::Waiting, user, limits);
            return checked.map_err(|over| self.wait_refused(over));
        }
        counts.waits_refused.fetch_add(1, Ordering::Relaxed);
        Err(CommandError(format!(
            "BUSY limits.waiters_max ({most}) reached: retry later or raise it."
        )))
    }

    /// Count a command that begins to wait, exactly.
    ///
    /// # Errors
    ///
    /// If the limit of its user is reached.
    pub(crate) fn begin_wait(&self) -> Result<Waiting, CommandError> {
        let (user, limits) = (self.user.as_deref(), &self.config.limits);
        let counted = self.usage.take(Quota::Waiting, user, limits);
        let counted = counted.map_err(|over| self.wait_refused(over))?;
        self.daemon.counts.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Waiting {
            daemon: Arc::clone(&self.daemon),
            _counted: counted,
        })
    }

    #[cold]
    fn wait_refused(&self, over: Over) -> CommandError {
        let counts = &self.daemon.counts;
        counts.waits_refused.fetch_add(1, Ordering::Relaxed);
        over.into()
    }

    /// Counts one stream more of the client's user.
    pub(crate) fn stream(&self) -> impl Fn() -> Result<Counted, Over> + use<> {
        let (usage, user) = (Arc::clone(&self.usage), self.user.clone());
        let config = Arc::clone(&self.config);
        move || usage.take(Quota::Streams, user.as_deref(), &config.limits)
    }

    /// Count the connection as one of this user's, which it is about to be.
    ///
    /// # Errors
    ///
    /// If the user has reached its limit.
    pub(crate) fn connection_of(&self, user: &User) -> Result<Counted, Over> {
        let usage = self.daemon.quotas.of(&user.name);
        let own = self.connection.as_ref();
        // A connection that logs in as the user it is has been counted before.
        match own.is_some_and(|own| own.is_of(&usage)) {
            true => Ok(usage.count(Quota::Connections)),
            false => usage.take(Quota::Connections, Some(user), &self.config.limits),
        }
    }

    /// The connection's own card as a holder.
    pub(crate) fn holder_card(&self) -> Arc<Holder> {
        Arc::clone(&self.card.card.lock())
    }
}

/// A command that waits, counted until this is dropped.
#[must_use]
pub(crate) struct Waiting {
    daemon: Arc<Daemon>,
    _counted: Counted,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.daemon.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error while the server stops.
pub(crate) const STOPPING: &str = "the server is stopping: connect to another one, or come back \
    later";

/// An ask that waits no longer because the server stops.
pub(crate) fn closed(waited: Duration) -> Refusal {
    Refusal {
        reason: Reason::Closed,
        waited,
        len: 0,
        retry_after: Duration::ZERO,
    }
}

/// A refusal to be told, remembered for clients that ask about it.
pub(crate) fn refused(
    daemon: &Daemon,
    kind: &'static str,
    name: &str,
    refusal: &Refusal,
    why: String,
    explained: impl FnOnce() -> String,
) -> Outcome {
    let why = match refusal.reason {
        Reason::Closed if daemon.is_draining() => STOPPING.into(),
        _ => why,
    };
    let id = daemon.refusals.add(kind, name, refusal, &why, explained);
    Outcome::no(refusal, why, id)
}
