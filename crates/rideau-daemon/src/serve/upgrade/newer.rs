//! The server that takes over, as its driver carries out what the core decides.

use std::env;
use std::fs::File;
use std::future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rideau_apps::{AppHandover, inherited};
use rideau_config::Config;
use rideau_core::upgrade::{
    NewSide, NewSideEffect, NewSideLimits, UPGRADE_PROTOCOL, UpgradeFault, Warmth, process_room,
};
use rideau_core::{Instant, Machine};
use rideau_process::{PassReceiver, PassSender, inherit_open_files, pass_ends};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use tokio::time::Instant as Clock;

use super::words::{Offer, UpgradeWord, listeners, say, understood};
use crate::state::apps_side::AppsSide;
use crate::state::upgrades::UPGRADE_VARIABLE;

/// How often it is looked whether applications are ready.
const LOOK: Duration = Duration::from_millis(20);
/// An older server that was killed is gone within this.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
/// The older server takes a message within this, or hangs.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// A server that takes over from the one that started it.
pub(crate) struct Newer {
    machine: NewSide,
    began: Clock,
    sender: PassSender,
    receiver: PassReceiver,
    /// The older server.
    older: Option<OwnedFd>,
    is_older_gone: bool,
    /// Its outputs, for when it is gone.
    outputs: Vec<OwnedFd>,
    offer: Offer,
}

impl Newer {
    /// Whether this program was started to take over.
    pub(crate) fn is_wanted() -> bool {
        env::var_os(UPGRADE_VARIABLE).is_some()
    }

