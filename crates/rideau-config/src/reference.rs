//! The tables of keys in the documents.
//!
//! They stand between two comments, `<!-- keys: front -->` and `<!-- end of keys -->`. The
//! first names a section, and perhaps which of its keys: `<!-- keys: user *_max -->`.

use super::alarm::ALARM_NUMBERS;
use super::key::{Effect, Form, Key, Usual};
use super::kinds::{counted, grouped};
use super::parts::{PARTS, part};
use super::shown::{rows_below, value_of};
use super::words::show_size;

const BEGIN: &str = "<!-- keys: ";
/// The table of the numbers that alarms can look at.
const NUMBERS: &str = "alarm-numbers";
const END: &str = "<!-- end of keys -->";
/// Where the tables are that several sections have.
const SHARED: &str = "config.md";
/// A larger bound says nothing.
const SIZE_MAX: u64 = 1 << 50;

/// A page with the tables as they have to be.
///
/// # Panics
///
/// If a comment names what there is not, or has no end.
pub fn with_tables(page: &str) -> String {
    let mut pieces = page.split(BEGIN);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (what, rest) = piece.split_once(" -->").expect("the comment has an end");
        let (_, rest) = rest.split_once(END).expect("the table has an end");
        let (name, keys) = what.split_once(' ').unwrap_or((what, "*"));
        let table = match name {
            NUMBERS => numbers(),
            name => table(name, keys),
        };
        out += &format!("{BEGIN}{what} -->\n\n{table}\n{END}{rest}");
    }
    out
}

/// Every table that pages can have: those of the sections, and those they share.
pub fn tables() -> Vec<&'static str> {
    let sections = PARTS.iter().map(|part| part.name);
    sections.chain(shared().map(|(name, ..)| name)).collect()
}

/// The tables that several sections have.
pub(super) fn shared() -> impl Iterator<Item = (&'static str, &'static [Key], Rows)> {
    let mut found: Vec<(&str, &[Key], Rows)> = Vec::new();
    for part in PARTS {
        for key in part.keys {
            if let Some((name, keys, usual)) = shared_in(&key.form)
                && found.iter().all(|(known, ..)| *known != name)
            {
                found.push((name, keys, usual()));
            }
        }
    }
    found.into_iter()
}

type Rows = Vec<(String, String)>;

fn shared_in(form: &Form) -> Option<(&'static str, &'static [Key], Usual)> {
    match form {
        Form::Shared(name, keys, usual) => Some((*name, *keys, *usual)),
        Form::List(form) => shared_in(form),
        Form::Any(forms) => forms.iter().find_map(shared_in),
        _ => None,
    }
}

fn table(name: &str, only: &str) -> String {
    let (keys, usual) = match part(name) {
        Some(part) => (part.keys, (part.usual)()),
        None => {
            let found = shared().find(|(known, ..)| *known == name);
            let (_, keys, usual) = found.unwrap_or_else(|| panic!("there is no table {name}"));
            (keys, usual)
        }
    };
    let mut lines = Vec::new();
    for key in keys.iter().filter(|key| crate::fits(only, key.name)) {
        add(&mut lines, "", key, &usual);
    }
    // Where all count at once there is nothing to be said.
    let at_once = effect(Effect::Live);
    let has_effects = lines.iter().any(|line| line.effect != at_once);
    let mut out = String::from("| key | default | value |");
    out += if has_effects {
        " a change takes effect |"
    } else {
        ""
    };
    out += " |\n|---|---|---|";
    out += if has_effects { "---|" } else { "" };
    out += "---|\n";
    for line in lines {
        out += &format!("| `{}` | {} | {} |", line.key, line.default, line.value);
        if has_effects {
            out += &format!(" {} |", line.effect);
        }
        out += &format!(" {} |\n", line.help);
    }
    out
}

