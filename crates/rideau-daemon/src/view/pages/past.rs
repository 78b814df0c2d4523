//! What happened: events and refusals, grouped and in words, and the explanation of one.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use rideau_apps::Event;
use rideau_config::human::Span;
use serde_json::json;

use super::Look;
use super::blocks::{Blocks, ColumnHead, Listing, PageRow, ShownCell, ago, label, link, page_of};
use crate::state::refusal_log::Dropped;
use crate::view::explain;
use crate::view::tables;
use crate::view::worst::grouped;

/// Refusals of one thing that are shown with it.
const FEW: usize = 8;
/// Groups that are shown.
const GROUPS: usize = 12;

fn head(name: &'static str, help: &'static str) -> ColumnHead {
    ColumnHead {
        name,
        label: name.into(),
        help,
        is_number: false,
    }
}

pub(super) fn heads_of_events() -> Vec<ColumnHead> {
    vec![
        head("when", "How long ago."),
        head("kind", "The kind of the thing."),
        head("name", "The name of the thing."),
        head("what", "What happened."),
        head("by", "The user that did it, if one did."),
    ]
}

/// An event as a row.
pub(super) fn row(look: &Look<'_>, event: &Event) -> PageRow {
    let name = match page_of(event.kind, &event.name) {
        Some(link) => ShownCell::Link(event.name.clone(), link),
        None => ShownCell::Text(event.name.clone()),
    };
    PageRow {
        cells: vec![
            ShownCell::Text(ago(event.at)),
            ShownCell::Text(event.kind.into()),
            name,
            ShownCell::Text(look.viewer.text_of(event)),
            ShownCell::Text(event.by.clone().unwrap_or_default()),
        ],
        ..PageRow::default()
    }
}

pub(super) fn events(blocks: &mut Blocks<'_>) {
    blocks.title("Events");
    let look = blocks.look;
    let mut all = look.daemon.events.newest(usize::MAX);
    all.retain(|event| look.viewer.sees_event(event.kind, &event.name));
    let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &all {
        *groups.entry(event.kind).or_default() += 1;
    }
    choices(blocks, &groups, "events");
    all.retain(|event| {
        (look.only.is_empty() || event.kind == look.only)
            && (look.find.is_empty()
                || event.name.contains(look.find)
                || look.viewer.text_of(event).contains(look.find)
                || event.by.as_ref().is_some_and(|by| by.contains(look.find)))
    });
    let page = all.iter().skip(look.from).take(look.count);
    let rows = page.map(|event| row(look, event)).collect();
    blocks.table(Listing {
        id: "events",
        title: "Events, the newest first".into(),
        heads: heads_of_events(),
        rows,
        total: all.len(),
        from: look.from,
        is_whole: true,
        none: "Nothing of that kind has happened.".into(),
        ..Listing::default()
    });
    links(blocks);
}

fn links(blocks: &mut Blocks<'_>) {
    let total = blocks.look.daemon.refusals.total();
    blocks.add(json!({
        "type": "links",
        "links": [{ "label": format!("Refusals ({total})"), "link": "refusals" }],
    }));
}

/// Which groups there are, and how many rows each has.
fn choices(blocks: &mut Blocks<'_>, groups: &BTreeMap<&str, u64>, page: &str) {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let groups = groups.iter().take(GROUPS);
    let groups = groups.map(|(word, count)| json!({ "word": word, "count": count }));
    let groups: Vec<_> = groups.collect();
    let only = blocks.look.only;
    blocks.add(json!({ "type": "choices", "page": page, "only": only, "groups": groups }));
}

/// The group of a refusal.
fn group_of(dropped: &Dropped) -> String {
    format!(
        "{} {}: {}",
        dropped.kind,
        dropped.name,
        dropped.reason.word()
    )
}

pub(super) fn refusals(blocks: &mut Blocks<'_>) {
    blocks.title("Refusals");
    let look = blocks.look;
    let mut all = look.daemon.refusals.newest(usize::MAX);
    all.retain(|dropped| look.viewer.sees(dropped.kind, &dropped.name));
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    for dropped in &all {
        *groups.entry(group_of(dropped)).or_default() += 1;
    }
    let groups = groups.iter().map(|(word, count)| (word.as_str(), *count));
    choices(blocks, &groups.collect(), "refusals");
    all.retain(|dropped| {
        (look.only.is_empty() || group_of(dropped) == look.only)
            && (look.find.is_empty()
                || dropped.name.contains(look.find)
                || dropped.why.contains(look.find)
                || dropped.reason.word().contains(look.find))
    });
    let note = match all.last() {
        Some(oldest) => format!(
            "The last {} are kept; the oldest of these is from {}.",
            all.len(),
            ago(oldest.at)
        ),
        None => String::new(),
    };
    let page: Vec<_> = all.iter().skip(look.from).take(look.count).collect();
    let rows = page.into_iter().map(refusal).collect();
    blocks.table(Listing {
        id: "refusals",
        title: "Refusals, the newest first".into(),
        heads: heads_of_refusals(),
        rows,
        total: all.len(),
        from: look.from,
        is_whole: true,
        note,
        none: "No ask was refused.".into(),
        ..Listing::default()
    });
}

