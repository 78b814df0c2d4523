//! The JSON schema of a file, for editors that complete and check while one writes.

use toml_edit::Value;

use super::key::{Effect, Form, Key};
use super::parts::PARTS;
use super::reference::shared;
use super::shown::{rows_below, value_of};
use super::words::show_size;

/// The name of the version of JSON schemas that editors for TOML know.
const VERSION: &str = "http://json-schema.org/draft-07/schema#";
/// A text with a variable may become anything.
const VARIABLE: &str = r"\$\{";
const SPAN: &str = r"([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h)|0)";
const SIZE: &str = r"[0-9][0-9_]* *(B|KiB|MiB|GiB)";

/// An object of JSON as it is collected.
#[derive(Default)]
struct Object(Vec<(String, String)>);

/// The schema.
pub fn schema() -> String {
    let mut parts = Object::default();
    for part in PARTS {
        let table = table(part.keys, &(part.usual)());
        let by_name = || Object::typed("object").with("additionalProperties", table.written());
        let table = match (part.is_list, part.is_named) {
            (true, _) => {
                let list = Object::typed("array").with("items", table.written());
                any(&[list, by_name()])
            }
            (false, true) => by_name(),
            (false, false) => table,
        };
        parts.push(part.name, table.written());
    }
    let mut definitions = Object::default();
    let pattern = |pattern: &str| {
        let pattern = format!("^{pattern}$|{VARIABLE}");
        Object::typed("string").with("pattern", text(&pattern))
    };
    definitions.push("variable", {
        let any = Object::typed("string").with("pattern", text(VARIABLE));
        any.written()
    });
    let zero = Object::default().with("const", "0".into());
    definitions.push("span", any(&[pattern(SPAN), zero]).written());
    definitions.push("lead", pattern(&format!("-?{SPAN}")).written());
    definitions.push("size", pattern(SIZE).written());
    definitions.push("rate", pattern(&format!("{SIZE}/s")).written());
    for (name, keys, usual) in shared() {
        definitions.push(name, table(keys, &usual).written());
    }
    let schema = Object::default()
        .with("$schema", text(VERSION))
        .with("title", text("The config of rideau"))
        .with("type", text("object"))
        .with("additionalProperties", "false".into())
        .with("properties", parts.written())
        .with("definitions", definitions.written());
    format!("{}\n", schema.written())
}

fn table(keys: &[Key], usual: &[(String, String)]) -> Object {
    let mut properties = Object::default();
    for key in keys {
        let mut property = of_form(key, &key.form, usual);
        property.push("description", text(&description(key)));
        // Some defaults are said in words.
        let default = match key.usual {
            "" => value_of(usual, key.name).unwrap_or_default(),
            said => said.into(),
        };
        if let Ok(default) = default.parse::<Value>() {
            property.push("default", json(&default));
        }
        properties.push(key.name, property.written());
    }
    Object::typed("object")
        .with("additionalProperties", "false".into())
        .with("properties", properties.written())
}

fn description(key: &Key) -> String {
    let mut said = key.sentence();
    if let Form::Size = key.form
        && key.bounds != Key::BARE.bounds
    {
        let (least, most) = key.bounds;
        said += &format!(" From {} to {}.", show_size(least), show_size(most));
    }
    if !key.usual.is_empty() {
        said += &format!(" Default: {}.", key.usual);
    }
    match key.effect {
        Effect::Live => said,
        effect => format!("{said} A change: {}", effect.sentence()),
    }
}

fn of_form(key: &Key, form: &Form, usual: &[(String, String)]) -> Object {
    match form {
        Form::Text | Form::Path | Form::Address => Object::typed("string"),
        Form::Words(words) => {
            let words: Vec<_> = words.iter().map(|word| text(word)).collect();
            let words = Object::default().with("enum", format!("[{}]", words.join(", ")));
            any(&[words, reference("variable")])
        }
        Form::Answer => Object::typed("boolean"),
        Form::Number => {
            let (least, most) = key.bounds;
            let mut number = Object::typed("integer").with("minimum", least.to_string());
            if most != u64::MAX {
                number.push("maximum", most.to_string());
            }
            any(&[number, reference("variable")])
        }
        Form::Span | Form::Positive => reference("span"),
        Form::Lead => reference("lead"),
        Form::Size => reference("size"),
        Form::Rate => reference("rate"),
        Form::List(form) => {
            let one = of_form(key, form, usual);
            let list = Object::typed("array").with("items", one.written());
            any(&[list, one])
        }
        Form::Table(keys, rows) => {
            let own = rows_below(usual, key.name);
            let rows = if own.is_empty() { rows() } else { own };
            table(keys, &rows)
        }
        Form::Names(form) => {
            let one = of_form(key, form, usual);
            Object::typed("object").with("additionalProperties", one.written())
        }
        Form::Shared(name, ..) | Form::Again(name) => reference(name),
        Form::Any(forms) => {
            let forms: Vec<_> = forms.iter().map(|form| of_form(key, form, usual)).collect();
            any(&forms)
        }
    }
}

fn any(all: &[Object]) -> Object {
    let all: Vec<_> = all.iter().map(Object::written).collect();
    Object::default().with("anyOf", format!("[{}]", all.join(", ")))
}

/// Something that is defined once. What stands beside a plain reference would not
/// count, so it is one of one.
fn reference(name: &str) -> Object {
    any(&[Object::default().with("$ref", text(&format!("#/definitions/{name}")))])
}

impl Object {
    fn typed(name: &str) -> Self {
        Self::default().with("type", text(name))
    }

    fn with(mut self, key: &str, value: String) -> Self {
        self.push(key, value);
        self
    }

    fn push(&mut self, key: &str, value: String) {
        self.0.push((key.into(), value));
    }

    /// Each pair on a line of its own.
    fn written(&self) -> String {
        let pair = |(key, value): &(String, String)| {
            let pair = format!("{}: {value}", text(key));
            pair.replace('\n', "\n  ")
        };
        let pairs: Vec<_> = self.0.iter().map(pair).collect();
        format!("{{\n  {}\n}}", pairs.join(",\n  "))
    }
}

/// A text as JSON.
fn text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A value of TOML as JSON. Dates are not among the defaults.
fn json(value: &Value) -> String {
    match value {
        Value::String(string) => text(string.value()),
        Value::Integer(number) => number.value().to_string(),
        Value::Float(number) => number.value().to_string(),
        Value::Boolean(answer) => answer.value().to_string(),
        Value::Datetime(date) => text(&date.value().to_string()),
        Value::Array(array) => {
            let all: Vec<_> = array.iter().map(json).collect();
            format!("[{}]", all.join(", "))
        }
        Value::InlineTable(table) => {
            let pairs = table
                .iter()
                .map(|(key, value)| format!("{}: {}", text(key), json(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}
