//! Notices that the store fails and that it can be written again, and ends the server
//! where the config says so.

use std::sync::Arc;
use std::time::Duration;

use rideau::store::StoreError;
use rideau_config::OnFailure;

use crate::state::daemon::Daemon;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(100);

/// Tell of each change. Returns with what failed if the server is to end.
pub(super) async fn watch(daemon: &Daemon) -> Arc<StoreError> {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_failed = false;
    loop {
        ticks.tick().await;
        let failed = daemon.values.ranges.failed();
        if failed.is_some() != is_failed {
            is_failed = failed.is_some();
            let text = match &failed {
                Some(error) => format!("values are not given out: {error}"),
                None => "values are given out again: the store can be written".into(),
            };
            daemon.events.add("server", "store", text, None);
        }
        let ends = daemon.config.load().store.on_failure == OnFailure::End;
        if let Some(error) = failed.filter(|_| ends) {
            return error;
        }
    }
}
