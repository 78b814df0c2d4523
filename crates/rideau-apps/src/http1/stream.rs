//! A way to a client or to a process.

use std::future::poll_fn;
use std::io;
use std::net;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rideau_process::Address;
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A client that is silent is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(60);

/// An open way to a client or to a process.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Open one to a process.
    pub(crate) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Socket(path) => UnixStream::connect(path).await.map(Self::Unix),
            Address::Port(address) => {
                let stream = TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                Ok(Self::Tcp(stream))
            }
            Address::Said(text) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{text:?} is not an address to connect to"),
            )),
        }
    }
}

/// One that no runtime knows, on its way from one to another.
pub(crate) enum ParkedStream {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

/// What a client's connection needs before it is served.
impl Stream {
    /// Send what is written at once, and notice at last if a client vanished without a word.
    pub(crate) fn prepare_for_client(&self) {
        let Some(socket) = self.socket() else {
            return;
        };
        let _ = socket.set_tcp_nodelay(true);
        let asked = TcpKeepalive::new()
            .with_time(ASK_AFTER)
            .with_interval(ASK_AFTER / 4);
        let _ = socket.set_tcp_keepalive(&asked);
    }

    /// Let it be served by another runtime.
    ///
    /// # Errors
    ///
    /// If this one does not let go of it, or it is within TLS.
    pub(crate) fn park(self) -> io::Result<ParkedStream> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(ParkedStream::Tcp),
            Self::Unix(stream) => stream.into_std().map(ParkedStream::Unix),
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Wait until something came, and look at it without taking it.
    ///
    /// # Errors
    ///
    /// If nothing will come, or it is within TLS.
    pub(crate) async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        if let Self::Tls(_) = self {
            return Err(io::ErrorKind::Unsupported.into());
        }
        loop {
            poll_fn(|context| self.poll_readable(context)).await?;
            let came = self.when(Interest::READABLE, |socket| {
                Ok(recv(socket, &mut *into, RecvFlags::PEEK)?.0)
            });
            match came {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                came => return came,
            }
        }
    }
}

impl ParkedStream {
    /// Serve it by this runtime.
    pub(crate) fn resume(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

/// The hot path of most requests.
impl Stream {
    /// Ready when something may have come. What is within TLS may wait there, so
    /// that this says nothing.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
            Self::Tls(_) => Poll::Ready(Ok(())),
        }
    }

    /// Something may have come, as far as is known. No task is woken if something
    /// does.
    pub(crate) fn may_be_readable(&self) -> bool {
        self.when(Interest::READABLE, |_| Ok(())).is_ok()
    }

    /// Read what came, as much as there is room for; none if that was the end.
    ///
    /// # Errors
    ///
    /// If nothing came, or nothing will.
    pub(crate) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut came = None;
        let read = self.when(Interest::READABLE, |socket| {
            let room = into.capacity() - into.len();
            let (len, _) = recv(socket, spare_capacity(into), RecvFlags::empty())?;
            came = Some(len);
            if (1..room).contains(&len) {
                // That was all: there is nothing more before the system says so.
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match came {
            Some(len) => Ok(len),
            None => read.map(|()| 0),
        }
    }

    /// Send as much of it as the peer takes at once.
    ///
    /// # Errors
    ///
    /// If it takes nothing, or will take nothing any more.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.when(Interest::WRITABLE, |socket| {
            Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
        })
    }

    /// Have the system keep no more than this of what was written and could not be sent yet,
    /// so that what it takes says how fast the peer takes it.
    pub(crate) fn limit_unsent(&self, bytes: u32) {
        if let Some(socket) = self.socket() {
            let _ = socket.set_tcp_notsent_lowat(bytes);
        }
    }

    /// When it is dropped, what was not sent is forgotten, and the peer is told so.
    pub(crate) fn reset_at_end(&self) {
        if let Some(socket) = self.socket() {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }

    fn socket(&self) -> Option<SockRef<'_>> {
        match self {
            Self::Tcp(stream) => Some(SockRef::from(stream)),
            Self::Tls(stream) => Some(SockRef::from(stream.get_ref().0)),
            Self::Unix(_) => None,
        }
    }

    /// Something that was written is still here, and goes when it is flushed.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.get_ref().1.wants_write())
    }

    /// Do this if the socket may be ready for it. If it turns out not to be, it is
    /// not until the system says so.
    fn when<T>(
        &self,
        ready: Interest,
        done: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(ready, || done(stream.as_fd())),
            Self::Unix(stream) => stream.try_io(ready, || done(stream.as_fd())),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Sockets have nothing to flush.
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
