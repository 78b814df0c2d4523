//! What nodes share of their configs: a change on any node counts on all.

use rideau_testing::command;

use crate::cluster::{Rig, ask_on, reserved, until_spread};
use crate::server::{Server, program, until};
use crate::wire::{Value, Wire};

/// The config column of a node, as another one shows it.
fn follows(wire: &mut Wire, node: &str) -> String {
    let shown = wire.ask("SHOW NODES");
    let heads = shown.at(0).parts();
    let at = |name: &str| heads.iter().position(|head| head.text() == name).unwrap();
    let (name, config) = (at("name"), at("config"));
    let mut rows = shown.parts()[1..].iter();
    let row = rows.find(|row| row.at(name).text() == node);
    row.map_or_else(String::new, |row| match row.at(config) {
        Value::Null => String::new(),
        other => other.text(),
    })
}

/// What a node has for a key.
fn value(wire: &mut Wire, key: &str) -> String {
    let found = wire.ask(&format!("CONFIG GET {key}"));
    match found.parts() {
        [] => String::new(),
        parts => parts[1].text(),
    }
}

/// Add something whose keys are in a text.
fn add(wire: &mut Wire, command: &str, name: &str, keys: &str) -> Value {
    wire.ask_words(&[command.as_bytes(), name.as_bytes(), keys.as_bytes()])
}

fn push(node: &Server, text: &str) -> Value {
    node.operator()
        .ask_words(&[b"CONFIG", b"PUSH", text.as_bytes()])
}

#[test]
fn a_change_on_any_node_counts_on_all_and_outlives_them() {
    let rig = Rig::start();
    let nodes = ["n1", "n2", "n3"].map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, 3));
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut ops = nodes.each_ref().map(Server::operator);
    for node in ["n1", "n2", "n3"] {
        until("all follow the first version", || {
            follows(&mut wires[0], node) == "1"
        });
    }
    // A pool that one node adds lends the same members at all of them at once.
    let keys = "scope = \"cluster\"\nmember = { list = [\"a\", \"b\", \"c\"] }";
    assert_eq!(add(&mut ops[0], "POOL.ADD", "cad", keys).text(), "OK");
    let mut lent: Vec<_> = wires
        .iter_mut()
        .map(|wire| ask_on(wire, "TAKE cad").at(2).text())
        .collect();
    lent.sort();
    assert_eq!(lent, ["a", "b", "c"]);
    // A range, a limit and a rule of locks.
    let range = "values = [\"50000-50007\"]";
    assert_eq!(add(&mut ops[1], "RANGE.ADD", "late", range).text(), "OK");
    for wire in &mut wires {
        reserved(&ask_on(wire, "RESERVE late TTL 600000"));
    }
    assert_eq!(ops[2].ask("RANGE.SET late TTL 90s").text(), "OK");
    assert_eq!(ops[2].ask("CONFIG SET lock.\"*\".per 2").text(), "OK");
    for wire in &mut ops {
        assert_eq!(value(wire, "range.late.ttl"), "\"90s\"");
        assert_eq!(value(wire, "lock.\"*\".per"), "2");
    }
    // What is a node's own stays with it.
    assert_eq!(ops[0].ask("CONFIG SET server.drain 7s").text(), "OK");
    assert_eq!(value(&mut ops[0], "server.drain"), "\"7s\"");
    assert_eq!(value(&mut ops[1], "server.drain"), "\"5s\"");
    for node in ["n1", "n2", "n3"] {
        let told = follows(&mut wires[1], node);
        assert_eq!(told, "5, the file differs", "four changes");
    }
    assert_eq!(ops[0].ask("CONFIG REWRITE").text(), "OK");
    until("others know", || follows(&mut wires[1], "n1") == "5");
    assert_eq!(ops[1].ask("CONFIG ROLLBACK").at(0).parts().len(), 6);
    for wire in &mut ops {
        assert_eq!(value(wire, "lock.\"*\".per"), "1");
    }
    // A node that starts again has it, whatever its file says, and says so.
    let [one, two, three] = nodes;
    drop((wires, ops));
    for node in [one, two, three] {
        node.stop();
    }
    let one = rig.node("n1");
    until_spread(&one, 1);
    let mut wire = one.operator();
    assert_eq!(value(&mut wire, "range.late.ttl"), "\"90s\"");
    assert_eq!(value(&mut wire, "pool.cad.scope"), "\"cluster\"");
    assert_eq!(follows(&mut wire, "n1"), "6, the file differs");
    assert_eq!(ask_on(&mut wire, "TAKE cad").at(0).text(), "go");
}

