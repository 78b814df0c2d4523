//! The client libraries of the folder `clients`, in the languages that they are for: their own
//! tests, their types, the code of their pages, and how many lines ten tasks take.
//!
//! What they need is installed once, in the target folder.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "libraries/cluster.rs"]
mod cluster;
#[path = "libraries/served.rs"]
mod served;
#[path = "libraries/tasks.rs"]
mod tasks;
#[path = "libraries/tools.rs"]
mod tools;
#[path = "libraries/tutorials.rs"]
mod tutorials;

use std::fs;

use served::Served;
use tools::{blocks, clients, go, go_program, node, node_home, python, run, scratch};

#[test]
fn the_client_for_threads_passes_its_tests() {
    run(python().args(["-m", "pytest", "-q", "tests/test_threads.py"]));
}

#[test]
fn the_client_for_asyncio_passes_its_tests() {
    run(python().args(["-m", "pytest", "-q", "tests/test_asyncio.py"]));
}

#[test]
fn the_types_of_the_clients_for_python_are_complete() {
    let cache = scratch("mypy");
    run(python()
        .args(["-m", "mypy", "--strict", "--cache-dir"])
        .arg(cache)
        .arg("rideau"));
}

#[test]
fn the_client_for_node_passes_its_tests() {
    run(node().args(["--test", "test/client.test.js"]));
}

#[test]
fn the_types_of_the_client_for_node_say_what_it_does() {
    let compiler = node_home().join("../node_modules/typescript/bin/tsc");
    run(node().arg(compiler).args(["-p", "."]));
}

#[test]
fn the_client_for_go_passes_its_tests() {
    run(go().args(["vet", "./..."]));
    run(go().args(["test", "-count=1", "."]));
}

#[test]
fn the_code_of_the_page_for_python_works() {
    let served = Served::start();
    let page = fs::read_to_string(clients().join("python/README.md")).unwrap();
    let said: String = blocks(&page, "python")
        .map(|text| run(python().args(["-c", &served.at_its_port(text)])))
        .collect();
    assert!(is_refused_last(&said), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");
}

#[test]
fn the_code_of_the_page_for_node_works() {
    let served = Served::start();
    let page = fs::read_to_string(clients().join("node/README.md")).unwrap();
    let run_block = |text| {
        let mut node = node();
        node.args(["--input-type=module", "-e"]);
        run(node.arg(served.at_its_port(text)))
    };
    let said: String = blocks(&page, "js").map(run_block).collect();
    assert!(is_refused_last(&said), "{said}");
}

/// Whether the example first held a lock and then was refused, with an id.
fn is_refused_last(said: &str) -> bool {
    let last = said.lines().last().unwrap();
    let words: Vec<_> = last.split(' ').collect();
    let is_refusal = matches!(words[..], ["deadline", _, id] if id.starts_with("d-"));
    said.starts_with("I have unit 1 of 1\n") && is_refusal
}

/// What the code of the page for Go stands in.
const GO_PAGE: &str = r#"
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rideau"
)

func do(ctx context.Context) error {
FIRST
	if err != nil {
		return err
	}
	return more(ctx, client)
}

func more(ctx context.Context, client *rideau.Client) error {
SECOND
	return nil
}

func main() {
	if err := do(context.Background()); err != nil {
		panic(err)
	}
}
"#;

#[test]
fn the_code_of_the_page_for_go_works() {
    let served = Served::start();
    let page = fs::read_to_string(clients().join("go/README.md")).unwrap();
    let [first, second] = blocks(&page, "go").collect::<Vec<_>>()[..] else {
        panic!("two blocks are known");
    };
    let program = GO_PAGE.replace("FIRST", first).replace("SECOND", second);
    let mut page = go_program("go-page", &served.at_its_port(&program));
    let said = run(page.args(["run", "."]));
    assert!(is_refused_last(&said), "{said}");
}
