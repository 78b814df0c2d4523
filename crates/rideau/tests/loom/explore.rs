//! Runs a model in every interleaving, for the models of the public handles and
//! for those beside the code.

use std::collections::BTreeSet;
use std::env;
use std::sync::{Arc, Mutex};

use loom::model::Builder;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

/// This many times may a thread be stopped where it could go on.
const PREEMPTIONS: usize = 5;
/// The same where `RIDEAU_SOAK` is set: more than any model can use. With no
/// bound at all loom would try fewer places to stop at.
const PREEMPTIONS_SOAK: usize = 100;

/// Every end that a model has, in order.
#[allow(dead_code, reason = "large models bound their preemptions themselves")]
pub(crate) fn explore<T>(model: impl Fn() -> T + Send + Sync + 'static) -> Vec<T>
where
    T: Ord + Clone + Send + 'static,
{
    explore_within(PREEMPTIONS, model)
}

/// The same with this many preemptions, if this is no soak.
pub(crate) fn explore_within<T>(
    preemptions: usize,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> Vec<T>
where
    T: Ord + Clone + Send + 'static,
{
    let ends = Arc::new(Mutex::new((0, BTreeSet::new())));
    let seen = Arc::clone(&ends);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(match env::var_os("RIDEAU_SOAK") {
        None => preemptions,
        Some(_) => PREEMPTIONS_SOAK,
    });
    builder.check(move || {
        let end = model();
        let mut seen = seen.lock().unwrap();
        seen.0 += 1;
        seen.1.insert(end);
    });
    let (runs, ends) = &*ends.lock().unwrap();
    println!("{runs} interleavings");
    ends.iter().cloned().collect()
}

/// Run two at once, each on a thread of its own.
///
/// Loom swaps two steps only if it sees that they depend on each other, and it
/// overlooks that where a thread reads an atomic before it changes it. The
/// gate lets it begin with either.
pub(crate) fn at_once<S, T>(
    one: impl FnOnce() -> S,
    other: impl FnOnce() -> T + Send + 'static,
) -> (S, T)
where
    T: Send + 'static,
{
    let gate = Arc::new(AtomicUsize::new(0));
    let other = thread::spawn({
        let gate = Arc::clone(&gate);
        move || {
            gate.fetch_add(1, Relaxed);
            other()
        }
    });
    gate.fetch_add(1, Relaxed);
    let one = one();
    (one, other.join().unwrap())
}
