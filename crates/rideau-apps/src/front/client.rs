//! Which client a request is from: the peer, or the one that a believed peer speaks for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use rideau_config::Network;

use super::conn::ClientConn;
use crate::http1::fields::Fields;

/// How much of something each client has at the moment.
#[derive(Default)]
pub(super) struct ClientCounts(Mutex<HashMap<IpAddr, usize>>);

/// One more of it, until this is dropped.
pub(super) struct ClientCount {
    counts: Arc<ClientCounts>,
    client: IpAddr,
}

/// The client of a request: the last one of `X-Forwarded-For` that is not itself believed, if
/// the peer is.
pub(super) fn client_of(conn: &ClientConn, fields: Fields<'_>, trust: &[Network]) -> IpAddr {
    let peer = conn.peer.ip();
    if !conn.is_trusted {
        return peer;
    }
    let lists: Vec<_> = fields.all("x-forwarded-for").collect();
    let said = lists.iter().rev().flat_map(|list| last_first(list));
    spoken_for(said, trust).unwrap_or(peer)
}

/// The words of a list, from its end on.
pub(super) fn last_first(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').rev()
}

/// The first of these addresses that is not believed.
pub(super) fn spoken_for<'a>(
    said: impl Iterator<Item = &'a [u8]>,
    trust: &[Network],
) -> Option<IpAddr> {
    let mut known = said.map_while(|address| str::from_utf8(address).ok()?.trim().parse().ok());
    let is_client = |address: &IpAddr| !trust.iter().any(|network| network.has(*address));
    known.find(is_client)
}

/// Addresses that are surely of one client are one.
pub(super) fn one_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

impl ClientCounts {
    /// Count one more for a client, if it has fewer than this.
    pub(super) fn enter(self: &Arc<Self>, client: IpAddr, max: usize) -> Option<ClientCount> {
        let client = one_of(client);
        let mut counts = self.0.lock();
        let count = counts.entry(client).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(ClientCount {
            counts: Arc::clone(self),
            client,
        })
    }
}

impl Drop for ClientCount {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        let left = counts.get_mut(&self.client).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            counts.remove(&self.client);
            if counts.capacity() > 64 && counts.len() < counts.capacity() / 8 {
                let room = counts.len() * 2;
                counts.shrink_to(room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::fields::Span;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_client_has_no_more_than_it_may_and_is_forgotten_at_the_end() {
        let counts = Arc::new(ClientCounts::default());
        let enter = |client: &str| counts.enter(address(client), 2);
        let first = enter("2001:db8::1").expect("the first");
        let second = enter("2001:db8::2").expect("the second of its /64");
        assert!(enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::3").is_some(), "another /64");
        drop(first);
        assert!(enter("2001:db8::3").is_some());
        drop(second);
        assert!(counts.0.lock().is_empty());
    }

    #[test]
    fn a_believed_peer_says_which_client_it_speaks_for() {
        let trust = [Network {
            address: address("10.0.0.0"),
            bits: 8,
        }];
        let client = |is_trusted, said: &str| {
            let conn = ClientConn::new(([10, 0, 0, 9], 1).into(), 80, false, is_trusted);
            let text = format!("x-forwarded-for: {said}");
            let span = Span::new(0, text.as_bytes(), 15).expect("it is short");
            client_of(&conn, Fields::new(text.as_bytes(), &[span]), &trust)
        };
        assert_eq!(client(false, "192.0.2.1"), address("10.0.0.9"));
        assert_eq!(client(true, "192.0.2.1"), address("192.0.2.1"));
        let forged = "192.0.2.7, 192.0.2.1, 10.0.0.3";
        assert_eq!(client(true, forged), address("192.0.2.1"));
        assert_eq!(client(true, "192.0.2.1, nonsense"), address("10.0.0.9"));
        assert_eq!(client(true, "10.0.0.3"), address("10.0.0.9"));
    }
}
