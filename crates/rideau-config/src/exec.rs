//! Members that are processes: what is run, and how it is known to be ready.

use std::path::PathBuf;

use rideau_process::{Ready, Signal};

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Answer, Kind, Maybe, Path, text_kinds};
use super::near::suggest_word;
use super::section::{Section, kind_of};
use super::shown::{Rows, quoted};
use super::table::section;

section! {
    /// How to run a process for a member.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Exec {
        plain {
            /// The program and its words. `{socket}`, `{port}`, `{id}` and `{name}`
            /// stand for what each process has of its own.
            command: Vec<String> = Vec::new();
            /// The same as it may be shown: variables of the file are not filled in.
            shown: Vec<String> = Vec::new();
        }
        /// The program and its arguments; no shell reads them.
        exec => (shown): Vec<String>, Command, Live, usual = "required";
        /// How to know that it is ready.
        ready: Ready = Ready::Started, ReadyWays, Live, usual = "by its arguments";
        /// Where it runs.
        dir: Option<PathBuf> = None, Maybe<Path>, Live, usual = "where rideau runs";
        /// Its variables, besides those that Rideau sets.
        env: Vec<(String, String)> = Vec::new(), Env, Live, usual = "{}";
        /// The signal that asks it to stop.
        stop_signal: Signal = Signal::Term, StopSignal, Live;
        /// It may get more rights than its user has.
        new_privileges: bool = false, Answer, Live;
    }
}

/// The words of those ways to be ready that are a word.
const READY: &[&str] = &["socket", "port", "notify", "started"];
/// A line that says so.
const LINE: &[Key] = &[Key {
    name: "line",
    help: &["It has written a line with this text in it; an {address} in it is its own."],
    usual: "required",
    ..Key::BARE
}];
/// The names of signals.
const SIGNALS: [&str; Signal::ALL.len()] = {
    let mut words = [""; Signal::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = Signal::ALL[at].word();
        at += 1;
    }
    words
};

impl Exec {
    pub(super) fn read(part: &Section<'_>) -> Option<Self> {
        let (command, shown) = command(part)?;
        let mut exec = Self::default();
        exec.read_keys(part);
        let names = |what: &str| {
            let values = exec.env.iter().map(|(_, value)| value);
            command.iter().chain(values).any(|text| text.contains(what))
        };
        let ready = match ready(part) {
            Some(ready) => ready,
            None if names("{socket}") => Ready::Socket,
            None if names("{port}") => Ready::Port,
            None => Ready::Started,
        };
        for (way, what, its) in [
            (Ready::Socket, "{socket}", "socket"),
            (Ready::Port, "{port}", "port"),
        ] {
            if ready == way && !names(what) {
                let message = format!("`ready` waits for a {its} that the program is not told of");
                let place = if its == "port" { "number" } else { "path" };
                let hint = format!("write {what} where the program takes its {place}");
                part.notes.error(part.at("ready"), message, hint);
            }
        }
        Some(Self {
            command,
            shown,
            ready,
            ..exec
        })
    }
}

/// A program and its words.
pub(super) struct Command;
/// Ways to be ready.
struct ReadyWays;
/// The variables of a program, which are not shown.
pub(super) struct Env;

impl Kind<Vec<String>> for Command {
    const FORM: Form = Form::List(&Form::Text);

    fn read(section: &Section<'_>, _: &Key) -> Option<Vec<String>> {
        command(section).map(|(_, shown)| shown)
    }

    fn show(value: &Vec<String>, key: &Key, rows: &mut Rows) {
        let list: Vec<_> = value.iter().map(|text| quoted(text)).collect();
        rows.push(key.name, format!("[{}]", list.join(", ")));
    }
}

impl Kind<Ready> for ReadyWays {
    const FORM: Form = Form::Any(&[Form::Words(READY), Form::Table(LINE, Vec::new)]);

    fn read(section: &Section<'_>, _: &Key) -> Option<Ready> {
        ready(section)
    }

    fn show(value: &Ready, key: &Key, rows: &mut Rows) {
        match value {
            Ready::Line(text) => rows.below(key.name, |rows| rows.text("line", text)),
            ready => rows.text(key.name, ready_word(ready)),
        }
    }
}

impl Kind<Vec<(String, String)>> for Env {
    const FORM: Form = Form::Names(&Form::Text);

