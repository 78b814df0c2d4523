//! Applications, their processes and what those serve, as tables.

use std::sync::Arc;

use rideau_apps::{App, AppShown};

use super::{Cell, Table};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

pub(super) fn apps(daemon: &Daemon, sight: Viewer<'_>) -> Table {
    let mut table = Table::new(&[
        "name",
        "state",
        "ready",
        "starting",
        "leaving",
        "max",
        "sessions",
        "waiting",
        "oldest_wait_us",
        "wait_p99_us",
        "finished",
        "refused",
        "cold",
        "starts",
        "starts_failed",
        "start_us",
        "service_us",
        "generation",
        "why",
    ]);
    let all = shown(daemon);
    table.rows = all.iter().map(|one| app(one, sight)).collect();
    table
}

pub(super) fn processes(daemon: &Daemon) -> Table {
    let mut table = Table::new(&[
        "name",
        "id",
        "pid",
        "state",
        "generation",
        "sessions",
        "upgrades",
        "finished",
        "age_us",
        "unused_us",
        "memory",
        "cpu_us",
        "address",
    ]);
    for app in shown(daemon) {
        table.rows.extend(app.processes.iter().map(|process| {
            let stats = &process.stats;
            vec![
                (&*app.name).into(),
                stats.process.0.into(),
                process.pid.map(|pid| i64::from(pid).unsigned_abs()).into(),
                stats.state.word().into(),
                stats.generation.into(),
                stats.sessions.into(),
                stats.upgrades.into(),
                stats.finished.into(),
                stats.age.into(),
                stats.unused.into(),
                stats.memory.into(),
                process.processor.into(),
                process.address.clone().into(),
            ]
        }));
    }
    table
}

/// What is being served: for users that may read the logs, which tell as much.
pub(super) fn requests(daemon: &Daemon, sight: Viewer<'_>) -> Table {
    let mut table = Table::new(&["name", "pid", "method", "path", "client", "age_us"]);
    let mut all = shown(daemon);
    all.retain(|app| sight.sees_output("app", &app.name));
    for app in all {
        for process in &app.processes {
            table.rows.extend(process.requests.iter().map(|request| {
                vec![
                    (&*app.name).into(),
                    process.pid.map(|pid| i64::from(pid).unsigned_abs()).into(),
                    request.method.as_str().into(),
                    request.path.as_str().into(),
                    request.client.clone().into(),
                    (request.age_ms * 1000).into(),
                ]
            }));
        }
    }
    table
}

fn shown(daemon: &Daemon) -> Vec<AppShown> {
    let all = daemon.apps.all();
    let shown = |app: &Arc<App>| daemon.apps.shown(app);
    all.iter().filter_map(shown).collect()
}

fn app(app: &AppShown, sight: Viewer<'_>) -> Vec<Cell> {
    use rideau_core::apps::State;
    let stats = &app.stats;
    let count = |wanted: fn(State) -> bool| {
        let states = stats.processes.iter().map(|process| process.state);
        states.filter(|state| wanted(*state)).count()
    };
    vec![
        (&*app.name).into(),
        app.state().into(),
        count(|state| matches!(state, State::Ready | State::Disabled)).into(),
        count(|state| state == State::Starting).into(),
        count(|state| matches!(state, State::Draining(_) | State::Stopping(_))).into(),
        app.max.into(),
        stats.sessions.into(),
        stats.waiting.into(),
        stats.oldest.into(),
        stats.tally.waits.quantile(0.99).into(),
        stats.finished.into(),
        stats.tally.shed_total().into(),
        stats.cold.into(),
        stats.starts.into(),
        stats.start_failures.into(),
        stats.start_time.into(),
        stats.service_time.into(),
        stats.generation.into(),
        app.report
            .as_ref()
            .filter(|_| sight.sees_output("app", &app.name))
            .map(|report| report.summary.clone())
            .into(),
    ]
}
