//! Work that may take as long as a disk does, on threads that serve no client.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Threads at a time. A disk that hangs keeps no more of them waiting, and what else needs threads
/// has others.
const THREADS_MAX: usize = 64;

/// The threads that files are opened and read on.
#[derive(Clone)]
pub(super) struct Disk(Arc<Semaphore>);

impl Disk {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(THREADS_MAX)))
    }

    /// Do this when a thread is free. It is done to its end, also if this is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(io::Error::other)?
    }
}
