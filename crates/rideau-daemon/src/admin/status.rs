//! A page for people: what there is, and what to type next.
//!
//! No script, so that it works in any browser and over any link.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use axum::http::header;
use axum::response::IntoResponse;
use rideau_config::human::{Html, Span, count};
use rideau_config::{Listen, Server};

use super::answer::{Answer, away};
use super::request::AdminRequest;
use crate::state::catalog::Catalog;
use crate::state::daemon::Daemon;
use crate::state::lease_table::LeaseRow;
use crate::state::viewer::Viewer;
use crate::view::facts::{
    AppNow, BrokerNow, ClientNow, Facts, GroupNow, HolderNow, PoolNow, RangeNow, RegulatorNow,
    RuleNow, Surface, Value, ViewNow, bare,
};

const STYLE: &str = include_str!("status.css");
/// The page loads itself again this often, in seconds.
const REFRESH: u32 = 5;
/// Rows of one table.
const ROWS_MAX: usize = 50;
/// States that an operator should look at.
const BAD: [&str; 5] = [
    "failing",
    "failed",
    "deploy_failed",
    "exhausted",
    "quarantine",
];

pub(super) async fn style(_visit: AdminRequest) -> Answer {
    Ok(([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response())
}

pub(super) async fn page(request: AdminRequest) -> Answer {
    let out = away(move || {
        let mut out = String::new();
        let written = write_page(&mut out, &request);
        debug_assert!(written.is_ok(), "a string takes all that is written");
        out
    })
    .await?;
    Ok(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], out).into_response())
}

fn write_page(out: &mut String, request: &AdminRequest) -> fmt::Result {
    let daemon = request.daemon();
    let config = daemon.config.load();
    let catalog = request.catalog();
    let name = Html(&config.server.name);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\">\
         <title>{name} – Rideau</title>\
         <link rel=\"stylesheet\" href=\"/assets/status.css\"></head><body>\n<h1>{name}</h1>\n"
    )?;
    let state = if daemon.is_draining() {
        "stopping: serves no new client"
    } else {
        "up"
    };
    writeln!(
        out,
        "<p>{state} for {}. {}, {}, {} waiting, {} refused so far.</p>",
        Span(daemon.started.elapsed()),
        count(daemon.clients.len(), "connection"),
        count(daemon.sessions.len(), "session"),
        daemon.counts.waiting.load(Ordering::Relaxed),
        daemon.refusals.total(),
    )?;
    let viewer = request.viewer();
    write_facts(out, "Pools", true, &PoolNow::all(&catalog))?;
    let groups = GroupNow::all(&daemon.catalog.load(), viewer);
    write_facts(out, "Groups", false, &groups)?;
    write_facts(out, "Brokers", true, &BrokerNow::all(&catalog))?;
    write_facts(out, "Regulators", false, &RegulatorNow::all(&catalog))?;
    write_locks(out, daemon, &catalog)?;
    let mut ranges = RangeNow::all(daemon, false);
    ranges.retain(|range| viewer.sees("range", range.name()));
    write_facts(out, "Ranges", false, &ranges)?;
    let views = ViewNow::all(&daemon.catalog.load(), &daemon.values, viewer);
    write_facts(out, "Views", false, &views)?;
    write_facts(
        out,
        "Applications",
        false,
        &AppNow::all(&daemon.apps, viewer),
    )?;
    write_holders(out, daemon, viewer)?;
    write_events(out, daemon, request.viewer())?;
    write_clients(out, daemon, request.viewer())?;
    write_next(out, &config.server, &catalog)?;
    out.write_str("</body></html>\n")
}

/// Things with the facts that there is room for.
fn write_facts<T: Facts>(out: &mut String, title: &str, is_always: bool, all: &[T]) -> fmt::Result {
    if all.is_empty() && !is_always {
        return Ok(());
    }
    write_some(out, title, all, all.len())
}

/// The first of these things.
fn write_some<T: Facts>(out: &mut String, title: &str, some: &[T], total: usize) -> fmt::Result {
    let is_on_page = |on: Surface| matches!(on, Surface::Show { is_on_page, .. } if is_on_page);
    let facts = T::ALL.iter().filter_map(|fact| {
        let column = fact.about.names(is_on_page).next()?;
        Some((column, fact.value))
    });
    let facts: Vec<_> = facts.collect();
    let heads: Vec<String> = facts.iter().map(|(column, _)| head(column)).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = some.iter().take(ROWS_MAX);
    let rows = rows.map(|one| facts.iter().map(|(_, value)| cell(&value(one))).collect());
    write_table(out, title, &heads, rows, total)
}

/// The name of a column without its unit, which the cells have.
fn head(column: &str) -> String {
    match column {
        "is_waiting" => String::new(),
        column => bare(column).replace('_', " "),
    }
}

fn cell(value: &Value<'_>) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Ratio(ratio) => ratio.to_string(),
        Value::Span(span) => Span(*span).to_string(),
        Value::Instant(at) => format!("{} ago", Span(at.elapsed().unwrap_or_default())),
        Value::Text(text) => text.to_string(),
        // The only one there is room for tells whether a command waits.
        Value::Flag(is) => if *is { "waits" } else { "" }.into(),
        Value::Names(names) => names.join(","),
        Value::Size(size) => size.to_string(),
        // What takes more than a cell is in no column.
        _ => String::new(),
    }
}

