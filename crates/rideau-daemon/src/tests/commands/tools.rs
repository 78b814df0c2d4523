//! What people and tools that know Redis try, and what they learn from the answers.

use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

const TEXT: &str = "[pool.cad]\nmember = { list = [\"A\"] }\n[lock.\"*\"]\n";

/// A connection that has its number before the next one comes.
fn connected(server: &Server) -> Peer {
    let mut peer = server.connect();
    assert_eq!(peer.say("PING"), "+PONG");
    peer
}

/// The numbers of the connections that a list has.
fn ids(list: &str) -> Vec<String> {
    let id = |line: &str| {
        line.strip_prefix("id=")?
            .split(' ')
            .next()
            .map(str::to_owned)
    };
    list.lines().filter_map(id).collect()
}

#[test]
fn commands_of_redis_lead_to_what_there_is() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for (line, wanted) in [
        ("SET key value NX PX 1000", "LOCK key WAIT ms"),
        ("get key", "LOCK.STAT key"),
        ("EVAL return 0", "there are no scripts"),
        ("BLPOP jobs 0", "ASK broker WAIT ms"),
        ("PUBLISH news hello", "SUBSCRIBE rideau:events"),
        ("INCR n", "RESERVE range"),
        ("REPLICAOF NO ONE", "connect as to a single Redis server"),
    ] {
        let said = peer.say(line);
        assert!(
            said.starts_with("-ERR unknown command \""),
            "{line}: {said}"
        );
        assert!(said.contains(wanted), "{line}: {said}");
    }
}

#[test]
fn an_unlock_on_another_connection_names_the_one_that_has_it() {
    let server = Server::start(TEXT);
    let (mut one, mut other) = (connected(&server), connected(&server));
    let free = one.say("UNLOCK job");
    assert!(
        free.starts_with("-NOTHELD this connection (1) has no unit of \"job\""),
        "{free}"
    );
    assert!(!free.contains("SESSION"), "it is free: {free}");
    one.say("CLIENT SETNAME web-1");
    one.say("LOCK job");
    let said = other.say("UNLOCK job");
    for wanted in [
        "-NOTHELD this connection (2) has no unit of \"job\": connection 1 (web-1) has.",
        "RELEASE with the ticket that LOCK answered",
        "SESSION OPEN",
        "SESSION ATTACH",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(one.say("UNLOCK job"), "+OK");
    one.say("SESSION OPEN");
    one.say("LOCK job");
    let said = other.say("UNLOCK job");
    assert!(said.contains("\"job\": a session has."), "{said}");
    other.say("LOCK mine");
    let said = one.say("UNLOCK mine");
    assert!(
        said.starts_with("-NOTHELD this session has no unit"),
        "{said}"
    );
}

#[test]
fn a_client_cannot_keep_copies_of_what_is_not_stored() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for line in [
        "CLIENT TRACKING ON",
        "CLIENT CACHING YES",
        "CLIENT TRACKINGINFO",
    ] {
        let said = peer.say(line);
        assert!(
            said.starts_with("-ERR nothing is tracked"),
            "{line}: {said}"
        );
        assert!(said.contains("client-side caching"), "{line}: {said}");
    }
}

#[test]
fn connections_are_listed_by_what_they_are() {
    let server = Server::start(TEXT);
    let (mut one, mut two) = (connected(&server), connected(&server));
    let mut ears = connected(&server);
    two.say("CLIENT SETNAME worker");
    ears.say("SUBSCRIBE rideau:events");
    let mut listed = |line: &str| ids(&one.say(&format!("CLIENT LIST {line}")));
    assert_eq!(listed("COUNT 9").len(), 3);
    assert_eq!(listed("ID 2 3 99"), ["2", "3"]);
    assert_eq!(listed("ID 1 2 TYPE normal"), ["1", "2"]);
    assert_eq!(listed("TYPE pubsub"), ["3"]);
    assert_eq!(listed("TYPE NORMAL"), ["1", "2"]);
    assert!(listed("TYPE replica").is_empty());
    assert_eq!(listed("NAME worker"), ["2"]);
    assert_eq!(listed("TYPE normal COUNT 1"), ["1"]);
    assert!(listed("USER nobody-of-this-name").is_empty());
    assert!(listed("ADDR 1.2.3.4:5").is_empty());
    let line = one.say("CLIENT INFO");
    let address = line.split(' ').find_map(|pair| pair.strip_prefix("addr="));
    let mut listed = |line: &str| ids(&one.say(&format!("CLIENT LIST {line}")));
    assert_eq!(listed(&format!("ADDR {}", address.unwrap())), ["1"]);
    ears.say("UNSUBSCRIBE");
    assert!(listed("TYPE pubsub").is_empty());
    let said = one.say("CLIENT LIST TYPE robot");
    assert!(said.starts_with("-ERR TYPE takes NORMAL, PUBSUB"), "{said}");
    assert!(one.say("CLIENT LIST ID x").starts_with("-ERR ID takes"));
    assert!(
        one.say("CLIENT LIST COLOUR red")
            .starts_with("-ERR CLIENT LIST does not know")
    );
}

