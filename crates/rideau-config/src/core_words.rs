//! Values of queues, valves and meters that are read by rules of the core.

use std::num::NonZeroU32;

use rideau_core::queue::{FairOptions, Index, ORDERS, Order};
use rideau_core::{Flow, OptionError, Rule, Settings, meter, queue, valve};
use toml_edit::Item;

use super::core_read::{items, read_all, sentence};
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, Number, Span};
use super::near::suggest_word;
use super::section::{Section, kind_of};
use super::shown::Rows;

/// Valves within a valve.
pub(super) struct Valves;
/// Which ask is served first.
pub(super) struct OrderWord;
/// The kind of `fair_by`.
pub(super) struct FairBy;
/// How many lines there are.
pub(super) struct Lines;
/// Turns of flows. Only the hashes of their names are kept.
pub(super) struct Weights;
/// A number that is not shown if it is no limit.
pub(super) struct Most;
/// The target of a meter, which may be negative for some.
pub(super) struct MeterTarget;
/// How many may wait in a queue: a number, or a word.
pub(super) struct QueueMax;

impl Kind<Vec<valve::Options>> for Valves {
    const FORM: Form = Form::List(&Form::Again("valve"));

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<valve::Options>> {
        let item = section.entry(key.name)?.item;
        let is_list = item.is_array() || item.is_array_of_tables();
        let items = items(item);
        if !is_list || !items.iter().all(Item::is_table_like) {
            let message = format!("`{}` has to be a list of valves", key.name);
            let hint = "write [{ kind = … }, { kind = … }]";
            section.notes.error(section.at(key.name), message, hint);
            return None;
        }
        Some(read_all(section, key, &items))
    }

    fn show(value: &Vec<valve::Options>, key: &Key, rows: &mut Rows) {
        rows.tables(key.name, value, Keyed::show_keys);
    }
}

impl Kind<Order> for OrderWord {
    const FORM: Form = Form::Words(ORDERS);

    fn read(section: &Section<'_>, key: &Key) -> Option<Order> {
        let options = by_core(section, key, |word| Settings::new([(key.name, word)]))?;
        Some(options.order)
    }

    fn show(value: &Order, key: &Key, rows: &mut Rows) {
        let at = match value {
            Order::Fifo => 0,
            Order::Lifo => 1,
            Order::Adaptive { .. } => 2,
        };
        rows.text(key.name, ORDERS[at]);
    }
}

impl Kind<queue::Options> for QueueMax {
    const FORM: Form = Form::Any(&[Form::Number, Form::Words(&["none", "auto"])]);

    fn read(_: &Section<'_>, _: &Key) -> Option<queue::Options> {
        None
    }

    fn read_into(queue: &mut queue::Options, section: &Section<'_>, key: &Key) {
        queue.max_fits = section.is_word(key.name, "auto");
        if queue.max_fits {
            return;
        }
        if section.is_word(key.name, "none") {
            queue.max = None;
        } else if let Some(max) = Number::read_or(section, key, ", or \"none\", or \"auto\"") {
            queue.max = Some(max);
        }
    }

    fn show(queue: &queue::Options, key: &Key, rows: &mut Rows) {
        match queue.max {
            _ if queue.max_fits => rows.text(key.name, "auto"),
            Some(max) => Number::show(&max, key, rows),
            None => rows.text(key.name, "none"),
        }
    }
}

impl Kind<Option<FairOptions>> for FairBy {
    const FORM: Form = Form::Text;

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<FairOptions>> {
        // How many lines there may be, another key says.
        let most = u32::MAX.to_string();
        let options = by_core(section, key, |word| {
            Settings::new([(key.name, word), ("flows_max", &most)])
        })?;
        let index = options.fair?.index;
        Some(Some(FairOptions {
            index,
            ..FairOptions::default()
        }))
    }

