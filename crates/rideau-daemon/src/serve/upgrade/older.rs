//! The server that is replaced, as its driver carries out what the core decides.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rideau_apps::PassedListener;
use rideau_core::upgrade::{OldSide, OldSideEffect, OldSideLimits, UpgradeFault};
use rideau_core::{Brief, Instant, Machine};
use rideau_process::{PassReceiver, PassSender};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant as Clock;

use super::last_lines::LastLines;
use super::program::{self, NewerProcess};
use super::words::{Offer, UpgradeWord, say, send_offer, understood};
use crate::state::apps_side::AppsSide;
use crate::state::upgrades::{StartedAs, UpgradeWish};

/// A process that was just started takes its messages within this, or hangs.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// The server that may be replaced.
pub(crate) struct Older {
    side: AppsSide,
    machine: OldSide,
    began: Clock,
    effects: VecDeque<OldSideEffect>,
    heard: mpsc::UnboundedReceiver<(u64, Heard)>,
    hear: mpsc::UnboundedSender<(u64, Heard)>,
    wish: Option<UpgradeWish>,
    newer: Option<Newer>,
    /// What is known of why it fails.
    why: String,
}

/// The newer server as long as it is there.
struct Newer {
    sender: PassSender,
    pid: Option<i32>,
    kill: Option<oneshot::Sender<()>>,
}

/// What is heard of the newer server.
enum Heard {
    Checked(Result<(), String>),
    Word(UpgradeWord),
    /// Its process has ended, and this is how.
    Gone(String),
}

/// What the server as a whole has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OlderTurn {
    /// Gather what the newer one has to know.
    Offer,
    /// Close what both cannot have open.
    Close,
    /// Open it again.
    Open,
    /// Finish, and end.
    Leave,
}

impl Older {
    pub(crate) fn new(side: AppsSide) -> Self {
        let (hear, heard) = mpsc::unbounded_channel();
        Self {
            side,
            machine: OldSide::new(OldSideLimits::default()),
            began: Clock::now(),
            effects: VecDeque::new(),
            heard,
            hear,
            wish: None,
            newer: None,
            why: String::new(),
        }
    }

    /// Go on with upgrades until the server as a whole has something to do.
    pub(crate) async fn next(&mut self) -> OlderTurn {
        loop {
            while let Some(effect) = self.effects.pop_front() {
                if let Some(turn) = self.perform(effect).await {
                    return turn;
                }
            }
            let due = self.machine.deadline();
            let due = due.map(|due| self.began + due.since(Instant::START));
            tokio::select! {
                wish = self.side.upgrades.next(), if self.wish.is_none() => self.begin(wish),
                Some((serial, heard)) = self.heard.recv() => {
                    if self.wish.as_ref().is_some_and(|wish| wish.serial == serial) {
                        self.hear(heard);
                    }
                }
                () = sleep_until(due) => self.step(OldSide::advance),
            }
        }
    }

    /// What both cannot have open is closed.
    pub(crate) fn closed(&mut self) {
        self.step(OldSide::closed);
    }

    /// The server was told to stop: the newer one ends, unless it serves.
    pub(crate) async fn stop(&mut self) {
        self.step(OldSide::stop);
        while let Some(effect) = self.effects.pop_front() {
            self.perform(effect).await;
        }
    }

    /// Send what the newer server has to know.
    pub(crate) async fn offer(&mut self, mut offer: Offer, sockets: &[PassedListener]) {
        let (Some(newer), Some(wish)) = (&self.newer, &self.wish) else {
            return;
        };
        offer.serial = wish.serial;
        let sending = send_offer(&newer.sender, offer, sockets);
        let sent = tokio::time::timeout(SENT_WITHIN, sending).await;
        // One that is gone, or hangs, is noticed as that.
        if let Ok(Err(error)) = sent {
            self.cannot_offer(&error);
        }
    }

    /// The newer server cannot be given what it needs.
    pub(crate) fn cannot_offer(&mut self, error: &io::Error) {
        self.why = format!("; the listeners cannot be sent: {error}");
        self.step(|side, now, effects| side.abort(UpgradeFault::Ended, now, effects));
    }

    /// The newer server's process.
    pub(crate) fn newer_pid(&self) -> Option<i32> {
        self.newer.as_ref()?.pid
    }

    /// Tell the newer server, which serves, how many processes are left here.
    pub(crate) async fn tell_left(&self, processes: usize, is_free: bool) {
        if let Some(newer) = &self.newer {
            let word = UpgradeWord::Left { processes, is_free };
            let _ = tokio::time::timeout(SENT_WITHIN, say(&newer.sender, &word)).await;
        }
    }

