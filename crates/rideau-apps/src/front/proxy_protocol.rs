//! The PROXY protocol, versions 1 and 2: a load balancer says first for which client it speaks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a header may take, with all that may follow the addresses.
pub(super) const HEADER_MAX: usize = 4096;
/// No header of version 1 is longer, its end of line included.
const TEXT_MAX: usize = 107;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The bytes of version 2 before the addresses.
const FIXED: usize = 16;

/// What a peer says before the first byte of its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProxyHeader {
    /// The bytes it takes.
    pub(super) len: usize,
    /// Where its client is, and where that went; none if the peer speaks for itself.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
}

/// Read the header at the beginning of these bytes; none if they do not reach to its end.
///
/// # Errors
///
/// If they do not begin with one.
pub(super) fn proxy_header(bytes: &[u8]) -> Result<Option<ProxyHeader>, &'static str> {
    if begins(bytes, SIGNATURE) {
        binary(bytes)
    } else if begins(bytes, b"PROXY ") {
        text(bytes)
    } else {
        Err("it begins with no PROXY header")
    }
}

/// As far as there are bytes.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let len = bytes.len().min(with.len());
    bytes[..len] == with[..len]
}

fn text(bytes: &[u8]) -> Result<Option<ProxyHeader>, &'static str> {
    let within = &bytes[..bytes.len().min(TEXT_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return match bytes.len() < TEXT_MAX {
            true => Ok(None),
            false => Err("its PROXY header has no end"),
        };
    };
    let line = str::from_utf8(&bytes[..end]).map_err(|_| "its PROXY header is no text")?;
    let mut words = line.split(' ').skip(1);
    let len = end + 2;
    let is_v4 = match words.next() {
        Some("TCP4") => true,
        Some("TCP6") => false,
        Some("UNKNOWN") => return Ok(Some(ProxyHeader { len, ends: None })),
        _ => return Err("its PROXY header is for neither TCP4 nor TCP6"),
    };
    let mut next = || words.next().unwrap_or_default();
    let (from, to, from_port, to_port) = (next(), next(), next(), next());
    let end = |address: &str, port: &str| {
        let address: IpAddr = address.parse().ok()?;
        // No sign, no empty text.
        let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
        let port = port.parse().ok()?;
        (address.is_ipv4() == is_v4).then_some(SocketAddr::new(address, port))
    };
    let ends = end(from, from_port).zip(end(to, to_port));
    match (ends, words.next()) {
        (Some(ends), None) => Ok(Some(ProxyHeader {
            len,
            ends: Some(ends),
        })),
        _ => Err("its PROXY header has other words than two addresses and two ports"),
    }
}

fn binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, &'static str> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
        return Ok(None);
    };
    let [command, family, high, low] = [fixed[12], fixed[13], fixed[14], fixed[15]];
    let addresses = usize::from(u16::from_be_bytes([high, low]));
    let len = FIXED + addresses;
    if len > HEADER_MAX {
        return Err("its PROXY header is too long");
    }
    let Some(rest) = rest.get(..addresses) else {
        return Ok(None);
    };
    let ends = match (command, family) {
        // It speaks for itself.
        (0x20, _) => None,
        (0x21, 0x11) => Some(ends_of::<4>(rest)?),
        (0x21, 0x21) => Some(ends_of::<16>(rest)?),
        // A client that came by something else has no address.
        (0x21, _) => None,
        _ => return Err("its PROXY header has another version"),
    };
    Ok(Some(ProxyHeader { len, ends }))
}

/// Two addresses of this many bytes, and two ports.
fn ends_of<const N: usize>(bytes: &[u8]) -> Result<(SocketAddr, SocketAddr), &'static str>
where
    [u8; N]: Octets,
{
    let read = || {
        let (from, rest) = bytes.split_first_chunk::<N>()?;
        let (to, rest) = rest.split_first_chunk::<N>()?;
        let (from_port, rest) = rest.split_first_chunk::<2>()?;
        let (to_port, _) = rest.split_first_chunk::<2>()?;
        let end = |address: [u8; N], port| SocketAddr::new(address.ip(), u16::from_be_bytes(port));
        Some((end(*from, *from_port), end(*to, *to_port)))
    };
    read().ok_or("its PROXY header ends within the addresses")
}

