//! Whose values are: a fence is of use to its own user only, and no other user
//! learns it.

use std::sync::OnceLock;

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::ranges::{ask, reserve, stat};
use crate::tests::commands::server::Server;

/// A config with these users, each with what it may do and on what.
pub(crate) fn users(users: &[(&str, &str, &str)]) -> String {
    static HASH: OnceLock<String> = OnceLock::new();
    let hash = HASH.get_or_init(|| Hash::of(b"secret").unwrap().as_str().into());
    let mut text = String::new();
    for (name, allow, on) in users {
        text += &format!("[user.{name}]\npassword = '{hash}'\nallow = [{allow}]\non = [{on}]\n\n");
    }
    text
}

pub(crate) fn login(server: &Server, user: &str) -> Peer {
    let mut peer = server.connect();
    assert_eq!(peer.say(&format!("AUTH {user} secret")), "+OK");
    peer
}

const RANGES: &str = "\
[store]
kind = \"memory\"

[range.office]
values = [\"10.20.0.0/29\"]
start = \"free\"
detach = \"1h\"

[range.loose]
values = [\"1-9\"]
start = \"free\"
fence = \"optional\"

[range.bound]
values = [\"100-109\"]
start = \"free\"
hold = \"connection\"

[range.hidden]
values = [\"200-209\"]
start = \"free\"
";

fn server() -> Server {
    let mine = "\"range:office\", \"range:loose\", \"range:bound\"";
    let all = users(&[
        (
            "anna",
            "\"@range\", \"session\", \"subscribe\", \"explain\"",
            mine,
        ),
        ("bert", "\"@all\"", mine),
        ("chris", "\"@all\", \"range\"", mine),
        ("ops", "\"@admin\"", "\"*\""),
    ]);
    Server::start(&format!("{all}{RANGES}"))
}

#[test]
fn a_fence_that_is_another_users_counts_for_no_other() {
    let server = server();
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    for range in ["office", "bound"] {
        let line = format!("RESERVE {range} KEY k-{range}");
        let (value, _, fence) = reserve(&mut anna, &line);
        let next: u64 = fence.parse::<u64>().unwrap() + 1;
        for fence in [&fence, &next.to_string()] {
            for line in [
                format!("RELEASE {value} FENCE {fence}"),
                format!("RELEASE KEY k-{range} FENCE {fence}"),
                format!("REFRESH {value} FENCE {fence}"),
                format!("UPDATE {value} FENCE {fence} DATA mine"),
                format!("UPDATE {value} FENCE {fence} DATA mine CLAIM"),
                format!("UPDATE KEY k-{range} FENCE {fence} DATA mine"),
                format!("WRITE {value} FENCE {fence} DATA mine CLAIM"),
                format!("CANCEL {value} FENCE {fence}"),
            ] {
                let said = bert.say(&line);
                assert!(said.starts_with("-STALE "), "{line}: {said}");
                assert!(!said.contains(fence.as_str()), "{line}: {said}");
            }
        }
        let batch = format!("REFRESH {value} FENCE {fence} 10.20.0.6 FENCE 1");
        let batch = ask(&mut bert, &batch);
        assert!(batch[0].starts_with("[stale, STALE "), "{batch:?}");
        assert!(batch[1].starts_with("[notheld, NOTHELD "), "{batch:?}");
        let seen = ask(&mut anna, &format!("LOOKUP {value}"));
        assert_eq!(seen[4], "reserved");
        assert_eq!((seen[2].as_str(), &seen[6]), ("[]", &fence), "as it was");
        // Another connection of the same user may.
        let mut again = login(&server, "anna");
        let said = again.say(&format!("RELEASE KEY k-{range} FENCE {fence}"));
        assert_eq!(said, "+OK");
    }
}

#[test]
fn where_no_fence_is_wanted_the_value_is_its_users_all_the_same() {
    let server = server();
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    let (value, ..) = reserve(&mut anna, "RESERVE loose KEY k");
    for line in [
        format!("RELEASE {value}"),
        "RELEASE KEY k".into(),
        format!("UPDATE {value} DATA mine"),
        format!("REFRESH {value}"),
        format!("CANCEL {value}"),
    ] {
        let said = bert.say(&line);
        assert!(said.starts_with("-NOPERM "), "{line}: {said}");
    }
    assert_eq!(anna.say("RELEASE KEY k"), "+OK");
    assert_eq!(stat(&mut login(&server, "ops"), "loose", "free"), "9");
}

#[test]
fn fences_are_shown_to_whose_they_are() {
    let server = server();
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    let (mut chris, mut ops) = (login(&server, "chris"), login(&server, "ops"));
    let mut watcher = login(&server, "bert");
    watcher.say("RANGE.WATCH office");
    let (value, ticket, fence) = reserve(&mut anna, "RESERVE office KEY k");
    let told = watcher.hear();
    assert!(told.contains("\"fence\":null"), "{told}");
    let lines = [
        format!("LOOKUP {value}"),
        "LOOKUP KEY k".into(),
        "RANGE.LS office".into(),
        format!("EXPLAIN {value}"),
        format!("EXPLAIN {value} JSON"),
    ];
    for line in &lines {
        assert!(!bert.say(line).contains(&fence), "{line}");
        for peer in [&mut anna, &mut chris, &mut ops] {
            assert!(peer.say(line).contains(&fence), "{line}");
        }
    }
    // Its ticket says it anyway.
    let seen = ask(&mut bert, &format!("LOOKUP {ticket}"));
    assert_eq!(seen[6], fence);
    assert_eq!(ask(&mut bert, &format!("LOOKUP {value}"))[6], "nil");
}

#[test]
fn a_ticket_is_enough_and_counts_with_no_other_fence() {
    let server = server();
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    let (value, old, _) = reserve(&mut bert, "RESERVE office");
    assert_eq!(bert.say(&format!("RELEASE {old}")), "+OK");
    let (again, ticket, fence) = reserve(&mut anna, "RESERVE office");
    assert_eq!(value, again);
    let said = bert.say(&format!("RELEASE {old} FENCE {fence}"));
    assert!(said.starts_with("-STALE "), "{said}");
    assert!(ask(&mut bert, &format!("REFRESH {ticket}"))[0] == "ok");
    assert_eq!(bert.say(&format!("RELEASE {ticket}")), "+OK");
}

#[test]
fn a_user_with_the_right_range_acts_in_the_holders_place() {
    let server = server();
    let (mut anna, mut chris) = (login(&server, "anna"), login(&server, "chris"));
    let (value, _, fence) = reserve(&mut anna, "RESERVE office");
    let said = chris.say(&format!("RELEASE {value}"));
    assert!(said.starts_with("-ERR "), "the range wants a fence: {said}");
    assert_eq!(
        ask(&mut chris, &format!("UPDATE {value} FENCE {fence} DATA x"))[0],
        "ok"
    );
    let seen = ask(&mut anna, &format!("LOOKUP {value}"));
    assert_eq!(seen[6], fence, "it is anna's as before");
    assert_eq!(chris.say(&format!("RELEASE {value} FENCE {fence}")), "+OK");
}

#[test]
fn what_is_free_is_not_held() {
    let server = server();
    let mut anna = login(&server, "anna");
    let (value, ticket, fence) = reserve(&mut anna, "RESERVE office");
    assert_eq!(anna.say(&format!("RELEASE {ticket}")), "+OK");
    for line in [
        format!("RELEASE {ticket}"),
        format!("RELEASE {value} FENCE {fence}"),
        format!("RELEASE {value}"),
        "RELEASE KEY nothing".into(),
        format!("REFRESH {value} FENCE {fence}"),
        format!("UPDATE {value} FENCE {fence} DATA x"),
        format!("CANCEL {value} FENCE {fence}"),
    ] {
        let said = anna.say(&line);
        assert!(said.starts_with("-NOTHELD "), "{line}: {said}");
    }
}

#[test]
fn a_key_of_its_own_is_its_users() {
    let server = server();
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    let (value, ticket, _) = reserve(&mut anna, "RESERVE office UNIQUE mac");
    let said = bert.say("RESERVE office UNIQUE mac");
    assert!(said.starts_with("-ERR "), "{said}");
    let again = reserve(&mut anna, "RESERVE office UNIQUE mac");
    assert_eq!((again.0, again.1), (value, ticket));
}

#[test]
fn to_claim_what_is_free_one_must_be_able_to_reserve() {
    let text = users(&[("dora", "\"update\", \"lookup\"", "\"*\"")]);
    let server = Server::start(&format!("{text}{RANGES}"));
    let mut dora = login(&server, "dora");
    for line in ["UPDATE 3 DATA x CLAIM", "WRITE 3 DATA x CLAIM"] {
        let said = dora.say(line);
        assert!(said.starts_with("-NOPERM "), "{line}: {said}");
        assert!(said.contains("\"reserve\""), "{line}: {said}");
    }
    assert_eq!(ask(&mut dora, "LOOKUP 3")[4], "free");
}

#[test]
fn without_users_another_connection_has_the_fence_and_may() {
    let server = Server::start(RANGES);
    let (mut one, mut other) = (server.connect(), server.connect());
    let (value, _, fence) = reserve(&mut one, "RESERVE office KEY k");
    assert_eq!(ask(&mut other, &format!("LOOKUP {value}"))[6], fence);
    drop(one);
    assert_eq!(other.say(&format!("RELEASE {value} FENCE {fence}")), "+OK");
}

#[test]
fn what_a_user_holds_it_gives_back_also_when_it_may_nothing_more() {
    let config = |allow: &str, on: &str| {
        let users = users(&[("anna", allow, on), ("ops", "\"@admin\"", "\"*\"")]);
        let rest = "[pool.cad]\nmember = { list = [\"A\", \"B\"] }\n[broker.work]\n[lock.\"*\"]\n\
                    [regulator.load]\nvalve = { kind = \"open\", max = 3 }\n";
        format!("{users}{RANGES}{rest}")
    };
    let server = Server::start(&config("\"@all\"", "\"*\""));
    let (mut anna, mut ops) = (login(&server, "anna"), login(&server, "ops"));
    let (value, _, fence) = reserve(&mut anna, "RESERVE office");
    let (_, value_ticket, _) = reserve(&mut anna, "RESERVE office");
    let (bound, ..) = reserve(&mut anna, "RESERVE bound");
    let ticket = |peer: &mut Peer, line: &str| ask(peer, line)[1].clone();
    let member = ticket(&mut anna, "TAKE cad");
    let lock = ticket(&mut anna, "LOCK one");
    ticket(&mut anna, "LOCK two");
    let lease = ticket(&mut anna, "REG.ASK load");
    let (_, _, theirs) = reserve(&mut ops, "RESERVE office");
    let less = config("\"ask\"", "\"broker:work\"");
    ops.ask(&["CONFIG", "APPLY", &less]);
    for line in ["RESERVE office", "TAKE cad", "LOCK three", "REG.ASK load"] {
        let said = anna.say(line);
        assert!(said.starts_with("-NOPERM "), "{line}: {said}");
    }
    let said = anna.say(&format!("RELEASE 10.20.0.2 FENCE {theirs}"));
    assert!(said.starts_with("-NOPERM "), "{said}");
    for line in [
        format!("RELEASE {value} FENCE {fence}"),
        format!("RELEASE {value_ticket}"),
        format!("RELEASE {member}"),
        format!("RELEASE {lock}"),
        "UNLOCK two".into(),
        format!("REG.DONE {lease}"),
    ] {
        assert_eq!(anna.say(&line), "+OK", "{line}");
    }
    let Value::Array(_) = ops.ask(&["LOOKUP", &bound]) else {
        panic!("it is there");
    };
}

#[test]
fn a_user_who_may_take_members_releases_nothing_else() {
    let users = users(&[
        ("anna", "\"take\"", "\"pool:cad\""),
        ("bert", "\"@lock\"", "\"*\""),
        ("ops", "\"@admin\"", "\"*\""),
    ]);
    let rest = "[pool.cad]\nmember = { list = [\"A\", \"B\"] }\n[lock.\"*\"]\n";
    let server = Server::start(&format!("{users}{RANGES}{rest}"));
    let (mut anna, mut ops) = (login(&server, "anna"), login(&server, "ops"));
    let mut bert = login(&server, "bert");
    let lock = ask(&mut ops, "LOCK one")[1].clone();
    let member = ask(&mut ops, "TAKE cad")[1].clone();
    let (value, ticket, fence) = reserve(&mut ops, "RESERVE office KEY k");
    for peer in [&mut anna, &mut bert] {
        for line in [
            format!("RELEASE {lock}"),
            format!("RELEASE {member}"),
            format!("RELEASE {ticket}"),
            format!("RELEASE {value} FENCE {fence}"),
            format!("RELEASE KEY k FENCE {fence}"),
            format!("CANCEL {ticket}"),
        ] {
            let said = peer.say(&line);
            assert!(said.starts_with("-NOPERM "), "{line}: {said}");
            assert!(!said.contains("office"), "{line}: {said}");
        }
    }
    let own = ask(&mut anna, "TAKE cad")[1].clone();
    assert_eq!(anna.say(&format!("RELEASE {own}")), "+OK");
    let own = ask(&mut bert, "LOCK two")[1].clone();
    assert_eq!(bert.say(&format!("RELEASE {own}")), "+OK");
    let mut nobody = server.connect();
    for line in ["RELEASE 1", "CANCEL 1", "UNLOCK one", "DONE x"] {
        let said = nobody.say(line);
        assert!(said.starts_with("-NOAUTH "), "{line}: {said}");
    }
}

#[test]
fn hidden_ranges_are_named_nowhere_and_answer_as_if_they_were_not_there() {
    let server = server();
    let (mut bert, mut chris) = (login(&server, "bert"), login(&server, "chris"));
    let mut ops = login(&server, "ops");
    let (value, ..) = reserve(&mut ops, "RESERVE hidden KEY k");
    for (there, missing) in [
        ("RANGE.STAT hidden", "RANGE.STAT absent"),
        ("RANGE.INFO hidden", "RANGE.INFO absent"),
        ("RANGE.COUNT hidden", "RANGE.COUNT absent"),
        ("RANGE.COUNT 200-209", "RANGE.COUNT 300-309"),
        ("RANGE.LS hidden", "RANGE.LS absent"),
        ("RANGE.WATCH hidden", "RANGE.WATCH absent"),
        ("RESERVE hidden", "RESERVE absent"),
        ("RESERVE 200-209", "RESERVE 300-309"),
        (
            "RESERVE office PREFER hidden",
            "RESERVE office PREFER absent",
        ),
        ("LOOKUP 200", "LOOKUP 300"),
        ("CLAIM 201", "CLAIM 301"),
        ("UPDATE 200 DATA x", "UPDATE 300 DATA x"),
        ("RELEASE 200", "RELEASE 300"),
        ("EXPLAIN hidden", "EXPLAIN absent"),
        ("EXPLAIN 200", "EXPLAIN 300"),
        ("POOL.STAT hidden", "POOL.STAT absent"),
        ("POOL.LOAD hidden", "POOL.LOAD absent"),
    ] {
        let (there, missing) = (bert.say(there), bert.say(missing));
        let shape = |said: &str| {
            let said = said.replace("hidden", "_").replace("absent", "_");
            said.replace("20", "_").replace("30", "_")
        };
        assert_eq!(shape(&there), shape(&missing));
    }
    for line in [
        "RANGE.REMOVE hidden",
        "RANGE.DRAIN hidden",
        "RANGE.SET hidden ttl 1m",
        "RANGE.RELEASE KEYPREFIX k IN hidden",
        "RANGE.RELEASE KEYPREFIX k",
    ] {
        let said = chris.say(line);
        assert!(said.starts_with("-NOPERM "), "{line}: {said}");
    }
    for line in [
        "RANGE.STAT",
        "SHOW RANGES",
        "SHOW HOLDERS",
        "SHOW CLIENTS",
        "LOOKUP KEY k",
        "RANGE.LS",
        "INFO",
        "RESERVE 1-300",
    ] {
        let said = bert.say(line);
        assert!(!said.contains("hidden"), "{line}: {said}");
        assert!(!said.contains(", ops, "), "{line}: {said}");
    }
    assert_eq!(bert.say("LOOKUP KEY k"), "[]");
    let said = bert.say("RELEASE KEY k");
    assert!(said.starts_with("-NOTHELD "), "{said}");
    assert_eq!(ask(&mut ops, &format!("LOOKUP {value}"))[4], "reserved");
}

#[test]
fn release_by_prefix_is_for_users_with_the_right_range() {
    let server = server();
    let (mut anna, mut chris) = (login(&server, "anna"), login(&server, "chris"));
    reserve(&mut anna, "RESERVE office KEY k-1");
    let said = anna.say("RANGE.RELEASE KEYPREFIX k- IN office");
    assert!(said.ends_with("add \"range\" to its allow list."), "{said}");
    let mut bert = login(&server, "bert");
    let said = bert.say("RANGE.RELEASE KEYPREFIX k- IN office");
    assert!(
        said.starts_with("-NOPERM "),
        "@all has no right over others: {said}"
    );
    assert_eq!(chris.say("RANGE.RELEASE KEYPREFIX k- IN office"), "1");
}

#[test]
fn control_honours_what_it_may_be_used_on() {
    let users = users(&[
        (
            "anna",
            "\"pool\", \"config\", \"client\", \"monitor\", \"show\", \"take\"",
            "\"pool:a*\"",
        ),
        ("ops", "\"@admin\"", "\"*\""),
    ]);
    let pools = "[pool.a]\nmember = { list = [\"A\"] }\n[pool.b]\ngroup = \"g\"\n\
                 member = { list = [\"B\"] }\n[lock.\"*\"]\n";
    let server = Server::start(&format!("{users}{pools}"));
    let (mut anna, mut ops) = (login(&server, "anna"), login(&server, "ops"));
    let id = ops.say("CLIENT ID");
    for words in [
        &["POOL.SET", "a", "group", "g"][..],
        &["POOL.SET", "a", "\"group\"", "\"g\""],
        &["CONFIG", "SET", "pool.a.group", "g"],
        &["CONFIG", "SET", "pool.a.\"group\"", "'g'"],
        &[
            "POOL.ADD",
            "a2",
            "group = \"g\"\nmember = { list = [\"x\"] }",
        ],
        &["POOL.SET", "b", "max", "1"],
        &["CONFIG", "SET", "pool.b.max", "1"],
        &["CONFIG", "SET", "server.name", "mine"],
        &["CONFIG", "SET", "user.anna.on", "['*']"],
        &["CONFIG", "GET", "pool.b.max"],
        &["CONFIG", "GET", "pool.zzz.max"],
        &["CONFIG", "APPLY", ""],
        &["CONFIG", "TEXT"],
        &["CONFIG", "HISTORY"],
        &["MONITOR"],
    ] {
        let said = text(&anna.ask(words));
        assert!(said.starts_with("-NOPERM "), "{words:?}: {said}");
    }
    assert_eq!(anna.say(&format!("CLIENT KILL {id}")), "0");
    assert!(!anna.say("CLIENT LIST").contains("user=ops"));
    let config = anna.say("CONFIG GET *");
    assert!(config.contains("pool.a.max"), "{config}");
    assert!(
        !config.contains("pool.b") && !config.contains("server."),
        "{config}"
    );
    let shown = anna.say("SHOW CONFIG");
    assert!(
        shown.contains("pool.a.max") && !shown.contains("pool.b"),
        "{shown}"
    );
    assert_eq!(anna.say("POOL.SET a max 1"), "+OK");
    assert_eq!(anna.say("CONFIG SET pool.a.max 1"), "+OK");
    let words = ["POOL.ADD", "a2", "member = { list = [\"x\"] }"];
    assert_eq!(text(&anna.ask(&words)), "+OK");
    assert_eq!(ops.say("PING"), "+PONG");
}
