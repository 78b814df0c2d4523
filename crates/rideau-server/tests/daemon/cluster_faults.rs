//! Three nodes and three members of etcd, of which one is killed or paused each second while
//! clients use them. What the clients were told is checked against itself.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use rideau_testing::{Running, Scratch, Signal, signal};

use crate::cluster::{ask_on, etcd_member, is_healthy, reserved, until_served};
use crate::kills::Chance;
use crate::server::{Server, free_port, until};
use crate::wire::{Value, Wire};

const NODES: usize = 3;
const MEMBERS: usize = 3;
const CLIENTS: usize = 6;
const KEYS: u64 = 6;
/// How many faults, one each second.
const FAULTS: u64 = 25;
const SOAK_FAULTS: u64 = 600;
/// A client gives an answer up after this long.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// All processes.
struct Rig {
    folder: Scratch,
    members: Vec<Running>,
    member_ports: Vec<u16>,
    nodes: Vec<Option<Server>>,
    /// Where clients reach the nodes now.
    addresses: Arc<RwLock<Vec<SocketAddr>>>,
}

/// What clients were told, and what follows from it.
#[derive(Default)]
struct History {
    /// Values that have a holder for certain, with fence and ticket.
    values: Mutex<BTreeMap<String, (i64, String)>>,
    locks: Mutex<BTreeMap<String, KeyHistory>>,
    reserved: AtomicUsize,
    locked: AtomicUsize,
    down: AtomicUsize,
    broken: AtomicUsize,
}

/// What is known of a key.
#[derive(Default)]
struct KeyHistory {
    /// The highest fence that a client was told.
    fence: i64,
    /// Who may use it, and until when by what the node vouched for.
    user: Option<(usize, Instant)>,
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

/// A client that goes from node to node.
struct Client {
    number: usize,
    chance: Chance,
    history: Arc<History>,
    addresses: Arc<RwLock<Vec<SocketAddr>>>,
    wire: Option<Wire>,
}

impl Client {
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let done = match self.chance.below(3) {
                0 => self.use_value(),
                1 => self.give_back(),
                _ => self.use_lock(),
            };
            if done.is_err() {
                self.history.broken.fetch_add(1, Ordering::Relaxed);
                self.wire = None;
                sleep(Duration::from_millis(20));
            }
        }
    }

    fn ask(&mut self, line: &str) -> io::Result<Value> {
        if self.wire.is_none() {
            let addresses = self.addresses.read().unwrap();
            let at = self.chance.below(addresses.len() as u64) as usize;
            let wire = Wire::connect(addresses[at])?;
            wire.set_read_timeout(ANSWER_MAX);
            self.wire = Some(wire);
        }
        let wire = self.wire.as_mut().expect("it was just made");
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        wire.try_write(&crate::wire::request(&words))?;
        let reply = wire.try_read()?;
        if let Value::Error(text) = &reply {
            let known = ["CLUSTERDOWN", "UNKNOWN", "READONLY", "STALE", "BUSY"];
            assert!(
                known.iter().any(|word| text.starts_with(word)),
                "{line}: {text}"
            );
            self.history.down.fetch_add(1, Ordering::Relaxed);
            // Another node may know more.
            if !text.starts_with("STALE") {
                return Err(io::Error::other(text.clone()));
            }
        }
        Ok(reply)
    }

    fn use_value(&mut self) -> io::Result<()> {
        let reply = self.ask("RESERVE all TTL 600000")?;
        let (value, ticket) = reserved(&reply);
        let fence = reply.at(6).int();
        let mut values = self.history.values.lock().unwrap();
        let before = values.insert(value.clone(), (fence, ticket));
        assert_eq!(before, None, "{value} has a holder already: {reply}");
        self.history.reserved.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Release a value of any client, by its ticket, at any node.
    fn give_back(&mut self) -> io::Result<()> {
        let (value, ticket) = {
            let mut values = self.history.values.lock().unwrap();
            if values.len() < 200 {
                return Ok(());
            }
            // From here on it may have no holder.
            let at = self.chance.below(values.len() as u64) as usize;
            let value = values.keys().nth(at).cloned().expect("there are so many");
            let (_, ticket) = values.remove(&value).expect("it was just seen");
            (value, ticket)
        };
        let reply = self.ask(&format!("RELEASE {ticket}"))?;
        assert_eq!(reply.text(), "OK", "{value} was acknowledged, and is gone");
        Ok(())
    }

    fn use_lock(&mut self) -> io::Result<()> {
        let key = format!("key{}", self.chance.below(KEYS));
        let told = {
            let mut locks = self.history.locks.lock().unwrap();
            locks.entry(key.clone()).or_default().fence
        };
        let reply = self.ask(&format!("LOCK {key} WAIT 500"))?;
        if reply.word() != "go" {
            return Ok(());
        }
        let (ticket, fence) = (reply.at(1).text(), reply.at(4).int());
        assert!(fence > told, "{key}: fence {fence} after {told}");
        let sent = Instant::now();
        let sure = self.ask("SURE")?;
        let until = match sure {
            Value::Int(millis) => sent + Duration::from_millis(millis.max(0).unsigned_abs()),
            other => panic!("{other}"),
        };
        self.enter(&key, fence, until);
        sleep(Duration::from_millis(self.chance.below(30)));
        {
            let mut locks = self.history.locks.lock().unwrap();
            let known = locks.get_mut(&key).expect("it was entered");
            if known.user.is_some_and(|(user, _)| user == self.number) {
                known.user = None;
            }
        }
        // A lease that was lost is told as stale.
        self.ask(&format!("RELEASE {ticket}")).map(drop)
    }

    /// Use what the lock protects, for as long as the node vouches for it.
    fn enter(&self, key: &str, fence: i64, until: Instant) {
        let mut locks = self.history.locks.lock().unwrap();
        let known = locks.entry(key.to_owned()).or_default();
        let now = Instant::now();
        if now >= until {
            return;
        }
        if let Some((other, theirs)) = known.user {
            let left = theirs.saturating_duration_since(now);
            assert!(
                left.is_zero(),
                "{key}: {other} may use it for {left:?} more"
            );
        }
        assert!(
            fence > known.fence,
            "{key}: fence {fence} after {}",
            known.fence
        );
        known.fence = fence;
        known.user = Some((self.number, until));
        self.history.locked.fetch_add(1, Ordering::Relaxed);
    }
}

