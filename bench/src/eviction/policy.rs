//! Ways to choose which app loses its process.
//!
//! All get the same: which app is asked for, when, and what its start costs. A
//! request always needs its app's process, so none can be turned away.

mod arc;
mod ours;
mod ranked;
mod sieve;

use rideau_core::{Instant, Rng};

/// A pool of names.
pub(crate) trait Policy {
    /// A request for an app. Returns whether it has to be started.
    fn ask(&mut self, ask: &Ask) -> bool;
}

/// The app that is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) app: u32,
    pub(crate) cost: f64,
    pub(crate) at: Instant,
}

/// A way to choose, and how to begin with an empty pool of `max`.
#[derive(Clone, Copy)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) start: fn(max: usize) -> Box<dyn Policy>,
}

/// With ours last, as in the tables.
pub(crate) const CONTESTANTS: [Contestant; 10] = [
    of("random", |max| Box::new(Random::new(max))),
    of("fifo", |max| Box::new(InOrder::new(max, Moves::Never))),
    of(LRU, |max| Box::new(InOrder::new(max, Moves::WhenAsked))),
    of("sieve", |max| Box::new(sieve::Sieve::new(max))),
    of("arc", |max| Box::new(arc::Arc::new(max))),
    of("lfu-in", |max| Box::new(ranked::lfu_in_pool(max))),
    of("lfu", |max| Box::new(ranked::lfu(max))),
    of("greedy", |max| Box::new(ranked::greedy_dual(max))),
    of("gdsf", |max| Box::new(ranked::gdsf(max))),
    of(crate::report::OURS, |max| Box::new(ours::Ours::new(max))),
];

pub(crate) const LRU: &str = "lru";

const fn of(name: &'static str, start: fn(usize) -> Box<dyn Policy>) -> Contestant {
    Contestant { name, start }
}

/// Any app goes.
struct Random {
    max: usize,
    here: Vec<u32>,
    rng: Rng,
}

impl Random {
    const fn new(max: usize) -> Self {
        Self {
            max,
            here: Vec::new(),
            rng: Rng::new(1),
        }
    }
}

impl Policy for Random {
    fn ask(&mut self, ask: &Ask) -> bool {
        let miss = !self.here.contains(&ask.app);
        if miss {
            if self.here.len() == self.max {
                let victim = self.rng.below(self.max as u64) as usize;
                self.here.swap_remove(victim);
            }
            self.here.push(ask.app);
        }
        miss
    }
}

/// The first in line goes.
struct InOrder {
    max: usize,
    here: Vec<u32>,
    moves: Moves,
}

/// When an app goes to the end of the line.
#[derive(PartialEq)]
enum Moves {
    Never,
    WhenAsked,
}

impl InOrder {
    const fn new(max: usize, moves: Moves) -> Self {
        Self {
            max,
            here: Vec::new(),
            moves,
        }
    }
}

impl Policy for InOrder {
    fn ask(&mut self, ask: &Ask) -> bool {
        let place = self.here.iter().position(|known| *known == ask.app);
        match place {
            Some(_) if self.moves == Moves::Never => return false,
            Some(place) => drop(self.here.remove(place)),
            None if self.here.len() == self.max => drop(self.here.remove(0)),
            None => (),
        }
        self.here.push(ask.app);
        place.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five apps on three places; what follows was worked out by hand.
    const SCRIPT: &str = "abcadaebaabcdbbeac";

    #[test]
    fn simple_policies_keep_the_apps_they_should() {
        check("fifo", "abc.daeb...cd..eac");
        check("lru", "abc.d.eb...cd..eac");
        check("sieve", "abc.d.eb...cd..e.c");
    }

    #[test]
    fn no_policy_starts_an_app_twice_in_a_row_or_fewer_than_there_are() {
        for contestant in &CONTESTANTS {
            let mut policy = (contestant.start)(3);
            let mut rng = Rng::new(5);
            let mut starts = 0;
            for second in 0..2000 {
                let ask = ask(rng.below(9) as u32, second);
                starts += usize::from(policy.ask(&ask));
                assert!(!policy.ask(&ask), "{}", contestant.name);
            }
            // Two of three draws find another app than the three that are here.
            assert!(
                (1200..1450).contains(&starts),
                "{} {starts}",
                contestant.name
            );
        }
    }

    #[test]
    fn all_policies_keep_every_app_where_there_is_room() {
        for contestant in &CONTESTANTS {
            let mut policy = (contestant.start)(9);
            let mut rng = Rng::new(5);
            let asks = (0..500).map(|second| ask(rng.below(9) as u32, second));
            let starts = asks.filter(|ask| policy.ask(ask)).count();
            assert_eq!(starts, 9, "{}", contestant.name);
        }
    }

    fn check(name: &str, expected: &str) {
        let contestant = CONTESTANTS.iter().find(|known| known.name == name).unwrap();
        let mut policy = (contestant.start)(3);
        let shown: String = SCRIPT
            .bytes()
            .zip(0..)
            .map(|(app, second)| match policy.ask(&ask(app.into(), second)) {
                true => char::from(app),
                false => '.',
            })
            .collect();
        assert_eq!(shown, expected, "{name}");
    }

    fn ask(app: u32, second: u64) -> Ask {
        Ask {
            app,
            cost: 1.0,
            at: Instant::from_nanos(second * 1_000_000_000),
        }
    }
}
