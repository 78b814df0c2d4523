//! All keys of which units are held, and some that were until a moment ago.
//!
//! A key that is known is found without a lock. One that is not is added under
//! the lock of its shard, and forgotten again by the sweeper.

mod forget;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
#[cfg(not(rideau_loom))]
use std::sync::atomic::fence;
use std::sync::{Arc, Weak};
use std::time::Duration;
#[cfg(not(rideau_loom))]
use std::time::Instant;

use crossbeam_utils::CachePadded;
#[cfg(rideau_loom)]
use loom::sync::atomic::fence;
use rideau_core::locks::{Claim, Full};
use rideau_core::{OptionError, Reason, queue};

use super::board::Spot;
use super::grave::{Grave, Pin};
use super::line::{Line, LineOf, Wait};
use super::rules::{KeyRule, NoRoom, Rules};
use super::shard::{Kept, Locked, Loose, Node, Pinned, Shard, Units};
use super::stub::Home;
#[cfg(not(rideau_loom))]
use super::sweeper;
use super::word::{Left, No, Road};
use super::{Denied, Lock, LocksOptions};
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::keyed::Key;
#[cfg(not(rideau_loom))]
use crate::sync::AtomicU64;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Enough shards to keep threads from meeting that work on different keys.
#[cfg(not(rideau_loom))]
const SHARDS: usize = 64;
/// Loom cannot follow many.
#[cfg(rideau_loom)]
const SHARDS: usize = 1;

#[cfg(not(rideau_loom))]
type Hasher = foldhash::fast::RandomState;
/// Loom repeats what it saw: a key has the same place each time.
#[cfg(rideau_loom)]
type Hasher = foldhash::fast::FixedState;

pub(super) struct Keys<K: Key> {
    me: Weak<Self>,
    hasher: Hasher,
    parts: Box<[CachePadded<Part<K>>; SHARDS]>,
    grave: Grave,
    #[cfg(not(rideau_loom))]
    start: Instant,
    rules: Rules<K>,
    /// That of all lines.
    clock: Clock,
    /// Rules change one after the other.
    changing: Mutex<()>,
    /// The sweeper knows that there is something to do.
    swept: AtomicBool,
    closed: AtomicBool,
}

struct Part<K: Key> {
    /// When a thread last cleaned up for want of room, in milliseconds since the
    /// start.
    #[cfg(not(rideau_loom))]
    cleaned: AtomicU64,
    /// Where asks wait for a key, by its address. A line pins its key, so it
    /// goes first.
    lines: Mutex<HashMap<usize, Arc<LineOf<K>>>>,
    shard: Shard<K>,
}

/// Units that were taken.
pub(super) type Taken<'a, K> = Units<K, Origin<'a, K>>;

/// Where units come back to.
pub(super) enum Origin<'a, K: Key> {
    Borrowed(&'a Keys<K>),
    /// As `Borrowed`, of a handle that has the key pinned for longer, and says
    /// when it no longer has.
    Kept(&'a Kept<K, Arc<Keys<K>>>),
    Owned(Arc<Keys<K>>),
    /// As `Owned`, after so long a wait.
    Waited(Box<(Arc<Keys<K>>, Duration)>),
}

impl<K: Key> Origin<'_, K> {
    pub(super) fn keys(&self) -> &Keys<K> {
        match self {
            Self::Borrowed(keys) => keys,
            Self::Kept(kept) => kept.call(),
            Self::Owned(keys) => keys,
            Self::Waited(waited) => &waited.0,
        }
    }

    pub(super) fn set_waited(&mut self, waited: Duration) {
        if let Self::Owned(keys) = self {
            *self = Self::Waited(Box::new((Arc::clone(keys), waited)));
        }
    }

    #[inline(never)]
    fn hear_news(self, spot: Spot, address: usize, left: Left) {
        let keys = self.keys();
        let spot = match &self {
            Self::Kept(kept) => kept.pinned().node().mark.spot(),
            _ => spot,
        };
        if left.is_idle() {
            keys.idle(spot);
        }
        if left.is_waited() {
            keys.wanted(spot.shard(), address);
        }
    }

    /// How long the units were waited for.
    pub(super) fn waited(&self) -> Duration {
        match self {
            Self::Borrowed(_) | Self::Kept(_) | Self::Owned(_) => Duration::ZERO,
            Self::Waited(waited) => waited.1,
        }
    }
}

