//! The secret of a cluster, and how two nodes prove to each other that they know it.
//!
//! A proof is an HMAC over everything both sides said in their hellos: both nonces, both
//! incarnations, the cluster, the versions, the number of the link, and what is unique to
//! the TLS connection. A label says which side proves. So a proof is of no use on another
//! connection, to another node, or sent back to the node that made it.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use ring::hmac;

/// Bytes of a nonce and of a proof.
pub(super) const PROOF_LEN: usize = 32;
/// A shorter secret could be guessed by a listener.
const SECRET_MIN: usize = 32;
/// A longer one is not a secret but the wrong file.
const SECRET_MAX: u64 = 64 << 10;

/// The secret that only the nodes of a cluster know.
#[derive(Clone)]
pub struct LinkSecret(hmac::Key);

/// Why a secret cannot be used.
#[derive(Debug)]
pub enum BadSecret {
    /// Its file cannot be read.
    File(io::Error),
    /// It has fewer than 32 bytes.
    Short(usize),
    /// Its file is longer than 64 KiB.
    Long,
}

/// Which side of a link proves itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkSide {
    /// The node that connected: the one with the smaller name.
    Dialer,
    /// The node that was connected to.
    Acceptor,
}

/// Both hellos of a link as they were sent, and what is unique to its TLS connection, if
/// it has one.
pub(super) struct Transcript<'a> {
    pub(super) dialer: Vec<u8>,
    pub(super) acceptor: Vec<u8>,
    pub(super) channel: &'a [u8],
}

impl LinkSecret {
    /// A secret of at least 32 bytes. White space at its end does not count, as editors
    /// and shells add it.
    ///
    /// # Errors
    ///
    /// If it is too short.
    pub fn new(secret: &[u8]) -> Result<Self, BadSecret> {
        let secret = secret.trim_ascii_end();
        if secret.len() < SECRET_MIN {
            return Err(BadSecret::Short(secret.len()));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The secret in a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the secret is too short.
    pub fn read(path: &Path) -> Result<Self, BadSecret> {
        if fs::metadata(path).map_err(BadSecret::File)?.len() > SECRET_MAX {
            return Err(BadSecret::Long);
        }
        Self::new(&fs::read(path).map_err(BadSecret::File)?)
    }

    /// The proof of one side that it knows the secret.
    pub(super) fn prove(&self, side: LinkSide, transcript: &Transcript<'_>) -> [u8; PROOF_LEN] {
        let proof = hmac::sign(&self.0, &transcript.bytes(side));
        let proof = proof.as_ref().try_into();
        proof.expect("HMAC-SHA-256 has 32 bytes")
    }

    /// Whether this is what that side would send. The time this takes says nothing.
    pub(super) fn is_proof(
        &self,
        proof: &[u8],
        side: LinkSide,
        transcript: &Transcript<'_>,
    ) -> bool {
        hmac::verify(&self.0, &transcript.bytes(side), proof).is_ok()
    }
}

impl Transcript<'_> {
    /// All of it, each part with its length, so that no two transcripts are alike.
    fn bytes(&self, side: LinkSide) -> Vec<u8> {
        let label: &[u8] = match side {
            LinkSide::Dialer => b"rideau link: the dialer knows the secret",
            LinkSide::Acceptor => b"rideau link: the acceptor knows the secret",
        };
        let mut out = Vec::with_capacity(512);
        let mut add = |part: &[u8]| {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part);
        };
        add(label);
        add(&self.dialer);
        add(&self.acceptor);
        add(self.channel);
        out
    }
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret(..)")
    }
}

impl fmt::Display for BadSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Short(len) => write!(f, "a secret of {len} bytes is too short: {SECRET_MIN}"),
            Self::Long => write!(
                f,
                "the file of the secret is longer than {SECRET_MAX} bytes"
            ),
        }
    }
}

impl std::error::Error for BadSecret {}

/// This many random bytes.
pub(super) fn nonce() -> [u8; PROOF_LEN] {
    let mut nonce = [0; PROOF_LEN];
    getrandom::fill(&mut nonce).expect("the system has random bits");
    nonce
}

#[cfg(test)]
mod tests {
    use rideau_core::cluster::Incarnation;

    use super::super::hello::Hello;
    use super::*;

    fn hello(from: &str, to: &str, nonce: u8) -> Hello {
        Hello {
            versions: (1, 1),
            cluster: "shop".into(),
            from: Incarnation::new(from, 3),
            to: Incarnation::new(to, 4),
            nonce: [nonce; PROOF_LEN],
            number: 1,
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_and_its_link_alone() {
        let secret = LinkSecret::new(&[7; 32]).unwrap();
        let (dialer, acceptor) = (hello("a", "b", 1), hello("b", "a", 2));
        let transcript = |channel| Transcript {
            dialer: dialer.bytes(),
            acceptor: acceptor.bytes(),
            channel,
        };
        let proof = secret.prove(LinkSide::Dialer, &transcript(b""));
        assert!(secret.is_proof(&proof, LinkSide::Dialer, &transcript(b"")));
        assert!(!secret.is_proof(&proof, LinkSide::Acceptor, &transcript(b"")));
        assert!(!secret.is_proof(&proof, LinkSide::Dialer, &transcript(b"tls")));
        assert!(!secret.is_proof(&proof[1..], LinkSide::Dialer, &transcript(b"")));
        let other = LinkSecret::new(&[8; 32]).unwrap();
        assert!(!other.is_proof(&proof, LinkSide::Dialer, &transcript(b"")));
        let changes: [fn(&mut Hello); 6] = [
            |hello| hello.versions.1 = 2,
            |hello| hello.cluster.push('s'),
            |hello| hello.from.fence += 1,
            |hello| hello.to.name.push('s'),
            |hello| hello.nonce[31] ^= 1,
            |hello| hello.number += 1,
        ];
        for change in changes {
            for is_dialer in [true, false] {
                let mut both = [dialer.clone(), acceptor.clone()];
                change(&mut both[usize::from(!is_dialer)]);
                let transcript = Transcript {
                    dialer: both[0].bytes(),
                    acceptor: both[1].bytes(),
                    channel: b"",
                };
                assert!(!secret.is_proof(&proof, LinkSide::Dialer, &transcript));
            }
        }
    }

    #[test]
    fn a_secret_has_32_bytes_before_the_white_space() {
        assert!(matches!(
            LinkSecret::new(&[b'x'; 31]),
            Err(BadSecret::Short(31))
        ));
        let mut padded = vec![b'x'; 31];
        padded.extend_from_slice(b" \n");
        assert!(matches!(
            LinkSecret::new(&padded),
            Err(BadSecret::Short(31))
        ));
        let secret = LinkSecret::new(&[b'x'; 32]).unwrap();
        assert_eq!(format!("{secret:?}"), "LinkSecret(..)");
        assert!(LinkSecret::read(Path::new("/nonexistent")).is_err());
    }
}
