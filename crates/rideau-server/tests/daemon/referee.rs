//! Watches which clients believe to hold what, and knows nothing of the server.
//!
//! A client that is told `go` registers here, and is struck off before it
//! releases or is killed. So nothing can be held by two here unless the server
//! has lent it twice.

use std::collections::HashMap;
use std::sync::Mutex;

/// What clients believe to hold.
#[derive(Default)]
pub(crate) struct Referee(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// How many hold each thing.
    held: HashMap<String, usize>,
    /// The highest fence of each key.
    fences: HashMap<String, i64>,
    grants: usize,
}

impl Referee {
    /// A client was granted a thing of which this many can be held.
    pub(crate) fn hold(&self, thing: &str, most: usize) {
        let mut book = self.0.lock().unwrap();
        book.grants += 1;
        let held = book.held.entry(thing.into()).or_default();
        *held += 1;
        assert!(*held <= most, "{thing} is held by {held}, and {most} may");
    }

    /// A client is about to give it back, or to die.
    pub(crate) fn strike(&self, thing: &str) {
        let mut book = self.0.lock().unwrap();
        *book.held.get_mut(thing).expect("it was held") -= 1;
    }

    /// The highest fence that a client was told, to be read before an ask.
    pub(crate) fn fence(&self, key: &str) -> i64 {
        let book = self.0.lock().unwrap();
        book.fences.get(key).copied().unwrap_or_default()
    }

    /// A client was told a fence, after it knew of the one before.
    pub(crate) fn fenced(&self, key: &str, before: i64, fence: i64) {
        assert!(fence > before, "{key}: fence {fence} after {before}");
        let mut book = self.0.lock().unwrap();
        let highest = book.fences.entry(key.into()).or_default();
        *highest = fence.max(*highest);
    }

    /// How often something was granted.
    pub(crate) fn grants(&self) -> usize {
        self.0.lock().unwrap().grants
    }

    /// Nothing is held.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.lock().unwrap().held.values().all(|held| *held == 0)
    }
}
