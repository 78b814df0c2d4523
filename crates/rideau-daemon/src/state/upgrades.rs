//! Upgrades as operators ask for them and see them. What is done about them is elsewhere.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_config::Config;
use rideau_core::upgrade::UpgradeStep;
use tokio::sync::Notify;

/// A program that is started with this variable takes over from the one that started it.
pub const UPGRADE_VARIABLE: &str = "RIDEAU_UPGRADE";

/// How this program was started, so that a newer one can be started in the same way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartedAs {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The arguments that have a program look at the same config, if there is a file.
    pub check: Option<Vec<OsString>>,
}

/// Whether a server can be upgraded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upgradable {
    /// It was started by this.
    As(StartedAs),
    /// It cannot, and this is why.
    No(&'static str),
}

/// The upgrade of a server: the last one, and the one that runs.
pub(crate) struct Upgrades {
    upgradable: Upgradable,
    inner: Mutex<Inner>,
    asked: Notify,
}

#[derive(Default)]
struct Inner {
    serial: u64,
    wish: Option<UpgradeWish>,
    last: Option<UpgradeShown>,
}

/// An operator wants an upgrade.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UpgradeWish {
    pub(crate) serial: u64,
    /// Another program than before.
    pub(crate) program: Option<PathBuf>,
    /// The user that asks for it.
    pub(crate) by: String,
}

/// An upgrade as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UpgradeShown {
    pub(crate) serial: u64,
    pub(crate) state: UpgradeState,
    pub(crate) since: Instant,
    /// The process of the newer server, or this one if it is that.
    pub(crate) pid: Option<i32>,
}

/// How far an upgrade is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UpgradeState {
    Runs(UpgradeStep),
    /// This server is the newer one, and serves after so long.
    Done(Duration),
    /// Nothing came of it.
    Failed(String),
}

/// Why there is no upgrade.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoUpgrade {
    Running(u64),
    Impossible(&'static str),
    /// An app does not run the code that lies there.
    Unsettled(String, &'static str),
    /// The running config is in no file.
    Unsaved,
}

impl fmt::Display for NoUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(serial) => write!(
                f,
                "upgrade_running: upgrade {serial} is under way: wait for its end, which UPGRADE \
                 STATUS and `rideau status` tell"
            ),
            Self::Impossible(why) => f.write_str(why),
            Self::Unsaved => f.write_str(
                "the running config is not saved, and the newer server would not have it: CONFIG \
                 REWRITE saves it, CONFIG ROLLBACK goes back",
            ),
            Self::Unsettled(app, state) => write!(
                f,
                "app {app} is {state}: a newer server would run all of its new code. Wait until it \
                 is settled, or restart the app with code that is good"
            ),
        }
    }
}

impl Default for Upgradable {
    fn default() -> Self {
        Self::No("this server is a part of another program, which has to be started anew")
    }
}

impl Default for Upgrades {
    fn default() -> Self {
        Self::new(Upgradable::default())
    }
}

impl Upgrades {
    pub(crate) fn new(upgradable: Upgradable) -> Self {
        Self {
            upgradable,
            inner: Mutex::default(),
            asked: Notify::new(),
        }
    }

    /// An operator asks for an upgrade. Says which it is.
    ///
    /// # Errors
    ///
    /// If there can be none now.
    pub(crate) fn ask(
        &self,
        config: &Config,
        program: Option<PathBuf>,
        by: &str,
    ) -> Result<u64, NoUpgrade> {
        self.how().map_err(NoUpgrade::Impossible)?;
        if config.cluster.is_some() {
            return Err(NoUpgrade::Impossible(
                "a node of a cluster is not upgraded in place: drain it with `rideau cluster \
                 drain`, and start it anew; the other nodes go on with what it has",
            ));
        }
        let mut inner = self.inner.lock();
        let running = inner.last.as_ref().filter(|last| last.is_running());
        if let Some(running) = running {
            return Err(NoUpgrade::Running(running.serial));
        }
        inner.serial += 1;
        let serial = inner.serial;
        inner.wish = Some(UpgradeWish {
            serial,
            program,
            by: by.into(),
        });
        inner.last = Some(UpgradeShown {
            serial,
            state: UpgradeState::Runs(UpgradeStep::Checking),
            since: Instant::now(),
            pid: None,
        });
        drop(inner);
        self.asked.notify_one();
        Ok(serial)
    }

