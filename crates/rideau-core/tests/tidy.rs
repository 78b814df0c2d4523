//! The style of the house, as far as a machine can check it.
//!
//! Every rule is a function from a file's path and text to its faults. It is
//! tried first on samples it must find fault with or let pass, then on every
//! Rust file of the workspace.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/programs.rs"]
mod programs;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files over [`LINES_MAX`] lines that wait to be split. Take entries out;
/// put none in.
const LONG_FILES: &[&str] = &[];
const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// Words that say nothing about the thing they name.
const EMPTY_WORDS: &[&str] = &[
    "base",
    "common",
    "context",
    "data",
    "handler",
    "helper",
    "impl",
    "info",
    "manager",
    "misc",
    "processor",
    "util",
];

/// The one name with an empty word in it, and the one file that may have it. A
/// reader of other pools looks for a `Manager` to implement, and our own words
/// for what it does are all taken by the pool itself.
const MANAGER: &str = "Manager";
const MANAGER_FILE: &str = "crates/rideau/src/pool/manager.rs";

/// What is scarce: the top of the core.
const MACHINES: &[&str] = &["allocator", "apps", "broker", "locks", "pool", "regulator"];
/// What machines are put together from, and is put together itself.
const PARTS: &[&str] = &["group", "kit", "waiting"];
/// What every part of the core may speak of: its bottom. All that is on no
/// list lies just above.
const WORDS: &[&str] = &[
    "custom",
    "expiry",
    "histogram",
    "ids",
    "ledger",
    "machine",
    "protector",
    "refusal",
    "rng",
    "settings",
    "time",
];

#[test]
fn every_file_opens_with_what_it_is_for() {
    check_samples(
        missing_opening,
        &[
            ("a.rs", ""),
            ("a.rs", "use std::fmt;\n"),
            ("a.rs", "\n//! Late.\n"),
        ],
        &[("a.rs", "//! Chance that follows from a seed.\n")],
    );
    check_workspace(missing_opening);
}

#[test]
fn no_line_is_too_long_to_read() {
    let longest = "é".repeat(COLUMNS_MAX);
    check_samples(
        long_lines,
        &[("a.rs", &format!("//! Short.\n{longest}.\n"))],
        &[("a.rs", &format!("//! Short.\n{longest}\n"))],
    );
    check_workspace(long_lines);
}

#[test]
fn no_file_or_type_has_a_name_that_says_nothing() {
    check_samples(
        empty_names,
        &[
            ("crates/rideau/src/utils.rs", ""),
            ("crates/rideau/src/pool_manager.rs", ""),
            ("crates/rideau/src/manager.rs", ""),
            ("crates/rideau/src/pool/manager/pace.rs", ""),
            ("a.rs", "pub trait Manager: Send {"),
            (MANAGER_FILE, "pub struct Manager;"),
            (MANAGER_FILE, "pub trait Managers {"),
            (MANAGER_FILE, "pub trait MemberManager {"),
            (MANAGER_FILE, "trait Helper {"),
            ("crates/rideau/tests/common/clock.rs", ""),
            ("a.rs", "pub(crate) struct PoolManager<R>(R);"),
            ("a.rs", "enum RESPHandler {}"),
            ("a.rs", "pub trait Helpers {"),
            ("a.rs", "pub type NodeInfo = u8;"),
            ("a.rs", "trait Machine {\n    type Context;\n}"),
        ],
        &[
            ("crates/rideau-server/src/database.rs", ""),
            (MANAGER_FILE, "pub trait Manager: Send + Sync + 'static {"),
            ("a.rs", "struct Database;\nenum Baseline {}"),
            ("a.rs", "// struct Manager\nlet s = \"struct Manager\";"),
            ("a.rs", "impl Body for Page {\n    type Data = Bytes;\n}"),
        ],
    );
    check_workspace(empty_names);
}

#[test]
fn no_function_is_named_get() {
    check_samples(
        getters,
        &[("a.rs", "    pub const fn get_len(&self) -> usize {")],
        &[("a.rs", "fn len() {}\nfn target_of() {}\n// fn get_len\n")],
    );
    check_workspace(getters);
}