    fn read(section: &Section<'_>, _: &Key) -> Option<Vec<(String, String)>> {
        section.has("env").then(|| env(section))
    }

    fn show(_: &Vec<(String, String)>, _: &Key, _: &mut Rows) {}
}

text_kinds! {
    /// The name of a signal.
    pub(super) StopSignal: Signal, Form::Words(&SIGNALS), |word, _| {
        Signal::of(word).ok_or_else(|| {
            let message = format!("`stop_signal` cannot be {word:?}");
            (message, suggest_word(word, &SIGNALS))
        })
    }, |signal| signal.word().into();
}

/// The program and its words, and the same as they may be shown.
pub(super) fn command(part: &Section<'_>) -> Option<(Vec<String>, Vec<String>)> {
    let command = part.list("exec")?;
    let Some((program, at)) = command.first() else {
        let hint = "write [\"program\", \"word\", …]";
        part.notes.error(part.at("exec"), "`exec` is empty", hint);
        return None;
    };
    if program.is_empty() {
        let hint = "the first word of `exec` is the program";
        part.notes
            .error(at.clone(), "the program has no name", hint);
    }
    let command: Vec<String> = command.into_iter().map(|(word, _)| word).collect();
    let shown = command.iter().map(|word| part.notes.written("exec", word));
    let shown = shown.collect();
    Some((command, shown))
}

/// The word of a way to be ready, as it is written; a line has none.
const fn ready_word(ready: &Ready) -> &'static str {
    match ready {
        Ready::Socket => READY[0],
        Ready::Port => READY[1],
        Ready::Notify => READY[2],
        Ready::Started => READY[3],
        Ready::Line(_) => "line",
        // Members of pools are not waited for in these ways.
        Ready::Auto(_) | Ready::Connect | Ready::Http { .. } => "",
    }
}

/// None if nothing is said, or nothing that can be meant.
fn ready(part: &Section<'_>) -> Option<Ready> {
    let entry = part.entry("ready")?;
    if entry.item.is_table_like() {
        let line = part.part(Exec::key("ready"))?;
        let text = line.text("line");
        if !line.has("line") || text.as_deref() == Some("") {
            let message = "`ready` does not say what line to wait for";
            let hint = "write { line = \"listening at {address}\" }";
            part.notes.error(entry.at(), message, hint);
            return None;
        }
        return text.map(Ready::Line);
    }
    if !entry.item.is_str() {
        let message = format!("`ready` is {}, and has to be a word", kind_of(entry.item));
        let hint = format!("one of: {}, or {{ line = \"…\" }}", READY.join(", "));
        part.notes.error(entry.at(), message, hint);
        return None;
    }
    let word = part.text("ready")?;
    let ways = [Ready::Socket, Ready::Port, Ready::Notify, Ready::Started];
    let found = READY.iter().position(|known| *known == word);
    if found.is_none() {
        let message = format!("`ready` cannot be {word:?}");
        let hint = match &*word {
            "line" => "write { line = \"listening at {address}\" }".to_owned(),
            _ => format!("{}, or {{ line = \"…\" }}", suggest_word(&word, READY)),
        };
        part.notes.error(entry.at(), message, hint);
    }
    found.map(|at| ways[at].clone())
}

/// The variables of a program.
pub(super) fn env(part: &Section<'_>) -> Vec<(String, String)> {
    let Some(entry) = part.entry("env") else {
        return Vec::new();
    };
    let Some(table) = entry.item.as_table_like() else {
        let hint = "write { NAME = \"value\" }";
        part.notes.error(entry.at(), "`env` is not a table", hint);
        return Vec::new();
    };
    let section = Section::all(part.notes, table, entry.key_at.clone());
    for entry in &section.entries {
        let name = entry.name;
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("{name:?} cannot be the name of a variable");
            let hint = "names have letters, digits and _";
            part.notes.error(entry.key_at.clone(), message, hint);
        } else if name.starts_with("RIDEAU_") || name == "NOTIFY_SOCKET" {
            let message = format!("the variable `{name}` is set by rideau itself");
            part.notes
                .error(entry.key_at.clone(), message, "choose another name");
        }
    }
    let names = section.entries.iter();
    names
        .filter_map(|entry| Some((entry.name.to_owned(), section.text(entry.name)?)))
        .collect()
}
