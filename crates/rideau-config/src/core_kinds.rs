//! Parts of the config that are options of the core: queues, valves, meters.

use rideau_core::meter::Pie;
use rideau_core::queue::Shedding;
use rideau_core::{Instant, OptionError, Settings, apps, meter, queue, valve};

use super::core_read::{CoreOptions, check, items, read, read_all, sentence};
use super::core_tables::{METERS, VALVES};
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::Kind;
use super::section::Section;
use super::shown::Rows;

impl CoreOptions for queue::Options {
    const WHAT: &'static str = "queue";

    fn of_kind(kind: &str) -> Option<Self> {
        Settings::new([("kind", kind)]).and_then(Self::parse).ok()
    }

    fn validate(&self) -> Result<(), OptionError> {
        self.validate()
    }

    fn finish(&mut self, section: &Section<'_>) {
        if let Shedding::BoundedCoDel {
            target, wait_max, ..
        } = &mut self.shedding
            && !section.has("wait_max")
        {
            *wait_max = target.saturating_mul(2);
        }
    }
}

impl CoreOptions for valve::Options {
    const WHAT: &'static str = "valve";

    fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "least_of" => Some(Self::LeastOf(Vec::new())),
            kind => Settings::new([("kind", kind)]).and_then(Self::parse).ok(),
        }
    }

    fn validate(&self) -> Result<(), OptionError> {
        valve::Valve::new(self, 0, Instant::START).map(drop)
    }
}

impl CoreOptions for meter::Options {
    const WHAT: &'static str = "meter";
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[
        ("pie", "write it as `protect = { … }`"),
        (
            "update",
            "name the broker in the regulator: `broker = \"…\"`",
        ),
    ];

    fn of_kind(kind: &str) -> Option<Self> {
        Settings::new([("kind", kind)]).and_then(Self::parse).ok()
    }

    fn validate(&self) -> Result<(), OptionError> {
        let alone = meter::Meters::new(vec![self.clone()], Instant::START, &mut Vec::new());
        alone.map(drop).map_err(|error| {
            let option = error.option.rsplit('.').next().unwrap_or_default();
            OptionError::new(option, error.rule)
        })
    }
}

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
            queue::Options::default().rows()
        }),
        Form::Words(queue::KINDS),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<queue::Options> {
        let entry = section.entry(key.name)?;
        read(section, entry, Some("paced"), CoreOptions::of_kind)
    }

    fn show(value: &queue::Options, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl Kind<queue::Options> for AppQueue {
    const FORM: Form = Queue::FORM;

    fn read(section: &Section<'_>, key: &Key) -> Option<queue::Options> {
        let entry = section.entry(key.name)?;
        let table = entry.item.as_table_like();
        // A time-out that is named alone is meant.
        let usual = match table.is_some_and(|table| table.contains_key("timeout")) {
            true => "timeout",
            false => "paced",
        };
        read(section, entry, Some(usual), |kind| {
            let mut options = queue::Options::of_kind(kind)?;
            options.max_fits = true;
            if let Shedding::Timeout { wait_max } = &mut options.shedding {
                *wait_max = apps::WAIT_MAX;
            }
            Some(options)
        })
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
        let entry = section.entry(key.name)?;
        read(section, entry, None, CoreOptions::of_kind)
    }

    fn show(value: &valve::Options, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl Kind<Vec<meter::Options>> for Meters {
    const FORM: Form = Form::List(&Form::Any(&[
        Form::Shared("meter", meter::Options::KEYS, Vec::new),
        Form::Words(METERS),
    ]));

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<meter::Options>> {
        let meters = read_all(section, key, &items(section.entry(key.name)?.item));
        // What is wrong with them together.
        let all = meter::Meters::new(meters.clone(), Instant::START, &mut Vec::new());
        if let Err(error) = all {
            let (message, hint) = sentence(&error.option, &error.rule);
            section.notes.error(section.at(key.name), message, hint);
        }
        Some(meters)
    }

    fn show(value: &Vec<meter::Options>, key: &Key, rows: &mut Rows) {
        rows.tables(key.name, value, Keyed::show_keys);
    }
}

impl Kind<Pie> for Protector {
    const FORM: Form = Form::Table(Pie::KEYS, || Pie::default().rows());

    fn read(section: &Section<'_>, key: &Key) -> Option<Pie> {
        let mut part = section.part_as(key, "a protector")?;
        part.at = section.at(key.name);
        let mut pie = Pie::default();
        pie.read_keys(&part);
        let validate = |pie: &Pie| meter::Options::Pie(pie.clone()).validate();
        check(&part, &mut pie, &Pie::default(), validate);
        Some(pie)
    }

    fn show(value: &Pie, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}
