//! Several servers that share ranges through a real etcd: nodes come, go and die.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rideau_testing::certificates::{Signer, papers_for, signer as authority};
use rideau_testing::{Running, Scratch, Signal, Start, command, signal};

use crate::server::{Server, free_port, until};
use crate::wire::{Value, Wire};

/// What the nodes of a test have in common.
pub(crate) struct Rig {
    etcd: Running,
    port: u16,
    folder: Scratch,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let folder = Scratch::in_memory();
        let (port, peer) = (free_port(), free_port());
        let etcd = serve_etcd(&folder, port, peer);
        let secret = folder.join("secret");
        fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let rig = Self { etcd, port, folder };
        until("etcd is ready", || is_healthy(port));
        rig
    }

    /// End etcd, and copy what it has.
    pub(crate) fn stop_etcd(&mut self, copy: &str) {
        self.etcd.end();
        let copied = command("cp")
            .arg("-a")
            .args([self.folder.join("etcd"), self.folder.join(copy)])
            .status()
            .unwrap();
        assert!(copied.success());
    }

    /// Have etcd serve what was copied.
    pub(crate) fn start_etcd(&mut self, copy: &str) {
        let store = self.folder.join("etcd");
        fs::remove_dir_all(&store).unwrap();
        let copied = command("cp")
            .arg("-a")
            .args([self.folder.join(copy), store])
            .status()
            .unwrap();
        assert!(copied.success());
        self.etcd = serve_etcd(&self.folder, self.port, free_port());
        until("etcd is ready", || is_healthy(self.port));
    }

    /// A folder of the test.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A node of this name.
    pub(crate) fn node(&self, name: &str) -> Server {
        Server::with(&self.config(name, 2))
    }

    /// The same, and where clients of Redis Cluster reach it.
    pub(crate) fn straight_node(&self, name: &str) -> (Server, SocketAddr) {
        Self::straight(&self.config(name, 2))
    }

    /// The same, with a config that has more.
    pub(crate) fn straight(config: &str) -> (Server, SocketAddr) {
        let port = free_port();
        let straight = format!("listen_straight = \"127.0.0.1:{port}\"\npartitions");
        let config = config.replace("partitions", &straight);
        let config = config.replace("drain = \"5s\"", "drain = \"60s\"");
        let server = Server::with(&config);
        (server, (Ipv4Addr::LOCALHOST, port).into())
    }

    pub(crate) fn config(&self, name: &str, lease: u32) -> String {
        let secret = self.folder.join("secret");
        format!(
            "drain = \"5s\"\n[cluster]\nname = \"test\"\nnode = {name:?}\n\
             etcd = [\"http://127.0.0.1:{}\"]\nlisten = \"127.0.0.1:{}\"\n\
             secret_file = {secret:?}\npartitions = 16\nlease = \"{lease}s\"\n\
             [range.all]\nvalues = [\"0-9999\"]\n\
             [range.few]\nvalues = [\"20000-20015\"]\n\
             [range.spare]\nvalues = [\"30000-30015\"]\n[lock.\"*\"]\n",
            self.port,
            free_port(),
        )
    }
}

fn serve_etcd(folder: &Scratch, port: u16, peer: u16) -> Running {
    etcd_member(folder, 0, port, &[peer])
}

/// Whether an etcd at this port answers.
pub(crate) fn is_healthy(port: u16) -> bool {
    is_healthy_at((Ipv4Addr::LOCALHOST, port).into())
}

/// The same, at this address.
pub(crate) fn is_healthy_at(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    let mut said = String::new();
    let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut said).is_ok() && said.contains("\"true\"")
}

/// A member of an etcd, whose members reach each other at these ports.
pub(crate) fn etcd_member(folder: &Scratch, at: usize, port: u16, peers: &[u16]) -> Running {
    let etcd = (command("etcd"), Ipv4Addr::LOCALHOST);
    etcd_member_of(etcd, folder, at, port, peers)
}

