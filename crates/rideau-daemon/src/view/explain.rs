//! Says in plain words what a ticket, a refusal, a place, a key or a connection is
//! about: which holder has it, why it waits or got nothing, what would help.

mod apps;
mod certificates;
mod ranges;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_config::Buckets;
use rideau_config::human::{count, stop};
use rideau_core::Brief;

use crate::state::catalog::NamedPool;
use crate::state::daemon::Daemon;
use crate::state::end::NotHeld;
use crate::state::grant::Grant;
use crate::state::lease_table::LeaseRow;
use crate::state::shared_place::SharedPlace;
use crate::state::ticket::{Ticket, TicketKind};
use crate::state::viewer::Viewer;
use crate::view::facts;
use crate::view::tables::Cell;

/// An answer to the question what something is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Explained {
    /// The kind of the thing.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// In words, a sentence to a line.
    pub text: String,
    /// The same, for programs.
    pub facts: Vec<(&'static str, Cell)>,
}

/// The holder of most is named first, and no more than these.
const HOLDERS_MAX: usize = 5;

/// What this is about. A name may say what it is the name of, as `pool:pg`; if it does
/// not, the first that fits is meant: a refusal, a ticket, a connection, a pool, a
/// group, a broker, a regulator, an app, a certificate, a range, a value, a key.
///
/// None if nothing has this name.
pub(crate) fn explain(daemon: &Daemon, word: &str, viewer: Viewer<'_>) -> Option<Explained> {
    if let Some((kind, name)) = word.split_once(':') {
        let named = match kind {
            "pool" => pool(daemon, name, viewer),
            "broker" => broker(daemon, name, viewer),
            "regulator" => regulator(daemon, name, viewer),
            "lock" => key(daemon, name, viewer),
            "app" | "upstream" => apps::app(daemon, name, viewer),
            "certificate" => certificates::certificate(daemon, name, viewer),
            "range" => ranges::range(daemon, name, viewer),
            "value" => ranges::value(daemon, name, viewer),
            "client" => connection(daemon, name, viewer),
            _ => None,
        };
        if named.is_some() {
            return named;
        }
    }
    // What looks like an id is none but that.
    if is_drop(word) {
        return dropped(daemon, word, viewer);
    }
    if Ticket::parse(word.as_bytes()).is_some() {
        return ticket(daemon, word, viewer);
    }
    if word.starts_with("v-") {
        return ranges::value(daemon, word, viewer);
    }
    connection(daemon, word, viewer)
        .or_else(|| pool(daemon, word, viewer))
        .or_else(|| group(daemon, word, viewer))
        .or_else(|| broker(daemon, word, viewer))
        .or_else(|| regulator(daemon, word, viewer))
        .or_else(|| apps::app(daemon, word, viewer))
        .or_else(|| certificates::certificate(daemon, word, viewer))
        .or_else(|| ranges::range(daemon, word, viewer))
        .or_else(|| ranges::value(daemon, word, viewer))
        .or_else(|| key(daemon, word, viewer))
}

fn is_drop(word: &str) -> bool {
    let digits = word.strip_prefix("d-");
    digits.is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
}

fn dropped(daemon: &Daemon, id: &str, viewer: Viewer<'_>) -> Option<Explained> {
    let dropped = daemon.refusals.find(id)?;
    if !viewer.sees(dropped.kind, &dropped.name) {
        return None;
    }
    let ago = dropped.at.elapsed().unwrap_or_default();
    let mut text = format!(
        "{} {} refused this ask {} ago, after {}: {}.\n{}\n{} waited there at that moment.\n",
        dropped.kind,
        dropped.name,
        span(ago),
        span(dropped.waited),
        dropped.reason,
        sentence(&dropped.why),
        dropped.len,
    );
    if dropped.explained.is_empty() {
        let _ = writeln!(
            text,
            "EXPLAIN {} says how it is there now: under overload only some refusals are explained \
             in full.",
            dropped.name
        );
    } else {
        let _ = writeln!(text, "At that moment:\n{}", dropped.explained.trim_end());
    }
    Some(Explained {
        kind: "drop",
        name: id.into(),
        text,
        facts: vec![
            ("place", dropped.kind.into()),
            ("place_name", dropped.name.into()),
            ("reason", dropped.reason.word().into()),
            ("waited_us", dropped.waited.into()),
            ("waiting", dropped.len.into()),
            ("at_ms", dropped.at.into()),
            ("why", dropped.why.into()),
        ],
    })
}

