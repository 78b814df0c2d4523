//! What every store does, written once.

use rideau::store::{Embedded, Fault, Left, PIECE_LEN_MAX, Platter, Store, StoreError};

use crate::stage::{Folder, Held, take};

/// Runs a law with each store. It is given a way to open it again and again.
fn check(law: fn(&dyn Fn() -> Box<dyn Store>)) {
    let platter = Platter::new();
    law(&|| Box::new(platter.open()));
    let folder = Folder::quick();
    law(&|| Box::new(Embedded::open(&folder.0).unwrap()));
}

fn loaded(open: &dyn Fn() -> Box<dyn Store>) -> (Box<dyn Store>, Held) {
    let mut store = open();
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
        assert_eq!(store.log_bytes(), 13);
        store.end_snapshot().unwrap();
        assert_eq!(store.log_bytes(), 7);
        store.append(b"after").unwrap();
        drop(store);
        let (mut store, held) = loaded(open);
        assert_eq!(held.chunks, [&b"first"[..], b""]);
        assert_eq!(held.batches, [&b"between"[..], b"after"]);
        assert_eq!(store.log_bytes(), 12);
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
        let mut store = open();
        let refused = |done: Result<(), StoreError>| {
            assert!(
                matches!(done, Err(StoreError::OutOfTurn { .. })),
                "{done:?}"
            );
        };
        refused(store.append(b"too early"));
        refused(store.begin_snapshot());
        take(&mut *store).unwrap();
        refused(take(&mut *store).map(drop));
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
        let mut store = open();
        let mut seen = 0;
        let no = store.load(&mut |_| {
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
            assert!(store.fence() > before);
            before = store.fence();
        }
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
        let (mut store, _) = loaded(&|| Box::new(platter.open()));
        store.append(b"one").unwrap();
        platter.inject(Fault::Append(left));
        assert!(matches!(store.append(b"two"), Err(StoreError::Io { .. })));
        assert!(matches!(
            store.append(b"three"),
            Err(StoreError::Stopped { .. })
        ));
        let (_, held) = loaded(&|| Box::new(platter.open()));
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
    let open = || Box::new(platter.open()) as Box<dyn Store>;
    let (mut store, _) = loaded(&open);
    store.append(b"one").unwrap();
    platter.inject(Fault::Full);
    assert!(matches!(store.append(b"two"), Err(StoreError::Full { .. })));
    for counts in [false, true] {
        let (mut store, _) = loaded(&open);
        store.begin_snapshot().unwrap();
        store.put_chunk(b"chunk").unwrap();
        platter.inject(Fault::End(counts));
        assert!(store.end_snapshot().is_err());
        assert_eq!(loaded(&open).1.chunks.len(), usize::from(counts));
    }
    let (mut old, _) = loaded(&open);
    let (mut new, _) = loaded(&open);
    assert!(matches!(
        old.append(b"late"),
        Err(StoreError::Fenced { .. })
    ));
    new.append(b"two").unwrap();
    platter.lose_tail(1);
    let lost = take(&mut platter.open()).unwrap_err();
    assert!(matches!(lost, StoreError::Corrupt { .. }), "{lost}");
}

#[test]
fn appends_of_the_memory_store_wait_while_they_are_held() {
    let platter = Platter::new();
    let (mut store, _) = loaded(&|| Box::new(platter.open()));
    let hold = platter.hold();
    let waiting = std::thread::spawn(move || store.append(b"one"));
    assert_eq!(platter.batches(), 0);
    drop(hold);
    waiting.join().unwrap().unwrap();
    assert_eq!(platter.batches(), 1);
}
