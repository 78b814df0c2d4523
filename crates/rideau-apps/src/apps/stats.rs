//! Applications as operators see them.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::apps::{AppStats, Deploy, ProcessStats, State, Stats};
use rideau_process::StartReport;
use serde::Serialize;

use super::app::App;
use super::running::Running;
use super::{Apps, Inner};

/// One application.
#[derive(Clone, Debug)]
pub struct AppShown {
    /// Its name.
    pub name: Arc<str>,
    /// Its numbers.
    pub stats: AppStats,
    /// Its processes.
    pub processes: Vec<ProcessShown>,
    /// Why its last start failed, unless one went well since.
    pub report: Option<Arc<StartReport>>,
    /// How many processes it may have, if that is limited for it alone.
    pub max: Option<usize>,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessShown {
    /// Its numbers.
    pub stats: ProcessStats,
    /// Its number in the system, once it is ready.
    pub pid: Option<i32>,
    /// The processor time it had used at the last look.
    pub processor: Duration,
    /// Where it is reached.
    pub address: Option<String>,
    /// The requests that it serves now.
    pub requests: Vec<RequestShown>,
}

/// One request that is being served.
#[derive(Clone, Debug, Serialize)]
pub struct RequestShown {
    /// As `GET`.
    pub method: String,
    /// With what follows a `?`.
    pub path: String,
    /// From which client.
    pub client: Option<String>,
    /// For how long, in milliseconds.
    pub age_ms: u64,
}

impl Apps {
    /// Numbers over all applications.
    pub fn stats(&self) -> Stats {
        self.0.step(|step| step.machine.stats(step.now))
    }

    /// One application as it is now.
    pub fn shown(&self, app: &Arc<App>) -> Option<AppShown> {
        self.0.shown(app)
    }

    /// Says in plain words why its requests wait.
    pub fn explain(&self, app: &App) -> Vec<String> {
        self.0.step(|step| step.machine.explain(app.id, step.now))
    }

    /// Read anew what the processes of an application use.
    pub async fn look_at_usage(&self, app: &App) {
        let its = self.0.running(|running| running.app.id == app.id);
        self.0.measure(its).await;
    }

    /// The same for all applications.
    pub async fn look_at_all_usage(&self) {
        self.0.measure(self.0.running(|_| true)).await;
    }
}

impl Inner {
    fn shown(&self, app: &Arc<App>) -> Option<AppShown> {
        let (stats, found) = self.step(|step| {
            let stats = step.machine.app_stats(app.id, step.now)?;
            let tables = self.tables();
            let process = |stats: &ProcessStats| {
                let slot = tables.slots.get(&stats.process);
                (*stats, slot.and_then(|slot| slot.running.clone()))
            };
            let found: Vec<_> = stats.processes.iter().map(process).collect();
            Some((stats, found))
        })?;
        let processes = found.into_iter().map(|(stats, running)| ProcessShown {
            stats,
            pid: running.as_ref().map(|running| running.pid()),
            processor: running
                .as_ref()
                .map_or(Duration::ZERO, |running| running.processor()),
            address: running.as_ref().map(|running| running.address.to_string()),
            requests: running.map_or_else(Vec::new, |running| requests(&running)),
        });
        Some(AppShown {
            name: Arc::clone(&app.name),
            processes: processes.collect(),
            report: app.report(),
            max: app.config.load().options.max,
            stats,
        })
    }
}

impl AppShown {
    /// How many processes serve.
    pub fn ready(&self) -> usize {
        let its = self.stats.processes.iter();
        its.filter(|process| process.state == State::Ready).count()
    }

    /// One word for how it is.
    pub fn state(&self) -> &'static str {
        let has = |wanted: fn(&State) -> bool| {
            let mut states = self.stats.processes.iter().map(|process| &process.state);
            states.any(wanted)
        };
        match self.stats.deploy {
            Deploy::Failed => "deploy_failed",
            Deploy::Trial => "on_trial",
            Deploy::Rolling => "restarting",
            Deploy::Settled if self.stats.failing.is_some() => "failing",
            Deploy::Settled if has(|state| *state == State::Ready) => "ready",
            Deploy::Settled if has(|state| *state == State::Starting) => "starting",
            Deploy::Settled => "stopped",
        }
    }
}

fn requests(running: &Running) -> Vec<RequestShown> {
    let shown = running.requests.all().into_iter().map(|request| {
        let age: Duration = request.since.elapsed();
        RequestShown {
            method: request.method.to_string(),
            path: request.path,
            client: request.client.map(|client| client.to_string()),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        }
    });
    shown.collect()
}
