//! Locks that several servers share through a real etcd: nodes come, go, sleep and die.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rideau_core::cluster::Partitions;
use rideau_testing::{Signal, signal};

use crate::cluster::{Rig, ask_on, until_spread};
use crate::server::{Server, until};
use crate::wire::{Value, Wire};

/// Three nodes, each with its share of the partitions.
fn three(rig: &Rig) -> [Server; 3] {
    let nodes = ["n1", "n2", "n3"].map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, 3));
    nodes
}

/// Keys that a node owns, as another one sees it.
pub(crate) fn keys_of(server: &Server, owner: &str, count: usize) -> Vec<String> {
    let shown = server.connect().ask("SHOW PARTITIONS");
    let rows = shown.parts()[1..].iter();
    let owned = rows.filter(|row| row.at(2) != &Value::Null && row.at(2).text() == owner);
    let owned: Vec<u32> = owned.map(|row| row.at(0).text().parse().unwrap()).collect();
    let partitions = Partitions::new(16, 0).unwrap();
    let keys = (0..).map(|number| format!("key-{number}"));
    keys.filter(|key| owned.contains(&partitions.of_name(key.as_bytes())))
        .take(count)
        .collect()
}

/// The ticket and the fence of a lock, if it was granted.
pub(crate) fn granted(reply: &Value) -> Option<(String, i64)> {
    let is_go = matches!(reply, Value::List(_)) && reply.word() == "go";
    is_go.then(|| (reply.ticket(), reply.at(4).int()))
}

