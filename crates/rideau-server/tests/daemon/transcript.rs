//! Sessions as people type them into redis-cli, with what they see.
//!
//! Each client is a letter, and a redis-cli of its own:
//!
//! ```text
//! a> LOCK db       a command; what it prints follows
//! b& LOCK db       a command that waits
//! a!               a is killed with SIGKILL
//! b<               what the command printed that waited; it follows
//! ```
//!
//! `<name>` in what is printed stands for one word that differs from run to
//! run, and for the same word wherever the name comes again; `<_>` stands for
//! any word, and `<etc>` for the rest of the line.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rideau_testing::{Running, Start, command};

use crate::server::{PATIENCE, Server};
use crate::wire::Wire;

/// Behind every command, so that the end of what it prints is seen.
const END: &str = "that-was-all";

/// A redis-cli that gets its commands on its input.
pub(crate) struct Cli {
    child: Running,
    input: ChildStdin,
    lines: Receiver<String>,
}

type Names = HashMap<String, String>;

impl Cli {
    pub(crate) fn start(server: &Server) -> Self {
        let mut command = command("redis-cli");
        command.args(["-p", &server.port(), "--no-raw"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.start();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}\nECHO {END}").unwrap();
    }

    /// What the last command printed, but for how long it took.
    pub(crate) fn printed(&mut self) -> Vec<String> {
        let mut printed = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("it prints");
            if line == format!("\"{END}\"") {
                return printed;
            }
            let is_time = line.starts_with('(') && line.ends_with("s)");
            if !is_time {
                printed.push(line);
            }
        }
    }

    /// Kill it as `kill -9` does; the system closes its connection.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Type a whole session, and check all that is printed.
#[track_caller]
pub(crate) fn check(server: &Server, script: &str) {
    let mut clients: HashMap<char, Cli> = HashMap::new();
    let mut names = Names::new();
    let lines = trimmed(script);
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let (who, how, what) = directive(line).expect("a line says who does something");
        let client = clients.entry(who).or_insert_with(|| Cli::start(server));
        match how {
            '>' => client.send(&filled(what, &names)),
            '&' => {
                let waiting = waiting(server);
                client.send(&filled(what, &names));
                server.until_waiting(waiting + 1);
                continue;
            }
            '!' => {
                clients.remove(&who).unwrap().kill();
                continue;
            }
            _ => (),
        }
        let printed = client.printed();
        let wanted = lines[at..].iter();
        let wanted: Vec<_> = wanted
            .take_while(|line| directive(line).is_none())
            .collect();
        at += wanted.len();
        let shown = || format!("{line}\n{}", printed.join("\n"));
        assert_eq!(wanted.len(), printed.len(), "{}", shown());
        for (wanted, printed) in wanted.into_iter().zip(&printed) {
            let fits = fit(wanted, printed, &mut names);
            assert!(fits, "wanted {wanted:?} of\n{}", shown());
        }
    }
    clients.into_values().for_each(Cli::kill);
    server.until_alone();
}

/// The lines without what all of them begin with.
fn trimmed(script: &str) -> Vec<&str> {
    let lines = script.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let indent = lines[0].len() - lines[0].trim_start().len();
    lines
        .into_iter()
        .map(|line| line[indent..].trim_end())
        .collect()
}

fn directive(line: &str) -> Option<(char, char, &str)> {
    let mut letters = line.chars();
    let (who, how) = (letters.next()?, letters.next()?);
    let is_one = who.is_ascii_lowercase() && matches!(how, '>' | '&' | '<' | '!');
    is_one.then(|| (who, how, letters.as_str().trim()))
}

fn waiting(server: &Server) -> usize {
    let mut observer: Wire = server.connect();
    let list = observer.ask("CLIENT LIST").text();
    list.matches(" waiting=1 ").count()
}

/// A command with the names replaced by what they stand for.
fn filled(line: &str, names: &Names) -> String {
    let pairs = names.iter();
    pairs.fold(line.into(), |line, (name, word)| {
        line.replace(&format!("<{name}>"), word)
    })
}

/// Whether a line is what was wanted; new names are given their words.
fn fit(wanted: &str, printed: &str, names: &mut Names) -> bool {
    let Some((before, rest)) = wanted.split_once('<') else {
        return wanted == printed;
    };
    let Some((name, wanted)) = rest.split_once('>') else {
        return false;
    };
    let Some(printed) = printed.strip_prefix(before) else {
        return false;
    };
    if name == "etc" {
        return true;
    }
    let is_part = |letter: char| !matches!(letter, '"' | ' ' | ',' | ';' | ')' | '\\');
    let len = printed
        .find(|letter| !is_part(letter))
        .unwrap_or(printed.len());
    let (word, printed) = printed.split_at(len);
    let is_same = name == "_" || names.entry(name.into()).or_insert_with(|| word.into()) == word;
    !word.is_empty() && is_same && fit(wanted, printed, names)
}
