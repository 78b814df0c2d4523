//! Members whose number is known: those that were made and not dropped yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rideau::{Manager, Retired};
use tokio::time::sleep;

/// Counts all members of one or several pools.
#[derive(Default, Debug)]
pub struct Census {
    live: AtomicUsize,
    most: AtomicUsize,
    made: AtomicUsize,
}

impl Census {
    pub fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    pub fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    pub fn made(&self) -> usize {
        self.made.load(SeqCst)
    }
}

/// A member, from its first moment to its drop.
#[derive(Debug)]
pub struct Live {
    pub of: &'static str,
    pub number: usize,
    census: Arc<Census>,
}

impl Live {
    fn new(of: &'static str, census: &Arc<Census>) -> Self {
        let live = census.live.fetch_add(1, SeqCst) + 1;
        census.most.fetch_max(live, SeqCst);
        Self {
            of,
            number: census.made.fetch_add(1, SeqCst),
            census: Arc::clone(census),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.census.live.fetch_sub(1, SeqCst);
    }
}

/// Makes members as told.
#[derive(Clone, Default, Debug)]
pub struct Maker {
    pub of: &'static str,
    pub census: Arc<Census>,
    pub start: Duration,
    pub stop: Duration,
    pub fails: Arc<AtomicBool>,
    pub aborts: Arc<AtomicUsize>,
}

impl Maker {
    pub fn of(of: &'static str, census: &Arc<Census>) -> Self {
        Self {
            of,
            census: Arc::clone(census),
            ..Self::default()
        }
    }
}

impl Manager for Maker {
    type Member = Live;
    type Error = &'static str;

    async fn start(&self) -> Result<Live, &'static str> {
        // What a start makes counts from its beginning.
        let live = Live::new(self.of, &self.census);
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
