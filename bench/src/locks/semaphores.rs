//! Tokio's semaphores in a concurrent map: what people write.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Counter;

pub(super) struct Semaphores(DashMap<String, Arc<Semaphore>, RandomState>);

impl Counter for Semaphores {
    const NAME: &'static str = "semaphores";
    type Handle<'a> = &'a str;
    type Held<'a> = OwnedSemaphorePermit;

    fn start(_keys: &[String]) -> Self {
        Self(DashMap::default())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    /// The capacity is that of the key's first call.
    fn acquire<'a, 'd: 'a>(
        &'a self,
        key: &'a &'d str,
        capacity: u64,
    ) -> Option<OwnedSemaphorePermit> {
        self.semaphore(key, capacity).try_acquire_owned().ok()
    }

    /// A thread that found a semaphore under the map's lock has a reference to
    /// it, and so has a holder: the last one is the map's.
    fn forget_idle(&self) {
        self.0
            .retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
    }
}

impl Semaphores {
    fn semaphore(&self, key: &str, capacity: u64) -> Arc<Semaphore> {
        if let Some(known) = self.0.get(key) {
            return Arc::clone(&known);
        }
        let first = self.0.entry(key.to_owned());
        Arc::clone(&first.or_insert_with(|| Arc::new(Semaphore::new(capacity as usize))))
    }
}
