//! The commands of the page about simulations do what it says.

use std::env;
use std::fs;
use std::path::Path;

use rideau_testing::{Scratch, Start, command};

const PAGE: &str = include_str!("../../../../docs/simulate.md");
const POLICIES: &str = include_str!("../../../../docs/policies.md");

/// Fewer than the page has: the program is not optimised here.
const FEW: [&str; 2] = ["--requests", "2000"];

#[test]
fn every_command_of_the_page_can_be_typed() {
    let folder = Scratch::new();
    let mut count = 0;
    for line in commands(PAGE) {
        let mut words: Vec<_> = words_of(line);
        assert_eq!(words.remove(0), "rideau", "{line}");
        match words.iter().position(|word| word == FEW[0]) {
            Some(at) => words[at + 1] = FEW[1].into(),
            None if words.iter().any(|word| word == "--for") => (),
            None => words.extend(FEW.map(Into::into)),
        }
        // A day of ten minutes has as many requests as its rate says.
        let words = words
            .iter()
            .map(|word| word.replace("daily:700/s", "daily:5/s"));
        let mut program = command(env!("CARGO_BIN_EXE_rideau"));
        program.args(words).current_dir(folder.join(""));
        let output = program.start().wait_with_output().unwrap();
        assert!(output.status.success(), "{line}");
        count += 1;
    }
    assert!(count > 10, "{count} commands were found");
    for file in ["waits.svg", "waits.html"] {
        assert!(folder.join(file).exists(), "{file}");
    }
}

/// The pictures beside the commands are what these make. `UPDATE_DOCS=1` takes them over.
#[test]
fn the_pictures_of_the_policies_are_what_the_commands_make() {
    let folder = Scratch::new();
    let pictures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures"));
    let mut count = 0;
    for line in commands(POLICIES) {
        let words = words_of(line);
        let mut program = command(env!("CARGO_BIN_EXE_rideau"));
        program.args(&words[1..]).current_dir(folder.join(""));
        let output = program.start().wait_with_output().unwrap();
        assert!(output.status.success(), "{line}");
        let at = words.iter().position(|word| word == "--svg").unwrap();
        let name = &words[at + 1];
        let shown = format!("](pictures/{name})");
        assert!(POLICIES.contains(&shown), "{name} is not shown");
        let made = fs::read_to_string(folder.join(name)).unwrap();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(pictures.join(name), &made).unwrap();
        }
        let kept = fs::read_to_string(pictures.join(name)).unwrap_or_default();
        assert!(kept == made, "{name} is old: run with UPDATE_DOCS=1");
        count += 1;
    }
    assert_eq!(count, POLICIES.matches("](pictures/").count());
}

/// What a page lets its readers type.
fn commands(page: &'static str) -> impl Iterator<Item = &'static str> {
    let blocks = page.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split_once("```").unwrap().0);
    let lines = blocks.flat_map(str::lines);
    lines.filter_map(|line| line.strip_prefix("$ "))
}

/// The words of a line, as a shell has them.
fn words_of(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}
