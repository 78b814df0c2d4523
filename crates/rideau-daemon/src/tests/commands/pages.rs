//! Answers with very many rows stay within `limits.output_max`, and come page by page.

use std::time::Duration;

use rideau_config::Quota;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

/// Room for some dozens of rows.
const OUTPUT_MAX: usize = 8 * 1024;

const TEXT: &str = r#"
[limits]
output_max = "8KiB"
sessions_max = 1_000_000
name_len_max = 64

[lock."*"]

[store]
kind = "memory"

[range.lab]
values = ["1-5000"]
start = "free"
"#;

/// The last row of a page that is not the last one.
fn cursor(row: &Value) -> Option<String> {
    match row {
        Value::Array(cells) if cells.len() == 1 => {
            let more = text(&cells[0]);
            assert!(more.contains(" more: "), "{more}");
            more.rsplit(' ').next().map(str::to_owned)
        }
        _ => None,
    }
}

/// All rows of all pages of an answer that has this many lines before the rows.
fn all(peer: &mut Peer, line: &str, heads: usize, from: &str) -> Vec<Value> {
    let (mut rows, mut next) = (Vec::new(), line.to_owned());
    loop {
        let words: Vec<_> = next.split(' ').collect();
        let answer = peer.ask(&words);
        let len = size(&answer);
        assert!(len <= OUTPUT_MAX, "{next}: {len} bytes");
        let Value::Array(mut page) = answer else {
            panic!("{next}: {answer:?}");
        };
        let more = cursor(page.last().unwrap());
        if more.is_some() {
            page.pop();
        }
        assert!(more.is_none() || page.len() > heads, "{next}: no progress");
        rows.extend(page.into_iter().skip(heads));
        match more {
            Some(cursor) => next = format!("{line} {from} {cursor}"),
            None => return rows,
        }
    }
}

/// How many bytes an answer took.
fn size(value: &Value) -> usize {
    let text = |len: usize| 1 + len.to_string().len() + 2 + len + 2;
    match value {
        Value::Array(all) => {
            1 + all.len().to_string().len() + 2 + all.iter().map(size).sum::<usize>()
        }
        Value::Bulk(bytes) => text(bytes.len()),
        Value::Integer(number) => 1 + number.to_string().len() + 2,
        _ => 5,
    }
}

fn first_cells(rows: &[Value], at: usize) -> Vec<String> {
    let cell = |row: &Value| match row {
        Value::Array(cells) => text(&cells[at]),
        other => panic!("no row: {other:?}"),
    };
    rows.iter().map(cell).collect()
}

#[test]
fn very_many_sessions_are_shown_page_by_page() {
    let server = Server::start(TEXT);
    let usage = server.daemon.quotas.of("default");
    let limits = server.daemon.config.load().limits.clone();
    for _ in 0..100_000 {
        let counted = usage.take(Quota::Sessions, None, &limits).unwrap();
        let ttl = Some(Duration::from_secs(600));
        let lease_table = &server.daemon.lease_table;
        let sessions = &server.daemon.sessions;
        let opened = sessions.open(ttl, None, usize::MAX, counted, |ticket| {
            let card = crate::state::holder::Holder {
                name: format!("session {ticket:?}").into(),
                user: "default".into(),
                session: Some(ticket.to_string()),
                connection: None,
            };
            let card = std::sync::Arc::new(card);
            (lease_table.open(std::sync::Arc::clone(&card)), card)
        });
        assert!(opened.is_some());
    }
    let mut peer = server.connect();
    for line in ["SHOW SESSIONS", "SESSION LS"] {
        let answer = peer.ask(&line.split(' ').collect::<Vec<_>>());
        assert!(size(&answer) <= OUTPUT_MAX);
        let Value::Array(rows) = &answer else {
            panic!("{answer:?}");
        };
        let more = text(rows.last().unwrap());
        let shown = rows.len() - 1 - usize::from(line == "SHOW SESSIONS");
        let left = 100_000 - shown;
        assert!(
            more.starts_with(&format!("[{left} more: {line} FROM ")),
            "{more}"
        );
        // A client that wants one more page gets it.
        let next = format!("{line} FROM {}", cursor(rows.last().unwrap()).unwrap());
        let next = peer.ask(&next.split(' ').collect::<Vec<_>>());
        assert!(text(&next).contains(" more: "));
    }
    // A client that says how many knows that there may be more.
    let few = peer.say("SHOW SESSIONS COUNT 3");
    assert!(!few.contains(" more: "), "{few}");
}

#[test]
fn all_that_one_holds_is_listed_page_by_page() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    for n in 0..500 {
        peer.send(&["LOCK", &format!("key-{n:03}"), "NOTE", "some words"]);
    }
    for _ in 0..500 {
        peer.next().unwrap();
    }
    let wanted: Vec<_> = (0..500).map(|n| format!("key-{n:03}")).collect();
    for (line, heads, from, at) in [
        ("HELD", 0, "FROM", 1),
        ("SHOW HOLDERS", 1, "FROM", 1),
        ("LOCK.LS COUNT 10000", 0, "CURSOR", 0),
    ] {
        let rows = all(&mut peer, line, heads, from);
        let mut keys = first_cells(&rows, at);
        keys.sort();
        assert_eq!(keys, wanted, "{line}");
    }
    // What goes between two pages is missing, and nothing else.
    let Value::Array(page) = other.ask(&["SHOW", "HOLDERS"]) else {
        panic!("no table");
    };
    let shown = page.len() - 2;
    for key in ["key-000", "key-499"] {
        assert_eq!(peer.say(&format!("UNLOCK {key}")), "+OK");
    }
    let next = cursor(page.last().unwrap()).unwrap();
    let rest = all(&mut other, &format!("SHOW HOLDERS FROM {next}"), 1, "FROM");
    assert_eq!(shown + rest.len(), 499);
}

