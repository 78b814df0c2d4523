//! Shows what the server does, and ends what it should not.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rideau_daemon::TableKind;
use rideau_resp::Value;
use serde_json::{Map, Value as Json, json};

use super::table::Table;
use super::{Done, Failure, Manner, answer, control, pages, show, span, terminal, upgrade};
use crate::wire::Wire;

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Only these: alarms, apps, processes, requests, pools, groups, brokers, regulators, locks,
    /// ranges, views, clients, sessions, refusals, events, config, history, nodes, partitions or
    /// limits
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// Only the one of this name
    name: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Holders {
    /// Only of this pool, key or holder
    name: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// A ticket, the id of a refused ask (d-…), a connection, or a name
    id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Tail {
    /// The stream to follow
    #[arg(value_enum, default_value_t = Stream::Events)]
    stream: Stream,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Stream {
    /// Events of apps, pools, brokers, sessions and the config
    Events,
    /// Asks that were refused
    #[value(alias = "drops")]
    Refusals,
    /// Every command that clients send
    Commands,
}

#[derive(Args, Debug)]
pub(crate) struct Kill {
    /// The id of a connection, from `rideau status clients`
    #[arg(value_parser = client)]
    client: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// A ticket, from `rideau holders`
    ticket: String,
    /// The member is broken: have it replaced
    #[arg(long)]
    fail: bool,
}

fn client(text: &str) -> Result<u64, String> {
    show::number(text, "a connection", "clients")
}

/// How often the last refusals are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How many rows are looked at.
const ROWS_MAX: usize = 10_000;
const ROWS: &str = "10000";
/// Things with names that are held or waited for.
const NAMED: [&str; 6] = ["POOLS", "GROUPS", "BROKERS", "REGULATORS", "RANGES", "APPS"];
/// How the server calls us.
const NAME: &str = "rideau-cli";
/// The tables of the overview, with the word for one row.
const OVERVIEW: [(TableKind, &str); 9] = [
    (TableKind::Pools, "pool"),
    (TableKind::Brokers, "broker"),
    (TableKind::Regulators, "regulator"),
    (TableKind::Locks, "lock"),
    (TableKind::Apps, "app"),
    (TableKind::Processes, "process of"),
    (TableKind::Ranges, "range"),
    (TableKind::Views, "view"),
    (TableKind::Nodes, "node"),
];

pub(crate) async fn status(words: &Status, manner: &Manner) -> Done {
    let kind = words.kind.as_deref().map(Kind::of).transpose()?;
    let mut wire = control::connect(manner, NAME).await?;
    let answer = match kind {
        None => return overview(wire, manner).await,
        Some(Kind::History) => wire.ask(&["CONFIG", "HISTORY"]).await?,
        Some(Kind::Shown(what)) => {
            let ask = ["SHOW", what.word(), "COUNT", ROWS];
            pages::ask(&mut wire, &ask, ROWS_MAX).await?
        }
    };
    let rows = rows(answer, words.name.as_deref())?;
    if let (Some(kind), Some(name), Ok(table)) = (kind, &words.name, &rows)
        && kind.is_named()
        && table.is_empty()
    {
        let word = kind.word();
        return Err(Failure::Broken(format!(
            "none of the {word} is called {name:?}; `rideau status {word}` lists them"
        )));
    }
    print_rows(rows, manner)
}

/// The kinds of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Shown(TableKind),
    /// The versions of the config.
    History,
}

impl Kind {
    /// `pool` means the same as `pools`.
    fn of(text: &str) -> Result<Self, Failure> {
        let lower = text.to_ascii_lowercase();
        let mut all = Self::all();
        let found = all.find(|kind| {
            let rest = kind.word().strip_prefix(lower.as_str());
            rest.is_some_and(|rest| matches!(rest, "" | "s" | "es"))
        });
        found.ok_or_else(|| {
            let all: Vec<_> = Self::all().map(Self::word).collect();
            let all = all.join(", ");
            Failure::Broken(format!("there is no status of {text:?}; there is: {all}"))
        })
    }

    fn all() -> impl Iterator<Item = Self> {
        TableKind::ALL
            .into_iter()
            .map(Self::Shown)
            .chain([Self::History])
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Shown(what) => what.word(),
            Self::History => "history",
        }
    }

    /// Its rows are things with names of their own. Of others there may be none
    /// today.
    const fn is_named(self) -> bool {
        !matches!(
            self,
            Self::Shown(
                TableKind::Processes
                    | TableKind::Requests
                    | TableKind::Holders
                    | TableKind::Refusals
                    | TableKind::Events
            )
        )
    }
}

