//! What carries messages: to etcd and back, and between nodes. It loses, delays, doubles
//! and reorders them.

use rideau_core::cluster::{StoreOutcome, StoreRequest};

use crate::world::{Event, Happening, MILLI, SECOND, STORE_WAIT, World};

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
        let keys = it
            .process
            .as_ref()
            .map(|process| process.machine.keys().watched());
        let keys = keys.expect("it runs");
        let again = 10 * MILLI + self.rng.below(120 * MILLI);
        self.for_process(host, again, Event::Poll { watch });
        if !is_open {
            return;
        }
        let mut is_over = false;
        let event = match self.etcd.changes(from.1, &[keys]) {
            Err(_) => {
                is_over = true;
                Event::Compacted { watch }
            }
            Ok(mut seen) => {
                let revision = self.etcd.revision();
                if seen.last().is_none_or(|(last, _)| *last < revision) {
                    seen.push((revision, Vec::new()));
                }
                Event::Seen { watch, seen }
            }
        };
        let next = self.etcd.revision() + 1;
        let delay = self.delay();
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.watch = (!is_over).then_some((watch, next));
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

    /// Links come and go with what lies between the nodes.
    pub(crate) fn check_links(&mut self) -> Result<(), String> {
        let count = self.hosts.len();
        for host in 0..count {
            for other in (0..count).filter(|other| *other != host) {
                let is_cut = self.is_cut(host, other) || self.is_cut(other, host);
                let node = self.machine(other).and_then(|it| it.incarnation().cloned());
                let node = node.filter(|_| !is_cut);
                let Some(process) = &self.hosts[host].process else {
                    continue;
                };
                let known = process.links.get(&other);
                if known == node.as_ref() {
                    continue;
                }
                let delay = self.rng.below(50 * MILLI);
                match node {
                    Some(node) if known.is_none() => {
                        let with = other;
                        self.for_process(host, delay, Event::Linked { with, node });
                    }
                    _ => self.for_process(host, delay, Event::Unlinked { with: other }),
                }
            }
        }
        self.after(200 * MILLI, Happening::Links);
        Ok(())
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
