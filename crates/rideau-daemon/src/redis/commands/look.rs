//! Looking: tables, explanations, numbers.

use std::sync::Arc;

use rideau_config::User;
use rideau_process::panics;
use rideau_resp::{Mistake, Quoted, Request, Upper};

use super::page;
use crate::redis::client::{Client, CommandError, Next, OnReady, PendingCommand, answer_panic};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::explain::{self, Explained};
use crate::view::report;
use crate::view::tables::{self, Page, TableKind, TableQuery};

/// The viewer of this client.
pub(super) fn viewer(client: &Client) -> Viewer<'_> {
    Viewer::of(client.user.as_deref())
}

pub(super) fn show(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("SHOW", "POOLS or another word")?;
    let Some(what) = TableKind::of(word) else {
        let all: Vec<_> = TableKind::ALL
            .iter()
            .map(|what| what.word().to_uppercase())
            .collect();
        return Err(CommandError(format!(
            "ERR SHOW does not know {}: it shows {}.",
            Quoted(word),
            all.join(", ")
        )));
    };
    let (mut name, mut page) = (None, page::usual(client));
    while arguments.len() > 0 {
        let text = arguments.text("SHOW", "a name, COUNT or FROM")?;
        let upper = Upper::of(text.as_bytes());
        if upper.as_bytes() == b"CLUSTER" {
            let text = "ERR this server is not a node of a cluster: leave CLUSTER out.";
            return Err(CommandError(text.into()));
        }
        if !page::option(&mut page, upper.as_bytes(), &mut arguments)? {
            name = Some(text);
        }
    }
    if what == TableKind::Config {
        super::allowed(client, "config")?;
    }
    let name = name.map(str::to_owned);
    if what == TableKind::Processes {
        return Ok(processes(client, name, page));
    }
    let see = move |owned: &OwnedViewer| {
        let (name, viewer) = (name.as_deref(), owned.viewer());
        tables::table(&owned.daemon, what, &TableQuery { name, page, viewer })
    };
    see_and_tell(client, "SHOW", see, |client, table| {
        table.write(&mut client.reply());
        Ok(())
    })
}

/// A viewer that can be sent to another thread.
pub(super) struct OwnedViewer {
    pub(super) daemon: Arc<Daemon>,
    user: Option<Arc<User>>,
}

impl OwnedViewer {
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer::of(self.user.as_deref())
    }
}

/// Look at something, and tell what was seen. Where there are many things, that is done
/// away from the thread of the client, which serves others meanwhile.
pub(super) fn see_and_tell<T: Send + 'static>(
    client: &mut Client,
    name: &'static str,
    see: impl FnOnce(&OwnedViewer) -> T + Send + 'static,
    tell: impl FnOnce(&mut Client, T) -> Result<(), CommandError> + Send + 'static,
) -> Result<Next, CommandError> {
    let owned = OwnedViewer {
        daemon: Arc::clone(&client.daemon),
        user: client.user.clone(),
    };
    if !has_many(&owned.daemon) {
        tell(client, see(&owned))?;
        return Ok(Next::Done);
    }
    let user = client.user.clone();
    let answer = async move {
        let seen = match panics::away(move || see(&owned)).await {
            Ok(seen) => seen,
            Err(panicked) => return answer_panic(panicked),
        };
        let finish: OnReady = Box::new(move |client: &mut Client| {
            // It was made for the rights of before.
            if client.user != user {
                let text = "BUSY what this user may see was changed meanwhile: ask again.";
                client.reply().error(text);
                return;
            }
            if let Err(CommandError(text)) = tell(client, seen) {
                client.reply().error(text);
            }
        });
        finish
    };
    Ok(Next::Wait(PendingCommand::work(name, Box::pin(answer))))
}

/// Looking at all of them would keep others waiting.
fn has_many(daemon: &Daemon) -> bool {
    const MANY: usize = 1000;
    daemon.clients.len() > MANY
        || daemon.sessions.len() > MANY
        || daemon.lock_keys() > MANY
        || daemon.lease_table.places() > MANY
}

/// Processes with what they use now, which has to be looked at first.
fn processes(client: &Client, name: Option<String>, page: Page) -> Next {
    let daemon = Arc::clone(&client.daemon);
    let answer = async move {
        daemon.apps.look_at_all_usage().await;
        let finish: OnReady = Box::new(move |client: &mut Client| {
            let wanted = TableQuery {
                name: name.as_deref(),
                page,
                viewer: viewer(client),
            };
            let table = tables::table(&daemon, TableKind::Processes, &wanted);
            table.write(&mut client.reply());
        });
        finish
    };
    Next::Wait(PendingCommand::work("SHOW", Box::pin(answer)))
}

pub(super) fn explain(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.text("EXPLAIN", "a ticket, a name or an id")?;
    let format = arguments.next();
    let is_json = format.is_some_and(|format| Upper::of(format).as_bytes() == b"JSON");
    if let Some(format) = format.filter(|_| !is_json) {
        return Err(Mistake::wrong("EXPLAIN", "JSON or nothing", format).into());
    }
    arguments.end("EXPLAIN")?;
    let word = word.to_owned();
    let see = move |owned: &OwnedViewer| {
        let explained = explain::explain(&owned.daemon, &word, owned.viewer());
        explained.ok_or_else(|| {
            let help = "it is not a ticket, d- id, pool, broker, regulator, range, value, key or \
                        connection that you may see; SHOW lists them.";
            CommandError::no_such("thing", &word, help)
        })
    };
    see_and_tell(client, "EXPLAIN", see, move |client, explained| {
        tell_explained(client, &explained?, is_json);
        Ok(())
    })
}

fn tell_explained(client: &mut Client, explained: &Explained, is_json: bool) {
    let mut reply = client.reply();
    if !is_json {
        reply.verbatim(&explained.text);
        return;
    }
    reply.map(3 + explained.facts.len());
    reply.bulk("kind").bulk(explained.kind);
    reply.bulk("name").bulk(&explained.name);
    for (name, cell) in &explained.facts {
        cell.write(reply.bulk(name));
    }
    reply.bulk("text").bulk(&explained.text);
}

pub(super) fn info(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let words: Vec<Vec<u8>> = request.arguments().map(<[u8]>::to_vec).collect();
    let see = move |owned: &OwnedViewer| report(owned, &words);
    see_and_tell(client, "INFO", see, |client, text| {
        client.reply().verbatim(&text?);
        Ok(())
    })
}

fn report(owned: &OwnedViewer, words: &[Vec<u8>]) -> Result<String, CommandError> {
    let mut text = String::new();
    for word in words {
        let name = String::from_utf8_lossy(word).to_lowercase();
        if ["all", "default", "everything"].contains(&name.as_str()) {
            text = report::all(&owned.daemon, owned.viewer());
            continue;
        }
        if report::ABSENT.contains(&name.as_str()) {
            continue;
        }
        let Some(section) = report::section(&owned.daemon, &name, owned.viewer()) else {
            return Err(CommandError(format!(
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
    if words.is_empty() {
        text = report::all(&owned.daemon, owned.viewer());
    }
    Ok(text)
}
