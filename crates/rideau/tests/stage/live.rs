//! Members whose number is known: those that were made and not dropped yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rideau::{Manager, Retired};
use tokio::time::sleep;

/// Counts all members of one or several pools.
#[derive(Default, Debug)]
pub(crate) struct LiveCount {
    live: AtomicUsize,
    most: AtomicUsize,
    made: AtomicUsize,
}

impl LiveCount {
    /// One more. Says how many were made before it.
    fn count(&self) -> usize {
        let live = self.live.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(live, SeqCst);
        self.made.fetch_add(1, SeqCst)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    pub(crate) fn made(&self) -> usize {
        self.made.load(SeqCst)
    }
}

/// A member, from its first moment to its drop.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) of: &'static str,
    pub(crate) number: usize,
    live_count: Arc<LiveCount>,
    also: Option<Arc<LiveCount>>,
}

impl Live {
    fn new(maker: &Maker) -> Self {
        if let Some(also) = &maker.also {
            also.count();
        }
        Self {
            of: maker.of,
            number: maker.live_count.count(),
            live_count: Arc::clone(&maker.live_count),
            also: maker.also.clone(),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.live_count.live.fetch_sub(1, SeqCst);
        if let Some(also) = &self.also {
            also.live.fetch_sub(1, SeqCst);
        }
    }
}

/// Makes members as told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Maker {
    pub(crate) of: &'static str,
    pub(crate) live_count: Arc<LiveCount>,
    /// A second count, such as of one key.
    pub(crate) also: Option<Arc<LiveCount>>,
    pub(crate) start: Duration,
    pub(crate) stop: Duration,
    pub(crate) fails: Arc<AtomicBool>,
    pub(crate) aborts: Arc<AtomicUsize>,
}

impl Maker {
    pub(crate) fn of(of: &'static str, live_count: &Arc<LiveCount>) -> Self {
        Self {
            of,
            live_count: Arc::clone(live_count),
            ..Self::default()
        }
    }
}

impl Manager for Maker {
    type Member = Live;
    type Error = &'static str;

    async fn start(&self) -> Result<Live, &'static str> {
        // What a start makes counts from its beginning.
        let live = Live::new(self);
        sleep(self.start).await;
        if self.fails.load(SeqCst) {
            return Err("the server is down");
        }
        Ok(live)
    }

    async fn stop(&self, member: Live, _why: Retired) {
        sleep(self.stop).await;
        drop(member);
    }

    fn abort(&self, _member: &Live) -> Option<Box<dyn FnOnce() + Send>> {
        let aborts = Arc::clone(&self.aborts);
        Some(Box::new(move || {
            aborts.fetch_add(1, SeqCst);
        }))
    }
}
