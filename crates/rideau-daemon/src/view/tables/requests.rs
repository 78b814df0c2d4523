//! The table of requests that applications serve now.

use std::sync::Arc;

use rideau_apps::{App, AppShown};

use super::Table;
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

/// The requests being served, for users that may read the logs.
pub(super) fn table(daemon: &Daemon, viewer: Viewer<'_>) -> Table {
    let mut table = Table::new(&["name", "pid", "method", "path", "client", "age_us"]);
    let mut all = shown(daemon);
    all.retain(|app| viewer.sees_output("app", &app.name));
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
