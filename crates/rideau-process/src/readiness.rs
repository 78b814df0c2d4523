//! Waits until a child is ready, in the way its program says.
//!
//! Whether a process listens is known to the system. To connect would
//! say no more, and would disturb: a child may open something costly for each
//! connection, or accept only one. Only a child that is to answer is asked.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::Address;
use super::group::Group;
use super::http::Probe;
use super::output_log::OutputLog;
use super::procfs::{self, Listener, Owner};
use super::program::{Listen, Program, Ready};
use super::run_folder::Place;
use super::sock_diag::Diag;

/// How often to look whether a process listens, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(5);
/// The same where a look disturbs.
const REACH_MAX: Duration = Duration::from_millis(25);
/// A look at one port sees it at the usual addresses; one look in this many is
/// at all of them.
const TABLES_EVERY: u32 = 50;
/// A child that answers that it is not ready is not asked all the time.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// One that does not answer yet is asked after ever longer pauses, and one that takes the
/// question and says nothing is asked again.
const PROBE_MIN: Duration = Duration::from_millis(10);
const PROBE_MAX: Duration = Duration::from_millis(250);
const PROBE_WAIT: Duration = Duration::from_secs(2);

/// The readiness to wait for.
pub(super) struct Wanted {
    ready: Ready,
    listen: Listen,
    socket: String,
    pub(super) port: Option<u16>,
    /// The address that the child was told to be at.
    told: Option<Address>,
    group: Arc<Group>,
    /// How it answered last when it was not ready.
    answer: Mutex<Option<String>>,
}

/// A process that does not belong to the child listens at its port.
pub(super) struct Taken;