/// The same, started by this command on the machine with this address.
pub(crate) fn etcd_member_of(
    (mut etcd, host): (Command, Ipv4Addr),
    folder: &Scratch,
    at: usize,
    port: u16,
    peers: &[u16],
) -> Running {
    let url = format!("http://{host}:{port}");
    let peer = |at: usize| format!("http://{host}:{}", peers[at]);
    let all: Vec<_> = (0..peers.len())
        .map(|at| format!("m{at}={}", peer(at)))
        .collect();
    let store = match at {
        0 => folder.join("etcd"),
        _ => folder.join(&format!("etcd{at}")),
    };
    for (name, value) in [
        ("--name", &*format!("m{at}")),
        ("--data-dir", &store.display().to_string()),
        ("--listen-client-urls", &url),
        ("--advertise-client-urls", &url),
        ("--listen-peer-urls", &peer(at)),
        ("--initial-advertise-peer-urls", &peer(at)),
        ("--initial-cluster", &all.join(",")),
    ] {
        etcd.args([name, value]);
    }
    etcd.stdin(Stdio::null());
    etcd.stdout(Stdio::null()).stderr(Stdio::null());
    etcd.start()
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.etcd.end();
    }
}

/// Wait until every partition has an owner, and none is being loaded; as a node sees it.
pub(crate) fn until_served(server: &Server) {
    let mut wire = server.connect();
    until("all partitions are served", || {
        let shown = wire.ask("SHOW PARTITIONS");
        let rows = &shown.parts()[1..];
        let is_served = |row: &Value| ["serving", "elsewhere"].contains(&&*row.at(1).text());
        !rows.is_empty() && rows.iter().all(is_served)
    });
}

/// Wait until a node owns about as many partitions as its share.
pub(crate) fn until_spread(server: &Server, nodes: usize) {
    let mut wire = server.connect();
    until("partitions are spread", || {
        let shown = wire.ask("SHOW PARTITIONS");
        let mut owned: BTreeMap<String, usize> = BTreeMap::new();
        for row in &shown.parts()[1..] {
            if row.at(2) != &Value::Null {
                *owned.entry(row.at(2).text()).or_default() += 1;
            }
        }
        owned.len() == nodes && owned.values().all(|count| *count >= 16 / nodes)
    });
    until_served(server);
}

/// Wait until a value can be had, and give it back.
fn until_granting(server: &Server) {
    let mut wire = server.connect();
    until("values are given out", || match wire.ask("RESERVE all") {
        Value::List(parts) => {
            let released = wire.ask(&format!("RELEASE {}", parts[2].text()));
            assert_eq!(released.text(), "OK");
            true
        }
        _ => false,
    });
}

/// The value and ticket of a reservation.
pub(crate) fn reserved(reply: &Value) -> (String, String) {
    assert_eq!(reply.at(0).text(), "go", "{reply}");
    (reply.at(1).text(), reply.at(2).text())
}

/// The first text of a reply, however deep it is.
pub(crate) fn first_text(reply: &Value) -> String {
    match reply {
        Value::List(parts) => first_text(&parts[0]),
        other => other.text(),
    }
}

/// Ask until the partition has an owner that answers.
pub(crate) fn ask_on(wire: &mut Wire, line: &str) -> Value {
    let mut reply = wire.ask(line);
    until("a node answers", || {
        let is_down = matches!(&reply, Value::Error(text) if text.starts_with("CLUSTERDOWN"));
        if is_down {
            reply = wire.ask(line);
        }
        !is_down
    });
    reply
}