fn heads_of_refusals() -> Vec<ColumnHead> {
    vec![
        head("id", "Its id: it leads to the explanation."),
        head("when", "How long ago."),
        head("name", "The thing that refused it."),
        head("reason", "The shedding policy or the limit."),
        head("waited", "How long it had waited."),
        head("why", "The reason in words."),
    ]
}

fn refusal(dropped: &Dropped) -> PageRow {
    let id = format!("d-{:x}", dropped.serial);
    let name = format!("{} {}", dropped.kind, dropped.name);
    let name = match page_of(dropped.kind, &dropped.name) {
        Some(link) => ShownCell::Link(name, link),
        None => ShownCell::Text(name),
    };
    let to = link("explain", &id);
    PageRow {
        cells: vec![
            ShownCell::Link(id, to.clone()),
            ShownCell::Text(ago(dropped.at)),
            name,
            ShownCell::Text(dropped.reason.word().into()),
            ShownCell::Text(Span(dropped.waited).to_string()),
            ShownCell::Text(dropped.why.clone()),
        ],
        link: Some(to),
        ..PageRow::default()
    }
}

/// The last refusals of one thing.
pub(super) fn last_refusals(blocks: &mut Blocks<'_>, kind: &str, name: &str) {
    let look = blocks.look;
    let all = look.daemon.refusals.newest(usize::MAX);
    let all: Vec<_> = all
        .iter()
        .filter(|dropped| dropped.kind == kind && dropped.name == name)
        .collect();
    if all.is_empty() {
        return;
    }
    let rows = all
        .iter()
        .take(FEW)
        .map(|dropped| refusal(dropped))
        .collect();
    blocks.table(Listing {
        id: "refusals",
        title: "The last refusals".into(),
        heads: heads_of_refusals(),
        rows,
        total: all.len(),
        more: Some("refusals"),
        ..Listing::default()
    });
}

/// Which things refused asks lately, for what reasons, the most first.
pub(super) fn reasons(blocks: &mut Blocks<'_>) {
    /// Refusals before this are not counted.
    const LATELY: Duration = Duration::from_secs(600);
    let look = blocks.look;
    let mut groups: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for dropped in look.daemon.refusals.newest(usize::MAX) {
        let age = dropped.at.elapsed().unwrap_or_default();
        if age > LATELY || !look.viewer.sees(dropped.kind, &dropped.name) {
            continue;
        }
        let newest = format!("d-{:x}", dropped.serial);
        let group = groups.entry(group_of(&dropped)).or_insert((0, newest));
        group.0 += 1;
    }
    let bars = groups.into_iter();
    let bars = bars.map(|(word, (count, id))| (word, count, Some(link("explain", &id))));
    let mut bars: Vec<_> = bars.collect();
    if bars.is_empty() {
        return;
    }
    bars.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    bars.truncate(GROUPS);
    blocks.bars("What was refused in the last 10 min, and why", bars);
}

/// A number of an explanation, with its unit.
fn value(name: &str, cell: &tables::Cell) -> String {
    match cell {
        tables::Cell::Number(number) if name.ends_with("_us") => {
            Span::micros(number.unsigned_abs()).to_string()
        }
        tables::Cell::Number(number) if name == "at_ms" => {
            ago(UNIX_EPOCH + Duration::from_millis(number.unsigned_abs()))
        }
        tables::Cell::Number(number) => grouped(*number),
        cell => cell.to_string(),
    }
}

/// What an id, a ticket or a name is about.
pub(super) fn explain(blocks: &mut Blocks<'_>, word: &str) -> Option<()> {
    let look = blocks.look;
    look.may("explain").then_some(())?;
    let found = explain::explain(look.daemon, word, look.viewer)?;
    blocks.title(format!("{} {}", found.kind, found.name));
    blocks.text("Explained", &found.text);
    let rows = found.facts.iter().map(|(name, cell)| PageRow {
        cells: vec![
            ShownCell::Text(label(name)),
            ShownCell::Text(value(name, cell)),
        ],
        ..PageRow::default()
    });
    let rows: Vec<_> = rows.collect();
    blocks.table(Listing {
        id: "about",
        title: "In numbers".into(),
        heads: vec![
            head("what", "A number or a word."),
            head("value", "Its value."),
        ],
        total: rows.len(),
        rows,
        ..Listing::default()
    });
    // A client may have chosen the word, and the command is there to be copied.
    if !word.contains(char::is_control) {
        let quoted = word.replace('\'', r"'\''");
        let command = format!("rideau explain '{quoted}'");
        blocks.add(json!({ "type": "commands", "title": "In a shell", "lines": [command] }));
    }
    Some(())
}
