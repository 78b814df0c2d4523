//! Waits until a child is ready, in the way its program says.
//!
//! Whether somebody listens is read from the system's tables. To connect would
//! say no more, and would disturb: a child may open something costly for each
//! connection, or accept only one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Address;
use super::procfs::{self, Owner};
use super::program::{Program, Ready};

/// How often to look whether somebody listens, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(25);

/// What to wait for, of one child.
pub(super) struct Wanted {
    pub(super) ready: Ready,
    pub(super) socket: String,
    pub(super) port: Option<u16>,
    /// Is the child told of its socket?
    pub(super) names_socket: bool,
    pub(super) group: i32,
}

/// Somebody outside the child's group listens on its port.
pub(super) struct Taken;

impl Wanted {
    pub(super) fn new(program: &Program, socket: String, port: Option<u16>, group: i32) -> Self {
        Self {
            ready: program.ready.clone(),
            socket,
            port,
            names_socket: program.names("{socket}"),
            group,
        }
    }

    pub(super) async fn wait(
        &self,
        mut said: watch::Receiver<Option<String>>,
    ) -> Result<Option<Address>, Taken> {
        match (&self.ready, self.port) {
            (Ready::Socket, _) => {
                self.socket().await;
                Ok(self.told())
            }
            (Ready::Port, Some(port)) => self.port(port).await.map(Some),
            (Ready::Line(_) | Ready::Notify, _) => {
                let address = said.wait_for(Option::is_some).await.ok();
                let address = address.and_then(|address| address.clone());
                let address = address.filter(|address| !address.is_empty());
                Ok(address.map_or_else(|| self.told(), |text| Some(Address::of(&text))))
            }
            (Ready::Started | Ready::Port, _) => Ok(self.told()),
        }
    }

    /// What was waited for in vain.
    pub(super) async fn missing(&self) -> String {
        match &self.ready {
            Ready::Socket => format!("nobody listens at {}", self.socket),
            Ready::Port => {
                let port = self.port.unwrap_or_default();
                let group = self.group;
                let found = spawn_blocking(move || procfs::ports(group)).await;
                let others = found.unwrap_or_default().into_iter();
                let others: Vec<_> = others.map(|port| port.to_string()).collect();
                let missing = format!("nobody listens at port {port}");
                match &others[..] {
                    [] => missing,
                    others => format!("{missing}, but at {}", others.join(", ")),
                }
            }
            Ready::Notify => "READY=1 was not sent to its NOTIFY_SOCKET".to_owned(),
            Ready::Line(text) => format!("no line had `{text}` in it"),
            Ready::Started => "it was not loaded".to_owned(),
        }
    }

    /// The address the child was told to be at.
    fn told(&self) -> Option<Address> {
        if self.names_socket {
            return Some(Address::Socket(self.socket.clone().into()));
        }
        let near = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.port.map(near).map(Address::Port)
    }

    async fn socket(&self) {
        let mut pause = LOOK_MIN;
        loop {
            // A look at a path is cheap, and until it is there it is enough.
            if fs::exists(&self.socket).unwrap_or(false) {
                let path = self.socket.clone();
                match spawn_blocking(move || procfs::listens(&path)).await {
                    Ok(Some(true)) => return,
                    Ok(Some(false)) => (),
                    _ if UnixStream::connect(&self.socket).await.is_ok() => return,
                    _ => (),
                }
            }
            rest(&mut pause).await;
        }
    }

    async fn port(&self, port: u16) -> Result<Address, Taken> {
        let mut pause = LOOK_MIN;
        let group = self.group;
        loop {
            match spawn_blocking(move || procfs::owner(port, group)).await {
                Ok(Owner::Group(at)) => {
                    let address = (reachable(at, port).await, port);
                    return Ok(Address::Port(address.into()));
                }
                Ok(Owner::Stranger) => return Err(Taken),
                Ok(Owner::Nobody) | Err(_) => rest(&mut pause).await,
            }
        }
    }
}

async fn rest(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = (*pause * 2).min(LOOK_MAX);
}

/// The address by which to reach who listens at this one. Whoever listens at
/// every newer address may or may not listen at the older ones.
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