/// Ask for a lock until it is granted.
pub(crate) fn until_locked(wire: &mut Wire, key: &str) -> (String, i64) {
    let mut found = None;
    until("the lock is granted", || {
        found = granted(&wire.ask(&format!("LOCK {key}")));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn any_node_gives_a_lock_and_no_other_node_gives_it_meanwhile() {
    let rig = Rig::start();
    let nodes = three(&rig);
    let mut wires = nodes.each_ref().map(Server::connect);
    for (at, owner) in ["n1", "n2", "n3"].iter().enumerate() {
        let key = keys_of(&nodes[0], owner, 1).remove(0);
        let (holder, other, third) = (at, (at + 1) % 3, (at + 2) % 3);
        let reply = ask_on(&mut wires[holder], &format!("LOCK {key}"));
        let (ticket, fence) = granted(&reply).unwrap();
        for wire in &mut wires {
            let reply = wire.ask(&format!("LOCK {key}"));
            assert_eq!(granted(&reply), None, "{reply}");
            let stat = wire.ask(&format!("LOCK.STAT {key}"));
            assert_eq!(stat.field("held").int(), 1, "{stat}");
        }
        // One waits at each other node, and gets it in turn.
        wires[other].send(&format!("LOCK {key} WAIT 30000"));
        nodes[other].until_waiting(1);
        assert_eq!(wires[holder].ask(&format!("UNLOCK {key}")).text(), "OK");
        let reply = wires[other].read();
        let (next, larger) = granted(&reply).unwrap();
        assert!(larger > fence, "{larger} follows {fence}");
        wires[holder]
            .ask(&format!("RELEASE {ticket}"))
            .is_error("STALE");
        // Another node gives back what this one took.
        let reply = wires[third].ask(&format!("RELEASE {next}"));
        assert_eq!(reply.text(), "OK", "{reply}");
        wires[other]
            .ask(&format!("UNLOCK {key}"))
            .is_error("NOTHELD");
        // A connection that is closed has nothing any more, and waits for nothing.
        let mut short = nodes[third].connect();
        let (_, last) = until_locked(&mut short, &key);
        assert!(last > larger);
        let mut waiting = nodes[other].connect();
        waiting.send(&format!("LOCK {key} WAIT 30000"));
        nodes[other].until_waiting(1);
        drop(waiting);
        nodes[other].until_waiting(0);
        drop(short);
        until_locked(&mut wires[holder], &key);
        assert!(wires[holder].ask("SURE").int() >= 0);
    }
}

/// Clients that lock one key, and see that they are alone.
struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<usize>>,
}

impl Crowd {
    fn start(servers: &[&Server], key: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let inside = Arc::new(AtomicUsize::new(0));
        let last = Arc::new(AtomicU64::new(0));
        let servers = servers.iter().flat_map(|server| [*server; 2]);
        let threads = servers.map(|server| {
            let (mut wire, key) = (server.connect(), key.to_owned());
            let (stop, inside, last) = (Arc::clone(&stop), Arc::clone(&inside), Arc::clone(&last));
            thread::spawn(move || {
                let mut turns = 0;
                while !stop.load(Ordering::Relaxed) {
                    let reply = ask_on(&mut wire, &format!("LOCK {key} WAIT 30000"));
                    let Some((_, fence)) = granted(&reply) else {
                        panic!("{reply}");
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "it is alone");
                    let before = last.swap(fence as u64, Ordering::SeqCst);
                    assert!(before < fence as u64, "{fence} follows {before}");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(wire.ask(&format!("UNLOCK {key}")).text(), "OK");
                    turns += 1;
                }
                turns
            })
        });
        let threads = threads.collect();
        Self { stop, threads }
    }

    /// How often each client had the lock.
    fn end(self) -> Vec<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    }
}

#[test]
fn clients_of_three_nodes_have_a_lock_one_after_the_other() {
    let rig = Rig::start();
    let nodes = three(&rig);
    let crowd = Crowd::start(&nodes.each_ref(), "hot");
    let mut wire = nodes[0].connect();
    // They go on until others had their turns, too.
    let (_, first) = granted(&wire.ask("LOCK hot WAIT 30000")).unwrap();
    assert_eq!(wire.ask("UNLOCK hot").text(), "OK");
    until("they had many turns", || {
        let (_, now) = granted(&wire.ask("LOCK hot WAIT 30000")).unwrap();
        assert_eq!(wire.ask("UNLOCK hot").text(), "OK");
        now > first + 300
    });
    let turns = crowd.end();
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
}

#[test]
fn a_killed_owner_takes_no_lock_along_but_those_of_its_own_clients() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig);
    let keys = keys_of(&one, "n2", 12);
    let mut holders = [one.connect(), three.connect()];
    let held: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let reply = ask_on(&mut holders[at % 2], &format!("LOCK {key}"));
            granted(&reply).unwrap()
        })
        .collect();
    // A client of the node that will be killed has a lock of another.
    let far = keys_of(&one, "n1", 1).remove(0);
    let mut lost = two.connect();
    let (_, far_fence) = granted(&ask_on(&mut lost, &format!("LOCK {far}"))).unwrap();
    // One waits for a lock of it, behind another node.
    let mut waiting = three.connect();
    waiting.send(&format!("LOCK {} WAIT 30000", keys[0]));
    three.until_waiting(1);
    two.kill();
    let mut others = [three.connect(), one.connect()];
    // At no moment is one of them given to another client.
    let mut is_over = false;
    until("the partitions are taken over", || {
        is_over = true;
        for (at, key) in keys.iter().enumerate() {
            let reply = others[at % 2].ask(&format!("LOCK {key}"));
            assert_eq!(granted(&reply), None, "{key}: {reply}");
            is_over &= !matches!(reply, Value::Error(_));
        }
        is_over
    });
    until_spread(&one, 2);
    until_spread(&three, 2);
    let (_, next) = until_locked(&mut others[1], &far);
    assert!(next > far_fence, "{next} follows {far_fence}");
    // The link broke while it waited. It was told so, or goes on waiting.
    let mut reply = None;
    for (at, (ticket, fence)) in held.iter().enumerate() {
        let released = holders[at % 2].ask(&format!("RELEASE {ticket}"));
        assert_eq!(released.text(), "OK", "{released}");
        if at == 0 {
            let told = waiting.read();
            if granted(&told).is_some() {
                let unlocked = waiting.ask(&format!("UNLOCK {}", keys[0]));
                assert_eq!(unlocked.text(), "OK");
            } else {
                told.is_error("CLUSTERDOWN");
            }
            reply = Some(told);
        }
        let (_, next) = until_locked(&mut others[at % 2], &keys[at]);
        assert!(next > *fence, "{next} follows {fence}");
    }
    assert!(reply.is_some());
}

