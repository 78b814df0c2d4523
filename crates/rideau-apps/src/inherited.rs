//! Sockets that were opened before this server listens: by a supervisor that started it
//! (`LISTEN_FDS`), or by the server that this one replaces.
//!
//! Each serves the option of the config that names its address, or the name that the
//! supervisor gave it (`LISTEN_FDNAMES`). A supervisor keeps it open over a restart, so
//! clients that connect meanwhile wait and do not fail.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::OnceLock;

use listenfd::ListenFd;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef};

/// What the sockets are called, in their order.
const NAMES: &str = "LISTEN_FDNAMES";
/// The sockets that were passed to this process.
static PASSED: OnceLock<Mutex<Vec<Passed>>> = OnceLock::new();

struct Passed {
    /// Where it listens; none if it is of no use.
    place: Option<String>,
    /// What the supervisor calls it.
    name: String,
    /// What it was before this server, if it was something.
    was: Option<ListenOption>,
    /// A supervisor has it, too.
    is_supervised: bool,
    /// None once it is used. Or why it is of no use.
    socket: Option<Result<Socket, String>>,
}

/// For which clients a socket of the network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Those that speak the Redis protocol.
    Redis,
    /// Operators.
    Admin,
    /// Those of applications.
    Front,
}

/// The option that a socket of the network serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListenOption {
    /// The address that it names. The system may have chosen the port.
    pub address: SocketAddr,
    /// Its clients.
    pub role: Role,
}

/// A socket that listens, for another server on this machine.
#[derive(Debug)]
pub struct PassedListener {
    /// What the supervisor calls it, if it is one of those.
    pub name: String,
    /// What it is here, if it is one of the network.
    pub asked: Option<ListenOption>,
    /// A supervisor has it, too.
    pub is_supervised: bool,
    /// The socket.
    pub socket: OwnedFd,
}

/// A socket that listens.
pub(crate) enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener),
}

/// Take the sockets that were passed to this process. Programs that it starts are not
/// told of them. Called before there are threads, as it changes the environment.
pub fn adopt() {
    PASSED.get_or_init(|| {
        let names = env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':');
        let mut all = ListenFd::from_env();
        let all = (0..all.len())
            .map(|at| Passed::take(&mut all, at, names.next().unwrap_or_default()))
            .collect();
        Mutex::new(all)
    });
}

impl Passed {
    fn take(all: &mut ListenFd, at: usize, name: &str) -> Self {
        let (place, socket) = match taken(all, at) {
            Ok((place, socket)) => (Some(place), Ok(socket)),
            Err(error) => (None, Err(error.to_string())),
        };
        Self {
            place,
            name: name.into(),
            was: None,
            is_supervised: true,
            socket: Some(socket),
        }
    }

    /// Whether it is for the option that names this address.
    fn is_for(&self, asked: ListenOption) -> bool {
        let (address, is_asked) = (asked.address, self.was == Some(asked));
        let listens = |socket: &Socket| match socket {
            Socket::Tcp(_, at) => is_asked || is_same(*at, address),
            Socket::Unix(_) => false,
        };
        matches!(&self.socket, Some(Ok(socket)) if listens(socket))
    }

    /// Its socket, if it is one that fits and no option has it.
    fn take_if(&mut self, fits: impl FnOnce(&Socket) -> bool) -> Option<Socket> {
        let does_fit = matches!(&self.socket, Some(Ok(socket)) if fits(socket));
        self.socket.take_if(|_| does_fit)?.ok()
    }
}

fn taken(all: &mut ListenFd, at: usize) -> io::Result<(String, Socket)> {
    if let Ok(Some(listener)) = all.take_tcp_listener(at) {
        return of_tcp(listener);
    }
    let Some(listener) = all.take_unix_listener(at)? else {
        return Err(io::Error::other("it was taken already"));
    };
    of_unix(listener)
}

/// A socket of this server, for another one on this machine.
///
/// # Errors
///
/// If there are too many open files.
pub fn of_listener(
    socket: BorrowedFd<'_>,
    place: &str,
    asked: Option<ListenOption>,
) -> io::Result<PassedListener> {
    Ok(PassedListener {
        name: name_of(place),
        asked,
        is_supervised: is_one(place),
        socket: socket.try_clone_to_owned()?,
    })
}

impl PassedListener {
    /// The same once more.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self {
            name: self.name.clone(),
            asked: self.asked,
            is_supervised: self.is_supervised,
            socket: self.socket.try_clone()?,
        })
    }
}

/// Add a socket to those that were passed.
///
/// # Errors
///
/// If it is of no use.
pub fn add(passed: PassedListener) -> io::Result<()> {
    let PassedListener {
        name,
        asked,
        is_supervised,
        socket,
    } = passed;
    let domain = SockRef::from(&socket).domain()?;
    let (place, socket) = match domain == Domain::UNIX {
        true => of_unix(UnixListener::from(socket))?,
        false => of_tcp(TcpListener::from(socket))?,
    };
    let mut all = PASSED.get_or_init(Mutex::default).lock();
    // What was known of the same socket before is over.
    all.retain(|one| one.socket.is_some() || one.place.as_ref() != Some(&place));
    all.push(Passed {
        place: Some(place),
        name,
        was: asked,
        is_supervised,
        socket: Some(Ok(socket)),
    });
    Ok(())
}

