//! What goes wrong, and how often.

use std::collections::BTreeMap;

use rideau_core::Rng;

use crate::bugs::Bug;
use crate::world::{Happening, MILLI, SECOND, World};

/// Every kind of fault. Each has to happen in a run of many seeds.
pub(crate) const KINDS: &[&str] = &[
    "broken link",
    "cut between nodes",
    "cut between nodes, one way",
    "cut from etcd",
    "cut to etcd, one way",
    "cut from etcd, one way",
    "compaction",
    "config change",
    "doubled message",
    "drain",
    "election",
    "ended holder",
    "join",
    "kill",
    "kill and restart",
    "late message",
    "late reply",
    "late request",
    "lost message",
    "lost reply",
    "lost request",
    "old version",
    "pause",
    "pause of etcd",
    "release at another node",
    "restart of etcd",
    "sleep",
    "spent epoch",
    "stalled watch",
    "wrong secret",
];

/// What goes wrong in one run.
pub(crate) struct Faults {
    /// How many in a thousand messages are lost.
    pub(crate) loss: u64,
    /// How many in a thousand are late by seconds.
    pub(crate) late: u64,
    /// Clients ask no more.
    pub(crate) quiet: bool,
    /// Nothing goes wrong any more.
    pub(crate) over: bool,
    counts: BTreeMap<&'static str, u64>,
    /// How long it is quiet between two faults.
    gap: u64,
    /// Which kinds happen in this run: one is not always hidden by another.
    kinds: u64,
}

impl Faults {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            loss: [0, 5, 30][rng.below(3) as usize],
            late: [0, 5, 30][rng.below(3) as usize],
            quiet: false,
            over: false,
            counts: BTreeMap::new(),
            gap: [300, 800, 2_000][rng.below(3) as usize] * MILLI,
            kinds: rng.draw() | rng.draw(),
        }
    }

    pub(crate) fn count(&mut self, kind: &'static str) {
        assert!(KINDS.contains(&kind), "{kind} is a kind of fault");
        *self.counts.entry(kind).or_default() += 1;
    }

    pub(crate) const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}

