//! Nodes of a cluster that are cut from etcd, from each other, or from all of it. What their
//! clients see is what `docs/cluster.md` says, and what they were told is checked meanwhile.

use std::env;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, RwLock};
use std::thread::sleep;
use std::time::Duration;

use rideau_testing::{Running, Scratch};

use crate::cluster::{ask_on, etcd_member_of, is_healthy_at, until_served, until_spread};
use crate::cluster_history::CheckingClients;
use crate::cluster_locks::{granted, keys_of, until_locked};
use crate::kills::Chance;
use crate::networks::{Cut, Network, in_own_network};
use crate::server::{Server, free_port, until};
use crate::wire::{Value, Wire};

const CLIENTS: usize = 6;
const CUTS: usize = 4;
const SOAK_CUTS: usize = 200;

/// Three nodes and an etcd, each on a machine of its own. Processes end before machines.
struct CutRig {
    nodes: Vec<Server>,
    _etcd: Running,
    networks: Vec<Network>,
    _folder: Scratch,
}

impl CutRig {
    fn start() -> Self {
        let folder = Scratch::in_memory();
        let networks: Vec<_> = (0..4).map(Network::new).collect();
        let (port, at_etcd) = (free_port(), &networks[3]);
        let etcd = (at_etcd.command("etcd"), at_etcd.host());
        let etcd = etcd_member_of(etcd, &folder, 0, port, &[free_port()]);
        let address = SocketAddr::from((at_etcd.host(), port));
        until("etcd is ready", || is_healthy_at(address));
        let secret = folder.join("secret");
        fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let node = |at: usize| {
            let store = folder.join(&format!("n{}", at + 1));
            let config = format!(
                "insecure = \"yes, anyone may\"\ndrain = \"1s\"\n\
                 [cluster]\nname = \"cuts\"\nnode = \"n{}\"\netcd = [\"http://{address}\"]\n\
                 listen = \"{}:{}\"\nplain = true\nsecret_file = {secret:?}\npartitions = 16\n\
                 lease = \"3s\"\n[store]\npath = {store:?}\n\
                 [range.all]\nvalues = [\"0-49999\"]\n[lock.\"*\"]\n",
                at + 1,
                networks[at].host(),
                free_port(),
            );
            Server::within(&networks[at], &config)
        };
        let nodes: Vec<_> = (0..3).map(node).collect();
        nodes.iter().for_each(|node| until_spread(node, 3));
        Self {
            nodes,
            _etcd: etcd,
            networks,
            _folder: folder,
        }
    }

    fn clients(&self) -> CheckingClients {
        let addresses: Vec<_> = self.nodes.iter().map(Server::address).collect();
        CheckingClients::start(CLIENTS, &Arc::new(RwLock::new(addresses)))
    }

    /// Cut a machine from others, both ways.
    fn cut(&self, at: usize, others: &[usize]) -> Vec<Cut> {
        let networks = &self.networks;
        let cuts = others
            .iter()
            .flat_map(|other| networks[at].cut_both(&networks[*other]));
        cuts.collect()
    }

    /// The network is whole again: the clients are served, and all that they were given is
    /// there.
    fn end(self, clients: CheckingClients) {
        self.nodes.iter().for_each(until_served);
        clients.until_served(100);
        println!("{}", clients.end(&mut self.nodes[0].connect()));
    }
}

/// What a node thinks of each node, by their names.
fn states(server: &Server) -> Vec<String> {
    let shown = server.connect().ask("SHOW NODES");
    let rows = shown.parts()[1..].iter();
    rows.map(|row| row.at(1).text()).collect()
}

fn until_linked(rig: &CutRig) {
    for node in &rig.nodes {
        until("all nodes are linked", || {
            states(node) == ["live", "live", "live"]
        });
    }
}

/// The owner of each partition, and its epoch.
fn owners(server: &Server) -> Vec<[String; 3]> {
    let shown = server.connect().ask("SHOW PARTITIONS");
    let heads = shown.at(0).parts();
    let epoch = heads.iter().position(|head| head.text() == "epoch");
    let epoch = epoch.unwrap_or_else(|| panic!("no epochs: {shown}"));
    let rows = shown.parts()[1..].iter();
    rows.map(|row| [0, 2, epoch].map(|at| row.at(at).text()))
        .collect()
}

/// The ticket and fence of a lock that is free.
fn locked(server: &Server, wire: &mut Wire, key: &str) -> (String, i64) {
    let reply = ask_on(wire, &format!("LOCK {key}"));
    granted(&reply).unwrap_or_else(|| panic!("{key} at {}: {reply}", server.address()))
}