#[test]
fn one_node_on_etcd_keeps_what_it_gave_out_when_it_is_killed() {
    let rig = Rig::start();
    let node = rig.node("n1");
    until_served(&node);
    until_granting(&node);
    let mut wire = node.connect();
    let mut values = Vec::new();
    let mut given = BTreeMap::new();
    for at in 0..200 {
        let reply = wire.ask(&format!("RESERVE all TTL 600000 UNIQUE u{at} DATA d{at}"));
        let (value, ticket) = reserved(&reply);
        values.push(value.clone());
        assert!(given.insert(value, ticket).is_none(), "no value twice");
    }
    node.kill();
    drop(wire);
    let node = rig.node("n1");
    until_served(&node);
    let mut wire = node.connect();
    for at in [0, 77, 199] {
        let reply = ask_on(&mut wire, &format!("LOOKUP KEY u{at}"));
        assert_eq!(first_text(&reply), values[at], "{reply}");
    }
    for (value, ticket) in &given {
        assert_ne!(reserved(&wire.ask("RESERVE all")).0, *value);
        assert_eq!(
            wire.ask(&format!("RELEASE {ticket}")).text(),
            "OK",
            "{value}"
        );
    }
}

#[test]
fn any_node_answers_and_a_dead_nodes_values_are_taken_over() {
    let rig = Rig::start();
    let nodes = ["n1", "n2", "n3"].map(|name| rig.node(name));
    until_spread(&nodes[0], 3);
    until_spread(&nodes[1], 3);
    until_spread(&nodes[2], 3);
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut given = BTreeMap::new();
    for at in 0..300 {
        let (value, ticket) = reserved(&ask_on(&mut wires[at % 3], "RESERVE all TTL 600000"));
        assert!(given.insert(value, ticket).is_none(), "no value twice");
    }
    // Every node can tell of every value, and change it.
    for (at, (value, ticket)) in given.iter().enumerate() {
        let wire = &mut wires[at % 3];
        let seen = wire.ask(&format!("LOOKUP {value}"));
        assert!(!matches!(seen, Value::Error(_) | Value::Null), "{seen}");
        let reply = wire.ask(&format!("REFRESH {ticket} TTL 600000"));
        assert_eq!(reply.at(0).text(), "ok", "{reply}");
    }
    let [one, two, three] = nodes;
    two.kill();
    let [first, _, third] = wires;
    let mut wires = [first, third];
    until_spread(&one, 2);
    until_spread(&three, 2);
    for (at, (value, ticket)) in given.iter().enumerate() {
        let wire = &mut wires[at % 2];
        let reply = ask_on(wire, &format!("REFRESH {ticket} TTL 600000"));
        assert_eq!(reply.at(0).text(), "ok", "{value}: {reply}");
    }
    for at in 0..300 {
        let wire = &mut wires[at % 2];
        let (value, _) = reserved(&ask_on(wire, "RESERVE all"));
        assert!(!given.contains_key(&value), "{value} is held");
    }
}

