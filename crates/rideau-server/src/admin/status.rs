//! A page for people: what there is, and what to type next.
//!
//! No script, so that it works in any browser and over any link.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse;

use super::visit::{Answer, Visit};
use crate::daemon::Daemon;
use crate::places::Places;
use crate::show::Sight;

const STYLE: &str = include_str!("status.css");
/// The page loads itself again this often, in seconds.
const REFRESH: u32 = 5;
/// Rows of one table.
const ROWS_MAX: usize = 50;

pub(super) async fn style(_visit: Visit) -> Answer {
    Ok(([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response())
}

pub(super) async fn page(visit: Visit) -> Answer {
    let mut out = String::new();
    let written = write_page(&mut out, &visit);
    debug_assert!(written.is_ok(), "a string takes all that is written");
    Ok(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], out).into_response())
}

fn write_page(out: &mut String, visit: &Visit) -> fmt::Result {
    let daemon = visit.daemon();
    let config = daemon.config.load();
    let places = visit.places();
    let name = Escaped(&config.server.name);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\">\
         <title>{name} – Rideau</title>\
         <link rel=\"stylesheet\" href=\"/assets/status.css\"></head><body>\n<h1>{name}</h1>\n"
    )?;
    let state = if daemon.is_draining() {
        "stopping: serves nobody new"
    } else {
        "up"
    };
    writeln!(
        out,
        "<p>{state} for {}. {} connections, {} sessions, {} wait, {} asks refused so far.</p>",
        span(daemon.started.elapsed()),
        daemon.clients.len(),
        daemon.sessions.len(),
        daemon.counts.waiting.load(Ordering::Relaxed),
        daemon.drops.total(),
    )?;
    write_pools(out, &places)?;
    write_brokers(out, &places)?;
    write_regulators(out, &places)?;
    write_locks(out, daemon, &places)?;
    write_ranges(out, daemon)?;
    write_apps(out, daemon, visit.sight())?;
    write_clients(out, daemon)?;
    write_events(out, daemon, visit.sight())?;
    write_next(out, &places)?;
    out.write_str("</body></html>\n")
}

fn write_pools(out: &mut String, places: &Places) -> fmt::Result {
    let mut pools: Vec<_> = places.pools.values().collect();
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    let heads = ["pool", "idle", "held", "max", "wait", "wait p99", "state"];
    let rows = pools.iter().take(ROWS_MAX).map(|place| {
        let stats = place.pool.stats();
        let state = match (stats.is_closing, stats.is_suspended) {
            (true, _) => "closing",
            (_, true) => "paused",
            _ if stats.members.idle == 0 && stats.members.held >= stats.max => "all held",
            _ => "ok",
        };
        vec![
            place.name.to_string(),
            stats.members.idle.to_string(),
            stats.members.held.to_string(),
            stats.max.to_string(),
            stats.len().to_string(),
            span(stats.takes.waits.quantile(0.99)),
            state.into(),
        ]
    });
    table(out, "Pools", &heads, rows, places.pools.len())
}

fn write_brokers(out: &mut String, places: &Places) -> fmt::Result {
    let mut brokers: Vec<_> = places.brokers.values().collect();
    brokers.sort_by(|one, other| one.name.cmp(&other.name));
    let heads = ["broker", "ask", "offer", "matched", "refused", "wait p99"];
    let rows = brokers.iter().take(ROWS_MAX).map(|place| {
        let stats = place.broker.stats();
        vec![
            place.name.to_string(),
            stats.asks_len.to_string(),
            stats.offers_len.to_string(),
            stats.asks.served.to_string(),
            stats.asks.shed.iter().sum::<u64>().to_string(),
            span(stats.asks.waits.quantile(0.99)),
        ]
    });
    table(out, "Brokers", &heads, rows, places.brokers.len())
}

fn write_regulators(out: &mut String, places: &Places) -> fmt::Result {
    if places.regulators.is_empty() {
        return Ok(());
    }
    let mut regulators: Vec<_> = places.regulators.values().collect();
    regulators.sort_by(|one, other| one.name.cmp(&other.name));
    let rows = regulators.iter().take(ROWS_MAX).map(|place| {
        let stats = place.regulator.stats();
        let is_open = if stats.is_open { "open" } else { "closed" };
        vec![
            place.name.to_string(),
            stats.size.to_string(),
            stats.len.to_string(),
            is_open.into(),
        ]
    });
    let heads = ["regulator", "held", "wait", "valve"];
    table(out, "Regulators", &heads, rows, places.regulators.len())
}

fn write_locks(out: &mut String, daemon: &Daemon, places: &Places) -> fmt::Result {
    let rows = places.rules.iter().take(ROWS_MAX).map(|place| {
        vec![
            place.rule.pattern.clone(),
            place.rule.per.to_string(),
            place.counts.acquired.load(Ordering::Relaxed).to_string(),
            place.counts.full.load(Ordering::Relaxed).to_string(),
        ]
    });
    let heads = ["keys like", "per", "granted", "full"];
    table(out, "Locks", &heads, rows, places.rules.len())?;
    let keys = daemon.locks.len();
    writeln!(
        out,
        "<p>{keys} keys are known; <a href=\"/api/v1/locks\">those held</a>.</p>"
    )
}

