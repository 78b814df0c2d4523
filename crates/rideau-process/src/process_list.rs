//! All processes that run at one moment, and which of them belong to a child.
//!
//! A child's tree is every process that shares its process group or its session,
//! every process that descends from those, and every process that lost its parent
//! and still has the variable that the child was started with: orphans come to us,
//! because we asked the system for them.

use std::collections::{HashMap, HashSet};
use std::process;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};

use super::procfs::{self, Seen};

/// The variable by which a child, and each process it starts, is known as ours.
pub(super) const MARK: &str = "RIDEAU_PROCESS";

/// All processes at one moment. One list of processes is enough for any number of children.
pub struct ProcessList {
    all: Vec<Seen>,
    /// Our children that carry a mark, by that.
    marked: HashMap<String, Vec<i32>>,
}

/// The usage of a child and its descendants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// How many they are.
    pub processes: usize,
    /// Bytes of memory that they have in use. What they share counts for each.
    pub memory: u64,
    /// Processor time of those that still run.
    pub processor: Duration,
}

impl ProcessList {
    /// Look at all processes. This blocks for some milliseconds.
    pub fn take() -> Self {
        let all = procfs::all();
        let us = i32::try_from(process::id()).unwrap_or_default();
        let mut marked: HashMap<_, Vec<_>> = HashMap::new();
        for seen in all.iter().filter(|seen| seen.parent == us) {
            if let Some(mark) = procfs::variable(seen.pid, MARK) {
                marked.entry(mark).or_default().push(seen.pid);
            }
        }
        Self { all, marked }
    }

    /// All processes that belong to the child with this number, which must not have
    /// been reaped, and this mark. Those that have ended and wait for a burial too.
    pub(super) fn tree(&self, leader: i32, mark: &str) -> Vec<Seen> {
        let strays = self.marked.get(mark).map_or(&[][..], Vec::as_slice);
        let belongs = |seen: &Seen| {
            let with_leader = [seen.pid, seen.group, seen.session].contains(&leader);
            with_leader || strays.contains(&seen.pid)
        };
        let mut tree: Vec<Seen> = self.all.iter().copied().filter(belongs).collect();
        let mut known: HashSet<i32> = tree.iter().map(|seen| seen.pid).collect();
        let mut children: HashMap<i32, Vec<Seen>> = HashMap::new();
        for seen in &self.all {
            children.entry(seen.parent).or_default().push(*seen);
        }
        let mut at = 0;
        while let Some(parent) = tree.get(at) {
            for child in children.get(&parent.pid).into_iter().flatten() {
                if known.insert(child.pid) {
                    tree.push(*child);
                }
            }
            at += 1;
        }
        tree
    }

    pub(super) fn usage(&self, leader: i32, mark: &str) -> Usage {
        let tree = self.tree(leader, mark);
        let running = tree.iter().filter(|seen| !seen.ended);
        let pages: u64 = running.clone().map(|seen| seen.pages).sum();
        let ticks: u64 = running.clone().map(|seen| seen.ticks).sum();
        let seconds = Duration::from_secs(ticks);
        Usage {
            processes: running.count(),
            memory: pages.saturating_mul(u64::try_from(page_size()).unwrap_or(4096)),
            processor: seconds
                / u32::try_from(clock_ticks_per_second())
                    .unwrap_or(100)
                    .max(1),
        }
    }
}