#[test]
fn connections_are_listed_page_by_page() {
    let server = Server::start(TEXT);
    let mut peer = server.stranger();
    let others: Vec<_> = (0..120).map(|_| server.stranger()).collect();
    while server.daemon.clients.len() != 121 {
        std::thread::yield_now();
    }
    let shown = all(&mut peer, "SHOW CLIENTS", 1, "FROM");
    assert_eq!(shown.len(), 121);
    let (mut ids, mut next) = (Vec::new(), "CLIENT LIST".to_owned());
    loop {
        let page = peer.say(&next);
        assert!(page.len() <= OUTPUT_MAX);
        let lines = page.trim_start_matches('=').lines();
        let (rows, more): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("id="));
        ids.extend(
            rows.iter()
                .map(|row| row.split(' ').next().unwrap().to_owned()),
        );
        // The last line is made of words like the others, for programs that
        // parse them.
        match more[..] {
            [] => break,
            [more] => {
                let (count, from) = more.split_once(' ').unwrap();
                let left: usize = count.strip_prefix("more=").unwrap().parse().unwrap();
                assert_eq!(left, 121 - ids.len());
                let from = from.strip_prefix("from=").unwrap();
                next = format!("CLIENT LIST FROM {from}");
            }
            _ => panic!("{more:?}"),
        }
    }
    assert_eq!(ids.len(), 121);
    drop(others);
}

#[test]
fn values_are_listed_page_by_page() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for _ in 0..300 {
        peer.send(&["RESERVE", "lab", "KEY", "common", "DATA", &"x".repeat(100)]);
    }
    for _ in 0..300 {
        peer.next().unwrap();
    }
    let rows = all(&mut peer, "LOOKUP KEY common", 0, "FROM");
    let mut values = first_cells(&rows, 0);
    values.sort_by_key(|value| value.parse::<u32>().unwrap());
    let wanted: Vec<_> = (1..=300).map(|value| value.to_string()).collect();
    assert_eq!(values, wanted);
    let (mut cursor, mut count) = ("0".to_owned(), 0);
    loop {
        let line = ["RANGE.LS", "lab", "COUNT", "10000", "CURSOR", &cursor];
        let answer = peer.ask(&line);
        assert!(size(&answer) <= OUTPUT_MAX);
        let Value::Array(page) = answer else {
            panic!("no page");
        };
        let Value::Array(rows) = &page[1] else {
            panic!("no rows");
        };
        count += rows.len();
        cursor = text(&page[0]);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(count, 300);
}

#[test]
fn ranges_are_listed_page_by_page() {
    let mut many = TEXT.to_owned();
    for n in 0..99 {
        let value = 10_000 + n;
        many += &format!("[range.r{n:02}]\nvalues = [\"{value}\"]\nstart = \"free\"\n");
    }
    let server = Server::start(&many);
    let mut peer = server.connect();
    let rows = all(&mut peer, "RANGE.STAT", 0, "FROM");
    let names = first_cells(&rows, 1);
    let wanted = ["lab".to_owned()].into_iter();
    let wanted = wanted.chain((0..99).map(|n| format!("r{n:02}")));
    assert_eq!(names, wanted.collect::<Vec<_>>());
    let few = peer.say("RANGE.STAT COUNT 2");
    assert!(!few.contains(" more: "), "{few}");
    assert!(peer.say("RANGE.STAT lab").contains("[name, lab, "));
    let no = peer.say("RANGE.STAT lab r01");
    assert!(no.starts_with("-ERR "), "{no}");
}

#[test]
fn a_cursor_is_what_a_page_ended_with() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for line in ["HELD FROM x", "SHOW CLIENTS FROM -1", "SESSION LS FROM"] {
        let said = peer.say(line);
        assert!(said.starts_with("-ERR FROM "), "{line}: {said}");
    }
    let said = peer.say("HELD NONE");
    assert!(said.starts_with("-ERR "), "{said}");
}

#[test]
fn very_many_apps_are_shown_page_by_page() {
    let app = |at: usize| {
        let name = format!("shop-{at:03}");
        format!("[app.{name}]\nexec = [\"sleep\", \"1000\"]\nhosts = [\"{name}.test\"]\n")
    };
    let apps: String = (0..300).map(app).collect();
    let server = Server::start(&format!("{TEXT}{apps}"));
    let runtime = server.runtime.as_ref().unwrap();
    runtime.block_on(async { server.daemon.apps.begin(&server.daemon.config.load()) });
    let mut peer = server.connect();
    let shown = first_cells(&all(&mut peer, "APP.LS", 1, "FROM"), 0);
    assert_eq!(shown.len(), 300);
    let said = text(&peer.ask(&["APP.LS"]));
    assert!(said.contains(" more: APP.LS FROM "), "{said}");
    // It has no processes, and takes the same options.
    let none = all(&mut peer, "APP.STAT shop-000 COUNT 5", 1, "FROM");
    assert_eq!(none, []);
}

#[test]
fn no_answer_about_commands_multiplies_what_was_said() {
    let server = Server::start(TEXT);
    let mut peer = server.stranger();
    let once = peer.ask(&["COMMAND", "DOCS", "lock", "take"]);
    let many = [
        &["COMMAND", "DOCS"][..],
        &["lock", "take", "LOCK"].repeat(300),
    ]
    .concat();
    assert_eq!(text(&peer.ask(&many)), text(&once));
    let many = [&["COMMAND", "INFO"][..], &["lock"].repeat(1000)].concat();
    let said = text(&peer.ask(&many));
    assert!(said.starts_with("-ERR COMMAND INFO takes "), "{said}");
}
