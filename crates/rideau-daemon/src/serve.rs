//! The server from its first breath to its last.
//!
//! Its [listeners](Listener) bring every connection that comes to an I/O thread, which serves it.

mod admission;
mod cluster;
mod drain;
mod give_back;
pub(crate) mod leak_check;
mod listener;
mod listening;
pub(crate) mod sd_notify;
mod serving;
mod store_side;
mod store_watch;
mod unheard;
mod upgrade;
mod values;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau_apps::inherited;
use rideau_config::{Config, Opening};
use rideau_process::panics;
use rustix::process::geteuid;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::cluster::Joining;
pub use self::cluster::{accept_restored, move_to_etcd};
pub(crate) use self::drain::drain;
#[cfg(test)]
pub(crate) use self::listener::Listener;
use self::upgrade::Newer;
use crate::net::control::ControlFiles;
use crate::redis::commands::NAMES;
use crate::state::apps_side::{AppsSide, SideKeys};
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::upgrades::{Upgradable, Upgrades};
use crate::state::versions::Source;

/// A client has this long to say within TLS which user it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The last lines of the log of requests are written within this.
const LOG_FLUSH_MAX: Duration = Duration::from_secs(2);
/// How often it is looked how far fences have come.
const EPOCHS: Duration = Duration::from_secs(10);
/// How often sessions are looked at whose time may be up.
const SESSIONS: Duration = Duration::from_millis(20);

/// End the sessions whose time is up, for ever.
pub(crate) async fn keep_sessions(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(SESSIONS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if daemon.sessions.is_empty() {
            continue;
        }
        for (row, why) in daemon.sessions.expired(Instant::now()) {
            let count = daemon.end_holder_in_slices(row.holder, why).await;
            let name = row.card.name.lock().clone();
            let how = match why {
                EndReason::Quit => "ended with its last connection",
                EndReason::Expired => "expired",
                _ => "lost its last connection",
            };
            let leases = rideau_config::human::count(count, "lease");
            let text = format!("{name} {how} and gave {leases} back");
            daemon.events.add("session", &name, text, None);
        }
    }
}

/// Write down how far fences have come, for ever.
async fn keep_epochs(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(EPOCHS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let daemon = Arc::clone(&daemon);
        let follow = move || {
            // Every fence was asked for with a command, and not every command gets one.
            let given = daemon.timings.count("LOCK");
            daemon.epochs.follow(given, &daemon.config.load());
        };
        let _ = panics::away(follow).await;
    }
}

/// Where a server that is ready can be reached.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Every address, those for applications last.
    pub addresses: Vec<String>,
    /// How many are for applications.
    pub applications: usize,
    /// The operator's files, if there is a place for them.
    pub control: Option<ControlPaths>,
    /// The page, as a link whose token tells who comes there; none where no client can
    /// come, or users say who they are.
    pub page: Option<String>,
}

/// The operator's files.
#[derive(Clone, Debug)]
pub struct ControlPaths {
    /// The socket.
    pub socket: PathBuf,
    /// The token.
    pub token: PathBuf,
}

/// Serve what a config says until an operator asks us to stop.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run(config: Config, ready: impl FnOnce(&Ready)) -> io::Result<()> {
    let source = Source::of(&config);
    run_from(config, source, ready).await
}

/// As [`run`], with the text of the config and the file that has it, which is read
/// again when an operator asks for it.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run_from(
    config: Config,
    source: Source,
    ready: impl FnOnce(&Ready),
) -> io::Result<()> {
    let no = Upgradable::default();
    run_upgradable(config, source, no, |now, _| ready(now)).await
}

/// As [`run_from`], with how a newer program can take over. If this program was started by an
/// older one for that, it takes over.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run_upgradable(
    config: Config,
    source: Source,
    upgradable: Upgradable,
    ready: impl FnOnce(&Ready, &Arc<Daemon>),
) -> io::Result<()> {
    // Before any client is served: a signal that comes before would end the program.
    let stop = StopAsked::listen()?;
    let upgrades = Upgrades::new(upgradable);
    if Newer::is_wanted() {
        return serving::take_over(config, source, upgrades, stop, ready).await;
    }
    let joining = match &config.cluster {
        Some(cluster) => Some(Joining::open(&config, cluster).await?),
        None => None,
    };
    let cluster = joining.as_ref().map(|joining| Arc::clone(&joining.cluster));
    let side = AppsSide::new(&config, SideKeys::default(), upgrades);
    let side = side.map_err(io::Error::other)?;
    let daemon = Daemon::after_others(config, source, NAMES, cluster, side);
    let daemon = daemon.map_err(io::Error::other)?;
    serving::run(daemon, joining, stop, ready).await
}

/// As [`run`], for a server that has been made already.
///
/// # Errors
///
/// If it cannot listen.
pub async fn run_daemon(daemon: Arc<Daemon>, ready: impl FnOnce(&Ready)) -> io::Result<()> {
    serving::run(daemon, None, StopAsked::listen()?, |now, _| ready(now)).await
}

impl ControlPaths {
    fn of(files: &ControlFiles) -> Self {
        Self {
            socket: files.socket.clone(),
            token: files.token.clone(),
        }
    }
}

/// Log what an operator should know of this start.
fn warn(daemon: &Daemon, config: &Config) {
    daemon.values.warn_of_quarantine();
    tell_what_is_open(daemon, config);
    for unused in inherited::give_up_unused() {
        tracing::warn!("{unused}");
    }
    if let Some(shortage) = daemon.files.shortage(config) {
        tracing::warn!("{shortage}");
    }
}

/// Say what is open to whom.
fn tell_what_is_open(daemon: &Daemon, config: &Config) {
    for open in daemon.values.open_to_others() {
        tracing::warn!("{open}");
    }
    for Opening { text, is_risky } in rideau_config::openings(config, geteuid().is_root()) {
        match is_risky {
            true => tracing::warn!("{text}"),
            false => tracing::info!("{text}"),
        }
    }
}

/// Read the file again whenever a signal asks for it, for ever. What is wrong
/// with it is an event.
async fn reload_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        sd_notify::tell(&sd_notify::reloading());
        match panics::contain(|| daemon.reload("SIGHUP")) {
            Ok(Ok(_)) => (),
            Ok(Err(why)) => tracing::warn!("SIGHUP changed nothing: {why}"),
            Err(panicked) => tracing::error!("SIGHUP ended with an {panicked}"),
        }
        sd_notify::tell("READY=1");
    }
}

/// Open the files of the log of requests anew whenever a signal asks for it, for ever.
async fn reopen_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        daemon.front.reopen_logs();
    }
}

/// Have a newer program take over whenever a signal asks for it, for ever.
async fn upgrade_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        if let Err(why) = daemon.ask_upgrade(None, "SIGUSR2") {
            let text = format!("SIGUSR2 changed nothing: {why}");
            daemon.events.add("server", "upgrade", text, None);
        }
    }
}

/// The signals that ask us to stop.
struct StopAsked {
    term: Signal,
    interrupt: Signal,
}

impl StopAsked {
    /// The other signals are listened for later. One that comes before does nothing.
    fn listen() -> io::Result<Self> {
        for other in [
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ] {
            drop(signal(other)?);
        }
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}
