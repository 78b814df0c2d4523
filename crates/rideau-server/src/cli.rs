//! What the program was asked to do, from the words of its command line.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::demo::overload::{self, Finish};

/// What the program was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Help,
    Version,
    Demo { seconds: u32 },
}

/// Why the words make no command.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Misuse {
    NoCommand,
    /// `word` is none of the words that could stand here; `near` is the
    /// closest one that could.
    Unknown {
        what: &'static str,
        word: String,
        near: Option<&'static str>,
    },
    NoValue {
        option: &'static str,
    },
    Outside {
        option: &'static str,
        value: String,
        most: u32,
    },
}

const HELP: &str = "\
rideau hands out scarce things fairly, and takes them back when the holder dies.

usage: rideau COMMAND

commands:
  demo [--seconds N]   two brokers under the same overload, for N seconds (10)

options:
  -h, --help           say this
  -V, --version        say which rideau this is
";

const COMMANDS: &[&str] = &["demo", "help"];
const OPTIONS: &[&str] = &["--help", "--version"];
const DEMO_OPTIONS: &[&str] = &["--seconds", "--help"];

const SECONDS: u32 = 10;
const SECONDS_MAX: u32 = 3600;

/// The shell's own way to say that a program was interrupted.
const INTERRUPTED: u8 = 130;
const MISUSED: u8 = 2;

/// Do what the words say.
pub(crate) fn run(words: impl Iterator<Item = String>) -> ExitCode {
    let done = match parse(words) {
        Ok(Command::Help) => write!(io::stdout(), "{HELP}").map(|()| Finish::Complete),
        Ok(Command::Version) => writeln!(io::stdout(), "rideau {}", env!("CARGO_PKG_VERSION"))
            .map(|()| Finish::Complete),
        Ok(Command::Demo { seconds }) => overload::run(seconds),
        Err(misuse) => {
            eprintln!("rideau: {misuse}\nTry `rideau --help`.");
            return MISUSED.into();
        }
    };
    match done {
        Ok(Finish::Complete) => ExitCode::SUCCESS,
        Ok(Finish::Interrupted) => INTERRUPTED.into(),
        // Who reads along has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rideau: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, Misuse> {
    let command = match words.next().as_deref() {
        None => return Err(Misuse::NoCommand),
        Some("help" | "--help" | "-h") => Command::Help,
        Some("--version" | "-V") => Command::Version,
        Some("demo") => return parse_demo(words),
        Some(word) if word.starts_with('-') => return Err(unknown("option", word, OPTIONS)),
        Some(word) => return Err(unknown("command", word, COMMANDS)),
    };
    match words.next() {
        None => Ok(command),
        Some(word) => Err(unknown("word", &word, &[])),
    }
}

fn parse_demo(mut words: impl Iterator<Item = String>) -> Result<Command, Misuse> {
    let mut seconds = SECONDS;
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((&word, "")) {
            ("--help" | "-h", "") => return Ok(Command::Help),
            ("--seconds", "") if !word.contains('=') => {
                let option = "--seconds";
                let value = words.next().ok_or(Misuse::NoValue { option })?;
                seconds = parse_seconds(&value)?;
            }
            ("--seconds", value) => seconds = parse_seconds(value)?,
            _ => return Err(unknown("option of `demo`", &word, DEMO_OPTIONS)),
        }
    }
    Ok(Command::Demo { seconds })
}

fn parse_seconds(value: &str) -> Result<u32, Misuse> {
    let seconds = value.parse().ok();
    seconds
        .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
        .ok_or_else(|| Misuse::Outside {
            option: "--seconds",
            value: value.into(),
            most: SECONDS_MAX,
        })
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => f.write_str("there is no command; the one to begin with is `demo`"),
            Self::Unknown { what, word, near } => {
                write!(f, "`{word}` is no {what} that is known here")?;
                near.map_or(Ok(()), |near| write!(f, "; did you mean `{near}`?"))
            }
            Self::NoValue { option } => write!(f, "`{option}` needs a number behind it"),
            Self::Outside {
                option,
                value,
                most,
            } => write!(
                f,
                "`{option}` has to be a whole number from 1 to {most}, not `{value}`"
            ),
        }
    }
}

fn unknown(what: &'static str, word: &str, known: &[&'static str]) -> Misuse {
    let near = known.iter().copied().min_by_key(|other| edits(word, other));
    Misuse::Unknown {
        what,
        word: word.into(),
        near: near.filter(|near| edits(word, near) <= near.len() / 2),
    }
}

/// How many letters have to be put in, taken out or changed between the two.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.chars().enumerate() {
            let changed = corner + usize::from(letter != wanted);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_commands() {
        for (words, command) in [
            ("--help", Command::Help),
            ("-V", Command::Version),
            ("demo", Command::Demo { seconds: SECONDS }),
            ("demo --seconds 3", Command::Demo { seconds: 3 }),
            ("demo --seconds=3", Command::Demo { seconds: 3 }),
            ("demo --help", Command::Help),
        ] {
            assert_eq!(parse_words(words), Ok(command), "{words}");
        }
    }

    #[test]
    fn misuse_is_named_with_what_was_probably_meant() {
        for (words, message) in [
            ("", "there is no command; the one to begin with is `demo`"),
            (
                "dmo",
                "`dmo` is no command that is known here; did you mean `demo`?",
            ),
            ("serve", "`serve` is no command that is known here"),
            (
                "--versoin",
                "`--versoin` is no option that is known here; did you mean `--version`?",
            ),
            ("--version 2", "`2` is no word that is known here"),
            (
                "demo --second 2",
                "`--second` is no option of `demo` that is known here; did you mean `--seconds`?",
            ),
            ("demo --seconds", "`--seconds` needs a number behind it"),
            (
                "demo --seconds=",
                "`--seconds` has to be a whole number from 1 to 3600, not ``",
            ),
            (
                "demo --seconds 0",
                "`--seconds` has to be a whole number from 1 to 3600, not `0`",
            ),
        ] {
            let misuse = parse_words(words).unwrap_err();
            assert_eq!(misuse.to_string(), message, "{words}");
        }
    }

    fn parse_words(words: &str) -> Result<Command, Misuse> {
        parse(words.split_whitespace().map(String::from))
    }
}