fn ticket(daemon: &Daemon, word: &str, viewer: Viewer<'_>) -> Option<Explained> {
    let ticket = Ticket::parse(word.as_bytes())?;
    if ticket.kind == TicketKind::Session {
        return session(daemon, ticket, viewer);
    }
    match daemon.lease_table.row(ticket, viewer.owner()) {
        Ok(row) if is_seen(&row, viewer) => Some(held(daemon, &row, viewer)),
        Ok(_) => None,
        Err(NotHeld::Stale { ago, why }) => Some(Explained {
            kind: ticket.kind.word(),
            name: word.into(),
            text: format!(
                "This ticket has ended: it was {} {} ago.\n",
                why.words(),
                span(ago)
            ),
            facts: vec![
                ("state", "over".into()),
                ("why", why.word().into()),
                ("ago_us", ago.into()),
            ],
        }),
        Err(NotHeld::Forgotten { .. } | NotHeld::Unknown | NotHeld::Foreign) => None,
    }
}

/// It may know of this lease or ask: it is its own, or of something that it may use.
fn is_seen(row: &LeaseRow, viewer: Viewer<'_>) -> bool {
    let kind = row.ticket.kind.word();
    viewer.sees(kind, &row.name) || viewer.is_of(&row.card)
}

fn held(daemon: &Daemon, row: &LeaseRow, viewer: Viewer<'_>) -> Explained {
    let holder = row.card.name.lock().clone();
    let (kind, time) = (row.ticket.kind.word(), span(row.held));
    let note = row
        .note
        .as_ref()
        .map_or(String::new(), |note| format!(" It says: {note:?}."));
    let whose = match (&row.card.session, row.card.connection) {
        (Some(_), _) => "a session".into(),
        (None, Some(id)) => format!("connection {id}"),
        (None, None) => "no connection".into(),
    };
    let name = &row.name;
    let what = if row.is_waiting {
        format!("{holder} has waited for {kind} {name} for {time}")
    } else if row.value.is_empty() {
        format!("{holder} has held {kind} {name} for {time}")
    } else {
        format!(
            "{holder} has held {:?} of {kind} {name} for {time}",
            row.value
        )
    };
    let mut text = format!("{what}; it is {whose} of user {}.{note}\n", row.card.user);
    let place = match row.ticket.kind {
        TicketKind::Member | TicketKind::Offer => {
            pool(daemon, name, viewer).or_else(|| group(daemon, name, viewer))
        }
        TicketKind::Match => broker(daemon, name, viewer),
        TicketKind::Lease => regulator(daemon, name, viewer),
        TicketKind::Lock => key(daemon, name, viewer),
        TicketKind::Value => ranges::value(daemon, &row.value, viewer),
        TicketKind::App => apps::app(daemon, name, viewer),
        TicketKind::Session => None,
    };
    if let Some(place) = place {
        text.push_str(&place.text);
    }
    Explained {
        kind,
        name: name.clone(),
        text,
        facts: vec![
            (
                "state",
                if row.is_waiting { "waits" } else { "held" }.into(),
            ),
            ("value", row.value.as_str().into()),
            ("held_us", row.held.into()),
            ("holder", holder.into()),
            ("user", (&*row.card.user).into()),
            ("connection", row.card.connection.into()),
            ("note", row.note.clone().into()),
        ],
    }
}

