//! A store whose disk is full, or whose folder is gone.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rideau_testing::{is_root, skipped};

use crate::server::{Server, until};
use crate::wire::Value;

const RANGE: &str = "[range.all]\nvalues = [\"0-99999\"]\n[lock.\"*\"]\n";

fn config(path: &str, more: &str) -> String {
    format!("drain = \"200ms\"\n[store]\npath = \"{{folder}}/{path}\"\n{more}{RANGE}")
}

/// Let a disk have no room any more.
fn fill(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    let mut block = vec![1; 64 * 1024];
    while !block.is_empty() {
        if file.write_all(&block).is_err() {
            block.truncate(block.len() / 2);
        }
    }
}

/// Reserve until that does not work, and say how that was told and what was.
fn reserve_all(server: &Server) -> (Value, Vec<String>) {
    let mut kept = Vec::new();
    let data = "x".repeat(60_000);
    loop {
        let told = server
            .connect()
            .ask(&format!("RESERVE all TTL 3600000 DATA {data}"));
        match told.word().as_str() {
            "go" => kept.push(told.at(1).text()),
            _ => return (told, kept),
        }
    }
}

#[test]
fn a_full_disk_is_said_and_values_are_given_out_again_when_there_is_room() {
    if !is_root() {
        return skipped("only root mounts a small disk");
    }
    let server = Server::with_small_disk(&config("small/store", ""), 24);
    assert!(server.get("/readyz").starts_with("HTTP/1.1 200 "));
    let ballast = server.on_small_disk("ballast");
    for turn in 0..2 {
        fill(&ballast);
        let (told, kept) = reserve_all(&server);
        told.is_error("MISCONF the store failed: no room");
        assert!(
            told.text().contains("until the store can be written again"),
            "{told}"
        );
        let ready = server.get("/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(ready.contains("store failed: no room"), "{ready}");
        let mut wire = server.connect();
        let ranges = wire.ask("SHOW RANGES").to_string();
        assert!(ranges.contains("failed"), "{ranges}");
        assert!(wire.ask("EXPLAIN all").text().contains("No range answers"));
        server.connect().ask("RESERVE all").is_error("MISCONF");
        assert_eq!(wire.ask(&format!("LOCK key-{turn}")).word(), "go");

        fs::remove_file(&ballast).unwrap();
        until("values are given out", || {
            server.connect().ask("RESERVE all").word() == "go"
        });
        assert!(server.get("/readyz").starts_with("HTTP/1.1 200 "));
        let ranges = wire.ask("SHOW RANGES").to_string();
        assert!(!ranges.contains("failed"), "{ranges}");
        // Whatever was acknowledged before is there.
        for value in kept {
            let seen = wire.ask(&format!("LOOKUP {value}")).to_string();
            assert!(seen.contains("reserved"), "{seen}");
        }
    }
    let said = server.said();
    assert!(said.contains("the store can be written again"), "{said}");
}

#[test]
fn a_server_ends_when_its_store_fails_if_it_shall() {
    if !is_root() {
        return skipped("only root mounts a small disk");
    }
    let more = "on_failure = \"end\"\n";
    let mut server = Server::with_small_disk(&config("small/store", more), 24);
    fill(&server.on_small_disk("ballast"));
    let (told, _) = reserve_all(&server);
    assert_ne!(told.word(), "go", "{told}");
    assert!(!server.ended().success());
    let said = server.said();
    assert!(said.contains("store.on_failure ends the server"), "{said}");
}

#[test]
fn a_store_that_is_removed_or_replaced_is_noticed_before_the_next_yes() {
    let server = |name: &str| Server::with(&config(name, ""));
    let gone = |server: &Server| {
        let told = server.connect().ask("RESERVE all TTL 3600000");
        told.is_error("MISCONF the store failed: ");
        assert!(told.text().contains("was removed or replaced"), "{told}");
        let again = server.connect().ask("RESERVE all TTL 3600000");
        again.is_error("MISCONF the store failed: ");
    };
    let reserve = |server: &Server| {
        let told = server.connect().ask("RESERVE all TTL 3600000");
        assert_eq!(told.word(), "go", "{told}");
    };
    let removed = server("store");
    reserve(&removed);
    fs::remove_dir_all(removed.folder().join("store")).unwrap();
    gone(&removed);

    let moved = server("store");
    reserve(&moved);
    let place = moved.folder().join("store");
    fs::rename(&place, moved.folder().join("elsewhere")).unwrap();
    gone(&moved);

    // A copy is another folder: what is written to the first is not in it.
    let replaced = server("store");
    reserve(&replaced);
    let ranges = replaced.folder().join("store/ranges");
    let copy = replaced.folder().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&ranges).unwrap().flatten() {
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    fs::rename(&ranges, replaced.folder().join("first")).unwrap();
    fs::rename(&copy, &ranges).unwrap();
    gone(&replaced);
}
