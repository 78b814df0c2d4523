//! Tables, explanations, numbers.

use crate::view::tables::{self, TableKind, TableQuery};
use rideau_resp::Value;

use crate::tests::commands::peer::{cell, rows, text};
use crate::tests::commands::server::Server;

const TEXT: &str = r#"
[pool.cad]
member = { list = ["A", "B"] }
group = "tools"

[pool.brought]

[broker.work]
asks = { kind = "timeout", timeout = "50ms", max = 1 }

[regulator.crew]
broker = "work"
valve = { kind = "open", max = 2 }

[lock."tenant/*"]
per = 3

[lock."one"]
buckets = 1
"#;

#[test]
fn every_table_has_a_header_and_rows_as_wide() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for what in TableKind::ALL {
        let answer = peer.ask(&["SHOW", what.word()]);
        let Value::Array(lines) = &answer else {
            panic!("{what:?}: {answer:?}");
        };
        let widths = lines.iter().map(|line| match line {
            Value::Array(cells) => cells.len(),
            _ => panic!("{line:?}"),
        });
        let widths: Vec<_> = widths.collect();
        assert!(widths.windows(2).all(|two| two[0] == two[1]), "{what:?}");
        let table = tables::table(&server.daemon, what, &TableQuery::default());
        assert_eq!(table.columns.len(), widths[0], "{what:?}");
        assert!(
            table.rows.iter().all(|row| row.len() == widths[0]),
            "{what:?}"
        );
    }
}

#[test]
fn pools_show_what_is_idle_and_held() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("TAKE cad NOTE mine");
    let pools = peer.ask(&["SHOW", "POOLS"]);
    assert_eq!(cell(&pools, 0, "name"), "brought");
    assert_eq!(cell(&pools, 0, "members"), "offered");
    for (column, value) in [
        ("name", "cad"),
        ("group", "tools"),
        ("state", "running"),
        ("idle", "1"),
        ("held", "1"),
        ("max", "2"),
        ("waiting", "0"),
        ("came", "1"),
        ("served", "1"),
        ("refused", "0"),
        ("oldest_holder", "conn-1 \"mine\""),
    ] {
        assert_eq!(cell(&pools, 1, column), value, "{column}");
    }
    peer.say("POOL.PAUSE cad");
    let paused = peer.ask(&["SHOW", "POOLS", "cad"]);
    assert_eq!(cell(&paused, 0, "state"), "paused");
    assert_eq!(rows(&paused).len(), 1);
    let group = peer.ask(&["SHOW", "GROUPS"]);
    let group = rows(&group);
    assert!(group[0].starts_with("[@tools, random, cad, "), "{group:?}");
    assert!(group[0].ends_with(", 1, 2, 0, ]"), "{group:?}");
}

#[test]
fn holders_are_shown_with_their_tickets_the_longest_first() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("CLIENT SETNAME anna");
    let Value::Array(lock) = peer.ask(&["LOCK", "tenant/7", "NOTE", "nightly"]) else {
        panic!("no lock");
    };
    peer.say("TAKE cad");
    let holders = peer.ask(&["SHOW", "HOLDERS"]);
    for (column, value) in [
        ("kind", "lock"),
        ("name", "tenant/7"),
        ("ticket", text(&lock[1]).as_str()),
        ("state", "held"),
        ("holder", "anna"),
        ("user", "default"),
        ("connection", "1"),
        ("session", "nil"),
        ("note", "nightly"),
        ("is_leak", "0"),
    ] {
        assert_eq!(cell(&holders, 0, column), value, "{column}");
    }
    assert_eq!(cell(&holders, 1, "name"), "cad");
    let only = peer.ask(&["SHOW", "HOLDERS", "cad"]);
    assert_eq!(rows(&only).len(), 1);
    let one = peer.ask(&["SHOW", "HOLDERS", "COUNT", "1"]);
    assert_eq!(rows(&one).len(), 1);
}

#[test]
fn locks_are_shown_by_rule() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for key in ["tenant/1", "tenant/2", "tenant/2", "one", "one"] {
        peer.ask(&["LOCK", key]);
    }
    let locks = peer.ask(&["SHOW", "LOCKS"]);
    assert_eq!(
        rows(&locks),
        [
            "[tenant/*, 3, client, 2, 3, 0, 3, 0, 1000000, 2, 0, 0, 0]",
            "[one, 1, 1, 1, 1, 0, 1, 1, 1000000, 1, 0, 0, 0]"
        ]
    );
}

