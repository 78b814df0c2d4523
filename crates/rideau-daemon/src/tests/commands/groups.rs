//! Brokers in groups, and regulators that learn from each other.

use std::thread;
use std::time::Duration;

use crate::tests::commands::peer::{Peer, cell, text};
use crate::tests::commands::ranges::ask;
use crate::tests::commands::server::Server;
use crate::tests::commands::users::{hash, login};

const TEXT: &str = "\
[broker.east]
group = \"all\"

[broker.west]
group = \"all\"

[broker.apart]

[group.all]
pick = \"best-of-two\"
";

const BETTER: &str = "\
[broker.east]
group = \"all\"
meters = [{ kind = \"better\", update = \"1ms\" }]

[broker.west]
group = \"all\"
meters = [{ kind = \"better\", update = \"1ms\" }]

[group.all]
pick = \"best-of-two\"
";

fn offer(peer: &mut Peer, broker: &str, value: &str) {
    let said = peer.say(&format!(
        "OFFER {broker} VALUE {value} ASYNC ID {broker}-{value}"
    ));
    assert!(said.contains("await"), "{said}");
}

#[test]
fn an_ask_of_a_group_meets_an_offer_of_one_of_its_brokers() {
    let server = Server::start(TEXT);
    let (mut workers, mut clients) = (server.connect(), server.connect());
    for broker in ["east", "west", "apart"] {
        offer(&mut workers, broker, broker);
    }
    // Nothing can be compared, so they take turns.
    let mut met: Vec<_> = (0..2)
        .map(|_| ask(&mut clients, "ASK @all NB")[2].clone())
        .collect();
    met.sort_unstable();
    assert_eq!(met, ["east", "west"]);
    assert_eq!(ask(&mut clients, "ASK @all NB")[0], "retry");
    let shown = clients.ask(&["SHOW", "GROUPS"]);
    assert_eq!(cell(&shown, 0, "name"), "@all");
    assert_eq!(cell(&shown, 0, "brokers"), "east,west");
    // It is no group of pools, and others are none at all.
    let no = clients.say("TAKE @all");
    assert!(no.starts_with("-NOSUCH pool"), "{no}");
    let no = clients.say("ASK @nothing");
    assert!(no.starts_with("-NOSUCH broker"), "{no}");
    let explained = clients.say("EXPLAIN @all");
    assert!(explained.contains("It has 2 brokers."), "{explained}");
}

#[test]
fn the_better_of_two_brokers_is_asked_and_both_are_shown() {
    let server = Server::start(BETTER);
    let (mut workers, mut clients) = (server.connect(), server.connect());
    let mut waiting = server.connect();
    // One has an ask that waits ever longer, the other an offer.
    waiting.say("ASK east WAIT 30000 ASYNC ID waits");
    let expects = |peer: &mut Peer, row| {
        let shown = peer.ask(&["SHOW", "BROKERS"]);
        cell(&shown, row, "ask_expects_us").parse::<u64>().ok()
    };
    for round in 0..5 {
        offer(&mut workers, "west", &format!("w{round}"));
        while !matches!(
            (expects(&mut clients, 0), expects(&mut clients, 1)),
            (Some(east), Some(west)) if west < east
        ) {
            thread::sleep(Duration::from_millis(1));
        }
        let met = ask(&mut clients, "ASK @all WAIT 30000");
        assert_eq!(met[2], format!("w{round}"));
    }
}

#[test]
fn a_group_of_brokers_is_for_users_who_may_use_it() {
    let hash = hash();
    let server = Server::start(&format!(
        "{TEXT}
[user.ops]
password = '{hash}'
allow = [\"@all\"]

[user.east]
password = '{hash}'
allow = [\"ask\", \"show\"]
on = [\"broker:east\"]
"
    ));
    let mut east = login(&server, "east");
    let no = east.say("ASK @all NB");
    assert!(no.starts_with("-NOPERM"), "{no}");
    let yes = text(&east.ask(&["ASK", "east", "NB"]));
    assert!(!yes.starts_with("-NOPERM"), "{yes}");
}

#[test]
fn a_regulator_learns_from_another() {
    let server = Server::start(
        "\
[regulator.first]
valve = { kind = \"open\", max = 1 }

[regulator.second]
regulator = \"first\"
update = \"1ms\"
valve = { kind = \"relative\", target = \"0ms\" }
",
    );
    let mut peer = server.connect();
    // The first one waits for asks, so there is room for more.
    let lease = ask(&mut peer, "REG.ASK second WAIT 30000");
    assert_eq!(lease[0], "go");
    let shown = peer.ask(&["SHOW", "REGULATORS"]);
    assert_eq!(cell(&shown, 1, "broker"), "first");
}
