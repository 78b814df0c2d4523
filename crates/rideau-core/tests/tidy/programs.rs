//! Every program that is started by name is one that `./test` installs, or that a
//! bare Debian has.
//!
//! Names are read off the code: what `command` and `Command::new` are given, what
//! configs in tests `exec`, and the commands of shell scripts, wherever they are.
//! A name that is put together at run time is not seen; `./test bare` runs those.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Piece, first_piece, quoted, read, root, rust_files};

/// What a bare Debian has: Essential packages, and the Rust toolchain.
const BARE: &[&str] = &[
    "apt-get",
    "awk",
    "basename",
    "bash",
    "cargo",
    "cat",
    "chmod",
    "chroot",
    "cp",
    "cut",
    "dirname",
    "env",
    "find",
    "flock",
    "grep",
    "head",
    "id",
    "install",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mount",
    "mv",
    "nproc",
    "nsenter",
    "prlimit",
    "realpath",
    "renice",
    "rm",
    "rustc",
    "rustup",
    "sed",
    "seq",
    "setpriv",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "tail",
    "tee",
    "touch",
    "tr",
    "unshare",
    "wc",
    "xargs",
    "yes",
];
/// What shells do themselves.
const BUILT_IN: &[&str] = &[
    ".", ":", "[", "break", "cd", "command", "compgen", "continue", "echo", "exit", "export",
    "false", "kill", "local", "mapfile", "printf", "pwd", "read", "return", "set", "shift", "test",
    "trap", "true", "ulimit", "umask", "wait",
];
/// A command follows these.
const OPENING: &[&str] = &[
    "!", "do", "elif", "else", "exec", "if", "then", "until", "while", "{", "}",
];
/// No command follows these before the next line.
const NO_COMMAND: &[&str] = &["[[", "case", "done", "esac", "fi", "for"];
/// What only a benchmark starts, beside which it says how it is installed.
const PEERS: &[&str] = &["h2load", "passenger"];
/// Used where they are there: one builds the book, and cargo installs it where a book is wanted.
const OPTIONAL: &[&str] = &["git", "mdbook", "sudo"];
/// Programs in tests that must not exist, or whose configs are only read.
const NEVER_RUN: &[&str] = &[
    "closed",
    "new",
    "none-run",
    "offered",
    "old",
    "pgproxy",
    "pgproxy-none",
    "program",
    "shop",
    "shop2",
    "x",
];

#[test]
fn every_program_that_is_started_is_installed() {
    let script = read(&root().join("test"));
    let mut installed = brought(&script, "needs_of_builds");
    installed.extend(brought(&script, "needs_of_tests"));
    installed.extend(brought(&script, "needs_of_soak"));
    assert!(installed.contains("redis-server") && installed.contains("initdb"));
    let for_bare = brought(&script, "needs_of_bare");
    assert!(for_bare.contains("mmdebstrap"));

    let mut started: BTreeMap<String, String> = BTreeMap::new();
    let mut files = Vec::new();
    for folder in ["crates", "bench/src"] {
        rust_files(&root().join(folder), &mut files);
    }
    for file in files {
        let path = file.strip_prefix(root()).expect("files lie below the root");
        if path.ends_with("tidy/programs.rs") {
            continue;
        }
        let names = started_in_rust(&read(&file)).into_iter();
        started.extend(names.map(|name| (name, path.display().to_string())));
    }
    for path in ["test", ".ci/run", ".ci/bare"] {
        let names = started_in_shell(&read(&root().join(path))).into_iter();
        let names = names.filter(|name| path != ".ci/bare" || !for_bare.contains(name));
        started.extend(names.map(|name| (name, path.to_owned())));
    }
    for name in ["curl", "grep", "redis-cli", "sleep", "gunicorn"] {
        assert!(started.contains_key(name), "{name} was not found");
    }
    let known = [BARE, PEERS, OPTIONAL, NEVER_RUN].concat();
    started.retain(|name, _| !installed.contains(name) && !known.contains(&&name[..]));
    assert!(started.is_empty(), "./test does not install {started:?}");
}

