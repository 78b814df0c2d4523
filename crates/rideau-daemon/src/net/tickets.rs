//! Tickets by which clients of the front go on with a TLS session of before, also at the
//! server that takes over from this one.
//!
//! What a certificate seals, no other one opens: a session that was begun where clients need
//! no certificate does not count where they do.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::server::ProducesTickets;

/// For how many seconds a key seals tickets. It opens them for as long again, and clients are
/// told the first of these.
const TURN: u64 = 6 * 60 * 60;
/// How many bytes tell the key of a ticket.
const NAME_LEN: usize = 8;
const SECRET_LEN: usize = 32;

/// The keys of all tickets: the one that seals, and the one before.
#[derive(Clone, Default)]
pub(crate) struct TicketKeys(Arc<Mutex<Vec<TicketKey>>>);

/// A key of tickets, as a newer server is told it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TicketKey {
    secret: [u8; SECRET_LEN],
    /// When it began to seal, in seconds since 1970.
    since: u64,
}

/// Seals the tickets of one certificate.
pub(crate) struct Tickets {
    keys: TicketKeys,
    /// What the certificate asks of clients.
    scope: Vec<u8>,
}

impl TicketKeys {
    /// Keys of the server before this one.
    pub(crate) fn of(mut keys: Vec<TicketKey>) -> Self {
        // The clock may have been put back meanwhile.
        let now = now();
        keys.retain(|key| key.since <= now);
        keys.truncate(2);
        Self(Arc::new(Mutex::new(keys)))
    }

    /// All of them, the newest first.
    pub(crate) fn all(&self) -> Vec<TicketKey> {
        self.0.lock().clone()
    }

    /// The tickets of a certificate, of which these bytes tell what it asks of clients.
    pub(crate) fn tickets(&self, scope: Vec<u8>) -> Arc<dyn ProducesTickets> {
        let keys = self.clone();
        Arc::new(Tickets { keys, scope })
    }

    /// The keys that count now; none if the system has no random bits.
    fn at(&self, now: u64) -> Vec<TicketKey> {
        let mut keys = self.0.lock();
        let is_old = |key: &TicketKey| now.saturating_sub(key.since) >= TURN;
        if keys.first().is_none_or(is_old) {
            let mut secret = [0; SECRET_LEN];
            if getrandom::fill(&mut secret).is_err() {
                return Vec::new();
            }
            keys.insert(0, TicketKey { secret, since: now });
            keys.truncate(2);
        }
        keys.retain(|key| now.saturating_sub(key.since) < 2 * TURN);
        keys.clone()
    }
}

impl TicketKey {
    /// What seals the tickets of a certificate, and what tells the key.
    fn for_scope(&self, scope: &[u8]) -> Option<(LessSafeKey, [u8; NAME_LEN])> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let own = hmac::sign(&secret, scope);
        let name = hmac::sign(&secret, b"name");
        let key = UnboundKey::new(&AES_256_GCM, own.as_ref()).ok()?;
        let name = name.as_ref().first_chunk().copied()?;
        Some((LessSafeKey::new(key), name))
    }
}

impl Tickets {
    fn seal(&self, plain: &[u8], now: u64) -> Option<Vec<u8>> {
        let keys = self.keys.at(now);
        let (key, name) = keys.first()?.for_scope(&self.scope)?;
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let at = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(at, Aad::from(name), &mut sealed)
            .ok()?;
        Some([&name[..], &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (named, rest) = ticket.split_at_checked(NAME_LEN)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let keys = self.keys.at(now).into_iter();
        let mut keys = keys.filter_map(|key| key.for_scope(&self.scope));
        let (key, name) = keys.find(|(_, name)| name == named)?;
        let mut opened = sealed.to_vec();
        let at = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = key.open_in_place(at, Aad::from(name), &mut opened).ok()?;
        Some(plain.to_vec())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TURN as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, now())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: &TicketKeys, scope: &[u8]) -> Tickets {
        Tickets {
            keys: keys.clone(),
            scope: scope.to_vec(),
        }
    }

    #[test]
    fn a_ticket_counts_at_the_next_server_and_for_its_certificate_alone() {
        let keys = TicketKeys::default();
        let ticket = tickets(&keys, b"open").seal(b"session", 100).unwrap();
        let text = serde_json::to_string(&keys.all()).unwrap();
        let next = TicketKeys::of(serde_json::from_str(&text).unwrap());
        for keys in [&keys, &next] {
            let opened = tickets(keys, b"open").open(&ticket, 100);
            assert_eq!(opened.as_deref(), Some(&b"session"[..]));
            assert_eq!(tickets(keys, b"closed").open(&ticket, 100), None);
        }
        assert_eq!(
            tickets(&TicketKeys::default(), b"open").open(&ticket, 100),
            None
        );
    }

    #[test]
    fn keys_take_turns() {
        let keys = TicketKeys::default();
        let tickets = tickets(&keys, b"");
        let first = tickets.seal(b"1", 0).unwrap();
        let second = tickets.seal(b"2", TURN).unwrap();
        assert_eq!(tickets.open(&first, TURN).as_deref(), Some(&b"1"[..]));
        assert_eq!(tickets.open(&second, TURN).as_deref(), Some(&b"2"[..]));
        assert_eq!(tickets.open(&first, 2 * TURN), None);
        assert!(tickets.open(&second, 2 * TURN).is_some());
        assert_eq!(keys.all().len(), 2);
    }

    #[test]
    fn what_is_no_ticket_opens_nothing() {
        let keys = TicketKeys::default();
        let tickets = tickets(&keys, b"");
        let good = tickets.seal(b"session", 0).unwrap();
        for len in 0..good.len() {
            assert_eq!(tickets.open(&good[..len], 0), None, "{len}");
            let mut bad = good.clone();
            bad[len] ^= 1;
            assert_eq!(tickets.open(&bad, 0), None, "{len}");
        }
    }
}
