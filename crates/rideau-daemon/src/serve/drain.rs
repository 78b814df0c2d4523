//! How the server stops: it grants nothing more, lets holders finish, and takes the
//! rest back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rideau_core::Brief;
use tokio::task::JoinHandle;

use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::grant::Grant;

/// How often it is looked whether holders have finished.
const LOOK: Duration = Duration::from_millis(20);
/// Connections that are closed have so long to go.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);
/// HTTP connections have so long to be told what they were answered.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// Members have so long to stop beyond their own time.
const STOPPED_WITHIN: Duration = Duration::from_secs(5);

/// Stop: grant nothing new, let holders finish for `server.drain`, and then take back
/// what is held.
pub(crate) async fn drain(daemon: &Arc<Daemon>) {
    let within = daemon.config.load().server.drain;
    let text = format!("the server stops: holders have {} to finish", Brief(within));
    daemon.events.add("server", "drain", text, None);
    let end = Instant::now() + within;
    daemon.stop_granting();
    let leaving = daemon.cluster.clone().map(|cluster| {
        // Other nodes go on with what this one has.
        tokio::spawn(async move { tokio::time::timeout(within, cluster.node.drain()).await })
    });
    let catalog = daemon.catalog.load_full();
    // They refuse what waits when they begin to close, and members go as they come back.
    // What nodes share goes on at the next owner.
    let pools = catalog.pools.values().cloned();
    let pools = pools.filter(|place| place.shared.is_none());
    let closing = tokio::spawn(join_all(
        pools.map(|place| async move { place.pool.close(within).await }),
    ));
    while is_used(daemon) && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    end_all(daemon).await;
    let stop = catalog
        .pools
        .values()
        .map(|place| place.pool.options().stop_timeout);
    let stop = stop.max().unwrap_or_default() + STOPPED_WITHIN;
    if tokio::time::timeout(stop, closing).await.is_err() {
        tracing::warn!("members did not stop within {stop:.1?}");
    }
    // A pool that a change left behind may have had some, too.
    let left = catalog.run_dirs.emptied(CLOSED_WITHIN).await;
    if left > 0 {
        tracing::warn!(left, "processes are killed");
    }
    if let (Some(leaving), Some(cluster)) = (leaving, &daemon.cluster) {
        // Holders may rely on what the node has vouched for, and no longer.
        while let Some(wait) = cluster.vouches_for() {
            tokio::time::sleep(wait.max(LOOK)).await;
        }
        let left = end.saturating_duration_since(Instant::now());
        cluster.node.stop(left).await;
        leaving.abort();
    }
    // Connections are over, so nothing is answered that would not be kept.
    let daemon = Arc::clone(daemon);
    let _ = tokio::task::spawn_blocking(move || daemon.values.close()).await;
}

/// Stop without a wait for holders: a newer server takes over. What is kept is written down
/// when this returns; members still end then.
pub(super) async fn end_at_once(daemon: &Arc<Daemon>) -> JoinHandle<()> {
    daemon.stop_granting();
    let pools: Vec<_> = daemon.catalog.load().pools.values().cloned().collect();
    let closing = tokio::spawn(async move {
        join_all(pools.iter().map(|place| place.pool.close(Duration::ZERO))).await;
    });
    // Those that wait are told why.
    let limit = Instant::now() + ANSWERED_WITHIN;
    while daemon.counts.waiting.load(Ordering::Relaxed) > 0 && Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    end_all(daemon).await;
    let values = Arc::clone(daemon);
    let _ = tokio::task::spawn_blocking(move || values.values.close()).await;
    closing
}

/// Whether something is held that can be given back, or a command waits. What a holder
/// has brought itself is nothing that it has to finish.
fn is_used(daemon: &Daemon) -> bool {
    if daemon.counts.waiting.load(Ordering::Relaxed) > 0 {
        return true;
    }
    if daemon.clients.is_empty() && daemon.sessions.is_empty() {
        return false;
    }
    let is_held = |grant: &Grant| !matches!(grant, Grant::Offer { .. });
    daemon.lease_table.has(is_held)
}

/// End every holder, whatever it holds.
async fn end_all(daemon: &Arc<Daemon>) {
    daemon.ending.send_replace(true);
    for row in daemon.sessions.all() {
        if daemon.sessions.close(row.ticket, None).is_some() {
            daemon.end_holder(row.holder, EndReason::Revoked);
        }
    }
    for card in daemon.clients.all() {
        card.outbox.kill();
    }
    let limit = Instant::now() + CLOSED_WITHIN;
    while !daemon.clients.is_empty() && Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // One that does not even take its last answer gives back what it holds all the same.
    for card in daemon.clients.all() {
        let holder = *card.holder.lock();
        daemon.end_holder(holder, EndReason::Revoked);
    }
    let _ = tokio::time::timeout(ANSWERED_WITHIN, daemon.ending.closed()).await;
}
