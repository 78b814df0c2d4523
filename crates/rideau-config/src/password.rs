//! Passwords as hashes, and whether one is right.
//!
//! Argon2id in the PHC form, `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`. A client
//! that tries a password makes us pay for one hash, so a hash that costs more than
//! [`MEMORY_MAX`] or [`PASSES_MAX`] is refused where it is read, and
//! `limits.password_checks_max` says how many are tried at a time.

use std::fmt;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};

/// The most memory one try may cost, in KiB.
pub const MEMORY_MAX: u32 = 64 * 1024;
/// The most passes over it.
pub const PASSES_MAX: u32 = 4;
/// The most lanes.
const LANES_MAX: u32 = 4;
/// Memory for a hash is asked for in pieces larger than this, of which no more is
/// used than is needed. Smaller ones the usual allocator may keep for each thread
/// when they are free; these it gets from the system and gives back to it.
const ALLOCATED_MIN: usize = 33 << 20;

/// A password that can be checked but not read.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash(String);

/// Why a text is no hash of a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashFault {
    /// It looks like the password itself.
    NotAHash,
    /// It is the hash of another kind.
    NotArgon2id,
    /// It has no salt or no hash, or its numbers make no sense.
    Malformed,
    /// Every try would cost too much.
    TooCostly,
    /// There is no randomness for a salt.
    NoChance,
}

impl Hash {
    /// The hash in a text of the PHC form.
    ///
    /// # Errors
    ///
    /// If it is none, or one whose check costs too much.
    pub fn parse(text: &str) -> Result<Self, HashFault> {
        if !text.starts_with('$') {
            return Err(HashFault::NotAHash);
        }
        if !text.starts_with("$argon2id$") {
            return Err(HashFault::NotArgon2id);
        }
        let hash = PasswordHash::new(text).map_err(|_| HashFault::Malformed)?;
        let params = Params::try_from(&hash).map_err(|_| HashFault::Malformed)?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(HashFault::Malformed);
        }
        let is_dear = params.m_cost() > MEMORY_MAX
            || params.t_cost() > PASSES_MAX
            || params.p_cost() > LANES_MAX;
        if is_dear {
            return Err(HashFault::TooCostly);
        }
        Ok(Self(text.into()))
    }

    /// The hash of a password, with a new salt: 19 MiB and two passes.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give.
    pub fn of(password: &[u8]) -> Result<Self, HashFault> {
        let mut salt = [0; Salt::RECOMMENDED_LENGTH];
        getrandom::fill(&mut salt).map_err(|_| HashFault::NoChance)?;
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT);
        let output = output(&hasher, password, &salt);
        let hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&Params::DEFAULT).map_err(|_| HashFault::Malformed)?,
            salt: Some(Salt::new(&salt).map_err(|_| HashFault::Malformed)?),
            hash: Some(output.ok_or(HashFault::Malformed)?),
        };
        Ok(Self(hash.to_string()))
    }

    /// The hash in a secret file: the one that stands there, or that of the
    /// password that does. The newline at its end does not count.
    ///
    /// # Errors
    ///
    /// If the file is empty or has a hash that cannot be used.
    pub fn of_file(text: &str) -> Result<Self, HashFault> {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(HashFault::Malformed);
        }
        if text.starts_with("$argon2") {
            return Self::parse(text);
        }
        Self::of(text.as_bytes())
    }

    /// Whether this is the password. Takes as long for a wrong one.
    pub fn verify(&self, password: &[u8]) -> bool {
        self.computed(password).unwrap_or(false)
    }

    fn computed(&self, password: &[u8]) -> Option<bool> {
        let hash = PasswordHash::new(&self.0).ok()?;
        let version = hash.version.map(Version::try_from);
        let version = version.transpose().ok()?.unwrap_or_default();
        let params = Params::try_from(&hash).ok()?;
        let hasher = Argon2::new(Algorithm::Argon2id, version, params);
        let computed = output(&hasher, password, hash.salt.as_ref()?)?;
        // The comparison takes as long wherever they differ.
        Some(hash.hash? == computed)
    }

    /// The PHC form, for a file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

/// The hash itself. Its memory is given back to the system at once.
fn output(hasher: &Argon2<'_>, password: &[u8], salt: &[u8]) -> Option<Output> {
    let params = hasher.params();
    let len = params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN);
    let count = params.block_count();
    let mut blocks = Vec::with_capacity(count.max(ALLOCATED_MIN / Block::SIZE));
    blocks.resize(count, Block::new());
    let mut out = [0; Output::MAX_LENGTH];
    let out = out.get_mut(..len)?;
    let made = hasher.hash_password_into_with_memory(password, salt, out, blocks.as_mut_slice());
    made.ok()?;
    Output::new(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_password_and_only_it_is_verified() {
        let hash = Hash::of(b"open sesame").unwrap();
        assert!(hash.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        let read = Hash::parse(hash.as_str()).unwrap();
        assert!(read.verify(b"open sesame"));
        assert!(!read.verify(b"open sesam"));
        assert_eq!(format!("{read:?}"), "Hash(…)");
    }

    #[test]
    fn a_secret_file_has_the_password_or_its_hash() {
        assert!(Hash::of_file("hunter2\n").unwrap().verify(b"hunter2"));
        let hash = Hash::of(b"hunter2").unwrap();
        assert_eq!(Hash::of_file(hash.as_str()), Ok(hash));
        assert_eq!(Hash::of_file("\n"), Err(HashFault::Malformed));
        let malformed = Hash::of_file("$argon2id$v=19$oops");
        assert_eq!(malformed, Err(HashFault::Malformed));
    }

    #[test]
    fn what_is_no_hash_or_too_dear_is_refused() {
        let hash = Hash::of(b"hunter2").unwrap();
        let costly = hash.as_str().replace("m=19456", "m=1048576");
        let slow = hash.as_str().replace("t=2", "t=90");
        for (text, fault) in [
            ("hunter2", HashFault::NotAHash),
            ("$2b$12$abc", HashFault::NotArgon2id),
            ("$argon2id$v=19$m=19456,t=2,p=1", HashFault::Malformed),
            (&costly, HashFault::TooCostly),
            (&slow, HashFault::TooCostly),
        ] {
            assert_eq!(Hash::parse(text), Err(fault), "{text}");
        }
    }
}