fn of_tcp(listener: TcpListener) -> io::Result<(String, Socket)> {
    listens(&listener)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((address.to_string(), Socket::Tcp(listener, address)))
}

fn of_unix(listener: UnixListener) -> io::Result<(String, Socket)> {
    listens(&listener)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let Some(path) = address.as_pathname() else {
        return Err(io::Error::other("it has no path"));
    };
    Ok((place_of(path), Socket::Unix(listener)))
}

fn listens(socket: &impl AsFd) -> io::Result<()> {
    match SockRef::from(socket).is_listener()? {
        true => Ok(()),
        false => Err(io::Error::other(
            "it is a connection: the socket unit needs Accept=no",
        )),
    }
}

fn place_of(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// The socket that was passed for this address. One that listens everywhere is the same
/// for both families.
pub fn tcp(address: SocketAddr, role: Role) -> Option<TcpListener> {
    let mut passed = PASSED.get()?.lock();
    let mut here = passed
        .iter_mut()
        .filter(|one| one.is_for(ListenOption { address, role }));
    match here.find_map(|one| one.take_if(|_| true))? {
        Socket::Tcp(listener, _) => Some(listener),
        Socket::Unix(_) => None,
    }
}

fn is_same(passed: SocketAddr, address: SocketAddr) -> bool {
    let is_everywhere = passed.ip().is_unspecified() && address.ip().is_unspecified();
    passed.port() == address.port() && (is_everywhere || passed.ip() == address.ip())
}

/// The socket that was passed for this path.
pub fn unix(path: &Path) -> Option<UnixListener> {
    let place = place_of(path);
    let mut passed = PASSED.get()?.lock();
    let mut here = passed
        .iter_mut()
        .filter(|one| one.place.as_ref() == Some(&place));
    match here.find_map(|one| one.take_if(|socket| matches!(socket, Socket::Unix(_))))? {
        Socket::Unix(listener) => Some(listener),
        Socket::Tcp(..) => None,
    }
}

/// The sockets that were passed with this name, and where they listen.
///
/// # Errors
///
/// If there are none that another option does not have.
pub(crate) fn named(name: &str) -> io::Result<Vec<(String, Socket)>> {
    let Some(passed) = PASSED.get() else {
        return Err(unknown_name(name, &[]));
    };
    let mut passed = passed.lock();
    let of_name = passed.iter_mut().filter(|one| one.name == name);
    let found: Vec<_> = of_name
        .filter_map(|one| Some((one.place.clone()?, one.take_if(|_| true)?)))
        .collect();
    match found.is_empty() {
        true => Err(unknown_name(name, &passed)),
        false => Ok(found),
    }
}

/// Why there is no socket of this name.
fn unknown_name(name: &str, passed: &[Passed]) -> io::Error {
    let known: Vec<_> = passed.iter().map(|one| one.name.as_str()).collect();
    let known = match known.is_empty() {
        true => "no socket was passed to the server".into(),
        false => format!(
            "the sockets that were passed to the server are called {}",
            known.join(", ")
        ),
    };
    let text = format!("{known}; sockets of systemd are named by FileDescriptorName={name}");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Whether a supervisor has the socket at this place, too.
pub fn is_one(place: &str) -> bool {
    let is_it = |one: &Passed| one.is_supervised && one.place.as_deref() == Some(place);
    PASSED
        .get()
        .is_some_and(|passed| passed.lock().iter().any(is_it))
}

/// What the supervisor calls the socket at this place.
pub fn name_of(place: &str) -> String {
    let Some(passed) = PASSED.get() else {
        return String::new();
    };
    let passed = passed.lock();
    let found = passed
        .iter()
        .find(|one| one.place.as_deref() == Some(place));
    found.map_or_else(String::new, |one| one.name.clone())
}

/// A socket at this port was passed, and nothing has used it.
pub fn unused_at(port: u16) -> Option<String> {
    let passed = PASSED.get()?.lock();
    let mut unused = passed.iter().filter_map(|one| match &one.socket {
        Some(Ok(Socket::Tcp(_, address))) if address.port() == port => one.place.clone(),
        _ => None,
    });
    unused.next()
}

/// Closes the unused sockets, and says what is wrong with each.
pub fn give_up_unused() -> Vec<String> {
    let Some(passed) = PASSED.get() else {
        return Vec::new();
    };
    let mut passed = passed.lock();
    let unused = passed.iter_mut().enumerate().filter_map(|(at, one)| {
        Some(match (one.socket.take()?, one.place.take()) {
            (Err(why), _) => {
                format!("socket {at} that was passed to the server cannot be used: {why}")
            }
            (Ok(_), place) if !one.is_supervised => format!(
                "the server before this one listened at {}, and no option names that address now",
                place.unwrap_or_default()
            ),
            (Ok(_), place) => format!(
                "a socket at {} was passed to the server, and no option names that address: \
                 clients that connect to it wait for ever; name it with server.listen, \
                 server.admin or front.listen, or remove it from the socket unit",
                place.unwrap_or_default()
            ),
        })
    });
    unused.collect()
}
