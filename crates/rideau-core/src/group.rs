//! In which order several pools are asked for one member, and what their
//! refusals mean together.
//!
//! It knows no pool: the caller says how many there are and what each shows.

use std::cmp::Reverse;

use crate::balancer::ordered_pair;
use crate::refusal::{Reason, Refusal};
use crate::rng::Rng;

/// Which pool of a group is asked first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    /// Each is as likely as every other.
    #[default]
    Random,
    /// The better of two that are drawn at random: the one with an idle member,
    /// or else the one where fewer wait.
    BestOfTwo,
}

/// The numbers of a pool that a choice between pools uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// It hands members out, and can start them as far as is known.
    pub is_sound: bool,
    /// A member can be taken now.
    pub is_idle: bool,
    /// How many wait.
    pub len: usize,
}

impl Shown {
    /// The smaller, the better.
    fn rank(self) -> impl Ord {
        (Reverse(self.is_sound), Reverse(self.is_idle), self.len)
    }
}

/// All pools by their places, those to be asked first first.
#[derive(Clone, Debug)]
pub struct Order {
    first: [Option<usize>; 2],
    asked: usize,
    at: usize,
    stride: usize,
    /// Places that the walk has not come to.
    left: usize,
    pools: usize,
}

impl Method {
    /// The order in which one take asks this many pools. Each comes once.
    pub fn order(self, pools: usize, show: impl Fn(usize) -> Shown, rng: &mut Rng) -> Order {
        let mut order = Order::random(pools, rng);
        if self == Self::BestOfTwo && pools > 1 {
            let pairs = (pools * (pools - 1)) as u64;
            let (one, other) = ordered_pair(pools, rng.below(pairs));
            let best = match show(one).rank() <= show(other).rank() {
                true => [Some(one), Some(other)],
                false => [Some(other), Some(one)],
            };
            order.first = best;
        }
        order
    }
}

impl Order {
    fn random(pools: usize, rng: &mut Rng) -> Self {
        let mut draw = |below: usize| rng.below(below.max(1) as u64) as usize;
        let at = draw(pools);
        // Always the same step would send all that a broken pool cannot serve
        // to the one behind it.
        let mut stride = 1;
        if pools > 2 {
            stride = 1 + draw(pools - 1);
            while common_divisor(stride, pools) != 1 {
                stride = 1 + draw(pools - 1);
            }
        }
        Self {
            first: [None, None],
            asked: 0,
            at,
            stride,
            left: pools,
            pools,
        }
    }
}

impl Iterator for Order {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if let Some(first) = self.first.get(self.asked).copied().flatten() {
            self.asked += 1;
            return Some(first);
        }
        while self.left > 0 {
            let place = self.at;
            self.at = (self.at + self.stride) % self.pools;
            self.left -= 1;
            if !self.first.contains(&Some(place)) {
                return Some(place);
            }
        }
        None
    }
}

fn common_divisor(one: usize, other: usize) -> usize {
    match other {
        0 => one,
        _ => common_divisor(other, one % other),
    }
}

/// One refusal that speaks for both: the more telling reason, the longest
/// wait, and the first chance.
pub fn speak_for_both(one: Refusal, other: Refusal) -> Refusal {
    let (told, less) = match tells(one.reason) > tells(other.reason) {
        true => (one, other),
        false => (other, one),
    };
    // A pool that is gone has no chance to offer.
    let retry_after = match less.reason {
        Reason::Closed | Reason::Nowhere => told.retry_after,
        _ => told.retry_after.min(less.retry_after),
    };
    Refusal {
        reason: told.reason,
        waited: one.waited.max(other.waited),
        len: one.len.max(other.len),
        retry_after,
    }
}

/// How much a reason tells of what would help.
fn tells(reason: Reason) -> u8 {
    match reason {
        Reason::Nowhere => 0,
        Reason::Closed => 1,
        Reason::Suspended => 2,
        // Others had no time to say more.
        Reason::Busy => 3,
        Reason::Starting | Reason::Down => 4,
        Reason::Full
        | Reason::Timeout
        | Reason::CoDel
        | Reason::Bound
        | Reason::MinDelay
        | Reason::Standing
        | Reason::Custom
        | Reason::Deadline
        | Reason::Hopeless
        | Reason::Protected => 5,
        Reason::Cancelled | Reason::Excess | Reason::Keys => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn unseen(_: usize) -> Shown {
        panic!("it is not called")
    }

    fn shown(is_sound: bool, is_idle: bool, len: usize) -> Shown {
        Shown {
            is_sound,
            is_idle,
            len,
        }
    }

    #[test]
    fn every_pool_is_asked_once_in_every_order() {
        let mut rng = Rng::new(1);
        let show = |place| shown(place % 3 > 0, place % 2 > 0, place);
        for pools in 0..20 {
            for method in [Method::Random, Method::BestOfTwo] {
                let mut asked: Vec<_> = method.order(pools, show, &mut rng).collect();
                asked.sort_unstable();
                assert!(asked.into_iter().eq(0..pools));
            }
        }
    }

    #[test]
    fn chance_asks_each_pool_first_and_second_equally_often_without_a_look() {
        let mut rng = Rng::new(2);
        let mut counts = [[0_u32; 5]; 2];
        for _ in 0..50_000 {
            let mut order = Method::Random.order(5, unseen, &mut rng);
            for count in &mut counts {
                count[order.next().unwrap()] += 1;
            }
        }
        let mut counts = counts.iter().flatten();
        assert!(
            counts.all(|count| (9_600..10_400).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_better_of_two_is_sound_then_idle_then_short() {
        let mut rng = Rng::new(3);
        let best_first = [
            shown(true, true, 9),
            shown(true, false, 1),
            shown(true, false, 2),
            shown(false, true, 0),
        ];
        let mut firsts = [0_u32; 4];
        for _ in 0..6_000 {
            let mut order = Method::BestOfTwo.order(4, |place| best_first[place], &mut rng);
            let (first, second) = (order.next().unwrap(), order.next().unwrap());
            assert!(first < second);
            firsts[first] += 1;
        }
        // Of the six pairs the best is in three, the next best in two more.
        let [first, second, third, last] = firsts;
        assert!((2_850..3_150).contains(&first) && (1_850..2_150).contains(&second));
        assert!((900..1_100).contains(&third) && last == 0, "{firsts:?}");
    }

    #[test]
    fn the_more_telling_refusal_speaks_for_both_and_the_first_chance_counts() {
        let refusal = |reason, len, retry_after| Refusal {
            reason,
            waited: Duration::from_millis(len as u64),
            len,
            retry_after: Duration::from_millis(retry_after),
        };
        let closed = refusal(Reason::Closed, 0, 0);
        let full = refusal(Reason::Full, 9, 50);
        let starting = refusal(Reason::Starting, 3, 20);
        for (one, other) in [(closed, full), (full, closed)] {
            assert_eq!(speak_for_both(one, other), full);
        }
        let both = speak_for_both(full, starting);
        assert_eq!((both.reason, both.len), (Reason::Full, 9));
        assert_eq!(both.retry_after, Duration::from_millis(20));
        assert_eq!(speak_for_both(starting, closed).reason, Reason::Starting);
    }
}
