//! A user has no more of what all share than its quotas allow.

use rideau_config::Quota;

use crate::tests::commands::peer::Peer;
use crate::tests::commands::server::Server;
use crate::tests::commands::users::{hash, login};

fn server(quotas: &str) -> Server {
    let user = |name: &str, keys: &str| {
        let hash = hash();
        format!("[user.{name}]\npassword = '{hash}'\nallow = [\"@all\", \"@admin\"]\n{keys}\n")
    };
    let users = user("ops", "") + &user("anna", quotas);
    Server::start(&format!(
        "{users}[lock.\"*\"]\nqueue = {{ kind = \"never\" }}\n[store]\nkind = \"memory\"\n\
         [range.lab]\nvalues = [\"1-2\"]\nstart = \"free\"\n"
    ))
}

fn now(server: &Server, quota: Quota) -> usize {
    server.daemon.quotas.of("anna").now(quota)
}

/// Connections end a moment after they are closed.
fn until(server: &Server, quota: Quota, count: usize) {
    while now(server, quota) != count {
        std::thread::yield_now();
    }
}

fn busy(said: &str, begin: &str) {
    assert!(said.starts_with(&format!("-BUSY {begin}")), "{said}");
}

#[test]
fn a_user_has_as_many_connections_as_it_may() {
    let server = server("connections_max = 2");
    let (one, mut two) = (login(&server, "anna"), login(&server, "anna"));
    let mut three = server.connect();
    let no = "user.anna.connections_max (2) reached: close";
    busy(&three.say("AUTH anna secret"), no);
    busy(&three.say("HELLO 3 AUTH anna secret"), no);
    // A connection that is one of them stays one of them.
    assert_eq!(two.say("AUTH anna secret"), "+OK");
    assert_eq!(now(&server, Quota::Connections), 2);
    assert_eq!(three.say("AUTH ops secret"), "+OK");
    assert_eq!(three.say("CONFIG SET user.anna.connections_max 3"), "+OK");
    let mut four = login(&server, "anna");
    assert_eq!(four.say("RESET"), "+RESET");
    until(&server, Quota::Connections, 2);
    drop(one);
    assert_eq!(two.say("AUTH ops secret"), "+OK");
    until(&server, Quota::Connections, 0);
}

#[test]
fn a_user_has_as_many_sessions_as_it_may() {
    let server = server("sessions_max = 2");
    let (mut anna, mut ops) = (login(&server, "anna"), login(&server, "ops"));
    anna.say("SESSION OPEN TTL 600000");
    anna.say("SESSION OPEN TTL 600000");
    let no = "user.anna.sessions_max (2) reached: close some";
    busy(&anna.say("SESSION OPEN"), no);
    assert!(ops.say("SESSION OPEN").starts_with("[s-"));
    assert_eq!(anna.say("SESSION CLOSE"), "0");
    assert!(anna.say("SESSION OPEN").starts_with("[s-"));
    assert_eq!(now(&server, Quota::Sessions), 2);
    drop(anna);
    // The one without a time of its own ends with its connection.
    until(&server, Quota::Sessions, 1);
}

#[test]
fn a_user_has_as_many_streams_as_it_may() {
    let server = server("streams_max = 3");
    let (mut one, mut two) = (login(&server, "anna"), login(&server, "anna"));
    one.say("HELLO 3");
    one.say("SUBSCRIBE rideau:events:app");
    one.say("SUBSCRIBE rideau:events:pool");
    one.say("RANGE.WATCH");
    one.say("MONITOR");
    until(&server, Quota::Streams, 3);
    let no = "user.anna.streams_max (3) reached: close some";
    busy(&two.say("SUBSCRIBE rideau:events:pool"), no);
    busy(&two.say("RANGE.WATCH"), no);
    busy(&two.say("MONITOR"), no);
    drop(one);
    until(&server, Quota::Streams, 0);
    assert!(two.say("PSUBSCRIBE *:pool:*").starts_with("[psubscribe"));
    assert_eq!(now(&server, Quota::Streams), 1);
    two.say("PUNSUBSCRIBE");
    assert_eq!(now(&server, Quota::Streams), 0);
    // Streams go with their connection to another user, if that has room for them.
    let mut ops = login(&server, "ops");
    ops.say("HELLO 3");
    for line in ["SUBSCRIBE rideau:events:pool", "RANGE.WATCH"] {
        ops.say(line);
    }
    assert_eq!(ops.say("AUTH anna secret"), "+OK");
    assert_eq!(now(&server, Quota::Streams), 2);
    let mut more = login(&server, "ops");
    more.say("HELLO 3");
    for line in ["SUBSCRIBE rideau:events:pool", "RANGE.WATCH"] {
        more.say(line);
    }
    assert_eq!(more.say("AUTH anna secret"), "+OK");
    let heard = more.hear();
    assert!(
        heard.contains("\"error\":\"BUSY user.anna.streams_max (3) reached"),
        "{heard}"
    );
    assert_eq!(more.hear(), ">[unsubscribe, rideau:events:pool, 0]");
    assert_eq!(more.hear(), ">[unsubscribe, rideau:ranges, 0]");
    assert_eq!(now(&server, Quota::Streams), 2);
    assert_eq!(server.daemon.quotas.of("ops").now(Quota::Streams), 0);
}

#[test]
fn a_change_ends_no_stream_of_a_user_who_has_all_that_it_may() {
    let server = server("streams_max = 1");
    let (mut anna, mut ops) = (login(&server, "anna"), login(&server, "ops"));
    anna.say("SUBSCRIBE rideau:events:client");
    for line in [
        "CONFIG SET user.anna.waiting_max 7",
        // What is over a quota stays.
        "CONFIG SET user.anna.streams_max 0",
        "CLIENT KILL ID 999",
    ] {
        let said = ops.say(line);
        assert!(!said.starts_with('-'), "{said}");
    }
    let other = server.connect();
    while server.daemon.clients.len() != 3 {
        std::thread::yield_now();
    }
    assert_eq!(ops.say("CLIENT KILL ID 3"), "1");
    assert!(anna.hear().contains("was killed"));
    assert_eq!(now(&server, Quota::Streams), 1);
    drop(other);
}

#[test]
fn as_many_commands_of_a_user_wait_as_may() {
    let server = server("waiting_max = 2");
    let mut ops = login(&server, "ops");
    ops.say("LOCK k");
    let wait = |peer: &mut Peer| peer.send(&["LOCK", "k", "WAIT", "20000"]);
    let (mut one, mut two) = (login(&server, "anna"), login(&server, "anna"));
    until(&server, Quota::Waiting, 0);
    wait(&mut one);
    assert!(two.say("LOCK k WAIT 20000 ASYNC").starts_with("[await, "));
    until(&server, Quota::Waiting, 2);
    let no = "user.anna.waiting_max (2) reached: retry";
    busy(&two.say("LOCK k WAIT 20000"), no);
    busy(&two.say("LOCK k WAIT 20000 ASYNC"), no);
    // What need not wait is not refused.
    assert!(two.say("LOCK free").starts_with("[go, "));
    drop(one);
    until(&server, Quota::Waiting, 1);
    drop(two);
    until(&server, Quota::Waiting, 0);
}
