//! Applications: the list, and one with its processes, its deploys and its last output.

use std::time::UNIX_EPOCH;

use serde_json::json;

use super::actions;
use super::blocks::{Blocks, Line, Listing, PageRow, ShownCell, anywhere, heads, shown};
use super::lists::Things;
use super::things;
use crate::view::explain;
use crate::view::facts::{AppNow, Fact, Facts, ProcessNow, Value};

/// Lines of output on the page of an application.
const LINES: usize = 60;
/// Columns of a process that there is room for.
const COLUMNS: [&str; 9] = [
    "pid",
    "state",
    "sessions",
    "streams",
    "finished",
    "age_us",
    "cpu_us",
    "memory",
    "generation",
];

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Apps");
    let look = blocks.look;
    let (apps, viewer) = (&look.daemon.apps, look.viewer);
    let of = |name: &str| AppNow::of(apps, &apps.find(name)?, viewer);
    Things {
        kind: "app",
        page: "apps",
        title: "Apps",
        of: &of,
    }
    .whole(blocks);
    let stats = apps.stats();
    let limits = look.daemon.config.load().front.limits;
    if !apps.all().is_empty() {
        let text = format!(
            "{} of {} processes run. {} apps wait for room for a process.\n",
            stats.live, limits.max, stats.starved
        );
        blocks.text("Room that all apps share", &text);
    }
}

pub(super) fn few(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let (apps, viewer) = (&look.daemon.apps, look.viewer);
    let of = |name: &str| AppNow::of(apps, &apps.find(name)?, viewer);
    Things {
        kind: "app",
        page: "apps",
        title: "Apps",
        of: &of,
    }
    .few(blocks);
}

pub(super) fn one(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look = blocks.look;
    look.viewer.sees("app", name).then_some(())?;
    let apps = &look.daemon.apps;
    let app = apps.find(name)?;
    let now = AppNow::of(apps, &app, look.viewer)?;
    blocks.title(format!("App {name}"));
    blocks.actions(actions::of_app(look, name));
    let found = explain::explain(look.daemon, &format!("app:{name}"), look.viewer)?;
    blocks.text("Now", &found.text);
    processes(blocks, name, &now);
    things::use_of_it(blocks, "app", name, &["held", "waiting", "processes"]);
    things::rates(blocks, "app", name);
    things::waits(blocks, "app", name);
    let starts = [
        Line::of("app", name, "starting", "processes that start"),
        Line::of(
            "app",
            name,
            "concurrency",
            "requests at a time in one process",
        ),
    ];
    blocks.chart("starts", "Starts", "", &starts);
    deploys(blocks, name);
    log(blocks, name, &app);
    let tally = apps.shown(&app)?.stats.tally;
    things::refusals(blocks, "app", name, &tally);
    blocks.facts("All numbers", &now);
    Some(())
}

fn processes(blocks: &mut Blocks<'_>, app: &str, now: &AppNow) {
    let look = blocks.look;
    let columns = heads::<ProcessNow>(anywhere);
    let mut wanted = Vec::new();
    for column in COLUMNS {
        wanted.extend(columns.iter().position(|(head, _)| head.name == column));
    }
    let all: Vec<ProcessNow> = now.processes().collect();
    let rows = all.iter().take(look.count).map(|process| {
        let cells = wanted
            .iter()
            .map(|at| ShownCell::Text(shown(columns[*at].1, process)));
        let (pid, sessions) = (count_of(process, "pid"), count_of(process, "sessions"));
        let pid = pid.or_else(|| count_of(process, "id")).unwrap_or_default();
        PageRow {
            cells: cells.collect(),
            actions: actions::of_process(look, app, pid, sessions.unwrap_or_default()),
            ..PageRow::default()
        }
    });
    let rows = rows.collect();
    let mut columns: Vec<_> = columns.into_iter().map(|(head, _)| Some(head)).collect();
    let wanted = wanted.into_iter().filter_map(|at| columns[at].take());
    blocks.table(Listing {
        id: "processes",
        title: "Processes".into(),
        heads: wanted.collect(),
        rows,
        total: all.len(),
        none: "None runs: the next request starts one.".into(),
        ..Listing::default()
    });
}

fn count_of(process: &ProcessNow, name: &str) -> Option<u64> {
    let is_it = |fact: &&Fact<ProcessNow>| fact.about.name == name;
    let fact = ProcessNow::ALL.iter().find(is_it)?;
    match (fact.value)(process) {
        Value::Count(count) => Some(count),
        _ => None,
    }
}

/// What happened to it lately: deploys, trials, crashes.
fn deploys(blocks: &mut Blocks<'_>, name: &str) {
    let look = blocks.look;
    let events = look.daemon.events.newest(usize::MAX).into_iter();
    let events = events.filter(|event| event.kind == "app" && event.name == name);
    let rows: Vec<_> = events
        .take(10)
        .map(|event| super::past::row(look, &event))
        .collect();
    blocks.table(Listing {
        id: "deploys",
        title: "Deploys, starts and ends".into(),
        heads: super::past::heads_of_events(),
        total: rows.len(),
        rows,
        none: "Nothing has happened yet.".into(),
        ..Listing::default()
    });
}

fn log(blocks: &mut Blocks<'_>, name: &str, app: &rideau_apps::App) {
    if !blocks.look.viewer.sees_output("app", name) {
        blocks.text(
            "Output",
            "A user with the right \"app\" is shown what its processes write.",
        );
        return;
    }
    let lines = app.output.last(LINES);
    let lines = lines.iter().map(|line| {
        let at = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let (stream, process) = (line.stream_word(), line.process.0);
        json!({ "at_ms": at_ms, "stream": stream, "process": process, "text": line.text })
    });
    let lines: Vec<_> = lines.collect();
    blocks.add(json!({ "type": "log", "title": "Output", "lines": lines }));
}
