//! Looks once a second at the numbers that alarms are about.
//!
//! A number is a fact of a thing, as the history or `SHOW` has it. Only things that an alarm
//! names are looked at, so without alarms nothing is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau_config::AlarmRule;
use rideau_process::panics;
use tokio::time::MissedTickBehavior;

use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::facts::{
    AppNow, BrokerNow, CertificateNow, ClusterNow, Fact, Facts, GroupNow, Limit, PoolNow, RangeNow,
    RegulatorNow, RuleNow, Surface, Value, ViewNow, in_unit,
};
use crate::view::history::{HistoryRow, Reader};

const EVERY: Duration = Duration::from_secs(1);
/// The part of asks that is refused is of this many looks.
const SHARE_OF: usize = 10;
/// What was known this long ago still counts where nothing new is: waits of which none ended.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// The part of asks that got nothing, of things that count both.
const SHARE: &str = "drop_rate";

/// A number of a thing: kind, name, number.
type WantedNumber = (&'static str, String, &'static str);

/// What is remembered between two looks.
struct AlarmWatcher {
    reader: Reader,
    /// Of each thing, what was granted and refused at the last looks.
    shares: HashMap<(&'static str, String), VecDeque<(f64, f64)>>,
    /// The last value of each number, and when it was known.
    known: HashMap<WantedNumber, (f64, Instant)>,
}

/// The values that were found at one look.
struct AlarmLook<'a> {
    watcher: &'a mut AlarmWatcher,
    rules: &'a [AlarmRule],
    found: HashMap<WantedNumber, f64>,
    things: usize,
}

/// Looks at all things of a kind.
type KindLook<'f, 'a> = &'f dyn Fn(&mut AlarmLook<'a>);

/// Look for ever.
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watcher = AlarmWatcher::new(Instant::now());
    loop {
        ticks.tick().await;
        let rules = daemon.alarms.rules();
        if rules.is_empty() {
            continue;
        }
        let of = Arc::clone(&daemon);
        // Of many things this takes a while: requests are answered meanwhile.
        let looked = panics::away(move || {
            watcher.look(&of, &rules, Instant::now());
            watcher
        });
        watcher = match looked.await {
            Ok(watcher) => watcher,
            // What it remembered may be wrong.
            Err(_) => AlarmWatcher::new(Instant::now()),
        };
    }
}

