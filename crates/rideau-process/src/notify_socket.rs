//! Hears what children say of themselves, and which process says it.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::cmsg_space;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// A status that is longer is cut by the system.
const NOTE_LEN_MAX: usize = 4096;

/// Where notes arrive.
pub(super) struct Notes {
    socket: UnixDatagram,
    bytes: Vec<u8>,
}

/// A message from a process.
pub(super) struct Note {
    pub(super) text: String,
    /// The number of the process that said it, if the system knows.
    pub(super) sender: Option<i32>,
}

impl Notes {
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        set_socket_passcred(&socket, true)?;
        Ok(Self {
            socket,
            bytes: vec![0; NOTE_LEN_MAX],
        })
    }

    /// The next note.
    pub(super) async fn hear(&mut self) -> io::Result<Note> {
        let Self { socket, bytes } = self;
        let heard = socket.async_io(Interest::READABLE, || receive(socket, bytes));
        let (len, sender) = heard.await?;
        Ok(Note {
            text: String::from_utf8_lossy(&bytes[..len]).into_owned(),
            sender,
        })
    }
}

/// Files that come along find no room, and are closed: a sender that waits for
/// that, as `systemd-notify` does, goes on.
fn receive(socket: &UnixDatagram, bytes: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmCredentials(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut parts, &mut along, flags)?;
    let sender = along.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    });
    Ok((received.bytes, sender))
}
