//! Takes of several keys at once, all or none, at one moment.
//!
//! Such a take has the locks of all shards concerned, and of the lines of all
//! keys that are waited for, and marks the words as busy: no other caller takes
//! of them meanwhile, and none is told of a part. Units that come back are no
//! harm: what fitted still does.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use rideau_core::locks::{Claim, Full, Grant};

use super::entry::Entry;
use super::keys::{Keys, Origin, Source, Taken, shard_of};
use super::line::Line;
use super::taken::Pinned;
use super::word::Taker;
use crate::key::Key;

/// Which of several claims could not be met, and why. None was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullAt {
    /// Where the claim was among all.
    pub at: usize,
    /// The refusal of its key.
    pub full: Full,
}

/// A key that is pinned for as long as one call.
type Pin<'a, K> = Pinned<K, &'a Keys<K>>;

impl<K: Key> Keys<K> {
    /// Take units of several keys, all or none. `claims` are keys with what is
    /// claimed of each.
    pub(super) fn acquire_all<Q>(&self, claims: &[(&Q, Claim)]) -> Result<Vec<Taken<'_, K>>, FullAt>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        // A refusal writes nothing that others read.
        for (at, (key, claim)) in claims.iter().enumerate() {
            let held = self.held(*key);
            if !claim.fits(held) {
                return Err(FullAt {
                    at,
                    full: claim.full(held),
                });
            }
        }
        let mut pins: Vec<Pin<'_, K>> = Vec::with_capacity(claims.len());
        for (key, _) in claims {
            pins.push(Pinned::new(self, self.pin_key(*key)));
        }
        let claims: Vec<Claim> = claims.iter().map(|(_, claim)| *claim).collect();
        let entries: Vec<&Arc<Entry<K>>> = pins.iter().map(Pinned::entry).collect();
        loop {
            let waited = entries.iter().filter(|entry| entry.word().is_waited());
            let mut waited: Vec<&Arc<Entry<K>>> = waited.copied().collect();
            waited.sort_unstable_by_key(|entry| entry.address());
            waited.dedup_by_key(|entry| entry.address());
            let lines: Vec<Line<K>> = waited.iter().map(|entry| self.line_of(entry)).collect();
            let taken = in_all(&lines, || self.acquire_locked(&claims, &entries, &waited));
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// With the locks of all shards concerned, and of the lines of all keys that
    /// are waited for, no other caller can come between. None if an ask came to
    /// wait for another key.
    fn acquire_locked(
        &self,
        claims: &[Claim],
        entries: &[&Arc<Entry<K>>],
        waited: &[&Arc<Entry<K>>],
    ) -> Option<Result<Vec<Taken<'_, K>>, FullAt>> {
        let shards = entries.iter().map(|entry| shard_of(entry.hash()));
        let mut shards: Vec<usize> = shards.collect();
        shards.sort_unstable();
        shards.dedup();
        let _locks: Vec<_> = shards.into_iter().map(|at| self.lock_shard(at)).collect();
        let words = || entries.iter().map(|entry| entry.word());
        words().for_each(|word| word.mark_busy(true));
        let is_known = |entry: &Entry<K>| {
            let address = entry.address();
            waited.iter().any(|known| known.address() == address)
        };
        let is_new = |entry: &&Arc<Entry<K>>| entry.word().is_waited() && !is_known(entry);
        let taken = if entries.iter().any(is_new) {
            None
        } else {
            let take = |((claim, entry), ordinal): ((&Claim, &&Arc<Entry<K>>), u64)| {
                let taken = entry.word().take(*claim, Taker::LineAndLock);
                let grant = taken.expect("units only came back since it fitted");
                // Of the moment at which all were granted.
                let grant = Grant { ordinal, ..grant };
                let source = Source::Found(Arc::clone(entry));
                Taken::new(source, Origin::Borrowed(self), grant)
            };
            let fit = ordinals(claims, entries);
            Some(fit.map(|all| claims.iter().zip(entries).zip(all).map(take).collect()))
        };
        words().for_each(|word| word.mark_busy(false));
        taken
    }
}

/// Do something while no ask is served in any of these lines, but first serve
/// those that can be. All callers take the lines in the same order.
fn in_all<K: Key, T>(lines: &[Line<K>], then: impl FnOnce() -> T) -> T {
    fn in_each<K: Key>(lines: &[Line<K>], then: &mut dyn FnMut()) {
        match lines {
            [] => then(),
            [first, rest @ ..] => first.serve_and(|| in_each(rest, then)),
        }
    }
    let mut then = Some(then);
    let mut done = None;
    in_each(lines, &mut || {
        done = then.take().map(|then| then());
    });
    done.expect("the innermost does it")
}

/// The ordinals of all claims if all fit at once, also those of the same key.
fn ordinals<K>(claims: &[Claim], entries: &[&Arc<Entry<K>>]) -> Result<Vec<u64>, FullAt> {
    let addresses = entries.iter().map(|entry| entry.address());
    let mut held: HashMap<usize, u64> = addresses.zip(held_at_once(entries)).collect();
    let ordinal = |(at, (claim, entry)): (usize, (&Claim, &&Arc<Entry<K>>))| {
        let held = held.entry(entry.address()).or_default();
        *held = claim.ordinal(*held).map_err(|full| FullAt { at, full })?;
        Ok(*held)
    };
    let claims = claims.iter().zip(entries).enumerate();
    claims.map(ordinal).collect()
}

/// How many are held of each, at one and the same moment, while no caller
/// takes: what comes back only makes them fewer, so what is read twice alike
/// did not change in between.
fn held_at_once<K>(entries: &[&Arc<Entry<K>>]) -> Vec<u64> {
    let look = || entries.iter().map(|entry| entry.word().held());
    let mut seen: Vec<u64> = look().collect();
    loop {
        let again: Vec<u64> = look().collect();
        if again == seen {
            return seen;
        }
        seen = again;
    }
}

impl fmt::Display for FullAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {} of several: {}", self.at + 1, self.full)
    }
}

impl std::error::Error for FullAt {}
