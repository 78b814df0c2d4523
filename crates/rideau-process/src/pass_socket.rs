//! Messages between two processes, with open files beside them.
//!
//! Each message has its length before it. Its files come with the first byte of that.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// A message has no more files,
pub const PASSED_FILES_MAX: usize = 64;
/// and no more bytes.
const BYTES_MAX: usize = 8 << 20;
const LENGTH: usize = size_of::<u32>();

/// A message, and the files that came with it.
#[derive(Debug)]
pub struct PassedMessage {
    /// What it says.
    pub bytes: Vec<u8>,
    /// In the order in which they were sent.
    pub files: Vec<OwnedFd>,
}

/// One end of a pair of sockets: it sends.
#[derive(Clone, Debug)]
pub struct PassSender(Arc<UnixStream>);

/// The same end: it receives.
#[derive(Debug)]
pub struct PassReceiver {
    socket: Arc<UnixStream>,
    /// What came of the next message. It is kept if a wait for the rest is given up.
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// Use one end of a pair of sockets.
///
/// # Errors
///
/// If the system does not say when there is more.
pub fn pass_ends(socket: StdStream) -> io::Result<(PassSender, PassReceiver)> {
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UnixStream::from_std(socket)?);
    let receiver = PassReceiver {
        socket: Arc::clone(&socket),
        bytes: Vec::new(),
        files: Vec::new(),
    };
    Ok((PassSender(socket), receiver))
}

impl PassSender {
    /// Send a message. The caller sees to it that only one is sent at a time.
    ///
    /// # Errors
    ///
    /// If it has too many files or bytes, or the other end is gone.
    pub async fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() > BYTES_MAX || files.len() > PASSED_FILES_MAX {
            let text = format!(
                "a message of {} bytes and {} files is too large",
                bytes.len(),
                files.len()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let length = u32::try_from(bytes.len()).expect("it was looked at above");
        let mut whole = length.to_be_bytes().to_vec();
        whole.extend(bytes);
        let mut sent = 0;
        while sent < whole.len() {
            let files = if sent == 0 { files } else { &[] };
            let part = &whole[sent..];
            sent += self
                .0
                .async_io(Interest::WRITABLE, || send(self.0.as_fd(), part, files))
                .await?;
        }
        Ok(())
    }
}

impl PassReceiver {
    /// The next message; none if the other end is gone.
    ///
    /// # Errors
    ///
    /// If what comes is no message.
    pub async fn next(&mut self) -> io::Result<Option<PassedMessage>> {
        loop {
            let wanted = self.wanted()?;
            if wanted == 0 {
                let mut bytes = std::mem::take(&mut self.bytes);
                bytes.drain(..LENGTH);
                let files = std::mem::take(&mut self.files);
                return Ok(Some(PassedMessage { bytes, files }));
            }
            let socket = Arc::clone(&self.socket);
            let (came, files) = socket
                .async_io(Interest::READABLE, || receive(socket.as_fd(), wanted))
                .await?;
            if came.is_empty() {
                return match self.bytes.is_empty() {
                    true => Ok(None),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
            self.bytes.extend(came);
            self.files.extend(files);
        }
    }

    /// How many bytes are missing, as far as is known.
    fn wanted(&self) -> io::Result<usize> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else {
            return Ok(LENGTH - self.bytes.len());
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a message is too long",
            ));
        }
        Ok(LENGTH + length - self.bytes.len())
    }
}

fn send(socket: BorrowedFd<'_>, part: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PASSED_FILES_MAX))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        passed.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(part)];
    Ok(sendmsg(socket, &parts, &mut passed, SendFlags::NOSIGNAL)?)
}

fn receive(socket: BorrowedFd<'_>, wanted: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PASSED_FILES_MAX))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut part = vec![0; wanted.min(64 << 10)];
    let mut parts = [io::IoSliceMut::new(&mut part)];
    let received = recvmsg(socket, &mut parts, &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let files = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    part.truncate(received.bytes);
    Ok((part, files))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test]
    async fn messages_come_whole_and_with_their_files() {
        let (one, other) = StdStream::pair().expect("the system has sockets");
        let (sender, _one) = pass_ends(one).expect("there is a runtime");
        let (_other, mut receiver) = pass_ends(other).expect("there is a runtime");
        let (mut reader, mut writer) = io::pipe().expect("the system has pipes");
        let null = File::open("/dev/null").expect("it is there");
        let long = vec![7; 1 << 20];
        let sending = async {
            sender.send(b"", &[]).await?;
            sender.send(&long, &[reader.as_fd(), null.as_fd()]).await?;
            sender.send(b"last", &[]).await
        };
        let receiving = async {
            let mut all = Vec::new();
            while all.len() < 3 {
                all.extend(receiver.next().await.expect("it is whole"));
            }
            all
        };
        let (sent, mut all) = tokio::join!(sending, receiving);
        sent.expect("the other end takes all");
        assert_eq!(all[0].bytes, b"");
        assert_eq!((all[1].bytes.len(), all[1].files.len()), (1 << 20, 2));
        assert_eq!(all[2].bytes, b"last");
        writer.write_all(b"x").expect("the reader is there");
        let mut passed = File::from(all.remove(1).files.remove(0));
        let mut said = [0];
        passed.read_exact(&mut said).expect("it is the same pipe");
        assert_eq!(said, *b"x");
        drop((writer, passed));
        reader.read_to_end(&mut Vec::new()).expect("it ends");
        drop((sender, _one));
        assert!(receiver.next().await.expect("it ends").is_none());
    }
}