impl Wanted {
    pub(super) fn new(program: &Program, place: &Place, group: &Arc<Group>) -> Self {
        let near = |port| Address::Port(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let told = match &program.listen {
            Listen::Fixed(address) => Some(address.clone()),
            _ if program.wants_socket() => Some(Address::Socket(place.socket.clone().into())),
            _ => place.port().map(near),
        };
        let fixed = match &program.listen {
            Listen::Fixed(Address::Port(address)) => Some(address.port()),
            _ => None,
        };
        Self {
            ready: program.ready.clone(),
            listen: program.listen.clone(),
            socket: place.socket.clone(),
            port: place.port().or(fixed),
            told,
            group: Arc::clone(group),
            answer: Mutex::new(None),
        }
    }

    /// Where the child is to be.
    pub(super) const fn told(&self) -> Option<&Address> {
        self.told.as_ref()
    }

    pub(super) async fn wait(&self, said: &OutputLog) -> Result<Option<Address>, Taken> {
        match (&self.ready, self.port) {
            (Ready::Socket, _) => {
                self.socket(Path::new(&self.socket)).await;
                Ok(self.told.clone())
            }
            (Ready::Port, Some(port)) => self.port(port).await.map(Some),
            (Ready::Line(_) | Ready::Notify, _) => {
                let address = said.ready().await;
                let address = (!address.is_empty()).then(|| Address::of(&address));
                Ok(address.or_else(|| self.told.clone()))
            }
            (Ready::Connect, _) => self.listening().await,
            (Ready::Http { probe, exact_200 }, _) => self.answers_well(probe, *exact_200).await,
            (Ready::Auto(probe), _) => self.either(said, probe).await,
            (Ready::Started | Ready::Port, _) => Ok(self.told.clone()),
        }
    }

    /// Says what did not happen.
    pub(super) fn missing(&self) -> String {
        match &self.ready {
            Ready::Socket => format!("nothing listens at {}", self.socket),
            Ready::Port => format!("nothing listens at port {}", self.port.unwrap_or_default()),
            Ready::Notify => "READY=1 was not sent to its NOTIFY_SOCKET".to_owned(),
            Ready::Line(text) => format!("no line had `{text}` in it"),
            Ready::Started => "it was not loaded".to_owned(),
            Ready::Connect | Ready::Http { .. } | Ready::Auto(_) => self.unanswered(),
        }
    }

    /// Where the child and its own listen instead.
    pub(super) async fn elsewhere(&self) -> Vec<String> {
        if matches!(self.ready, Ready::Notify | Ready::Line(_) | Ready::Started) {
            return Vec::new();
        }
        let look = || {
            let group = Arc::clone(&self.group);
            spawn_blocking(move || procfs::listened(&group.running()))
        };
        let mut found = look().await.unwrap_or_default();
        // The system's tables are read in pieces, and may lack a row that moved.
        if found.is_empty() {
            found = look().await.unwrap_or_default();
        }
        let told = self.told.as_ref().map(ToString::to_string);
        let port = self.port.map(|port| port.to_string());
        found.retain(|at| Some(at) != told.as_ref() && Some(at) != port.as_ref());
        found
    }

    fn unanswered(&self) -> String {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.told.as_ref().map(ToString::to_string);
        let at = at.unwrap_or_default();
        match &*answer {
            Some(answer) => format!("{answer} at {at}"),
            None if self.inherits() => format!("it did not answer at {at}"),
            None => format!("nothing listens at {at}"),
        }
    }

    fn inherits(&self) -> bool {
        matches!(self.listen, Listen::InheritSocket | Listen::InheritPort)
    }

    /// Notes count for a child that sends any.
    async fn either(&self, said: &OutputLog, probe: &Probe) -> Result<Option<Address>, Taken> {
        tokio::select! {
            biased;
            _ = said.ready() => Ok(self.told.clone()),
            found = self.answers(probe) => {
                if found.is_ok() && said.has_notes() {
                    said.ready().await;
                }
                found
            }
        }
    }

    /// Wait until the child listens at its address.
    async fn listening(&self) -> Result<Option<Address>, Taken> {
        match (&self.listen, &self.told) {
            (Listen::InheritSocket | Listen::InheritPort, _) => (),
            (Listen::Fixed(_), Some(Address::Socket(path))) => self.accepts(path).await,
            (_, Some(Address::Socket(path))) => self.socket(path).await,
            (_, Some(Address::Port(address))) => {
                let ip = address.ip();
                if ip.is_loopback() || ip.is_unspecified() {
                    return self.port(address.port()).await.map(Some);
                }
                reached(*address).await;
            }
            _ => (),
        }
        Ok(self.told.clone())
    }

    /// Wait until the child answers, whatever it says.
    async fn answers(&self, probe: &Probe) -> Result<Option<Address>, Taken> {
        let Some(address) = self.listening().await? else {
            return Ok(None);
        };
        let mut pause = PROBE_MIN;
        loop {
            let error = match timeout(PROBE_WAIT, probe.status(&address)).await {
                Ok(Ok(_)) => return Ok(Some(address)),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("nothing came within {PROBE_WAIT:?}"),
            };
            self.note(format!("it did not answer GET {} ({error})", probe.path));
            rest(&mut pause, PROBE_MAX).await;
        }
    }

    /// Wait until the child answers well.
    async fn answers_well(&self, probe: &Probe, exact_200: bool) -> Result<Option<Address>, Taken> {
        let Some(address) = self.listening().await? else {
            return Ok(None);
        };
        let path = &probe.path;
        let mut pause = LOOK_MIN;
        loop {
            self.note(match probe.status(&address).await {
                Ok(200) => return Ok(Some(address)),
                Ok(status) if status < 500 && !exact_200 => return Ok(Some(address)),
                Ok(status) => format!("it answered {status} to GET {path}"),
                Err(error) => format!("it did not answer to GET {path} ({error})"),
            });
            rest(&mut pause, ASK_EVERY).await;
        }
    }

    /// How it answered last when it was not ready.
    fn note(&self, answer: String) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    async fn socket(&self, path: &Path) {
        let mut pause = LOOK_MIN;
        loop {
            // A look at a path is cheap, and until it is there it is enough.
            if fs::exists(path).unwrap_or(false) {
                let text = path.to_string_lossy().into_owned();
                match spawn_blocking(move || procfs::listens(&text)).await {
                    Ok(Some(true)) => return,
                    Ok(Some(false)) => (),
                    _ if UnixStream::connect(path).await.is_ok() => return,
                    _ => (),
                }
            }
            rest(&mut pause, LOOK_MAX).await;
        }
    }

    /// Wait until one of the child's own listens at a path that any process could
    /// have taken. It is connected to only if the system does not know the path, as
    /// when that was bound by another.
    async fn accepts(&self, path: &Path) {
        let mut pause = LOOK_MIN;
        loop {
            let (text, group) = (path.to_string_lossy().into_owned(), Arc::clone(&self.group));
            let looked = spawn_blocking(move || {
                fs::exists(&text).unwrap_or(false).then(|| {
                    let tree = group.running();
                    (procfs::listens_of(&text, &tree), tree)
                })
            });
            match looked.await.unwrap_or_default() {
                Some((Some(true), _)) => return,
                Some((None, tree)) if is_of(path, &tree).await => return,
                _ => rest(&mut pause, REACH_MAX).await,
            }
        }
    }

    async fn port(&self, port: u16) -> Result<Address, Taken> {
        let diag = Diag::open().ok();
        let mut pause = LOOK_MIN;
        let mut looks = 0_u32;
        // Those take long where there are many sockets, and nothing waits for them.
        let mut tables: Option<JoinHandle<Owner>> = None;
        loop {
            looks = looks.wrapping_add(1);
            let seen = diag.as_ref().and_then(|diag| diag.listener(port).ok());
            let mut owner = self.owner(port, seen).await;
            if owner == Owner::None && looks.is_multiple_of(TABLES_EVERY) {
                tables.get_or_insert_with(|| self.look_at_tables(port));
            }
            if owner == Owner::None
                && let Some(done) = tables.take_if(|tables| tables.is_finished())
            {
                owner = done.await.unwrap_or(Owner::None);
            }
            match owner {
                Owner::Tree(at) => {
                    let address = (reachable(at, port).await, port);
                    return Ok(Address::Port(address.into()));
                }
                Owner::Stranger => return Err(Taken),
                Owner::None => rest(&mut pause, LOOK_MAX).await,
            }
        }
    }

    /// Look at all addresses for the process that listens at a port.
    fn look_at_tables(&self, port: u16) -> JoinHandle<Owner> {
        let group = Arc::clone(&self.group);
        spawn_blocking(move || procfs::owner(port, || group.running()))
    }

    /// Which process listens at a port, after a look at it alone if that was
    /// possible.
    async fn owner(&self, port: u16, seen: Option<Option<Listener>>) -> Owner {
        let found = match seen {
            Some(None) => return Owner::None,
            Some(found) => found,
            None => None,
        };
        let group = Arc::clone(&self.group);
        let owner = spawn_blocking(move || match found {
            // Mostly it is the child itself, and no other process has to be looked
            // at.
            Some(found) if procfs::has_socket(group.pid(), found.inode) => {
                Owner::Tree(found.address)
            }
            _ => procfs::owner(port, || group.running()),
        });
        owner.await.unwrap_or(Owner::None)
    }
}

async fn rest(pause: &mut Duration, most: Duration) {
    sleep(*pause).await;
    *pause = (*pause * 2).min(most);
}

/// Does one of these accept at a path?
async fn is_of(path: &Path, tree: &[i32]) -> bool {
    let peer = UnixStream::connect(path).await;
    let peer = peer.and_then(|stream| stream.peer_cred());
    peer.is_ok_and(|peer| peer.pid().is_none_or(|pid| tree.contains(&pid)))
}

/// Wait until a process accepts. Whose it is cannot be seen from here.
async fn reached(address: SocketAddr) {
    let mut pause = LOOK_MIN;
    while TcpStream::connect(address).await.is_err() {
        rest(&mut pause, REACH_MAX).await;
    }
}

/// The address by which to reach the listener at this one. A listener at every
/// newer address may or may not listen at the older ones.
async fn reachable(at: IpAddr, port: u16) -> IpAddr {
    let (old, new) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    match at {
        IpAddr::V4(at) if at.is_unspecified() => old,
        IpAddr::V6(at) if at.is_unspecified() => match TcpStream::connect((old, port)).await {
            Ok(_) => old,
            Err(_) => new,
        },
        at => at,
    }
}
