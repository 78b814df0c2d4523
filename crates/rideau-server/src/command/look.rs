//! Looking: tables, explanations, numbers.

use std::sync::Arc;

use super::page;
use crate::client::{Awaits, Client, Finish, Step, Wait, Wrong};
use crate::explain;
use crate::report;
use crate::resp::{Mistake, Quoted, Request, Upper};
use crate::show::{self, Page, Sight, Wanted, What};

/// What this client sees.
pub(super) fn sight(client: &Client) -> Sight<'_> {
    Sight::of(client.user.as_deref())
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
    let (mut name, mut page) = (None, page::usual(client));
    while arguments.len() > 0 {
        let text = arguments.text("SHOW", "a name, COUNT or FROM")?;
        let upper = Upper::of(text.as_bytes());
        if !page::option(&mut page, upper.as_bytes(), &mut arguments)? {
            name = Some(text);
        }
    }
    if what == What::Config {
        super::allowed(client, "config")?;
    }
    if what == What::Processes {
        return Ok(processes(client, name.map(Into::into), page));
    }
    let sight = sight(client);
    let wanted = Wanted { name, page, sight };
    let table = show::table(&client.daemon, what, &wanted);
    table.write(&mut client.reply());
    Ok(Step::Done)
}

/// Processes with what they use now, which has to be looked at first.
fn processes(client: &Client, name: Option<String>, page: Page) -> Step {
    let daemon = Arc::clone(&client.daemon);
    let answer = async move {
        daemon.apps.look_at_all_usage().await;
        let finish: Finish = Box::new(move |client: &mut Client| {
            let wanted = Wanted {
                name: name.as_deref(),
                page,
                sight: sight(client),
            };
            let table = show::table(&daemon, What::Processes, &wanted);
            table.write(&mut client.reply());
        });
        finish
    };
    Step::Wait(Wait::new("SHOW", Awaits::Anything, Box::pin(answer)))
}

pub(super) fn explain(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut arguments = request.arguments();
    let word = arguments.text("EXPLAIN", "a ticket, a name or an id")?;
    let format = arguments.next();
    let is_json = format.is_some_and(|format| Upper::of(format).as_bytes() == b"JSON");
    if let Some(format) = format.filter(|_| !is_json) {
        return Err(Mistake::wrong("EXPLAIN", "JSON or nothing", format).into());
    }
    arguments.end("EXPLAIN")?;
    let Some(explained) = explain::explain(&client.daemon, word, sight(client)) else {
        let help = "it is no ticket, d- id, pool, broker, regulator, range, value, key or \
                    connection that you may see; SHOW lists them.";
        return Err(Wrong::no_such("thing", word, help));
    };
    let mut reply = client.reply();
    if !is_json {
        reply.verbatim(&explained.text);
        return Ok(Step::Done);
    }
    reply.map(3 + explained.facts.len());
    reply.bulk("kind").bulk(explained.kind);
    reply.bulk("name").bulk(&explained.name);
    for (name, cell) in &explained.facts {
        cell.write(reply.bulk(name));
    }
    reply.bulk("text").bulk(&explained.text);
    Ok(Step::Done)
}

pub(super) fn info(client: &mut Client, request: Request<'_>) -> Result<Step, Wrong> {
    let mut text = String::new();
    for word in request.arguments() {
        let name = String::from_utf8_lossy(word).to_lowercase();
        if ["all", "default", "everything"].contains(&name.as_str()) {
            text = report::all(&client.daemon, sight(client));
            continue;
        }
        if report::ABSENT.contains(&name.as_str()) {
            continue;
        }
        let Some(section) = report::section(&client.daemon, &name, sight(client)) else {
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
        text = report::all(&client.daemon, sight(client));
    }
    client.reply().verbatim(&text);
    Ok(Step::Done)
}