#[test]
fn commands_are_listed_by_what_they_are() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let listed = |peer: &mut Peer, line: &str| {
        let Value::Array(all) = peer.ask(&line.split(' ').collect::<Vec<_>>()) else {
            panic!("{line} answers no array");
        };
        all.iter().map(text).collect::<Vec<_>>()
    };
    let all = listed(&mut peer, "COMMAND LIST");
    assert!(all.len() > 50 && all.contains(&"lock".into()), "{all:?}");
    let locks = listed(&mut peer, "COMMAND LIST FILTERBY PATTERN LOCK*");
    assert_eq!(locks, ["lock", "lock.stat", "lock.ls"]);
    let one = listed(&mut peer, "COMMAND LIST FILTERBY pattern [r]eserv?");
    assert_eq!(one, ["reserve"]);
    let asks = listed(&mut peer, "COMMAND LIST FILTERBY ACLCAT ask");
    assert_eq!(asks, ["ask", "len", "reg.ask"]);
    assert!(listed(&mut peer, "COMMAND LIST FILTERBY MODULE json").is_empty());
    assert!(
        peer.say("COMMAND LIST FILTERBY SIZE 3")
            .starts_with("-ERR FILTERBY takes")
    );
    assert_eq!(
        listed(&mut peer, "COMMAND GETKEYS LOCK job WAIT 5"),
        ["job"]
    );
    assert_eq!(listed(&mut peer, "COMMAND GETKEYS TAKE cad"), ["cad"]);
    assert_eq!(listed(&mut peer, "COMMAND GETKEYS DONE m-1 x"), ["m-1"]);
    let none = peer.say("COMMAND GETKEYS SHOW POOLS");
    assert_eq!(none, "-ERR The command has no key arguments");
    let unknown = peer.say("COMMAND GETKEYS NOPE x");
    assert_eq!(unknown, "-ERR Invalid command specified");
}

#[test]
fn what_tools_send_is_answered_as_it_is() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("LOCK job");
    for (line, answer) in [
        ("DBSIZE", "0"),
        ("SCAN 0", "[0, []]"),
        ("SCAN 0 MATCH * COUNT 100 TYPE string", "[0, []]"),
        ("SLOWLOG GET 128", "[]"),
        ("SLOWLOG GET -1", "[]"),
        ("SLOWLOG LEN", "0"),
        ("SLOWLOG RESET", "+OK"),
        ("LATENCY LATEST", "[]"),
        ("LATENCY HISTORY command", "[]"),
        ("LATENCY RESET", "0"),
        ("MODULE LIST", "[]"),
        // As Redis computes them; only what is in braces counts.
        ("CLUSTER KEYSLOT somekey", "11058"),
        ("CLUSTER KEYSLOT foo{hash_tag}", "2515"),
        ("cluster keyslot {hash_tag}", "2515"),
        ("ACL WHOAMI", "default"),
    ] {
        assert_eq!(peer.say(line), answer, "{line}");
    }
    for line in [
        "SCAN x",
        "SCAN 0 SIZE 1",
        "DBSIZE now",
        "SLOWLOG NOW",
        "MODULE LOAD x",
        "CLUSTER KEYSLOT",
        "CLUSTER SLOTS",
    ] {
        assert!(peer.say(line).starts_with("-ERR "), "{line}");
    }
    assert!(peer.say("ACL LIST").contains("CONFIG GET user"));
    for line in ["CLUSTER SLOTS", "CLUSTER INFO", "READONLY", "ASKING"] {
        let alone = peer.say(line);
        assert!(alone.contains("cluster support disabled"), "{alone}");
        assert!(alone.contains("connect as to a single"), "{alone}");
    }
    let Value::Array(time) = peer.ask(&["TIME"]) else {
        panic!("TIME answers no array");
    };
    let number = |at: usize| text(&time[at]).parse::<u64>().unwrap();
    assert!(
        number(0) > 1_700_000_000 && number(1) < 1_000_000,
        "{time:?}"
    );
}

#[test]
fn a_tool_finds_the_version_and_the_memory_that_it_looks_for() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let info = peer.say("INFO");
    let field = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value
            .unwrap_or_else(|| panic!("no {name} in {info}"))
            .to_owned()
    };
    let version: Vec<u32> = field("redis_version")
        .split('.')
        .map(|it| it.parse().unwrap())
        .collect();
    assert!(version.len() == 3 && version[0] >= 7, "{version:?}");
    assert_eq!(field("rideau_version"), env!("CARGO_PKG_VERSION"));
    let bytes = |name: &str| field(name).parse::<u64>().unwrap();
    assert!(bytes("used_memory") > 0 && bytes("used_memory") <= bytes("used_memory_rss"));
    assert!(bytes("used_memory_rss") <= bytes("used_memory_peak"));
    assert!(bytes("total_system_memory") > bytes("used_memory_peak"));
    assert_eq!(bytes("maxmemory"), 0);
    assert!(field("used_memory_human").ends_with(['K', 'M', 'G']));
    assert_eq!(field("role"), "master");
    let memory = peer.say("INFO memory");
    assert!(memory.starts_with("# Memory\r\nused_memory:"), "{memory}");
}