fn clients(rig: &Rig, history: &Arc<History>, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let client = |number: usize| {
        let client = Client {
            number,
            chance: Chance(number as u64 + 1),
            history: Arc::clone(history),
            addresses: Arc::clone(&rig.addresses),
            wire: None,
        };
        let stop = Arc::clone(stop);
        thread::spawn(move || client.run(&stop))
    };
    (0..CLIENTS).map(client).collect()
}

#[test]
fn nothing_is_given_twice_or_lost_while_nodes_and_members_of_etcd_fail() {
    let faults = match env::var_os("RIDEAU_SOAK") {
        Some(_) => SOAK_FAULTS,
        None => FAULTS,
    };
    let mut rig = Rig::start();
    rig.nodes.iter().flatten().for_each(until_served);
    let (history, stop) = (Arc::<History>::default(), Arc::<AtomicBool>::default());
    let clients = clients(&rig, &history, &stop);
    let mut chance = Chance(u64::from(std::process::id()));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..faults {
        sleep(Duration::from_secs(1));
        *kinds.entry(rig.fail(&mut chance)).or_default() += 1;
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client has failed"
        );
    }
    rig.nodes.iter().flatten().for_each(until_served);
    let served = history.reserved.load(Ordering::Relaxed);
    until("clients are served again", || {
        history.reserved.load(Ordering::Relaxed) > served + 100
    });
    stop.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    let values = std::mem::take(&mut *history.values.lock().unwrap());
    let mut wire = rig.nodes[0].as_ref().unwrap().connect();
    for (value, (fence, ticket)) in &values {
        let reply = ask_on(&mut wire, &format!("REFRESH {ticket} TTL 600000"));
        assert_eq!(
            reply.at(0).text(),
            "ok",
            "{value} of fence {fence}: {reply}"
        );
    }
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    println!(
        "{kinds:?}; {} values reserved, {} held at the end, {} locks used; {} commands refused, \
         {} connections broken",
        count(&history.reserved),
        values.len(),
        count(&history.locked),
        count(&history.down),
        count(&history.broken),
    );
    assert!(count(&history.locked) > 0 && values.len() > 100);
}
