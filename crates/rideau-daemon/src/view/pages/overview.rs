//! The first page: what needs a look, worst first; what is scarce and how full it is; what
//! was refused and why.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_config::human::{Size, Span, count};
use rideau_config::{Listen, Server};
use serde_json::{Value, json};

use super::blocks::{Blocks, Line, Tile, page_of};
use super::{Look, apps, locks, past, ranges, things};
use crate::state::alarms::number_in_words;
use crate::view::facts::AlarmNow;
use crate::view::worst::{Level, Ranked, grouped, short};

/// Alerts that are shown; the others are counted.
const ALERTS: usize = 6;
/// Lines of the chart of waits.
const LINES: usize = 5;

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Overview");
    alerts(blocks);
    tiles(blocks);
    charts(blocks);
    let is_apps_only = blocks.look.is_apps_only();
    if is_apps_only {
        apps::few(blocks);
    }
    things::few_pools(blocks);
    things::few_brokers(blocks);
    if !is_apps_only {
        apps::few(blocks);
    }
    ranges::few(blocks);
    locks::few(blocks);
    past::reasons(blocks);
    next(blocks);
}

/// Alarms that are on, and then things that are not fine, the worst first.
fn alerts(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let seen = |one: &&Ranked| one.level > Level::Fine && look.viewer.sees(one.kind, &one.name);
    let all: Vec<_> = look.ranking.all.iter().filter(seen).collect();
    let ranked = all.iter().map(|one| {
        let since = Duration::from_millis(look.ranking.at_ms.saturating_sub(one.since_ms));
        json!({
            "level": one.level.word(),
            "kind": one.kind,
            "name": one.name,
            "link": page_of(one.kind, &one.name),
            "text": one.why,
            "since": lasted(since),
        })
    });
    let alarms = alarms(look);
    let more = (alarms.len() + all.len()).saturating_sub(ALERTS);
    let rows: Vec<_> = alarms.into_iter().chain(ranked).take(ALERTS).collect();
    blocks.add(json!({ "type": "alerts", "rows": rows, "more": more }));
}

fn lasted(since: Duration) -> String {
    match since.as_secs() {
        0 => "since now".to_owned(),
        whole => format!("for {}", Span(Duration::from_secs(whole))),
    }
}

/// Alarms that are on: those of the node first, and then those that have lasted longest.
fn alarms(look: &Look<'_>) -> Vec<Value> {
    let mut on = AlarmNow::all(look.daemon, look.viewer);
    on.retain(|alarm| alarm.0.is_on());
    on.sort_by_key(|alarm| (alarm.0.rule.kind != "cluster", alarm.0.since));
    let rows = on.iter().map(|AlarmNow(alarm)| {
        let rule = &alarm.rule;
        let (name, number) = (&alarm.name, number_in_words(rule, alarm.value));
        let since = alarm.since.and_then(|since| since.elapsed().ok());
        let link = match rule.kind {
            "cluster" => Some("cluster".to_owned()),
            kind => page_of(kind, &rule.name),
        };
        json!({
            "level": Level::Bad.word(),
            "kind": rule.written_kind(),
            "name": rule.name,
            "link": link,
            "text": format!("alarm “{name}”: {number}"),
            "since": lasted(since.unwrap_or_default()),
        })
    });
    rows.collect()
}

fn tiles(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let daemon = look.daemon;
    let row = look.sample.rows.iter().find(|row| row.kind == "server");
    let value = |name: &str| {
        let values = row.map(|row| row.values.iter());
        let found = values.and_then(|mut values| values.find(|(known, _)| known == name));
        short(found.map_or(0.0, |(_, value)| *value))
    };
    let seen = look
        .ranking
        .all
        .iter()
        .filter(|one| look.viewer.sees(one.kind, &one.name));
    let slowest = seen.map(|one| one.wait_p99_us).fold(0.0, f64::max);
    let (clients, sessions) = (daemon.clients.len(), daemon.sessions.len());
    let kept = look.history.kept();
    let number = |number: usize| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    blocks.tiles(vec![
        Tile {
            label: "grants/s",
            text: value("grants_per_s"),
            help: "Asks that were granted in the last second, of everything.",
            of: Some("server.grants_per_s"),
        },
        Tile {
            label: "waiting",
            text: number(daemon.counts.waiting.load(Ordering::Relaxed)),
            help: "Asks that wait now, for anything.",
            of: Some("server.waiting"),
        },
        Tile {
            label: "longest p99 wait",
            text: Span(Duration::from_micros(slowest as u64)).to_string(),
            help: "Of the thing where asks wait longest: 99 of 100 of its last asks waited no \
                   longer.",
            of: None,
        },
        Tile {
            label: "refusals/s",
            text: value("refusals_per_s"),
            help: "Asks that were refused in the last second, by everything.",
            of: Some("server.refusals_per_s"),
        },
        Tile {
            label: "connections",
            text: match sessions {
                0 => number(clients),
                _ => format!("{} + {}", number(clients), count(sessions, "session")),
            },
            help: "Connections of the Redis protocol, and sessions.",
            of: Some("server.clients"),
        },
        Tile {
            label: "history",
            text: Size(kept.bytes as u64).to_string(),
            help: "Memory of the charts: 10 min by the second and 6 h by 15 s, unless the config \
                   says otherwise; never more than 32 MiB. Series beyond that have no history.",
            of: None,
        },
    ]);
}

fn charts(blocks: &mut Blocks<'_>) {
    let lines = [
        Line::of("server", "", "grants_per_s", "granted"),
        Line::of("server", "", "refusals_per_s", "refused"),
    ];
    blocks.chart("rates", "Granted and refused, per second", "/s", &lines);
    // Those that stay in the chart while their order changes: by name.
    let look = blocks.look;
    let seen = |one: &&Ranked| {
        let waits = ["pool", "broker", "regulator", "app"].contains(&one.kind);
        waits && look.viewer.sees(one.kind, &one.name)
    };
    let mut worst: Vec<_> = look.ranking.all.iter().filter(seen).take(LINES).collect();
    worst.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    let lines = worst.iter().map(|one| {
        let label = format!("{} {}", one.kind, one.name);
        Line::of(one.kind, &one.name, "wait_p99_us", &label)
    });
    let lines: Vec<_> = lines.collect();
    blocks.chart("waits", "99 of 100 asks waited up to", "us", &lines);
}

/// Commands to try next, with names and addresses that exist here.
fn next(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let config = look.daemon.config.load();
    let catalog = look.daemon.catalog.load();
    let first = |kind: &str, mut names: Vec<&String>| {
        names.retain(|name| look.viewer.sees(kind, name));
        names.into_iter().min().cloned()
    };
    let pool = first("pool", catalog.pools.keys().collect());
    let broker = first("broker", catalog.brokers.keys().collect());
    let mut lines = Vec::new();
    if let Some(redis) = redis_cli(&config.server) {
        lines.push(format!("{redis} LOCK demo PER 1"));
        lines.extend(pool.map(|pool| format!("{redis} TAKE {pool} WAIT 200")));
        lines.extend(broker.map(|broker| format!("{redis} ASK {broker} WAIT 500")));
    }
    if let Some(url) = http_url(&config.server) {
        lines.push(format!("curl -X POST {url}/v1/sessions"));
        lines.push(format!(
            "curl -X POST -H 'Rideau-Session: ID' {url}/v1/lock/demo"
        ));
    }
    blocks.add(json!({ "type": "commands", "title": "To try in a shell", "lines": lines }));
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
