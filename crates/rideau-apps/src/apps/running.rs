//! A process that is ready, or a server, as the requests that use it see it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_config::ServerPlace;
use rideau_core::apps::{Leaving, ProcessId};
use rideau_process::{Address, Process};
use tokio::sync::watch;

use super::app::App;
use crate::io_threads::IoThreads;
use crate::upstream::Connections;

/// A process that is ready, or a server that others started.
pub struct Running {
    /// Which it is.
    pub id: ProcessId,
    /// The code it runs.
    pub generation: u64,
    /// The app it is of.
    pub app: Arc<App>,
    /// Where it is reached.
    pub address: Address,
    /// The connections to it that wait to be used again.
    pub connections: Connections,
    /// The requests that it serves now.
    pub requests: Requests,
    /// The processor time it had used at the last look, in microseconds.
    pub(super) processor: AtomicU64,
    pub(super) origin: Origin,
    pub(super) draining: watch::Receiver<Option<Leaving>>,
}

/// Where something that serves comes from.
pub(super) enum Origin {
    /// It was started here.
    Own(Process),
    /// Others started it, and the config has it so.
    Server(ServerPlace),
}

/// A request that a process serves, as operators see it.
#[derive(Clone, Debug)]
pub struct Request {
    /// As `GET`.
    pub method: hyper::Method,
    /// With what follows a `?`.
    pub path: String,
    /// From which client.
    pub client: Option<IpAddr>,
    /// Since when.
    pub since: Instant,
}

/// Requests that are being served, by places that are used again. Each I/O thread has a
/// list of its own, as long as there are not too many, so that I/O threads do not meet.
#[derive(Default)]
pub struct Requests([Mutex<Listed>; LISTS]);

const LISTS: usize = 16;

/// Where a request is listed: on which list, and where on that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listing {
    list: usize,
    at: usize,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Listed {
    places: Vec<Place>,
    free: Vec<usize>,
}

/// Where a request is listed, or none.
struct Place {
    /// None of the others means anything otherwise.
    is_taken: bool,
    method: hyper::Method,
    /// Its room is used again.
    path: Vec<u8>,
    client: Option<IpAddr>,
    since: Instant,
}

/// Room for a longer path is given back.
const PATH_MAX: usize = 512;

impl Running {
    /// The process, if it was started here.
    pub(super) fn own(&self) -> Option<&Process> {
        match &self.origin {
            Origin::Own(process) => Some(process),
            Origin::Server(_) => None,
        }
    }

    /// The process around which there is a task.
    pub(super) fn child(&self) -> &Process {
        self.own().expect("such a task is around processes alone")
    }

    /// What the config calls it, if others started it.
    pub fn server(&self) -> Option<&ServerPlace> {
        match &self.origin {
            Origin::Own(_) => None,
            Origin::Server(place) => Some(place),
        }
    }

    /// How people are told of a server: its address, and its name if it has one.
    pub(super) fn called(&self) -> String {
        match self.server() {
            Some(place @ ServerPlace::Name { .. }) => format!("{} ({place})", self.address),
            _ => self.address.to_string(),
        }
    }

    /// The host that the server's own requests to it are for.
    pub(super) fn probe_host(&self) -> String {
        let config = self.app.config.load();
        match self.server().and_then(ServerPlace::host) {
            Some(host) if config.hosts.iter().all(|host| host.contains('*')) => host,
            _ => config.probe_host().into(),
        }
    }

    /// Its number in the system, if it was started here.
    pub fn pid(&self) -> Option<i32> {
        self.own().map(Process::pid)
    }

    /// Whether it has begun to end, as far as is known. Asks the system, so not for every
    /// request.
    pub fn is_ending(&self) -> bool {
        self.own().is_some_and(Process::is_ending)
    }

    /// The processor time it had used at the last look, with all it has started.
    pub fn processor(&self) -> Duration {
        Duration::from_micros(self.processor.load(Ordering::Relaxed))
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
    pub(super) fn add(
        &self,
        method: &hyper::Method,
        path: &[u8],
        client: Option<IpAddr>,
        since: Instant,
    ) -> Listing {
        let list = IoThreads::here().unwrap_or_default() % LISTS;
        let mut listed = self.0[list].lock();
        let Listed { places, free } = &mut *listed;
        let Some(at) = free.pop() else {
            places.push(Place {
                is_taken: true,
                method: method.clone(),
                path: path.to_vec(),
                client,
                since,
            });
            let at = places.len() - 1;
            return Listing { list, at };
        };
        let place = &mut places[at];
        place.is_taken = true;
        place.method.clone_from(method);
        place.path.extend_from_slice(path);
        (place.client, place.since) = (client, since);
        Listing { list, at }
    }

    pub(super) fn remove(&self, Listing { list, at }: Listing) {
        let mut listed = self.0[list].lock();
        let place = &mut listed.places[at];
        place.is_taken = false;
        place.path.clear();
        if place.path.capacity() > PATH_MAX {
            place.path = Vec::new();
        }
        listed.free.push(at);
    }

    /// All of them now, the oldest first.
    pub fn all(&self) -> Vec<Request> {
        let mut all = Vec::new();
        for list in &self.0 {
            let listed = list.lock();
            let taken = listed.places.iter().filter(|place| place.is_taken);
            all.extend(taken.map(Place::request));
        }
        all.sort_by_key(|request| request.since);
        all
    }
}

impl Place {
    fn request(&self) -> Request {
        Request {
            method: self.method.clone(),
            path: String::from_utf8_lossy(&self.path).into_owned(),
            client: self.client,
            since: self.since,
        }
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

#[cfg(test)]
mod tests {
    use hyper::Method;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_oldest_request_is_first_whatever_lane_it_is_on() {
        let io_threads = IoThreads::start(Some(2)).unwrap();
        let requests = Arc::new(Requests::default());
        let now = Instant::now();
        let mut listings = Vec::new();
        for (path, age) in [("/c", 1), ("/a", 3), ("/b", 2)] {
            let (listed, listing) = oneshot::channel();
            let since = now.checked_sub(Duration::from_secs(age)).unwrap();
            let its = Arc::clone(&requests);
            io_threads.spawn(move || async move {
                let _ = listed.send(its.add(&Method::GET, path.as_bytes(), None, since));
            });
            listings.push(listing.await.unwrap());
        }
        let paths = || {
            let all = requests.all().into_iter();
            all.map(|request| request.path).collect::<Vec<_>>()
        };
        assert_ne!(
            listings[0].list, listings[1].list,
            "each thread has its own"
        );
        assert_eq!(paths(), ["/a", "/b", "/c"]);
        requests.remove(listings[2]);
        assert_eq!(paths(), ["/a", "/c"]);
        let again = requests.add(&Method::GET, b"/d", None, now);
        assert_eq!(paths(), ["/a", "/c", "/d"]);
        requests.remove(again);
    }
}
