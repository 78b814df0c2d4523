//! Which holder holds what, since when and what for; connections and sessions.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::Look;
use super::actions;
use super::blocks::{
    Blocks, ColumnHead, Listing, PageRow, ShownCell, anywhere, heads, on_page, page_of, shown,
};
use crate::state::lease_table::LeaseRow;
use crate::view::facts::{ClientNow, Facts, HolderNow, SessionNow};
use crate::view::worst::Level;

/// Clients that advice is given about.
const ADVICE_MAX: usize = 5;

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Holders");
    advice(blocks);
    listing(blocks, "Held and waited for, the longest first", None, true);
    links(blocks);
}

/// What is held of one thing.
pub(super) fn of(blocks: &mut Blocks<'_>, kind: &str, name: &str) {
    listing(
        blocks,
        "Holders, the longest first",
        Some((kind, name)),
        false,
    );
}

fn listing(blocks: &mut Blocks<'_>, title: &str, of: Option<(&str, &str)>, is_whole: bool) {
    let look = blocks.look;
    let viewer = look.viewer;
    let find = if is_whole { look.find } else { "" };
    let sees = |row: &LeaseRow| viewer.sees(row.ticket.kind.word(), &row.name);
    let is_of = |row: &LeaseRow| match of {
        Some((kind, name)) => row.ticket.kind.word() == kind && row.name == name,
        None => true,
    };
    let has = |row: &LeaseRow| {
        find.is_empty()
            || row.name.contains(find)
            || row.value.contains(find)
            || row.card.name.lock().contains(find)
            || row.card.user.contains(find)
            || row.note.as_ref().is_some_and(|note| note.contains(find))
    };
    let wanted = |row: &LeaseRow| is_of(row) && sees(row) && has(row);
    let is_all = of.is_none() && find.is_empty() && viewer.sees_all_names();
    let wanted: Option<&dyn Fn(&LeaseRow) -> bool> = if is_all { None } else { Some(&wanted) };
    let most = look.from.saturating_add(look.count);
    let (rows, total) = look.daemon.lease_table.oldest(0, most, wanted);
    let rows = rows.iter().skip(if is_whole { look.from } else { 0 });
    let rows = rows.take(look.count).map(|row| self::row(look, row));
    let rows: Vec<_> = rows.collect();
    if of.is_some() && rows.is_empty() {
        return;
    }
    blocks.table(Listing {
        id: "holders",
        title: title.into(),
        heads: heads::<HolderNow>(on_page)
            .into_iter()
            .map(|(head, _)| head)
            .collect(),
        rows,
        total,
        from: if is_whole { look.from } else { 0 },
        is_whole,
        more: (!is_whole).then_some("holders"),
        none: "Nothing is held, and no ask waits.".into(),
        ..Listing::default()
    });
}

fn row(look: &Look<'_>, row: &LeaseRow) -> PageRow {
    let now = HolderNow::of(look.daemon, row, look.viewer);
    let is_leak = text_of(&now, "is_leak") == "yes";
    let cells = heads::<HolderNow>(on_page).into_iter().map(|(head, fact)| {
        let text = shown(fact, &now);
        match (head.name, page_of(row.ticket.kind.word(), &row.name)) {
            ("name", Some(link)) => ShownCell::Link(text, link),
            _ => ShownCell::Text(text),
        }
    });
    let what = match row.value.as_str() {
        "" => format!("{} {}", row.ticket.kind.word(), row.name),
        value => format!("{value} of {} {}", row.ticket.kind.word(), row.name),
    };
    let holder = row.card.name.lock().clone();
    let mut all: Vec<Value> = Vec::new();
    all.extend(actions::revoke(
        look,
        &text_of(&now, "ticket"),
        &what,
        &holder,
    ));
    if let Some(id) = row.card.connection {
        let held = look.daemon.clients.find(id);
        let held = held.map_or(0, |card| look.daemon.lease_table.count(*card.holder.lock()));
        all.extend(actions::kill(look, id, &holder, held));
    }
    PageRow {
        level: if is_leak {
            Level::Doubtful
        } else {
            Level::Fine
        },
        why: match is_leak {
            true => "held for longer than the leak_after of its pool".into(),
            false => String::new(),
        },
        cells: cells.collect(),
        actions: all,
        ..PageRow::default()
    }
}

