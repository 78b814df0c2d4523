//! Nodes of one process on one etcd, and what they acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rideau::store::PartitionHost;
use rideau::store::etcd::EtcdOptions;
use rideau_cluster::{ClusterNode, NodeError, NodeOptions, NodeView};
use rideau_core::cluster::{Incarnation, Partitions};
use rideau_testing::Scratch;

use crate::host::{NotWritten, RegisterHost, Write};
use crate::links::{LinkEnd, LocalLinks};
use crate::server::{PATIENCE, until};

pub(crate) const PARTITIONS: u32 = 8;
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// Nodes of one process on one etcd.
pub(crate) struct Rig {
    endpoints: Vec<String>,
    scratch: Scratch,
    links: LocalLinks,
    pub(crate) has_links: bool,
    pub(crate) nodes: Arc<Mutex<BTreeMap<String, TestNode>>>,
    pub(crate) written: Arc<Written>,
}

/// A node with its host.
#[derive(Clone)]
pub(crate) struct TestNode {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) host: Arc<RegisterHost>,
    pub(crate) end: Arc<LinkEnd>,
}

/// All that was acknowledged.
#[derive(Default)]
pub(crate) struct Written {
    acknowledged: Mutex<BTreeSet<Write>>,
    next_key: AtomicU64,
    unknown: AtomicU64,
}

/// Writes until it is stopped.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rig {
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            scratch: Scratch::new(),
            links: LocalLinks::default(),
            has_links: true,
            nodes: Arc::default(),
            written: Arc::default(),
        }
    }

    pub(crate) fn folder(&self, name: &str) -> std::path::PathBuf {
        self.scratch.join(name)
    }

    pub(crate) fn options(&self, name: &str) -> NodeOptions {
        options(name, &self.folder(name), self.endpoints.clone())
    }

    /// Start a node, which owns nothing yet.
    pub(crate) async fn start(&self, name: &str) -> TestNode {
        let node = self.try_start(self.options(name)).await.unwrap();
        self.nodes.lock().insert(name.to_owned(), node.clone());
        node
    }

    pub(crate) async fn try_start(&self, options: NodeOptions) -> Result<TestNode, NodeError> {
        let node = Arc::new(ClusterNode::open(options).await?);
        let host = Arc::new(RegisterHost::default());
        host.set_log(node.log());
        let end = self.link(&node, Arc::clone(&host) as _);
        Ok(TestNode { node, host, end })
    }

    /// Start a node that is open, with links to the others.
    pub(crate) fn link(
        &self,
        node: &Arc<ClusterNode>,
        host: Arc<dyn PartitionHost>,
    ) -> Arc<LinkEnd> {
        let name = &node.options().name;
        let end = self.links.end(name, self.has_links);
        self.links.add(name, node);
        let (events, peers) = (Arc::clone(&end), Arc::clone(&end));
        node.start(host, events, peers);
        end
    }

    pub(crate) fn node(&self, name: &str) -> TestNode {
        self.nodes.lock()[name].clone()
    }

    /// End a node as if its process were killed, and wait until its folder is free. The test
    /// itself must not have it any more.
    pub(crate) async fn kill(&self, name: &str) {
        let killed = self.nodes.lock().remove(name).unwrap();
        let ended = killed.node.ended();
        drop(killed);
        // Another part of the test may have it for a moment longer.
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        ended.expect("the node ends when it is dropped");
    }

    /// Give away what a node has, and end it.
    pub(crate) async fn stop(&self, name: &str) {
        let stopped = self.node(name);
        stopped.node.stop(Duration::from_secs(30)).await;
        self.nodes.lock().remove(name);
    }

    /// Wait until all partitions are served.
    pub(crate) async fn until_all_serve(&self) {
        until("all partitions are served", async || {
            self.served() == BTreeSet::from_iter(0..PARTITIONS)
        })
        .await;
    }

    /// The partitions that are served. None is served twice.
    pub(crate) fn served(&self) -> BTreeSet<u32> {
        let nodes = self.nodes.lock();
        nodes.values().flat_map(|node| node.host.served()).collect()
    }

    /// Wait until each node serves that many partitions at least.
    pub(crate) async fn until_each_serves(&self, least: usize) {
        until("the partitions are shared out", async || {
            let nodes = self.nodes.lock().clone();
            let all = self.served().len() == PARTITIONS as usize;
            all && nodes.values().all(|it| it.host.served().len() >= least)
        })
        .await;
    }

    /// Everything that was acknowledged is there.
    pub(crate) async fn check(&self) {
        self.until_all_serve().await;
        let acknowledged = self.written.acknowledged.lock().clone();
        assert!(!acknowledged.is_empty(), "something was written");
        for write in acknowledged {
            let mut found = None;
            until("the partition of a write is served", async || {
                found = read(&self.nodes, write.partition, write.key);
                found.is_some()
            })
            .await;
            assert_eq!(found, Some(Some(write.fence)), "{write:?} is lost");
        }
        self.written.check_fences();
    }

    /// Write to partitions by chance until the writer is stopped or dropped.
    pub(crate) fn write(&self) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let (nodes, written) = (Arc::clone(&self.nodes), Arc::clone(&self.written));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if !written.write_once(&nodes) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        Writer {
            stop,
            thread: Some(thread),
        }
    }

    /// Wait until that many more writes are acknowledged.
    pub(crate) async fn until_written(&self, more: usize) {
        let before = self.written.len();
        until("more is written", async || {
            self.written.len() >= before + more
        })
        .await;
    }
}