#[test]
fn the_core_imports_only_downwards() {
    let broker = "crates/rideau-core/src/broker.rs";
    let part = "crates/rideau-core/src/broker/sides.rs";
    let pool = "crates/rideau-core/src/pool.rs";
    let queue = "crates/rideau-core/src/queue.rs";
    let waiting = "crates/rideau-core/src/waiting.rs";
    let time = "crates/rideau-core/src/time.rs";
    let lib = Exports::of("pub use broker::{Broker, Effect};\npub use time::Instant;\n");
    check_samples(
        |path, text| upward_imports(&lib, path, text),
        &[
            (broker, "use crate::pool::Pool;"),
            (part, "use crate::{queue::{Law, Queue}, locks};"),
            (part, "use super::super::pool::Pool;"),
            (pool, "use super::{broker, time};"),
            (pool, "use crate::Broker;"),
            (pool, "use crate::{\n    Instant, Effect,\n};"),
            (pool, "fn f() { crate::broker::f() }"),
            (queue, "use crate::regulator::Regulator;"),
            (queue, "use crate::meter::Meter;"),
            (queue, "use crate::waiting::Waiting;"),
            (waiting, "use crate::broker::Broker;"),
            (time, "use crate::queue::Queue;"),
        ],
        &[
            (
                broker,
                "use crate::queue::{Law, Queue};\nuse crate::Instant;",
            ),
            (part, "use crate::broker::Broker;\nuse crate::{ids, meter};"),
            (
                pool,
                "//! Not a [`crate::broker`].\nuse crate::time::nanos;",
            ),
            (part, "use super::pool::Pool;"),
            (
                queue,
                "\n#[cfg(test)]\nmod tests {\n    use super::codel::CoDel;\n}",
            ),
            (waiting, "use crate::queue::Queue;"),
            (time, "use crate::rng::mix;"),
            ("crates/rideau-core/src/lib.rs", "use crate::pool::Pool;"),
            ("crates/rideau/src/pool.rs", "use crate::broker::Broker;"),
        ],
    );
    let lib = Exports::of(&read(&root().join("crates/rideau-core/src/lib.rs")));
    check_workspace(|path, text| upward_imports(&lib, path, text));
}

#[test]
fn unfinished_work_carries_a_number() {
    check_samples(
        loose_ends,
        &[
            ("a.rs", "let x = 1; // FIXME(#3): wrong"),
            ("a.rs", "/* TODO: split */"),
            ("a.rs", "/// TODO(anna) split"),
            ("a.rs", "// TODO() split"),
        ],
        &[
            ("a.rs", "// TODO(#12): split"),
            ("a.rs", "let s = \"TODO FIXME\";"),
        ],
    );
    check_workspace(loose_ends);
}

#[test]
fn a_module_stands_beside_its_folder() {
    check_samples(
        inner_modules,
        &[("crates/rideau-core/src/queue/mod.rs", "//! Queues.\n")],
        &[("crates/rideau-core/src/queue.rs", "//! Queues.\n")],
    );
    check_workspace(inner_modules);
}

#[test]
fn long_files_are_listed_and_only_they() {
    let lines = |count| "//! Line.\n".repeat(count);
    let (most, over) = (lines(LINES_MAX), lines(LINES_MAX + 1));
    let tested = format!("{most}#[cfg(test)]\nmod tests {{\n{most}}}\n");
    check_samples(
        |path, text| wrong_lengths(&["listed.rs"], path, text),
        &[("listed.rs", &most), ("other.rs", &over)],
        &[
            ("listed.rs", &over),
            ("other.rs", &most),
            ("other.rs", &tested),
            ("crates/rideau-core/tests/other.rs", &over),
        ],
    );
    check_workspace(|path, text| wrong_lengths(LONG_FILES, path, text));
    for path in LONG_FILES {
        assert!(root().join(path).exists(), "{path} is listed but gone");
    }
}

#[test]
fn no_test_is_ignored() {
    check_samples(
        ignored_tests,
        &[
            ("a.rs", "#[test]\n#[ignore]\nfn f() {}"),
            ("a.rs", "#[ignore = \"slow\"]"),
            ("a.rs", "#[cfg_attr(\n    miri,\n    ignore\n)]"),
            ("a.rs", "/// ```rust,ignore\n/// f()\n/// ```"),
        ],
        &[
            ("a.rs", "#[test]\nfn ignore() {}\nlet x = [ignore];"),
            ("a.rs", "// No #[ignore] here.\nlet s = \"#[ignore]\";"),
            ("a.rs", "/// ```no_run\n/// f()\n/// ```"),
        ],
    );
    check_workspace(ignored_tests);
}

