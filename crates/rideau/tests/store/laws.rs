//! What every store does, written once.

use rideau::cluster::Partitions;
use rideau::store::{
    BatchSection, Embedded, Fault, Left, PIECE_LEN_MAX, Platter, Store, StoreError,
};

use crate::stage::{Folder, Held, append, take, take_all};

/// A way to open a store again and again, for one of its partitions.
struct Opener<'a> {
    open: &'a dyn Fn() -> Box<dyn Store>,
    partitions: Partitions,
    partition: u32,
}

/// A store, as one of its partitions sees it.
struct Part {
    store: Box<dyn Store>,
    partitions: Partitions,
    partition: u32,
}

/// Runs a law with each store and several numbers of partitions.
fn check(law: fn(&Opener<'_>)) {
    for count in [1, 4, 64] {
        let partitions = Partitions::new(count, 0).unwrap();
        let partition = count - 1;
        let platter = Platter::new();
        let folder = Folder::quick();
        let opens: [&dyn Fn() -> Box<dyn Store>; 2] = [&|| Box::new(platter.open()), &|| {
            Box::new(Embedded::open(&folder.0).unwrap())
        }];
        for open in opens {
            law(&Opener {
                open,
                partitions,
                partition,
            });
        }
    }
}

impl Opener<'_> {
    fn open(&self) -> Part {
        Part {
            store: (self.open)(),
            partitions: self.partitions,
            partition: self.partition,
        }
    }

    fn is_alone(&self) -> bool {
        self.partitions.count() == 1
    }
}

impl Part {
    fn take(&mut self) -> Result<Held, StoreError> {
        let mut all = take_all(&mut *self.store, self.partitions)?;
        Ok(all.swap_remove(self.partition as usize))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let partition = self.partition;
        self.store.append(&[BatchSection { partition, bytes }])
    }

    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        self.store.begin_snapshot(self.partition)
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.store.put_chunk(chunk)
    }

    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        self.store.end_snapshot()
    }
}

fn loaded(open: &Opener<'_>) -> (Part, Held) {
    let mut part = open.open();
    let held = part.take().unwrap();
    (part, held)
}

/// A memory store of one partition.
fn in_memory(platter: &Platter) -> (Box<dyn Store>, Held) {
    let mut store = Box::new(platter.open());
    let held = take(&mut *store).unwrap();
    (store, held)
}

#[test]
fn batches_come_back_in_order() {
    check(|open| {
        let large = vec![9; 3_000_000];
        let batches: [&[u8]; 4] = [b"one", b"", &large, &[0; 40]];
        for count in 0..batches.len() {
            let (mut store, held) = loaded(open);
            assert_eq!(held.batches, batches[..count]);
            assert!(
                held.chunks.is_empty() && held.notes.is_empty(),
                "{:?}",
                held.notes
            );
            store.append(batches[count]).unwrap();
        }
        assert_eq!(loaded(open).1.batches, batches);
    });
}

#[test]
fn a_snapshot_replaces_what_came_before_it_began() {
    check(|open| {
        let (mut store, _) = loaded(open);
        store.append(b"before").unwrap();
        store.begin_snapshot().unwrap();
        store.put_chunk(b"first").unwrap();
        store.append(b"between").unwrap();
        store.put_chunk(b"").unwrap();
        assert_eq!(store.store.log_bytes(), 13);
        store.end_snapshot().unwrap();
        let kept = if open.is_alone() { 7 } else { 13 };
        assert_eq!(store.store.log_bytes(), kept);
        store.append(b"after").unwrap();
        drop(store);
        let (mut store, held) = loaded(open);
        assert_eq!(held.chunks, [&b"first"[..], b""]);
        assert_eq!(held.batches, [&b"between"[..], b"after"]);
        assert_eq!(store.store.log_bytes(), kept + 5);
        store.begin_snapshot().unwrap();
        store.end_snapshot().unwrap();
        drop(store);
        let (_, held) = loaded(open);
        assert_eq!(held, Held::default());
    });
}

