//! Folders, batches that tell which they are, and what a store gave back.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rideau::cluster::Partitions;
use rideau::store::{BatchSection, Embedded, Loaded, Piece, Store, StoreError};

/// A folder that goes away with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// One on a disk.
    pub(crate) fn new() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// One in memory where the system has such a thing and this user may write
    /// to it, for the many starts of which none needs a disk.
    pub(crate) fn quick() -> Self {
        Self::try_within(Path::new("/dev/shm"))
            .or_else(|_| Self::try_within(&env::temp_dir()))
            .unwrap()
    }

    fn within(place: &Path) -> Self {
        Self::try_within(place).unwrap()
    }

    fn try_within(place: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-store-{}-{count}", std::process::id());
        let path = place.join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Takes what is in another one, instead of what is here.
    pub(crate) fn copy(&self, from: &Self) {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).unwrap();
        for name in from.names() {
            fs::copy(from.0.join(&name), self.0.join(&name)).unwrap();
        }
    }

    /// Puts back what was last synced of each file that loses the rest, as a
    /// power cut does. A file that was never synced is empty then.
    pub(crate) fn lose(&self, synced: &Self, mut loses: impl FnMut(&str) -> bool) {
        for name in self.names().iter().filter(|name| loses(name)) {
            let path = self.0.join(name);
            let kept = synced
                .0
                .join(fs::metadata(&path).unwrap().ino().to_string());
            fs::write(&path, fs::read(kept).unwrap_or_default()).unwrap();
        }
    }

    /// The names of the files, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The newest log.
    pub(crate) fn newest_log(&self) -> PathBuf {
        let names = self.names();
        let newest = names.iter().rfind(|name| name.ends_with(".log"));
        self.0.join(newest.unwrap())
    }

    pub(crate) fn bytes(&self) -> u64 {
        let len = |name: &String| fs::metadata(self.0.join(name)).unwrap().len();
        self.names().iter().map(len).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a store gave back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) batches: Vec<Vec<u8>>,
    pub(crate) notes: Vec<String>,
}

impl Held {
    /// How many batches there were, those before the snapshot too. Checks that
    /// each is the one that it should be.
    pub(crate) fn count(&self) -> u64 {
        let before = self.chunks.first().map_or(0, |chunk| number(chunk));
        for (at, chunk) in self.chunks.iter().enumerate() {
            assert_eq!(*chunk, chunk_of(before, at), "chunk {at}");
        }
        let mut count = before;
        for batch in &self.batches {
            assert_eq!(*batch, batch_of(count), "batch {count}");
            count += 1;
        }
        count
    }
}

/// Takes everything from a store of one partition that was just opened.
pub(crate) fn take(store: &mut dyn Store) -> Result<Held, StoreError> {
    let mut all = take_all(store, Partitions::ONE)?;
    Ok(all.swap_remove(0))
}

/// What each partition of a store had that was just opened. All have the notes.
pub(crate) fn take_all(
    store: &mut dyn Store,
    partitions: Partitions,
) -> Result<Vec<Held>, StoreError> {
    let wanted: Vec<u32> = (0..partitions.count()).collect();
    let mut all: Vec<Held> = wanted.iter().map(|_| Held::default()).collect();
    let Loaded { notes, .. } = store.load(partitions, &wanted, &mut |partition, piece| {
        let held = &mut all[partition as usize];
        match piece {
            Piece::Snapshot(chunk) => held.chunks.push(chunk.to_vec()),
            Piece::Batch(batch) => held.batches.push(batch.to_vec()),
        }
        Ok(())
    })?;
    for held in &mut all {
        held.notes.clone_from(&notes);
    }
    Ok(all)
}

/// Appends what the only partition of a store writes.
pub(crate) fn append(store: &mut dyn Store, bytes: &[u8]) -> Result<(), StoreError> {
    store.append(&[BatchSection::only(bytes)])
}

pub(crate) fn open(folder: &Folder) -> Result<(Embedded, Held), StoreError> {
    let mut store = Embedded::open(&folder.0)?;
    let held = take(&mut store)?;
    Ok((store, held))
}

/// A batch that tells which one it is. They differ in length: most are small,
/// and some span several pages.
pub(crate) fn batch_of(at: u64) -> Vec<u8> {
    let len = if at % 7 == 3 { 9000 } else { at * 31 % 200 };
    let mut rng = Rng(at + 1);
    let filler = (0..len).map(|_| rng.next().to_le_bytes()[0]);
    at.to_le_bytes().into_iter().chain(filler).collect()
}

/// A chunk of the snapshot that began after `before` batches.
pub(crate) fn chunk_of(before: u64, at: usize) -> Vec<u8> {
    let mut chunk = batch_of(before);
    chunk.extend(at.to_le_bytes());
    chunk
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Chance that follows from a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
