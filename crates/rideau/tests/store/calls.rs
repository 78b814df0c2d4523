//! System calls that fail, and a process that ends at each of them.
//!
//! A library that is loaded before the system's stands between the child and
//! the disk.

use crate::child::{Role, Running, Said, acknowledged};
use crate::shim::{EACCES, EIO, ENOSPC, EROFS, Fault};
use crate::stage::{Folder, Rng, open};

#[test]
fn a_process_that_ends_before_any_call_loses_nothing() {
    sweep(Folder::quick, |_| "kill", |_, _| ());
}

#[test]
fn a_power_cut_before_any_call_loses_nothing() {
    let lose = |folder: &Folder, synced: &Folder| folder.lose(synced, |_| true);
    sweep(Folder::quick, |_| "kill", lose);
}

#[test]
fn a_power_cut_may_spare_what_was_not_synced() {
    sweep(
        Folder::quick,
        |_| "tear",
        |folder, synced| {
            let mut rng = Rng(folder.bytes());
            folder.lose(synced, |_| rng.below(2) == 0);
        },
    );
}

#[test]
fn a_process_that_ends_within_any_write_loses_nothing() {
    sweep(Folder::new, |_| "tear", |_, _| ());
}

#[test]
fn whichever_call_fails_nothing_acknowledged_is_lost() {
    let how = |at| if at % 2 == 0 { EIO } else { ENOSPC };
    sweep(Folder::new, how, |_, _| ());
}

#[test]
fn after_a_failed_sync_nothing_more_is_written() {
    for at in 1..10 {
        let failed = failed_with(&Fault {
            call: "sync",
            path: ".log",
            at,
            how: EIO,
        });
        assert_eq!(failed[0].0, "Io");
        assert!(
            failed[0].1.contains("cannot write a batch in"),
            "{}",
            failed[0].1
        );
    }
}

#[test]
fn after_a_failed_write_nothing_more_is_written() {
    let failed = failed_with(&Fault {
        call: "write",
        path: ".log",
        at: 4,
        how: EIO,
    });
    assert_eq!(failed[0].0, "Io");
    assert!(
        failed[0]
            .1
            .contains("see what the system's log says of this disk")
    );
}

#[test]
fn a_full_disk_is_said_in_words() {
    for (path, at) in [(".log", 8), ("snapshots.redb", 40)] {
        let failed = failed_with(&Fault {
            call: "write",
            path,
            at,
            how: ENOSPC,
        });
        assert_eq!(failed[0].0, "Full", "{path}: {}", failed[0].1);
        assert!(failed[0].1.contains("make room"), "{}", failed[0].1);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_said_in_words() {
    for how in [EROFS, EACCES] {
        for created in [true, false] {
            let folder = Folder::quick();
            if created {
                open(&folder).unwrap();
            }
            let said = run(
                &folder,
                None,
                &Fault {
                    call: "open",
                    path: "",
                    at: 0,
                    how,
                },
            );
            let [Said::Failed(name, words)] = &said[..] else {
                panic!("{said:?}");
            };
            assert_eq!(name, "ReadOnly", "{words}");
            assert!(words.contains("the right to write there"), "{words}");
            open(&folder).unwrap();
        }
    }
}

/// Starts a child for every call that it makes, and lets that one go wrong. The
/// next start must find all that was acknowledged, and can go on.
///
/// What `cut` does to the folder comes in between, given what was synced. Only on
/// a disk pages go past the system's cache.
fn sweep(place: fn() -> Folder, how: fn(u32) -> &'static str, cut: fn(&Folder, &Folder)) {
    for at in 1.. {
        let folder = place();
        let synced = Folder::quick();
        let how = how(at);
        let said = run(
            &folder,
            Some(&synced),
            &Fault {
                call: "any",
                path: "",
                at,
                how,
            },
        );
        let told = acknowledged(&said);
        cut(&folder, &synced);
        let (store, held) =
            open(&folder).unwrap_or_else(|error| panic!("call {at} with {how}: {error}\n{said:?}"));
        drop(store);
        let count = held.count();
        assert!(
            (told..=told + 1).contains(&count),
            "call {at} with {how}: {count} are there\n{said:?}"
        );
        let again = Running::start(Role::Brief, &folder, &[]).hear_all();
        assert_eq!(
            again.last(),
            Some(&Said::Done),
            "call {at} with {how}: {again:?}"
        );
        if said.last() == Some(&Said::Done) && !has_struck(&said) {
            assert!(at > 100, "the library has seen {at} calls");
            return;
        }
    }
}

fn has_struck(said: &[Said]) -> bool {
    said.iter().any(|said| matches!(said, Said::Failed(..)))
}

/// What the store said from the first failure on. Every later write must have
/// been refused, though the system would have let it through.
fn failed_with(fault: &Fault<'_>) -> Vec<(String, String)> {
    let folder = Folder::quick();
    open(&folder).unwrap();
    let said = run(&folder, None, fault);
    let told = acknowledged(&said);
    let failed: Vec<(String, String)> = said
        .into_iter()
        .filter_map(|said| match said {
            Said::Failed(name, words) => Some((name, words)),
            _ => None,
        })
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(failed[1].0, "Stopped");
    assert_eq!(failed[2].0, "Stopped");
    let count = open(&folder).unwrap().1.count();
    assert!(
        (told..=told + 1).contains(&count),
        "{count} are there, {told} were acknowledged"
    );
    failed
}

fn run(folder: &Folder, synced: Option<&Folder>, fault: &Fault<'_>) -> Vec<Said> {
    let settings = fault.settings(folder, synced);
    Running::start(Role::Brief, folder, &settings).hear_all()
}
