//! A connection that was let in, and for how long it is served.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};

use super::client::ClientCount;
use super::conn::Ends;
use super::http1_client::Patience;
use super::{Front, Phase};

/// A connection that was let in.
pub(super) struct OpenConn {
    pub(super) front: Arc<Front>,
    pub(super) ends: Ends,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) _permit: OwnedSemaphorePermit,
    /// It counts among those of its client.
    pub(super) counted: Option<ClientCount>,
}

impl OpenConn {
    /// What has to be done before the first request, in time and only as long as
    /// new clients are served.
    pub(super) async fn while_open<T>(
        &self,
        within: Duration,
        begun: impl Future<Output = T>,
    ) -> Option<T> {
        let mut phase = self.phase.clone();
        tokio::select! {
            begun = tokio::time::timeout(within, begun) => begun.ok(),
            _ = phase.wait_for(|phase| *phase > Phase::Leaving) => None,
        }
    }

    /// Serve a connection to its end, or to the end of what it is asking for if
    /// the front finishes. It keeps its connection until it is gone.
    pub(super) async fn run<C>(&mut self, mut served: Pin<&mut C>, finish: impl Fn(Pin<&mut C>))
    where
        C: Future<Output = ()>,
    {
        let told = AtomicBool::new(false);
        let front = Arc::clone(&self.front);
        let mut changed = pin!(async {
            let _ = self.phase.wait_for(|phase| *phase > Phase::Open).await;
            told.store(true, Ordering::Relaxed);
            let _ = self.phase.wait_for(|phase| *phase > Phase::Finishing).await;
        });
        let mut is_heard = false;
        let mut is_told = false;
        poll_fn(|context| {
            // It is the same task each time, so that one poll has it woken.
            if !is_heard || !front.is_staying() {
                is_heard = true;
                if changed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                if told.load(Ordering::Relaxed) && !is_told {
                    is_told = true;
                    finish(served.as_mut());
                }
            }
            served.as_mut().poll(context)
        })
        .await;
    }

    pub(super) fn patience(&self) -> Patience {
        let config = self.front.config.load();
        Patience {
            head: config.header_timeout,
            idle: config.idle_timeout,
        }
    }
}