    /// How a newer program is started.
    ///
    /// # Errors
    ///
    /// If that cannot be.
    pub(crate) fn how(&self) -> Result<&StartedAs, &'static str> {
        match &self.upgradable {
            Upgradable::As(how) => Ok(how),
            Upgradable::No(why) => Err(why),
        }
    }

    /// Whether another program lies now where this one was started from.
    pub(crate) fn is_program_new(&self) -> bool {
        let Upgradable::As(how) = &self.upgradable else {
            return false;
        };
        // The system shows a program to itself, even one whose file was replaced.
        let file = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
        match (file(Path::new("/proc/self/exe")), file(&how.program)) {
            (Ok(running), Ok(there)) => running != there,
            _ => false,
        }
    }

    /// The next wish of an operator.
    pub(crate) async fn next(&self) -> UpgradeWish {
        loop {
            let asked = self.asked.notified();
            let wish = self.inner.lock().wish.take();
            if let Some(wish) = wish {
                return wish;
            }
            asked.await;
        }
    }

    /// The last upgrade, or the one that runs.
    pub(crate) fn last(&self) -> Option<UpgradeShown> {
        self.inner.lock().last.clone()
    }

    /// It is this far.
    pub(crate) fn show(&self, step: UpgradeStep, pid: Option<i32>) {
        if let Some(last) = &mut self.inner.lock().last {
            last.state = UpgradeState::Runs(step);
            last.pid = pid.or(last.pid);
        }
    }

    /// Nothing came of it.
    pub(crate) fn fail(&self, why: String) {
        if let Some(last) = &mut self.inner.lock().last {
            last.state = UpgradeState::Failed(why);
        }
    }

    /// This server has taken over in the upgrade of this number, within so long.
    pub(crate) fn done(&self, serial: u64, took: Duration) {
        let mut inner = self.inner.lock();
        inner.serial = serial;
        inner.last = Some(UpgradeShown {
            serial,
            state: UpgradeState::Done(took),
            since: Instant::now(),
            pid: i32::try_from(std::process::id()).ok(),
        });
    }
}

impl UpgradeShown {
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.state, UpgradeState::Runs(_))
    }

    /// One lower-case word: `done`, `failed`, or what it waits for.
    pub(crate) const fn word(&self) -> &'static str {
        match &self.state {
            UpgradeState::Runs(step) => step.word(),
            UpgradeState::Done(_) => "done",
            UpgradeState::Failed(_) => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrades() -> Upgrades {
        Upgrades::new(Upgradable::As(StartedAs {
            program: "/bin/rideau".into(),
            arguments: Vec::new(),
            check: None,
        }))
    }

    #[tokio::test]
    async fn there_is_one_upgrade_at_a_time() {
        let upgrades = upgrades();
        let config = Config::default();
        let ask = |by| upgrades.ask(&config, None, by);
        assert_eq!(ask("anna"), Ok(1));
        assert_eq!(ask("bert"), Err(NoUpgrade::Running(1)));
        assert_eq!(upgrades.next().await.by, "anna");
        assert_eq!(ask("bert"), Err(NoUpgrade::Running(1)));
        upgrades.fail("no program".into());
        assert_eq!(ask("bert"), Ok(2));
        assert_eq!(upgrades.next().await.serial, 2);
    }

    #[test]
    fn a_part_of_another_program_is_not_upgraded() {
        let no = Upgrades::default().ask(&Config::default(), None, "anna");
        assert!(matches!(no, Err(NoUpgrade::Impossible(_))));
    }
}
