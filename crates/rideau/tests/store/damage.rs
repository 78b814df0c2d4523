//! Torn ends, flipped bytes, missing files and folders from the future.

use std::fs;
use std::path::Path;

use rideau::store::{Embedded, Store, StoreError};

use crate::stage::{Folder, Held, Rng, append, batch_of, chunk_of, open};

/// A store with a snapshot and batches after it, closed well or copied while it
/// was open, as a kill leaves it.
fn image(closed: bool) -> (Folder, Held) {
    let folder = Folder::quick();
    let (mut store, _) = open(&folder).unwrap();
    for at in 0..9 {
        append(&mut store, &batch_of(at)).unwrap();
    }
    store.begin_snapshot(0).unwrap();
    for at in 0..3 {
        store.put_chunk(&chunk_of(9, at)).unwrap();
    }
    store.end_snapshot().unwrap();
    for at in 9..15 {
        append(&mut store, &batch_of(at)).unwrap();
    }
    let image = Folder::quick();
    if closed {
        drop(store);
    }
    image.copy(&folder);
    let held = Held {
        chunks: (0..3).map(|at| chunk_of(9, at)).collect(),
        batches: (9..15).map(batch_of).collect(),
        notes: Vec::new(),
    };
    (image, held)
}

/// Where the batches of a log end.
fn end_of(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|&byte| byte != 0);
    last.map_or(0, |last| last + 1)
}

