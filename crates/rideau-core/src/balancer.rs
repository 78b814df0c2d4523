//! Chooses one of several that could serve an ask.
//!
//! A choice reads no table and no thread of its own: the caller says how many
//! candidates there are, which thread it runs on, and what each is worth.

use std::time::Duration;

use crate::rng::Rng;

/// How one candidate is chosen among many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Each candidate is as likely as every other.
    Random,
    /// A thread stays with one candidate.
    ByThread,
    /// The smaller value of two candidates drawn at random.
    Better,
    /// [`Better`](Self::Better) one time in five, else
    /// [`Random`](Self::Random).
    MostlyRandom,
    /// [`Better`](Self::Better) one time in five, else
    /// [`ByThread`](Self::ByThread).
    MostlyByThread,
}

impl Method {
    /// One of `candidates`, by its place.
    ///
    /// `value` is what a meter published for a candidate, the smaller the
    /// better, or none if it published nothing: such a candidate loses to any
    /// other, and two of them leave no choice. A single candidate is taken
    /// without looking.
    pub fn choose(
        self,
        candidates: usize,
        thread: usize,
        value: impl Fn(usize) -> Option<Duration>,
        rng: &mut Rng,
    ) -> Option<usize> {
        if candidates <= 1 {
            return candidates.checked_sub(1);
        }
        match self {
            Self::Random => Some(random(candidates, rng)),
            Self::ByThread => Some(thread % candidates),
            Self::Better => better(candidates, value, rng),
            Self::MostlyRandom | Self::MostlyByThread if rng.below(5) == 0 => {
                better(candidates, value, rng)
            }
            Self::MostlyRandom => Some(random(candidates, rng)),
            Self::MostlyByThread => Some(thread % candidates),
        }
    }
}

/// The two different candidates that `draw` stands for, in order.
///
/// Every run of `candidates * (candidates - 1)` draws stands for each ordered
/// pair once.
///
/// # Panics
///
/// If there are fewer than two candidates.
pub fn ordered_pair(candidates: usize, draw: u64) -> (usize, usize) {
    let pairs = ordered_pairs(candidates);
    assert!(pairs > 0, "a pair takes two candidates");
    let draw = usize::try_from(draw % pairs).expect("pairs are fewer than addresses");
    let (first, other) = (draw / (candidates - 1), draw % (candidates - 1));
    (first, other + usize::from(other >= first))
}

/// How many ordered pairs of different candidates there are.
fn ordered_pairs(candidates: usize) -> u64 {
    let pairs = candidates.checked_mul(candidates.saturating_sub(1));
    pairs
        .and_then(|pairs| pairs.try_into().ok())
        .expect("pairs are fewer than addresses")
}

fn random(candidates: usize, rng: &mut Rng) -> usize {
    let bound = candidates.try_into().expect("candidates are countable");
    let place = rng.below(bound);
    place.try_into().expect("a place is below the candidates")
}

fn better(
    candidates: usize,
    value: impl Fn(usize) -> Option<Duration>,
    rng: &mut Rng,
) -> Option<usize> {
    let (first, second) = ordered_pair(candidates, rng.below(ordered_pairs(candidates)));
    match (value(first), value(second)) {
        (Some(one), Some(other)) if one < other => Some(first),
        (_, Some(_)) => Some(second),
        (Some(_), None) => Some(first),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Method; 5] = [
        Method::Random,
        Method::ByThread,
        Method::Better,
        Method::MostlyRandom,
        Method::MostlyByThread,
    ];

    #[test]
    fn no_candidate_or_one_needs_no_draw_and_no_look() {
        let unlooked = |_| -> Option<Duration> { panic!("it is not called") };
        for method in ALL {
            let mut rng = Rng::new(1);
            assert_eq!(method.choose(0, 7, unlooked, &mut rng), None);
            assert_eq!(method.choose(1, 7, unlooked, &mut rng), Some(0));
            assert_eq!(rng.draw(), Rng::new(1).draw());
        }
    }

    #[test]
    fn each_pair_of_four_is_compared_equally_often() {
        let mut counts = [[0; 4]; 4];
        for draw in 0..12 {
            let (first, second) = ordered_pair(4, draw);
            counts[first.min(second)][first.max(second)] += 1;
        }
        let each_pair_twice = [[0, 2, 2, 2], [0, 0, 2, 2], [0, 0, 0, 2], [0; 4]];
        assert_eq!(counts, each_pair_twice);
    }

    #[test]
    fn the_draws_stand_for_every_ordered_pair_once() {
        for candidates in 2..20 {
            let draws = 0..ordered_pairs(candidates);
            let mut drawn: Vec<_> = draws.map(|draw| ordered_pair(candidates, draw)).collect();
            drawn.sort_unstable();
            let all = (0..candidates).flat_map(|a| (0..candidates).map(move |b| (a, b)));
            assert!(drawn.into_iter().eq(all.filter(|(a, b)| a != b)));
        }
    }

    #[test]
    fn the_smaller_value_wins_and_a_tie_goes_to_the_second() {
        let mut rng = Rng::new(2);
        for _ in 0..100 {
            let by_place = |place| Some(Duration::from_nanos(10 - place as u64));
            assert_eq!(Method::Better.choose(2, 0, by_place, &mut rng), Some(1));

            let (_, second) = ordered_pair(3, rng.clone().below(6));
            let same = |_| Some(Duration::ZERO);
            assert_eq!(Method::Better.choose(3, 0, same, &mut rng), Some(second));
        }
    }

    #[test]
    fn a_candidate_that_published_nothing_loses_and_two_leave_no_choice() {
        let mut rng = Rng::new(3);
        for _ in 0..100 {
            let only_first = |place| (place == 0).then_some(Duration::MAX);
            assert_eq!(Method::Better.choose(2, 0, only_first, &mut rng), Some(0));
            assert_eq!(Method::Better.choose(2, 0, |_| None, &mut rng), None);
        }
    }

    #[test]
    fn threads_stay_with_their_candidate_and_four_times_in_five_mostly() {
        let mut rng = Rng::new(4);
        for thread in 0..10 {
            let chosen = Method::ByThread.choose(4, thread, |_| None, &mut rng);
            assert_eq!(chosen, Some(thread % 4));
        }
        for method in [Method::MostlyByThread, Method::MostlyRandom] {
            let looks = (0..10_000)
                .filter(|_| method.choose(4, 1, |_| None, &mut rng).is_none())
                .count();
            assert!((1_850..2_150).contains(&looks), "{looks} of {method:?}");
        }
    }

    #[test]
    fn random_choices_are_even() {
        let mut rng = Rng::new(5);
        let mut counts = [0_u32; 4];
        for _ in 0..40_000 {
            counts[Method::Random.choose(4, 0, |_| None, &mut rng).unwrap()] += 1;
        }
        let even = 9_700..10_300;
        assert!(
            counts.iter().all(|count| even.contains(count)),
            "{counts:?}"
        );
    }
}
