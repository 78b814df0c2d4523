//! The server's state, whichever asks: a Redis client, HTTP or a signal.

mod change;
mod held;
mod rights;
mod upgrade;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rideau::{Locks, LocksOptions, OptionError};
use rideau_apps::Apps;
use rideau_apps::Events;
use rideau_apps::Front;
use rideau_config::label::BadLabel;
use rideau_config::{Config, User};
use rideau_process as process;
use rideau_process::panics;
use tokio::sync::{Notify, watch};

use crate::state::alarms::Alarms;
use crate::state::apps_side::{AppsSide, SideKeys};
use crate::state::budget::Budget;
use crate::state::catalog::{Catalog, FOR_EVER, Left};
use crate::state::catalog_cell::CatalogCell;
use crate::state::certificates::CertificateBook;
use crate::state::clients::{ClientCard, Clients};
use crate::state::cluster::Cluster;
use crate::state::command_stats::{CommandNames, CommandStats};
use crate::state::counters::{ForeignReleases, Reclaims};
use crate::state::end::{EndReason, NotHeld};
use crate::state::epochs::Epochs;
use crate::state::files::Files;
use crate::state::grant::Grant;
use crate::state::holder::Holder;
use crate::state::lease_table::{LeaseEntry, LeaseRow, LeaseTable};
use crate::state::lock_rules::rule_locks;
use crate::state::log;
use crate::state::logins::Logins;
use crate::state::operator::Operator;
use crate::state::push::Push;
use crate::state::quota::Quotas;
use crate::state::refusal_log::RefusalLog;
use crate::state::reserve::Reserve;
use crate::state::semaphore::ResizableSemaphore;
use crate::state::series::SeriesReader;
use crate::state::sessions::Sessions;
use crate::state::shared_catalog::SharedCatalog;
use crate::state::ticket::Ticket;
use crate::state::upgrades::Upgrades;
use crate::state::values::{NamedRanges, NotOpened, Values};
use crate::state::versions::{Settings, Source};

pub(crate) use change::{Unchanged, joined, warn_of_file};
pub(crate) use held::LockCount;
pub(crate) use rights::no_use;

/// All that the server knows.
pub struct Daemon {
    /// The running config.
    pub(crate) config: ArcSwap<Config>,
    /// Everything that has a name.
    pub(crate) catalog: Arc<CatalogCell>,
    /// The units of all keys.
    pub(crate) locks: Locks<Vec<u8>>,
    /// The values of all ranges.
    pub(crate) values: Values,
    /// The cluster that it is a node of.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Which holder holds what.
    pub(crate) lease_table: LeaseTable,
    /// The connections.
    pub(crate) clients: Clients,
    /// The sessions.
    pub(crate) sessions: Sessions,
    /// How much each user has of shared limits.
    pub(crate) quotas: Quotas,
    pub(crate) events: Arc<Events>,
    /// The alarms.
    pub(crate) alarms: Alarms,
    /// The certificates of the front.
    pub(crate) certificates: Arc<CertificateBook>,
    /// Which users logged in, and which did not.
    pub(crate) logins: Logins,
    /// The last asks that were refused, to explain them.
    pub(crate) refusals: RefusalLog,
    pub(crate) counts: Counts,
    /// How often each command was executed, and how long that took.
    pub(crate) timings: CommandStats,
    /// When it began.
    pub(crate) started: Instant,
    /// No new client is served any more,
    pub(crate) draining: AtomicBool,
    /// which is told here.
    stopping: Notify,
    /// Every HTTP connection listens to this for its end.
    pub(crate) ending: watch::Sender<bool>,
    /// Where fences begin.
    pub(crate) epochs: Epochs,
    /// The files that there may be.
    pub(crate) files: Files,
    /// Room for what clients have sent and not finished.
    pub(crate) input: Arc<Budget>,
    /// The operator, which is not a user of the config.
    pub(crate) operator: Operator,
    /// Room for health checks when there are too many connections.
    pub(crate) reserve: Reserve,
    /// Turns to check a password.
    pub(crate) password_checks: ResizableSemaphore,
    /// The text of the config, and earlier versions.
    pub(crate) settings: Settings,
    /// The applications.
    pub(crate) apps: Apps,
    /// HTTP in front of them.
    pub(crate) front: Arc<Front>,
    /// Programs that take over from this one.
    pub(crate) upgrades: Arc<Upgrades>,
    /// The history, if one is kept.
    pub(crate) series: OnceLock<SeriesReader>,
}

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counts {
    /// Commands that were executed.
    pub commands: AtomicU64,
    /// Connections that came.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub turned_away: AtomicU64,
    /// Commands that wait now.
    pub waiting: AtomicUsize,
    /// Commands that were not let wait because too many did.
    pub waits_refused: AtomicU64,
    /// Grants that a holder could not keep because it had too many.
    pub held_refused: AtomicU64,
    /// Requests that were no requests.
    pub protocol_errors: AtomicU64,
    /// Connections that were cut because they did not read.
    pub slow: AtomicU64,
    /// Failed attempts to log in.
    pub denied: AtomicU64,
    /// Connections that were closed because they had not logged in.
    pub logins_late: AtomicU64,
    /// Connections that were turned away because too many of their address had not
    /// logged in.
    pub logins_crowded: AtomicU64,
    /// Things released on another connection than they were taken on.
    pub foreign_releases: ForeignReleases,
    /// Things taken back from holders that ended.
    pub reclaims: Reclaims,
    /// Requests that were too long.
    pub frames_refused: AtomicU64,
    /// Commands that were cut because too much of all was half sent.
    pub inputs_refused: AtomicU64,
    /// Connections that sent too much behind a command that waited.
    pub pipelines_refused: AtomicU64,
    /// Keys that were refused because there were too many.
    pub keys_refused: AtomicU64,
    /// Sessions that were refused because there were too many.
    pub sessions_refused: AtomicU64,
    /// Pools that were not added because there were too many names.
    pub names_refused: AtomicU64,
    /// Names and keys that were too long.
    pub long_names: AtomicU64,
    /// Passwords that were checked later because others were being checked.
    pub checks_delayed: AtomicU64,
    /// Changes of configuration.
    pub changes: AtomicU64,
    /// Values that were not given out because too many had holders.
    pub reservations_refused: AtomicU64,
    /// Ranges that were not added because there were too many.
    pub ranges_refused: AtomicU64,
    /// Commands that had too many keys for a value.
    pub range_keys_refused: AtomicU64,
    /// Commands that had too much data for a value.
    pub range_data_refused: AtomicU64,
}

