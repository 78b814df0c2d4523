//! What lies on the disk goes away in time.

use rideau::store::Store;

use crate::stage::{Folder, append, open};

#[test]
fn many_snapshots_take_no_more_room_than_a_few() {
    let folder = Folder::quick();
    let (mut store, _) = open(&folder).unwrap();
    let chunk = vec![7; 100_000];
    let mut most = 0;
    for round in 0..200 {
        for _ in 0..10 {
            append(&mut store, &chunk[..5000]).unwrap();
        }
        store.begin_snapshot(0).unwrap();
        for _ in 0..8 {
            store.put_chunk(&chunk).unwrap();
        }
        // Every third is never ended.
        if round % 3 == 0 {
            continue;
        }
        store.end_snapshot().unwrap();
        assert_eq!(store.log_bytes(), 0);
        let logs = folder.names();
        let logs = logs.iter().filter(|name| name.ends_with(".log")).count();
        assert_eq!(logs, 1, "the log that goes on is the only one");
        if round == 20 {
            most = folder.bytes() * 3 / 2;
        }
        assert!(
            most == 0 || folder.bytes() <= most,
            "{} > {most}",
            folder.bytes()
        );
    }
    assert!(most < 20_000_000, "{most}");
}

#[test]
fn starts_that_write_nothing_leave_nothing() {
    let folder = Folder::quick();
    let (mut store, _) = open(&folder).unwrap();
    append(&mut store, b"one").unwrap();
    drop(store);
    let names = folder.names();
    let bytes = folder.bytes();
    for fence in 2..50 {
        let (store, held) = open(&folder).unwrap();
        assert_eq!(store.fence(), fence);
        assert_eq!(held.batches, [b"one"]);
    }
    assert_eq!(folder.names(), names);
    assert!(folder.bytes() <= bytes + 1_000_000);
}
