//! Asks a process from time to time whether it is well, and hears whether it says
//! so itself.

use std::future::pending;
use std::sync::Weak;

use rideau_config::Health;
use rideau_process::Probe;
use tokio::time::timeout;

use super::Inner;
use super::running::Running;

/// Wait until the process is gone, or is not well.
pub(super) async fn watch(apps: &Weak<Inner>, running: &Weak<Running>, health: &Option<Health>) {
    let Some(silent) = running.upgrade().map(|running| running.process.silent()) else {
        return;
    };
    let asked = async {
        match health {
            Some(health) => ask(running, health).await,
            None => pending().await,
        }
    };
    let why = tokio::select! {
        why = asked => why,
        () = silent => "it sent no WATCHDOG=1 within its watchdog time".to_owned(),
    };
    let (Some(inner), Some(process)) = (apps.upgrade(), running.upgrade()) else {
        return;
    };
    let id = process.id;
    let text = format!("process {id} is unhealthy: {why}");
    inner.tell(&process.app.name, text, None);
    inner.step(|step| step.machine.unwell(id, step.now, step.effects));
}

/// Ask until it has failed too often in a row, and say so.
async fn ask(running: &Weak<Running>, health: &Health) -> String {
    let mut fails = 0;
    loop {
        tokio::time::sleep(health.every).await;
        let Some(process) = running.upgrade() else {
            return pending().await;
        };
        let probe = Probe {
            path: health.path.clone(),
            host: process.app.config.load().probe_host().into(),
            purpose: "health",
        };
        let answer = timeout(health.timeout, probe.status(&process.address)).await;
        let is_well = matches!(answer, Ok(Ok(status)) if status < 500);
        fails = if is_well { 0 } else { fails + 1 };
        if fails >= health.fails {
            let path = &health.path;
            return format!("{path} failed {fails} times in a row");
        }
    }
}