/// The numbers that alarms can look at, by kind.
fn numbers() -> String {
    let mut out = String::from("| of | numbers |\n|---|---|\n");
    let mut last = "";
    for row in ALARM_NUMBERS.lines() {
        let mut words = row.split(' ');
        let (kind, number) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        if kind == last {
            out += &format!(", `{number}`");
            continue;
        }
        let written = match kind {
            "server" | "cluster" => kind.to_owned(),
            "group" => "pool.@NAME".to_owned(),
            kind => format!("{kind}.NAME"),
        };
        out += if last.is_empty() { "" } else { " |\n" };
        out += &format!("| `{written}` | `{number}`");
        last = kind;
    }
    out + " |\n"
}

/// A line of a table.
struct Line {
    key: String,
    default: String,
    value: String,
    effect: &'static str,
    help: String,
}

fn add(lines: &mut Vec<Line>, above: &str, key: &Key, usual: &[(String, String)]) {
    let name = format!("{above}{}", key.name);
    lines.push(Line {
        default: cell(&default_of(key, usual)),
        value: cell(&described(key, &key.form)),
        effect: effect(key.effect),
        help: cell(&key.sentence()),
        key: name.clone(),
    });
    if let Some((keys, rows)) = own_table(&key.form) {
        let own = rows_below(usual, key.name);
        let rows = if own.is_empty() { rows() } else { own };
        for below in keys {
            add(lines, &format!("{name}."), below, &rows);
        }
    }
}

/// The keys of a table that only one section has.
fn own_table(form: &Form) -> Option<(&'static [Key], Usual)> {
    match form {
        Form::Table(keys, usual) => Some((*keys, *usual)),
        Form::Any(forms) => forms.iter().find_map(own_table),
        _ => None,
    }
}

fn default_of(key: &Key, usual: &[(String, String)]) -> String {
    let is_value = key.usual.parse::<toml_edit::Value>().is_ok();
    match value_of(usual, key.name) {
        _ if !key.usual.is_empty() && !is_value => key.usual.into(),
        _ if !key.usual.is_empty() => format!("`{}`", key.usual),
        Some(value) => format!("`{}`", counted(value)),
        None => String::new(),
    }
}

/// The form of a value, in words.
fn described(key: &Key, form: &Form) -> String {
    let (least, most) = key.bounds;
    match form {
        Form::Text => "text".into(),
        Form::Path => "path".into(),
        Form::Address => "address and port".into(),
        Form::Words(words) if words.len() > 10 => "word".into(),
        Form::Words(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            either(&words)
        }
        Form::Answer => "`true` or `false`".into(),
        Form::Number => match (least, most) {
            (0, u64::MAX) => "number".into(),
            (least, u64::MAX) => format!("number from {least}"),
            (least, most) => format!("number, {least} to {}", grouped(most)),
        },
        Form::Span => "span".into(),
        Form::Positive => "span over zero".into(),
        Form::Lead => "span, also negative".into(),
        Form::Size => match (show_size(least), show_size(most)) {
            (least, _) if most >= SIZE_MAX => format!("size from {least}"),
            (least, most) => format!("size, {least} to {most}"),
        },
        Form::Rate => "bytes a second, as `\"500B/s\"`".into(),
        Form::List(form) => match form {
            Form::Text => "list of texts".into(),
            Form::Address => "list of addresses and ports".into(),
            Form::Number => "list of numbers".into(),
            Form::Words(_) => "list of words".into(),
            Form::Table(..) => "list of tables".into(),
            form => format!("list, each {}", described(key, form)),
        },
        Form::Table(..) => "table".into(),
        Form::Names(form) => format!("table of {}", described(key, form)),
        Form::Shared(name, ..) | Form::Again(name) => format!("[{name}]({SHARED}#{name})"),
        Form::Any([Form::Shared(name, ..), Form::Words(_)]) => {
            format!("[{name}]({SHARED}#{name}), or its kind alone")
        }
        Form::Any(forms) => {
            let forms: Vec<_> = forms.iter().map(|form| described(key, form)).collect();
            either(&forms)
        }
    }
}

fn either(all: &[String]) -> String {
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "at once",
        Effect::Restart => "after a restart",
        Effect::Connections => "for new connections",
        Effect::Requests => "from the next request on",
        Effect::Replaced => "by new processes",
        Effect::Started => "for processes started later",
        Effect::Given => "for values given out later",
        Effect::Renewed => "for values given out or renewed later",
    }
}

/// A text as it may stand in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
