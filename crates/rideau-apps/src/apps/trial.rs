//! New code on trial: requests of the server's own, and what operators are told.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::Brief;
use rideau_core::apps::{SideStats, TrialStats, TrialVerdict};
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

/// The event text of a verdict.
pub(super) fn said(generation: u64, verdict: TrialVerdict, seen: &TrialStats) -> String {
    let why = match verdict {
        TrialVerdict::Good => "is good",
        TrialVerdict::GoodButSlow => "is taken, though it seems slower",
        TrialVerdict::Alone => "is taken, as the old one is gone",
        TrialVerdict::Accepted => "was accepted",
        TrialVerdict::Rejected => "was rejected",
        TrialVerdict::Fails => "fails more often than the old one beside it",
        TrialVerdict::FailsMore => "fails more often than the old one did",
        TrialVerdict::Slow => "is much slower than the old one",
        TrialVerdict::Unproven => "was not proven good in all that time",
    };
    format!(
        "generation {generation} {why}, after {}: new {}; old {}",
        Brief(seen.lasts),
        side(seen.new),
        side(seen.old)
    )
}

fn side(side: SideStats) -> String {
    let SideStats {
        answers,
        failures,
        median,
    } = side;
    let time = median.map_or_else(String::new, |median| format!(", {}", Brief(median)));
    format!("{answers} answers, {failures} failed{time}")
}
