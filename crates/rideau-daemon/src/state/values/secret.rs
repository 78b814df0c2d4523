//! Tickets of values: what is held, and a proof that we said so.
//!
//! A ticket names a value and a fence, and a keyed hash of both shows that it
//! came from this server or one before it in the same folder. So it needs no
//! memory, and counts after a restart.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rideau_core::cluster::SlotTag;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::state::ticket::{self, Ticket, spread};

/// The secret from which the tickets of values are computed.
pub(super) struct Secret {
    bytes: [u8; LEN],
    /// Has swallowed all of them.
    keyed: SipHasher24,
}

/// The ticket of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueTicket {
    text: [u8; TEXT_LEN],
    len: usize,
}

/// Where a secret is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// It was in its file.
    Read,
    /// There was no file.
    Made,
}

const LEN: usize = 32;
/// This many bytes of a file show that the others are right.
const SUM: usize = 8;
/// This many bytes of the hash are told.
const PROOF: usize = 12;
// They are written four at a time.
const _: () = assert!(PROOF.is_multiple_of(4));
/// `v-`, a tag, a value, a fence and a proof with dashes between.
const TEXT_LEN: usize = 2 + SlotTag::LEN_MAX + 32 + 1 + 16 + 1 + 2 * PROOF;

impl Secret {
    pub(super) fn random() -> Self {
        let mut bytes = [0; LEN];
        getrandom::fill(&mut bytes).expect("the system has random bits");
        Self::of(bytes)
    }

    pub(super) fn of(bytes: [u8; LEN]) -> Self {
        let (key, rest) = bytes.split_first_chunk().expect("they are twice a key");
        let mut keyed = SipHasher24::new_with_key(key);
        keyed.write(rest);
        Self { bytes, keyed }
    }

    /// All of it, for the nodes of a cluster.
    pub(super) const fn bytes(&self) -> [u8; LEN] {
        self.bytes
    }

    /// The secret in a file, or this one if there is no file, which has it then.
    pub(super) fn kept(&self, file: &Path) -> io::Result<(Self, Origin)> {
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.write(file)?;
                return Ok((Self::of(self.bytes), Origin::Made));
            }
            Err(error) => return Err(error),
        };
        let secret = Self::read_from(&bytes).map_err(|what| {
            let text = format!(
                "{what}. Tickets of values follow from this file. Put a copy of it back; if there \
                 is none, remove the file and start again: then tickets that were given before do \
                 not count, and holders use their values by FENCE"
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        if bytes.len() == LEN {
            // An earlier version wrote it without a sum.
            secret.write(file)?;
        }
        Ok((secret, Origin::Read))
    }

    /// Reads the bytes of the file, or says what is wrong with them.
    fn read_from(bytes: &[u8]) -> Result<Self, String> {
        let (own, sum) = bytes.split_at_checked(LEN).unwrap_or((bytes, &[]));
        let own = own.try_into();
        let own: [u8; LEN] = match (own, sum.len()) {
            (Ok(own), 0 | SUM) => own,
            _ => {
                let (is, len) = (bytes.len(), LEN + SUM);
                return Err(format!("it is damaged: it has {is} bytes instead of {len}"));
            }
        };
        if !sum.is_empty() && sum != checksum(&own) {
            return Err("it is damaged: its bytes do not fit their sum".into());
        }
        Ok(Self::of(own))
    }

    /// Let a file have this secret, whatever it had: as a whole or not at all, and for
    /// no other account to read.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let new = file.with_extension("new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut out = options.open(&new)?;
        out.write_all(&self.bytes)?;
        out.write_all(&checksum(&self.bytes))?;
        out.sync_all()?;
        fs::rename(&new, file)?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        fs::File::open(folder)?.sync_all()
    }

    pub(super) fn ticket(&self, value: u128, fence: u64, tag: SlotTag) -> ValueTicket {
        let mut ticket = ValueTicket {
            text: [0; TEXT_LEN],
            len: 0,
        };
        ticket.push(b'v');
        ticket.push(b'-');
        let (tag, len) = tag.text();
        ticket.push_all(&tag[..len]);
        ticket.push_number(value);
        ticket.push(b'-');
        ticket.push_number(fence.into());
        ticket.push(b'-');
        ticket.push_all(&shown(self.proof(value, fence)));
        ticket
    }

    pub(super) fn read(&self, text: &[u8]) -> Option<(u128, u64)> {
        let (text, proof) = text
            .strip_prefix(b"v-")?
            .split_last_chunk::<{ 2 * PROOF }>()?;
        let (_, text) = SlotTag::split_from(text.strip_suffix(b"-")?)?;
        let dash = text.iter().position(|byte| *byte == b'-')?;
        let value = number(&text[..dash])?;
        let fence = u64::try_from(number(&text[dash + 1..])?).ok()?;
        let own: [u8; 2 * PROOF] = shown(self.proof(value, fence));
        // As long for a wrong one as for one that is nearly right.
        let differs = own.iter().zip(proof).fold(0, |d, (a, b)| d | (a ^ b));
        (differs == 0).then_some((value, fence))
    }

    fn proof(&self, value: u128, fence: u64) -> [u8; PROOF] {
        let mut message = [0; 24];
        message[..16].copy_from_slice(&value.to_be_bytes());
        message[16..].copy_from_slice(&fence.to_be_bytes());
        let mut keyed = self.keyed;
        keyed.write(&message);
        let tag = keyed.finish128().as_bytes();
        let (proof, _) = tag.split_first_chunk().expect("a hash is longer");
        *proof
    }
}

