//! Chooses one of several brokers, regulators or whatever can be asked.
//!
//! It asks no candidate: a choice compares what meters have published, if it
//! compares anything.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;
use rideau_core::balancer::Method;
use rideau_core::{Rng, Side};

use crate::meter_outputs::Rank;
use crate::seed::seed;

/// Candidates by name, and how one of them is chosen.
///
/// Choices share its lock; only a call that adds or removes takes it alone.
pub struct Balancer<T> {
    method: Method,
    side: Side,
    candidates: RwLock<Vec<Candidate<T>>>,
}

struct Candidate<T> {
    name: String,
    value: Arc<T>,
    rank: Option<Arc<Rank>>,
}

impl<T> Balancer<T> {
    /// A balancer without candidates, for callers that come to `side`.
    pub fn new(method: Method, side: Side) -> Self {
        Self {
            method,
            side,
            candidates: RwLock::new(Vec::new()),
        }
    }

    /// Let `name` be chosen as well. `rank` is what its meter publishes; a
    /// candidate that has none loses every comparison.
    ///
    /// A candidate that had that name is replaced in its place, so that one that
    /// started anew takes its old callers over, and is handed back.
    pub fn add(&self, name: &str, value: T, rank: Option<Arc<Rank>>) -> Option<Arc<T>> {
        let candidate = Candidate {
            name: name.into(),
            value: Arc::new(value),
            rank,
        };
        let mut candidates = self.candidates.write();
        let known = candidates.iter_mut().find(|known| known.name == name);
        let Some(known) = known else {
            candidates.push(candidate);
            return None;
        };
        Some(std::mem::replace(known, candidate).value)
    }

    /// `name` is chosen no more. Hands it back, if it was there.
    pub fn remove(&self, name: &str) -> Option<Arc<T>> {
        let mut candidates = self.candidates.write();
        let at = candidates.iter().position(|known| known.name == name)?;
        Some(candidates.remove(at).value)
    }

    /// One of the candidates. None if there is no candidate, or if two were to be
    /// compared of which neither has published anything.
    pub fn choose(&self) -> Option<Arc<T>> {
        let candidates = self.candidates.read();
        let expects = |at: usize| candidates[at].rank.as_ref()?.expects(self.side);
        let at = LOCAL.with(|local| {
            let mut rng = local.rng.borrow_mut();
            self.method
                .choose(candidates.len(), local.index, expects, &mut rng)
        })?;
        Some(Arc::clone(&candidates[at].value))
    }

    /// How many candidates there are.
    pub fn len(&self) -> usize {
        self.candidates.read().len()
    }

    /// There are no candidates.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the candidates, in their order.
    pub fn names(&self) -> Vec<String> {
        let candidates = self.candidates.read();
        candidates.iter().map(|known| known.name.clone()).collect()
    }
}

impl<T> fmt::Debug for Balancer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("method", &self.method)
            .field("side", &self.side)
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

/// The state of one thread, so that a choice touches no shared memory.
struct Local {
    /// How many threads chose before this one.
    index: usize,
    rng: RefCell<Rng>,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: Local = Local {
        index: THREADS.fetch_add(1, Relaxed),
        rng: RefCell::new(Rng::new(seed())),
    };
}
