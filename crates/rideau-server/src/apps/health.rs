//! Asks a process from time to time whether it is well.

use std::sync::Weak;

use tokio::time::timeout;

use super::Inner;
use super::running::Running;
use crate::config::Health;
use crate::process::http_status;

/// Ask until the process is gone, or has failed too often in a row.
pub(super) async fn watch(apps: Weak<Inner>, running: Weak<Running>, health: Health) {
    let mut fails = 0;
    loop {
        tokio::time::sleep(health.every).await;
        let Some(process) = running.upgrade() else {
            return;
        };
        let answer = timeout(health.timeout, http_status(&process.address, &health.path)).await;
        let is_well = matches!(answer, Ok(Ok(status)) if status < 500);
        fails = if is_well { 0 } else { fails + 1 };
        if fails < health.fails {
            continue;
        }
        let Some(inner) = apps.upgrade() else { return };
        let (id, path) = (process.id, &health.path);
        let text = format!("process {id} is unwell: {path} failed {fails} times in a row");
        inner.tell(&process.app.name, text, None);
        inner.step(|state, now| state.machine.unwell(id, now, &mut state.effects));
        return;
    }
}