#[test]
fn what_tests_start_ends_with_them() {
    let test = "crates/rideau-server/tests/cli/hold.rs";
    check_samples(
        unguarded_children,
        &[
            (test, "let child = Command::new(\"sh\").spawn();"),
            (test, "std::process::Command::new(program).output()"),
            (test, "command(\"sh\")\n    .spawn()\n    .unwrap()"),
        ],
        &[
            (test, "let child = command(\"sh\").start();"),
            (test, "tokio::spawn(serve());\n// Command::new"),
            (
                "crates/rideau-server/src/main.rs",
                "Command::new(file).spawn()",
            ),
        ],
    );
    check_workspace(unguarded_children);
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let text = concat!(
        "a // b \"c\"\n",
        "/*/ d /* e */ f */ g \"h \\\" // i\" j\n",
        "r#\"k \" l\"# m b\"n\" '\"' o '\\'' p<'q> r#type\n",
    );
    let parts = Parts::of(text);
    assert_eq!(
        identifiers(&parts.code).collect::<Vec<_>>(),
        ["a", "g", "j", "m", "b", "o", "p", "q", "r", "type"]
    );
    assert_eq!(
        identifiers(&parts.comments).collect::<Vec<_>>(),
        ["b", "c", "d", "e", "f"]
    );
    assert_eq!(parts.code.len(), parts.comments.len());
}

/// A path and a text.
type Sample<'a> = (&'a str, &'a str);

