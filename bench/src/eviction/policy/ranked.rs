//! Policies: the app that ranks lowest goes, where ranks follow from how often
//! an app was asked for and what its start costs.

use std::collections::HashMap;

use super::{Ask, Policy};

pub(super) struct Ranked {
    max: usize,
    rank: fn(&Ask, count: f64, floor: f64) -> f64,
    /// Whether counts outlive processes.
    remembers: bool,
    counts: HashMap<u32, f64>,
    /// Apps and their ranks, the one asked for last at the end.
    here: Vec<(u32, f64)>,
    /// The rank of the last app that went: one that comes later starts from
    /// there.
    floor: f64,
}

/// Fewest requests since the process started.
pub(super) fn lfu_in_pool(max: usize) -> Ranked {
    Ranked::new(max, |_, count, _| count, false)
}

/// Fewest requests ever.
pub(super) fn lfu(max: usize) -> Ranked {
    Ranked::new(max, |_, count, _| count, true)
}

/// Recency, stretched by what a start costs.
pub(super) fn greedy_dual(max: usize) -> Ranked {
    Ranked::new(max, |ask, _, floor| floor + ask.cost, false)
}

/// The same, stretched by the number of requests as well.
pub(super) fn gdsf(max: usize) -> Ranked {
    Ranked::new(max, |ask, count, floor| floor + ask.cost * count, false)
}

impl Ranked {
    fn new(max: usize, rank: fn(&Ask, f64, f64) -> f64, remembers: bool) -> Self {
        Self {
            max,
            rank,
            remembers,
            counts: HashMap::new(),
            here: Vec::new(),
            floor: 0.0,
        }
    }

    fn evict(&mut self) {
        let ranks = self.here.iter().map(|(_, rank)| *rank).enumerate();
        let least = ranks.min_by(|one, other| one.1.total_cmp(&other.1));
        let (victim, rank) = least.expect("there is a place");
        let (app, _) = self.here.remove(victim);
        self.floor = rank;
        if !self.remembers {
            self.counts.remove(&app);
        }
    }
}

impl Policy for Ranked {
    fn ask(&mut self, ask: &Ask) -> bool {
        let place = self.here.iter().position(|(app, _)| *app == ask.app);
        match place {
            Some(place) => drop(self.here.remove(place)),
            None if self.here.len() == self.max => self.evict(),
            None => (),
        }
        let count = self.counts.entry(ask.app).or_insert(0.0);
        *count += 1.0;
        self.here
            .push((ask.app, (self.rank)(ask, *count, self.floor)));
        place.is_none()
    }
}
