//! Takes units of a key, or says at once that there are too few.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rideau_core::locks::{Claim, Full, Grant};

use super::Denied;
use super::entry::Entry;
use super::keys::{Keys, Taken};
use super::rules::NoRoom;
use super::taken::Pinned;
use super::word::{No, Reading, Taker};
use crate::key::Key;

/// An entry of which units were taken.
pub(super) type Granted<K> = (Arc<Entry<K>>, Grant);

impl<K: Key> Keys<K> {
    /// Take units of a key, exactly if they fit.
    #[inline(always)]
    pub(super) fn acquire<Q>(&self, key: &Q, claim: Claim) -> Result<Granted<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        match self.acquire_at_once(hash, key, claim) {
            (Some(entry), word) => Ok((entry, word.grant(claim))),
            (None, word) => match word.full() {
                Some(held) => Err(claim.full(held).into()),
                None => self.acquire_slowly(hash, key, claim),
            },
        }
    }

    /// The same in the usual case: the entry of which units were taken, and its word. Both
    /// fit into registers, which what is made of them would not.
    #[inline(never)]
    fn acquire_at_once<Q>(
        &self,
        hash: u64,
        key: &Q,
        claim: Claim,
    ) -> (Option<Arc<Entry<K>>>, Reading)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let taken = self.map.find(hash, key, |entry| {
            match entry.word().take_at_once(claim) {
                Ok(word) => (Some(Arc::clone(entry)), word),
                // A refusal writes nothing that threads share.
                Err(word) => (None, word),
            }
        });
        taken.unwrap_or((None, Reading::UNCLEAR))
    }

    #[cold]
    #[inline(never)]
    fn acquire_slowly<Q>(&self, hash: u64, key: &Q, claim: Claim) -> Result<Granted<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let found = self.map.find(hash, key, |entry| {
            let grant = entry.word().take_with_care(claim, Taker::Any)?;
            Ok((Arc::clone(entry), grant))
        });
        match found {
            Some(Ok(granted)) => return Ok(granted),
            Some(Err(No::Full(held))) => return Err(claim.full(held).into()),
            Some(Err(_)) | None => {}
        }
        // What cannot be had of any key does not make one.
        if !claim.fits(0) {
            return Err(claim.full(self.held_at(hash, key)).into());
        }
        let entry = self.pin(hash, key).map_err(|NoRoom| Denied::Keys)?;
        let pinned = Pinned::new(self, entry);
        let grant = self.acquire_pinned(pinned.entry(), claim)?;
        Ok((Arc::clone(pinned.entry()), grant))
    }

    /// Take units of a key that is not forgotten meanwhile.
    #[inline(always)]
    pub(super) fn acquire_pinned(
        &self,
        entry: &Arc<Entry<K>>,
        claim: Claim,
    ) -> Result<Grant, Full> {
        match entry.word().take_at_once(claim) {
            Ok(word) => Ok(word.grant(claim)),
            Err(word) => match word.full() {
                Some(held) => Err(claim.full(held)),
                None => self.acquire_with_care(entry, claim),
            },
        }
    }

    /// The same where there are marks or others are faster.
    #[cold]
    #[inline(never)]
    fn acquire_with_care(&self, entry: &Arc<Entry<K>>, claim: Claim) -> Result<Grant, Full> {
        let word = entry.word();
        let taken = match word.take_with_care(claim, Taker::Any) {
            Ok(grant) => Ok(grant),
            Err(No::Full(held)) => Err(No::Full(held)),
            Err(_) => self.under_lock(entry, || word.take(claim, Taker::Lock)),
        };
        match taken {
            Ok(grant) => Ok(grant),
            Err(No::Full(held)) => Err(claim.full(held)),
            Err(No::Waited) => self.line_of(entry).try_ask(claim).map(Taken::into_grant),
            Err(No::Retired | No::Locked) => {
                unreachable!("nothing else stops a thread that has pinned and locked it")
            }
        }
    }
}
