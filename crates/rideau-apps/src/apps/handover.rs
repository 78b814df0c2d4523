//! Applications of two servers side by side: what the newer one has to know of them, and how
//! they begin and end there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_config::{AppConfig, AppListen, Config};
use rideau_core::apps::{Deploy, Leaving, Options, ProcessId, State};
use serde::{Deserialize, Serialize};

use super::app::App;
use super::{Apps, Inner};

/// How often it is looked whether processes have gone.
const LOOK: Duration = Duration::from_millis(20);

/// An app at the older server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AppHandover {
    /// Its name.
    pub name: String,
    /// Processes that serve something.
    pub busy: usize,
    /// Others.
    pub idle: usize,
    /// It has at least this many.
    pub min: usize,
    /// Requests at a time in one process, as was learnt.
    pub concurrency: usize,
    /// It does not start.
    pub fails: bool,
    /// Processes that the newer server starts.
    pub start: usize,
    /// It has an address of its own: no process starts before the older one is gone.
    pub is_fixed: bool,
}

/// What the newer server begins with.
pub(super) type Floors = HashMap<String, usize>;

impl Apps {
    /// All apps, for a newer server.
    pub fn handovers(&self) -> Vec<AppHandover> {
        let all = self.all();
        let all = all.iter().filter_map(|app| self.handover(app));
        all.collect()
    }

    fn handover(&self, app: &Arc<App>) -> Option<AppHandover> {
        let shown = self.shown(app)?;
        let config = app.config.load();
        let count = |wanted: &dyn Fn(usize) -> bool| {
            let its = shown.stats.processes.iter();
            let there = its.filter(|it| !matches!(it.state, State::Stopping(_) | State::Down(_)));
            there.filter(|it| wanted(it.sessions + it.streams)).count()
        };
        let busy = count(&|inside| inside > 0);
        let is_ready = |state: &State| *state == State::Ready;
        let has_ready = (shown.stats.processes.iter()).any(|process| is_ready(&process.state));
        Some(AppHandover {
            name: app.name.to_string(),
            busy,
            idle: count(&|inside| inside == 0),
            min: config.options.min,
            concurrency: shown.stats.concurrency,
            fails: shown.stats.failing.is_some() && !has_ready,
            start: 0,
            is_fixed: is_fixed(&config),
        })
    }

    /// The first app that does not run the code that lies there, and in which state it is: a
    /// newer server would run that code.
    pub fn unsettled(&self) -> Option<(Arc<str>, &'static str)> {
        let all = self.all();
        let mut all = all.iter().filter_map(|app| self.shown(app));
        let found = all.find(|app| app.stats.deploy != Deploy::Settled)?;
        Some((Arc::clone(&found.name), found.state()))
    }

    /// Begin beside an older server: with as many processes as it says, no more than `cap`
    /// altogether, and none at a fixed address until [`free_addresses`](Self::free_addresses).
    pub fn begin_beside(&self, config: &Config, handovers: &[AppHandover], cap: usize) {
        let floors = handovers.iter().map(|app| (app.name.clone(), app.start));
        self.0.floors.store(Arc::new(floors.collect()));
        self.0.cap.store(cap.max(1), Ordering::Relaxed);
        self.0.addresses_free.send_replace(false);
        self.begin(config);
        for handover in handovers {
            if let Some(app) = self.find(&handover.name) {
                self.0.step(|step| {
                    (step.machine).inherit_concurrency(app.id, handover.concurrency, step.now);
                });
            }
        }
    }

    /// Have no more processes than this for now, or as many as the config says.
    pub fn set_cap(&self, config: &Config, cap: Option<usize>) {
        let cap = cap.unwrap_or(usize::MAX).max(1);
        if self.0.cap.swap(cap, Ordering::Relaxed) != cap {
            self.follow(config);
        }
    }

    /// The older server's processes are not at their addresses any more.
    pub fn free_addresses(&self) {
        self.0.addresses_free.send_replace(true);
    }

    /// Have as many processes as are needed from now on: clients come.
    pub fn settle(&self) {
        self.0.floors.store(Arc::default());
        for app in self.all().iter() {
            let options = self.0.options_of(app, &app.config.load());
            self.0.step(|step| {
                let _ = (step.machine).reconfigure(app.id, options, step.now, step.effects);
            });
        }
    }

    /// Stop processes of an app that serve nothing, and no more than this.
    pub fn give_up_idle(&self, name: &str, count: usize) {
        let Some(app) = self.find(name) else {
            return;
        };
        let shown = self.shown(&app);
        let idle: Vec<ProcessId> = shown
            .iter()
            .flat_map(|shown| &shown.stats.processes)
            .filter(|it| it.state == State::Ready && it.sessions + it.streams == 0)
            .map(|it| it.process)
            .collect();
        for process in idle.into_iter().take(count) {
            self.detach(process);
        }
    }

    /// The processes have to go: streams have their grace from now on.
    pub fn end_streams(&self) {
        let tables = self.0.tables();
        tables
            .slots
            .values()
            .for_each(|slot| slot.drain(Leaving::Closed));
    }

    /// Stop the apps that have addresses of their own. Returns when their processes are gone.
    pub async fn close_fixed(&self) {
        let all = self.all();
        let fixed: Vec<_> = all
            .iter()
            .filter(|app| is_fixed(&app.config.load()))
            .collect();
        for app in &fixed {
            (self.0).step(|step| step.machine.remove(app.id, step.now, step.effects));
        }
        let is_there = |app: &&&Arc<App>| self.0.tables().by_id.contains_key(&app.id);
        while fixed.iter().any(|app| is_there(&app)) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many processes there are, those that are stopping included.
    pub fn live(&self) -> usize {
        self.0.tables().slots.len()
    }
}

/// Its processes listen at an address of the config.
fn is_fixed(config: &AppConfig) -> bool {
    matches!(config.run.listen, AppListen::Fixed(_))
}

impl Inner {
    /// The options of an app for the machine: what a config says, and what holds for now.
    pub(super) fn options_of(&self, app: &App, config: &AppConfig) -> Options {
        let mut options = self.options_now(config);
        options.one_each |= app.is_always.load(Ordering::Relaxed);
        options
    }

    /// The same for one that is new.
    pub(super) fn options_now(&self, config: &AppConfig) -> Options {
        let mut options = config.options.clone();
        if let Some(floor) = self.floors.load().get(&config.name) {
            let max = options.max.unwrap_or(usize::MAX);
            options.min = if *floor > 0 { (*floor).min(max) } else { 0 };
        }
        options
    }

    /// Wait until a process may be started at its address.
    pub(super) async fn may_bind(&self, config: &AppConfig) {
        if is_fixed(config) {
            let mut free = self.addresses_free.subscribe();
            let _ = free.wait_for(|is_free| *is_free).await;
        }
    }
}