#[test]
fn a_snapshot_that_is_not_ended_changes_nothing() {
    check(|open| {
        let (mut store, _) = loaded(open);
        store.append(b"one").unwrap();
        store.begin_snapshot().unwrap();
        store.put_chunk(b"never ended").unwrap();
        store.append(b"two").unwrap();
        drop(store);
        let (mut store, held) = loaded(open);
        assert!(held.chunks.is_empty());
        assert_eq!(held.batches, [b"one", b"two"]);
        assert_eq!(held.notes.len(), 1);
        assert!(held.notes[0].contains("snapshot"), "{}", held.notes[0]);
        store.begin_snapshot().unwrap();
        store.put_chunk(b"begun again").unwrap();
        store.begin_snapshot().unwrap();
        store.put_chunk(b"ended").unwrap();
        store.end_snapshot().unwrap();
        drop(store);
        let (_, held) = loaded(open);
        assert_eq!(held.chunks, [b"ended"]);
        assert!(held.batches.is_empty() && held.notes.is_empty());
    });
}

#[test]
fn calls_out_of_turn_are_refused_and_harm_nothing() {
    check(|open| {
        let mut store = open.open();
        let refused = |done: Result<(), StoreError>| {
            assert!(
                matches!(done, Err(StoreError::OutOfTurn { .. })),
                "{done:?}"
            );
        };
        refused(store.append(b"too early"));
        refused(store.begin_snapshot());
        store.take().unwrap();
        refused(store.take().map(drop));
        refused(store.put_chunk(b"without a beginning"));
        refused(store.end_snapshot());
        store.append(b"one").unwrap();
        drop(store);
        assert_eq!(loaded(open).1.batches, [b"one"]);
    });
}

#[test]
fn a_piece_that_is_too_large_is_refused_and_harms_nothing() {
    check(|open| {
        let (mut store, _) = loaded(open);
        let large = vec![0; PIECE_LEN_MAX + 1];
        let no = store.append(&large).unwrap_err();
        assert_eq!(
            no.to_string(),
            "67108865 bytes in one piece are more than 67108864"
        );
        store.begin_snapshot().unwrap();
        assert!(store.put_chunk(&large).is_err());
        store.append(b"one").unwrap();
        drop(store);
        assert_eq!(loaded(open).1.batches, [b"one"]);
    });
}

#[test]
fn a_piece_that_is_not_understood_stops_the_start() {
    check(|open| {
        let (mut store, _) = loaded(open);
        store.append(b"one").unwrap();
        store.append(b"two").unwrap();
        drop(store);
        let mut store = open.open();
        let mut seen = 0;
        let wanted: Vec<u32> = (0..open.partitions.count()).collect();
        let no = store.store.load(open.partitions, &wanted, &mut |_, _| {
            seen += 1;
            if seen == 2 {
                Err("no such range".into())
            } else {
                Ok(())
            }
        });
        assert_eq!(
            no.unwrap_err().to_string(),
            "batch 2 makes no sense: no such range"
        );
        assert!(matches!(
            store.append(b"three"),
            Err(StoreError::Stopped { .. })
        ));
        drop(store);
        assert_eq!(loaded(open).1.batches, [b"one", b"two"]);
    });
}

#[test]
fn the_fence_grows_with_each_opening() {
    check(|open| {
        let mut before = 0;
        for _ in 0..5 {
            let (store, _) = loaded(open);
            assert!(store.store.fence() > before);
            before = store.store.fence();
        }
    });
}

#[test]
fn each_partition_has_its_own_sections_and_snapshots() {
    check(|open| {
        if open.is_alone() {
            return;
        }
        let section = |partition, bytes| BatchSection { partition, bytes };
        let (mut store, _) = loaded(open);
        let all: Vec<Vec<u8>> = (0..open.partitions.count())
            .map(|partition| format!("of {partition}").into_bytes())
            .collect();
        let sections: Vec<BatchSection<'_>> = (0..)
            .zip(&all)
            .map(|(partition, bytes)| section(partition, bytes))
            .collect();
        store.store.append(&sections).unwrap();
        store.store.begin_snapshot(1).unwrap();
        store.put_chunk(b"chunk of 1").unwrap();
        store
            .store
            .append(&[section(1, b"one"), section(0, b"zero")])
            .unwrap();
        store.end_snapshot().unwrap();
        drop(store);
        let mut store = open.open();
        let held = take_all(&mut *store.store, open.partitions).unwrap();
        assert_eq!(held[0].batches, [&b"of 0"[..], b"zero"]);
        assert_eq!(held[1].chunks, [b"chunk of 1"]);
        assert_eq!(held[1].batches, [b"one"]);
        assert_eq!(held[2].batches, [b"of 2"]);
        // The log goes when no partition needs it.
        let before = store.store.log_bytes();
        for partition in 0..open.partitions.count() {
            assert_eq!(store.store.log_bytes(), before, "{partition}");
            store.store.begin_snapshot(partition).unwrap();
            store.put_chunk(&all[partition as usize]).unwrap();
            store.end_snapshot().unwrap();
        }
        assert_eq!(store.store.log_bytes(), 0);
        drop(store);
        let held = take_all(&mut *open.open().store, open.partitions).unwrap();
        for (held, bytes) in held.iter().zip(&all) {
            assert_eq!(held.chunks, [&bytes[..]]);
            assert!(held.batches.is_empty() && held.notes.is_empty());
        }
    });
}

