//! Asks a process from time to time whether it is well, and hears whether it says
//! so itself.

use std::future::pending;
use std::io;
use std::sync::Weak;

use rideau_config::Health;
use rideau_process::Probe;
use tokio::time::timeout;

use super::Inner;
use super::running::Running;

/// Wait until the process is gone, or is not well.
pub(super) async fn watch(apps: &Weak<Inner>, running: &Weak<Running>, health: &Option<Health>) {
    let Some(silent) = running.upgrade().map(|running| running.child().silent()) else {
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
        fails = if is_well(&process, health).await {
            0
        } else {
            fails + 1
        };
        if fails >= health.fails {
            let path = &health.path;
            return format!("{path} failed {fails} times in a row");
        }
    }
}

/// Ask once.
pub(super) async fn is_well(running: &Running, health: &Health) -> bool {
    let asked = ask_for(running, &health.path, "health");
    let answer = timeout(health.timeout, asked).await;
    matches!(answer, Ok(Ok(status)) if status < 500)
}

/// A request of the server's own, on a connection of its own.
pub(super) async fn ask_for(
    running: &Running,
    path: &str,
    purpose: &'static str,
) -> io::Result<u16> {
    let probe = Probe {
        path: path.into(),
        host: running.probe_host(),
        purpose,
    };
    probe.ask(running.connections.open().await?).await
}
