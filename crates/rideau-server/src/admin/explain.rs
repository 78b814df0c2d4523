//! Why something is as it is, in words.

use serde_json::{Value, json};

use super::shown;
use super::visit::{Answer, No, Visit, ok};
use crate::drops::Dropped;
use crate::holdings::{Gone, Row};
use crate::ticket::{Kind, Ticket};

/// Explain a no (`d-…`), a ticket, a session, a connection by its number, or a
/// pool, broker or regulator by its name.
pub(super) async fn explain(visit: Visit) -> Answer {
    let id = visit.name("id");
    let found = drop_of(&visit, id)
        .or_else(|| ticket(&visit, id))
        .or_else(|| connection(&visit, id))
        .or_else(|| place(&visit, id));
    let (kind, text, about) = found.ok_or_else(|| {
        No::no_such(
            "thing",
            id,
            "explain takes the id of a refusal (d-…), a ticket, a session, the number of a \
             connection, or the name of a pool, a broker or a regulator.",
        )
    })?;
    ok(&json!({ "id": id, "kind": kind, "text": text, "about": about }))
}

/// What it is, what there is to say, and its numbers.
type Found = Option<(&'static str, String, Value)>;

fn drop_of(visit: &Visit, id: &str) -> Found {
    let dropped = visit.daemon().drops.find(id)?;
    Some(("refusal", refusal_text(&dropped), shown::dropped(&dropped)))
}

fn refusal_text(dropped: &Dropped) -> String {
    let Dropped {
        kind,
        name,
        waited,
        len,
        why,
        explained,
        ..
    } = dropped;
    let then = if explained.is_empty() {
        String::new()
    } else {
        format!("\nAt that moment:\n{explained}")
    };
    format!(
        "An ask at {kind} {name} got a no after {waited:.1?}, when {len} others waited: \
         {why}.{then}"
    )
}

fn ticket(visit: &Visit, id: &str) -> Found {
    let ticket = Ticket::parse(id.as_bytes())?;
    let daemon = visit.daemon();
    if ticket.kind == Kind::Session {
        let row = daemon.sessions.find(ticket)?;
        let shown = shown::session(visit, &row);
        let text = format!(
            "Session {} of user {} holds {} and has {} connections. It ends {}.",
            shown["name"],
            shown["user"],
            shown["held"],
            row.attached,
            row.left.map_or_else(
                || "when it is closed".into(),
                |left| format!("in {left:.1?} unless it is renewed")
            )
        );
        return Some(("session", text, shown));
    }
    let rows = daemon.holdings.all();
    let Some(row) = rows.iter().find(|row| row.ticket == ticket) else {
        let gone = daemon.holdings.look(ticket, None, |_| ()).err()?;
        let text = match gone {
            Gone::Stale { ago, why } => format!("It was {} {ago:.1?} ago.", why.words()),
            _ => return None,
        };
        return Some(("ticket", text, Value::Null));
    };
    Some(("ticket", holding_text(row), shown::holding(visit, row)))
}

fn holding_text(row: &Row) -> String {
    let holder = row.card.name.lock();
    let verb = if row.is_waiting {
        "has waited for"
    } else {
        "has held"
    };
    let note = row.note.as_ref();
    let note = note.map_or_else(String::new, |note| format!(" It says: {note}."));
    format!(
        "{holder} of user {} {verb} {} {} for {:.1?}.{note}",
        row.card.user,
        row.ticket.kind.word(),
        row.name,
        row.held
    )
}

fn connection(visit: &Visit, id: &str) -> Found {
    let daemon = visit.daemon();
    let card = daemon.clients.find(id.parse().ok()?)?;
    let shown = shown::client(daemon, &card);
    let rows = daemon.holdings.rows(*card.holder.lock());
    let mut text = format!(
        "Connection {id} from {} came {:.1?} ago and sent {} commands. It holds {}.",
        card.address,
        card.since.elapsed(),
        shown["commands"],
        rows.len()
    );
    for row in rows.iter().take(10) {
        text.push('\n');
        text.push_str(&holding_text(row));
    }
    Some(("connection", text, shown))
}

fn place(visit: &Visit, id: &str) -> Found {
    let places = visit.daemon().places.load();
    let pool = places.pools.get(id);
    let pool = pool.map(|place| ("pool", place.pool.explain()));
    let broker = places.brokers.get(id);
    let broker = broker.map(|place| ("broker", place.broker.explain()));
    let regulator = places.regulators.get(id);
    let regulator = regulator.map(|place| ("regulator", place.regulator.explain()));
    let (kind, text) = pool.or(broker).or(regulator)?;
    Some((kind, text, Value::Null))
}
