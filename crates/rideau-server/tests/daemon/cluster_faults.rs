//! Three nodes and three members of etcd, of which one is killed or paused each second while
//! clients use them. What the clients were told is checked against itself.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, RwLock};
use std::thread::sleep;
use std::time::Duration;

use rideau_testing::{Running, Scratch, Signal, signal};

use crate::cluster::{etcd_member, is_healthy, until_served};
use crate::cluster_history::CheckingClients;
use crate::kills::Chance;
use crate::server::{Server, free_port, until};

const NODES: usize = 3;
const MEMBERS: usize = 3;
const CLIENTS: usize = 6;
/// How many faults, one each second.
const FAULTS: u64 = 25;
const SOAK_FAULTS: u64 = 600;

/// All processes.
struct Rig {
    folder: Scratch,
    members: Vec<Running>,
    member_ports: Vec<u16>,
    nodes: Vec<Option<Server>>,
    /// Where clients reach the nodes now.
    addresses: Arc<RwLock<Vec<SocketAddr>>>,
}

impl Rig {
    fn start() -> Self {
        let folder = Scratch::in_memory();
        let secret = folder.join("secret");
        fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let member_ports: Vec<u16> = (0..MEMBERS).map(|_| free_port()).collect();
        let peer_ports: Vec<u16> = (0..MEMBERS).map(|_| free_port()).collect();
        let members = (0..MEMBERS)
            .map(|at| etcd_member(&folder, at, member_ports[at], &peer_ports))
            .collect();
        for port in &member_ports {
            until("etcd is ready", || is_healthy(*port));
        }
        let mut rig = Self {
            folder,
            members,
            member_ports,
            nodes: Vec::new(),
            addresses: Arc::default(),
        };
        for at in 0..NODES {
            let node = rig.node(at);
            rig.addresses.write().unwrap().push(node.address());
            rig.nodes.push(Some(node));
        }
        rig
    }

    fn node(&self, at: usize) -> Server {
        let urls: Vec<_> = self
            .member_ports
            .iter()
            .map(|port| format!("\"http://127.0.0.1:{port}\""))
            .collect();
        let (secret, store) = (
            self.folder.join("secret"),
            self.folder.join(&format!("n{at}")),
        );
        Server::with(&format!(
            "drain = \"1s\"\n[cluster]\nname = \"faults\"\nnode = \"n{at}\"\netcd = [{}]\n\
             listen = \"127.0.0.1:{}\"\nsecret_file = {secret:?}\npartitions = 16\n\
             lease = \"3s\"\n[store]\npath = {store:?}\n\
             [range.all]\nvalues = [\"0-49999\"]\n[lock.\"*\"]\n",
            urls.join(", "),
            free_port(),
        ))
    }

    /// Let one thing happen, and end it after a while.
    fn fail(&mut self, chance: &mut Chance) -> &'static str {
        let at = chance.below(NODES as u64) as usize;
        let pause = Duration::from_millis(200 + chance.below(6_000));
        match chance.below(6) {
            0 | 1 => {
                if let Some(node) = self.nodes[at].take() {
                    node.kill();
                }
                self.restart(at);
                "a node is killed"
            }
            2 | 3 => {
                let node = self.nodes[at].as_ref().expect("it was started again");
                paused(node.pid(), pause);
                "a node is paused"
            }
            4 => {
                let member = &self.members[at];
                paused(member.id(), pause.min(Duration::from_secs(3)));
                "a member of etcd is paused"
            }
            _ => {
                if let Some(node) = self.nodes[at].take() {
                    node.stop();
                }
                self.restart(at);
                "a node is replaced"
            }
        }
    }

    fn restart(&mut self, at: usize) {
        let node = self.node(at);
        self.addresses.write().unwrap()[at] = node.address();
        self.nodes[at] = Some(node);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.nodes.clear();
        self.members.iter_mut().for_each(Running::end);
    }
}

/// Pause a process in the background for as long.
fn paused(pid: u32, pause: Duration) {
    signal(pid, Signal::STOP);
    sleep(pause);
    signal(pid, Signal::CONT);
}

#[test]
fn nothing_is_given_twice_or_lost_while_nodes_and_members_of_etcd_fail() {
    let faults = match env::var_os("RIDEAU_SOAK") {
        Some(_) => SOAK_FAULTS,
        None => FAULTS,
    };
    let mut rig = Rig::start();
    rig.nodes.iter().flatten().for_each(until_served);
    let clients = CheckingClients::start(CLIENTS, &rig.addresses);
    let mut chance = Chance(u64::from(std::process::id()));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..faults {
        sleep(Duration::from_secs(1));
        *kinds.entry(rig.fail(&mut chance)).or_default() += 1;
        clients.check();
    }
    rig.nodes.iter().flatten().for_each(until_served);
    clients.until_served(100);
    let did = clients.end(&mut rig.nodes[0].as_ref().unwrap().connect());
    println!("{kinds:?}; {did}");
}
