//! A process that is ready, as those who use it see it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rideau_core::apps::{Leaving, ProcessId};
use tokio::sync::watch;

use super::app::App;
use crate::front::Connections;
use crate::process::{Address, Process};

/// A process that is ready.
pub struct Running {
    /// Which it is.
    pub id: ProcessId,
    /// The code it runs.
    pub generation: u64,
    /// Whose it is.
    pub app: Arc<App>,
    /// Where it is reached.
    pub address: Address,
    /// The connections to it that wait to be used again.
    pub connections: Connections,
    /// What it serves now.
    pub requests: Requests,
    pub(super) process: Process,
    pub(super) draining: watch::Receiver<Option<Leaving>>,
}

/// What is wanted of a process, for those who look.
#[derive(Clone, Debug)]
pub struct Request {
    /// As `GET`.
    pub method: hyper::Method,
    /// What for.
    pub path: Box<str>,
    /// From whom.
    pub client: Option<IpAddr>,
    /// Since when.
    pub since: Instant,
}

/// Requests that are being served, by places that are used again.
#[derive(Default)]
pub struct Requests(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    places: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Running {
    /// Its number in the system.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Resolves when it gets no more requests, with why.
    pub fn drained(&self) -> impl Future<Output = Leaving> + Send + use<> {
        let mut draining = self.draining.clone();
        async move {
            let told = draining.wait_for(Option::is_some).await;
            told.ok().and_then(|why| *why).unwrap_or(Leaving::Closed)
        }
    }
}

impl Requests {
    pub(super) fn add(&self, request: Request) -> usize {
        let mut listed = self.0.lock();
        match listed.free.pop() {
            Some(at) => {
                listed.places[at] = Some(request);
                at
            }
            None => {
                listed.places.push(Some(request));
                listed.places.len() - 1
            }
        }
    }

    pub(super) fn remove(&self, at: usize) {
        let mut listed = self.0.lock();
        let request = listed.places[at].take();
        listed.free.push(at);
        drop(listed);
        drop(request);
    }

    /// All of them now.
    pub fn all(&self) -> Vec<Request> {
        self.0.lock().places.iter().flatten().cloned().collect()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("id", &self.id)
            .field("app", &self.app.name)
            .field("pid", &self.pid())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
