//! Clients that go from node to node while nodes fail, and check what they are told against
//! what all of them were told before.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::cluster::{ask_on, reserved};
use crate::kills::Chance;
use crate::server::until;
use crate::wire::{Value, Wire};

const KEYS: u64 = 6;
/// A client gives an answer up after this long.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// Clients of a cluster whose nodes fail. One that is told a lie panics.
pub(crate) struct CheckingClients {
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
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

impl CheckingClients {
    /// This many clients of the nodes at these addresses, which may change.
    pub(crate) fn start(count: usize, addresses: &Arc<RwLock<Vec<SocketAddr>>>) -> Self {
        let (history, stop) = (Arc::<History>::default(), Arc::<AtomicBool>::default());
        let client = |number: usize| {
            let client = Client {
                number,
                chance: Chance(number as u64 + 1),
                history: Arc::clone(&history),
                addresses: Arc::clone(addresses),
                wire: None,
            };
            let stop = Arc::clone(&stop);
            thread::spawn(move || client.run(&stop))
        };
        let threads = (0..count).map(client).collect();
        Self {
            history,
            stop,
            threads,
        }
    }

    /// None of them was told a lie so far.
    pub(crate) fn check(&self) {
        let mut threads = self.threads.iter();
        assert!(
            threads.all(|client| !client.is_finished()),
            "a client has failed"
        );
    }

    /// Wait until they have had this many values more.
    pub(crate) fn until_served(&self, count: usize) {
        let served = self.history.reserved.load(Ordering::Relaxed);
        until("clients are served", || {
            self.check();
            self.history.reserved.load(Ordering::Relaxed) > served + count
        });
    }

    /// End them, and see that all that they were given is there, as this connection is told.
    /// Says what they did.
    pub(crate) fn end(self, wire: &mut Wire) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads.for_each(|client| client.join().unwrap());
        let values = std::mem::take(&mut *self.history.values.lock().unwrap());
        for (value, (fence, ticket)) in &values {
            let reply = ask_on(wire, &format!("REFRESH {ticket} TTL 600000"));
            assert_eq!(
                reply.at(0).text(),
                "ok",
                "{value} of fence {fence}: {reply}"
            );
        }
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let history = &self.history;
        assert!(count(&history.locked) > 0, "no lock was used");
        assert!(values.len() > 100, "{} values are held", values.len());
        format!(
            "{} values reserved, {} held at the end, {} locks used; {} commands refused, {} \
             connections broken",
            count(&history.reserved),
            values.len(),
            count(&history.locked),
            count(&history.down),
            count(&history.broken),
        )
    }
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
