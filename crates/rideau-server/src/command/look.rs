//! Looking: tables, explanations, numbers.

use crate::client::{Client, Step, Wrong};
use crate::report;
use crate::resp::{Quoted, Request, Upper};
use crate::show::{self, Sight, Wanted, What};

/// As many rows are shown at most.
const COUNT_MAX: u64 = 100_000;

/// Whose tickets this client sees in full.
pub(super) fn sight(client: &Client) -> Sight<'_> {
    match &client.user {
        Some(user) if !super::has_right(user, "client") => Sight::Of(&user.name),
        _ => Sight::All,
    }
}

pub(super) fn show(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.word("SHOW", "POOLS or another word")?;
    let Some(what) = What::of(word) else {
        let all: Vec<_> = What::ALL
            .iter()
            .map(|what| what.word().to_uppercase())
            .collect();
        return Err(Wrong(format!(
            "ERR SHOW does not know {}: it shows {}.",
            Quoted(word),
            all.join(", ")
        )));
    };
    let (mut name, mut count) = (None, show::COUNT as u64);
    while arguments.len() > 0 {
        let text = arguments.text("SHOW", "a name, or COUNT")?;
        match Upper::of(text.as_bytes()).as_bytes() {
            b"COUNT" => count = arguments.number("COUNT", "rows", 1..=COUNT_MAX)?,
            _ => name = Some(text),
        }
    }
    if what == What::Config {
        super::allowed(client, "config")?;
    }
    let wanted = Wanted {
        name,
        count: count as usize,
        sight: sight(client),
    };
    let table = show::table(&client.daemon, what, &wanted);
    table.write(&mut client.reply());
    Ok(Step::Done)
}

pub(super) fn info(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut text = String::new();
    for word in request.arguments() {
        let name = String::from_utf8_lossy(word).to_lowercase();
        if ["all", "default", "everything"].contains(&name.as_str()) {
            text = report::all(&client.daemon);
            continue;
        }
        if report::ABSENT.contains(&name.as_str()) {
            continue;
        }
        let Some(section) = report::section(&client.daemon, &name) else {
            return Err(Wrong(format!(
                "ERR INFO has no section {}: it has {}.",
                Quoted(word),
                report::SECTIONS.join(", ")
            )));
        };
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&section);
    }
    if request.len() == 1 {
        text = report::all(&client.daemon);
    }
    client.reply().verbatim(&text);
    Ok(Step::Done)
}
