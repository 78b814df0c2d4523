//! Killed at any moment, and opened twice.

use std::time::{Duration, Instant};

use rideau::store::StoreError;

use crate::child::{Role, Running, Said, acknowledged};
use crate::stage::{Folder, Rng, open};

const KILLS: u64 = 100;

#[test]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let folder = Folder::new();
    let mut rng = Rng(4711);
    let mut count = 0;
    for kill in 0..KILLS {
        let mut running = Running::start(Role::Busy, &folder, &[]);
        assert_eq!(
            running.hear(),
            Some(Said::Acknowledged(count)),
            "kill {kill}"
        );
        assert_eq!(running.hear(), Some(Said::Ready), "kill {kill}");
        let mut told = count;
        for _ in 0..rng.below(20) {
            if let Some(Said::Acknowledged(count)) = running.hear() {
                told = count;
            }
        }
        // Not only right after an answer.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(rng.below(1500)) {}
        told = told.max(acknowledged(&running.kill()));
        let (store, held) = open(&folder).unwrap();
        count = held.count();
        drop(store);
        assert!(
            told <= count,
            "kill {kill}: {told} were acknowledged, {count} are there"
        );
        assert!(
            count <= told + 1,
            "kill {kill}: {count} are there, {told} were acknowledged"
        );
    }
    assert!(count > KILLS, "the children did work");
}

#[test]
fn a_second_process_hears_that_the_folder_is_in_use() {
    let folder = Folder::new();
    let mut running = Running::start(Role::Wait, &folder, &[]);
    while running.hear() != Some(Said::Ready) {}
    let busy = open(&folder).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    assert!(
        busy.to_string()
            .contains("open already: stop the other process")
    );
    running.kill();
    open(&folder).unwrap();
}

#[test]
fn a_second_store_of_this_process_hears_it_too() {
    let folder = Folder::new();
    let first = open(&folder).unwrap();
    let busy = open(&folder).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    drop(first);
    open(&folder).unwrap();
}