fn session(daemon: &Daemon, ticket: Ticket, viewer: Viewer<'_>) -> Option<Explained> {
    let row = daemon.sessions.find(ticket)?;
    if !viewer.sees_of(&row.card) || !viewer.sees_holder(&row.card) {
        return None;
    }
    let name = row.card.name.lock().clone();
    let mut held = daemon.lease_table.rows(row.holder);
    held.retain(|row| is_seen(row, viewer));
    let left = match row.left {
        Some(left) => format!("it ends in {} unless it is renewed", span(left)),
        None => "it ends when its last connection does".into(),
    };
    let mut text = format!(
        "{name} is a session of user {} with {}; {left}.\n",
        row.card.user,
        count(row.attached, "connection")
    );
    list(&mut text, &held);
    Some(Explained {
        kind: "session",
        name,
        text,
        facts: vec![
            ("user", (&*row.card.user).into()),
            ("connections", row.attached.into()),
            ("held", held.len().into()),
            ("left_us", row.left.into()),
        ],
    })
}

fn connection(daemon: &Daemon, word: &str, viewer: Viewer<'_>) -> Option<Explained> {
    let card = daemon.clients.find(word.parse().ok()?)?;
    let owner = Arc::clone(&card.card.lock());
    if !viewer.sees_of(&owner) || !viewer.sees_holder(&owner) {
        return None;
    }
    let name = owner.name.lock().clone();
    let holder = *card.holder.lock();
    let mut held = daemon.lease_table.rows(holder);
    held.retain(|row| is_seen(row, viewer));
    let is_waiting = card.is_waiting.load(Ordering::Relaxed);
    let mut text = format!(
        "Connection {} is {name}, user {}, from {}. It connected {} ago and sent its last command \
         {} ago{}.\n",
        card.id,
        owner.user,
        card.address,
        span(card.since.elapsed()),
        span(card.silent()),
        match daemon.last_command(&card) {
            "" => String::new(),
            last => format!(": {last}"),
        },
    );
    if is_waiting {
        text.push_str("One of its commands waits now.\n");
    }
    if card.session.lock().is_some() {
        text.push_str("It is attached to a session, which holds what it takes.\n");
    }
    if card.foreign_releases.load(Ordering::Relaxed) > 0 {
        text.push_str(
            "It releases what other connections took, as pooled clients do. Open a SESSION or use \
             a dedicated connection: otherwise what it took is taken back when the client closes \
             the connection that took it.\n",
        );
    }
    list(&mut text, &held);
    Some(Explained {
        kind: "client",
        name,
        text,
        facts: vec![
            ("id", card.id.into()),
            ("user", (&*owner.user).into()),
            ("address", card.address.as_str().into()),
            ("held", held.len().into()),
            ("is_waiting", usize::from(is_waiting).into()),
            ("idle_us", card.silent().into()),
        ],
    })
}

fn pool(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("pool", name).then_some(())?;
    let place = daemon.catalog.load().pools.get(name).cloned()?;
    if !place.is_here() {
        return Some(elsewhere(daemon, "pool", name, place.shared.as_ref()?));
    }
    let stats = place.stats();
    let mut text = format!("Pool {name}:\n{}", pool_text(&place, viewer));
    let mut held = daemon
        .lease_table
        .late(|grant, _| grant.is_member_of(&place));
    held.sort_unstable_by_key(|row| std::cmp::Reverse(row.held));
    let leak_after = place.config.load().leak_after;
    for row in held.iter().take(HOLDERS_MAX) {
        let note = row.note.as_ref();
        let note = note.map_or(String::new(), |note| format!(" ({note:?})"));
        let is_leak = leak_after.is_some_and(|after| row.held > after);
        let leak = if is_leak {
            ", longer than leak_after"
        } else {
            ""
        };
        let holder = row.card.name.lock();
        let (value, held) = (&row.value, span(row.held));
        let _ = writeln!(text, "{holder}{note} has held {value} for {held}{leak}.");
    }
    Some(Explained {
        kind: "pool",
        name: name.into(),
        text,
        facts: vec![
            ("state", facts::state(&stats).into()),
            ("idle", stats.members.idle.into()),
            ("held", stats.members.held.into()),
            ("max", stats.max.into()),
            ("waiting", stats.len().into()),
            ("oldest_wait_us", stats.oldest_waited.into()),
            ("refused", facts::refused(&stats.takes).into()),
            ("refused_by", facts::reasons(&stats.takes).into()),
        ],
    })
}

