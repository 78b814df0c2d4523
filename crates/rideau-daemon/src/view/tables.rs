//! What operators look at, as tables: the same rows for Redis clients, for HTTP
//! and for the command line.
//!
//! Times are whole microseconds (`_us`), ages seconds (`_s`), instants
//! milliseconds since 1970 (`_ms`).

mod config;
mod page;
mod past;
mod people;
mod requests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rideau_config::human;
use rideau_resp::Reply;
use serde_json::Value;

pub(crate) use page::{More, Page};

use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::facts::{
    self, AlarmNow, AppNow, BrokerNow, CertificateNow, Facts, GroupNow, Limit, NodeNow,
    PartitionNow, PoolNow, ProcessNow, RangeNow, RegulatorNow, RuleNow, Surface, ViewNow, in_unit,
    since_1970,
};

/// Rows below the names of their columns. New columns come only at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// Rows with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The keys of the rows, which grow, where those stay the same when rows come and
    /// go; else it is their places.
    keys: Vec<u128>,
    /// How many rows are left for the next page, and the command for it.
    more: Option<(More, String)>,
}

/// One value of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// There is none.
    None,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// The tables of `SHOW`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableKind {
    /// The pools.
    Pools,
    /// The groups of pools.
    Groups,
    /// The brokers.
    Brokers,
    /// The regulators.
    Regulators,
    /// The rules for locks; the keys themselves are too many.
    Locks,
    /// The ranges.
    Ranges,
    /// The views of ranges.
    Views,
    /// The applications.
    Apps,
    /// Their processes.
    Processes,
    /// The requests that processes serve now.
    Requests,
    /// The certificates of the front.
    Certificates,
    /// The connections.
    Clients,
    /// The sessions.
    Sessions,
    /// Which holder holds or waits for what, by ticket; the longest first.
    Holders,
    /// The last asks that were refused; the newest first.
    Refusals,
    /// The last events, the newest first.
    Events,
    /// Every key of the config that counts.
    Config,
    /// Limits, how much of each is used, and how often each refused.
    Limits,
    /// The nodes of the cluster.
    Nodes,
    /// The partitions of the cluster, with their owners.
    Partitions,
    /// The alarms, and how each is.
    Alarms,
}

/// Which rows are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableQuery<'a> {
    /// Only those of this name.
    pub name: Option<&'a str>,
    /// Which of them.
    pub page: Page,
    /// The viewer: only its own tickets are shown in full.
    pub viewer: Viewer<'a>,
}

/// This many rows are shown to a client that does not say how many.
pub(crate) const COUNT: usize = 1000;

impl Default for TableQuery<'_> {
    fn default() -> Self {
        Self {
            name: None,
            page: Page::default(),
            viewer: Viewer::ALL,
        }
    }
}

impl TableKind {
    /// All that there is to look at.
    pub const ALL: [Self; 21] = [
        Self::Pools,
        Self::Groups,
        Self::Brokers,
        Self::Regulators,
        Self::Locks,
        Self::Ranges,
        Self::Views,
        Self::Apps,
        Self::Processes,
        Self::Requests,
        Self::Certificates,
        Self::Clients,
        Self::Sessions,
        Self::Holders,
        Self::Refusals,
        Self::Events,
        Self::Config,
        Self::Limits,
        Self::Nodes,
        Self::Partitions,
        Self::Alarms,
    ];

    /// How it is asked for, in lower case.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pools => "pools",
            Self::Groups => "groups",
            Self::Brokers => "brokers",
            Self::Regulators => "regulators",
            Self::Locks => "locks",
            Self::Ranges => "ranges",
            Self::Views => "views",
            Self::Apps => "apps",
            Self::Processes => "processes",
            Self::Requests => "requests",
            Self::Certificates => "certificates",
            Self::Clients => "clients",
            Self::Sessions => "sessions",
            Self::Holders => "holders",
            Self::Refusals => "refusals",
            Self::Events => "events",
            Self::Config => "config",
            Self::Limits => "limits",
            Self::Nodes => "nodes",
            Self::Partitions => "partitions",
            Self::Alarms => "alarms",
        }
    }

    /// The columns that an overview has room for; none if it has no such table.
    pub fn in_overview(self) -> Vec<&'static str> {
        fn of<T: Facts>() -> Vec<&'static str> {
            facts::columns::<T>(|surface| match surface {
                Surface::Show { is_in_overview, .. } => is_in_overview,
                _ => false,
            })
        }
        match self {
            Self::Pools => of::<PoolNow>(),
            Self::Brokers => of::<BrokerNow>(),
            Self::Regulators => of::<RegulatorNow>(),
            Self::Locks => of::<RuleNow>(),
            Self::Ranges => of::<RangeNow>(),
            Self::Views => of::<ViewNow>(),
            Self::Apps => of::<AppNow>(),
            Self::Processes => of::<ProcessNow>(),
            Self::Nodes => of::<NodeNow>(),
            _ => Vec::new(),
        }
    }

    /// The table with this name, in upper or lower case.
    pub fn of(word: &[u8]) -> Option<Self> {
        // The former word, until version 1.
        if word.eq_ignore_ascii_case(b"drops") {
            return Some(Self::Refusals);
        }
        let mut all = Self::ALL.into_iter();
        all.find(|what| what.word().as_bytes().eq_ignore_ascii_case(word))
    }
}

