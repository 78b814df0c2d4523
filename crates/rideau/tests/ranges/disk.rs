//! Disks that are full, torn, flipped, not to be written, or fail.

use std::fs;

use rideau::OpenError;
use rideau::store::StoreError;

use crate::child::{Role, hear_all, open, open_folder};
use crate::kill::Model;
use crate::rig::{held, reserved};
use crate::shim::{EACCES, EIO, ENOSPC, EROFS, Fault};
use crate::stage::{Folder, Rng};

/// A child in a folder whose system calls fail like this, and all it said.
fn run(folder: &Folder, fault: &Fault<'_>) -> Vec<String> {
    let role = Role {
        name: "brief",
        folder: &folder.0,
        seed: u64::from(fault.at),
    };
    hear_all(role.start(&fault.settings(folder, None)))
}

/// What it was told is there after the next start, and that goes on.
fn check(folder: &Folder, said: &[String]) -> usize {
    let fresh = Folder::quick();
    let mut model = Model::of(&open_folder(&fresh));
    // What it tried after a failure was never begun.
    let before = said.iter().take_while(|line| !line.starts_with("failed"));
    let of_values = before.filter(|line| line.ends_with(" ."));
    of_values.for_each(|line| model.hear(line));
    let ranges = open_folder(folder);
    model.check(&ranges);
    let before = held(&ranges).len();
    reserved(&ranges, "sync");
    drop(ranges);
    assert_eq!(held(&open_folder(folder)).len(), before + 1);
    model.answers
}

fn failed(said: &[String]) -> Vec<&str> {
    let failed = said.iter().filter_map(|line| line.strip_prefix("failed "));
    failed.collect()
}

#[test]
fn after_a_failed_sync_or_write_nothing_more_is_told() {
    let cases = [
        ("sync", EIO, "cannot write a batch in"),
        ("write", EIO, "see what the system's log says of this disk"),
    ];
    for (call, how, wanted) in cases {
        for at in 1..8 {
            let folder = Folder::quick();
            drop(open_folder(&folder));
            let said = run(
                &folder,
                &Fault {
                    call,
                    path: ".log",
                    at,
                    how,
                },
            );
            let failed = failed(&said);
            assert_eq!(failed.len(), 2, "{call} {at}: {said:?}");
            for words in failed {
                assert!(words.starts_with("the store failed: "), "{words}");
                assert!(words.contains(wanted), "{words}");
            }
            check(&folder, &said);
        }
    }
}

#[test]
fn a_disk_that_is_full_for_a_moment_costs_no_caller_an_answer() {
    for call in ["write", "sync"] {
        for at in 1..12 {
            let folder = Folder::quick();
            drop(open_folder(&folder));
            let said = run(
                &folder,
                &Fault {
                    call,
                    path: ".log",
                    at,
                    how: ENOSPC,
                },
            );
            assert_eq!(failed(&said), [""; 0], "{call} {at}: {said:?}");
            check(&folder, &said);
        }
    }
}

#[test]
fn a_write_torn_by_a_kill_loses_nothing_that_was_told() {
    let mut answers = 0;
    for at in 1..25 {
        let folder = Folder::quick();
        let said = run(
            &folder,
            &Fault {
                call: "write",
                path: ".log",
                at,
                how: "tear",
            },
        );
        assert_ne!(said.last().map(String::as_str), Some("done"), "call {at}");
        answers += check(&folder, &said);
    }
    assert!(answers > 100, "{answers}");
}

#[test]
fn a_kill_before_any_call_loses_nothing_that_was_told() {
    for at in 1.. {
        let folder = Folder::quick();
        let said = run(
            &folder,
            &Fault {
                call: "any",
                path: "",
                at,
                how: "kill",
            },
        );
        check(&folder, &said);
        if said.last().map(String::as_str) == Some("done") {
            assert!(at > 40, "the library has seen {at} calls");
            return;
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_in_words() {
    for how in [EROFS, EACCES] {
        let folder = Folder::quick();
        drop(open_folder(&folder));
        let said = run(
            &folder,
            &Fault {
                call: "open",
                path: "",
                at: 0,
                how,
            },
        );
        let [words] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(words.starts_with("refused "), "{words}");
        assert!(words.contains("the right to write there"), "{words}");
        assert_eq!(check(&folder, &[]), 0);
    }
}

#[test]
fn a_flipped_byte_is_refused_in_words_and_never_guessed_at() {
    let image = Folder::quick();
    let ranges = open_folder(&image);
    for _ in 0..100 {
        reserved(&ranges, "sync");
    }
    drop(ranges);
    let log = image.newest_log();
    let name = log.file_name().unwrap().to_str().unwrap();
    let bytes = fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let folder = Folder::quick();
    let mut rng = Rng(5);
    for at in (0..end).step_by(end / 200 + 1) {
        folder.copy(&image);
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << rng.below(8);
        fs::write(folder.0.join(name), bytes).unwrap();
        let refused = open(&folder.0).expect_err("it is damaged");
        assert!(
            matches!(refused, OpenError::Store(StoreError::Corrupt { .. })),
            "{refused}"
        );
        let words = refused.to_string();
        assert!(
            words.contains("is damaged") && words.contains("put a copy back"),
            "{words}"
        );
    }
    folder.copy(&image);
    assert_eq!(held(&open_folder(&folder)).len(), 100);
}
