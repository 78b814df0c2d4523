//! Ten tasks in each language beside redis-py: they work, the page shows them, and they take no
//! more lines.
//!
//! With `UPDATE_DOCS=1` the page is written.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::served::Served;
use crate::tools::{clients, go, node, python, run};

/// What each column of the table is called, its language on the page, and its file.
const FILES: [(&str, &str, &str); 4] = [
    (
        "redis-py and a Redis",
        "python",
        "python/examples/redis_py.py",
    ),
    ("Python", "python", "python/examples/tasks.py"),
    ("Node", "js", "node/examples/tasks.js"),
    ("Go", "go", "go/examples/tasks/main.go"),
];

/// A task, and the code that does it.
type Task = (String, String);

/// The tasks in a file: what lies between `task: name` and `end`, without its indentation.
fn tasks(file: &str) -> Vec<Task> {
    let text = fs::read_to_string(clients().join(file)).unwrap();
    let parts = text.split(" task: ").skip(1);
    let task = |part: &str| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (code, _) = ["\n# end", "\n// end"]
            .iter()
            .filter_map(|end| rest.split_once(end).or_else(|| indented(rest, end)))
            .next()
            .unwrap();
        let depth = code.find(|c: char| !c.is_whitespace()).unwrap();
        let lines = code.lines().map(|line| line.get(depth..).unwrap_or(""));
        (name.to_owned(), lines.collect::<Vec<_>>().join("\n"))
    };
    parts.map(task).collect()
}

/// The same where the end is indented.
fn indented<'a>(text: &'a str, end: &str) -> Option<(&'a str, &'a str)> {
    let end = end.trim_start();
    let at = text.find(end)?;
    let line = text[..at].rfind('\n')?;
    text[line..at]
        .trim()
        .is_empty()
        .then(|| (&text[..line], &text[at..]))
}

fn len(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// What the page says between its two marks.
fn shown() -> String {
    let columns = FILES.map(|(.., file)| tasks(file));
    let mut text = String::from("\n| lines of code to |");
    for (name, ..) in FILES {
        write!(text, " {name} |").unwrap();
    }
    text.push_str("\n|---|--:|--:|--:|--:|\n");
    for (name, _) in &columns[0] {
        write!(text, "| {name} |").unwrap();
        for column in &columns {
            write!(text, " {} |", len(code_of(column, name))).unwrap();
        }
        text.push('\n');
    }
    for (at, (name, _)) in columns[0].iter().enumerate() {
        write!(text, "\n### {}. To {name}\n", at + 1).unwrap();
        for ((label, language, _), column) in FILES.iter().zip(&columns).rev() {
            let code = code_of(column, name);
            write!(text, "\n{label}:\n\n```{language}\n{code}\n```\n").unwrap();
        }
    }
    text.push('\n');
    text
}

fn code_of<'a>(column: &'a [Task], name: &str) -> &'a str {
    let found = column.iter().find(|(task, _)| task == name);
    &found.unwrap_or_else(|| panic!("no example is to {name}")).1
}

#[test]
fn the_page_shows_the_tasks_and_counts_their_lines() {
    let path = clients().join("../docs/clients.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("<!-- tasks -->\n").unwrap();
    let (before, tail) = rest.split_once("<!-- end of tasks -->").unwrap();
    let wanted = shown();
    if env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{head}<!-- tasks -->\n{wanted}<!-- end of tasks -->{tail}");
        fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(before, wanted, "UPDATE_DOCS=1 writes it");
}

#[test]
fn no_task_takes_more_lines_than_with_redis_py() {
    let theirs = tasks(FILES[0].2);
    assert_eq!(theirs.len(), 10);
    for (label, _, file) in &FILES[1..] {
        let ours = tasks(file);
        assert_eq!(ours.len(), 10, "{label}");
        for (name, code) in &ours {
            let most = len(code_of(&theirs, name));
            assert!(len(code) <= most, "{label}: {name}: {} > {most}", len(code));
        }
    }
}

/// The files of each client, and how many lines of code they may have: no blank ones, no
/// comments, and no texts that document. The one for Go has no client for Redis below it.
const LIBRARIES: [(&[&str], usize); 4] = [
    (
        &[
            "python/rideau/_wire.py",
            "python/rideau/_core.py",
            "python/rideau/_threads.py",
        ],
        600,
    ),
    (
        &[
            "python/rideau/_wire.py",
            "python/rideau/_core.py",
            "python/rideau/asyncio.py",
        ],
        600,
    ),
    (&["node/index.js", "node/lease.js"], 600),
    (&["go/client.go", "go/lease.go"], 720),
];

#[test]
fn a_library_is_thin() {
    for (files, most) in LIBRARIES {
        let lines: usize = (files.iter())
            .map(|file| lines_of_code(&clients().join(file)))
            .sum();
        assert!((100..most).contains(&lines), "{files:?}: {lines} lines");
    }
}

fn lines_of_code(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let mut is_documentation = false;
    let mut is_code = |line: &str| {
        let was = is_documentation;
        is_documentation ^= line.matches("\"\"\"").count() == 1;
        let is_comment = ["//", "/*", "*", "#", "\"\"\""]
            .iter()
            .any(|sign| line.starts_with(sign));
        !(was || is_documentation || is_comment || line.is_empty())
    };
    text.lines().filter(|line| is_code(line.trim())).count()
}

#[test]
fn the_tasks_work_in_each_language() {
    let served = Served::start();
    run(python().arg("examples/tasks.py").arg(served.url()));
    run(node().arg("examples/tasks.js").arg(served.url()));
    run(go().args(["run", "./examples/tasks"]).arg(served.url()));
}

#[test]
fn the_tasks_work_with_redis_py() {
    let redis = Served::redis();
    run(python().arg("examples/redis_py.py").arg(redis.url()));
}