#[test]
fn commands_are_found_in_scripts() {
    for (script, names) in [
        ("exec a", &["a"][..]),
        (
            "a | b -x; c && d || e &\n f",
            &["a", "b", "c", "d", "e", "f"],
        ),
        ("A=1 B=\"$(a 'b c')\" c d", &["a", "c"]),
        ("if ! a b; then c; else d; fi", &["a", "c", "d"]),
        ("while :; do a 0.01; done", &["a"]),
        ("for a in b c; do d; done", &["d"]),
        ("a() {\n b\n}\na", &["b"]),
        ("case $1 in\n a) b ;;\n *) c ;;\nesac", &["b", "c"]),
        ("a=(b c)\nlocal d=(e f)\n", &[]),
        ("sh -c 'a b; c'", &["a", "c", "sh"]),
        ("a >b 2>&1 <c <<<\"d\"", &["a"]),
        ("# a b\na # b; c", &["a"]),
        ("[ $((a + b)) -gt ${#c[@]} ] || a", &["a"]),
        ("{program} b; /opt/c; $d; ./e", &[]),
        ("a \\\n b", &["a"]),
    ] {
        let found: Vec<_> = started_in_shell(script).into_iter().collect();
        assert_eq!(found, names, "{script}");
    }
}

#[test]
fn programs_are_found_in_rust() {
    for (text, names) in [
        (r#"command("a").args(["b"])"#, &["a"][..]),
        (r#"Command::new( "a" )"#, &["a"]),
        (r#"command(program).arg("a")"#, &[]),
        (r#"program(&["a", "b"], ready)"#, &["a"]),
        (r#"shell("a; b", ready)"#, &["a", "b"]),
        (r#"["lock", "--", "sh", "-c", "a b"]"#, &["a"]),
        (r#"let app = "exec = [\"a\", \"b\"]\n";"#, &["a"]),
        (
            r#"let app = "exec = [\"sh\", \"-c\", \"a; b\"]";"#,
            &["a", "b", "sh"],
        ),
        ("// command(\"a\")", &[]),
    ] {
        let found: Vec<_> = started_in_rust(text).into_iter().collect();
        assert_eq!(found, names, "{text}");
    }
}

/// What a table of needs in `./test` says that packages bring.
fn brought(script: &str, table: &str) -> BTreeSet<String> {
    let (_, rest) = script
        .split_once(&format!("\n{table}='\n"))
        .expect("a table");
    let (table, _) = rest.split_once("\n'").expect("a table ends");
    let things = table
        .lines()
        .flat_map(|line| line.split_whitespace().skip(1));
    things
        .map(|thing| thing.rsplit('/').next().unwrap_or(thing).to_owned())
        .collect()
}

/// The programs that Rust code starts, as far as literals tell.
fn started_in_rust(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut code, mut before) = (String::new(), [String::new(), String::new()]);
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, length) = first_piece(rest);
        let (text, behind) = rest.split_at(length);
        rest = behind;
        match piece {
            Piece::Comment => (),
            Piece::Code => code.extend(text.chars().filter(|c| !c.is_whitespace())),
            Piece::Literal => {
                let literal = value(text);
                let follows = |end: &str| code.ends_with(end);
                let is_shell = matches!(&before[0][..], "sh" | "bash") && before[1] == "-c";
                let is_shell = is_shell && code == ",";
                if ["command(", "Command::new(", "program(&["]
                    .into_iter()
                    .any(follows)
                {
                    names.extend(is_name(&literal).then(|| literal.clone()));
                } else if follows("shell(") || is_shell || literal.starts_with("#!/bin/sh\n") {
                    names.extend(started_in_shell(&literal));
                }
                names.extend(executed(&literal));
                before.rotate_left(1);
                before[1] = literal;
                code.clear();
            }
        }
    }
    names
}

/// The programs that a config in a literal executes.
fn executed(config: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for list in config.split("exec = [").skip(1) {
        let words: Vec<_> = list.split('"').skip(1).step_by(2).collect();
        match words[..] {
            [shell @ ("sh" | "bash"), "-c", script, ..] => {
                names.insert(shell.to_owned());
                names.extend(started_in_shell(script));
            }
            [name, ..] if is_name(name) => _ = names.insert(name.to_owned()),
            _ => (),
        }
    }
    names
}

/// What a literal stands for, as far as it matters here.
fn value(literal: &str) -> String {
    let inner = literal.split_once('"').map_or("", |(_, rest)| rest);
    let inner = inner.rsplit_once('"').map_or("", |(inner, _)| inner);
    inner
        .replace("\\\n", " ")
        .replace("\\n", "\n")
        .replace('\\', "")
}

fn is_name(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(is_plain)
}

/// The commands of a shell script that are neither built in nor its functions.
fn started_in_shell(script: &str) -> BTreeSet<String> {
    let mut found = Commands::default();
    found.read(script);
    let defined = |name: &String| found.functions.contains(name);
    let is_program = |name: &String| is_name(name) && !BUILT_IN.contains(&&name[..]);
    let names = found.names.iter().filter(|name| !defined(name));
    names.filter(|name| is_program(name)).cloned().collect()
}

#[derive(Default)]
struct Commands {
    names: BTreeSet<String>,
    functions: BTreeSet<String>,
}

/// Where in a command the next word stands.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Command,
    Argument,
    /// Behind `-c`, so it may be a script.
    Script,
    Target,
}

impl Commands {
    fn read(&mut self, script: &str) {
        let (mut at, mut depth, mut rest) = (At::Command, 0_u32, script);
        while let Some(c) = rest.chars().next() {
            let next = &rest[c.len_utf8()..];
            match c {
                '#' => rest = next.find('\n').map_or("", |end| &next[end..]),
                '\\' => rest = next.get(1..).unwrap_or(""),
                ' ' | '\t' => rest = next,
                '\n' | ';' | '&' | '|' | '`' => (at, rest) = (At::Command, next),
                '(' => (at, depth, rest) = (At::Command, depth + 1, next),
                ')' => (at, depth, rest) = (At::Command, depth.saturating_sub(1), next),
                '<' | '>' => {
                    rest = next.trim_start_matches(['<', '>', '&', ' ']);
                    at = At::Target;
                }
                _ => {
                    let (word, behind) = self.word(rest);
                    rest = behind;
                    at = self.place(at, word, rest, depth);
                }
            }
        }
    }

    /// One word with its quotes, and what is behind it. Commands within it are
    /// read on the way.
    fn word<'a>(&mut self, text: &'a str) -> (&'a str, &'a str) {
        let mut len = 0;
        while let Some(c) = text[len..].chars().next() {
            let rest = &text[len..];
            len += match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '`' | '(' | ')' | '<' | '>' => break,
                '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
                '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
                '"' => {
                    let end = quoted(rest);
                    self.substitutions(&rest[1..end.max(2) - 1]);
                    end
                }
                '$' if rest.starts_with("$((") => closed(rest, "))"),
                '$' if rest.starts_with("$(") => {
                    let end = balanced(rest);
                    self.read(&rest[2..end - 1]);
                    end
                }
                '$' if rest.starts_with("${") => closed(rest, "}"),
                '=' if rest.starts_with("=(") => balanced(rest),
                c => c.len_utf8(),
            };
        }
        (&text[..len], &text[len..])
    }

    fn substitutions(&mut self, text: &str) {
        for (at, _) in text.match_indices("$(") {
            let rest = &text[at..];
            if !rest.starts_with("$((") {
                self.read(&rest[2..balanced(rest) - 1]);
            }
        }
    }

    /// Take a word where it stands, and say where the next one does.
    fn place(&mut self, at: At, word: &str, behind: &str, depth: u32) -> At {
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
            let name = name.trim_end_matches('+');
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        });
        match at {
            At::Target => At::Argument,
            At::Argument if word == "-c" || word == "-euc" => At::Script,
            At::Argument => At::Argument,
            At::Script => {
                if let Some(script) = word.strip_prefix('\'') {
                    self.read(script.trim_end_matches('\''));
                }
                At::Argument
            }
            At::Command if behind.starts_with("()") => {
                self.functions.insert(word.to_owned());
                At::Argument
            }
            // A pattern of `case`.
            At::Command if depth == 0 && behind.starts_with(')') => At::Command,
            At::Command if is_assignment || OPENING.contains(&word) => At::Command,
            At::Command if NO_COMMAND.contains(&word) => At::Argument,
            At::Command => {
                self.names.insert(word.to_owned());
                At::Argument
            }
        }
    }
}

/// The length up to and with the first `end`.
fn closed(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

/// The length up to and with the parenthesis that closes the first one.
fn balanced(text: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return at + 1,
            ')' => depth -= 1,
            _ => (),
        }
    }
    text.len()
}
