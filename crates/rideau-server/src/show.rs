//! What operators look at, as tables: the same rows for Redis clients, for HTTP
//! and for the command line.
//!
//! Times are whole microseconds (`_us`), ages seconds (`_s`), instants
//! milliseconds since 1970 (`_ms`).

mod limits;
mod past;
mod people;
mod places;
mod ranges;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

pub use limits::Limit;
pub(crate) use places::{counts, reasons, refused, state};

use crate::daemon::Daemon;
use crate::holdings::Card;
use crate::resp::Reply;
use crate::ticket::Ticket;

/// Rows below the names of their columns. New columns come only at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The names of the columns.
    pub columns: &'static [&'static str],
    /// As many cells as there are columns, each.
    pub rows: Vec<Vec<Cell>>,
}

/// One value of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// There is none.
    None,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// What there is to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
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
    /// The connections.
    Clients,
    /// The sessions.
    Sessions,
    /// Who holds or waits for what, by ticket; the longest first.
    Holders,
    /// The last asks that were refused; the newest first.
    Drops,
    /// What happened; the newest first.
    Events,
    /// Every key of the config that counts.
    Config,
    /// What outsiders can fill, how far it is filled, who was turned away.
    Limits,
}

/// Whose tickets are shown in full: with one, a thing can be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight<'a> {
    /// Everybody's.
    All,
    /// Only those of this user.
    Of(&'a str),
}

/// Which rows are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Only those of this name.
    pub name: Option<&'a str>,
    /// As many at most.
    pub count: usize,
    /// Whose tickets are shown in full.
    pub sight: Sight<'a>,
}

/// As many rows are shown to who does not say.
pub const COUNT: usize = 1000;

impl Default for Wanted<'_> {
    fn default() -> Self {
        Self {
            name: None,
            count: COUNT,
            sight: Sight::All,
        }
    }
}

impl What {
    /// All that there is to look at.
    pub const ALL: [Self; 13] = [
        Self::Pools,
        Self::Groups,
        Self::Brokers,
        Self::Regulators,
        Self::Locks,
        Self::Ranges,
        Self::Clients,
        Self::Sessions,
        Self::Holders,
        Self::Drops,
        Self::Events,
        Self::Config,
        Self::Limits,
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
            Self::Clients => "clients",
            Self::Sessions => "sessions",
            Self::Holders => "holders",
            Self::Drops => "drops",
            Self::Events => "events",
            Self::Config => "config",
            Self::Limits => "limits",
        }
    }

    /// What this word asks for, in either case.
    pub fn of(word: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|what| what.word().as_bytes().eq_ignore_ascii_case(word))
    }
}

/// Look at something.
pub fn table(daemon: &Daemon, what: What, wanted: &Wanted<'_>) -> Table {
    let mut table = match what {
        What::Pools => places::pools(daemon),
        What::Groups => places::groups(daemon),
        What::Brokers => places::brokers(daemon),
        What::Regulators => places::regulators(daemon),
        What::Locks => places::locks(daemon),
        What::Ranges => ranges::ranges(daemon),
        What::Clients => people::clients(daemon),
        What::Sessions => people::sessions(daemon, wanted.sight),
        What::Holders => people::holders(daemon, wanted.sight),
        What::Drops => past::drops(daemon),
        What::Events => past::events(daemon),
        What::Config => limits::config(daemon),
        What::Limits => limits::table(daemon),
    };
    if let Some(name) = wanted.name {
        table.keep(name);
    }
    table.rows.truncate(wanted.count);
    table
}

/// How far what outsiders can fill is filled.
pub fn limits(daemon: &Daemon) -> Vec<Limit> {
    limits::all(daemon)
}

impl Table {
    const fn new(columns: &'static [&'static str]) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Keep the rows that are called so in their column `name`, or else in their
    /// first one.
    fn keep(&mut self, name: &str) {
        let column = self.columns.iter().position(|column| *column == "name");
        let column = column.unwrap_or(0);
        self.rows
            .retain(|row| matches!(&row[column], Cell::Text(text) if text == name));
    }

    /// The header and the rows, as arrays.
    pub fn write(&self, reply: &mut Reply<'_>) {
        reply.array(1 + self.rows.len()).array(self.columns.len());
        for column in self.columns {
            reply.bulk(column);
        }
        for row in &self.rows {
            reply.array(row.len());
            row.iter().for_each(|cell| cell.write(reply));
        }
    }

    /// The rows as objects.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let names = self.columns.iter().map(|name| (*name).to_owned());
            let pairs = names.zip(row.iter().map(Cell::json));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        self.rows.iter().map(row).collect()
    }
}

impl Cell {
    /// Write it.
    pub fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::None => reply.null(),
            Self::Number(number) => reply.integer(*number),
            Self::Text(text) => reply.bulk(text),
        };
    }

    /// As JSON has it.
    pub fn json(&self) -> Value {
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

impl Sight<'_> {
    /// A ticket, in full if one may use it.
    pub fn ticket(self, ticket: Ticket, card: &Card) -> String {
        match self {
            Self::Of(user) if *user != *card.user => format!("{ticket:?}"),
            _ => ticket.to_string(),
        }
    }
}
