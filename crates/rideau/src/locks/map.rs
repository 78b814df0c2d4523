//! Finds the entry of a key without a lock, and without a write to memory that threads
//! share.
//!
//! Entries are added and removed under the lock of their shard. No code of a key runs while
//! papaya changes its table: hashes are kept in the entries, and entries are compared by
//! address. A search compares keys.

use std::borrow::Borrow;
use std::sync::Arc;

use super::entry::Entry;
use crate::key::Key;

#[cfg(rideau_loom)]
pub(super) use modelled::Map;
#[cfg(not(rideau_loom))]
pub(super) use papayas::Map;

#[cfg(not(rideau_loom))]
mod papayas {
    use std::hash::{BuildHasherDefault, Hash, Hasher};

    use papaya::{Equivalent, Guard, HashMap, ResizeMode};

    use super::{Arc, Borrow, Entry, Key};

    pub(in crate::locks) struct Map<K: Key>(HashMap<Place<K>, (), BuildHasherDefault<KeptHash>>);

    /// An entry in the table.
    struct Place<K>(Arc<Entry<K>>);

    /// A key that is looked up.
    struct Sought<'a, Q: ?Sized> {
        hash: u64,
        key: &'a Q,
    }

    /// Hashes to the number that is written.
    #[derive(Default)]
    struct KeptHash(u64);

    impl<K: Key> Map<K> {
        pub(in crate::locks) fn new() -> Self {
            // By default every search in a map that has grown looks at two tables, until
            // enough further keys have been added.
            let map = HashMap::builder()
                .hasher(BuildHasherDefault::default())
                .resize_mode(ResizeMode::Blocking);
            Self(map.build())
        }

        /// Do something with the entry of a key. None if there was none at some moment of
        /// the call.
        #[inline(always)]
        pub(in crate::locks) fn find<Q, T>(
            &self,
            hash: u64,
            key: &Q,
            then: impl FnOnce(&Arc<Entry<K>>) -> T,
        ) -> Option<T>
        where
            K: Borrow<Q>,
            Q: Eq + ?Sized,
        {
            let places = self.0.pin();
            let found = places.get_key_value(&Sought { hash, key });
            found.map(|(place, ())| then(&place.0))
        }

        pub(in crate::locks) fn add(&self, entry: Arc<Entry<K>>) {
            self.0.pin().insert(Place(entry), ());
        }

        pub(in crate::locks) fn remove(&self, entry: &Arc<Entry<K>>) {
            self.0.pin().remove(&Place(Arc::clone(entry)));
        }

        /// Make the table smaller where few of its places are used, by an entry that is
        /// retired. Under the lock of the entry's shard, where no other thread finds it.
        ///
        /// papaya has no call for this. An entry that is removed leaves its place used up,
        /// and an entry for which there is none within some hundred steps makes papaya move
        /// all others to a new table: to one of half the size if an eighth is in use. So this
        /// uses up the places of one hash, often enough for three smaller tables.
        pub(in crate::locks) fn shrink(&self, retired: &Arc<Entry<K>>) {
            const STEPS_MAX: u32 = 5 * 24;
            for _ in 0..3 * STEPS_MAX {
                self.add(Arc::clone(retired));
                self.remove(retired);
            }
            self.flush();
        }

        /// Do something with each entry, in no order.
        pub(in crate::locks) fn each(&self, mut then: impl FnMut(&Arc<Entry<K>>)) {
            self.0.pin().keys().for_each(|place| then(&place.0));
        }

        /// As long as this exists, none of this thread's calls ends a key. Ending one may
        /// run code of its author, and not under a lock.
        pub(in crate::locks) fn guard(&self) -> impl Sized {
            self.0.guard()
        }

        /// Free what this thread has removed or replaced, as far as no other thread is
        /// in a search.
        pub(in crate::locks) fn flush(&self) {
            self.0.guard().flush();
        }
    }

    impl<K> PartialEq for Place<K> {
        fn eq(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    impl<K> Eq for Place<K> {}

    impl<K> Hash for Place<K> {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            hasher.write_u64(self.0.hash());
        }
    }

    impl<Q: ?Sized> Hash for Sought<'_, Q> {
        #[inline]
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            hasher.write_u64(self.hash);
        }
    }

    impl<K: Borrow<Q>, Q: Eq + ?Sized> Equivalent<Place<K>> for Sought<'_, Q> {
        #[inline]
        fn equivalent(&self, place: &Place<K>) -> bool {
            place.0.key().borrow() == self.key
        }
    }

    impl Hasher for KeptHash {
        #[inline]
        fn write_u64(&mut self, hash: u64) {
            self.0 = hash;
        }

        fn write(&mut self, _bytes: &[u8]) {
            unreachable!("entries are found by a number");
        }

        #[inline]
        fn finish(&self) -> u64 {
            self.0
        }
    }
}

/// Loom cannot follow papaya. Here a search is one load, which may be late: it finds the
/// entries of any version that loom lets it see. A thread that finds an entry sees what was
/// written before it was added.
#[cfg(rideau_loom)]
mod modelled {
    use std::sync::Mutex;

    use super::{Arc, Borrow, Entry, Key};
    use crate::sync::{AtomicU64, Ordering};

    pub(in crate::locks) struct Map<K: Key> {
        version: AtomicU64,
        /// All that there were.
        versions: Mutex<Vec<Vec<Arc<Entry<K>>>>>,
    }

    impl<K: Key> Map<K> {
        pub(in crate::locks) fn new() -> Self {
            Self {
                version: AtomicU64::new(0),
                versions: Mutex::new(vec![Vec::new()]),
            }
        }

        pub(in crate::locks) fn find<Q, T>(
            &self,
            hash: u64,
            key: &Q,
            then: impl FnOnce(&Arc<Entry<K>>) -> T,
        ) -> Option<T>
        where
            K: Borrow<Q>,
            Q: Eq + ?Sized,
        {
            let is_it = |entry: &Arc<Entry<K>>| entry.hash() == hash && entry.key().borrow() == key;
            self.seen().iter().find(|entry| is_it(entry)).map(then)
        }

        pub(in crate::locks) fn add(&self, entry: Arc<Entry<K>>) {
            self.change(|entries| entries.push(entry));
        }

        pub(in crate::locks) fn remove(&self, entry: &Arc<Entry<K>>) {
            self.change(|entries| entries.retain(|other| !Arc::ptr_eq(other, entry)));
        }

        pub(in crate::locks) fn each(&self, then: impl FnMut(&Arc<Entry<K>>)) {
            self.seen().iter().for_each(then);
        }

        pub(in crate::locks) fn shrink(&self, _retired: &Arc<Entry<K>>) {}

        pub(in crate::locks) fn guard(&self) {}

        pub(in crate::locks) fn flush(&self) {}

        fn seen(&self) -> Vec<Arc<Entry<K>>> {
            let version = self.version.load(Ordering::Acquire) as usize;
            self.versions.lock().expect("no model panics here")[version].clone()
        }

        /// Under the lock of the only shard.
        fn change(&self, change: impl FnOnce(&mut Vec<Arc<Entry<K>>>)) {
            let mut entries = self.seen();
            change(&mut entries);
            let mut versions = self.versions.lock().expect("no model panics here");
            versions.push(entries);
            let version = versions.len() as u64 - 1;
            drop(versions);
            self.version.store(version, Ordering::Release);
        }
    }
}