#[test]
fn the_locks_of_a_killed_entry_node_are_free_when_its_lease_has_run_out() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig);
    let mut lost = two.connect();
    let keys: Vec<_> = ["n1", "n2", "n3"]
        .iter()
        .flat_map(|owner| keys_of(&one, owner, 3))
        .collect();
    let held: Vec<_> = keys
        .iter()
        .map(|key| {
            granted(&ask_on(&mut lost, &format!("LOCK {key}")))
                .unwrap()
                .1
        })
        .collect();
    two.kill();
    let mut wires = [one.connect(), three.connect()];
    for (at, key) in keys.iter().enumerate() {
        let (_, next) = until_locked(&mut wires[at % 2], key);
        assert!(next > held[at], "{key}: {next} follows {}", held[at]);
    }
}

#[test]
fn an_owner_that_sleeps_longer_than_its_lease_wakes_up_without_it() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig);
    let keys = keys_of(&one, "n2", 2);
    // One is held behind another node, one at the node that sleeps.
    let mut keeps = one.connect();
    let (kept, _) = granted(&ask_on(&mut keeps, &format!("LOCK {}", keys[0]))).unwrap();
    let mut sleeps = two.connect3();
    let (lost, fence) = granted(&ask_on(&mut sleeps, &format!("LOCK {}", keys[1]))).unwrap();
    signal(two.pid(), Signal::STOP);
    sleeps.send(&format!("LOCK {} WAIT 100", keys[0]));
    let mut other = three.connect();
    let (_, next) = until_locked(&mut other, &keys[1]);
    assert!(next > fence, "{next} follows {fence}");
    let reply = ask_on(&mut other, &format!("LOCK {}", keys[0]));
    assert_eq!(granted(&reply), None, "{reply}");
    signal(two.pid(), Signal::CONT);
    // It says that the lock is lost, or closes the connection; it gives nothing.
    while let Ok(reply) = sleeps.try_read() {
        assert_eq!(granted(&reply), None, "{reply}");
    }
    until_spread(&two, 3);
    let mut again = two.connect();
    let reply = ask_on(&mut again, &format!("RELEASE {lost}"));
    reply.is_error("STALE");
    for key in &keys {
        let reply = ask_on(&mut again, &format!("LOCK {key}"));
        assert_eq!(granted(&reply), None, "{reply}");
    }
    assert_eq!(keeps.ask(&format!("RELEASE {kept}")).text(), "OK");
    until_locked(&mut again, &keys[0]);
}

#[test]
fn a_node_that_stops_under_load_leaves_locks_as_they_are() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig);
    let keys = keys_of(&one, "n2", 4);
    let mut holder = three.connect();
    let held: Vec<_> = keys[1..]
        .iter()
        .map(|key| granted(&ask_on(&mut holder, &format!("LOCK {key}"))).unwrap())
        .collect();
    let crowd = Crowd::start(&[&one, &three], &keys[0]);
    // A client of the node that stops has time to finish.
    let far = keys_of(&one, "n1", 1).remove(0);
    let finishing = Mutex::new(two.connect());
    let (ticket, _) = granted(&ask_on(
        &mut finishing.lock().unwrap(),
        &format!("LOCK {far}"),
    ))
    .unwrap();
    two.ask_to_stop();
    let mut other = one.connect();
    let reply = other.ask(&format!("LOCK {far}"));
    assert_eq!(granted(&reply), None, "{reply}");
    let mut finishing = finishing.into_inner().unwrap();
    let reply = finishing.ask(&format!("RELEASE {ticket}"));
    assert_eq!(reply.text(), "OK", "{reply}");
    until_locked(&mut other, &far);
    let mut two = two;
    assert!(two.ended().success(), "{}", two.said());
    until_spread(&one, 2);
    for (at, (ticket, fence)) in held.iter().enumerate() {
        let key = &keys[at + 1];
        let reply = ask_on(&mut other, &format!("LOCK {key}"));
        assert_eq!(granted(&reply), None, "{key}: {reply}");
        let reply = holder.ask(&format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{reply}");
        let (_, next) = until_locked(&mut other, key);
        assert!(next > *fence, "{next} follows {fence}");
    }
    let turns = crowd.end();
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
}