    /// Say to the server that started this one that it is there.
    ///
    /// # Errors
    ///
    /// If standard input is no socket.
    pub(crate) async fn join() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let (sender, receiver) = pass_ends(UnixStream::from(socket)).map_err(|error| {
            let text =
                format!("{UPGRADE_VARIABLE} is set, and standard input is no socket: {error}");
            io::Error::new(error.kind(), text)
        })?;
        // Nothing that is started here is to have it.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let older = getppid().and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut newer = Self {
            machine: NewSide::new(NewSideLimits::default(), Instant::START),
            began: Clock::now(),
            sender,
            receiver,
            older,
            is_older_gone: false,
            outputs: Vec::new(),
            offer: Offer::default(),
        };
        newer
            .say(&UpgradeWord::Hello {
                version: env!("CARGO_PKG_VERSION").into(),
                protocol: UPGRADE_PROTOCOL,
            })
            .await;
        Ok(newer)
    }

    /// Wait for the listeners, and what there is to know. If the older server is gone, there
    /// is nothing.
    ///
    /// # Errors
    ///
    /// If they do not come.
    pub(crate) async fn offered(&mut self) -> io::Result<Offer> {
        loop {
            let mut effects = Vec::new();
            let due = self.due();
            tokio::select! {
                came = self.receiver.next() => match came {
                    Ok(Some(message)) => {
                        let word = understood(&message)?;
                        let mut files = message.files.into_iter();
                        match word {
                            UpgradeWord::Sockets { sockets } => {
                                inherit(listeners(sockets, &mut files));
                            }
                            UpgradeWord::Offer(mut offer) => {
                                let sockets = std::mem::take(&mut offer.sockets);
                                inherit(listeners(sockets, &mut files));
                                self.outputs.extend(files);
                                inherit_open_files(offer.files_usual);
                                self.offer = *offer;
                                self.machine.offered(self.now(), &mut effects);
                                return Ok(self.offer.clone());
                            }
                            _ => (),
                        }
                    }
                    Ok(None) | Err(_) => {
                        self.is_older_gone = true;
                        self.machine.older_gone(self.now(), &mut effects);
                        return Ok(Offer::default());
                    }
                },
                () = sleep_until(due) => self.machine.advance(self.now(), &mut effects),
            }
            self.give_up_if(&effects, "").await?;
        }
    }

    /// Start the applications, and wait until this server may serve.
    ///
    /// # Errors
    ///
    /// If it never may.
    pub(crate) async fn warm_up(&mut self, side: &AppsSide, config: &Config) -> io::Result<()> {
        if self.is_older_gone {
            side.apps.begin(config);
            self.older_left().await;
            return Ok(());
        }
        let cap = self.room(config, self.offer.processes, self.starts());
        side.apps.begin_beside(config, &self.offer.apps, cap);
        let mut is_ready = false;
        loop {
            let mut effects = Vec::new();
            let mut why = String::new();
            let due = self.due();
            tokio::select! {
                came = self.receiver.next() => match came {
                    Ok(Some(message)) => {
                        if matches!(understood(&message)?, UpgradeWord::Yours) {
                            self.machine.yours(self.now(), &mut effects);
                        }
                    }
                    Ok(None) | Err(_) => {
                        self.is_older_gone = true;
                        self.machine.older_gone(self.now(), &mut effects);
                    }
                },
                () = tokio::time::sleep(LOOK), if !is_ready => {
                    let (warmth, found) = warmth(side, &self.offer.apps);
                    why = found;
                    self.machine.warmed(warmth, self.now(), &mut effects);
                }
                () = sleep_until(due) => self.machine.advance(self.now(), &mut effects),
            }
            self.give_up_if(&effects, &why).await?;
            if effects.contains(&NewSideEffect::Ready) {
                is_ready = true;
                self.say(&UpgradeWord::Ready).await;
            }
            if effects.contains(&NewSideEffect::Open) {
                if self.is_older_gone {
                    self.older_left().await;
                }
                return Ok(());
            }
        }
    }

    /// Wait for the end of a server that was killed: its socket is closed before its store is.
    async fn older_left(&self) {
        let Some(Ok(older)) = self.older.as_ref().map(OwnedFd::try_clone) else {
            return;
        };
        let within = Timespec::try_from(LEFT_WITHIN).expect("some seconds");
        let ended = move || {
            let _ = poll(&mut [PollFd::new(&older, PollFlags::IN)], Some(&within));
        };
        let _ = tokio::task::spawn_blocking(ended).await;
    }

    /// What the older one had closed is open here, and clients are served.
    pub(crate) async fn opened(&mut self, side: &AppsSide, config: &Config) {
        let mut effects = Vec::new();
        let finishes = Duration::from_millis(self.offer.finishes_ms);
        self.machine.opened(finishes, self.now(), &mut effects);
        self.take_outputs();
        side.apps.settle();
        if effects.contains(&NewSideEffect::Serving) {
            self.say(&UpgradeWord::Serving).await;
        } else {
            self.end_of_older(side, config);
        }
    }

    /// It cannot be opened: the older server has to know why.
    pub(crate) async fn not_opened(&mut self, why: &str) {
        let mut effects = Vec::new();
        self.machine.not_opened(&mut effects);
        let _ = self.give_up_if(&effects, why).await;
    }

    /// Look after the older server until it is gone.
    pub(crate) async fn see_off(mut self, side: AppsSide, config: impl Fn() -> Config) {
        while !self.machine.is_alone() {
            let mut effects = Vec::new();
            let due = self.due();
            tokio::select! {
                came = self.receiver.next() => match came {
                    Ok(Some(message)) => {
                        if let Ok(UpgradeWord::Left { processes, is_free }) = understood(&message) {
                            let config = config();
                            let room = self.room(&config, processes, side.apps.live());
                            side.apps.set_cap(&config, Some(room));
                            if is_free {
                                side.apps.free_addresses();
                            }
                        }
                    }
                    Ok(None) | Err(_) => self.machine.older_gone(self.now(), &mut effects),
                },
                () = sleep_until(due) => self.machine.advance(self.now(), &mut effects),
            }
            if effects.contains(&NewSideEffect::KillOlder) {
                let text = "the server before this one did not end in time, and is killed";
                side.events.add("server", "upgrade", text.into(), None);
                if let Some(older) = &self.older {
                    let _ = pidfd_send_signal(older, Signal::KILL);
                }
            }
        }
        self.end_of_older(&side, &config());
    }

    fn end_of_older(&self, side: &AppsSide, config: &Config) {
        side.apps.free_addresses();
        side.apps.set_cap(config, None);
    }

    /// Write where the older server did: it hands on nothing when it is gone.
    fn take_outputs(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs).into_iter();
        if let (Some(output), Some(error)) = (outputs.next(), outputs.next()) {
            let _ = rustix::stdio::dup2_stdout(output);
            let _ = rustix::stdio::dup2_stderr(error);
        }
    }

    fn starts(&self) -> usize {
        self.offer.apps.iter().map(|app| app.start).sum()
    }

    fn room(&self, config: &Config, other: usize, own: usize) -> usize {
        let overlap = usize::from(config.upgrade.overlap.0);
        process_room(config.front.limits.max, overlap, other, own)
    }

    fn now(&self) -> Instant {
        Instant::START + self.began.elapsed()
    }

    fn due(&self) -> Option<Clock> {
        let due = self.machine.deadline()?;
        Some(self.began + due.since(Instant::START))
    }

    async fn say(&mut self, word: &UpgradeWord) {
        // An older server that is gone, or hangs, is noticed as that.
        let _ = tokio::time::timeout(SENT_WITHIN, say(&self.sender, word)).await;
    }

    /// End if that was decided.
    async fn give_up_if(&mut self, effects: &[NewSideEffect], why: &str) -> io::Result<()> {
        let quits = effects.iter().find_map(|effect| match effect {
            NewSideEffect::Quit(fault) => Some(*fault),
            _ => None,
        });
        let Some(fault) = quits else {
            return Ok(());
        };
        let why = match (fault, why) {
            (UpgradeFault::Silent, _) => "the older server says nothing any more".to_owned(),
            (fault, "") => fault.to_string(),
            (_, why) => why.to_owned(),
        };
        let word = UpgradeWord::Abort { why: why.clone() };
        self.say(&word).await;
        Err(io::Error::other(format!(
            "this server cannot take over: {why}"
        )))
    }
}

/// The sockets are found by the options that name them.
fn inherit(all: Vec<inherited::PassedListener>) {
    for passed in all {
        if let Err(error) = inherited::add(passed) {
            tracing::warn!("a socket of the server before this one is of no use: {error}");
        }
    }
}

/// How far the applications are, and what is wrong with one that fails.
fn warmth(side: &AppsSide, apps: &[AppHandover]) -> (Warmth, String) {
    let mut warmth = Warmth::Ready;
    // One at a fixed address cannot start before the older one's is gone.
    let wanted = apps.iter().filter(|app| app.start > 0 && !app.is_fixed);
    for handover in wanted {
        let Some(app) = side.apps.find(&handover.name) else {
            continue;
        };
        let Some(shown) = side.apps.shown(&app) else {
            continue;
        };
        if shown.ready() >= handover.start {
            continue;
        }
        let tries = app.config.load().options.deploy_tries;
        match shown.stats.failing {
            Some(_) if handover.fails => (),
            Some((failures, _)) if failures >= tries => {
                let summary = shown.report.as_ref().map(|report| report.summary.as_str());
                let summary = summary.unwrap_or("its starts fail");
                let why = format!("app {} does not start there: {summary}", handover.name);
                return (Warmth::Fails, why);
            }
            _ => warmth = Warmth::Cold,
        }
    }
    (warmth, String::new())
}

async fn sleep_until(due: Option<Clock>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => future::pending().await,
    }
}