fn released(wire: &mut Wire, ticket: &str) {
    let reply = ask_on(wire, &format!("RELEASE {ticket}"));
    assert_eq!(reply.text(), "OK", "{ticket}: {reply}");
}

/// The first node loses etcd, and these nodes too. Others take over what it owned, and only
/// its own clients lose what they had.
fn cut_from_etcd(others: &[usize]) {
    let rig = CutRig::start();
    let clients = rig.clients();
    let [one, two, three] = [0, 1, 2].map(|at| &rig.nodes[at]);
    let keys = keys_of(one, "n1", 3);
    let far = keys_of(one, "n2", 1).remove(0);
    let (mut direct, mut behind, mut other) = (one.connect3(), two.connect3(), three.connect());
    let (lost, lost_fence) = locked(one, &mut direct, &keys[0]);
    let (_, far_fence) = locked(one, &mut direct, &far);
    let (kept, _) = locked(two, &mut behind, &keys[1]);
    let (ticket, fence) = locked(three, &mut other, &keys[2]);
    released(&mut other, &ticket);

    let mut cuts = rig.cut(0, others);
    cuts.extend(rig.networks[0].cut_both(&rig.networks[3]));
    assert_eq!(direct.push().word(), "rideau:unsure");
    // From then on it grants nothing to anyone.
    let mut cut = one.connect();
    for key in [&keys[2], &far, "any", "other"] {
        cut.ask(&format!("LOCK {key}")).is_error("CLUSTERDOWN");
    }
    cut.ask("RESERVE all").is_error("CLUSTERDOWN");
    assert_eq!(cut.ask("SURE").int(), 0);
    assert_eq!(cut.ask("PING").text(), "PONG");
    for (key, before) in [(&keys[2], fence), (&keys[0], lost_fence), (&far, far_fence)] {
        let (ticket, next) = until_locked(&mut other, key);
        assert!(next > before, "{key}: {next} follows {before}");
        released(&mut other, &ticket);
    }
    let reply = ask_on(&mut other, &format!("LOCK {}", keys[1]));
    assert_eq!(granted(&reply), None, "{reply}");
    cut.ask(&format!("LOCK {}", keys[2]))
        .is_error("CLUSTERDOWN");
    clients.check();

    drop(cuts);
    // Its client is told what it lost, and then the connection is closed.
    while direct.try_read().is_ok() {}
    let told = |push: &Value| push.word() == "rideau:lost" && push.at(1).text() == lost;
    assert!(direct.pushes.iter().any(told), "{:?}", direct.pushes);
    rig.nodes.iter().for_each(|node| until_spread(node, 3));
    let mut again = one.connect();
    ask_on(&mut again, &format!("RELEASE {lost}")).is_error("STALE");
    let reply = ask_on(&mut again, &format!("LOCK {}", keys[1]));
    assert_eq!(granted(&reply), None, "{reply}");
    released(&mut behind, &kept);
    until_locked(&mut again, &keys[1]);
    rig.end(clients);
}

#[test]
fn a_node_that_is_cut_from_etcd_grants_nothing_and_loses_only_what_its_own_clients_hold() {
    let name = "cluster_cuts::\
        a_node_that_is_cut_from_etcd_grants_nothing_and_loses_only_what_its_own_clients_hold";
    in_own_network(name, || cut_from_etcd(&[]));
}

#[test]
fn a_node_that_is_cut_from_everything_loses_only_what_its_own_clients_hold() {
    let name = "cluster_cuts::\
        a_node_that_is_cut_from_everything_loses_only_what_its_own_clients_hold";
    in_own_network(name, || cut_from_etcd(&[1, 2]));
}