/// From what is counted anyway: keys may be too many to look at all of them.
fn write_locks(out: &mut String, daemon: &Daemon, catalog: &Catalog) -> fmt::Result {
    write_facts(out, "Locks", true, &RuleNow::all(catalog))?;
    let keys = match daemon.lock_keys() {
        1 => "1 key is known".into(),
        keys => format!("{keys} keys are known"),
    };
    writeln!(
        out,
        "<p>{keys}; <a href=\"/api/v1/locks\">those held</a>.</p>"
    )
}

fn write_holders(out: &mut String, daemon: &Daemon, viewer: Viewer<'_>) -> fmt::Result {
    let mut rows = daemon.lease_table.all();
    rows.retain(|row| viewer.sees(row.ticket.kind.word(), &row.name));
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(LeaseRow::key);
    let some = rows.iter().take(ROWS_MAX);
    let some: Vec<_> = some.map(|row| HolderNow::of(daemon, row, viewer)).collect();
    write_some(out, "Holders", &some, rows.len())
}

fn write_clients(out: &mut String, daemon: &Daemon, viewer: Viewer<'_>) -> fmt::Result {
    let mut clients = daemon.clients.all();
    clients.retain(|card| viewer.sees_holder(&card.card.lock()));
    let some = clients.iter().take(ROWS_MAX);
    let some: Vec<_> = some.map(|card| ClientNow::of(daemon, card)).collect();
    write_some(out, "Clients", &some, clients.len())
}

fn write_events(out: &mut String, daemon: &Daemon, viewer: Viewer<'_>) -> fmt::Result {
    let mut events = daemon.events.newest(usize::MAX);
    events.retain(|event| viewer.sees_event(event.kind, &event.name));
    events.truncate(10);
    if events.is_empty() {
        return Ok(());
    }
    let rows = events.iter().map(|event| {
        let ago = event.at.elapsed().unwrap_or_default();
        let by = event.by.clone().unwrap_or_default();
        vec![format!("{} ago", Span(ago)), viewer.text_of(event), by]
    });
    write_table(out, "Events", &["", "what", "by"], rows, events.len())
}

/// Commands to try next, with names and addresses that exist here.
fn write_next(out: &mut String, server: &Server, catalog: &Catalog) -> fmt::Result {
    let pool = catalog.pools.keys().min();
    let broker = catalog.brokers.keys().min();
    out.write_str("<h2>Next</h2>\n<pre>")?;
    if let Some(redis) = redis_cli(server) {
        let redis = Html(&redis);
        writeln!(out, "{redis} LOCK demo PER 1")?;
        if let Some(pool) = pool {
            writeln!(out, "{redis} TAKE {} WAIT 200", Html(pool))?;
        }
        if let Some(broker) = broker {
            writeln!(out, "{redis} ASK {} WAIT 500", Html(broker))?;
        }
    }
    if let Some(url) = http_url(server) {
        writeln!(out, "curl -X POST {url}/v1/sessions")?;
        writeln!(
            out,
            "curl -X POST -H 'Rideau-Session: ID' {url}/v1/lock/demo"
        )?;
    }
    out.write_str(
        "</pre>\n\
         <p><a href=\"/api/v1/state\">state</a> <a href=\"/api/v1/holders\">holders</a> \
         <a href=\"/api/v1/drops\">refusals</a> <a href=\"/api/v1/limits\">limits</a> \
         <a href=\"/metrics\">metrics</a> <a href=\"/api/openapi.json\">the API</a></p>\n",
    )
}

/// How redis-cli gets here.
fn redis_cli(server: &Server) -> Option<String> {
    let at = |address: &SocketAddr| match address.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => format!("-p {}", address.port()),
        ip => format!("-h {ip} -p {}", address.port()),
    };
    let plain = server.listen.first().map(|listen| match listen {
        Listen::Tcp(address) => format!("redis-cli {}", at(address)),
        Listen::Unix(path) => format!("redis-cli -s {}", path.display()),
    });
    let tls = server.tls_listen.first();
    plain.or_else(|| tls.map(|address| format!("redis-cli --tls {}", at(address))))
}

/// How curl does.
fn http_url(server: &Server) -> Option<String> {
    let at = |address: &SocketAddr| match address.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => format!("localhost:{}", address.port()),
        _ => address.to_string(),
    };
    let tls = server.tls_admin.as_ref();
    let plain = server.admin.as_ref().map(at);
    plain.or_else(|| tls.map(|address| format!("https://{}", at(address))))
}

fn write_table(
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
        write!(out, "<th>{}</th>", Html(head))?;
    }
    out.write_str("</tr>\n")?;
    for row in rows {
        let is_bad = row.iter().any(|cell| BAD.contains(&cell.as_str()));
        out.write_str(if is_bad { "<tr class=\"bad\">" } else { "<tr>" })?;
        for cell in row {
            write!(out, "<td>{}</td>", Html(&cell))?;
        }
        out.write_str("</tr>\n")?;
    }
    out.write_str("</table></div>\n")?;
    if total > ROWS_MAX {
        writeln!(out, "<p>… and {} more.</p>", total - ROWS_MAX)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_next_goes_where_this_server_listens() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let server = Server {
            listen: vec![Listen::Tcp(at(18_600))],
            admin: Some(at(18_601)),
            ..Server::default()
        };
        assert_eq!(redis_cli(&server).as_deref(), Some("redis-cli -p 18600"));
        assert_eq!(http_url(&server).as_deref(), Some("localhost:18601"));
        let far = SocketAddr::from(([10, 0, 0, 7], 7_443));
        let server = Server {
            listen: Vec::new(),
            tls_listen: vec![far],
            ..server
        };
        let redis = redis_cli(&server);
        assert_eq!(
            redis.as_deref(),
            Some("redis-cli --tls -h 10.0.0.7 -p 7443")
        );
    }
}
