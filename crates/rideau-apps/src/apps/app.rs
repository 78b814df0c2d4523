//! One application: what it is told, what it wrote and answered, and why it last failed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rideau_config::{AppConfig, WaitingRoomConfig};
use rideau_core::apps::AppId;
use rideau_core::{Reason, Refusal};
use rideau_process::StartReport;

use super::counts::AppCounters;
use super::log_rate::LogRate;
use super::output::Output;
use super::server_list::AppServers;
use super::waiting_room::AppRoom;

/// One application.
pub struct App {
    /// Its number in the machine; another if it was removed and came back.
    pub id: AppId,
    /// Its name.
    pub name: Arc<str>,
    /// Its current config.
    pub config: ArcSwap<AppConfig>,
    /// The last output of its processes.
    pub output: Output,
    /// Outcomes of its requests.
    pub counts: AppCounters,
    /// How much of that was logged recently.
    pub log_rate: LogRate,
    /// The processor time that its processes were seen to use, in microseconds.
    pub(super) processor: AtomicU64,
    /// Why its last start failed, until one went well.
    pub(super) report: ArcSwapOption<StartReport>,
    /// A marker wants a process a request.
    pub(super) is_always: AtomicBool,
    /// The code that is on trial, or was rejected, if there is one.
    on_trial: AtomicU64,
    /// How many requests that it failed may still be asked of the old code.
    second_chances: AtomicU64,
    /// The servers that others start, if they do.
    pub(super) servers: Option<AppServers>,
    /// Where browsers wait that would wait too long.
    room: ArcSwapOption<AppRoom>,
}

/// The most in one trial.
const SECOND_CHANCES: u64 = 100;

impl App {
    pub(super) fn new(id: AppId, config: &AppConfig) -> Self {
        Self {
            id,
            name: config.name.as_str().into(),
            config: ArcSwap::from_pointee(config.clone()),
            output: Output::new(config.run.log.as_deref()),
            counts: AppCounters::default(),
            log_rate: LogRate::default(),
            processor: AtomicU64::new(0),
            report: ArcSwapOption::empty(),
            is_always: AtomicBool::new(false),
            on_trial: AtomicU64::new(0),
            second_chances: AtomicU64::new(0),
            servers: config.servers.is_some().then(AppServers::default),
            room: ArcSwapOption::empty(),
        }
    }

    /// Others start what serves its requests.
    pub fn has_servers(&self) -> bool {
        self.servers.is_some()
    }

    /// Where its browsers wait that would wait too long; none if they wait as all others do.
    pub(crate) fn room(&self) -> Option<Arc<AppRoom>> {
        self.room.load_full()
    }

    /// It has such a waiting room from now on, or none. Browsers keep their places.
    pub(super) fn follow_room(&self, config: Option<&WaitingRoomConfig>) {
        match (config, self.room()) {
            (None, _) => self.room.store(None),
            (Some(config), Some(room)) => room.follow(config),
            (Some(config), None) => self.room.store(Some(Arc::new(AppRoom::new(config)))),
        }
    }

    /// This code is on trial from now on, or none.
    pub(super) fn set_trial(&self, generation: Option<u64>) {
        self.second_chances.store(SECOND_CHANCES, Ordering::Relaxed);
        self.on_trial
            .store(generation.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether this code is on trial, or was rejected.
    pub(crate) fn is_on_trial(&self, generation: u64) -> bool {
        self.on_trial.load(Ordering::Relaxed) == generation
    }

    /// Whether one more request may be asked of the old code.
    pub(crate) fn take_second_chance(&self) -> bool {
        let left = &self.second_chances;
        let take = |left: u64| left.checked_sub(1);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    /// The processor time of all its processes, those that are gone included. What
    /// one used after the last look at it is not in it.
    pub fn processor(&self) -> Duration {
        Duration::from_micros(self.processor.load(Ordering::Relaxed))
    }

    /// Why its last start failed, unless one went well since.
    pub fn report(&self) -> Option<Arc<StartReport>> {
        self.report.load_full()
    }

    /// The report that belongs to a refusal.
    pub(super) fn report_for(&self, refusal: &Refusal) -> Option<Arc<StartReport>> {
        match refusal.reason {
            Reason::Starting => self.report(),
            _ => None,
        }
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
