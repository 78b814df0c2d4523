//! Sockets that a supervisor opened before it started the server (`LISTEN_FDS`).
//!
//! Each serves the option of the config that names its address. The supervisor keeps it
//! open over a restart, so clients that connect meanwhile wait and do not fail.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::OnceLock;

use listenfd::ListenFd;
use parking_lot::Mutex;
use socket2::SockRef;

/// The sockets that were passed to this process.
static PASSED: OnceLock<Mutex<Vec<Passed>>> = OnceLock::new();

struct Passed {
    /// Where it listens; none if it is of no use.
    name: Option<String>,
    /// None once it is used.
    socket: Option<Socket>,
}

enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener),
    /// Why it is of no use.
    Useless(String),
}

/// Take the sockets that were passed to this process. Programs that it starts are not
/// told of them. Called before there are threads, as it changes the environment.
pub fn adopt() {
    PASSED.get_or_init(|| {
        let mut all = ListenFd::from_env();
        let all = (0..all.len())
            .map(|at| Passed::take(&mut all, at))
            .collect();
        Mutex::new(all)
    });
}

impl Passed {
    fn take(all: &mut ListenFd, at: usize) -> Self {
        let (name, socket) = match taken(all, at) {
            Ok((name, socket)) => (Some(name), socket),
            Err(error) => (None, Socket::Useless(error.to_string())),
        };
        Self {
            name,
            socket: Some(socket),
        }
    }
}

fn taken(all: &mut ListenFd, at: usize) -> io::Result<(String, Socket)> {
    if let Ok(Some(listener)) = all.take_tcp_listener(at) {
        listens(&listener)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        return Ok((address.to_string(), Socket::Tcp(listener, address)));
    }
    let Some(listener) = all.take_unix_listener(at)? else {
        return Err(io::Error::other("it was taken already"));
    };
    listens(&listener)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let Some(path) = address.as_pathname() else {
        return Err(io::Error::other("it has no path"));
    };
    Ok((name_of(path), Socket::Unix(listener)))
}

fn listens(socket: &impl AsFd) -> io::Result<()> {
    match SockRef::from(socket).is_listener()? {
        true => Ok(()),
        false => Err(io::Error::other(
            "it is a connection: the socket unit needs Accept=no",
        )),
    }
}

fn name_of(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// The socket that was passed for this address. One that listens everywhere is the same
/// for both families.
pub fn tcp(address: SocketAddr) -> Option<TcpListener> {
    let mut passed = PASSED.get()?.lock();
    passed.iter_mut().find_map(|one| match one.socket.take() {
        Some(Socket::Tcp(listener, at)) if is_same(at, address) => Some(listener),
        other => {
            one.socket = other;
            None
        }
    })
}

fn is_same(passed: SocketAddr, address: SocketAddr) -> bool {
    let is_everywhere = passed.ip().is_unspecified() && address.ip().is_unspecified();
    passed.port() == address.port() && (is_everywhere || passed.ip() == address.ip())
}

/// The socket that was passed for this path.
pub fn unix(path: &Path) -> Option<UnixListener> {
    let name = name_of(path);
    let mut passed = PASSED.get()?.lock();
    passed.iter_mut().find_map(|one| match one.socket.take() {
        Some(Socket::Unix(listener)) if one.name.as_ref() == Some(&name) => Some(listener),
        other => {
            one.socket = other;
            None
        }
    })
}

/// Whether the socket at this place was passed to the server.
pub fn is_one(place: &str) -> bool {
    PASSED.get().is_some_and(|passed| {
        let passed = passed.lock();
        passed.iter().any(|one| one.name.as_deref() == Some(place))
    })
}

/// A socket at this port was passed, and nothing has used it.
pub fn unused_at(port: u16) -> Option<String> {
    let passed = PASSED.get()?.lock();
    let mut unused = passed.iter().filter_map(|one| match &one.socket {
        Some(Socket::Tcp(_, address)) if address.port() == port => one.name.clone(),
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
        Some(match (one.socket.take()?, one.name.take()) {
            (Socket::Useless(why), _) => {
                format!("socket {at} that was passed to the server cannot be used: {why}")
            }
            (_, name) => format!(
                "a socket at {} was passed to the server, and no option names that address: \
                 clients that connect to it wait for ever; name it with server.listen, \
                 server.admin or front.listen, or remove it from the socket unit",
                name.unwrap_or_default()
            ),
        })
    });
    unused.collect()
}
