//! The config: its keys, a change that is planned and applied, and the versions before.

use rideau_config::{Change, change_of};
use serde_json::json;

use super::actions;
use super::blocks::{Blocks, ColumnHead, Listing, PageRow, ShownCell, ago};

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Config");
    let look = blocks.look;
    if !look.may("config") {
        blocks.text(
            "Config",
            "A user with the right \"config\" sees the config, and changes it.",
        );
        return;
    }
    let sees_all = look.user.is_none_or(|user| user.may_use_all());
    if sees_all {
        blocks.add(json!({ "type": "editor", "title": "Change" }));
    }
    keys(blocks);
    if sees_all {
        versions(blocks);
    }
}

fn head(name: &'static str, help: &'static str) -> ColumnHead {
    ColumnHead {
        name,
        label: name.into(),
        help,
        is_number: false,
    }
}

fn keys(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let mut all = look.daemon.config.load().rows();
    all.retain(|(key, value)| {
        look.viewer.sees_path(key)
            && (look.find.is_empty() || key.contains(look.find) || value.contains(look.find))
    });
    let page = all.iter().skip(look.from).take(look.count);
    let rows = page.map(|(key, value)| {
        let change = match change_of(key) {
            Change::Live => "at once",
            Change::Restart => "after a restart",
        };
        PageRow {
            cells: vec![
                ShownCell::Id(key.clone()),
                ShownCell::Text(value.clone()),
                ShownCell::Text(change.into()),
            ],
            ..PageRow::default()
        }
    });
    let rows = rows.collect();
    blocks.table(Listing {
        id: "keys",
        title: "Keys that count now".into(),
        heads: vec![
            head("key", "Where it stands in the config."),
            head("value", "Its value, without secrets."),
            head("counts", "When a change counts."),
        ],
        rows,
        total: all.len(),
        from: look.from,
        is_whole: true,
        none: "No key has that in its name or value.".into(),
        ..Listing::default()
    });
}

fn versions(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let all = look.daemon.settings.history();
    let rows = all.iter().enumerate().map(|(at, version)| PageRow {
        cells: vec![
            ShownCell::Text(version.serial.to_string()),
            ShownCell::Text(ago(version.at)),
            ShownCell::Text(version.by.clone()),
            ShownCell::Text(version.summary.clone()),
        ],
        actions: match at {
            // The newest counts already.
            0 => Vec::new(),
            _ => actions::rollback(look, version.serial, &version.summary)
                .into_iter()
                .collect(),
        },
        ..PageRow::default()
    });
    let rows: Vec<_> = rows.collect();
    blocks.table(Listing {
        id: "versions",
        title: "Versions, the newest first".into(),
        heads: vec![
            head("version", "Its number."),
            head("when", "Since when it counted."),
            head("by", "The user that applied it."),
            head("what", "What it changed."),
        ],
        total: rows.len(),
        rows,
        ..Listing::default()
    });
}