pub(crate) fn options(name: &str, folder: &Path, endpoints: Vec<String>) -> NodeOptions {
    let etcd = EtcdOptions::plain(endpoints);
    NodeOptions {
        partitions: Partitions::new(PARTITIONS, 0).unwrap(),
        lease: LEASE,
        settle: Duration::from_millis(300),
        ..NodeOptions::new("test", name, folder, etcd)
    }
}

fn read(
    nodes: &Mutex<BTreeMap<String, TestNode>>,
    partition: u32,
    key: u64,
) -> Option<Option<u64>> {
    let nodes = nodes.lock().clone();
    nodes.values().find_map(|it| it.host.read(partition, key))
}

impl TestNode {
    pub(crate) async fn view(&self) -> Box<NodeView> {
        self.node.view().await.expect("it runs")
    }

    pub(crate) async fn me(&self) -> Option<Incarnation> {
        self.view().await.me
    }
}

impl Written {
    pub(crate) fn len(&self) -> usize {
        self.acknowledged.lock().len()
    }

    pub(crate) fn add(&self, written: Vec<Write>) {
        self.acknowledged.lock().extend(written);
    }

    /// Write one key to each of two partitions of some node. Says no if none was written.
    fn write_once(&self, nodes: &Mutex<BTreeMap<String, TestNode>>) -> bool {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let partition = (key % u64::from(PARTITIONS)) as u32;
        let wanted = [(partition, key), ((partition + 3) % PARTITIONS, key)];
        let nodes: Vec<_> = nodes
            .lock()
            .values()
            .map(|it| Arc::clone(&it.host))
            .collect();
        // Two partitions in one write, unless no node has both of them.
        for wanted in [&wanted[..], &wanted[..1]] {
            for host in &nodes {
                match host.write(wanted) {
                    Ok(written) => {
                        self.add(written);
                        return true;
                    }
                    Err(NotWritten::Elsewhere) => (),
                    Err(NotWritten::Unknown) => {
                        self.unknown.fetch_add(1, Ordering::Relaxed);
                        return false;
                    }
                }
            }
        }
        false
    }

    /// In each partition, later keys of one process have larger fences.
    fn check_fences(&self) {
        let mut last = BTreeMap::new();
        for write in self.acknowledged.lock().iter() {
            let now = (write.key, write.fence);
            if let Some(before) = last.insert((write.partition, write.key >> 32), now) {
                assert!(before.1 < now.1, "{write:?} comes after {before:?}");
            }
        }
    }
}

impl Writer {
    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        tokio::task::spawn_blocking(|| thread.join().unwrap())
            .await
            .unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
