//! An etcd and nodes on it, which are ready when each owns its share.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::line::Line;
use crate::talk::{Folder, Server, free_address};

/// Partitions of the cluster.
pub(super) const PARTITIONS: usize = 64;
/// How long a node's key outlives it.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// All partitions have their owners by then.
const SPREAD_MAX: Duration = Duration::from_secs(300);

/// An etcd and nodes on it.
pub(super) struct Nodes {
    pub(super) etcd: Server,
    pub(super) all: Vec<Server>,
    _folder: Folder,
}

impl Nodes {
    /// This many nodes, with these ranges.
    pub(super) fn start(program: &Path, disk: &Path, count: usize, ranges: &str) -> Self {
        let folder = Folder::within(disk);
        let secret = folder.path().join("secret");
        fs::write(&secret, [7; 32]).expect("the temporary folder can be written");
        let etcd = Server::etcd(Folder::within(disk));
        let url = format!("http://{}", etcd.address);
        let since = Instant::now();
        let all = (0..count).map(|at| {
            let own = Folder::within(disk);
            let (store, run) = (own.path().join("store"), own.path().join("run"));
            let config = format!(
                "[cluster]\nname = \"bench\"\nnode = \"n{at:02}\"\netcd = [{url:?}]\n\
                 listen = \"{}\"\nsecret_file = {secret:?}\npartitions = {PARTITIONS}\n\
                 lease = \"{}s\"\n[store]\npath = {store:?}\n{ranges}",
                free_address(),
                LEASE.as_secs(),
            );
            fs::create_dir_all(&run).expect("the temporary folder can be written");
            Server::ours(program, 1, &config, own)
        });
        let nodes = Self {
            etcd,
            all: all.collect(),
            _folder: folder,
        };
        nodes.wait_until_spread(since);
        nodes
    }

    fn wait_until_spread(&self, since: Instant) {
        let share = (PARTITIONS / self.all.len()) as u64;
        for server in &self.all {
            let mut line = Line::open(server.address);
            loop {
                let said = line.info();
                let is = |name: &str, least: u64| {
                    let number = said.get(name).and_then(|text| text.parse::<u64>().ok());
                    number.is_some_and(|number| number >= least)
                };
                let peers = self.all.len() as u64 - 1;
                if is("cluster_partitions_owned", share) && is("cluster_links", peers) {
                    break;
                }
                assert!(
                    since.elapsed() < SPREAD_MAX,
                    "a node gets no share: {said:?}"
                );
                thread::sleep(Duration::from_millis(50));
            }
        }
        eprintln!(
            "{} nodes: ready within {:.1?}",
            self.all.len(),
            since.elapsed()
        );
    }

    /// Where clients reach them.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|server| server.address).collect()
    }

    /// All that works for a reservation.
    pub(super) fn work(&self) -> Vec<&Server> {
        self.all.iter().chain([&self.etcd]).collect()
    }

    /// What all nodes say of these numbers.
    pub(super) fn numbers(&self, names: &'static [&str]) -> Vec<(&'static str, String)> {
        Self::numbers_of(&self.all, names)
    }

    /// What these nodes say of these numbers.
    pub(super) fn numbers_of(
        nodes: &[Server],
        names: &'static [&str],
    ) -> Vec<(&'static str, String)> {
        let all = nodes.iter().map(|server| Line::open(server.address).info());
        let all: Vec<_> = all.collect();
        let said = |name: &str| {
            let key = format!("cluster_{name}");
            let each = all.iter().map(|said| said.get(&key).cloned());
            let each: Vec<_> = each
                .map(|text| text.unwrap_or_else(|| "-".into()))
                .collect();
            each.join(" ")
        };
        names.iter().map(|name| (*name, said(name))).collect()
    }
}
