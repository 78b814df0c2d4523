//! Looks at what processes use: for applications that limit their memory, and for
//! users who want to see it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rideau_process::ProcessList;
use tokio::task::spawn_blocking;

use super::Inner;
use super::running::Running;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(2);

/// Look until the applications have no holder any more.
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
        inner.measure(limited).await;
    }
}

impl Inner {
    /// The processes that are ready and wanted.
    pub(super) fn running(&self, wanted: impl Fn(&Running) -> bool) -> Vec<Arc<Running>> {
        let tables = self.tables();
        let all = tables
            .slots
            .values()
            .filter_map(|slot| slot.running.as_ref());
        all.filter(|running| wanted(running)).cloned().collect()
    }

    /// Read anew what these use.
    pub(super) async fn measure(&self, mut all: Vec<Arc<Running>>) {
        // Others look after their servers.
        all.retain(|running| running.own().is_some());
        if all.is_empty() {
            return;
        }
        let used = spawn_blocking(move || {
            let process_list = ProcessList::take();
            let used = |running: Arc<Running>| {
                let usage = running.own()?.usage(&process_list);
                running.spent(usage.processor);
                Some((running.id, usage.memory))
            };
            all.into_iter().filter_map(used).collect::<Vec<_>>()
        });
        let Ok(used) = used.await else { return };
        self.step(|step| {
            for (id, bytes) in used {
                step.machine.memory(id, bytes, step.now, step.effects);
            }
        });
    }
}

impl Running {
    /// It has used so much processor time by now. That may be less than before:
    /// what one of its own used goes with that one.
    fn spent(&self, time: Duration) {
        let now = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let before = self.processor.swap(now, Ordering::Relaxed);
        let more = now.saturating_sub(before);
        self.app.processor.fetch_add(more, Ordering::Relaxed);
    }
}
