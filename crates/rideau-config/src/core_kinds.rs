//! Parts of the config that are options of the core: queues, valves, meters.

use rideau_core::meter::Pie;
use rideau_core::{Instant, apps, meter, queue, valve};
use toml_edit::{Item, Value};

use super::core_options::Pairs;
use super::core_tables::{METERS, QUEUES, VALVES};
use super::kinds::Kind;
use super::section::{Entry, Section};
use super::shown::Rows;
use super::table::{Form, Key, Keyed};
use super::words::show_span;

/// The options of a queue.
pub(super) struct Queue;
/// The options of a queue in front of an application: what is not said is as for all of
/// them.
pub(super) struct AppQueue;
/// The options of a valve.
pub(super) struct Valve;
/// The options of the protector in front of a machine.
pub(super) struct Protector;
/// The options of meters.
pub(super) struct Meters;

impl Kind<queue::Options> for Queue {
    const FORM: Form = Form::Any(&[
        Form::Shared("queue", queue::Options::KEYS, || {
            Rows::of(&queue::Options::default())
        }),
        Form::Words(QUEUES),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<queue::Options> {
        let known = queue::Options::KEYS;
        Pairs::below(section, key.name, "queue", known)?.read(queue::Options::parse)
    }

    fn show(value: &queue::Options, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl Kind<queue::Options> for AppQueue {
    const FORM: Form = Queue::FORM;

    fn read(section: &Section<'_>, key: &Key) -> Option<queue::Options> {
        let usual = apps::Options::default().queue;
        let mut pairs = Pairs::below(section, key.name, "queue", queue::Options::KEYS)?;
        let at = pairs.at.clone();
        // A time-out that is named alone is meant.
        if pairs.word("timeout").is_some() {
            pairs.give("kind", "timeout".into(), &at);
        }
        if pairs
            .word("kind")
            .is_some_and(|(kind, _)| kind == "timeout")
        {
            pairs.give("timeout", show_span(apps::WAIT_MAX), &at);
        }
        if let Some(max) = usual.max {
            pairs.give("max", max.to_string(), &at);
        }
        pairs.read(queue::Options::parse)
    }

    fn show(value: &queue::Options, key: &Key, rows: &mut Rows) {
        Queue::show(value, key, rows);
    }
}

impl Kind<valve::Options> for Valve {
    const FORM: Form = Form::Any(&[
        Form::Shared("valve", valve::Options::KEYS, Vec::new),
        Form::Words(VALVES),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<valve::Options> {
        let known = valve::Options::KEYS;
        Pairs::below(section, key.name, "valve", known)?.read(valve::Options::parse)
    }

    fn show(value: &valve::Options, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl Kind<Pie> for Protector {
    const FORM: Form = Form::Table(Pie::KEYS, || Rows::of(&Pie::default()));

    fn read(section: &Section<'_>, key: &Key) -> Option<Pie> {
        let entry = section.entry(key.name)?;
        let mut pairs = Pairs::below(section, key.name, "protector", Pie::KEYS)?;
        pairs.give("kind", "pie".into(), &entry.at());
        match pairs.read(meter::Options::parse)? {
            meter::Options::Pie(pie) => Some(pie),
            _ => None,
        }
    }

    fn show(value: &Pie, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl Kind<Vec<meter::Options>> for Meters {
    const FORM: Form = Form::List(&Form::Any(&[
        Form::Shared("meter", meter::Options::KEYS, Vec::new),
        Form::Words(METERS),
    ]));

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<meter::Options>> {
        let meters = meters(section, key.name)?;
        check_meters(section, key.name, &meters);
        Some(meters)
    }

    fn show(value: &Vec<meter::Options>, key: &Key, rows: &mut Rows) {
        rows.tables(key.name, value);
    }
}

/// Meters: each a kind, or a table with its numbers.
fn meters(section: &Section<'_>, key: &str) -> Option<Vec<meter::Options>> {
    let entry = section.entry(key)?;
    let values: Vec<Item> = match entry.item {
        Item::Value(Value::Array(array)) => array.iter().cloned().map(Item::Value).collect(),
        Item::ArrayOfTables(tables) => tables.iter().cloned().map(Item::Table).collect(),
        item => vec![item.clone()],
    };
    let mut meters = Vec::new();
    for item in &values {
        let one = Section {
            notes: section.notes,
            at: entry.at(),
            entries: vec![Entry {
                name: "meter",
                key_at: item.span().unwrap_or_else(|| entry.at()),
                item,
                is_inherited: entry.is_inherited,
            }],
        };
        meters.extend(meter(&one));
    }
    (meters.len() == values.len()).then_some(meters)
}

fn meter(section: &Section<'_>) -> Option<meter::Options> {
    let pairs = Pairs::below(section, "meter", "meter", meter::Options::KEYS)?;
    if let Some((kind, at)) = pairs.word("kind")
        && let Some(hint) = match kind {
            "pie" => Some("write it as `protect = { … }`"),
            "update" => Some("name the broker in the regulator: `broker = \"…\"`"),
            _ => None,
        }
    {
        let message = format!("the meter {kind:?} has a key of its own");
        section.notes.error(at, message, hint);
        return None;
    }
    pairs.read(meter::Options::parse)
}

/// Note what is wrong with the meters of one machine together.
fn check_meters(section: &Section<'_>, key: &str, meters: &[meter::Options]) {
    let checked = meter::Meters::new(meters.to_vec(), Instant::START, &mut Vec::new());
    if let Err(error) = checked {
        let words = error.to_string();
        let words = words.strip_prefix("option ").unwrap_or(&words);
        let (message, hint) = words.split_once("; ").unwrap_or((words, ""));
        section.notes.error(section.at(key), message, hint);
    }
}