impl<K: Key> Home for Origin<'_, K> {
    #[inline(always)]
    fn hear(self, spot: Spot, address: usize, left: Left) {
        match self {
            Self::Borrowed(keys) if keys.knows(spot, left) => {}
            // That it is not held does not matter while it is pinned.
            Self::Kept(_) if !left.is_waited() => {}
            _ => self.hear_news(spot, address, left),
        }
    }
}

impl<K: Key> Keys<K> {
    pub(super) fn new(options: LocksOptions, clock: &Clock) -> Result<Arc<Self>, OptionError> {
        options.queue.validate().map_err(|no| no.within("queue"))?;
        let part = || {
            CachePadded::new(Part {
                #[cfg(not(rideau_loom))]
                cleaned: AtomicU64::new(0),
                shard: Shard::new(options.fence),
                lines: Mutex::new(HashMap::new()),
            })
        };
        let parts = Box::new(std::array::from_fn(|_| part()));
        let rules = Rules::new(&KeyRule {
            queue: options.queue,
            ..KeyRule::default()
        });
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            hasher: Hasher::default(),
            parts,
            grave: Grave::new(),
            #[cfg(not(rideau_loom))]
            start: Instant::now(),
            rules,
            clock: clock.clone(),
            changing: Mutex::new(()),
            swept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Take units of a key, exactly if they fit.
    #[inline]
    pub(super) fn acquire<Q>(&self, key: &Q, claim: Claim) -> Result<Loose<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let pin = self.grave.pin();
        let at_once = match self.look_up(key, &pin) {
            Some(node) => node.take_at_once(claim),
            None => Err(None),
        };
        drop(pin);
        let full = |held| claim.full(held).into();
        Loose::or_else(at_once, claim, full, || self.acquire_slowly(key, claim))
    }

