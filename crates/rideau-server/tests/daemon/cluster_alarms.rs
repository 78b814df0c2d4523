//! The alarms that a node of a cluster has without any config.

use crate::cluster::{Rig, until_served};
use crate::server::{Server, until};
use crate::wire::Wire;

/// Each alarm with its state.
fn alarms(wire: &mut Wire) -> Vec<(String, String)> {
    let shown = wire.ask("SHOW ALARMS");
    let rows = shown.parts()[1..].iter();
    rows.map(|row| (row.at(0).text(), row.at(1).text()))
        .collect()
}

#[test]
fn a_node_without_etcd_has_an_alarm_until_etcd_is_back() {
    let mut rig = Rig::start();
    let config = rig.config("n1", 2)
        + "[[alarm]]\nname = \"peer cut\"\nwhen = \"cluster.cut >= 2\"\nfor = \"1m\"\n";
    let node = Server::with(&config);
    until_served(&node);
    let mut wire = node.operator();
    let is_off = |wire: &mut Wire| alarms(wire).iter().all(|(_, state)| state == "off");
    until("no alarm is on", || is_off(&mut wire));
    let mut names: Vec<_> = alarms(&mut wire)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "epochs almost used up",
            "etcd almost full",
            "etcd filling up",
            "partition without owner",
            "peer cut",
            "unsure",
        ]
    );
    let shown = wire.ask("SHOW ALARMS").to_string();
    assert!(
        shown.contains("cluster.cut >= 2"),
        "that of the config counts: {shown}"
    );
    rig.stop_etcd("backup");
    let on = ("unsure".to_owned(), "on".to_owned());
    until("the node has an alarm", || alarms(&mut wire).contains(&on));
    rig.start_etcd("backup");
    until("no alarm is on any more", || is_off(&mut wire));
    let events = wire.ask("SHOW EVENTS").to_string();
    for text in [
        "alarm unsure is on: cluster: unsure is 1 (> 0)",
        "alarm unsure is off",
    ] {
        assert!(events.contains(text), "{text}: {events}");
    }
}