/// Look at something.
pub(crate) fn table(daemon: &Daemon, what: TableKind, wanted: &TableQuery<'_>) -> Table {
    let mut table = match what {
        TableKind::Pools => Table::of(&PoolNow::all(&daemon.catalog.load())),
        TableKind::Groups => Table::of(&GroupNow::all(&daemon.catalog.load(), wanted.viewer)),
        TableKind::Brokers => Table::of(&BrokerNow::all(&daemon.catalog.load())),
        TableKind::Regulators => Table::of(&RegulatorNow::all(&daemon.catalog.load())),
        TableKind::Locks => Table::of(&RuleNow::counted(daemon, true)),
        TableKind::Ranges => Table::of(&RangeNow::all(daemon, true)),
        TableKind::Views => {
            let catalog = daemon.catalog.load();
            Table::of(&ViewNow::all(&catalog, &daemon.values, wanted.viewer))
        }
        TableKind::Apps => Table::of(&AppNow::all(&daemon.apps, wanted.viewer)),
        TableKind::Processes => {
            let apps = AppNow::all(&daemon.apps, wanted.viewer);
            Table::of(&apps.iter().flat_map(AppNow::processes).collect::<Vec<_>>())
        }
        TableKind::Requests => requests::table(daemon, wanted.viewer),
        TableKind::Certificates => Table::of(&CertificateNow::all(&daemon.certificates)),
        TableKind::Clients => people::clients(daemon, wanted),
        TableKind::Sessions => people::sessions(daemon, wanted),
        TableKind::Holders => people::holders(daemon, wanted),
        TableKind::Refusals => past::refusals(daemon),
        TableKind::Events => past::events(daemon, wanted.viewer),
        TableKind::Config => config::table(daemon),
        TableKind::Limits => Table::of(&Limit::all(daemon)),
        TableKind::Nodes => Table::of(&NodeNow::all(daemon.cluster.as_deref())),
        TableKind::Alarms => Table::of(&AlarmNow::all(daemon, wanted.viewer)),
        TableKind::Partitions => Table::of(&PartitionNow::all(daemon.cluster.as_deref())),
    };
    if table.keys.len() != table.rows.len() {
        table.keys = (1..=table.rows.len() as u128).collect();
    }
    if let Some(name) = wanted.name {
        table.keep(name);
    }
    table.keep_seen(what, wanted.viewer);
    let more = table.cut(&wanted.page);
    table.more = more.map(|more| {
        let name = wanted.name.map(|name| format!(" {name}"));
        let what = what.word().to_uppercase();
        (more, format!("SHOW {what}{}", name.unwrap_or_default()))
    });
    table
}

impl Table {
    fn new(columns: &[&'static str]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
            keys: Vec::new(),
            more: None,
        }
    }

    /// A row for each thing, with the columns that its facts have.
    pub(crate) fn of<T: Facts>(all: &[T]) -> Self {
        let mut table = Self::new(&[]);
        table.columns = facts::columns::<T>(|surface| matches!(surface, Surface::Show { .. }));
        let row = |one: &T| {
            let shown = T::ALL.iter().filter_map(|fact| {
                let column = fact.about.column()?;
                Some(Cell::of((fact.value)(one), column))
            });
            shown.collect()
        };
        table.rows = all.iter().map(row).collect();
        table
    }

    /// Keep the rows that are wanted, with their keys.
    fn retain(&mut self, is_wanted: impl Fn(&[Cell]) -> bool) {
        let mut rows = self.rows.iter();
        let mut next = || rows.next().is_some_and(|row| is_wanted(row));
        self.keys.retain(|_| next());
        self.rows.retain(|row| is_wanted(row));
    }