#[test]
fn a_session_is_used_from_any_node_and_ends_as_one() {
    let rig = Rig::start();
    let nodes = three(&rig);
    let mut wires = nodes.each_ref().map(Server::connect);
    let session = wires[0].ask("SESSION OPEN TTL 600000").at(0).text();
    for wire in &mut wires[1..] {
        let attached = ask_on(wire, &format!("SESSION ATTACH {session}"));
        assert_eq!(attached.text(), "OK", "{attached}");
    }
    // What one connection of it takes, another gives back.
    for (at, owner) in ["n1", "n2", "n3"].iter().enumerate() {
        let key = keys_of(&nodes[0], owner, 1).remove(0);
        let reply = ask_on(&mut wires[at], &format!("LOCK {key}"));
        assert!(granted(&reply).is_some(), "{reply}");
        let held = wires[(at + 2) % 3].ask("HELD");
        assert_eq!(held.parts().len(), 1, "{held}");
        let reply = wires[(at + 1) % 3].ask(&format!("UNLOCK {key}"));
        assert_eq!(reply.text(), "OK", "{reply}");
    }
    let reply = ask_on(&mut wires[1], "LOCK last");
    let (_, fence) = granted(&reply).unwrap();
    let mut other = nodes[2].connect();
    assert_eq!(
        other.ask(&format!("SESSION RENEW {session}")).int(),
        600_000
    );
    // Its connections may go, also those of other nodes.
    drop(wires);
    assert_eq!(granted(&other.ask("LOCK last")), None);
    assert_eq!(other.ask(&format!("SESSION CLOSE {session}")).int(), 1);
    let (_, next) = until_locked(&mut other, "last");
    assert!(next > fence);
    assert_eq!(other.ask("UNLOCK last").text(), "OK");
    other
        .ask(&format!("SESSION ATTACH {session}"))
        .is_error("NOSUCH");
}

#[test]
fn a_session_without_time_ends_with_its_last_connection_wherever_that_is() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig);
    let mut opener = one.connect();
    let session = opener.ask("SESSION OPEN").at(0).text();
    let mut far = two.connect();
    assert_eq!(
        ask_on(&mut far, &format!("SESSION ATTACH {session}")).text(),
        "OK"
    );
    assert!(granted(&ask_on(&mut far, "LOCK kept")).is_some());
    let mut killed = three.connect();
    let attached = ask_on(&mut killed, &format!("SESSION ATTACH {session}"));
    assert_eq!(attached.text(), "OK");
    drop(opener);
    let mut other = one.connect();
    until("its first connection is gone", || {
        let shown = other.ask("SESSION LS");
        shown.at(0).at(2).int() == 2
    });
    assert_eq!(granted(&other.ask("LOCK kept")), None);
    drop(far);
    until("its second connection is gone", || {
        let shown = other.ask("SESSION LS");
        shown.at(0).at(2).int() == 1
    });
    assert_eq!(granted(&ask_on(&mut other, "LOCK kept")), None);
    // A node that dies takes its connections along.
    three.kill();
    until_locked(&mut other, "kept");
}

#[test]
fn a_node_without_links_reports_by_way_of_etcd() {
    let rig = Rig::start();
    let other_secret = rig.folder("other");
    fs::write(
        &other_secret,
        "another secret, and none of the others has it",
    )
    .unwrap();
    fs::set_permissions(&other_secret, Permissions::from_mode(0o600)).unwrap();
    let apart = rig.config("n3", 2);
    let at = apart.find("secret_file = ").unwrap();
    let end = at + apart[at..].find('\n').unwrap();
    let apart = format!(
        "{}secret_file = {other_secret:?}{}",
        &apart[..at],
        &apart[end..]
    );
    // It gets no partition of its own.
    let heavy = |name| {
        rig.config(name, 2)
            .replace("partitions", "weight = 1000\npartitions")
    };
    let (one, two) = (Server::with(&heavy("n1")), Server::with(&heavy("n2")));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let keys = keys_of(&one, "n2", 12);
    let three = Server::with(&apart);
    until("the third node lives", || {
        three.connect().ask("SHOW NODES").parts().len() == 4
    });
    let mut holder = one.connect();
    let (ticket, _) = granted(&ask_on(&mut holder, &format!("LOCK {}", keys[0]))).unwrap();
    two.kill();
    // The first takes over what the second had, and waits for the report of the third.
    let mut wire = one.connect();
    for key in &keys[1..] {
        until_locked(&mut wire, key);
    }
    let reply = ask_on(&mut wire, &format!("LOCK {}", keys[0]));
    assert_eq!(granted(&reply), None, "it is still held: {reply}");
    assert_eq!(holder.ask(&format!("RELEASE {ticket}")).text(), "OK");
}