impl World {
    /// Something goes wrong.
    pub(crate) fn fault(&mut self) -> Result<(), String> {
        if self.faults.over {
            return Ok(());
        }
        let gap = self.rng.below(self.faults.gap);
        self.after(gap, Happening::Fault);
        let kind = self.rng.below(21);
        if self.faults.kinds & (1 << kind) == 0 {
            return Ok(());
        }
        let host = self.rng.below(self.hosts.len() as u64) as usize;
        let long = 100 * MILLI + self.rng.below(8 * SECOND);
        match kind {
            0..=4 => self.fault_of_process(kind, host),
            5..=8 => self.fault_of_etcd(kind),
            9..=12 => self.fault_of_etcd_link(kind, host, long),
            13 | 14 => {
                let other = self.rng.below(self.hosts.len() as u64) as usize;
                let until = self.now + long;
                self.cuts.insert((host, other), until);
                if kind == 13 {
                    self.cuts.insert((other, host), until);
                    self.faults.count("cut between nodes");
                } else {
                    self.faults.count("cut between nodes, one way");
                }
                Ok(())
            }
            15 if self.hosts.len() < 9 => {
                self.faults.count("join");
                self.add_host();
                Ok(())
            }
            16 => self.drain(host),
            17 => self.evict(host),
            18 => {
                // Two operators at two nodes may be at it at once.
                let other = self.rng.below(self.hosts.len() as u64) as usize;
                self.change_config(host);
                self.change_config(other);
                Ok(())
            }
            19 | 20 => {
                self.start_wrong(host, kind == 20);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fault_of_process(&mut self, kind: u64, host: usize) -> Result<(), String> {
        let it = &self.hosts[host];
        if it.process.is_none() || it.paused_until > self.now {
            return Ok(());
        }
        match kind {
            0 => {
                self.faults.count("kill");
                self.kill(host);
                let delay = 3 * SECOND + self.rng.below(20 * SECOND);
                self.after(delay, Happening::Start { host });
            }
            1 | 2 => {
                self.faults.count("kill and restart");
                self.kill(host);
                let delay = self.rng.below(2 * SECOND);
                self.after(delay, Happening::Start { host });
            }
            _ => {
                let most = [SECOND, 5 * SECOND, 20 * SECOND][self.rng.below(3) as usize];
                let long = 100 * MILLI + self.rng.below(most);
                self.faults.count(if kind == 3 { "pause" } else { "sleep" });
                self.trace(|| format!("n{host} pauses for {long}"));
                let until = self.now + long;
                let it = &mut self.hosts[host];
                it.paused_until = until;
                if kind == 4 && self.bug == Some(Bug::ClockSleeps) {
                    it.frozen = Some(self.now);
                    self.after(long, Happening::Waken { host });
                }
            }
        }
        Ok(())
    }

    fn fault_of_etcd(&mut self, kind: u64) -> Result<(), String> {
        match kind {
            5 => {
                self.faults.count("pause of etcd");
                self.etcd_paused = self.now + self.rng.below(6 * SECOND);
                let at = self.etcd_paused;
                self.at(at, Happening::EtcdResumed);
            }
            6 | 7 => {
                self.faults.count(if kind == 6 {
                    "restart of etcd"
                } else {
                    "election"
                });
                self.etcd_down = self.now + self.rng.below(5 * SECOND);
                let at = self.etcd_down;
                self.at(at, Happening::EtcdElected);
            }
            _ => {
                self.faults.count("compaction");
                self.oracle.look(&self.etcd, self.now)?;
                let revision = self.etcd.revision();
                let local = self.etcd_local();
                let request = rideau_core::cluster::StoreRequest::Compact { revision };
                self.etcd.call(&request, local);
            }
        }
        let until = self.etcd_paused.max(self.etcd_down);
        self.trace(|| format!("etcd fault {kind} until {until}"));
        Ok(())
    }

    fn fault_of_etcd_link(&mut self, kind: u64, host: usize, long: u64) -> Result<(), String> {
        let until = self.now + long;
        self.trace(|| format!("n{host} link to etcd fault {kind} until {until}"));
        let it = &mut self.hosts[host];
        match kind {
            9 => {
                it.cut_to_etcd = until;
                it.cut_from_etcd = until;
                self.faults.count("cut from etcd");
            }
            10 => {
                it.cut_to_etcd = until;
                self.faults.count("cut to etcd, one way");
            }
            11 => {
                it.cut_from_etcd = until;
                self.faults.count("cut from etcd, one way");
            }
            _ => {
                it.stalled = until;
                self.faults.count("stalled watch");
            }
        }
        Ok(())
    }

    /// A node ends one of its holders, which may not learn of it.
    fn evict(&mut self, host: usize) -> Result<(), String> {
        let it = &self.hosts[host];
        if it.paused_until > self.now {
            return Ok(());
        }
        let conns = it.process.iter().flat_map(|process| process.conns.keys());
        let conns: Vec<u64> = conns.copied().collect();
        if conns.is_empty() {
            return Ok(());
        }
        self.faults.count("ended holder");
        let conn = conns[self.rng.below(conns.len() as u64) as usize];
        self.lock_close(host, conn, true)
    }

    fn drain(&mut self, host: usize) -> Result<(), String> {
        let it = &self.hosts[host];
        let staying = self
            .hosts
            .iter()
            .filter(|host| !host.drains && !host.stopped)
            .count();
        if it.drains || it.process.is_none() || it.paused_until > self.now || staying < 3 {
            return Ok(());
        }
        self.faults.count("drain");
        self.hosts[host].drains = true;
        self.step(host, |machine, now, effects| machine.drain(now, effects))
    }

    /// Nothing goes wrong any more: everything runs, and everything gets through.
    pub(crate) fn heal(&mut self) {
        self.faults.over = true;
        self.faults.loss = 0;
        self.faults.late = 0;
        self.cuts.clear();
        self.etcd_paused = self.etcd_paused.min(self.now + SECOND);
        for host in 0..self.hosts.len() {
            let it = &mut self.hosts[host];
            it.cut_to_etcd = 0;
            it.cut_from_etcd = 0;
            it.stalled = 0;
            self.mend(host);
            let delay = self.rng.below(2 * SECOND);
            self.after(delay, Happening::Start { host });
        }
    }
}