fn text_of<T: Facts>(one: &T, name: &str) -> String {
    let fact = T::ALL.iter().find(|fact| fact.about.name == name);
    fact.map_or_else(String::new, |fact| shown(fact, one))
}

/// Clients that are better set up in another way.
fn advice(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let all = look.daemon.clients.all().into_iter();
    let odd = all.filter(|card| {
        card.foreign_releases.load(Ordering::Relaxed) > 0
            && look.viewer.sees_holder(&card.card.lock())
    });
    let lines = odd.take(ADVICE_MAX).map(|card| {
        let name = card.card.lock().name.lock().clone();
        format!(
            "{name} (connection {}) releases what other connections took, as pooled clients do. \
             Open a SESSION or use a dedicated connection.\n",
            card.id
        )
    });
    let text: String = lines.collect();
    if !text.is_empty() {
        blocks.text("Advice", &text);
    }
}

fn links(blocks: &mut Blocks<'_>) {
    let (clients, sessions) = (
        blocks.look.daemon.clients.len(),
        blocks.look.daemon.sessions.len(),
    );
    blocks.add(serde_json::json!({
        "type": "links",
        "links": [
            { "label": format!("Connections ({clients})"), "link": "clients" },
            { "label": format!("Sessions ({sessions})"), "link": "sessions" },
            { "label": "Refusals", "link": "refusals" },
        ],
    }));
}

pub(super) fn clients(blocks: &mut Blocks<'_>) {
    blocks.title("Connections");
    let look = blocks.look;
    let mut all = look.daemon.clients.all();
    all.retain(|card| {
        let owner = card.card.lock();
        look.viewer.sees_holder(&owner)
            && (look.find.is_empty()
                || owner.name.lock().contains(look.find)
                || owner.user.contains(look.find)
                || card.address.contains(look.find))
    });
    let total = all.len();
    let page = all.iter().skip(look.from).take(look.count);
    let columns = heads::<ClientNow>(on_page);
    let rows = page.map(|card| {
        let now = ClientNow::of(look.daemon, card);
        let held = look.daemon.lease_table.count(*card.holder.lock());
        let name = card.card.lock().name.lock().clone();
        PageRow {
            cells: cells(&columns, &now),
            actions: actions::kill(look, card.id, &name, held)
                .into_iter()
                .collect(),
            ..PageRow::default()
        }
    });
    let rows = rows.collect();
    whole(
        blocks,
        "clients",
        "Connections",
        columns.into_iter().map(|(head, _)| head).collect(),
        (rows, total),
    );
}

pub(super) fn sessions(blocks: &mut Blocks<'_>) {
    blocks.title("Sessions");
    let look = blocks.look;
    let mut all = look.daemon.sessions.all();
    all.retain(|row| {
        look.viewer.sees_holder(&row.card)
            && (look.find.is_empty() || row.card.name.lock().contains(look.find))
    });
    all.sort_unstable_by_key(crate::state::sessions::SessionRow::key);
    let total = all.len();
    let columns = heads::<SessionNow>(anywhere);
    let page = all.iter().skip(look.from).take(look.count);
    let rows = page.map(|row| PageRow {
        cells: cells(&columns, &SessionNow::of(look.daemon, row, look.viewer)),
        ..PageRow::default()
    });
    let rows = rows.collect();
    whole(
        blocks,
        "sessions",
        "Sessions",
        columns.into_iter().map(|(head, _)| head).collect(),
        (rows, total),
    );
}

fn cells<T: Facts>(
    columns: &[(ColumnHead, &'static crate::view::facts::Fact<T>)],
    one: &T,
) -> Vec<ShownCell> {
    let cells = columns.iter().map(|(head, fact)| match head.name {
        "id" => ShownCell::Id(shown(fact, one)),
        _ => ShownCell::Text(shown(fact, one)),
    });
    cells.collect()
}

fn whole(
    blocks: &mut Blocks<'_>,
    id: &'static str,
    title: &str,
    heads: Vec<ColumnHead>,
    (rows, total): (Vec<PageRow>, usize),
) {
    let from = blocks.look.from;
    blocks.table(Listing {
        id,
        title: title.into(),
        heads,
        rows,
        total,
        from,
        is_whole: true,
        none: "There are none.".into(),
        ..Listing::default()
    });
}