#[test]
fn changes_of_two_nodes_at_once_both_count() {
    let rig = Rig::start();
    let nodes = ["n1", "n2"].map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, 2));
    let change = |node: &Server, kind: &str| {
        let (mut wire, kind) = (node.operator(), kind.to_owned());
        std::thread::spawn(move || {
            for at in 0..5 {
                let name = format!("{kind}{at}");
                let keys = "scope = \"cluster\"\nmember = { list = [\"x\"] }";
                let said = add(&mut wire, "POOL.ADD", &name, keys);
                assert_eq!(said.text(), "OK");
            }
        })
    };
    let changes = [change(&nodes[0], "one"), change(&nodes[1], "two")];
    changes.into_iter().for_each(|it| it.join().unwrap());
    for node in &nodes {
        let mut wire = node.operator();
        until("both know all", || {
            let all = ["n1", "n2"].map(|node| follows(&mut wire, node));
            all.iter().all(|told| told.starts_with("11,"))
        });
        for kind in ["one", "two"] {
            for at in 0..5 {
                assert_eq!(
                    value(&mut wire, &format!("pool.{kind}{at}.scope")),
                    "\"cluster\""
                );
            }
        }
    }
}

#[test]
fn the_file_of_a_node_that_differs_counts_when_it_is_pushed() {
    let rig = Rig::start();
    let one = rig.node("n1");
    until_spread(&one, 1);
    let other = rig.config("n2", 2).replace(
        "[range.few]",
        "[range.own]\nvalues = [\"40007-40007\"]\n[range.few]",
    );
    let other = format!("{other}[pool.mine]\nmember = {{ list = [\"m\"] }}\n");
    let two = Server::with(&other);
    until_spread(&two, 2);
    let mut wires = [one.operator(), two.operator()];
    until("the other node knows", || {
        follows(&mut wires[0], "n2") == "1, the file differs"
    });
    assert_eq!(value(&mut wires[1], "range.own.values"), "");
    assert_eq!(
        ask_on(&mut wires[1], "TAKE mine").at(0).text(),
        "go",
        "its own stays"
    );
    // Nothing of it counts before: a reload keeps what all nodes share.
    assert!(!matches!(
        two.operator().ask("CONFIG RELOAD"),
        Value::Error(_)
    ));
    assert_eq!(value(&mut wires[1], "range.own.values"), "");
    let pushed = command(program())
        .args(["--server", &format!("127.0.0.1:{}", two.port())])
        .args(["config", "push"])
        .arg(two.file())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&pushed.stdout).into_owned();
    assert!(
        pushed.status.success() && said.contains("range.own"),
        "{pushed:?}"
    );
    for wire in &mut wires {
        assert!(value(wire, "range.own.values").contains("40007"));
    }
    assert_eq!(reserved(&ask_on(&mut wires[0], "RESERVE own")).0, "40007");
    assert_eq!(
        value(&mut wires[0], "pool.mine.max"),
        "",
        "that is of n2 alone"
    );
    until("the file is what counts", || {
        follows(&mut wires[0], "n2") == "2"
    });
    // What cannot be is refused as a whole, on all nodes.
    let bad = format!("[server]\n{other}")
        .replace("values = [\"40007-40007\"]", "values = [\"40009-40002\"]");
    push(&two, &bad).is_error("CONFIG");
    assert!(follows(&mut wires[0], "n1").starts_with("2,"));
    // A node alone has nothing to push to.
    let alone = Server::with("[lock.\"*\"]\n");
    push(&alone, "[lock.\"*\"]\n").is_error("CONFIG nodes share no config");
}
