//! Asks that wait on this node until any node has a value for them.
//!
//! The first of a line looks for values, and the others wait for their turn. While a range is
//! waited for, all nodes know, and asks that come later stand back.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// The lines of a node.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The turns of each queue, by its name.
    turns: Mutex<BTreeMap<Box<str>, Weak<Turn<()>>>>,
    /// How many asks wait for values of each range.
    waiting: Arc<Mutex<BTreeMap<Box<str>, usize>>>,
}

/// An ask waits for values of these ranges until this is dropped.
#[must_use = "it ends at once otherwise"]
#[derive(Debug)]
pub(crate) struct WaitingRanges {
    ranges: Vec<Box<str>>,
    waiting: Arc<Mutex<BTreeMap<Box<str>, usize>>>,
}

impl Lines {
    /// The line of this name. Its lock is had in turn.
    pub(crate) fn line(&self, name: &str) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock();
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::new(()));
        turns.insert(name.into(), Arc::downgrade(&turn));
        turn
    }

    /// An ask waits for values of these ranges.
    pub(crate) fn wait_for(&self, ranges: Vec<Box<str>>) -> WaitingRanges {
        let mut waiting = self.waiting.lock();
        for range in &ranges {
            *waiting.entry(range.clone()).or_default() += 1;
        }
        drop(waiting);
        let waiting = Arc::clone(&self.waiting);
        WaitingRanges { ranges, waiting }
    }

    /// Does an ask wait here for values of a range?
    pub(crate) fn is_waited(&self, range: &str) -> bool {
        self.waiting.lock().contains_key(range)
    }
}

impl Drop for WaitingRanges {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        for range in &self.ranges {
            if let Some(count) = waiting.get_mut(range) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(range);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_waited_for_until_the_last_ask_is_over() {
        let lines = Lines::default();
        let one = lines.wait_for(vec!["a".into(), "b".into()]);
        let two = lines.wait_for(vec!["a".into()]);
        drop(one);
        assert!(lines.is_waited("a") && !lines.is_waited("b"));
        drop(two);
        assert!(!lines.is_waited("a"));
    }

    #[test]
    fn a_line_is_one_as_long_as_an_ask_is_in_it() {
        let lines = Lines::default();
        let one = lines.line("a");
        assert!(Arc::ptr_eq(&one, &lines.line("a")));
        let held = one.try_lock().unwrap();
        assert!(lines.line("a").try_lock().is_err());
        assert!(lines.line("b").try_lock().is_ok());
        drop(held);
    }
}
