//! What holds in every interleaving of threads that share a porch of two lines.

#[path = "../../../tests/loom/explore.rs"]
mod explore;

use std::sync::Arc;

use super::*;
use explore::{at_once, explore};

/// A porch and its cells, as all threads see them.
#[derive(Clone)]
struct Shared(Arc<(Porch, Slots<Cell>)>);

/// All cells that a porch of two lines is opened with.
const GIVEN: usize = 2 * CELLS;

impl Shared {
    fn open() -> Self {
        let shared = Self(Arc::new((Porch::new(2), Slots::new(Cell::new, GIVEN))));
        let mut cells = 0..GIVEN as u32;
        let cell = || cells.next().expect("so many are given");
        shared.0.0.open(Duration::MAX, &mut Vec::new(), cell);
        shared
    }

    fn wait(&self, line: usize, sent: u64) -> bool {
        let (porch, cells) = &*self.0;
        let sent = Instant::from_nanos(sent);
        let waker = Waker::noop();
        porch
            .wait_near(line, &Terms::new(sent), waker, cells)
            .is_some()
    }

    /// When the one came who is served from this line, if somebody is.
    fn serve(&self, line: usize) -> Option<u64> {
        let (porch, cells) = &*self.0;
        let now = Instant::from_nanos(100);
        let turn = porch.turn_near(line, now)?;
        let sent = turn.crowd.waiting.front()?.sent.as_nanos();
        turn.serve((0, NO_CELL), Duration::ZERO, now, cells);
        Some(sent)
    }

    /// When those came who are left, and how many cells there are.
    fn close(&self) -> (Vec<u64>, usize) {
        let (mut left, mut cells) = (Vec::new(), Vec::new());
        self.0.0.close(&mut left, &mut cells);
        cells.sort_unstable();
        cells.dedup();
        let sents = left.iter().map(|apart| apart.sent.as_nanos());
        (sents.collect(), cells.len())
    }
}

#[test]
fn who_comes_to_either_line_while_that_closes_is_taken_in_or_goes_elsewhere() {
    let ends = explore(|| {
        let porch = Shared::open();
        let wait = {
            let porch = porch.clone();
            move || (porch.wait(1, 1), porch.wait(0, 2))
        };
        let (waits, (mut left, cells)) = at_once(wait, {
            let porch = porch.clone();
            move || porch.close()
        });
        left.sort_unstable();
        let expected: Vec<u64> = [(waits.0, 1), (waits.1, 2)]
            .into_iter()
            .filter_map(|(waits, sent)| waits.then_some(sent))
            .collect();
        assert_eq!(left, expected);
        assert_eq!(cells + left.len(), GIVEN);
        assert_eq!(porch.close(), (vec![], 0));
        waits
    });
    // Once the first line is closed nobody comes to it; the other may still be
    // open then.
    assert_eq!(ends, [(false, false), (true, false), (true, true)]);
}

#[test]
fn who_comes_while_another_line_is_served_is_served_or_left() {
    let ends = explore(|| {
        let porch = Shared::open();
        let wait = {
            let porch = porch.clone();
            move || assert!(porch.wait(1, 7))
        };
        let ((), served) = at_once(wait, {
            let porch = porch.clone();
            move || porch.serve(0)
        });
        let (left, cells) = porch.close();
        let expected = if served.is_some() { vec![] } else { vec![7] };
        assert_eq!(left, expected);
        assert_eq!(cells, GIVEN - 1);
        served
    });
    assert_eq!(ends, [None, Some(7)]);
}

#[test]
fn one_who_waits_is_served_by_one_of_two() {
    let ends = explore(|| {
        let porch = Shared::open();
        assert!(porch.wait(0, 7));
        let serve = |line| {
            let porch = porch.clone();
            move || porch.serve(line)
        };
        let served = at_once(serve(0), serve(1));
        assert!(served.0.is_some() != served.1.is_some());
        assert_eq!(porch.close().0, [] as [u64; 0]);
        served.0.is_some()
    });
    assert_eq!(ends, [false, true]);
}

#[test]
fn a_cell_that_is_fetched_from_another_line_is_given_once() {
    let ends = explore(|| {
        let porch = Shared::open();
        for sent in 0..CELLS as u64 {
            assert!(porch.wait(0, sent));
        }
        let wait = |line, sent| {
            let porch = porch.clone();
            move || porch.wait(line, sent)
        };
        let waits = at_once(wait(0, 98), wait(1, 99));
        let (left, cells) = porch.close();
        let came = usize::from(waits.0) + usize::from(waits.1);
        assert_eq!(left.len(), CELLS + came);
        assert_eq!(cells, CELLS - came);
        waits
    });
    assert_eq!(ends, [(true, true)]);
}
