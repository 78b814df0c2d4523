//! Looks at what processes use of memory, for applications that limit it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::Inner;
use super::running::Running;
use crate::process::Census;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(2);

/// Look until nobody has the applications any more.
pub(super) async fn look(apps: Weak<Inner>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = apps.upgrade() else { return };
        let limited = inner.running(|running| {
            let config = running.app.config.load();
            config.options.memory_soft.is_some() || config.options.memory_hard.is_some()
        });
        if limited.is_empty() {
            continue;
        }
        let used = spawn_blocking(move || {
            let census = Census::take();
            let used = |running: Arc<Running>| (running.id, running.process.usage(&census).memory);
            limited.into_iter().map(used).collect::<Vec<_>>()
        });
        let Ok(used) = used.await else { return };
        inner.step(|state, now| {
            for (id, bytes) in used {
                state.machine.memory(id, bytes, now, &mut state.effects);
            }
        });
    }
}

impl Inner {
    /// The processes that are ready and wanted.
    pub(super) fn running(&self, wanted: impl Fn(&Running) -> bool) -> Vec<Arc<Running>> {
        let state = self.state.lock();
        let all = state.slots.values().filter_map(|slot| slot.running.clone());
        all.filter(|running| wanted(running)).collect()
    }
}