/// Bytes that are an address.
trait Octets {
    fn ip(self) -> IpAddr;
}

impl Octets for [u8; 4] {
    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }
}

impl Octets for [u8; 16] {
    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        let len = u16::try_from(rest.len()).expect("it is short");
        header.extend(len.to_be_bytes());
        header.extend(rest);
        header
    }

    fn ends(bytes: &[u8]) -> Option<(String, String)> {
        let header = proxy_header(bytes)
            .expect("it is one")
            .expect("it is whole");
        assert_eq!(header.len, bytes.len());
        let ends = header.ends?;
        Some((ends.0.to_string(), ends.1.to_string()))
    }

    fn some(from: &str, to: &str) -> Option<(String, String)> {
        Some((from.into(), to.into()))
    }

    #[test]
    fn clients_are_told_in_text() {
        let of_v4 = b"PROXY TCP4 192.0.2.1 198.51.100.7 4711 443\r\n";
        assert_eq!(ends(of_v4), some("192.0.2.1:4711", "198.51.100.7:443"));
        let of_v6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
        assert_eq!(ends(of_v6), some("[2001:db8::1]:1", "[2001:db8::2]:65535"));
        assert_eq!(ends(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(ends(b"PROXY UNKNOWN ff:f::1 whatever it is\r\n"), None);
    }

    #[test]
    fn clients_are_told_in_bytes() {
        let mut of_v4 = vec![192, 0, 2, 1, 198, 51, 100, 7, 0x12, 0x67, 0x01, 0xbb];
        let expected = some("192.0.2.1:4711", "198.51.100.7:443");
        assert_eq!(ends(&version_2(0x21, 0x11, &of_v4)), expected);
        // What follows the addresses is for others.
        of_v4.extend([0x04, 0, 1, 0]);
        assert_eq!(ends(&version_2(0x21, 0x11, &of_v4)), expected);
        let mut of_v6 = [0; 36];
        (of_v6[15], of_v6[31], of_v6[33], of_v6[35]) = (1, 2, 80, 81);
        let expected = some("[::1]:80", "[::2]:81");
        assert_eq!(ends(&version_2(0x21, 0x21, &of_v6)), expected);
        assert_eq!(ends(&version_2(0x20, 0x11, &of_v4)), None);
        assert_eq!(ends(&version_2(0x20, 0, b"")), None);
        assert_eq!(ends(&version_2(0x21, 0x31, &[0; 216])), None);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.7 4711\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 4711 443 1\r\n",
            b"PROXY TCP4  192.0.2.1 198.51.100.7 4711 443\r\n",
            b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.7 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n",
            &[b"PROXY UNKNOWN ", &[b'a'; TEXT_MAX][..]].concat(),
            &version_2(0x11, 0x11, &[0; 12]),
            &version_2(0x22, 0x11, &[0; 12]),
            &version_2(0x21, 0x11, &[0; 11]),
            &version_2(0x21, 0x21, &[0; 35]),
            &version_2(0x21, 0x11, &[0; HEADER_MAX]),
        ] {
            let read = proxy_header(bytes);
            assert!(read.is_err(), "{}: {read:?}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_header_that_comes_in_parts_is_the_same() {
        let text = b"PROXY TCP4 192.0.2.1 198.51.100.7 4711 443\r\n".to_vec();
        for header in [text, version_2(0x21, 0x11, &[7; 40])] {
            for len in 0..header.len() {
                assert_eq!(proxy_header(&header[..len]), Ok(None), "{len}");
            }
            let whole = proxy_header(&header);
            assert!(matches!(whole, Ok(Some(_))));
            let longer = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(proxy_header(&longer), whole);
        }
    }

    #[test]
    fn no_other_byte_makes_it_read_beyond_its_end() {
        let text = b"PROXY TCP4 192.0.2.1 198.51.100.7 4711 443\r\n".to_vec();
        for header in [
            text,
            version_2(0x21, 0x11, &[7; 40]),
            version_2(0x21, 0x21, &[7; 36]),
        ] {
            for at in 0..header.len() {
                for byte in 0..=255 {
                    let mut other = header.clone();
                    other[at] = byte;
                    if let Ok(Some(read)) = proxy_header(&other) {
                        assert!(read.len <= other.len());
                    }
                }
            }
        }
    }
}