/// The checksum of the file.
fn checksum(bytes: &[u8; LEN]) -> [u8; SUM] {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    let sum = hasher.finish128().as_bytes();
    let (sum, _) = sum.split_first_chunk().expect("a hash is longer");
    *sum
}

/// The digits of a proof.
fn shown(proof: [u8; PROOF]) -> [u8; 2 * PROOF] {
    let mut digits = [0; 2 * PROOF];
    let parts = proof.as_chunks().0.iter();
    for (eight, part) in digits.as_chunks_mut().0.iter_mut().zip(parts) {
        *eight = spread(u32::from_be_bytes(*part)).to_be_bytes();
    }
    digits
}

/// What hexadecimal digits stand for, if they are as we write them: one ticket
/// is written in one way only.
fn number(digits: &[u8]) -> Option<u128> {
    if digits.is_empty() || digits.len() > 32 || digits.starts_with(b"0") && digits != b"0" {
        return None;
    }
    let mut padded = [b'0'; 32];
    padded[32 - digits.len()..].copy_from_slice(digits);
    ticket::number(&padded)
}

impl ValueTicket {
    fn push(&mut self, letter: u8) {
        self.text[self.len] = letter;
        self.len += 1;
    }

    /// Hexadecimal without zeros in front, but for zero itself.
    fn push_number(&mut self, number: u128) {
        let mut digits = [0; 32];
        let parts = [number >> 96, number >> 64, number >> 32, number];
        for (eight, part) in digits.as_chunks_mut().0.iter_mut().zip(parts) {
            *eight = spread(part as u32).to_be_bytes();
        }
        let zeros = number.leading_zeros() as usize / 4;
        self.push_all(&digits[zeros.min(31)..]);
    }

    fn push_all(&mut self, text: &[u8]) {
        self.text[self.len..][..text.len()].copy_from_slice(text);
        self.len += text.len();
    }
}

impl AsRef<[u8]> for ValueTicket {
    fn as_ref(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// Of a value that goes with a connection, which is kept as all such things are.
impl From<Ticket> for ValueTicket {
    fn from(ticket: Ticket) -> Self {
        let mut text = [0; TEXT_LEN];
        let kept = ticket.text();
        let kept = kept.as_ref();
        text[..kept.len()].copy_from_slice(kept);
        Self {
            text,
            len: kept.len(),
        }
    }
}

impl fmt::Display for ValueTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.as_ref()).expect("letters and digits"))
    }
}

/// Tickets are secrets: a client that has one can release what it stands for.
impl fmt::Debug for ValueTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("v-…")
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::cluster::Partitions;

    use super::*;

    #[test]
    fn a_ticket_is_read_with_its_own_secret_and_no_other() {
        let (ours, theirs) = (Secret::random(), Secret::random());
        for (value, fence) in [(0, 0), (u128::MAX, u64::MAX), (0xffff_0a14_0307, 17)] {
            for tag in SlotTag::all(Partitions::ONE).iter().chain(&[SlotTag::NONE]) {
                let ticket = ours.ticket(value, fence, *tag).to_string();
                assert!(ticket.starts_with(&format!("v-{tag}")));
                assert_eq!(ours.read(ticket.as_bytes()), Some((value, fence)));
                assert_eq!(theirs.read(ticket.as_bytes()), None);
            }
        }
    }

    #[test]
    fn no_other_text_is_a_ticket() {
        let secret = Secret::random();
        let good = secret.ticket(0xa0b, 0xc0d, SlotTag::NONE).to_string();
        let (head, proof) = good.rsplit_once('-').unwrap();
        let cases = [
            String::new(),
            "v-".into(),
            head.into(),
            format!("{good}-"),
            format!("{good}0"),
            good[..good.len() - 1].into(),
            good.to_uppercase(),
            format!("v-0a0b-c0d-{proof}"),
            format!("v-a0c-c0d-{proof}"),
            format!("v-a0b-c0e-{proof}"),
            format!("v-+a0b-c0d-{proof}"),
            format!("v--c0d-{proof}"),
            format!("v-{{}}a0b-c0d-{proof}"),
            format!("v-{{a0b-c0d-{proof}"),
            format!("v-a0b--{proof}"),
            format!("v-a0b-c0g-{proof}"),
            format!("v-{:0>33}-c0d-{proof}", "1a0b"),
        ];
        for case in cases {
            assert_eq!(secret.read(case.as_bytes()), None, "{case}");
        }
    }
}
