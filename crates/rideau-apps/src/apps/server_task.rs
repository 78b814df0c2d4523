//! A server that others start: its health checks, looks at it when it is down, and its end here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rideau_core::apps::ProcessId;
use rideau_process::panics;
use tokio::time::{sleep, timeout};

use super::Inner;
use super::health;
use super::process_task::{Gone, Word, stopped};
use super::running::Running;

/// Without health checks in the config a server that has said nothing by then does not answer.
const WITHIN: Duration = Duration::from_secs(2);
/// How often it is seen whether there are health checks by now.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Watch over a server until the machine has let it go.
pub(super) async fn run(inner: Arc<Inner>, id: ProcessId, running: Weak<Running>, mut stop: Word) {
    let _gone = Gone {
        inner: Arc::clone(&inner),
        id,
    };
    let apps = Arc::downgrade(&inner);
    drop(inner);
    tokio::select! {
        _ = stopped(&mut stop) => (),
        () = panics::keep("the watch over a server", || watch(&apps, &running)) => (),
    }
    if let (Some(inner), Some(running)) = (apps.upgrade(), running.upgrade()) {
        let text = format!("server {} gets no more requests", running.called());
        inner.tell(&running.app.name, text, None);
    }
}

/// Ask from time to time whether it is well.
async fn watch(apps: &Weak<Inner>, server: &Weak<Running>) {
    let mut fails = 0;
    loop {
        let Some(running) = server.upgrade() else {
            return;
        };
        let Some(health) = running.app.config.load().health.clone() else {
            fails = 0;
            drop(running);
            sleep(LOOK_AGAIN).await;
            continue;
        };
        drop(running);
        sleep(health.every).await;
        let (Some(inner), Some(running)) = (apps.upgrade(), server.upgrade()) else {
            return;
        };
        fails = match health::is_well(&running, &health).await {
            true => 0,
            false => fails + 1,
        };
        if fails >= health.fails {
            fails = 0;
            inner.step(|step| step.machine.unwell(running.id, step.now, step.effects));
        }
    }
}

/// See whether a server answers, and tell the machine. Without health checks in the config
/// any answer is one, whatever its status.
pub(super) async fn look(inner: Arc<Inner>, running: Arc<Running>) {
    let health = running.app.config.load().health.clone();
    let answers = async {
        match &health {
            Some(health) => health::is_well(&running, health).await,
            None => {
                let asked = health::ask_for(&running, "/", "look");
                matches!(timeout(WITHIN, asked).await, Ok(Ok(_)))
            }
        }
    };
    // The machine waits for an answer, and would look no more.
    let answers = panics::contain_async(answers).await.unwrap_or(false);
    inner.step(|step| {
        step.machine
            .looked(running.id, answers, step.now, step.effects)
    });
}