async fn overview(mut wire: Wire, manner: &Manner) -> Done {
    let mut all = Map::new();
    let mut tables = Vec::new();
    for (what, title) in OVERVIEW {
        // A server may not have all of them.
        let answer = pages::ask(&mut wire, &["SHOW", what.word()], ROWS_MAX).await?;
        let answer = match show::good(answer) {
            Ok(answer) => answer,
            Err(failure) if what == OVERVIEW[0].0 => return Err(failure),
            Err(_) => continue,
        };
        if let Some(mut table) = Table::of(&answer) {
            all.insert(what.word().into(), table.json());
            table.pick(&what.in_overview(), title);
            tables.push(table);
        }
    }
    let alarms = alarms(&mut wire).await;
    if manner.json {
        if let Some(alarms) = &alarms {
            all.insert("alarms".into(), alarms.json());
        }
        all.insert("server".into(), show::json(&wire.greeting));
        show::print_json(&Json::Object(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::print_text(&headline(&wire.greeting, manner))?;
    if let Some(alarms) = &alarms {
        show::print_text(&alarm_line(alarms))?;
    }
    if let Some(line) = upgrade::line(&mut wire).await {
        show::print_text(&line)?;
    }
    for table in tables.iter().filter(|table| !table.is_empty()) {
        show::print_text("")?;
        table.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The alarms; none if the server does not know of any.
async fn alarms(wire: &mut Wire) -> Option<Table> {
    let answer = pages::ask(wire, &["SHOW", "ALARMS"], ROWS_MAX).await.ok()?;
    let table = Table::of(&show::good(answer).ok()?)?;
    (!table.is_empty()).then_some(table)
}

/// How many alarms are on, and which.
fn alarm_line(alarms: &Table) -> String {
    let rows = (0..alarms.len()).filter(|row| alarms.cell(*row, "state").as_deref() == Some("on"));
    let on: Vec<_> = rows.filter_map(|row| alarms.cell(row, "name")).collect();
    let names = on.join(", ");
    match on.len() {
        0 => format!("No alarm of {} is on", alarms.len()),
        1 => format!("1 alarm is on: {names}"),
        many => format!("{many} alarms are on: {names}"),
    }
}

fn headline(greeting: &Value, manner: &Manner) -> String {
    let Value::Map(pairs) = greeting else {
        return manner.server.to_string();
    };
    let word = |wanted: &str| {
        let found = pairs.iter().find(|(key, _)| show::text(key) == wanted);
        found.map_or_else(String::new, |(_, value)| show::text(value))
    };
    format!(
        "{} {} at {}",
        word("server"),
        word("version"),
        manner.server
    )
}

pub(crate) async fn holders(words: &Holders, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let ask = ["SHOW", "HOLDERS", "COUNT", ROWS];
    let answer = pages::ask(&mut wire, &ask, ROWS_MAX).await?;
    let rows = rows(answer, words.name.as_deref())?;
    if let (Some(name), Ok(table)) = (&words.name, &rows)
        && table.is_empty()
    {
        if !is_known(&mut wire, name).await? {
            return Err(Failure::Broken(format!(
                "nothing is called {name:?}: nothing holds it, waits for it or has this name; \
                 `rideau holders` lists what is held"
            )));
        }
        show::complain(format!("{name:?} is neither held nor waited for"));
    }
    print_rows(rows, manner)
}

/// Whether something has this name that one could hold.
async fn is_known(wire: &mut Wire, name: &str) -> Result<bool, Failure> {
    for kind in NAMED {
        let answer = wire.ask(&["SHOW", kind, name]).await?;
        // What one may not see is not known.
        if Table::of(&answer).is_some_and(|table| !table.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The rows of an answer, or of this name among them; an answer without any as it
/// is.
fn rows(answer: Value, name: Option<&str>) -> Result<Result<Table, Value>, Failure> {
    let answer = show::good(answer)?;
    let Some(mut table) = Table::of(&answer) else {
        return Ok(Err(answer));
    };
    if let Some(name) = name {
        table.keep(name);
    }
    Ok(Ok(table))
}

fn print_rows(rows: Result<Table, Value>, manner: &Manner) -> Done {
    let table = match rows {
        Ok(table) => table,
        Err(answer) => return answer::print(answer, manner),
    };
    if manner.json {
        show::print_json(&table.json())?;
    } else {
        table.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn explain(words: &Explain, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let mut request = vec!["EXPLAIN", &words.id];
    if manner.json {
        request.push("JSON");
    }
    answer::print(wire.ask(&request).await?, manner)
}

pub(crate) async fn kill(words: &Kill, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let id = words.client.to_string();
    let answer = show::good(wire.ask(&["CLIENT", "KILL", "ID", &id]).await?)?;
    if answer == Value::Integer(0) {
        return Err(Failure::Broken(format!(
            "there is no connection {id}; `rideau status clients` lists them"
        )));
    }
    said(
        &format!("connection {id} was ended"),
        json!({ "killed": words.client }),
        manner,
    )
}

pub(crate) async fn revoke(words: &Revoke, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let how = if words.fail { "FAIL" } else { "OK" };
    let answer = wire.ask(&["RELEASE", &words.ticket, how]).await?;
    show::good(answer)?;
    let ticket = &words.ticket;
    said(
        &format!("{ticket} was revoked"),
        json!({ "revoked": ticket }),
        manner,
    )
}

fn said(text: &str, json: Json, manner: &Manner) -> Done {
    if manner.json {
        show::print_json(&json)?;
    } else {
        show::print_text(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Follow until the server ends or the user interrupts.
pub(crate) async fn tail(words: &Tail, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let request: &[&str] = match words.stream {
        Stream::Events => &["SUBSCRIBE", "rideau:events"],
        Stream::Commands => &["MONITOR"],
        Stream::Refusals => return tail_refusals(wire, manner).await,
    };
    wire.put(request);
    wire.flush().await?;
    loop {
        let said = show::good(wire.next().await?)?;
        let Some(line) = message(&said) else {
            continue;
        };
        let line = match serde_json::from_str::<Json>(&line) {
            Ok(event) if !manner.json => event_line(&event),
            Ok(event) => terminal::json(&event.to_string()).into_owned(),
            Err(_) if manner.json => terminal::json(&Json::from(line).to_string()).into_owned(),
            Err(_) => line,
        };
        follow(&line)?;
    }
}

/// Refused asks are too many to be told as events: look at the last ones, again
/// and again.
async fn tail_refusals(mut wire: Wire, manner: &Manner) -> Done {
    let mut seen = HashSet::new();
    let mut is_first = true;
    loop {
        let words = ["SHOW", "REFUSALS", "COUNT", "1000"];
        let answer = show::good(pages::ask(&mut wire, &words, 1000).await?)?;
        let table = Table::of(&answer);
        let lines = table.as_ref().map(Table::named_lines).unwrap_or_default();
        let objects = table.as_ref().map(Table::json).unwrap_or_default();
        let now: HashSet<String> = lines.iter().map(|(id, _)| id.clone()).collect();
        for (at, (id, line)) in lines.iter().enumerate().rev() {
            if is_first || seen.contains(id) {
                continue;
            }
            match manner.json {
                true => follow(&terminal::json(&objects[at].to_string()))?,
                false => follow(line)?,
            }
        }
        seen = now;
        is_first = false;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Print a line for a reader that waits for it.
fn follow(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", terminal::one_line(line))?;
    out.flush()
}

/// The text of a message; none if it only says that we subscribed.
fn message(said: &Value) -> Option<String> {
    match said {
        Value::Simple(text) if text == "OK" => None,
        Value::Array(parts) | Value::Push(parts) => {
            let word = show::text(parts.first()?);
            let is_message = word == "message" || word == "pmessage";
            is_message.then(|| parts.last().map(show::text)).flatten()
        }
        value => Some(show::text(value)),
    }
}

fn event_line(event: &Json) -> String {
    let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let at = event["at_ms"]
        .as_u64()
        .map_or_else(String::new, span::clock);
    let by = event["by"]
        .as_str()
        .map_or_else(String::new, |by| format!("  by {by}"));
    let text = word("text");
    if text.is_empty() {
        return event.to_string();
    }
    format!("{at}  {:<10}  {text}{by}", word("kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_asked_for_by_its_word_or_by_that_of_one() {
        for (text, word) in [
            ("pool", "pools"),
            ("POOLS", "pools"),
            ("process", "processes"),
            ("config", "config"),
            ("history", "history"),
        ] {
            assert_eq!(Kind::of(text).unwrap().word(), word);
        }
        for text in ["", "poo", "poolss", "nope"] {
            assert!(Kind::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_event_is_one_line_with_its_date_and_time() {
        let event = json!({
            "id": 7, "at_ms": 43_471_882, "kind": "pool", "name": "pg", "text": "pg grew",
            "by": "ops",
        });
        assert_eq!(
            event_line(&event),
            "1970-01-01 12:04:31.882Z  pool        pg grew  by ops"
        );
    }

    #[test]
    fn only_messages_are_shown() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let heard = Value::Push(vec![bulk("message"), bulk("rideau:events"), bulk("{}")]);
        assert_eq!(message(&heard), Some("{}".into()));
        let begun = Value::Push(vec![
            bulk("subscribe"),
            bulk("rideau:events"),
            Value::Integer(1),
        ]);
        assert_eq!(message(&begun), None);
    }
}
