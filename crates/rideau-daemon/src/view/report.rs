//! The server's numbers as text, section by section, in the format that people
//! know from Redis.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use rideau_process::panics;

use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::viewer::Viewer;
use crate::view::facts::{ClusterNow, Limit};
use crate::view::resources;
use crate::view::tables::{self, Cell, Table, TableKind, TableQuery};

/// Every section, in order.
pub(crate) const SECTIONS: [&str; 16] = [
    "server",
    "clients",
    "memory",
    "cpu",
    "replication",
    "stats",
    "pools",
    "brokers",
    "regulators",
    "locks",
    "ranges",
    "apps",
    "sessions",
    "config",
    "cluster",
    "limits",
];

/// Sections that tools for Redis ask for; here they are empty.
pub(crate) const ABSENT: [&str; 8] = [
    "persistence",
    "commandstats",
    "latencystats",
    "errorstats",
    "keyspace",
    "modules",
    "sentinel",
    "debug",
];

/// The version of Redis whose protocol and commands for clients this server has. Tools
/// look for what they may ask by it.
const LIKE: &str = "7.2.0";

/// All sections.
pub(crate) fn all(daemon: &Daemon, viewer: Viewer<'_>) -> String {
    let sections: Vec<_> = SECTIONS
        .iter()
        .filter_map(|name| section(daemon, name, viewer))
        .collect();
    sections.join("\r\n")
}

/// One section, if there is one of this name.
pub(crate) fn section(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<String> {
    let of = |what| of(daemon, what, viewer);
    let mut page = Page::default();
    page.title(name);
    match name {
        "server" => server(daemon, &mut page),
        "clients" => clients(daemon, &mut page),
        "memory" => memory(&mut page),
        "cpu" => cpu(&mut page),
        "replication" => replication(&mut page),
        "stats" => stats(daemon, &mut page),
        "pools" => page.table("pool_", &of(TableKind::Pools)),
        "brokers" => page.table("broker_", &of(TableKind::Brokers)),
        "regulators" => page.table("regulator_", &of(TableKind::Regulators)),
        "locks" => locks(daemon, &mut page, &of(TableKind::Locks)),
        "ranges" => ranges(daemon, &mut page, &of(TableKind::Ranges)),
        "apps" => page.table("app_", &of(TableKind::Apps)),
        "sessions" => sessions(daemon, &mut page),
        "config" => config(daemon, &mut page),
        "cluster" => cluster(daemon, &mut page),
        "limits" => limits(daemon, &mut page),
        _ => return None,
    }
    Some(page.text)
}

fn of(daemon: &Daemon, what: TableKind, viewer: Viewer<'_>) -> Table {
    let wanted = TableQuery {
        viewer,
        ..TableQuery::default()
    };
    tables::table(daemon, what, &wanted)
}

/// Lines as Redis writes them.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn title(&mut self, name: &str) {
        let mut rest = name.chars();
        let first = rest.next().map(|first| first.to_ascii_uppercase());
        self.text = format!("# {}{}\r\n", first.unwrap_or_default(), rest.as_str());
    }

    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        let value = value.to_string().replace(['\r', '\n'], " ");
        let _ = write!(self.text, "{key}:{value}\r\n");
    }

    /// A line for each row, as `pool_pg-1:idle=1,held=9`. Texts that would
    /// break it are left out, and units.
    fn table(&mut self, prefix: &str, table: &Table) {
        for row in &table.rows {
            let cells = table.columns.iter().zip(row).skip(1);
            let pairs: Vec<_> = cells
                .filter(|(column, _)| **column != "unit")
                .filter_map(|(column, cell)| Some(format!("{column}={}", plain(cell)?)))
                .collect();
            self.line(&format!("{prefix}{}", row[0]), pairs.join(","));
        }
    }
}

fn plain(cell: &Cell) -> Option<String> {
    let text = cell.to_string();
    let is_plain = !text.contains([',', '=', ':']);
    (is_plain && !text.is_empty()).then_some(text)
}

fn server(daemon: &Daemon, page: &mut Page) {
    let config = daemon.config.load();
    let up = daemon.started.elapsed().as_secs();
    page.line("redis_version", LIKE);
    page.line("rideau_version", env!("CARGO_PKG_VERSION"));
    page.line("redis_mode", "standalone");
    page.line("name", &config.server.name);
    page.line("process_id", std::process::id());
    page.line("os", std::env::consts::OS);
    page.line("arch_bits", usize::BITS);
    page.line("uptime_in_seconds", up);
    page.line("uptime_in_days", up / 86_400);
    let upgrade = daemon.upgrades.last();
    page.line("upgrade", upgrade.map_or("none", |last| last.word()));
    // Clients that wait for a server to have loaded its data look for this.
    page.line("loading", 0);
    page.line("draining", u8::from(daemon.is_draining()));
}

fn clients(daemon: &Daemon, page: &mut Page) {
    let config = daemon.config.load();
    page.line("connected_clients", daemon.clients.len());
    page.line("maxclients", config.limits.connections_max);
    let waiting = daemon.counts.waiting.load(Ordering::Relaxed);
    page.line("blocked_clients", waiting);
    page.line("monitors", daemon.clients.monitors());
    page.line("subscribers", daemon.events.watchers());
}