#[test]
fn sections_of_a_partition_that_is_not_there_are_refused_and_harm_nothing() {
    check(|open| {
        let (mut store, _) = loaded(open);
        let partition = open.partitions.count();
        let bytes = b"nowhere";
        let no = store.store.append(&[BatchSection { partition, bytes }]);
        assert!(matches!(no, Err(StoreError::OutOfTurn { .. })), "{no:?}");
        let no = store.store.begin_snapshot(partition);
        assert!(matches!(no, Err(StoreError::OutOfTurn { .. })), "{no:?}");
        store.append(b"one").unwrap();
        drop(store);
        assert_eq!(loaded(open).1.batches, [b"one"]);
    });
}

#[test]
fn a_store_that_was_written_has_the_same_partitions_ever_after() {
    check(|open| {
        let (mut store, _) = loaded(open);
        store.append(b"one").unwrap();
        drop(store);
        for (count, stripe) in [(2, 0), (64, 3)] {
            let mut store = open.open();
            store.partitions = Partitions::new(count, stripe).unwrap();
            let no = store.take().unwrap_err();
            assert!(matches!(no, StoreError::OtherPartitions { .. }), "{no}");
            assert!(no.to_string().contains("was written with"), "{no}");
        }
        assert_eq!(loaded(open).1.batches, [b"one"]);
    });
}

#[test]
fn a_failed_append_of_the_memory_store_leaves_what_it_was_told_to() {
    let lefts = [
        (Left::Nothing, 1, 0),
        (Left::Torn, 1, 1),
        (Left::Whole, 2, 0),
    ];
    for (left, batches, notes) in lefts {
        let platter = Platter::new();
        let (mut store, _) = in_memory(&platter);
        append(&mut *store, b"one").unwrap();
        platter.inject(Fault::Append(left));
        assert!(matches!(
            append(&mut *store, b"two"),
            Err(StoreError::Io { .. })
        ));
        assert!(matches!(
            append(&mut *store, b"three"),
            Err(StoreError::Stopped { .. })
        ));
        let (_, held) = in_memory(&platter);
        assert_eq!(
            (held.batches.len(), held.notes.len()),
            (batches, notes),
            "{left:?}"
        );
    }
}

#[test]
fn the_memory_store_fails_in_the_other_ways_too() {
    let platter = Platter::new();
    let (mut store, _) = in_memory(&platter);
    append(&mut *store, b"one").unwrap();
    platter.inject(Fault::Full);
    assert!(matches!(
        append(&mut *store, b"two"),
        Err(StoreError::Full { .. })
    ));
    for counts in [false, true] {
        let (mut store, _) = in_memory(&platter);
        store.begin_snapshot(0).unwrap();
        store.put_chunk(b"chunk").unwrap();
        platter.inject(Fault::End(counts));
        assert!(store.end_snapshot().is_err());
        assert_eq!(in_memory(&platter).1.chunks.len(), usize::from(counts));
    }
    let (mut old, _) = in_memory(&platter);
    let (mut new, _) = in_memory(&platter);
    assert!(matches!(
        append(&mut *old, b"late"),
        Err(StoreError::Fenced { .. })
    ));
    append(&mut *new, b"two").unwrap();
    platter.lose_tail(1);
    let lost = take(&mut platter.open()).unwrap_err();
    assert!(matches!(lost, StoreError::Corrupt { .. }), "{lost}");
}

#[test]
fn appends_of_the_memory_store_wait_while_they_are_held() {
    let platter = Platter::new();
    let (mut store, _) = in_memory(&platter);
    let hold = platter.hold();
    let waiting = std::thread::spawn(move || append(&mut *store, b"one"));
    assert_eq!(platter.batches(), 0);
    drop(hold);
    waiting.join().unwrap().unwrap();
    assert_eq!(platter.batches(), 1);
}
