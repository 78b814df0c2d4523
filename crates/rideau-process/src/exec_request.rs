//! What a child is told before it becomes its program, and what it answers if
//! it cannot.
//!
//! Both go over a socket that is its standard input: no file has secrets in it,
//! and no list of processes shows them. When the program runs, the socket is
//! closed, so that silence means success.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::credentials::Credentials;
use super::program::ResourceLimits;
use super::start_step::StartStep;

/// The first byte on the socket, with the listener or without.
const GREETING: &[u8] = b"r";

/// The program to become, and how.
#[derive(Serialize, Deserialize)]
pub(super) struct ExecRequest {
    /// The files that the program could be, the first one first.
    pub(super) files: Vec<OsString>,
    /// The word of the program in the config.
    pub(super) word: String,
    pub(super) words: Vec<String>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) directory: Option<OsString>,
    pub(super) account: Option<Credentials>,
    pub(super) umask: Option<u32>,
    pub(super) new_privileges: bool,
    pub(super) limits: ResourceLimits,
    /// Files that it may have until it asks for more, where no limit is set.
    pub(super) files_usual: Option<u64>,
    pub(super) cgroup: Option<OsString>,
    /// The number of the process that gave this order.
    pub(super) parent: i32,
}

impl ExecRequest {
    /// The likely file of the program.
    pub(super) fn file(&self) -> &Path {
        Path::new(self.files.first().map_or("".as_ref(), OsString::as_os_str))
    }
}

/// Why it could not be.
#[derive(Serialize, Deserialize)]
pub(super) struct ExecFailure {
    pub(super) step: StartStep,
    pub(super) what: String,
    pub(super) errno: Option<i32>,
    pub(super) text: String,
}

impl ExecFailure {
    pub(super) fn new(step: StartStep, what: impl Into<String>, error: &io::Error) -> Self {
        Self {
            step,
            what: what.into(),
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    pub(super) fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(self.text.clone()),
        }
    }
}

/// Pass the listener on. It does not block: the socket is new.
pub(super) fn greet(socket: &UnixStream, listener: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    let listeners: Vec<BorrowedFd<'_>> = listener.into_iter().collect();
    if !listeners.is_empty() {
        passed.push(SendAncillaryMessage::ScmRights(&listeners));
    }
    let greeting = [IoSlice::new(GREETING)];
    sendmsg(socket, &greeting, &mut passed, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Take the greeting, and what was passed on with it: as the lowest number
/// that is free, and kept open by whatever program follows.
pub(super) fn greeted(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    let mut parts = [io::IoSliceMut::new(&mut greeting)];
    let received = recvmsg(socket, &mut parts, &mut passed, RecvFlags::empty())?;
    if received.bytes == 0 {
        return Err(Errno::PIPE.into());
    }
    let rights = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok(rights.flatten().next())
}

/// Give the order, and wait until the program runs or cannot.
pub(super) async fn deliver(
    socket: UnixStream,
    order: &ExecRequest,
) -> io::Result<Option<ExecFailure>> {
    socket.set_nonblocking(true)?;
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    let text = serde_json::to_vec(order)?;
    // A child that does not listen may have complained before.
    let told = async {
        socket.write_all(&text).await?;
        socket.shutdown().await
    };
    let told = told.await;
    let mut answer = Vec::new();
    let heard = socket.read_to_end(&mut answer).await;
    if !answer.is_empty() {
        return Ok(Some(serde_json::from_slice(&answer)?));
    }
    told?;
    heard?;
    Ok(None)
}