/// How a pool is and why it gives nothing, with what its programs said for users that
/// may read that.
pub(crate) fn pool_text(place: &NamedPool, viewer: Viewer<'_>) -> String {
    let mut text = place.explain();
    let failure = place.members.failure();
    if let Some(failure) = failure.filter(|_| viewer.sees_output("pool", &place.name)) {
        let _ = writeln!(text, "That is: {failure}.");
    }
    text
}

fn group(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("pool", name).then_some(())?;
    let catalog = daemon.catalog.load();
    let group = catalog.groups.get(name.strip_prefix('@')?)?;
    let pools = group.config.pools.iter();
    let pools: Vec<_> = pools.filter(|name| viewer.sees("pool", name)).collect();
    let mut text = format!("Group {name} has {}.\n", count(pools.len(), "pool"));
    for name in &pools {
        text.extend(pool(daemon, name, viewer).map(|pool| pool.text));
    }
    let brokers = group.config.brokers.iter();
    let brokers: Vec<_> = brokers.filter(|name| viewer.sees("broker", name)).collect();
    if !brokers.is_empty() {
        text += &format!("It has {}.\n", count(brokers.len(), "broker"));
    }
    for name in &brokers {
        text.extend(broker(daemon, name, viewer).map(|broker| broker.text));
    }
    Some(Explained {
        kind: "group",
        name: name.into(),
        text,
        facts: vec![
            ("pools", names(&pools).into()),
            ("brokers", names(&brokers).into()),
        ],
    })
}

/// Something that nodes share, and another one decides about.
fn elsewhere(daemon: &Daemon, kind: &'static str, name: &str, shared: &SharedPlace) -> Explained {
    let cluster = daemon.cluster.as_ref();
    let owner = cluster.and_then(|cluster| {
        let partition = cluster.partition_of_name(shared.home.as_bytes());
        let table = cluster.node.table();
        table.owner(partition).map(|(owner, _)| owner.name.clone())
    });
    let text = match &owner {
        Some(node) => format!(
            "All nodes share the {kind} {name}, and node {node} decides about it: \
             EXPLAIN it there.\n"
        ),
        None => {
            format!("All nodes share the {kind} {name}, and no node decides about it just now.\n")
        }
    };
    Explained {
        kind,
        name: name.into(),
        text,
        facts: vec![("node", owner.unwrap_or_default().into())],
    }
}

fn broker(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("broker", name).then_some(())?;
    let place = daemon.catalog.load().brokers.get(name).cloned()?;
    if !place.is_here() {
        return Some(elsewhere(daemon, "broker", name, place.shared.as_ref()?));
    }
    let stats = place.broker.stats();
    Some(Explained {
        kind: "broker",
        name: name.into(),
        text: format!("Broker {name}:\n{}", place.broker.explain()),
        facts: vec![
            ("asks", stats.asks_len.into()),
            ("offers", stats.offers_len.into()),
            ("oldest_wait_us", stats.oldest_waited.into()),
            ("matched", stats.asks.served.into()),
            ("asks_refused", facts::refused(&stats.asks).into()),
            ("refused_by", facts::reasons(&stats.asks).into()),
            ("alarms", place.broker.alarms().join(",").into()),
        ],
    })
}