/// The first node loses the others, and nothing else.
fn cut_from_peers() {
    let rig = CutRig::start();
    let clients = rig.clients();
    let [one, two, three] = [0, 1, 2].map(|at| &rig.nodes[at]);
    let keys = keys_of(one, "n1", 4);
    let far = keys_of(one, "n3", 2);
    let (mut direct, mut behind) = (one.connect(), two.connect());
    let (own, _) = locked(one, &mut direct, &keys[0]);
    let (of_far, _) = locked(one, &mut direct, &far[0]);
    let (kept, _) = locked(two, &mut behind, &keys[1]);
    until_linked(&rig);
    let before = owners(three);

    let cuts = rig.cut(0, &[1, 2]);
    until("the nodes miss each other", || {
        states(one) == ["live", "cut", "cut"]
            && states(two) == ["cut", "live", "live"]
            && states(three) == ["cut", "live", "live"]
    });
    let mut wires = [one.connect(), two.connect(), three.connect()];
    let (ticket, _) = locked(one, &mut wires[0], &keys[2]);
    released(&mut wires[0], &ticket);
    let (ticket, _) = locked(two, &mut wires[1], &far[1]);
    released(&mut wires[1], &ticket);
    for wire in &mut wires[1..] {
        let reply = wire.ask(&format!("LOCK {}", keys[3]));
        reply.is_error("CLUSTERDOWN");
        assert!(reply.text().contains("nothing is held"), "{reply}");
    }
    wires[0]
        .ask(&format!("LOCK {}", far[1]))
        .is_error("CLUSTERDOWN");
    assert!(wires[0].ask("SURE").int() > 0);
    assert_eq!(wires[0].ask("RESERVE all").word(), "go");
    clients.check();

    drop(cuts);
    until_linked(&rig);
    assert_eq!(owners(three), before, "no partition has a new owner");
    released(&mut direct, &own);
    released(&mut direct, &of_far);
    released(&mut behind, &kept);
    for key in keys.iter().chain(&far) {
        let (ticket, _) = until_locked(&mut wires[1], key);
        released(&mut wires[1], &ticket);
    }
    rig.end(clients);
}

#[test]
fn a_node_that_is_cut_from_its_peers_serves_its_own_clients_and_nothing_is_lost() {
    let name = "cluster_cuts::\
        a_node_that_is_cut_from_its_peers_serves_its_own_clients_and_nothing_is_lost";
    in_own_network(name, cut_from_peers);
}

/// What one node sends to another is lost, and not what that one sends.
fn one_way() {
    let rig = CutRig::start();
    let clients = rig.clients();
    for (from, to) in [(0, 1), (1, 0)] {
        let [one, two] = [0, 1].map(|at| &rig.nodes[at]);
        let (keys, far) = (keys_of(one, "n2", 3), keys_of(one, "n1", 1).remove(0));
        let (mut holder, mut other) = (one.connect(), two.connect());
        let (kept, _) = locked(one, &mut holder, &keys[0]);
        let (of_other, _) = locked(two, &mut other, &far);
        until_linked(&rig);
        let before = owners(two);

        let cut = rig.networks[from].cut_to(&rig.networks[to]);
        // Its answer, or the ask itself, is on the way when the link is given up.
        let mut asking = one.connect();
        let reply = asking.ask(&format!("LOCK {} WAIT 20000", keys[1]));
        reply.is_error("CLUSTERDOWN");
        assert!(reply.text().contains("nothing is held"), "{reply}");
        until("both miss each other", || {
            states(one) == ["live", "cut", "live"] && states(two) == ["cut", "live", "live"]
        });
        asking
            .ask(&format!("LOCK {}", keys[2]))
            .is_error("CLUSTERDOWN");
        // Another node reaches both.
        let mut third = rig.nodes[2].connect();
        for key in [&keys[0], &far] {
            let reply = ask_on(&mut third, &format!("LOCK {key}"));
            assert_eq!(granted(&reply), None, "{key} is held: {reply}");
        }
        clients.check();

        drop(cut);
        until_linked(&rig);
        assert_eq!(owners(two), before, "no partition has a new owner");
        for key in &keys[1..] {
            let (ticket, _) = until_locked(&mut third, key);
            released(&mut third, &ticket);
        }
        released(&mut holder, &kept);
        released(&mut other, &of_other);
    }
    rig.end(clients);
}

#[test]
fn a_link_that_works_one_way_is_given_up_and_what_was_asked_on_it_is_not_held() {
    let name = "cluster_cuts::\
        a_link_that_works_one_way_is_given_up_and_what_was_asked_on_it_is_not_held";
    in_own_network(name, one_way);
}

/// Whatever is cut, at any moment.
fn random_cuts() {
    let rig = CutRig::start();
    let clients = rig.clients();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut chance = Chance(seed);
    let count = match env::var_os("RIDEAU_SOAK") {
        Some(_) => SOAK_CUTS,
        None => CUTS,
    };
    for _ in 0..count {
        let mut cuts = Vec::new();
        for from in &rig.networks {
            for to in &rig.networks {
                if from.host() != to.host() && chance.below(4) == 0 {
                    cuts.push(from.cut_to(to));
                }
            }
        }
        sleep(Duration::from_millis(200 + chance.below(5_000)));
        drop(cuts);
        clients.check();
        sleep(Duration::from_millis(chance.below(4_000)));
    }
    rig.end(clients);
}

#[test]
fn nothing_is_given_twice_or_lost_while_the_network_is_cut_here_and_there() {
    let name = "cluster_cuts::\
        nothing_is_given_twice_or_lost_while_the_network_is_cut_here_and_there";
    in_own_network(name, random_cuts);
}
