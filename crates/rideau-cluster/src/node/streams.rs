//! The two streams of a node: the keepalives of its lease, and the watch of the table.

use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdWatch, LeaseId, Watched};
use rideau_core::cluster::KeyRange;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::input::Input;

/// A failed watch is opened again after this long.
const RETRY: Duration = Duration::from_millis(100);

/// A task that ends with this value.
#[derive(Debug)]
pub(super) struct TaskGuard(JoinHandle<()>);

impl TaskGuard {
    pub(super) fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One stream of keepalives. The next one is sent when the last was answered.
#[derive(Debug)]
pub(super) struct KeepAliveStream {
    stream: u64,
    lease: u64,
    asks: mpsc::UnboundedSender<()>,
    _task: TaskGuard,
}

impl KeepAliveStream {
    /// A new stream, if there is such a lease. A keepalive may take `timeout`.
    pub(super) fn open(
        client: &EtcdClient,
        (stream, lease): (u64, u64),
        timeout: Duration,
        inbox: mpsc::UnboundedSender<Input>,
    ) -> Option<Self> {
        // An answer that comes later than the machine waits does not count, and only a
        // time-out of the keeper makes it go on to the next endpoint.
        let timeout = timeout - timeout / 10;
        let mut keeper = client.keep_lease(LeaseId::from_core(lease)?, timeout);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let task = async move {
            while asked.recv().await.is_some() {
                match keeper.keep_alive().await {
                    Ok(kept) => {
                        let ttl = kept.ttl();
                        let _ = inbox.send(Input::Kept { stream, ttl });
                    }
                    // The machine gives the stream up.
                    Err(error) => tracing::debug!(%error, "a keepalive has no answer"),
                }
            }
        };
        Some(Self {
            stream,
            lease,
            asks,
            _task: TaskGuard::new(task),
        })
    }

    pub(super) fn is(&self, stream: u64, lease: u64) -> bool {
        (self.stream, self.lease) == (stream, lease)
    }

    pub(super) fn send(&self) {
        // The task ends only with this value.
        let _ = self.asks.send(());
    }
}

/// Watches until the guard is dropped.
pub(super) fn watch(
    client: &EtcdClient,
    range: &KeyRange,
    (number, from): (u64, u64),
    lease: Duration,
    inbox: mpsc::UnboundedSender<Input>,
) -> Option<TaskGuard> {
    let watch = client.watch_core(range, from)?;
    Some(TaskGuard::new(follow(watch, number, lease, inbox)))
}

async fn follow(
    mut watch: EtcdWatch,
    number: u64,
    lease: Duration,
    inbox: mpsc::UnboundedSender<Input>,
) {
    let mut ticks = interval(lease / 5);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told_at = Instant::now();
    loop {
        let told = tokio::select! {
            told = watch.next() => told,
            _ = ticks.tick() => {
                if told_at.elapsed() > lease / 2 {
                    watch.reopen();
                    told_at = Instant::now();
                } else {
                    watch.ask_alive();
                }
                continue;
            }
        };
        let input = match told {
            Ok(Watched::Alive) => Input::Alive { watch: number },
            Ok(Watched::Compacted { .. }) => {
                let _ = inbox.send(Input::Compacted { watch: number });
                return;
            }
            Ok(told) => match told.to_core() {
                Some((revision, changes)) => Input::Seen {
                    watch: number,
                    revision,
                    changes,
                },
                None => continue,
            },
            Err(error) => {
                tracing::debug!(%error, "the watch is opened again");
                sleep(RETRY).await;
                continue;
            }
        };
        told_at = Instant::now();
        if inbox.send(input).is_err() {
            return;
        }
    }
}