/// Why a server cannot do what a config says.
#[derive(Debug)]
pub enum NotDone {
    /// An option breaks a rule.
    Option(OptionError),
    /// Values cannot be given out like that.
    Values(NotOpened),
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(error) => error.fmt(f),
            Self::Values(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotDone {}

impl From<OptionError> for NotDone {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

impl From<NotOpened> for NotDone {
    fn from(error: NotOpened) -> Self {
        Self::Values(error)
    }
}

impl Daemon {
    /// The applications.
    pub const fn apps(&self) -> &Apps {
        &self.apps
    }

    /// A server that was told this.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or the store cannot be used.
    pub fn new(config: Config, commands: CommandNames) -> Result<Arc<Self>, NotDone> {
        let source = Source::of(&config);
        Self::with(config, source, commands)
    }

    /// A server that was told this by a text, which a file may have.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or the store cannot be used.
    pub fn with(
        config: Config,
        source: Source,
        commands: CommandNames,
    ) -> Result<Arc<Self>, NotDone> {
        let side = AppsSide::new(&config, SideKeys::default(), Upgrades::default())?;
        Self::from_epoch(config, source, commands, Epochs::by_clock(), None, side)
    }

    /// The same, with these applications; and fences grow on from those of the one before it,
    /// whatever the clock says.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or the store cannot be used.
    pub(crate) fn after_others(
        config: Config,
        source: Source,
        commands: CommandNames,
        cluster: Option<Arc<Cluster>>,
        side: AppsSide,
    ) -> Result<Arc<Self>, NotDone> {
        let epochs = Epochs::begin(&config);
        Self::from_epoch(config, source, commands, epochs, cluster, side)
    }

    fn from_epoch(
        config: Config,
        source: Source,
        commands: CommandNames,
        epochs: Epochs,
        cluster: Option<Arc<Cluster>>,
        side: AppsSide,
    ) -> Result<Arc<Self>, NotDone> {
        let AppsSide {
            events,
            run_dirs,
            apps,
            front,
            certificates,
            token,
            upgrades,
        } = side;
        let files = Files::new(process::raise_open_files(), &config);
        let mut catalog = Catalog::new(&config, Arc::clone(&run_dirs))?;
        let values = Values::open(&config, epochs.first(), cluster.as_deref())?;
        catalog.ranges = Arc::new(values.named_ranges(&config, &NamedRanges::default()));
        let locks = Locks::with(LocksOptions {
            fence: epochs.first(),
            ..LocksOptions::default()
        })?;
        rule_locks(&locks, &config)?;
        if let Some(cluster) = &cluster {
            cluster.names.follow(&Arc::new(config.clone()));
        }
        let daemon = Arc::new(Self {
            epochs,
            files,
            input: Arc::new(Budget::new(config.limits.input_max)),
            operator: Operator::known_by(token),
            upgrades,
            password_checks: ResizableSemaphore::new(config.limits.password_checks_max),
            settings: Settings::new(&config, source),
            alarms: Alarms::new(&config, Arc::clone(&events)),
            config: ArcSwap::from_pointee(config),
            catalog: Arc::new(CatalogCell::new(catalog)),
            locks,
            values,
            cluster,
            apps,
            front,
            series: OnceLock::new(),
            lease_table: LeaseTable::default(),
            clients: Clients::default(),
            sessions: Sessions::default(),
            quotas: Quotas::default(),
            reserve: Reserve::default(),
            logins: Logins::new(Arc::clone(&events)),
            events,
            certificates,
            refusals: RefusalLog::default(),
            counts: Counts::default(),
            timings: CommandStats::new(commands),
            started: Instant::now(),
            draining: AtomicBool::new(false),
            stopping: Notify::new(),
            ending: watch::Sender::new(false),
        });
        if let Some(cluster) = &daemon.cluster {
            let places = SharedCatalog::new(&daemon.catalog, cluster.partitions);
            cluster.names.set_places(Arc::new(places));
        }
        let told = Arc::downgrade(&daemon);
        run_dirs.on_loss(move || {
            if let Some(daemon) = told.upgrade() {
                daemon.take_dead_members();
            }
        });
        Ok(daemon)
    }

    /// Change everything at once. A waiter or a holder keeps its place; what is held of
    /// pools that are gone is taken back after `within`, if that is said. One change at
    /// a time: [`settings`](crate::state::versions) sees to it.
    ///
    /// # Errors
    ///
    /// If that cannot be; then nothing has changed.
    pub(crate) fn reconfigure(
        self: &Arc<Self>,
        config: Config,
        within: Option<Duration>,
    ) -> Result<(), NotDone> {
        Catalog::validate(&config)?;
        Apps::validate(&config)?;
        self.values.follow(&self.config.load(), &config)?;
        rule_locks(&self.locks, &config)?;
        let left = self.catalog.change(|old| {
            let (mut catalog, left) = old.changed(&config)?;
            catalog.ranges = Arc::new(self.values.named_ranges(&config, &old.ranges));
            Ok::<_, NotDone>((catalog, left))
        })?;
        let checks = config.limits.password_checks_max;
        let input_max = config.limits.input_max;
        log::set_level(config.log.level);
        self.apps.follow(&config);
        self.front.follow(config.front.clone());
        self.files.follow(&config);
        self.alarms.follow(&config);
        let config = Arc::new(config);
        if let Some(cluster) = &self.cluster {
            cluster.names.follow(&config);
            cluster.follow_places();
        }
        self.config.store(config);
        self.password_checks.set_max(checks);
        self.input.set_max(input_max);
        self.counts.changes.fetch_add(1, Ordering::Relaxed);
        self.let_go(left, within);
        Ok(())
    }

    /// Close what a change left behind: no ask waits there any more, and a holder of a
    /// member keeps it until it is done, or until its time is up. A panic in one step
    /// keeps none of the others.
    fn let_go(self: &Arc<Self>, left: Left, within: Option<Duration>) {
        for place in left.pools {
            let daemon = Arc::clone(self);
            tokio::spawn(async move {
                // A pool that is gone wants nothing brought.
                let _ = panics::contain(|| {
                    daemon.revoke(
                        |grant| grant.is_offer_of(&place),
                        EndReason::Revoked,
                        "removed",
                    )
                });
                let within = within.unwrap_or(FOR_EVER);
                let closed = panics::contain_async(async {
                    #[cfg(test)]
                    assert!(&*place.name != "panics-in-close", "planted");
                    tokio::time::timeout(within, place.pool.close(within)).await
                });
                if closed.await.is_err() {
                    // Holders have their time all the same.
                    tokio::time::sleep(within).await;
                }
                let _ = panics::contain(|| {
                    daemon.revoke(
                        |grant| grant.is_member_of(&place),
                        EndReason::Revoked,
                        "removed",
                    )
                });
            });
        }
        for place in &left.brokers {
            let _ = panics::contain(|| place.broker.close());
        }
        for place in &left.regulators {
            let _ = panics::contain(|| place.regulator.close());
        }
    }

    /// Take back what is wanted, and tell its holders.
    pub fn revoke(
        &self,
        wanted: impl Fn(&Grant) -> bool,
        why: EndReason,
        said: &'static str,
    ) -> usize {
        let mut count = 0;
        for LeaseRow { ticket, card, .. } in self.lease_table.late(|grant, _| wanted(grant)) {
            // Whatever one does, the others are taken back as well.
            let taken = panics::contain(|| {
                let taken = self.lease_table.take_from(ticket, why)?;
                end(taken.thing, why);
                Ok::<_, NotHeld>(())
            });
            if matches!(taken, Ok(Err(_))) {
                continue;
            }
            count += 1;
            self.counts.reclaims.add(ticket.kind, why);
            for client in self.clients_of(&card) {
                client.outbox.push(Push::Revoked(ticket, said));
            }
        }
        count
    }

    /// A member was lent just now. If it has ended meanwhile, its holder was unknown when
    /// that was told.
    pub(crate) fn look_for_death(&self, ticket: Ticket) {
        let is_dead = |thing: &mut LeaseEntry| thing.grant().is_some_and(Grant::is_dead_member);
        if self.lease_table.look(ticket, None, is_dead) == Ok(true) {
            self.take_dead_members();
        }
    }

    /// Take members that have ended by themselves from their holders.
    pub(crate) fn take_dead_members(&self) -> usize {
        self.revoke(Grant::is_dead_member, EndReason::Died, "died")
    }

    /// The connections of a holder: itself, or all of its session.
    pub(super) fn clients_of(&self, card: &Holder) -> Vec<Arc<ClientCard>> {
        if let Some(id) = card.connection {
            return self.clients.find(id).into_iter().collect();
        }
        let mut all = self.clients.all();
        all.retain(|client| *client.session.lock() == card.session);
        all
    }

    /// End the connections and sessions of users that are no more.
    pub(crate) fn end_users(&self, old: &Config) {
        let config = self.config.load();
        let is_gone = |user: &str| {
            let is = |users: &[User]| users.iter().any(|one| one.name == user);
            is(&old.users) && !is(&config.users)
        };
        for client in self.clients.all() {
            let user = Arc::clone(&client.card.lock().user);
            if is_gone(&user) {
                client.outbox.kill();
            }
        }
        for row in self.sessions.all() {
            if is_gone(&row.card.user) && self.sessions.close(row.ticket, None).is_some() {
                self.end_holder(row.holder, EndReason::Revoked);
            }
        }
    }

    /// The last command of a connection, or nothing if there was none.
    pub fn last_command(&self, card: &ClientCard) -> &'static str {
        self.timings.name(card.last.load(Ordering::Relaxed))
    }

    /// A client named something as it may not.
    pub(crate) fn count_label(&self, bad: &BadLabel) {
        let is_long = u64::from(bad.is_over_name_len());
        self.counts.long_names.fetch_add(is_long, Ordering::Relaxed);
    }

    /// No new client is served.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Grant nothing more: asks that wait are told `closed`, and those that come are
    /// refused. What is held stays with its holders. Pools are left to the tasks that
    /// wait for their members.
    pub(crate) fn stop_granting(&self) {
        self.draining.store(true, Ordering::Release);
        self.stopping.notify_waiters();
        self.locks.close();
        if let Some(cluster) = &self.cluster {
            cluster.give_up_asks();
        }
        self.values.ranges.refuse_asks();
        let catalog = self.catalog.load();
        for place in catalog
            .brokers
            .values()
            .filter(|place| place.shared.is_none())
        {
            let _ = panics::contain(|| place.broker.close());
        }
        for place in catalog
            .regulators
            .values()
            .filter(|place| place.shared.is_none())
        {
            let _ = panics::contain(|| place.regulator.close());
        }
    }

    /// Returns when nothing more is granted.
    pub(crate) async fn stopping(&self) {
        let told = self.stopping.notified();
        if !self.is_draining() {
            told.await;
        }
    }
}

#[inline]
fn end(thing: LeaseEntry, why: EndReason) {
    match thing {
        // Nothing else ends as often, and however it does, it is given back.
        LeaseEntry::Held(Grant::Lock(lock)) => drop(lock),
        LeaseEntry::Held(grant) | LeaseEntry::Answered(grant, _) => grant.end(why),
        LeaseEntry::Asked(later) => later.cancel(why.words()),
        LeaseEntry::None => (),
    }
}