impl AlarmWatcher {
    fn new(now: Instant) -> Self {
        Self {
            reader: Reader::new(now),
            shares: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Look at every number that a rule is about, and step the alarms.
    fn look(&mut self, daemon: &Daemon, rules: &[AlarmRule], now: Instant) {
        self.reader.begin(now);
        let mut look = AlarmLook {
            watcher: self,
            rules,
            found: HashMap::new(),
            things: 0,
        };
        look.all(daemon);
        let (found, things) = (look.found, look.things);
        self.reader.end(things);
        self.known
            .retain(|_, (_, at)| now.duration_since(*at) < KNOWN_FOR);
        let values = rules.iter().map(|rule| {
            let wanted = (rule.kind, rule.name.clone(), rule.number);
            let value = found.get(&wanted).copied();
            let value = match value {
                Some(value) if value.is_finite() => {
                    self.known.insert(wanted, (value, now));
                    Some(value)
                }
                Some(_) => self.known.get(&wanted).map(|(value, _)| *value),
                // The thing is not there.
                None => None,
            };
            (rule.clone(), value)
        });
        let values: Vec<_> = values.collect();
        // Things come and go.
        if self.shares.len() > 2 * rules.len() {
            self.shares.clear();
        }
        daemon.alarms.step(&values);
    }

    /// Of all asks of the last looks, the part that got nothing.
    fn share(&mut self, row: &HistoryRow) -> f64 {
        let value = |name: &str| {
            let found = row.values.iter().find(|(known, _)| known == name);
            found.map_or(0.0, |(_, value)| *value).max(0.0)
        };
        let of = self.shares.entry((row.kind, row.name.clone())).or_default();
        if of.len() == SHARE_OF {
            of.pop_front();
        }
        of.push_back((value("grants_per_s"), value("refusals_per_s")));
        let (grants, refusals) = of.iter().fold((0.0, 0.0), |(grants, refusals), one| {
            (grants + one.0, refusals + one.1)
        });
        if grants + refusals > 0.0 {
            refusals / (grants + refusals)
        } else {
            0.0
        }
    }
}

impl<'a> AlarmLook<'a> {
    fn wants(&self, kind: &str) -> bool {
        self.rules.iter().any(|rule| rule.kind == kind)
    }

    /// Look at each kind that a rule names.
    fn all(&mut self, daemon: &Daemon) {
        let catalog = daemon.catalog.load();
        let cluster = daemon.cluster.as_deref();
        let kinds: [(&str, KindLook<'_, 'a>); 11] = [
            ("pool", &|look| look.at(&PoolNow::all(&catalog))),
            ("group", &|look| {
                look.at(&GroupNow::all(&catalog, Viewer::ALL))
            }),
            ("broker", &|look| look.at(&BrokerNow::all(&catalog))),
            ("regulator", &|look| look.at(&RegulatorNow::all(&catalog))),
            ("lock", &|look| look.at(&RuleNow::all(&catalog))),
            ("range", &|look| look.at(&RangeNow::all(daemon, false))),
            ("view", &|look| {
                look.at(&ViewNow::all(&catalog, &daemon.values, Viewer::ALL))
            }),
            ("app", &|look| {
                look.at(&AppNow::all(&daemon.apps, Viewer::ALL))
            }),
            ("certificate", &|look| {
                look.at(&CertificateNow::all(&daemon.certificates))
            }),
            ("limits", &|look| look.at(&Limit::all(daemon))),
            ("cluster", &|look| look.at(&ClusterNow::all(cluster))),
        ];
        for (kind, read) in kinds {
            if self.wants(kind) {
                read(self);
            }
        }
        if self.wants("server") {
            let row = self.watcher.reader.server(daemon);
            for rule in self.rules.iter().filter(|rule| rule.kind == "server") {
                self.take(rule, &row, None);
            }
        }
    }

    /// Look at the things that rules name.
    fn at<T: Facts>(&mut self, all: &[T]) {
        let rules = self.rules.iter().filter(|rule| rule.kind == T::KIND.word);
        let rules: Vec<_> = rules.collect();
        for one in all {
            let name = one.called();
            // What there is only one of has no name.
            let is_of = |rule: &&&AlarmRule| rule.name == name || rule.name.is_empty();
            let mut own = rules.iter().filter(is_of).peekable();
            if own.peek().is_none() {
                continue;
            }
            let mut row = self.watcher.reader.of(one);
            self.things += 1;
            if own.clone().any(|rule| rule.number == SHARE) {
                let share = self.watcher.share(&row);
                row.values.push((SHARE.into(), share));
            }
            for rule in own {
                self.take(rule, &row, shown(one, rule.number));
            }
        }
    }

    fn take(&mut self, rule: &AlarmRule, row: &HistoryRow, or: Option<f64>) {
        let found = row.values.iter().find(|(known, _)| known == rule.number);
        let value = found.map(|(_, value)| *value).or(or);
        if let Some(value) = value {
            let wanted = (rule.kind, rule.name.clone(), rule.number);
            self.found.insert(wanted, value);
        }
    }
}

/// A number that the history does not have.
fn shown<T: Facts>(one: &T, number: &str) -> Option<f64> {
    let is_wanted = |fact: &&Fact<T>| fact.about.names(is_shown).any(|name| name == number);
    let mut facts = T::ALL.iter().filter(is_wanted);
    facts.find_map(|fact| match (fact.value)(one) {
        Value::Count(count) => Some(count as f64),
        Value::Ratio(ratio) => Some(ratio),
        Value::Span(span) => Some(in_unit(span, number) as f64),
        Value::Size(size) => Some(size.to_f64()),
        _ => None,
    })
}

const fn is_shown(surface: Surface) -> bool {
    matches!(surface, Surface::Show { .. } | Surface::Alarm)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use rideau_config::{ALARM_NUMBERS, Config};

    use super::*;
    use crate::redis::commands::NAMES;
    use crate::view::facts::{Described, KINDS, Type};

    /// The numbers of the server itself. Its grants are known only where all things are read.
    const SERVER: [&str; 6] = [
        "clients",
        "sessions",
        "waiting",
        "keys",
        "commands_per_s",
        "refusals_per_s",
    ];
    /// Things that come and go, or that alarms are themselves.
    const NOT_NAMED: [&str; 8] = [
        "process",
        "client",
        "session",
        "holder",
        "drop",
        "node",
        "partition",
        "alarm",
    ];
    /// Numbers that take a look at every key or value that is held.
    const NOT_CHEAP: [(&str, &str); 5] = [
        ("lock", "keys"),
        ("lock", "held"),
        ("lock", "waiting"),
        ("lock", "known"),
        ("range", "ending_1h"),
    ];

    fn span_unit(name: &str) -> &'static str {
        match name.rsplit('_').next() {
            Some("us") => "us",
            Some("ms") => "ms",
            _ => "s",
        }
    }

    /// The numbers of a kind, with their units.
    fn numbers(described: &Described) -> Vec<(String, &'static str)> {
        let mut all: Vec<(String, &'static str)> = Vec::new();
        let mut add = |name: String, unit| {
            let is_cheap = !NOT_CHEAP.contains(&(described.kind.word, &name));
            if is_cheap && all.iter().all(|(known, _)| *known != name) {
                all.push((name, unit));
            }
        };
        let facts = (described.facts)();
        for about in &facts {
            for name in about.names(|surface| surface == Surface::History) {
                match about.is {
                    Type::Spans => {
                        add(format!("{name}_p50_us"), "us");
                        add(format!("{name}_p99_us"), "us");
                    }
                    Type::Span => add(name.into(), span_unit(name)),
                    _ => add(name.into(), "count"),
                }
            }
        }
        let mut rates = Vec::new();
        for about in &facts {
            for name in about.names(|surface| surface == Surface::Rate) {
                add(format!("{name}_per_s"), "count");
                rates.push(name);
            }
        }
        if ["grants", "refusals"]
            .iter()
            .all(|rate| rates.contains(rate))
        {
            add(SHARE.into(), "share");
        }
        for about in &facts {
            for name in about.names(is_shown) {
                match about.is {
                    Type::Count | Type::Size => add(name.into(), "count"),
                    Type::Bytes => add(name.into(), "bytes"),
                    Type::Ratio => add(name.into(), "share"),
                    Type::Span => add(name.into(), span_unit(name)),
                    _ => (),
                }
            }
        }
        all
    }

    /// The config knows all numbers by a copy of their names. `UPDATE_DOCS=1` writes it anew.
    #[test]
    fn docs_have_every_number_of_alarms() {
        let mut text = String::new();
        for name in SERVER {
            let _ = writeln!(text, "server {name} count");
        }
        let kinds = KINDS
            .iter()
            .filter(|known| !NOT_NAMED.contains(&known.kind.word));
        for known in kinds {
            for (name, unit) in numbers(known) {
                let _ = writeln!(text, "{} {name} {unit}", known.kind.word);
            }
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let path = crates.join("rideau-config/src/alarm/numbers.txt");
            std::fs::write(path, &text).unwrap();
        } else {
            assert!(text == ALARM_NUMBERS, "UPDATE_DOCS=1 writes it:\n{text}");
        }
    }

    fn daemon(text: &str) -> Arc<Daemon> {
        let config = Config::parse(text, "test", &|_| None);
        let config = config.unwrap_or_else(|faults| panic!("{}", faults.render(false)));
        Daemon::new(config, NAMES).unwrap()
    }

    const MANY: &str = "\
[store]
kind = \"memory\"
[pool.pg]
group = \"db\"
max = 3
member = { list = [\"a\", \"b\", \"c\"] }
[broker.jobs]
[lock.\"*\"]
[range.office]
values = [\"1-99\"]
start = \"free\"
";

    /// Every number of a thing that there is has a value, or is known to have none.
    #[tokio::test]
    async fn every_number_of_the_table_can_be_looked_at() {
        let things = [
            ("server", ""),
            ("pool", ".pg"),
            ("group", ".@db"),
            ("broker", ".jobs"),
            ("lock", ".*"),
            ("range", ".office"),
            ("limits", ".connections_max"),
        ];
        let rows = ALARM_NUMBERS.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (kind, number) = (words.next()?, words.next()?);
            let (_, name) = things.iter().find(|(known, _)| *known == kind)?;
            let limit = match words.next()? {
                "count" => "1",
                "share" => "1%",
                "bytes" => "1B",
                _ => "1s",
            };
            let kind = if kind == "group" { "pool" } else { kind };
            Some(format!("{kind}{name}.{number} > {limit}"))
        });
        let rules: Vec<_> = rows.map(|text| AlarmRule::parse(&text).unwrap()).collect();
        assert!(rules.len() > 60, "{}", rules.len());
        let daemon = daemon(MANY);
        let mut watcher = AlarmWatcher::new(Instant::now());
        watcher.reader.begin(Instant::now());
        let mut look = AlarmLook {
            watcher: &mut watcher,
            rules: &rules,
            found: HashMap::new(),
            things: 0,
        };
        look.all(&daemon);
        // What there is nothing of now has no value.
        let empty = [
            "oldest_hold_us",
            "ask_expects_us",
            "offer_expects_us",
            "p99_us",
        ];
        for rule in rules.iter().filter(|rule| !empty.contains(&rule.number)) {
            let wanted = (rule.kind, rule.name.clone(), rule.number);
            assert!(look.found.contains_key(&wanted), "{rule}");
        }
        let value = |kind, name: &str, number| look.found[&(kind, name.to_owned(), number)];
        assert_eq!(value("pool", "pg", "free"), 3.0);
        assert_eq!(value("group", "@db", "free"), 3.0);
        assert_eq!(value("range", "office", "free"), 99.0);
        assert_eq!(value("broker", "jobs", "drop_rate"), 0.0);
    }

    #[tokio::test]
    async fn an_alarm_follows_what_happens() {
        let alarm = "[[alarm]]\nname = \"empty\"\nwhen = \"pool.@db.free < 3\"\n";
        let daemon = daemon(&format!("{MANY}{alarm}"));
        let rules = daemon.alarms.rules();
        let mut watcher = AlarmWatcher::new(Instant::now());
        watcher.look(&daemon, &rules, Instant::now());
        assert!(!daemon.alarms.all()[0].is_on());
        let pool = daemon.catalog.load().pools["pg"].pool.clone();
        let held = pool.take().await.unwrap();
        watcher.look(&daemon, &rules, Instant::now());
        assert!(daemon.alarms.all()[0].is_on());
        assert_eq!(daemon.alarms.all()[0].value, Some(2.0));
        drop(held);
        watcher.look(&daemon, &rules, Instant::now());
        assert!(!daemon.alarms.all()[0].is_on());
    }

    #[test]
    fn the_part_that_is_refused_is_of_the_last_looks() {
        let mut watcher = AlarmWatcher::new(Instant::now());
        let mut share = |grants: f64, refusals: f64| {
            let values = [("grants_per_s", grants), ("refusals_per_s", refusals)];
            watcher.share(&HistoryRow {
                kind: "broker",
                name: "jobs".into(),
                values: values.map(|(name, value)| (name.into(), value)).into(),
                state: None,
                waits: None,
            })
        };
        assert_eq!(share(0.0, 0.0), 0.0);
        assert_eq!(share(9.0, 1.0), 0.1);
        for _ in 0..8 {
            assert_eq!(share(0.0, 0.0), 0.1);
        }
        assert_eq!(share(0.0, 0.0), 0.1);
        assert_eq!(share(0.0, 0.0), 0.0, "that was too long ago");
    }
}