/// What the system says of our memory, by the names of Redis. All of it is ours: there
/// is no limit at which anything would be evicted.
fn memory(page: &mut Page) {
    let status = resources::Status::now();
    let resident = status.value("VmRSS").unwrap_or(0);
    let used = status.value("RssAnon").unwrap_or(resident);
    let system = resources::memory_of_system().unwrap_or(0);
    for (name, bytes) in [
        ("used_memory", used),
        ("used_memory_rss", resident),
        (
            "used_memory_peak",
            status.value("VmHWM").unwrap_or(resident),
        ),
        ("total_system_memory", system),
        ("maxmemory", 0),
    ] {
        page.line(name, bytes);
        page.line(&format!("{name}_human"), human(bytes));
    }
    page.line("maxmemory_policy", "noeviction");
    let ratio = resident as f64 / used.max(1) as f64;
    page.line("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
}

/// As Redis writes sizes for people.
fn human(bytes: u64) -> String {
    const UNITS: [(char, u64); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];
    let unit = UNITS.iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes}B"),
        |(word, unit)| format!("{:.2}{word}", bytes as f64 / *unit as f64),
    )
}

fn cpu(page: &mut Page) {
    let (user, system) = resources::processor_time().unwrap_or_default();
    page.line("used_cpu_sys", format_args!("{:.6}", system.as_secs_f64()));
    page.line("used_cpu_user", format_args!("{:.6}", user.as_secs_f64()));
}

/// There is this server alone.
fn replication(page: &mut Page) {
    page.line("role", "master");
    page.line("connected_slaves", 0);
}

fn stats(daemon: &Daemon, page: &mut Page) {
    let counts = &daemon.counts;
    for (key, count) in [
        ("total_connections_received", &counts.connections),
        ("total_commands_processed", &counts.commands),
        ("rejected_connections", &counts.turned_away),
        ("protocol_errors", &counts.protocol_errors),
        ("slow_clients_cut", &counts.slow),
        ("failed_logins", &counts.denied),
        ("late_logins", &counts.logins_late),
        ("config_changes", &counts.changes),
    ] {
        page.line(key, count.load(Ordering::Relaxed));
    }
    page.line("internal_errors", panics::count());
    page.line("foreign_releases", counts.foreign_releases.total());
    page.line("refused_asks", daemon.refusals.total());
    for why in EndReason::ALL {
        page.line(&format!("reclaims_{}", why.word()), counts.reclaims.of(why));
    }
}

fn locks(daemon: &Daemon, page: &mut Page, rules: &Table) {
    page.line("lock_keys", daemon.lock_keys());
    page.table("lock_", rules);
}

fn ranges(daemon: &Daemon, page: &mut Page, all: &Table) {
    let values = &daemon.values;
    let bytes = values.ranges.bytes();
    let folder = values.folder().map(|path| path.display().to_string());
    page.line("range_store", folder.unwrap_or_else(|| "memory".into()));
    let failed = values.ranges.failed();
    page.line("range_store_failed", u8::from(failed.is_some()));
    page.line("range_records", bytes.records_len);
    let memory = bytes.records + bytes.timers + bytes.free;
    page.line("range_memory_bytes", memory);
    page.table("range_", all);
}

fn sessions(daemon: &Daemon, page: &mut Page) {
    let all = daemon.sessions.all();
    page.line("sessions", all.len());
    let attached: usize = all.iter().map(|row| row.attached).sum();
    page.line("session_connections", attached);
    let held: usize = all
        .iter()
        .map(|row| daemon.lease_table.count(row.holder))
        .sum();
    page.line("session_held", held);
}

fn config(daemon: &Daemon, page: &mut Page) {
    let config = daemon.config.load();
    let settings = &daemon.settings;
    let file = settings.file().map(|file| file.display().to_string());
    page.line("config_file", file.unwrap_or_default());
    let version = settings.history().first().map(|version| version.serial);
    page.line("config_version", version.unwrap_or(0));
    page.line("config_unsaved", u8::from(settings.is_unsaved()));
    page.line("restart_needed_for", settings.pending(&config).join(","));
    for (name, count) in [
        ("users", config.users.len()),
        ("pools", config.pools.len()),
        ("groups", config.groups.len()),
        ("brokers", config.brokers.len()),
        ("regulators", config.regulators.len()),
        ("lock_rules", config.locks.len()),
        ("ranges", config.ranges.len()),
    ] {
        page.line(name, count);
    }
}

/// Clients that can speak with several nodes look for the first line.
fn cluster(daemon: &Daemon, page: &mut Page) {
    let all = ClusterNow::all(daemon.cluster.as_deref());
    page.line("cluster_enabled", all.len());
    let table = Table::of(&all);
    for row in &table.rows {
        for (column, cell) in table.columns.iter().zip(row) {
            let text = cell.to_string();
            if !text.is_empty() {
                page.line(&format!("cluster_{column}"), text);
            }
        }
    }
}

fn limits(daemon: &Daemon, page: &mut Page) {
    page.table("", &Table::of(&Limit::all(daemon)));
}