    /// Keep one page, and say what is left.
    fn cut(&mut self, page: &Page) -> Option<More> {
        let keys = std::mem::take(&mut self.keys).into_iter();
        let rows = keys.zip(std::mem::take(&mut self.rows)).collect();
        let bytes = |(_, row): &(u128, Vec<Cell>)| row.iter().map(Cell::bytes).sum();
        let (rows, more) = page.cut(rows, |(key, _)| *key, bytes);
        (self.keys, self.rows) = rows.into_iter().unzip();
        more
    }

    /// Keep the rows that are called so in their column `name`, or else in their
    /// first one.
    fn keep(&mut self, name: &str) {
        let column = self.columns.iter().position(|column| *column == "name");
        let column = column.unwrap_or(0);
        self.retain(|row| matches!(&row[column], Cell::Text(text) if text == name));
    }

    /// Keep the rows that are about nothing that one may not use.
    fn keep_seen(&mut self, what: TableKind, viewer: Viewer<'_>) {
        // Some events are not for every user who sees all names.
        if viewer.sees_all_names() && what != TableKind::Events {
            return;
        }
        let at = |wanted: &str| self.columns.iter().position(|column| *column == wanted);
        let (kind, name) = (at("kind"), at("name"));
        let text = |row: &[Cell], at: Option<usize>| at.map(|at| row[at].to_string());
        self.retain(|row| {
            let Some(name) = text(row, name) else {
                return true;
            };
            let kind = match what {
                TableKind::Pools | TableKind::Groups => "pool".into(),
                TableKind::Brokers => "broker".into(),
                TableKind::Regulators => "regulator".into(),
                TableKind::Locks => "lock".into(),
                TableKind::Ranges => "range".into(),
                TableKind::Apps | TableKind::Processes | TableKind::Requests => "app".into(),
                _ => text(row, kind).unwrap_or_default(),
            };
            if what == TableKind::Events {
                return viewer.sees_event(&kind, &name);
            }
            if what == TableKind::Certificates {
                // Their names are hosts of apps.
                return false;
            }
            if what == TableKind::Config {
                return viewer.sees_path(&name);
            }
            viewer.sees(&kind, &name)
        });
    }

    /// The same, with the command that shows the next page.
    pub(crate) fn paged_by(mut self, command: &str) -> Self {
        if let Some((_, said)) = &mut self.more {
            *said = command.into();
        }
        self
    }

    /// The header and the rows, as arrays. If some are left for the next page, a row
    /// with one cell says so.
    pub(crate) fn write(&self, reply: &mut Reply<'_>) {
        let more = usize::from(self.more.is_some());
        reply.array(1 + self.rows.len() + more);
        reply.array(self.columns.len());
        for column in &self.columns {
            reply.bulk(column);
        }
        for row in &self.rows {
            reply.array(row.len());
            row.iter().for_each(|cell| cell.write(reply));
        }
        if let Some((more, command)) = &self.more {
            reply.array(1).bulk(more.words(command));
        }
    }
}

impl Cell {
    /// A fact in a column of this name. What takes more than a cell is in no column.
    fn of(value: facts::Value<'_>, column: &str) -> Self {
        match value {
            facts::Value::Count(count) => count.into(),
            facts::Value::Flag(is) => u64::from(is).into(),
            facts::Value::Span(span) => in_unit(span, column).into(),
            facts::Value::Instant(at) => in_unit(since_1970(at), column).into(),
            facts::Value::Text(text) => Self::Text(text.into_owned()),
            facts::Value::Ratio(ratio) if ratio.fract() == 0.0 => Self::Number(ratio as i64),
            facts::Value::Ratio(ratio) => Self::Text(ratio.to_string()),
            facts::Value::Names(names) => names.join(",").into(),
            facts::Value::Size(size) => {
                facts::number(size).map_or_else(|| size.to_string().into(), Self::Number)
            }
            _ => Self::None,
        }
    }

    /// Write it.
    pub(crate) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::None => reply.null(),
            Self::Number(number) => reply.integer(*number),
            Self::Text(text) => reply.bulk(&*human::shown(text)),
        };
    }

    /// About how many bytes it takes in an answer.
    fn bytes(&self) -> usize {
        16 + match self {
            Self::None | Self::Number(_) => 8,
            Self::Text(text) => human::shown(text).len(),
        }
    }

    /// As JSON has it.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Duration> for Cell {
    /// In microseconds.
    fn from(span: Duration) -> Self {
        Self::Number(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))
    }
}

impl From<SystemTime> for Cell {
    /// In milliseconds since 1970.
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Number(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}