    fn show(value: &Option<FairOptions>, key: &Key, rows: &mut Rows) {
        match value.as_ref().map(|fair| fair.index) {
            Some(Index::Flow) => rows.text(key.name, "flow"),
            Some(Index::Hashed(lines)) => rows.text(key.name, &format!("hash:{lines}")),
            None => (),
        }
    }
}

impl Kind<NonZeroU32> for Lines {
    const FORM: Form = Form::Number;

    fn read(section: &Section<'_>, key: &Key) -> Option<NonZeroU32> {
        NonZeroU32::new(Number::read(section, key)?)
    }

    fn show(value: &NonZeroU32, key: &Key, rows: &mut Rows) {
        Number::show(&value.get(), key, rows);
    }
}

impl Kind<Vec<(Flow, NonZeroU32)>> for Weights {
    const FORM: Form = Form::Any(&[Form::Names(&Form::Number), Form::Text]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<(Flow, NonZeroU32)>> {
        let entry = section.entry(key.name)?;
        let weight = |(name, item): (&str, &Item)| {
            let weight = item.as_integer().filter(|_| !name.contains(','));
            weight.map(|weight| format!("{name}:{weight}"))
        };
        let words: Option<Vec<_>> = match (entry.item.as_table_like(), entry.item.as_str()) {
            (Some(table), _) => table.iter().map(weight).collect(),
            (None, text) => text.map(|text| vec![text.to_owned()]),
        };
        let Some(words) = words else {
            let message = format!("`{}` cannot be {}", key.name, kind_of(entry.item));
            let hint = "write { name = 3, other = 2 }, without commas in names";
            section.notes.error(entry.at(), message, hint);
            return None;
        };
        let words = [("fair_by", "flow"), (key.name, &words.join(","))];
        let parsed = Settings::new(words).and_then(queue::Options::parse);
        let parsed = parsed.map_err(|error| sentence(key.name, &error.rule));
        Some(section.note(&entry.at(), parsed)?.fair?.weights)
    }

    fn show(value: &Vec<(Flow, NonZeroU32)>, key: &Key, rows: &mut Rows) {
        if !value.is_empty() {
            let weight = |(flow, weight): &(Flow, NonZeroU32)| format!("{:x}:{weight}", flow.0);
            let weights: Vec<_> = value.iter().map(weight).collect();
            rows.text(key.name, &weights.join(","));
        }
    }
}

impl Kind<usize> for Most {
    const FORM: Form = Form::Number;

    fn read(section: &Section<'_>, key: &Key) -> Option<usize> {
        Number::read(section, key)
    }

    fn show(value: &usize, key: &Key, rows: &mut Rows) {
        if *value != usize::MAX {
            Number::show(value, key, rows);
        }
    }
}

impl Kind<meter::Options> for MeterTarget {
    const FORM: Form = Form::Lead;

    fn read(_: &Section<'_>, _: &Key) -> Option<meter::Options> {
        None
    }

    fn read_into(place: &mut meter::Options, section: &Section<'_>, key: &Key) {
        match place {
            meter::Options::Overload(meter) => Span::read_into(&mut meter.target, section, key),
            meter::Options::Underload(meter) => Span::read_into(&mut meter.target, section, key),
            _ => (),
        }
    }

    fn show(value: &meter::Options, key: &Key, rows: &mut Rows) {
        match value {
            meter::Options::Overload(meter) => Span::show(&meter.target, key, rows),
            meter::Options::Underload(meter) => Span::show(&meter.target, key, rows),
            _ => (),
        }
    }
}

/// Parses one word of a queue with the core.
fn by_core(
    section: &Section<'_>,
    key: &Key,
    words: impl Fn(&str) -> Result<Settings, OptionError>,
) -> Option<queue::Options> {
    section.made(key.name, |text| {
        let parsed = words(text).and_then(queue::Options::parse);
        parsed.map_err(|error| match error.rule {
            Rule::NotOneOf(words) => (
                format!("`{}` cannot be {text:?}", key.name),
                suggest_word(text, words),
            ),
            rule => sentence(key.name, &rule),
        })
    })
}
