//! What carries messages: to etcd and back, and between nodes. It loses, delays, doubles
//! and reorders them.

use rideau_core::cluster::{Incarnation, PeerMessage, RowMessage, StoreOutcome, StoreRequest};

use crate::unique::KeyMessage;
use crate::world::{Event, Happening, MILLI, SECOND, STORE_WAIT, World};

/// What a link carries.
#[derive(Clone, Debug)]
pub(crate) enum Carried {
    Peer(PeerMessage),
    Row(RowMessage),
    Key(KeyMessage),
}

/// What lies between two hosts.
#[derive(Default)]
pub(crate) struct PeerPair {
    /// The number of the newest link.
    link: u64,
    /// The nodes that it connects.
    up: Option<(Incarnation, Incarnation)>,
    /// Nothing comes through any more, which no node has noticed yet.
    is_broken: bool,
    /// The nodes refuse each other.
    is_refused: bool,
    /// When the last message arrives, in each direction.
    arrivals: [u64; 2],
}

impl World {
    /// Send a request to etcd. It has an outcome in time, or none is known.
    pub(crate) fn ask_etcd(&mut self, host: usize, id: u64, request: StoreRequest) {
        self.for_process(host, STORE_WAIT, Event::TimeOut { id });
        let delay = self.delay();
        if self.hosts[host].cut_to_etcd > self.now {
            return;
        }
        if self.chance(self.faults.loss) {
            self.faults.count("lost request");
            return;
        }
        let mut late = 0;
        if self.chance(self.faults.late) {
            self.faults.count("late request");
            late = self.rng.below(30 * SECOND);
        }
        self.for_process(host, delay + late, Event::AtEtcd { id, request });
    }

    pub(crate) fn keep_alive(&mut self, host: usize, stream: u64, lease: u64) {
        let delay = self.delay();
        if self.hosts[host].cut_to_etcd <= self.now && !self.chance(self.faults.loss) {
            let mut late = 0;
            if self.chance(self.faults.late) {
                late = self.rng.below(4 * SECOND);
            }
            self.for_process(host, delay + late, Event::KeepAtEtcd { stream, lease });
        }
    }

    /// Something arrives at etcd.
    pub(crate) fn at_etcd(&mut self, host: usize, life: u64, event: Event) -> Result<(), String> {
        if self.etcd_paused > self.now {
            let at = self.etcd_paused + 1;
            self.at(at, Happening::Process { host, life, event });
            return Ok(());
        }
        let is_down = self.etcd_down > self.now;
        let local = self.etcd_local();
        match event {
            Event::AtEtcd { id, request } if !is_down => {
                self.trace(|| format!("etcd n{host} {id} {request:?}"));
                let outcome = self.etcd.call(&request, local);
                self.oracle.look(&self.etcd, self.now)?;
                self.trace(|| format!("etcd answers {}", brief(&outcome)));
                if self.chance(self.faults.loss) {
                    self.faults.count("lost reply");
                } else {
                    self.reply_of_etcd(host, life, Event::FromEtcd { id, outcome });
                }
            }
            Event::KeepAtEtcd { stream, lease } if !is_down => {
                let ttl = self.etcd.keep_alive(lease, local);
                self.trace(|| format!("etcd keeps {lease} of n{host}: {ttl:?}"));
                self.reply_of_etcd(host, life, Event::KeepFromEtcd { stream, ttl });
            }
            Event::Poll { watch } => self.poll(host, life, watch),
            _ => (),
        }
        Ok(())
    }

    fn reply_of_etcd(&mut self, host: usize, life: u64, event: Event) {
        let mut delay = self.delay();
        if self.hosts[host].cut_from_etcd > self.now {
            return;
        }
        if self.chance(self.faults.late) {
            self.faults.count("late reply");
            delay += self.rng.below(3 * SECOND);
        }
        self.after(delay, Happening::Process { host, life, event });
    }

    /// The watch of a process: what it has not been shown yet, in order.
    fn poll(&mut self, host: usize, life: u64, watch: u64) {
        let it = &self.hosts[host];
        if it.life != life {
            return;
        }
        let Some(from) = it.process.as_ref().and_then(|process| process.watch) else {
            return;
        };
        if from.0 != watch {
            return;
        }
        let is_open =
            it.stalled <= self.now && it.cut_from_etcd <= self.now && self.etcd_down <= self.now;
        let process = it.process.as_ref().expect("it was just seen");
        let last_arrival = process.watch_arrival;
        let is_news = self.etcd.revision() > from.1;
        // Notes of progress come now and then.
        let is_due = is_news || last_arrival + 300 * MILLI <= self.now;
        let keys = (is_open && is_due).then(|| process.machine.keys().watched());
        let again = 10 * MILLI + self.rng.below(120 * MILLI);
        self.for_process(host, again, Event::Poll { watch });
        let Some(keys) = keys else {
            return;
        };
        let mut is_over = false;
        let event = match self.etcd.changes(from.1, &[keys]) {
            Err(_) => {
                is_over = true;
                Event::Compacted { watch }
            }
            Ok(mut seen) => {
                seen.retain(|(revision, _)| *revision > from.1);
                let revision = self.etcd.revision();
                if seen.is_empty() && last_arrival + 300 * MILLI > self.now {
                    return;
                }
                if seen.last().is_none_or(|(last, _)| *last < revision) {
                    seen.push((revision, Vec::new()));
                }
                Event::Seen { watch, seen }
            }
        };
        let last = self.etcd.revision();
        let delay = self.delay();
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.watch = (!is_over).then_some((watch, last));
        let arrival = (self.now + delay).max(process.watch_arrival + 1);
        process.watch_arrival = arrival;
        self.at(arrival, Happening::Process { host, life, event });
    }

