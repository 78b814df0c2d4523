//! Which node is asked for values: what every node has said that it has free.
//!
//! A node tells the others how much it has free of each range, whenever that has changed. So
//! an ask goes straight to a node that has what is wanted most. What nodes have said is old
//! by the time it is read: that there is nothing is said only when all of them were asked.

use std::collections::{BTreeMap, BTreeSet};

use super::records::Incarnation;

/// The free values that a node has of a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Digest {
    /// How many values can be given out.
    pub free: u64,
    /// Asks wait for values of it in a line on that node.
    pub is_waited: bool,
    /// Further counts, in the format of the machine that has the range.
    pub numbers: Vec<u8>,
}

/// The digests of other nodes, for all ranges.
#[derive(Clone, Debug, Default)]
pub struct Digests {
    all: BTreeMap<Incarnation, BTreeMap<Box<str>, Digest>>,
}

impl Digests {
    /// A node says what it has of a range.
    pub fn set(&mut self, range: &str, node: &Incarnation, digest: Digest) {
        let of = self.all.entry(node.clone()).or_default();
        of.insert(range.into(), digest);
    }

    /// Forgets the digests of a node.
    pub fn forget(&mut self, node: &Incarnation) {
        self.all.remove(node);
    }

    /// The digest of a node for a range, if any.
    pub fn of(&self, node: &Incarnation, range: &str) -> Option<&Digest> {
        self.all.get(node)?.get(range)
    }

    /// Does an ask wait on some other node for values of a range?
    pub fn is_waited(&self, range: &str) -> bool {
        let mut all = self.all.values().filter_map(|of| of.get(range));
        all.any(|digest| digest.is_waited)
    }

    /// How much a node says it has free of these ranges together.
    fn free(&self, node: &Incarnation, ranges: &[Box<str>]) -> u64 {
        let of = ranges.iter().filter_map(|range| self.of(node, range));
        of.fold(0, |sum, digest| sum.saturating_add(digest.free))
    }

    /// A node had none of these, whatever it had said.
    fn set_none(&mut self, node: &Incarnation, ranges: &[Box<str>]) {
        if let Some(of) = self.all.get_mut(node) {
            let named = of.iter_mut().filter(|(range, _)| ranges.contains(range));
            named.for_each(|(_, digest)| digest.free = 0);
        }
    }
}

/// Ranges that are wanted alike.
pub type Tier = Vec<Box<str>>;

/// One ask on its way to a node that has what it wants.
///
/// Every node is asked for values at most once, and for how much it has at most once, so it
/// ends.
#[derive(Clone, Debug)]
pub struct Search {
    tiers: Vec<Tier>,
    /// This many values are wanted, or none.
    count: u64,
    /// This node had too few,
    none_here: bool,
    /// and so had these, asked for values,
    had_none: BTreeSet<Incarnation>,
    /// and these have just said how much they have.
    counted: BTreeSet<Incarnation>,
    /// These could not be asked.
    silent: BTreeSet<Incarnation>,
}

/// The state that the next step of a search depends on.
#[derive(Clone, Copy)]
pub struct SearchView<'a> {
    /// The digests of other nodes.
    pub digests: &'a Digests,
    /// How much this node has free of a range.
    pub here: &'a dyn Fn(&str) -> u64,
    /// All other nodes that own partitions.
    pub others: &'a BTreeSet<Incarnation>,
    /// How many partitions no node serves.
    pub unserved: usize,
}

/// Where an ask goes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SearchStep {
    /// This node has what is wanted.
    Here,
    /// This one has it.
    Ask(Incarnation),
    /// None is known to have it: these are asked how much they have.
    Count(Vec<Incarnation>),
    /// No single node has enough, but all together have.
    Split,
    /// Nothing is free, and all nodes were asked.
    Nothing,
    /// Nothing is known to be free, and this node could not be asked.
    Silent(Incarnation),
    /// Nothing is known to be free, and this many partitions are served by no node.
    Unserved(usize),
}

impl Search {
    /// An ask for this many values, those of the first tier if there are any.
    pub fn new(tiers: Vec<Tier>, count: u64) -> Self {
        Self {
            tiers,
            count,
            none_here: false,
            had_none: BTreeSet::new(),
            counted: BTreeSet::new(),
            silent: BTreeSet::new(),
        }
    }

    /// The ranges that are wanted, of all tiers.
    pub fn ranges(&self) -> impl Iterator<Item = &str> + '_ {
        self.tiers.iter().flatten().map(|range| &**range)
    }

    /// Where the ask goes next.
    pub fn next(&self, view: SearchView<'_>) -> SearchStep {
        if let Some(step) = self.found(view) {
            return step;
        }
        let is_open = |node: &&Incarnation| {
            let is_known = self.counted.contains(*node) || self.silent.contains(*node);
            !is_known && !self.had_none.contains(*node)
        };
        let uncounted: Vec<Incarnation> = view.others.iter().filter(is_open).cloned().collect();
        if !uncounted.is_empty() {
            return SearchStep::Count(uncounted);
        }
        if self.count > 1 && self.total(view) >= self.count {
            return SearchStep::Split;
        }
        let mut silent = view.others.iter().filter(|node| self.silent.contains(node));
        match (view.unserved, silent.next()) {
            (0, None) => SearchStep::Nothing,
            (0, Some(node)) => SearchStep::Silent(node.clone()),
            (unserved, _) => SearchStep::Unserved(unserved),
        }
    }

    /// This node had too few after all.
    pub fn none_here(&mut self) {
        self.none_here = true;
    }

    /// A node had too few after all.
    pub fn had_none(&mut self, node: &Incarnation, digests: &mut Digests) {
        if self.count == 1 {
            digests.set_none(node, &self.tiers.concat());
        }
        self.had_none.insert(node.clone());
    }

    /// A node has just said how much it has, or could not be asked.
    pub fn counted(&mut self, node: &Incarnation, has_answered: bool) {
        let to = match has_answered {
            true => &mut self.counted,
            false => &mut self.silent,
        };
        to.insert(node.clone());
    }

    /// A node that has what is wanted: enough of it, and of the best tier that any has.
    fn found(&self, view: SearchView<'_>) -> Option<SearchStep> {
        let all = self.tiers.concat();
        let tiers: &[Tier] = match self.count {
            1 => &self.tiers,
            _ => std::slice::from_ref(&all),
        };
        tiers.iter().find_map(|tier| {
            if !self.none_here && free_here(view, tier) >= self.count {
                return Some(SearchStep::Here);
            }
            let others = view.others.iter();
            let others = others.filter(|node| !self.had_none.contains(*node));
            let has = others.map(|node| (view.digests.free(node, tier), node));
            let most = has.max_by_key(|(free, _)| *free);
            let (_, node) = most.filter(|(free, _)| *free >= self.count)?;
            Some(SearchStep::Ask(node.clone()))
        })
    }

    /// How much all nodes have together.
    fn total(&self, view: SearchView<'_>) -> u64 {
        let all = self.tiers.concat();
        let others = view.others.iter();
        let others = others.map(|node| view.digests.free(node, &all));
        others.fold(free_here(view, &all), u64::saturating_add)
    }
}

fn free_here(view: SearchView<'_>, ranges: &[Box<str>]) -> u64 {
    let free = ranges.iter().map(|range| (view.here)(range));
    free.fold(0, u64::saturating_add)
}