fn check_samples(
    rule: impl Fn(&str, &str) -> Vec<String>,
    bad: &[Sample<'_>],
    good: &[Sample<'_>],
) {
    for (path, text) in bad {
        let faults = rule(path, text);
        assert!(!faults.is_empty(), "no fault found in {path}: {text:?}");
    }
    for (path, text) in good {
        let faults = rule(path, text);
        assert!(faults.is_empty(), "{faults:?} found in {path}: {text:?}");
    }
}

fn check_workspace(rule: impl Fn(&str, &str) -> Vec<String>) {
    let mut files = Vec::new();
    for folder in ["crates", "bench/src"] {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.contains(&root().join("crates/rideau-core/tests/tidy.rs")));

    let mut faults = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).expect("files lie below the root");
        let path = path.to_str().expect("our paths are ASCII");
        for fault in rule(path, &read(&file)) {
            faults.push(format!("{path}: {fault}"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn root() -> PathBuf {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = core.ancestors().nth(2).expect("the core lies in crates/");
    root.to_owned()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn missing_opening(_path: &str, text: &str) -> Vec<String> {
    let opens = text.starts_with("//! ");
    Vec::from_iter((!opens).then(|| "does not start with `//! `".to_owned()))
}

fn long_lines(_path: &str, text: &str) -> Vec<String> {
    faults_by_line(text, |line| {
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("{columns} columns"))
    })
}

fn empty_names(path: &str, text: &str) -> Vec<String> {
    let excepted = path == MANAGER_FILE;
    let mut faults = faults_by_line(&Parts::of(text).code, |line| {
        let name = declared_type(line)?;
        let allowed = excepted && identifier_after(line, "trait") == Some(MANAGER);
        let fault = says_nothing(name) && !allowed;
        fault.then(|| format!("the name of type {name} says nothing"))
    });
    if says_nothing(path.trim_end_matches(".rs")) && !excepted {
        faults.push("the name of the file says nothing".to_owned());
    }
    faults
}

fn getters(_path: &str, text: &str) -> Vec<String> {
    faults_by_line(&Parts::of(text).code, |line| {
        let name = identifier_after(line, "fn")?;
        name.starts_with("get_")
            .then(|| format!("{name}: leave out `get_`"))
    })
}

fn upward_imports(exports: &Exports, path: &str, text: &str) -> Vec<String> {
    let Some(path) = path.strip_prefix("crates/rideau-core/src/") else {
        return Vec::new();
    };
    let here = path.split(['/', '.']).next().expect("a split has a part");
    if here == "lib" {
        return Vec::new();
    }
    let code = Parts::of(text).code;
    let root = "super::".repeat(path.split('/').count());
    names_after(&code, "crate::")
        .into_iter()
        .chain(names_after(without_tests(&code), &root))
        .map(|name| exports.module_of(name))
        .filter(|there| *there != here && layer(there) >= layer(here))
        .filter(|there| !(WORDS.contains(&here) && WORDS.contains(there)))
        .map(|there| format!("{here} must not see {there}: imports go only downwards"))
        .collect()
}

fn loose_ends(_path: &str, text: &str) -> Vec<String> {
    faults_by_line(&Parts::of(text).comments, |line| {
        let numbered = |rest: &str| {
            let number = rest
                .strip_prefix("(#")
                .and_then(|rest| rest.split_once(')'));
            number.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
        };
        if line.contains("FIXME") {
            Some("fix it, or call it TODO(#number)".to_owned())
        } else {
            let loose = line.split("TODO").skip(1).any(|rest| !numbered(rest));
            loose.then(|| "a TODO carries its number: TODO(#number)".to_owned())
        }
    })
}

fn inner_modules(path: &str, _text: &str) -> Vec<String> {
    let inner = path.ends_with("/mod.rs");
    Vec::from_iter(inner.then(|| "name it after its folder, beside it".to_owned()))
}

fn wrong_lengths(listed: &[&str], path: &str, text: &str) -> Vec<String> {
    if path.split('/').any(|folder| folder == "tests") {
        return Vec::new();
    }
    let lines = without_tests(text).lines().count();
    let fault = match (lines > LINES_MAX, listed.contains(&path)) {
        (true, false) => Some(format!("{lines} lines: split off what has a small surface")),
        (false, true) => Some(format!("only {lines} lines: take it off LONG_FILES")),
        (true, true) | (false, false) => None,
    };
    Vec::from_iter(fault)
}

fn ignored_tests(_path: &str, text: &str) -> Vec<String> {
    let parts = Parts::of(text);
    let mut faults = faults_by_line(&parts.comments, |line| {
        let (_, language) = line.split_once("```")?;
        let ignored = identifiers(language).any(|word| word == "ignore");
        ignored.then(|| "an example that is not compiled".to_owned())
    });
    for attribute in parts.code.split("#[").skip(1) {
        let attribute = attribute.split(']').next().expect("a split has a part");
        if identifiers(attribute).any(|word| word == "ignore") {
            faults.push("a test that is not run".to_owned());
        }
    }
    faults
}

fn unguarded_children(path: &str, text: &str) -> Vec<String> {
    if !path.split('/').any(|folder| folder == "tests") {
        return Vec::new();
    }
    faults_by_line(&Parts::of(text).code, |line| {
        if line.contains("Command::new(") {
            Some("build it with `rideau_testing::command`".to_owned())
        } else {
            let spawned = line.contains(".spawn()");
            spawned.then(|| "start it with `rideau_testing::Start`".to_owned())
        }
    })
}

fn faults_by_line(text: &str, mut rule: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let faults = text.lines().zip(1..).filter_map(|(line, number)| {
        let fault = rule(line)?;
        Some(format!("line {number}: {fault}"))
    });
    faults.collect()
}

/// What stands before the unit tests of a file.
fn without_tests(text: &str) -> &str {
    let tests = text.find("\n#[cfg(test)]\nmod tests {");
    &text[..tests.unwrap_or(text.len())]
}

/// The type that a line of code declares, unless a foreign trait chose its
/// name.
fn declared_type(line: &str) -> Option<&str> {
    // An indented alias fills in the associated type of a trait.
    let foreign = line.starts_with(' ') && line.contains('=');
    ["struct", "enum", "trait", "type"]
        .into_iter()
        .filter(|keyword| !(*keyword == "type" && foreign))
        .find_map(|keyword| identifier_after(line, keyword))
}

fn identifier_after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let mut words = identifiers(line);
    words.find(|word| *word == keyword)?;
    words.next()
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_identifier(c))
        .filter(|word| !word.is_empty())
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether one of the words in a path or a name is an empty one.
fn says_nothing(name: &str) -> bool {
    let chars = Vec::from_iter(name.chars());
    let mut words = String::new();
    for (at, c) in chars.iter().enumerate() {
        let after_small = at > 0 && chars[at - 1].is_lowercase();
        let before_small = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (after_small || before_small) {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words.split(|c: char| !c.is_alphanumeric()).any(|word| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        EMPTY_WORDS.contains(&word) || EMPTY_WORDS.contains(&singular)
    })
}

/// How high a module of the core stands.
fn layer(module: &str) -> u8 {
    if WORDS.contains(&module) {
        0
    } else if MACHINES.contains(&module) {
        3
    } else if PARTS.contains(&module) {
        2
    } else {
        1
    }
}

/// The first name of every path behind `prefix`.
fn names_after<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for rest in code.split(prefix).skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => names.extend(first_names(group)),
            None => names.extend(identifiers(rest).next()),
        }
    }
    names
}

/// The first name of every path of a group, from behind its opening brace.
fn first_names(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut starts) = (0_u32, true);
    for piece in group.split_inclusive([',', '{', '}']) {
        if starts && depth == 0 {
            names.extend(identifiers(piece).next());
        }
        starts = piece.ends_with(',');
        if piece.ends_with('{') {
            depth += 1;
        } else if piece.ends_with('}') {
            if depth == 0 {
                break;
            }
            depth -= 1;
        }
    }
    names
}

/// Which module each name of the crate's one public list comes from.
struct Exports(BTreeMap<String, String>);

impl Exports {
    fn of(lib: &str) -> Self {
        let code = Parts::of(lib).code;
        let mut modules = BTreeMap::new();
        for list in code.split("pub use ").skip(1) {
            let list = list.split(';').next().expect("a split has a part");
            let mut names = identifiers(list);
            let module = names.next().expect("an export names its module");
            modules.extend(names.map(|name| (name.to_owned(), module.to_owned())));
        }
        Self(modules)
    }

    /// The module that `name`, found at the crate's root, stands for.
    fn module_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, String::as_str)
    }
}

