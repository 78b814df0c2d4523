//! Tells other nodes what happens to values here, as long as their clients want to hear it.

use std::sync::Arc;
use std::time::Duration;

use rideau::allocator::Event;
use rideau_cluster::LinkMessage;
use rideau_core::cluster::Incarnation;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};

use crate::state::cluster::Cluster;
use crate::state::daemon::Daemon;
use crate::state::values::Happened;

/// How often it is looked whether clients have stopped to listen.
const LOOK: Duration = Duration::from_secs(1);

/// Tell them for ever.
pub(super) async fn tell_values(daemon: Arc<Daemon>, cluster: Arc<Cluster>) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut events: Option<Receiver<Event>> = None;
    let send = |to: &Incarnation, message: LinkMessage| {
        let links = cluster.links.read();
        let sent = links.as_ref().map(|links| links.send_if_room(to, message));
        sent.is_some_and(|sent| sent.is_ok())
    };
    loop {
        tokio::select! {
            _ = ticks.tick() => (),
            () = daemon.values.watchers.changed.notified() => (),
            event = next(&mut events) => match event {
                Ok(event) => {
                    let happened = Happened::of(&daemon.catalog.load().ranges, &event);
                    daemon.values.watchers.forward(&happened, send);
                    continue;
                }
                Err(RecvError::Lagged(_)) => daemon.values.watchers.missed(),
                Err(RecvError::Closed) => {
                    events = None;
                    continue;
                }
            },
        }
        match daemon.values.watchers.is_listened() {
            true => drop(events.get_or_insert_with(|| daemon.values.ranges.watch())),
            false => events = None,
        }
        daemon.values.watchers.settle(send);
    }
}

async fn next(events: &mut Option<Receiver<Event>>) -> Result<Event, RecvError> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
