//! Alarms, which are a list of tables with names.

use std::time::Duration;

use rideau_config::text::{self, PathFault};
use rideau_config::{Config, join_shared, plan, split_shared};

const TEXT: &str = "\
[pool.pg]
group = \"db\"
member = { list = [\"a\"] }

# At night.
[[alarm]]
name = \"pg almost empty\" # As it is called.
when = \"pool.@db.free < 2\"
for = \"10s\"
post = \"https://hooks.example/ops\"

[[alarm]]
name = \"many wait\"
when = \"server.waiting>=1_000\"
";

fn parsed(text: &str) -> Config {
    let parsed = Config::parse(text, "test", &|_| None);
    parsed.unwrap_or_else(|faults| panic!("{}", faults.render(false)))
}

#[test]
fn alarms_are_a_list() {
    let config = parsed(TEXT);
    let [pg, many] = &config.alarms[..] else {
        panic!("{:?}", config.alarms);
    };
    assert_eq!(
        (&*pg.name, pg.hold),
        ("pg almost empty", Duration::from_secs(10))
    );
    assert_eq!(
        pg.post.as_ref().map(|url| url.host()),
        Some("hooks.example")
    );
    assert_eq!(many.when.to_string(), "server.waiting >= 1_000");
    assert_eq!((many.when.limit, many.hold), (1_000.0, Duration::ZERO));
    assert!(many.post.is_none());
    let value = config.value("alarm.\"many wait\".when");
    assert_eq!(value.as_deref(), Some("\"server.waiting >= 1_000\""));
}

/// What `SHOW CONFIG` says is a config as well, and so is a list on a line.
#[test]
fn every_way_to_write_an_alarm_means_the_same() {
    let config = parsed(TEXT);
    let rows = config.rows().into_iter();
    let rows: Vec<_> = rows
        .filter(|(path, _)| path.starts_with("alarm") || path.starts_with("pool.pg.member"))
        .chain([("pool.pg.group".into(), "\"db\"".into())])
        .map(|(path, value)| format!("{path} = {value}\n"))
        .collect();
    assert_eq!(parsed(&rows.concat()).alarms, config.alarms);
    let line = "alarm = [{ name = \"many wait\", when = \"server.waiting >= 1_000\" }]";
    assert_eq!(parsed(line).alarms[..], config.alarms[1..]);
}

#[test]
fn one_key_of_an_alarm_can_be_changed() {
    let path = "alarm.\"pg almost empty\".when";
    let was = text::get(TEXT, path).unwrap();
    assert_eq!(was.as_deref(), Some("\"pool.@db.free < 2\""));
    let changed = text::set(TEXT, path, "pool.pg.free < 3").unwrap();
    assert!(changed.contains("# At night.\n[[alarm]]\nname = \"pg almost empty\" # As"));
    let (old, new) = (parsed(TEXT), parsed(&changed));
    assert_eq!(new.alarms[0].when.to_string(), "pool.pg.free < 3");
    assert_eq!(new.alarms[1], old.alarms[1]);
    let steps = plan(&old, &new, None).steps;
    let [step] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(step.path, path);
    assert_eq!(
        step.meaning,
        "It only watches: no ask and no holder is affected."
    );
    let added = text::set(TEXT, "alarm.\"many wait\".for", "5s").unwrap();
    assert_eq!(parsed(&added).alarms[1].hold, Duration::from_secs(5));
    let none = text::set(TEXT, "alarm.other.for", "5s");
    assert!(matches!(none, Err(PathFault::NoTable { .. })), "{none:?}");
    assert_eq!(text::table_at(TEXT, 8), Some("alarm"));
}

#[test]
fn alarms_come_and_go_in_a_plan() {
    let old = parsed(TEXT);
    let new = Config {
        alarms: old.alarms[..1].to_vec(),
        ..old.clone()
    };
    let gone = plan(&old, &new, None).steps.remove(0);
    assert_eq!(gone.path, "alarm.\"many wait\"");
    assert_eq!(gone.meaning, "It ends, if it is on.");
    assert_eq!(plan(&new, &old, None).steps.len(), 1);
}

#[test]
fn alarms_are_a_nodes_own() {
    let text = TEXT.replace("[pool.pg]", "[pool.pg]\nscope = \"cluster\"");
    let config = parsed(&text);
    let split = split_shared(&text, &config).unwrap();
    assert!(split.own.contains("[[alarm]]") && !split.shared.contains("alarm"));
    let joined = join_shared(&split.own, &split.shared).unwrap();
    assert_eq!(parsed(&joined).alarms, config.alarms);
}

#[test]
fn there_are_not_too_many_alarms() {
    let alarm = |at: usize| format!("[[alarm]]\nname = \"{at}\"\nwhen = \"server.waiting > 1\"\n");
    let text = |count: usize| (0..count).map(alarm).collect::<String>();
    assert_eq!(parsed(&text(256)).alarms.len(), 256);
    let faults = Config::parse(&text(257), "test", &|_| None).unwrap_err();
    assert!(faults.render(false).contains("there are 257 alarms"));
}
