//! The JSON schema of the config takes what the reader takes.

use std::fs;
use std::path::Path;

use rideau_config::{all_keys, read_span, schema};
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item};

#[test]
fn every_key_is_in_the_schema() {
    let schema = read();
    for (path, _) in all_keys() {
        let mut places = vec![&schema];
        for name in path.split('.') {
            let below = places
                .into_iter()
                .flat_map(|place| below(&schema, place, name));
            places = below.collect();
        }
        assert!(!places.is_empty(), "{path}");
        let is_said = |place: &&Value| place["description"].is_string();
        assert!(path.contains('*') || places.iter().all(is_said), "{path}");
    }
}

#[test]
fn every_default_in_the_schema_fits_it() {
    fn walk(schema: &Value, place: &Value, count: &mut usize) {
        if let Some(default) = place
            .get("default")
            .filter(|_| place.get("description").is_some())
        {
            assert!(fits(schema, place, default), "{place:#}");
            *count += 1;
        }
        let places = place
            .as_object()
            .into_iter()
            .flat_map(|object| object.values());
        let listed = place.as_array().into_iter().flatten();
        places
            .chain(listed)
            .for_each(|place| walk(schema, place, count));
    }
    let schema = read();
    let mut count = 0;
    walk(&schema, &schema, &mut count);
    assert!(count > 100, "{count}");
}

#[test]
fn the_schema_takes_every_example_and_no_file_that_is_wrong() {
    let schema = read();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(fits(&schema, &schema, &to_json(&text)), "{path:?}");
    }
    for (text, is_right) in [
        ("[server]\nthreads = 4", true),
        ("[server]\nthreads = \"${THREADS}\"", true),
        ("[server]\nthreads = 4000", false),
        ("[server]\ntreads = 4", false),
        ("[server]\ndrain = 20", false),
        ("[server]\ndrain = \"20s\"", true),
        ("[log]\nlevel = \"loud\"", false),
        ("[pool.a]\nqueue = \"codel\"", true),
        (
            "[pool.a]\nqueue = { kind = \"codel\", traget = \"1s\" }",
            false,
        ),
        (
            "[regulator.a]\nvalve = { kind = \"least_of\", of = [{ kind = \"open\" }] }",
            true,
        ),
        (
            "[regulator.a]\nvalve = { kind = \"least_of\", of = [{ kind = \"shut\" }] }",
            false,
        ),
        ("[app.a]\nexec = [\"x\"]\nfiles_max = \"none\"", true),
        ("[app.a]\nexec = [\"x\"]\nfiles_max = \"lots\"", false),
        ("[limits]\nframe_max = \"1MB\"", false),
        ("[pols.a]", false),
    ] {
        assert_eq!(fits(&schema, &schema, &to_json(text)), is_right, "{text}");
    }
}

fn read() -> Value {
    serde_json::from_str(&schema()).unwrap()
}

/// What may stand below a name, wherever the schema says so.
fn below<'a>(schema: &'a Value, place: &'a Value, name: &str) -> Vec<&'a Value> {
    let own = match name {
        "*" => place.get("additionalProperties"),
        name => place.get("properties").and_then(|all| all.get(name)),
    };
    let mut found: Vec<_> = own.into_iter().collect();
    let others = place.get("anyOf").and_then(Value::as_array);
    let others = others.into_iter().flatten().chain(place.get("items"));
    for other in others.chain(target(schema, place)) {
        found.extend(below(schema, other, name));
    }
    found
}

/// What a reference means.
fn target<'a>(schema: &'a Value, place: &Value) -> Option<&'a Value> {
    let name = place.get("$ref")?.as_str()?;
    schema.pointer(name.strip_prefix('#')?)
}

/// Whether a value is what this place of the schema says: all that our schemas use.
fn fits(schema: &Value, place: &Value, value: &Value) -> bool {
    let Some(rules) = place.as_object() else {
        return place != &json!(false);
    };
    rules.iter().all(|(rule, said)| match rule.as_str() {
        "$ref" => fits(schema, target(schema, place).unwrap(), value),
        "anyOf" => said
            .as_array()
            .unwrap()
            .iter()
            .any(|one| fits(schema, one, value)),
        "enum" => said.as_array().unwrap().contains(value),
        "const" => said == value,
        "type" => match said.as_str().unwrap() {
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{other}"),
        },
        "minimum" => value.as_u64().is_none_or(|it| it >= said.as_u64().unwrap()),
        "maximum" => value.as_u64().is_none_or(|it| it <= said.as_u64().unwrap()),
        "pattern" => value
            .as_str()
            .is_none_or(|text| matches(said.as_str().unwrap(), text)),
        "items" => value
            .as_array()
            .is_none_or(|all| all.iter().all(|one| fits(schema, said, one))),
        "properties" => true,
        "additionalProperties" => value.as_object().is_none_or(|all| {
            let rule = |name| place.get("properties").and_then(|all| all.get(name));
            all.iter()
                .all(|(name, one)| fits(schema, rule(name).unwrap_or(said), one))
        }),
        "$schema" | "title" | "description" | "default" | "definitions" => true,
        other => panic!("{other}"),
    })
}

/// The few patterns that there are.
fn matches(pattern: &str, text: &str) -> bool {
    let is_span = read_span(text.trim_start_matches('-')).is_ok();
    let size = match pattern.contains("/s") {
        true => text.strip_suffix("/s"),
        false => Some(text),
    };
    let is_size = ["B", "KiB", "MiB", "GiB"].iter().any(|unit| {
        let number = size.and_then(|size| size.strip_suffix(unit));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    });
    text.contains("${")
        || (pattern.contains("|us|") && is_span)
        || (pattern.contains("|KiB|") && is_size)
}

fn to_json(text: &str) -> Value {
    fn item(item: &Item) -> Value {
        match item {
            Item::Value(one) => value(one),
            Item::ArrayOfTables(all) => all.iter().map(|one| item_of(one.iter())).collect(),
            Item::Table(table) => item_of(table.iter()),
            Item::None => Value::Null,
        }
    }
    fn item_of<'a>(all: impl Iterator<Item = (&'a str, &'a Item)>) -> Value {
        all.map(|(key, one)| (key.to_owned(), item(one))).collect()
    }
    fn value(one: &toml_edit::Value) -> Value {
        match one {
            toml_edit::Value::String(text) => json!(text.value()),
            toml_edit::Value::Integer(number) => json!(number.value()),
            toml_edit::Value::Boolean(answer) => json!(answer.value()),
            toml_edit::Value::Array(all) => all.iter().map(value).collect(),
            toml_edit::Value::InlineTable(table) => {
                let pairs = table.iter();
                pairs
                    .map(|(key, one)| (key.to_owned(), value(one)))
                    .collect()
            }
            other => panic!("{other}"),
        }
    }
    let document: DocumentMut = text.parse().unwrap();
    item(document.as_item())
}