    fn begin(&mut self, wish: UpgradeWish) {
        let text = match &wish.program {
            None => "an upgrade begins".into(),
            Some(program) => format!("an upgrade to {} begins", program.display()),
        };
        self.tell(text, Some(&wish.by));
        self.wish = Some(wish);
        self.why.clear();
        // There is one at a time, which the list of upgrades sees to.
        self.step(|side, now, effects| {
            let _ = side.ask(now, effects);
        });
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Checked(checked) => {
                let is_good = checked.is_ok();
                self.why = checked
                    .err()
                    .map_or_else(String::new, |why| format!(": {why}"));
                self.step(|side, now, effects| side.checked(is_good, now, effects));
            }
            Heard::Word(UpgradeWord::Hello { version, protocol }) => {
                tracing::info!(version, protocol, "the newer server is there");
                self.step(|side, now, effects| side.hello(protocol, now, effects));
            }
            Heard::Word(UpgradeWord::Ready) => self.step(OldSide::ready),
            Heard::Word(UpgradeWord::Serving) => self.step(OldSide::serving),
            Heard::Word(UpgradeWord::Abort { why }) => {
                self.why = format!(": {why}");
                self.step(|side, now, effects| side.abort(UpgradeFault::AppFails, now, effects));
            }
            Heard::Word(_) => (),
            Heard::Gone(how) => {
                if self.why.is_empty() {
                    self.why = format!(": {how}");
                }
                self.step(OldSide::gone);
            }
        }
    }

    fn step(&mut self, decide: impl FnOnce(&mut OldSide, Instant, &mut Vec<OldSideEffect>)) {
        let now = Instant::START + self.began.elapsed();
        let mut effects = Vec::new();
        decide(&mut self.machine, now, &mut effects);
        self.effects.extend(effects);
        if let Some(step) = self.machine.step() {
            self.side.upgrades.show(step, self.newer_pid());
        }
    }

    async fn perform(&mut self, effect: OldSideEffect) -> Option<OlderTurn> {
        match effect {
            OldSideEffect::Check => self.check(),
            OldSideEffect::Start => self.start(),
            OldSideEffect::Offer => return Some(OlderTurn::Offer),
            OldSideEffect::Close => return Some(OlderTurn::Close),
            OldSideEffect::Yours => {
                // Those that come wait for the newer one, or for this one if it fails.
                self.side.front.accept(false);
                if let Some(newer) = &self.newer {
                    let said = say(&newer.sender, &UpgradeWord::Yours);
                    let _ = tokio::time::timeout(SENT_WITHIN, said).await;
                }
            }
            OldSideEffect::Kill => {
                self.side.front.accept(true);
                let newer = self.newer.as_mut();
                if let Some(kill) = newer.and_then(|newer| newer.kill.take()) {
                    let _ = kill.send(());
                }
            }
            OldSideEffect::Open => {
                self.side.front.accept(true);
                return Some(OlderTurn::Open);
            }
            OldSideEffect::Fail(fault) => self.fail(fault),
            OldSideEffect::Leave => return Some(OlderTurn::Leave),
        }
        None
    }

    fn how(&self) -> Option<(PathBuf, StartedAs, u64)> {
        let how = self.side.upgrades.how().ok()?.clone();
        let wish = self.wish.as_ref()?;
        let program = wish.program.clone().unwrap_or_else(|| how.program.clone());
        Some((program, how, wish.serial))
    }

    fn check(&self) {
        let Some((program, how, serial)) = self.how() else {
            return;
        };
        let hear = self.hear.clone();
        tokio::spawn(async move {
            let checked = program::check(&program, &how).await;
            let _ = hear.send((serial, Heard::Checked(checked)));
        });
    }

    fn start(&mut self) {
        let Some((program, how, serial)) = self.how() else {
            return;
        };
        match program::start(&program, &how) {
            Ok(process) => {
                let (kill, killed) = oneshot::channel();
                self.newer = Some(Newer {
                    sender: process.sender.clone(),
                    pid: process.child.id().and_then(|pid| i32::try_from(pid).ok()),
                    kill: Some(kill),
                });
                tokio::spawn(watch(process, killed, self.hear.clone(), serial));
            }
            Err(error) => {
                self.why = format!(": {}: {error}", program.display());
                self.step(OldSide::not_started);
            }
        }
    }

    /// The newer server is gone, and this one goes on as before.
    fn fail(&mut self, fault: UpgradeFault) {
        self.side.front.accept(true);
        self.newer = None;
        self.wish = None;
        let why = std::mem::take(&mut self.why);
        let text = format!("upgrade_failed: {fault}");
        self.tell(text.clone(), None);
        // What programs wrote, and what the config says, is not for all.
        let text = text + &why;
        if !why.is_empty() {
            self.side
                .events
                .add("config", "upgrade", text.clone(), None);
        }
        self.side.upgrades.fail(text);
    }

    fn tell(&self, text: String, by: Option<&str>) {
        self.side.events.add("server", "upgrade", text, by);
    }

    /// The newer server serves.
    pub(crate) fn tell_done(&self) {
        let pid = self.newer_pid().unwrap_or_default();
        let took = self.side.upgrades.last().map(|last| last.since.elapsed());
        let took = Brief(took.unwrap_or_default());
        let text = format!("process {pid} has taken over after {took}; this one finishes");
        self.tell(text, None);
    }
}

/// Hear what the newer server says, until its process has ended.
async fn watch(
    process: NewerProcess,
    killed: oneshot::Receiver<()>,
    hear: mpsc::UnboundedSender<(u64, Heard)>,
    serial: u64,
) {
    let NewerProcess {
        mut child,
        receiver,
        lines,
        sender: _sender,
    } = process;
    let words = tokio::spawn(words(receiver, hear.clone(), serial));
    let ended = tokio::select! {
        ended = child.wait() => ended,
        Ok(()) = killed => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    // Its last words may say why.
    let _ = tokio::time::timeout(SENT_WITHIN, words).await;
    let how = match ended {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let _ = hear.send((serial, Heard::Gone(format!("{how}{}", said(&lines).await))));
}

/// What a process wrote last that has just ended.
async fn said(lines: &LastLines) -> String {
    // What it wrote may be on its way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    lines.said()
}

async fn words(mut receiver: PassReceiver, hear: mpsc::UnboundedSender<(u64, Heard)>, serial: u64) {
    while let Ok(Some(message)) = receiver.next().await {
        match understood(&message) {
            Ok(word) => drop(hear.send((serial, Heard::Word(word)))),
            Err(error) => tracing::warn!("the newer server is not understood: {error}"),
        }
    }
}

async fn sleep_until(due: Option<Clock>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
