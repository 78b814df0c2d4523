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

use rideau_core::locks::{Claim, Full};

use super::keys::{Keys, Origin, Taken};
use super::line::Line;
use super::shard::{Locked, Pinned};
use super::word::Road;
use crate::keyed::Key;

/// Which of several claims could not be met, and why. None was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullAt {
    /// Where the claim was among all.
    pub at: usize,
    /// What its key said.
    pub full: Full,
}

/// Keys that are pinned together. Also if one of them panics when it is looked
/// up, the sweeper hears of the others.
struct Pins<'a, K: Key>(&'a Keys<K>, Vec<Pinned<K>>);

impl<K: Key> Drop for Pins<'_, K> {
    fn drop(&mut self) {
        self.1.drain(..).for_each(|pinned| self.0.unpin(pinned));
    }
}

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
        let mut all = Pins(self, Vec::with_capacity(claims.len()));
        for (key, _) in claims {
            all.1.push(self.pin_key(*key));
        }
        let pins = &all.1;
        let claims: Vec<Claim> = claims.iter().map(|(_, claim)| *claim).collect();
        let taken = loop {
            let waited = pins
                .iter()
                .filter(|pinned| pinned.node().word().is_waited());
            let mut waited: Vec<&Pinned<K>> = waited.collect();
            waited.sort_unstable_by_key(|pinned| pinned.node().address());
            waited.dedup_by_key(|pinned| pinned.node().address());
            let lines: Vec<Line<K>> = waited.iter().map(|pinned| self.line_of(pinned)).collect();
            let taken = in_all(&lines, || self.acquire_locked(&claims, pins, &waited));
            if let Some(taken) = taken {
                break taken;
            }
        };
        drop(all);
        taken
    }

    /// With the locks of all shards concerned, and of the lines of all keys that
    /// are waited for, no other caller can come between. None if an ask came to
    /// wait for another key.
    fn acquire_locked(
        &self,
        claims: &[Claim],
        pins: &[Pinned<K>],
        waited: &[&Pinned<K>],
    ) -> Option<Result<Vec<Taken<'_, K>>, FullAt>> {
        let mut shards: Vec<u32> = pins
            .iter()
            .map(|pinned| pinned.node().mark.spot().shard())
            .collect();
        shards.sort_unstable();
        shards.dedup();
        let _locks: Vec<Locked<'_, K>> = shards.into_iter().map(|at| self.lock(at)).collect();
        let words = || pins.iter().map(|pinned| pinned.node().word());
        words().for_each(|word| word.mark_busy(true));
        let is_known = |pinned: &Pinned<K>| {
            let address = pinned.node().address();
            waited.iter().any(|known| known.node().address() == address)
        };
        let is_new = |pinned: &Pinned<K>| pinned.node().word().is_waited() && !is_known(pinned);
        let taken = if pins.iter().any(is_new) {
            None
        } else {
            let take = |((claim, pinned), ordinal): ((&Claim, &Pinned<K>), u64)| {
                let taken = pinned.node().take(*claim, Road::LineAndLock);
                let mut taken = taken.expect("units only came back since it fitted");
                // Of the moment at which all were granted.
                taken.set_ordinal(ordinal);
                taken.at(Origin::Borrowed(self))
            };
            let fit = ordinals(claims, pins);
            Some(fit.map(|all| claims.iter().zip(pins).zip(all).map(take).collect()))
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
fn ordinals<K>(claims: &[Claim], pins: &[Pinned<K>]) -> Result<Vec<u64>, FullAt> {
    let addresses = pins.iter().map(|pinned| pinned.node().address());
    let mut held: HashMap<usize, u64> = addresses.zip(held_at_once(pins)).collect();
    let ordinal = |(at, (claim, pinned)): (usize, (&Claim, &Pinned<K>))| {
        let held = held.entry(pinned.node().address()).or_default();
        *held = claim.ordinal(*held).map_err(|full| FullAt { at, full })?;
        Ok(*held)
    };
    claims.iter().zip(pins).enumerate().map(ordinal).collect()
}

/// How many are held of each, at one and the same moment, while no caller
/// takes: what comes back only makes them fewer, so what is read twice alike
/// did not change in between.
fn held_at_once<K>(pins: &[Pinned<K>]) -> Vec<u64> {
    let look = || pins.iter().map(|pinned| pinned.node().word().held());
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

impl std::error::Error for FullAt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.full)
    }
}
