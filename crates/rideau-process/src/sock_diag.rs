//! Asks the system which socket listens at one port. Its tables would tell, too,
//! but they name every socket, and take milliseconds to read.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::procfs::Listener;

const HEAD_LEN: usize = 16;
const BODY_LEN: usize = 56;
/// The kind of a question, and of its answer.
const BY_FAMILY: u16 = 20;
/// The kind of an answer that there is none.
const ERROR: u16 = 2;
const IS_QUESTION: u16 = 1;
const TCP: u8 = 6;
const LISTENS: u8 = 10;

/// A line to the system.
pub(super) struct Diag(OwnedFd);

impl Diag {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = socket_with(family, kind, flags, Some(netlink::SOCK_DIAG))?;
        Ok(Self(socket))
    }

    /// The listener that is reached at this port of the loopback. The answer is
    /// there at once.
    pub(super) fn listener(&self, port: u16) -> io::Result<Option<Listener>> {
        if let Some(found) = self.ask(Ipv4Addr::LOCALHOST.into(), port)? {
            return Ok(Some(found));
        }
        // Not every machine has the newer one.
        Ok(self.ask(Ipv6Addr::LOCALHOST.into(), port).unwrap_or(None))
    }

    fn ask(&self, address: IpAddr, port: u16) -> io::Result<Option<Listener>> {
        send(&self.0, &question(address, port), SendFlags::empty())?;
        let mut bytes = [0; 512];
        let (len, _) = recv(&self.0, &mut bytes, RecvFlags::empty())?;
        answer(&bytes[..len])
    }
}

/// Where a question has what:
///
/// ```text
///  0 length, kind, flags, number, sender
/// 16 family, protocol, extensions, states
/// 24 our port, their port, our address, their address, interface
/// 64 any socket that fits, whatever its cookie
/// ```
fn question(address: IpAddr, port: u16) -> [u8; HEAD_LEN + BODY_LEN] {
    let mut text = [0; HEAD_LEN + BODY_LEN];
    let mut put = |at: usize, bytes: &[u8]| text[at..at + bytes.len()].copy_from_slice(bytes);
    let len = u32::try_from(HEAD_LEN + BODY_LEN).unwrap_or_default();
    put(0, &len.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &IS_QUESTION.to_ne_bytes());
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    put(16, &[family.as_raw().to_ne_bytes()[0], TCP]);
    put(20, &(1_u32 << LISTENS).to_ne_bytes());
    put(24, &port.to_be_bytes());
    match address {
        IpAddr::V4(address) => put(28, &address.octets()),
        IpAddr::V6(address) => put(28, &address.octets()),
    }
    put(64, &[u8::MAX; 8]);
    text
}

/// The answer has a family and a state where the question has its family and
/// its protocol, then the same addresses, and the number of the file at its end.
fn answer(bytes: &[u8]) -> io::Result<Option<Listener>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(word))
    };
    let pair = |at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    match pair(4).map(u16::from_ne_bytes) {
        Some(BY_FAMILY) => (),
        Some(ERROR) => {
            let errno = word(HEAD_LEN)
                .ok_or_else(short)?
                .cast_signed()
                .wrapping_neg();
            return match Errno::from_raw_os_error(errno) {
                Errno::NOENT => Ok(None),
                errno => Err(errno.into()),
            };
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    let [family, state] = pair(HEAD_LEN).ok_or_else(short)?;
    let address = bytes.get(24..40).ok_or_else(short)?;
    let is_old = family == AddressFamily::INET.as_raw().to_ne_bytes()[0];
    let address: IpAddr = match is_old {
        true => <[u8; 4]>::try_from(&address[..4]).map(IpAddr::from),
        false => <[u8; 16]>::try_from(address).map(IpAddr::from),
    }
    .map_err(|_| short())?;
    let port = pair(20).map(u16::from_be_bytes).ok_or_else(short)?;
    let inode = word(84).ok_or_else(short)?.into();
    Ok((state == LISTENS).then_some(Listener {
        address: address.to_canonical(),
        port,
        inode,
    }))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::Diag;

    #[test]
    fn a_listener_is_found_wherever_the_loopback_leads_there() {
        let diag = Diag::open().unwrap();
        for place in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(place) else {
                // Not every machine has the newer addresses.
                continue;
            };
            let at = listener.local_addr().unwrap();
            let found = diag.listener(at.port()).unwrap().expect(place);
            assert_eq!((found.address, found.port), (at.ip(), at.port()));
            let ours = super::super::procfs::has_socket(
                i32::try_from(std::process::id()).unwrap(),
                found.inode,
            );
            assert!(ours, "{place}");
            drop(listener);
            assert!(diag.listener(at.port()).unwrap().is_none(), "{place}");
        }
    }

    #[test]
    fn a_socket_that_is_connected_or_listens_elsewhere_is_not_found() {
        let diag = Diag::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        assert!(diag.listener(port).unwrap().is_none());
        let elsewhere = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = elsewhere.local_addr().unwrap().port();
        let found = diag.listener(port).unwrap();
        let near = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        assert!(found.is_none_or(|found| near.contains(&found.address)));
    }
}
