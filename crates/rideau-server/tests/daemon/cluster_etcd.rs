//! What an operator does with the etcd of a cluster: a backup is restored, and the values of
//! a server that was alone are brought in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rideau_testing::command;

use crate::cluster::{Rig, ask_on, first_text, reserved, until_served, until_spread};
use crate::server::{Server, program, until};
use crate::wire::Wire;

/// The words of the program with a file of this config, and how it ended.
fn operate(rig: &Rig, words: &[&str], config: &str) -> (bool, String) {
    let file = rig.folder("operator.toml");
    fs::write(&file, format!("[server]\n{config}")).unwrap();
    let done = command(program()).args(words).arg(&file).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

/// The config of a node whose files are in this folder.
fn config(rig: &Rig, name: &str, store: &Path) -> String {
    let config = rig.config(name, 2);
    let quarantine = format!("quarantine = \"5s\"\n[store]\npath = {store:?}\n[range.few]");
    config.replace("[range.few]", &quarantine)
}

#[test]
fn values_are_in_quarantine_after_an_old_etcd_was_accepted() {
    let mut rig = Rig::start();
    let store = rig.folder("store");
    let config = config(&rig, "n1", &store);
    let node = Server::with(&config);
    until_served(&node);
    let mut wire = node.connect();
    let mut fences = 0;
    let mut given = BTreeMap::new();
    let mut give = |wire: &mut Wire, count: usize| {
        for _ in 0..count {
            let reply = ask_on(wire, "RESERVE all TTL 600000");
            let (value, ticket) = reserved(&reply);
            fences = fences.max(reply.at(6).int());
            assert!(given.insert(value, ticket).is_none(), "no value twice");
        }
    };
    give(&mut wire, 10);
    rig.stop_etcd("backup");
    rig.start_etcd("backup");
    give(&mut wire, 10);
    drop(wire);
    let refused = operate(&rig, &["cluster", "accept-restore"], &config);
    assert!(
        !refused.0 && refused.1.contains("live: n1"),
        "{}",
        refused.1
    );
    node.kill();
    rig.stop_etcd("newest");
    rig.start_etcd("backup");
    let said = Server::refuses(&config);
    assert!(said.contains("rideau cluster accept-restore"), "{said}");
    let (is_done, said) = operate(&rig, &["cluster", "accept-restore"], &config);
    assert!(is_done, "{said}");
    let node = Server::with(&config);
    until_served(&node);
    let mut wire = node.connect();
    let free = |wire: &mut Wire| wire.ask("RANGE.INFO all").field("free").int();
    // A value that is renewed stays with its holder; those before and after the backup alike.
    let used: Vec<_> = given.keys().step_by(3).cloned().collect();
    for value in &used {
        let reply = ask_on(&mut wire, &format!("WRITE {value} TTL 600000"));
        assert_eq!(reply.at(0).text(), "ok", "{reply}");
        assert!(reply.at(2).int() > fences, "fences grow: {reply}");
    }
    assert_eq!(free(&mut wire), 0);
    let unused = 10_000 - used.len() as i64;
    until("the quarantine is over", || free(&mut wire) == unused);
    for _ in 0..30 {
        let (value, _) = reserved(&ask_on(&mut wire, "RESERVE all TTL 600000"));
        assert!(!used.contains(&value), "{value} is used");
    }
    // It was accepted once: a backup that is older than that is not.
    drop(wire);
    node.kill();
    rig.stop_etcd("newest");
    rig.start_etcd("backup");
    let said = Server::refuses(&config);
    assert!(said.contains("rideau cluster accept-restore"), "{said}");
}

#[test]
fn the_values_of_a_server_alone_are_moved_into_a_cluster() {
    let rig = Rig::start();
    let store = rig.folder("store");
    let clustered = config(&rig, "n1", &store);
    let alone = format!(
        "[store]\npath = {store:?}\n[range.all]\nvalues = [\"0-9999\"]\n\
         [range.few]\nvalues = [\"20000-20015\"]\n"
    );
    let server = Server::with(&alone);
    let mut wire = server.connect();
    let mut given = BTreeMap::new();
    let mut fences = 0;
    for at in 0..100 {
        let reply = wire.ask(&format!("RESERVE all TTL 600000 UNIQUE u{at} DATA d{at}"));
        fences = fences.max(reply.at(6).int());
        let (value, ticket) = reserved(&reply);
        given.insert(value, (at, ticket));
    }
    drop(wire);
    let (is_done, said) = operate(&rig, &["move", "--to", "etcd"], &clustered);
    assert!(!is_done, "the server runs: {said}");
    server.kill();
    let (is_done, said) = operate(&rig, &["move", "--to", "etcd"], &clustered);
    assert!(is_done && said.contains("store"), "{said}");
    let said = Server::refuses(&alone);
    assert!(said.contains("moved to the cluster test"), "{said}");
    let nodes = [Server::with(&clustered), rig.node("n2")];
    nodes.iter().for_each(|node| until_spread(node, 2));
    let mut wires = nodes.each_ref().map(Server::connect);
    for (value, (at, ticket)) in &given {
        let wire = &mut wires[at % 2];
        let found = ask_on(wire, &format!("LOOKUP KEY u{at}"));
        assert_eq!(first_text(&found), *value, "{found}");
        assert!(found.to_string().contains(&format!("d{at}")), "{found}");
        if at % 3 == 0 {
            let released = ask_on(&mut wires[(at + 1) % 2], &format!("RELEASE {ticket}"));
            assert_eq!(released.text(), "OK", "{value}");
        }
    }
    for at in 0..200 {
        let reply = ask_on(&mut wires[at % 2], "RESERVE all TTL 600000");
        let (value, _) = reserved(&reply);
        assert!(reply.at(6).int() > fences, "{reply}");
        let held = given.get(&value).is_some_and(|(at, _)| at % 3 != 0);
        assert!(!held, "{value} is held");
    }
    let (is_done, said) = operate(&rig, &["move", "--to", "etcd"], &clustered);
    assert!(!is_done && said.contains("live: n1, n2"), "{said}");
    drop(wires);
    for node in nodes {
        node.stop();
    }
    let (is_done, said) = operate(&rig, &["move", "--to", "etcd"], &clustered);
    assert!(!is_done && said.contains("before"), "{said}");
    let absent = clustered.replace(&format!("{store:?}"), "\"/nonexistent/rideau\"");
    let (is_done, said) = operate(&rig, &["move", "--to", "etcd"], &absent);
    assert!(!is_done && said.contains("no values in"), "{said}");
}
