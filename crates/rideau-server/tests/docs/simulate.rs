//! The commands of the page about simulations do what it says.

use rideau_testing::{Scratch, Start, command};

const PAGE: &str = include_str!("../../../../docs/simulate.md");

/// Fewer than the page has: the program is not optimised here.
const FEW: [&str; 2] = ["--requests", "2000"];

#[test]
fn every_command_of_the_page_can_be_typed() {
    let folder = Scratch::new();
    let blocks = PAGE.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split_once("```").unwrap().0);
    let commands = blocks
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("$ "));
    let mut count = 0;
    for line in commands {
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

/// The words of a line, as a shell has them.
fn words_of(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}