#[test]
fn sessions_can_be_told_apart_by_what_is_shown_of_them() {
    let server = Server::start(TEXT);
    let (mut one, mut two) = (server.connect(), server.connect());
    one.say("SESSION OPEN");
    two.say("SESSION OPEN");
    let clients = two.ask(&["SHOW", "CLIENTS"]);
    assert_eq!(cell(&clients, 0, "session"), "s-00000001…");
    assert_eq!(cell(&clients, 1, "session"), "s-00000002…");
}

#[test]
fn clients_and_sessions_are_shown() {
    let server = Server::start(TEXT);
    let (mut one, mut two) = (server.connect(), server.connect());
    one.say("CLIENT SETNAME anna");
    let Value::Array(session) = one.ask(&["SESSION", "OPEN", "TTL", "60000", "NAME", "job"]) else {
        panic!("no session");
    };
    let id = text(&session[0]);
    two.say("PING");
    let clients = two.ask(&["SHOW", "CLIENTS"]);
    assert_eq!(cell(&clients, 0, "name"), "anna");
    assert_eq!(cell(&clients, 0, "last"), "session");
    assert_eq!(cell(&clients, 0, "session"), format!("{}…", &id[..10]));
    assert_eq!(cell(&clients, 1, "id"), "2");
    assert_eq!(cell(&clients, 1, "last"), "show");
    assert_eq!(cell(&clients, 1, "commands"), "2");
    let sessions = two.ask(&["SHOW", "SESSIONS"]);
    assert_eq!(cell(&sessions, 0, "id"), id);
    assert_eq!(cell(&sessions, 0, "name"), "job");
    assert_eq!(cell(&sessions, 0, "connections"), "1");
}

#[test]
fn a_no_is_shown_and_explained() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert!(peer.say("ASK work WAIT 1000").starts_with("[timeout, "));
    let drops = peer.ask(&["SHOW", "REFUSALS"]);
    assert_eq!(peer.ask(&["SHOW", "drops"]), drops, "the former word");
    assert_eq!(cell(&drops, 0, "id"), "d-1");
    assert_eq!(cell(&drops, 0, "kind"), "broker");
    assert_eq!(cell(&drops, 0, "reason"), "timeout");
    let said = peer.say("EXPLAIN d-1");
    assert!(said.starts_with("broker work refused this ask "), "{said}");
    assert!(
        said.contains("it reached the timeout of the queue"),
        "{said}"
    );
    assert!(said.contains("At that moment:"), "{said}");
    peer.say("HELLO 3");
    let facts = peer.say("EXPLAIN d-1 JSON");
    let begin = "{kind: drop, name: d-1, place: broker, place_name: work, reason: timeout, ";
    assert!(facts.starts_with(begin), "{facts}");
    assert!(peer.say("EXPLAIN d-1").starts_with("=broker work"));
    assert!(
        peer.say("EXPLAIN d-2")
            .starts_with("-NOSUCH thing \"d-2\": ")
    );
}

#[test]
fn an_unknown_name_is_explained_as_a_key_that_is_not_held() {
    let server = Server::start("[lock.\"*\"]\n");
    let mut peer = server.connect();
    let said = peer.say("EXPLAIN cda");
    let begin = "Nothing is called \"cda\". As a lock key it has the rule [lock.\"*\"]: ";
    assert!(said.starts_with(begin), "{said}");
    peer.say("LOCK cda");
    let said = peer.say("EXPLAIN cda");
    assert!(said.starts_with("Key cda has the rule "), "{said}");
}

