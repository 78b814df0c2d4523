//! Where nodes of a test keep their logs, as etcd keeps them: a log for each life of a
//! node, and for each partition an owner, a snapshot and the parts of logs that count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rideau::allocator::{
    Ask, Change, Class, Fields, Options, Place, Prefer, RangeOptions, Reservation, Restore, Span,
    Start, Which,
};
use rideau::cluster::Partitions;
use rideau::store::{OwnedSection, PartitionHost, PartitionLog, PartitionsLost, Piece};
use rideau::{Answer, Failed, ManualClocks, Ranges, RangesHost, RangesOptions};

pub(crate) const COUNT: u32 = 4;
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// For so long it is not known of a new cluster what is held in memory.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(60);
/// A test that waits longer for something waits in vain.
const PATIENCE: Duration = Duration::from_secs(30);

/// One life of a node.
pub(crate) type Life = u32;

/// All that outlives nodes.
#[derive(Clone)]
pub(crate) struct KeptLogs(Arc<Kept>);

struct Kept {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct State {
    owners: Vec<Owner>,
    logs: BTreeMap<Life, Vec<Batch>>,
    /// Lives whose keys are gone,
    dead: BTreeSet<Life>,
    /// and those that cannot reach anything.
    unsure: BTreeSet<Life>,
    /// Appends of these wait,
    held: BTreeSet<Life>,
    /// but for this many.
    allowed: usize,
    /// Where the log was when a snapshot began.
    begun: BTreeMap<(u32, u64), usize>,
    /// What the hosts told.
    closed: BTreeSet<(u32, u64)>,
    pub(crate) spent: Vec<(u32, u64)>,
    pub(crate) snapshots: Vec<(u32, u64, usize)>,
    /// The bytes of all calls,
    pub(crate) calls: Vec<usize>,
    /// and how many of them wait.
    waiting: usize,
    pub(crate) len_max: usize,
    /// When anything of a partition was written last, by the time of all.
    pub(crate) written_at: BTreeMap<u32, Duration>,
    pub(crate) time: Duration,
    /// What each life has heard of all epochs: no more than when it last got a partition.
    known: BTreeMap<Life, Vec<u64>>,
}

struct Batch(Vec<(u32, u64, Vec<u8>)>);

#[derive(Clone, Default)]
struct Owner {
    epoch: u64,
    life: Option<Life>,
    is_open: bool,
    chunks: Vec<Vec<u8>>,
    /// Epoch, log and the first batch that counts.
    segments: Vec<(u64, Life, usize)>,
}

/// A node that is up.
pub(crate) struct Node {
    kept_logs: KeptLogs,
    pub(crate) life: Life,
    pub(crate) ranges: Ranges,
    pub(crate) host: RangesHost,
    pub(crate) clocks: ManualClocks,
}

struct NodeLog {
    kept_logs: KeptLogs,
    life: Life,
}

impl KeptLogs {
    pub(crate) fn new() -> Self {
        let state = State {
            owners: vec![Owner::default(); COUNT as usize],
            logs: BTreeMap::new(),
            dead: BTreeSet::new(),
            unsure: BTreeSet::new(),
            held: BTreeSet::new(),
            allowed: 0,
            begun: BTreeMap::new(),
            closed: BTreeSet::new(),
            spent: Vec::new(),
            snapshots: Vec::new(),
            calls: Vec::new(),
            waiting: 0,
            len_max: 256 * 1024,
            written_at: BTreeMap::new(),
            time: Duration::ZERO,
            known: BTreeMap::new(),
        };
        Self(Arc::new(Kept {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// A node starts, without partitions.
    pub(crate) fn start(&self, options: RangesOptions) -> Node {
        let clocks = ManualClocks::new();
        let mut state = self.state();
        let life = state.logs.len() as Life;
        state.logs.insert(life, Vec::new());
        // No two nodes have the same clock.
        clocks.advance(Duration::from_secs(u64::from(life) * 777));
        drop(state);
        let log = Arc::new(NodeLog {
            kept_logs: self.clone(),
            life,
        });
        let (ranges, host) = Ranges::in_cluster_by(options, log, &clocks).unwrap();
        Node {
            kept_logs: self.clone(),
            life,
            ranges,
            host,
            clocks,
        }
    }

    /// A node with all partitions.
    pub(crate) fn start_with_all(&self, options: RangesOptions) -> Node {
        let node = self.start(options);
        (0..COUNT).for_each(|partition| self.take(partition, &node));
        node
    }

    /// The partition belongs to this node in a new epoch, which loads it.
    pub(crate) fn load(&self, partition: u32, node: &Node) -> u64 {
        let mut state = self.state();
        let pieces = state.pieces(partition);
        let at = state.logs[&node.life].len();
        let owner = &mut state.owners[partition as usize];
        owner.epoch += 1;
        owner.life = Some(node.life);
        owner.is_open = false;
        owner.segments.push((owner.epoch, node.life, at));
        let (epoch, chunks) = (owner.epoch, owner.chunks.clone());
        let epochs = state.owners.iter().map(|owner| owner.epoch).collect();
        state.known.insert(node.life, epochs);
        drop(state);
        let chunks = chunks.iter().map(|chunk| Piece::Snapshot(chunk));
        let sections = pieces.iter().map(|bytes| Piece::Batch(bytes));
        let pieces: Vec<Piece<'_>> = chunks.chain(sections).collect();
        node.host.load(partition, epoch, &pieces).unwrap();
        epoch
    }

    /// The owner begins.
    pub(crate) fn begin(&self, partition: u32, node: &Node) {
        let mut state = self.state();
        let epoch = state.owners[partition as usize].epoch;
        state.closed.remove(&(partition, epoch));
        drop(state);
        node.host.begin(partition, epoch);
        // It is served when the host knows, and not before.
        self.state().owners[partition as usize].is_open = true;
    }

    pub(crate) fn take(&self, partition: u32, node: &Node) {
        self.load(partition, node);
        self.begin(partition, node);
    }

    /// The owner closes the partition, and has said that all is written.
    pub(crate) fn close(&self, partition: u32, node: &Node) {
        let epoch = self.close_soon(partition, node);
        self.until(|state| state.closed.contains(&(partition, epoch)));
    }

    pub(crate) fn close_soon(&self, partition: u32, node: &Node) -> u64 {
        let mut state = self.state();
        let owner = &mut state.owners[partition as usize];
        owner.is_open = false;
        let epoch = owner.epoch;
        drop(state);
        node.host.close(partition, epoch);
        epoch
    }

    pub(crate) fn hand_over(&self, partition: u32, from: &Node, to: &Node) {
        self.close(partition, from);
        self.load(partition, to);
        from.host.end(partition);
        self.begin(partition, to);
    }

    /// The owner goes on in a new epoch.
    pub(crate) fn raise(&self, partition: u32, node: &Node) {
        self.close(partition, node);
        self.raise_closed(partition, node);
    }

    pub(crate) fn raise_closed(&self, partition: u32, node: &Node) {
        let mut state = self.state();
        let at = state.logs[&node.life].len();
        let owner = &mut state.owners[partition as usize];
        owner.epoch += 1;
        owner.segments.push((owner.epoch, node.life, at));
        drop(state);
        self.begin(partition, node);
    }

    /// The partition has no owner any more, and its node has not heard.
    pub(crate) fn lose(&self, partition: u32) {
        let mut state = self.state();
        let owner = &mut state.owners[partition as usize];
        (owner.life, owner.is_open) = (None, false);
    }

    /// The node is gone without a word.
    pub(crate) fn kill(&self, node: Node) {
        let mut state = self.state();
        state.dead.insert(node.life);
        for owner in &mut state.owners {
            if owner.life == Some(node.life) {
                (owner.life, owner.is_open) = (None, false);
            }
        }
        drop(state);
        self.0.changed.notify_all();
        drop(node);
    }

    /// The node cannot tell whether it still owns what it has, or can again.
    pub(crate) fn set_unsure(&self, node: &Node, is_unsure: bool) {
        let mut state = self.state();
        match is_unsure {
            true => state.unsure.insert(node.life),
            false => state.unsure.remove(&node.life),
        };
    }

    /// What the node appends waits from now on, or goes on.
    pub(crate) fn hold(&self, life: Life, is_held: bool) {
        let mut state = self.state();
        match is_held {
            true => state.held.insert(life),
            false => state.held.remove(&life),
        };
        drop(state);
        self.0.changed.notify_all();
    }

    /// One of the appends that wait goes on, and the next waits.
    pub(crate) fn let_one_go(&self) {
        let mut state = self.state();
        let calls = state.calls.len();
        state.allowed = 1;
        drop(state);
        self.0.changed.notify_all();
        self.until(|state| state.calls.len() > calls && state.waiting > 0);
    }

    /// Wait until an append waits.
    pub(crate) fn until_held(&self) {
        self.until(|state| state.waiting > 0);
    }

    pub(crate) fn until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.state();
        let end = Instant::now() + PATIENCE;
        while !is_so(&state) {
            let late = self.0.changed.wait_until(&mut state, end).timed_out();
            assert!(!late, "it does not happen");
        }
    }

    pub(crate) fn owner(&self, partition: u32) -> Option<Life> {
        self.state().owners[partition as usize].life
    }

    pub(crate) fn epoch(&self, partition: u32) -> u64 {
        self.state().owners[partition as usize].epoch
    }

    pub(crate) fn set_epoch(&self, partition: u32, epoch: u64) {
        self.state().owners[partition as usize].epoch = epoch;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // What it has to write at its end must not wait, also where a test has failed.
        self.kept_logs.hold(self.life, false);
    }
}

impl State {
    /// What counts of a partition, but for its snapshot.
    pub(crate) fn pieces(&self, partition: u32) -> Vec<Vec<u8>> {
        let owner = &self.owners[partition as usize];
        let mut pieces = Vec::new();
        for (epoch, life, from) in &owner.segments {
            let batches = self.logs[life].iter().skip(*from);
            let sections = batches.flat_map(|batch| &batch.0);
            let wanted = sections.filter(|(of, at, _)| (*of, at) == (partition, epoch));
            pieces.extend(wanted.map(|(_, _, bytes)| bytes.clone()));
        }
        pieces
    }

    /// What the clock of a partition showed when it was written last, in nanoseconds.
    pub(crate) fn clock(&self, partition: u32) -> Option<u64> {
        let mut restore = Restore::new(&Options::default(), Vec::new()).unwrap();
        let chunks = self.owners[partition as usize].chunks.iter();
        for bytes in chunks.chain(&self.pieces(partition)) {
            restore.read(bytes).unwrap();
        }
        restore.clock().map(|clock| clock.now.as_nanos())
    }

    /// How many sections were ever written of a partition.
    pub(crate) fn sections(&self, partition: u32) -> usize {
        let batches = self.logs.values().flatten();
        let sections = batches.flat_map(|batch| &batch.0);
        sections.filter(|(of, ..)| *of == partition).count()
    }

    pub(crate) fn is_closed(&self, partition: u32, epoch: u64) -> bool {
        self.closed.contains(&(partition, epoch))
    }

    fn is_held(&self, life: Life) -> bool {
        self.allowed == 0 && self.held.contains(&life) && !self.dead.contains(&life)
    }

    fn owns(&self, life: Life, partition: u32, epoch: u64) -> bool {
        let owner = &self.owners[partition as usize];
        !self.dead.contains(&life) && (owner.life, owner.epoch) == (Some(life), epoch)
    }
}

impl PartitionLog for NodeLog {
    fn serves(&self, partition: u32) -> Option<u64> {
        let state = self.kept_logs.state();
        let owner = &state.owners[partition as usize];
        let is_served = owner.life == Some(self.life) && owner.is_open;
        let is_sure = !state.unsure.contains(&self.life) && !state.dead.contains(&self.life);
        (is_served && is_sure).then_some(owner.epoch)
    }

    fn newest(&self, partition: u32) -> u64 {
        let known = self.kept_logs.state().known.get(&self.life).cloned();
        known.map_or(0, |known| known[partition as usize])
    }

    fn append(&self, sections: &[OwnedSection<'_>]) -> Result<(), PartitionsLost> {
        let kept = &*self.kept_logs.0;
        let mut state = kept.state.lock();
        state.waiting += 1;
        let time = state.time;
        kept.changed.notify_all();
        while state.is_held(self.life) {
            kept.changed.wait(&mut state);
        }
        state.allowed = state.allowed.saturating_sub(1);
        state.waiting -= 1;
        assert!(!sections.is_empty(), "a call has something to write");
        let len = sections.iter().map(|section| section.bytes.len()).sum();
        state.calls.push(len);
        let mut lost = Vec::new();
        let mut batch = Vec::new();
        for section in sections {
            let OwnedSection {
                partition, epoch, ..
            } = *section;
            if state.owns(self.life, partition, epoch) {
                let is_closed = state.is_closed(partition, epoch);
                assert!(!is_closed, "it was said that nothing more comes");
                batch.push((partition, epoch, section.bytes.to_vec()));
                state.written_at.insert(partition, time);
            } else {
                lost.push(partition);
            }
        }
        let log = state.logs.get_mut(&self.life).unwrap();
        log.push(Batch(batch));
        kept.changed.notify_all();
        match lost.is_empty() {
            true => Ok(()),
            false => Err(PartitionsLost { partitions: lost }),
        }
    }

    fn append_len_max(&self) -> usize {
        self.kept_logs.state().len_max
    }

    fn closed(&self, partition: u32, epoch: u64) {
        let mut state = self.kept_logs.state();
        state.closed.insert((partition, epoch));
        self.kept_logs.0.changed.notify_all();
    }

    fn spent(&self, partition: u32, epoch: u64) {
        self.kept_logs.state().spent.push((partition, epoch));
        self.kept_logs.0.changed.notify_all();
    }

    fn snapshot_begun(&self, partition: u32, epoch: u64) {
        let mut state = self.kept_logs.state();
        let at = state.logs[&self.life].len();
        state.begun.insert((partition, epoch), at);
    }

    fn snapshotted(&self, partition: u32, epoch: u64, chunks: Vec<Vec<u8>>) {
        let mut state = self.kept_logs.state();
        let from = state.begun.remove(&(partition, epoch)).unwrap();
        if state.owns(self.life, partition, epoch) {
            let owner = &mut state.owners[partition as usize];
            let count = chunks.len();
            owner.chunks = chunks;
            owner.segments = vec![(epoch, self.life, from)];
            state.snapshots.push((partition, epoch, count));
        }
        self.kept_logs.0.changed.notify_all();
    }
}

/// A range of each class, of which each partition has its share.
pub(crate) fn options() -> RangesOptions {
    let classes = [
        ("sync", Class::Sync, "0-399"),
        ("memory", Class::Memory, "1000-1399"),
        ("claimed", Class::Claimed, "2000-2399"),
    ];
    let ranges = classes.map(|(name, class, span)| {
        let options = RangeOptions {
            class,
            offer_ttl: HOUR,
            ttl: HOUR,
            start: match class {
                Class::Memory => Start::Quarantine,
                Class::Sync | Class::Claimed => Start::Free,
            },
            quarantine: QUARANTINE,
            ..RangeOptions::new(vec![Span::parse(span).unwrap()])
        };
        (name.to_owned(), options)
    });
    RangesOptions {
        ranges: ranges.into(),
        partitions: partitions(),
        ..RangesOptions::default()
    }
}

pub(crate) fn partitions() -> Partitions {
    Partitions::new(COUNT, 0).unwrap()
}

pub(crate) fn anywhere(ranges: &Ranges, range: &str) -> [Prefer; 1] {
    let id = ranges.range(range).unwrap();
    [Prefer {
        tier: 0,
        place: Place::Range(id),
    }]
}

pub(crate) fn reserve(node: &Node, range: &str) -> Answer<Vec<Reservation>> {
    node.ranges
        .reserve(&Ask::new(&anywhere(&node.ranges, range)))
}

pub(crate) fn reserved(node: &Node, range: &str) -> Reservation {
    reserve(node, range).wait().unwrap()[0]
}

/// Take this very value, for an hour.
pub(crate) fn claim(node: &Node, value: u128) -> Answer<rideau::allocator::Held> {
    const NONE: &Fields = &Fields::new();
    node.ranges.claim(value, &Change::new(NONE))
}

/// The fence of the holder of a value, if it has one.
pub(crate) fn holder(node: &Node, value: u128) -> Option<u64> {
    let seen = node.ranges.lookup(Which::Value(value)).wait().unwrap();
    seen.first().map(|seen| seen.fence)
}

/// Wait until an answer may be told or has failed, however long it is held up.
pub(crate) fn outcome<T>(answer: Answer<T>) -> Result<T, Failed> {
    let (decision, until) = answer.into_parts();
    let end = Instant::now() + PATIENCE;
    while !until.is_reached()? {
        assert!(Instant::now() < end, "no answer comes");
        thread::sleep(Duration::from_millis(1));
    }
    decision
}

/// Wait until it is so.
pub(crate) fn eventually(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}