#[test]
fn a_node_that_stops_hands_its_partitions_over() {
    let rig = Rig::start();
    let (one, two) = (rig.node("n1"), rig.node("n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let asks = {
        let mut wire = one.connect();
        thread::spawn(move || {
            let mut given = BTreeSet::new();
            for _ in 0..2_000 {
                let reply = ask_on(&mut wire, "RESERVE all TTL 600000");
                assert!(given.insert(reserved(&reply)), "no value twice");
            }
            given
        })
    };
    two.stop();
    let given = asks.join().unwrap();
    until_served(&one);
    let mut wire = one.connect();
    for (value, ticket) in &given {
        let reply = ask_on(&mut wire, &format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{value}");
    }
}

#[test]
fn a_node_that_is_paused_longer_than_its_lease_gives_nothing_out_that_another_has() {
    let rig = Rig::start();
    let (one, two) = (rig.node("n1"), rig.node("n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let mut wires = [one.connect(), two.connect()];
    let mut given = BTreeSet::new();
    for at in 0..100 {
        let wire = &mut wires[at % 2];
        assert!(given.insert(reserved(&ask_on(wire, "RESERVE all TTL 600000")).0));
    }
    signal(two.pid(), Signal::STOP);
    // What waits for it when it goes on.
    wires[1].send("RESERVE all TTL 600000");
    until_spread(&one, 1);
    for _ in 0..100 {
        assert!(given.insert(reserved(&ask_on(&mut wires[0], "RESERVE all TTL 600000")).0));
    }
    signal(two.pid(), Signal::CONT);
    // It may not know where values are, but not say that there are none.
    let reply = wires[1].read();
    if matches!(reply, Value::List(_)) {
        assert!(given.insert(reserved(&reply).0), "{reply}");
    }
    // A connection with answers that are not known is closed.
    wires[1] = two.connect();
    until_spread(&two, 2);
    for at in 0..100 {
        let wire = &mut wires[at % 2];
        assert!(given.insert(reserved(&ask_on(wire, "RESERVE all TTL 600000")).0));
    }
}

#[test]
fn nodes_are_shown_while_they_live() {
    let rig = Rig::start();
    let (one, two) = (rig.node("n1"), rig.node("n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let shown = one.connect().ask("SHOW NODES");
    let names: Vec<_> = shown.parts()[1..]
        .iter()
        .map(|row| (row.at(0).text(), row.at(1).text()))
        .collect();
    let live = |name: &str| (name.to_owned(), "live".to_owned());
    assert_eq!(names, [live("n1"), live("n2")]);
}

#[test]
fn two_nodes_with_one_name_are_not_served() {
    let rig = Rig::start();
    let one = rig.node("n1");
    until_served(&one);
    let said = Server::refuses(&rig.config("n1", 2));
    assert!(said.contains("n1"), "{said}");
    assert_eq!(one.connect().ask("PING").text(), "PONG");
}

/// What a node says of the cluster in INFO.
fn info(wire: &mut Wire) -> BTreeMap<String, String> {
    let text = wire.ask("INFO cluster").text();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn operators_see_hops_takeovers_and_nodes_that_are_lost() {
    let rig = Rig::start();
    let one = Server::with_http(&rig.config("n1", 2));
    // It owns all of them first, and gives away half.
    until_spread(&one, 1);
    let two = rig.node("n2");
    until_spread(&one, 2);
    until_spread(&two, 2);
    let mut wire = one.connect();
    for value in 0..64 {
        ask_on(&mut wire, &format!("LOOKUP {value}"));
    }
    let said = info(&mut wire);
    let count = |name: &str| said[&format!("cluster_{name}")].parse::<u64>().unwrap();
    assert_eq!(said["cluster_enabled"], "1");
    assert_eq!((count("known_nodes"), count("links")), (2, 1), "{said:?}");
    assert_eq!(count("partitions_owned"), 8, "{said:?}");
    assert_eq!(count("hops_0"), 32, "{said:?}");
    assert!(
        count("hops_1") >= 32 && count("hops_2") == 0 && count("moves_out") >= 8,
        "{said:?}"
    );
    assert!(
        count("valid_for_ms") > 0 && count("etcd_quota") > 0,
        "{said:?}"
    );
    let shown = wire.ask("SHOW NODES");
    let column = |name: &str| {
        let heads = shown.at(0).parts();
        let found = heads.iter().position(|head| head.text() == name);
        found.unwrap_or_else(|| panic!("no column {name}: {shown}"))
    };
    let other = shown.at(2);
    assert!(other.at(column("hops_out")).text().parse::<u64>().unwrap() >= 32);
    assert_eq!(shown.at(1).at(column("hops_out")), &Value::Null);
    two.kill();
    until("the other node is missed", || {
        let said = info(&mut wire);
        let is_lost = said
            .get("cluster_lost_nodes")
            .is_some_and(|lost| lost == "n2");
        is_lost && said["cluster_partitions_owned"] == "16"
    });
    let shown = wire.ask("SHOW NODES").to_string();
    assert!(shown.contains("lost"), "{shown}");
    until("the takeover is told", || {
        // Those that were taken at the same moment are told together.
        let events = one.operator().ask("SHOW EVENTS").to_string();
        let told = events.split("takes over ").skip(1);
        let told = told.filter_map(|text| text.split_once(", which n2 had"));
        let counts = told.map(|(what, _)| match what.strip_prefix("partition ") {
            Some(_) => 1,
            None => what
                .split(' ')
                .next()
                .map_or(0, |count| count.parse().unwrap_or(0)),
        });
        counts.sum::<u32>() == 8
    });
    let page = one.get("/metrics");
    for line in [
        "rideau_cluster_partitions{cluster=\"test\",owner=\"this\"} 16",
        "rideau_cluster_lost_nodes{cluster=\"test\"} 1",
        "rideau_node_partitions{node=\"n1\"} 16",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[test]
fn a_node_that_is_drained_owns_nothing_until_it_may_again() {
    let rig = Rig::start();
    let (one, two) = (rig.node("n1"), rig.node("n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let mut operator = one.operator();
    operator
        .ask("NODE.DRAIN n9")
        .is_error("ERR there is no live node \"n9\"");
    assert_eq!(operator.ask("NODE.DRAIN n2").text(), "OK");
    until_spread(&one, 1);
    operator
        .ask("NODE.DRAIN n1")
        .is_error("ERR node n1 is the last");
    // Its clients are served all the same.
    let mut wire = two.connect();
    let (_, ticket) = reserved(&ask_on(&mut wire, "RESERVE all TTL 600000"));
    assert_eq!(ask_on(&mut wire, &format!("RELEASE {ticket}")).text(), "OK");
    assert_eq!(operator.ask("NODE.UNDRAIN n2").text(), "OK");
    until_spread(&one, 2);
    let alone = Server::with("");
    let mut operator = alone.operator();
    operator
        .ask("NODE.DRAIN n1")
        .is_error("ERR this server is not a node of a cluster");
}

/// The keys of a node's certificate, which names this node.
fn certified(rig: &Rig, ca: &Signer, name: &str) -> String {
    let file = |end: &str| rig.folder.join(&format!("{name}.{end}"));
    let papers = papers_for(name, &[name], ca);
    fs::write(file("ca"), ca.pem()).unwrap();
    fs::write(file("pem"), papers.certificate()).unwrap();
    fs::write(file("key"), papers.key()).unwrap();
    fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).unwrap();
    format!(
        "ca = {:?}\ncert = {:?}\nkey = {:?}\n",
        file("ca"),
        file("pem"),
        file("key")
    )
}

#[test]
fn nodes_speak_tls_and_one_with_the_certificate_of_another_is_cut() {
    let rig = Rig::start();
    let ca = authority("nodes");
    let node = |name: &str, certified: &str| {
        let config = rig.config(name, 2);
        Server::with(&config.replace("[range.all]", &format!("{certified}[range.all]")))
    };
    let one = node("n1", &certified(&rig, &ca, "n1"));
    let two = node("n2", &certified(&rig, &ca, "n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let mut wire = one.connect();
    for value in 0..32 {
        let seen = ask_on(&mut wire, &format!("LOOKUP {value}"));
        assert!(!matches!(seen, Value::Error(_)), "{seen}");
    }
    assert!(info(&mut wire)["cluster_hops_out"].parse::<u64>().unwrap() >= 16);
    let three = node("n3", &certified(&rig, &ca, "n9"));
    until("the third node lives", || {
        let shown = three.connect().ask("SHOW NODES");
        shown.parts().len() == 4
    });
    let cut = |wire: &mut Wire| {
        let shown = wire.ask("SHOW NODES");
        let rows = &shown.parts()[1..];
        let states: Vec<_> = rows.iter().map(|row| row.at(1).text()).collect();
        states
    };
    until("it is cut off", || {
        cut(&mut wire) == ["live", "live", "cut"]
    });
    assert_eq!(cut(&mut three.connect()), ["cut", "cut", "live"]);
}