#[test]
fn everything_that_has_a_name_is_explained() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let Value::Array(taken) = peer.ask(&["TAKE", "cad", "NOTE", "drawing"]) else {
        panic!("no member");
    };
    let ticket = text(&taken[1]);
    for (word, begin) in [
        ("cad", "Pool cad:\n"),
        ("pool:cad", "Pool cad:\n"),
        ("@tools", "Group @tools has 1 pool.\nPool cad:\n"),
        ("work", "Broker work:\n"),
        ("crew", "Regulator crew:\n"),
        (
            "tenant/9",
            "Key tenant/9 has the rule [lock.\"tenant/*\"]: 3 units in each bucket; the client \
             says how many buckets. 0 are held, 0 wait.\n",
        ),
        ("1", "Connection 1 is conn-1, user default, from 127.0.0.1:"),
        (&ticket, "conn-1 has held \"A\" of pool cad for "),
    ] {
        let said = peer.say(&format!("EXPLAIN {word}"));
        assert!(said.starts_with(begin), "{word}: {said}");
    }
    let pool = peer.say("EXPLAIN cad");
    assert!(
        pool.contains("conn-1 (\"drawing\") has held A for "),
        "{pool}"
    );
    peer.say(&format!("RELEASE {ticket}"));
    let over = peer.say(&format!("EXPLAIN {ticket}"));
    assert!(
        over.starts_with("This ticket has ended: it was released "),
        "{over}"
    );
    assert_eq!(
        peer.say("EXPLAIN nothing"),
        "-NOSUCH thing \"nothing\": it is not a ticket, d- id, pool, broker, regulator, range, \
         value, \
         key or connection that you may see; SHOW lists them."
    );
    assert_eq!(
        peer.say("EXPLAIN cad XML"),
        "-ERR EXPLAIN takes JSON or nothing, not \"XML\"."
    );
}

#[test]
fn numbers_are_in_sections_as_in_redis() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("TAKE cad");
    let all = peer.say("INFO");
    for line in [
        "# Server\r\n",
        "\r\n# Clients\r\nconnected_clients:1\r\nmaxclients:10000\r\n",
        "loading:0\r\n",
        "\r\npool_cad:group=tools,state=running,idle=",
        "\r\nbroker_work:asks=0,offers=0,",
        "\r\nregulator_crew:broker=work,leases=0,",
        "\r\nlock_tenant/*:per=3,buckets=client,keys=0,",
        "\r\nsessions:0\r\n",
        "\r\nconfig_version:1\r\nconfig_unsaved:0\r\nrestart_needed_for:\r\n",
        "\r\nconnections_max:max=10000,now=1,refused=0\r\n",
        "\r\npassword_checks_max:max=2,now=0,refused=0\r\n",
    ] {
        assert!(all.contains(line), "{line:?} in {all}");
    }
    assert_eq!(
        peer.say("INFO everything").lines().count(),
        all.lines().count()
    );
    let clients = peer.say("INFO clients");
    assert!(clients.starts_with("# Clients\r\n") && !clients.contains("# Server"));
    assert_eq!(peer.say("INFO persistence"), "");
    assert_eq!(
        peer.say("INFO nonsense"),
        "-ERR INFO has no section \"nonsense\": it has server, clients, memory, cpu, \
         replication, stats, pools, brokers, regulators, locks, ranges, apps, sessions, config, \
         cluster, limits."
    );
}

#[test]
fn a_limit_counts_what_it_turned_away() {
    let text = "[limits]\nsessions_max = 1\nheld_max = 1\nname_len_max = 8\n[lock.\"*\"]\n";
    let server = Server::start(text);
    let mut peer = server.connect();
    peer.say("LOCK a");
    assert!(
        peer.say("LOCK b")
            .starts_with("-BUSY limits.held_max (1) reached")
    );
    peer.say("SESSION OPEN");
    assert!(
        peer.say("SESSION OPEN")
            .starts_with("-BUSY limits.sessions_max (1) reached")
    );
    assert!(
        peer.say("LOCK much-too-long")
            .starts_with("-ERR a key has 1 to 8 bytes")
    );
    let limits = peer.ask(&["SHOW", "LIMITS"]);
    let limits = rows(&limits);
    for row in [
        "[held_max, 1, nil, 1, ]",
        "[sessions_max, 1, 1, 1, ]",
        "[name_len_max, 8, nil, 1, ]",
        "[connections_max, 10000, 1, 0, ]",
    ] {
        assert!(
            limits.iter().any(|known| known == row),
            "{row} in {limits:?}"
        );
    }
}

#[test]
fn what_cannot_be_shown_is_said() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(
        peer.say("SHOW TABLES"),
        "-ERR SHOW does not know \"TABLES\": it shows POOLS, GROUPS, BROKERS, REGULATORS, LOCKS, \
         RANGES, VIEWS, APPS, PROCESSES, REQUESTS, CERTIFICATES, CLIENTS, SESSIONS, HOLDERS, \
         REFUSALS, EVENTS, CONFIG, LIMITS, NODES, PARTITIONS, ALARMS."
    );
    assert_eq!(
        peer.say("SHOW POOLS COUNT 0"),
        "-ERR COUNT takes rows from 1 to 100000, not \"0\"."
    );
}
