//! Lends plain TCP streams to one address.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;

use socket2::{SockRef, Socket};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::Retired;
use crate::pool::Manager;

/// Starts, checks and stops TCP streams.
///
/// ```
/// let tcp = rideau::adapters::Tcp::new("127.0.0.1:7");
/// assert!(tcp.nodelay);
/// ```
///
/// A stream is broken when the other side has closed it, and also when something
/// is there to be read while it has no holder: that is the rest of an answer
/// that the last holder did not wait for, and the next one would take it for
/// its own. So this is not for protocols in which the server speaks first.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Where to connect: a host, or an IP address, and a port.
    pub address: String,
    /// Send small pieces at once, instead of waiting for more to send with them.
    pub nodelay: bool,
    /// Watch each stream, so that one that the other side closes is known to be
    /// lost at once, and not only when it is to be handed out. Nothing is read
    /// from it. It costs a second file descriptor, and a wake-up of the watching
    /// task whenever something arrives.
    pub watch: bool,
}

impl Tcp {
    /// Streams to `address`, such as `127.0.0.1:7`, without delay and watched.
    pub fn new(address: impl fmt::Display) -> Self {
        Self {
            address: address.to_string(),
            nodelay: true,
            watch: true,
        }
    }
}

impl Manager for Tcp {
    type Member = TcpStream;
    type Error = io::Error;

    async fn start(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(self.nodelay)?;
        Ok(stream)
    }

    fn is_broken(&self, member: &mut TcpStream) -> bool {
        // Asks the system and not tokio, which may not have heard of it yet.
        let peeked = SockRef::from(&*member).peek(&mut [MaybeUninit::uninit()]);
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Shuts the stream down, and does not wait for the other side.
    async fn stop(&self, member: TcpStream, _why: Retired) {
        // Dropping it would not close the socket while a duplicate is around.
        // An error says that it is closed already.
        let _ = SockRef::from(&member).shutdown(Shutdown::Both);
    }

    fn lost(&self, member: &TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let watched = if self.watch {
            // Without a descriptor to spare, it is found out at the hand-out.
            duplicate(member).and_then(watch).ok()
        } else {
            None
        };
        async {
            match watched {
                Some(stream) => closed(stream).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Shuts the socket down through a duplicate of it: the holder's reads end
    /// and its writes fail.
    fn abort(&self, member: &TcpStream) -> Option<Box<dyn FnOnce() + Send>> {
        let socket = duplicate(member).ok()?;
        Some(Box::new(move || {
            // An error says that it is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }))
    }
}

fn duplicate(stream: &TcpStream) -> io::Result<Socket> {
    SockRef::from(stream).try_clone()
}

/// The same socket for a second time, with a readiness of its own.
fn watch(socket: Socket) -> io::Result<TcpStream> {
    TcpStream::from_std(socket.into())
}

/// Resolves when nothing more will ever arrive on `stream`.
async fn closed(stream: TcpStream) {
    while let Ok(ready) = stream.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        // Something arrived, which is the holder's to read. Forget about it, and
        // wait for what comes next.
        let _ = stream.try_io(Interest::READABLE, || -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        });
    }
}