fn write_ranges(out: &mut String, daemon: &Daemon) -> fmt::Result {
    let all = daemon.values.ranges.all_stats();
    if all.is_empty() {
        return Ok(());
    }
    let rows = all.iter().take(ROWS_MAX).map(|stats| {
        let state = if stats.is_draining { "draining" } else { "ok" };
        vec![
            stats.name.clone(),
            stats.kind.print(stats.first),
            stats.size.to_string(),
            stats.free.to_string(),
            stats.reserved.to_string(),
            stats.quarantined.to_string(),
            state.into(),
        ]
    });
    let heads = [
        "range",
        "from",
        "values",
        "free",
        "held",
        "quarantine",
        "state",
    ];
    table(out, "Ranges", &heads, rows, all.len())
}

fn write_apps(out: &mut String, daemon: &Daemon, sight: Sight<'_>) -> fmt::Result {
    let all = daemon.apps.all();
    let seen: Vec<_> = all
        .iter()
        .filter(|app| sight.sees("app", &app.name))
        .collect();
    if seen.is_empty() {
        return Ok(());
    }
    let rows = seen.iter().take(ROWS_MAX).filter_map(|app| {
        let shown = daemon.apps.shown(app)?;
        let stats = &shown.stats;
        Some(vec![
            shown.name.to_string(),
            shown.state().into(),
            stats.processes.len().to_string(),
            stats.sessions.to_string(),
            stats.waiting.to_string(),
            span(stats.tally.waits.quantile(0.99)),
            stats.finished.to_string(),
            shown
                .report
                .map_or_else(String::new, |report| report.summary.clone()),
        ])
    });
    let heads = [
        "app",
        "state",
        "processes",
        "serves",
        "wait",
        "wait p99",
        "served",
        "why",
    ];
    table(out, "Applications", &heads, rows, seen.len())
}

fn write_clients(out: &mut String, daemon: &Daemon) -> fmt::Result {
    let clients = daemon.clients.all();
    let rows = clients.iter().take(ROWS_MAX).map(|card| {
        let holder = card.card.lock().clone();
        let held = daemon.holdings.count(*card.holder.lock());
        let is_waiting = card.is_waiting.load(Ordering::Relaxed);
        vec![
            card.id.to_string(),
            holder.name.lock().clone(),
            holder.user.to_string(),
            card.address.clone(),
            span(card.since.elapsed()),
            held.to_string(),
            if is_waiting { "waits" } else { "" }.into(),
        ]
    });
    let heads = ["id", "client", "user", "from", "for", "held", ""];
    table(out, "Clients", &heads, rows, clients.len())
}

fn write_events(out: &mut String, daemon: &Daemon, sight: Sight<'_>) -> fmt::Result {
    let mut events = daemon.events.newest(usize::MAX);
    events.retain(|event| sight.sees_event(event.kind, &event.name));
    events.truncate(10);
    if events.is_empty() {
        return Ok(());
    }
    let rows = events.iter().map(|event| {
        let ago = event.at.elapsed().unwrap_or_default();
        let by = event.by.clone().unwrap_or_default();
        vec![format!("{} ago", span(ago)), event.text.clone(), by]
    });
    table(out, "Events", &["", "what", "by"], rows, events.len())
}

/// What to type next, with names that exist here.
fn write_next(out: &mut String, places: &Places) -> fmt::Result {
    let pool = places.pools.keys().min();
    let broker = places.brokers.keys().min();
    out.write_str("<h2>Next</h2>\n<pre>redis-cli -p 7433 LOCK demo PER 1\n")?;
    if let Some(pool) = pool {
        writeln!(out, "redis-cli -p 7433 TAKE {} WAIT 200", Escaped(pool))?;
    }
    if let Some(broker) = broker {
        writeln!(out, "redis-cli -p 7433 ASK {} WAIT 500", Escaped(broker))?;
    }
    out.write_str(
        "curl -X POST localhost:7434/v1/sessions\n\
         curl -X POST -H 'Rideau-Session: ID' localhost:7434/v1/lock/demo\n</pre>\n\
         <p><a href=\"/api/v1/state\">state</a> <a href=\"/api/v1/holders\">holders</a> \
         <a href=\"/api/v1/drops\">refusals</a> <a href=\"/api/v1/limits\">limits</a> \
         <a href=\"/metrics\">metrics</a> <a href=\"/api/openapi.json\">the API</a></p>\n",
    )
}

fn table(
    out: &mut String,
    title: &str,
    heads: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    total: usize,
) -> fmt::Result {
    writeln!(out, "<h2>{title}</h2>")?;
    if total == 0 {
        return out.write_str("<p>None.</p>\n");
    }
    out.write_str("<div><table><tr>")?;
    for head in heads {
        write!(out, "<th>{}</th>", Escaped(head))?;
    }
    out.write_str("</tr>\n")?;
    for row in rows {
        out.write_str("<tr>")?;
        for cell in row {
            write!(out, "<td>{}</td>", Escaped(&cell))?;
        }
        out.write_str("</tr>\n")?;
    }
    out.write_str("</table></div>\n")?;
    if total > ROWS_MAX {
        writeln!(out, "<p>… and {} more.</p>", total - ROWS_MAX)?;
    }
    Ok(())
}

/// A span as a person says it.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{:.0?}", Duration::from_micros(span.as_micros() as u64)),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Text that is no markup, whoever wrote it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_choose_are_no_markup() {
        let name = "<script>\"a\" & 'b'</script>";
        let shown = Escaped(name).to_string();
        assert_eq!(
            shown,
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
    }

    #[test]
    fn spans_are_said_shortly() {
        let said = [0, 5, 90, 7_200, 300_000].map(|secs| span(Duration::from_secs(secs)));
        assert_eq!(said, ["0ns", "5 s", "1 min", "2 h", "3 days"]);
    }
}