fn assert_in_words(error: &StoreError, name: &str) {
    let words = error.to_string();
    assert!(words.contains(name), "{words}");
    match error {
        StoreError::Corrupt { .. } => assert!(words.contains("put a copy back"), "{words}"),
        StoreError::Newer { .. } => assert!(words.contains("start the version"), "{words}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flipped_byte_in_a_batch_is_never_missed() {
    let (image, held) = image(true);
    let log = image.newest_log();
    let name = log.file_name().unwrap().to_str().unwrap();
    let bytes = fs::read(&log).unwrap();
    let end = end_of(&bytes);
    assert!(end > 9000, "a batch of several pages is in it");
    let folder = Folder::quick();
    folder.copy(&image);
    assert_eq!(open(&folder).unwrap().1, held);
    let mut rng = Rng(1);
    // Every byte of what frames the last batches, and some of all others.
    let places = (0..80).chain((80..end).step_by(37)).chain(end - 300..end);
    for at in places {
        folder.copy(&image);
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << rng.below(8);
        fs::write(folder.0.join(name), bytes).unwrap();
        let error = open(&folder).expect_err(&format!("byte {at} of {end}"));
        assert_in_words(&error, name);
    }
}

#[test]
fn a_flipped_byte_elsewhere_is_refused_or_did_no_harm() {
    for closed in [true, false] {
        let (image, held) = image(closed);
        let folder = Folder::quick();
        let mut rng = Rng(2);
        for name in image.names().iter().filter(|name| !name.ends_with(".log")) {
            let bytes = fs::read(image.0.join(name)).unwrap();
            let end = end_of(&bytes);
            let step = (end / 400).max(1);
            let mut refused = 0;
            for at in (0..end).step_by(step) {
                folder.copy(&image);
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << rng.below(8);
                fs::write(folder.0.join(name), bytes).unwrap();
                match open(&folder) {
                    Ok((_, found)) => {
                        assert_eq!(found.chunks, held.chunks, "{name} at {at}");
                        assert_eq!(found.batches, held.batches, "{name} at {at}");
                    }
                    Err(error) => {
                        assert_in_words(&error, name);
                        refused += 1;
                    }
                }
            }
            assert!(refused > 0 || name == "mark", "some bytes of {name} matter");
        }
    }
}

#[test]
fn a_batch_that_no_caller_was_told_of_may_be_torn_anywhere() {
    let (image, held) = image(false);
    // What the disk looks like when the process ends before the answer: the
    // batch is in the log, and the mark is as it was before.
    let folder = Folder::quick();
    folder.copy(&image);
    let log = image.newest_log();
    let name = log.file_name().unwrap().to_str().unwrap();
    let start = end_of(&fs::read(&log).unwrap());
    let (mut store, _) = open(&folder).unwrap();
    append(&mut store, &batch_of(17)).unwrap();
    drop(store);
    let bytes = fs::read(folder.0.join(name)).unwrap();
    let end = end_of(&bytes);
    assert!(end - start > 9000, "it spans several pages");
    let torn_pages = [
        (start, start + 100),
        (start + 40, 4096.max(start + 400)),
        (end - 900, end),
    ];
    let cuts = (start..start + 70)
        .chain((start + 70..end).step_by(211))
        .chain(end - 3..end);
    let cut = cuts.map(|at| bytes[..at].to_vec());
    let torn = torn_pages.map(|(from, to)| {
        let mut bytes = bytes.clone();
        bytes[from..to].fill(0);
        bytes
    });
    for torn in cut.chain(torn) {
        let len = torn.len();
        folder.copy(&image);
        fs::write(folder.0.join(name), torn).unwrap();
        let (mut store, found) = open(&folder).unwrap();
        assert_eq!(
            (&found.chunks, &found.batches),
            (&held.chunks, &held.batches)
        );
        let said = found
            .notes
            .iter()
            .any(|note| note.contains("the beginning of batch 16"));
        assert!(said || len == start, "cut to {len}: {:?}", found.notes);
        // It does not come back later.
        append(&mut store, &batch_of(15)).unwrap();
        drop(store);
        let (store, found) = open(&folder).unwrap();
        assert_eq!(found.count(), 16);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        drop(store);
    }
}

#[test]
fn a_whole_batch_that_no_caller_was_told_of_is_kept() {
    let (image, _) = image(false);
    let folder = Folder::quick();
    folder.copy(&image);
    let (mut store, _) = open(&folder).unwrap();
    append(&mut store, &batch_of(15)).unwrap();
    drop(store);
    fs::copy(image.0.join("mark"), folder.0.join("mark")).unwrap();
    for _ in 0..3 {
        let (store, held) = open(&folder).unwrap();
        assert_eq!(held.count(), 16);
        drop(store);
    }
}

#[test]
fn a_log_that_is_too_short_is_refused() {
    let (image, _) = image(true);
    let log = image.newest_log();
    let name = log.file_name().unwrap().to_str().unwrap();
    let bytes = fs::read(&log).unwrap();
    let folder = Folder::quick();
    let end = end_of(&bytes);
    for at in (0..end).step_by(101).chain([end - 1]) {
        folder.copy(&image);
        fs::write(folder.0.join(name), &bytes[..at]).unwrap();
        let error = open(&folder).expect_err(&format!("cut to {at} of {end}"));
        assert_in_words(&error, name);
    }
}

#[test]
fn an_old_mark_does_not_hide_damage_before_the_last_batch() {
    let (image, _) = image(true);
    let folder = Folder::quick();
    folder.copy(&image);
    let (mut store, _) = open(&folder).unwrap();
    for at in 15..20 {
        append(&mut store, &batch_of(at)).unwrap();
    }
    drop(store);
    fs::copy(image.0.join("mark"), folder.0.join("mark")).unwrap();
    let log = folder.newest_log();
    let start = end_of(&fs::read(image.newest_log()).unwrap());
    let mut bytes = fs::read(&log).unwrap();
    bytes[start + 40] ^= 1;
    fs::write(&log, bytes).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(error.to_string().contains("batch 16 at byte"), "{error}");
}

#[test]
fn a_file_that_is_missing_is_named() {
    for name in image(true).0.names() {
        let (folder, _) = image(true);
        fs::remove_file(folder.0.join(&name)).unwrap();
        let error = open(&folder).expect_err(&name);
        assert_in_words(&error, &name);
        assert!(error.to_string().contains("is not there"), "{error}");
    }
}

#[test]
fn a_file_from_another_store_is_refused() {
    for name in image(true)
        .0
        .names()
        .iter()
        .filter(|name| *name != "format")
    {
        let (folder, _) = image(true);
        let (other, _) = image(true);
        fs::copy(other.0.join(name), folder.0.join(name)).unwrap();
        let error = open(&folder).expect_err(name);
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_folder_of_a_newer_format_is_left_alone() {
    let (folder, _) = image(true);
    fs::write(folder.0.join("format"), "rideau store 3\n").unwrap();
    let before = contents(&folder.0);
    let error = Embedded::open(&folder.0).unwrap_err();
    assert_in_words(
        &error,
        "has format 3, and this version knows formats up to 2",
    );
    assert_eq!(contents(&folder.0), before);
}

fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}