    /// Look a key up. None is not final.
    #[inline(always)]
    fn look_up<'p, Q>(&'p self, key: &Q, pin: &'p Pin<'_>) -> Option<&'p Node<K>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        self.part(hash).shard.find(hash, key, pin)
    }

    /// As [`acquire`](Self::acquire), but wait in the queue where others do.
    pub(super) fn acquire_or_wait<Q>(
        self: &Arc<Self>,
        key: &Q,
        claim: Claim,
        terms: &AskOptions,
    ) -> Wait<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Ok(pinned) = self.pin(self.hasher.hash_one(key), key) else {
            return Wait::refused(Reason::Keys);
        };
        let kept = Kept::new(pinned, Arc::clone(self));
        match kept.pinned().node().take(claim, Road::Open) {
            Ok(taken) => Wait::answered(Lock(taken.at(Origin::Owned(Arc::clone(self))))),
            Err(_) => self.line_of(kept.pinned()).ask(claim, terms, kept),
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_slowly<Q>(&self, key: &Q, claim: Claim) -> Result<Loose<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let pin = self.grave.pin();
        if let Some(node) = self.look_up(key, &pin) {
            match node.take_with_care(claim) {
                Ok(taken) => return Ok(taken),
                Err(No::Full(held)) => return Err(claim.full(held).into()),
                Err(_) => {}
            }
        }
        drop(pin);
        let hash = self.hasher.hash_one(key);
        // What cannot be had of any key does not make one.
        if !claim.fits(0) {
            return Err(claim.full(self.held_at(hash, key)).into());
        }
        let pinned = self.pin(hash, key).map_err(|NoRoom| Denied::Keys)?;
        let taken = self.acquire_pinned(&pinned, claim);
        self.unpin(pinned);
        taken.map_err(Denied::Full)
    }

    /// Take units of a key that is not forgotten meanwhile.
    pub(super) fn acquire_pinned(
        &self,
        pinned: &Pinned<K>,
        claim: Claim,
    ) -> Result<Loose<K>, Full> {
        let at_once = pinned.node().take_at_once(claim);
        let full = |held| claim.full(held);
        Loose::or_else(at_once, claim, full, || {
            self.acquire_with_care(pinned, claim)
        })
    }

    /// The same where there are marks or others are faster.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_with_care(
        &self,
        pinned: &Pinned<K>,
        claim: Claim,
    ) -> Result<Loose<K>, Full> {
        match pinned.node().take_with_care(claim) {
            Ok(taken) => Ok(taken),
            Err(No::Full(held)) => Err(claim.full(held)),
            Err(_) => self.acquire_with_lock(pinned, claim),
        }
    }

    fn acquire_with_lock(&self, pinned: &Pinned<K>, claim: Claim) -> Result<Loose<K>, Full> {
        let node = pinned.node();
        match self.under_lock(node, || node.take(claim, Road::Lock)) {
            Ok(taken) => Ok(taken),
            Err(No::Full(held)) => Err(claim.full(held)),
            Err(No::Waited) => self.line_of(pinned).try_ask(claim).map(Units::loosen),
            Err(No::Retired | No::Locked) => {
                unreachable!("nothing else stops who has pinned and locked it")
            }
        }
    }

    /// How many units of a key are held.
    pub(super) fn held<Q>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.held_at(self.hasher.hash_one(key), key)
    }

    fn held_at<Q>(&self, hash: u64, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let pin = self.grave.pin();
        let part = self.part(hash);
        let found = part.shard.find(hash, key, &pin);
        if let Some(held) = found.and_then(|node| node.word().settled()) {
            return held;
        }
        drop(pin);
        let locked = part.shard.lock(&self.grave);
        let node = locked.find(hash, key);
        node.map_or(0, |node| node.word().held())
    }

    /// As [`held`](Self::held), of a key that is not forgotten meanwhile.
    pub(super) fn held_pinned(&self, pinned: &Pinned<K>) -> u64 {
        let node = pinned.node();
        let settled = node.word().settled();
        settled.unwrap_or_else(|| self.under_lock(node, || node.word().held()))
    }

    /// Make a key known, and keep it so, however many there are.
    pub(super) fn pin_key<Q>(&self, key: &Q) -> Pinned<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.pin_anyway(self.hasher.hash_one(key), key)
    }

    /// No thread has cleaned up for a while for want of room in this shard. If
    /// one just did, the keys that are there now are wanted again and again,
    /// and forgetting them would go on for ever.
    #[cfg(not(rideau_loom))]
    fn is_dusty(&self, shard: u32) -> bool {
        const WHILE: u64 = 50;
        let now = self.now();
        let cleaned = &self.parts[shard as usize].cleaned;
        let is_dusty = now.saturating_sub(cleaned.load(Ordering::Relaxed)) >= WHILE;
        if is_dusty {
            cleaned.store(now, Ordering::Relaxed);
        }
        is_dusty
    }

    /// Loom's time does not pass.
    #[cfg(rideau_loom)]
    fn is_dusty(&self, _shard: u32) -> bool {
        false
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.each().map(|locked| locked.len()).sum()
    }

    /// The keys of which units are held, and how many.
    pub(super) fn all_held(&self) -> Vec<(K, u64)> {
        let mut held = Vec::new();
        for locked in self.each() {
            let nodes = locked
                .nodes()
                .map(|node| (node.key().clone(), node.word().held()));
            held.extend(nodes.filter(|(_, held)| *held > 0));
        }
        held
    }

    /// How many wait for a key.
    pub(super) fn waiting<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let part = self.part(hash);
        let address = part
            .shard
            .lock(&self.grave)
            .find(hash, key)
            .map(Node::address);
        let line = address.and_then(|address| lock(&part.lines).get(&address).cloned());
        line.map_or(0, |line| Line::new(line).len())
    }

    /// The line of a key, made if there is none.
    pub(super) fn line_of(&self, pinned: &Pinned<K>) -> Line<K> {
        let (shard, address) = (pinned.node().mark.spot().shard(), pinned.node().address());
        let mut lines = lock(&self.parts[shard as usize].lines);
        let line = lines.entry(address).or_insert_with(|| {
            let rule = pinned.node().mark.rule();
            let options = self.rules.slot(rule).queue();
            let is_closed = self.closed.load(Ordering::Acquire);
            let (key, keys) = (pinned.clone(), self.me.clone());
            Line::start(&options, is_closed, key, keys, &self.clock)
        });
        Line::new(Arc::clone(line))
    }

    /// Milliseconds since the start.
    #[cfg(not(rideau_loom))]
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Loom's time does not pass.
    #[cfg(rideau_loom)]
    fn now(&self) -> u64 {
        0
    }

    pub(super) fn set_keys_max(&self, max: usize) {
        self.rules.set_keys_max(max);
    }

    /// How many keys of a rule are known.
    pub(super) fn keys_of(&self, rule: usize) -> usize {
        self.rules.keys(rule)
    }

    /// Change how one waits, everywhere at once.
    pub(super) fn set_queue(&self, options: &queue::Options) -> Result<(), OptionError> {
        options.validate().map_err(|no| no.within("queue"))?;
        let _alone = lock(&self.changing);
        let rules = self.rules.all();
        rules.for_each(|rule| self.rules.slot(rule).set_queue(options));
        for (_, line) in self.lines() {
            line.reconfigure(options)?;
        }
        Ok(())
    }

    pub(super) fn queue(&self) -> queue::Options {
        self.rules.slot(0).queue()
    }

    /// Refuse every ask that waits or comes to wait.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lines().iter().for_each(|(_, line)| line.close());
    }

    /// Units came back for which an ask waits.
    #[cold]
    fn wanted(&self, shard: u32, address: usize) {
        let line = lock(&self.parts[shard as usize].lines)
            .get(&address)
            .cloned();
        if let Some(line) = line {
            Line::new(line).serve();
        }
    }

    /// Need a key no longer. Only then the sweeper is called: it passes over
    /// what is pinned, and does not come again for it.
    pub(super) fn unpin(&self, pinned: Pinned<K>) {
        let spot = pinned.node().mark.spot();
        drop(pinned);
        self.unpinned(spot);
    }

    /// A key was pinned until just now.
    pub(super) fn unpinned(&self, spot: Spot) {
        fence(Ordering::SeqCst);
        self.idle(spot);
    }

    /// There is nothing to tell of what is left of a key.
    #[inline]
    fn knows(&self, spot: Spot, left: Left) -> bool {
        left.is_no_news(self.rules.boards().is_marked(spot))
    }

    /// A key may have become one that is not held.
    pub(super) fn idle(&self, spot: Spot) {
        if !self.rules.boards().is_marked(spot) {
            self.want_sweep(spot);
        }
    }

    #[cold]
    fn want_sweep(&self, spot: Spot) {
        if self.rules.boards().mark(spot) {
            self.call_sweeper();
        }
    }

    fn call_sweeper(&self) {
        if !self.swept.swap(true, Ordering::SeqCst) {
            #[cfg(not(rideau_loom))]
            sweeper::add(self.me.clone());
        }
    }

    /// The sweeper knows, or thinks so.
    #[cfg(all(test, rideau_loom))]
    pub(super) fn is_swept(&self) -> bool {
        self.swept.load(Ordering::SeqCst)
    }

    /// Drop the lines that are not used: an ask that waits has its line too.
    /// Says of which keys the others are.
    fn drop_lines(&self, part: &Part<K>) -> Vec<usize> {
        let unused = |_: &usize, line: &mut Arc<LineOf<K>>| Arc::strong_count(line) == 1;
        let mut lines = lock(&part.lines);
        let gone: Vec<_> = lines.extract_if(unused).collect();
        let left = lines.keys().copied().collect();
        drop(lines);
        // They take locks when they go.
        drop(gone);
        left
    }

    fn each(&self) -> impl Iterator<Item = Locked<'_, K>> {
        self.parts.iter().map(|part| part.shard.lock(&self.grave))
    }

    /// Do something with the lock of a key's shard.
    pub(super) fn under_lock<T>(&self, node: &Node<K>, then: impl FnOnce() -> T) -> T {
        let _lock = self.lock(node.mark.spot().shard());
        then()
    }

    pub(super) fn lock(&self, shard: u32) -> Locked<'_, K> {
        self.parts[shard as usize].shard.lock(&self.grave)
    }

    #[inline]
    fn part(&self, hash: u64) -> &Part<K> {
        &self.parts[Self::shard_of(hash) as usize]
    }

    /// By the upper bits: the lower ones are for the shard's own table.
    #[inline]
    fn shard_of(hash: u64) -> u32 {
        ((hash >> 40) as usize & (SHARDS - 1)) as u32
    }
}