/// A text taken apart; in each part all that belongs to the others is blank.
struct Parts {
    code: String,
    comments: String,
    literals: String,
}

enum Piece {
    Code,
    Comment,
    Literal,
}

impl Parts {
    fn of(text: &str) -> Self {
        let mut parts = [const { String::new() }; 3];
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, length) = first_piece(rest);
            let (text, behind) = rest.split_at(length);
            let blank = String::from_iter(text.chars().map(|c| match c {
                '\n' => '\n',
                _ => ' ',
            }));
            let own = piece as usize;
            for (at, part) in parts.iter_mut().enumerate() {
                *part += if at == own { text } else { &blank };
            }
            rest = behind;
        }
        let [code, comments, literals] = parts;
        Self {
            code,
            comments,
            literals,
        }
    }
}

/// What `text` starts with, and how many bytes of it.
fn first_piece(text: &str) -> (Piece, usize) {
    let word = text.find(|c| !is_identifier(c)).unwrap_or(text.len());
    let first = text.chars().next().map_or(0, char::len_utf8);
    if text.starts_with("//") {
        (Piece::Comment, text.find('\n').unwrap_or(text.len()))
    } else if text.starts_with("/*") {
        (Piece::Comment, block_comment(text))
    } else if let Some(length) = raw_string(text, word) {
        (Piece::Literal, length)
    } else if word > 0 {
        (Piece::Code, word)
    } else if text.starts_with('"') || is_char(text) {
        (Piece::Literal, quoted(text))
    } else {
        (Piece::Code, first)
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    loop {
        let Some(mark) = text[at..]
            .find("/*")
            .into_iter()
            .chain(text[at..].find("*/"))
            .min()
        else {
            return text.len();
        };
        at += mark + 2;
        depth = if text[..at].ends_with("/*") {
            depth + 1
        } else {
            depth - 1
        };
        if depth == 0 {
            return at;
        }
    }
}

/// The length of the raw string whose prefix is the first `word` bytes.
fn raw_string(text: &str, word: usize) -> Option<usize> {
    let (prefix, rest) = text.split_at(word);
    let fence = rest.len() - rest.trim_start_matches('#').len();
    if !prefix.ends_with('r') || prefix.len() > 2 || !rest[fence..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", &rest[..fence]);
    let start = word + fence + 1;
    let length = text[start..].find(&end).map(|at| start + at + end.len());
    Some(length.unwrap_or(text.len()))
}

/// Whether a quote opens a character, not a lifetime.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

/// The length of the string or character that opens with its closing quote.
fn quoted(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if Some(c) == quote {
            return at + 1;
        }
    }
    text.len()
}