fn regulator(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("regulator", name).then_some(())?;
    let place = daemon.catalog.load().regulators.get(name).cloned()?;
    if !place.is_here() {
        return Some(elsewhere(daemon, "regulator", name, place.shared.as_ref()?));
    }
    let stats = place.regulator.stats();
    Some(Explained {
        kind: "regulator",
        name: name.into(),
        text: format!("Regulator {name}:\n{}", place.regulator.explain()),
        facts: vec![
            ("leases", stats.size.into()),
            ("waiting", stats.len.into()),
            ("is_open", usize::from(stats.is_open).into()),
            ("refused", facts::refused(&stats.asks).into()),
            ("refused_by", facts::reasons(&stats.asks).into()),
        ],
    })
}

fn key(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("lock", name).then_some(())?;
    let catalog = daemon.catalog.load();
    let rule = &catalog.rule(name)?.rule;
    let (held, waiting) = daemon.lock_count(name.as_bytes());
    let room = match rule.buckets {
        Buckets::Fixed(buckets) => {
            let all = usize::try_from(rule.per * buckets).unwrap_or(usize::MAX);
            let buckets = usize::try_from(buckets).unwrap_or(usize::MAX);
            format!("{} in {}", count(all, "unit"), count(buckets, "bucket"))
        }
        Buckets::Client => {
            let per = usize::try_from(rule.per).unwrap_or(usize::MAX);
            format!(
                "{} in each bucket; the client says how many buckets",
                count(per, "unit")
            )
        }
    };
    // Any text may be a key; a user who mistyped another name should notice.
    let is_any = rule.pattern == "*" && held == 0 && waiting == 0;
    let about = match is_any {
        true => format!("Nothing is called {name:?}. As a lock key it has"),
        false => format!("Key {name} has"),
    };
    let mut text = format!(
        "{about} the rule [lock.{:?}]: {room}. {held} are held, {waiting} wait.\n",
        rule.pattern
    );
    let key = name.as_bytes();
    let wanted = |grant: &Grant| grant.is_lock_of(key);
    let mut holders = match held {
        0 => Vec::new(),
        _ => daemon.lease_table.late(|grant, _| wanted(grant)),
    };
    holders.sort_unstable_by_key(|row| std::cmp::Reverse(row.held));
    for row in holders.iter().take(HOLDERS_MAX) {
        let note = row.note.as_ref();
        let note = note.map_or(String::new(), |note| format!(" ({note:?})"));
        let (holder, time) = (row.card.name.lock(), span(row.held));
        let _ = writeln!(text, "{holder}{note} has held {} for {time}.", row.value);
    }
    Some(Explained {
        kind: "lock",
        name: name.into(),
        text,
        facts: vec![
            ("rule", rule.pattern.as_str().into()),
            ("held", held.into()),
            ("waiting", waiting.into()),
        ],
    })
}

/// The leases of a holder, a line for each of the first.
fn list(text: &mut String, held: &[LeaseRow]) {
    if held.is_empty() {
        text.push_str("It holds nothing.\n");
    }
    for row in held.iter().take(HOLDERS_MAX) {
        let verb = if row.is_waiting {
            "It has waited for"
        } else {
            "It has held"
        };
        let kind = row.ticket.kind.word();
        let time = span(row.held);
        let _ = writeln!(text, "{verb} {kind} {} {} for {time}.", row.name, row.value);
    }
    if held.len() > HOLDERS_MAX {
        let _ = writeln!(text, "It has {} more.", held.len() - HOLDERS_MAX);
    }
}

fn names(all: &[&String]) -> String {
    let all: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
    all.join(",")
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    let said = first.unwrap_or_default() + letters.as_str();
    let stop = stop(&said);
    said + stop
}

/// A time that a person reads.
pub(crate) fn span(span: Duration) -> String {
    match span.as_secs() {
        0..60 => Brief(span).to_string(),
        secs @ 60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        secs => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
    }
}
