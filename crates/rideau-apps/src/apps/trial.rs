//! New code on trial: requests of the server's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Inner;
use super::app::App;
use super::process_task;
use super::running::Running;

/// A process that has said nothing by then has not answered.
const WITHIN: Duration = Duration::from_secs(2);

/// Ask a process with the old code and one with the new the same, and tell how they answered.
pub(super) async fn probe(
    inner: Arc<Inner>,
    app: Arc<App>,
    (old, new): (Arc<Running>, Arc<Running>),
) {
    let config = app.config.load_full();
    let path = config.health.as_ref().map_or("/", |health| &health.path);
    let probe = process_task::probe(&config, path, "trial");
    let failed = async |running: &Running| {
        let answer = timeout(WITHIN, probe.status(&running.address)).await;
        !matches!(answer, Ok(Ok(status)) if status < 500)
    };
    let (old, new) = tokio::join!(failed(&old), failed(&new));
    inner.step(|step| (step.machine).probed(app.id, old, new, step.now, step.effects));
}
