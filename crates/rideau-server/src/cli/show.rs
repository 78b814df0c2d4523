//! Answers of a server, as text for people and as JSON for programs.

use std::io::{self, Write};

use rideau_daemon::TableKind;
use rideau_resp::Value;
use serde_json::{Map, Value as Json};

use super::{Failure, terminal};

/// The text of a value that is one thing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Simple(text) | Value::Error(text) | Value::Big(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Boolean(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            values.iter().map(text).collect::<Vec<_>>().join(" ")
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(key, value)| format!("{} {}", text(key), text(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The value as JSON.
pub(crate) fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Boolean(yes) => (*yes).into(),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            values.iter().map(json).collect()
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (text(key), json(value)));
            Json::Object(pairs.collect::<Map<_, _>>())
        }
        Value::Error(error) => serde_json::json!({ "error": error }),
        value => text(value).into(),
    }
}

/// The elements of a list; none if it is no list.
pub(crate) fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => values,
        _ => &[],
    }
}

/// The number of something that a table shows.
pub(crate) fn number(text: &str, what: &str, kind: &str) -> Result<u64, String> {
    let fault = || format!("{what} has a number; `rideau status {kind}` shows it");
    text.parse().map_err(|_| fault())
}

/// An answer that is no mistake.
pub(crate) fn good(answer: Value) -> Result<Value, Failure> {
    match answer {
        Value::Error(text) => Err(Failure::Broken(in_our_words(&text))),
        answer => Ok(answer),
    }
}

/// The advice of a server names its own commands; here others are typed.
pub(crate) fn in_our_words(text: &str) -> String {
    const OURS: [(&str, &str); 4] = [
        ("APP.LS", "`rideau status apps`"),
        ("CONFIG HISTORY", "`rideau status history`"),
        ("CONFIG RELOAD", "`rideau reload`"),
        ("CONFIG ROLLBACK", "`rideau rollback`"),
    ];
    let mut text = text.to_owned();
    for (theirs, ours) in OURS {
        text = text.replace(theirs, ours);
    }
    for what in TableKind::ALL {
        let theirs = format!("SHOW {}", what.word().to_uppercase());
        text = text.replace(&theirs, &format!("`rideau status {}`", what.word()));
    }
    text
}

/// Print one JSON value.
pub(crate) fn print_json(json: &Json) -> io::Result<()> {
    writeln!(io::stdout(), "{}", terminal::json(&json.to_string()))
}

/// Print text, with a line end behind it.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", terminal::tamed(text.trim_end()))
}

/// Print what others wrote for a program to read.
pub(crate) fn print_payload(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    let text = terminal::payload(text, &out);
    writeln!(out, "{text}")
}

/// Say what is wrong to the user who looks.
pub(crate) fn complain(text: impl AsRef<str>) {
    // There may be no reader.
    let _ = writeln!(io::stderr(), "rideau: {}", terminal::tamed(text.as_ref()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_is_typed_here() {
        let said = "NOSUCH pool \"x\": SHOW POOLS lists them, POOL.ADD adds one.";
        let wanted = "NOSUCH pool \"x\": `rideau status pools` lists them, POOL.ADD adds one.";
        assert_eq!(in_our_words(said), wanted);
        assert_eq!(in_our_words("CONFIG HISTORY"), "`rideau status history`");
    }
}