    /// Send something to another node.
    pub(crate) fn send_peer(&mut self, from: usize, to: usize, event: Event) {
        if self.is_cut(from, to) {
            return;
        }
        if self.chance(self.faults.loss) {
            self.faults.count("lost message");
            return;
        }
        if self.chance(self.faults.loss) {
            self.faults.count("doubled message");
            let delay = self.delay() * 5;
            self.for_process(to, delay, event.clone());
        }
        let delay = self.delay();
        self.for_process(to, delay, event);
    }

    /// Send something over the link to another node, or to the node itself. A link keeps
    /// the order, and loses nothing but what is unread when it breaks.
    pub(crate) fn send(&mut self, host: usize, to: &Incarnation, message: Carried) {
        let process = self.running(host);
        let Some(from) = process.machine.incarnation().cloned() else {
            return;
        };
        if *to == from {
            let event = Event::Heard {
                from,
                link: 0,
                message,
            };
            self.for_process(host, 0, event);
            return;
        }
        let known = process.links.iter().find(|(_, known)| known.node == *to);
        let Some((other, link)) = known.map(|(other, known)| (*other, known.link)) else {
            return;
        };
        let is_cut = self.is_cut(host, other);
        let is_lost = self.chance(self.faults.loss);
        let mut delay = self.delay();
        if self.chance(self.faults.late) {
            self.faults.count("late message");
            delay += self.rng.below(SECOND);
        }
        let now = self.now;
        let ends = (host.min(other), host.max(other));
        let pair = self.pairs.entry(ends).or_default();
        if pair.link != link || pair.is_broken {
            return;
        }
        if is_cut || is_lost {
            pair.is_broken = true;
            if is_lost {
                self.faults.count("broken link");
            }
            return;
        }
        let last = &mut pair.arrivals[usize::from(host < other)];
        let at = (now + delay).max(*last + 1);
        *last = at;
        let event = Event::Heard {
            from,
            link,
            message,
        };
        self.for_process(other, at - now, event);
    }

    /// Links come and go with what lies between the nodes.
    pub(crate) fn check_links(&mut self) -> Result<(), String> {
        let count = self.hosts.len();
        let node = |host| self.machine(host).and_then(|it| it.incarnation().cloned());
        let nodes: Vec<_> = (0..count).map(node).collect();
        for host in 0..count {
            for other in host + 1..count {
                let is_cut = self.is_cut(host, other) || self.is_cut(other, host);
                let ends = nodes[host].as_ref().zip(nodes[other].as_ref());
                let ends = ends.filter(|_| !is_cut);
                let refusal = ends.and_then(|_| self.refusal(host, other));
                let pair = self.pairs.entry((host, other)).or_default();
                let was_refused = std::mem::replace(&mut pair.is_refused, refusal.is_some());
                if let Some(kind) = refusal.filter(|_| !was_refused) {
                    self.faults.count(kind);
                }
                let ends = ends.filter(|_| refusal.is_none());
                self.check_link(host, other, ends.map(|(a, b)| (a.clone(), b.clone())));
            }
        }
        self.after(200 * MILLI, Happening::Links);
        Ok(())
    }

    fn check_link(&mut self, host: usize, other: usize, ends: Option<(Incarnation, Incarnation)>) {
        let pair = self.pairs.entry((host, other)).or_default();
        let is_up = pair.up.is_some();
        if is_up && (pair.up != ends || pair.is_broken) {
            pair.up = None;
            let link = pair.link;
            for (host, with) in [(host, other), (other, host)] {
                let delay = self.rng.below(300 * MILLI);
                self.for_process(host, delay, Event::Unlinked { with, link });
            }
        } else if !is_up && let Some((mine, theirs)) = ends {
            pair.link += 1;
            pair.is_broken = false;
            pair.up = Some((mine.clone(), theirs.clone()));
            let link = pair.link;
            let sides = [(host, other, &mine, &theirs), (other, host, &theirs, &mine)];
            for (host, with, me, node) in sides {
                let delay = self.rng.below(50 * MILLI);
                // Nothing is read before the hello.
                let now = self.now;
                let ends = (host.min(with), host.max(with));
                let pair = self.pairs.entry(ends).or_default();
                pair.arrivals[usize::from(with < host)] = now + delay;
                let event = Event::Linked {
                    with,
                    me: me.clone(),
                    node: node.clone(),
                    link,
                };
                self.for_process(host, delay, event);
            }
        }
    }

    /// How long a message takes.
    pub(crate) fn delay(&mut self) -> u64 {
        let most = if self.chance(50) { 100 } else { 5 };
        100 + self.rng.below(most * MILLI)
    }
}

fn brief(outcome: &StoreOutcome) -> String {
    let mut text = format!("{outcome:?}");
    text.truncate(160);
    text
}
