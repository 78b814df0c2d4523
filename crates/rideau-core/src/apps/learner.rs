//! Learns how many requests at a time a process serves best, from how fast it answers.
//!
//! For each level of load it counts how long processes had this many requests inside, and how
//! many answers came meanwhile. The quotient is what one process does at that level. No
//! process has to be idle first.

use crate::time::Instant;

/// The limits that can be learnt: each is about two thirds of the next, and has its double
/// and its half among them.
const LEVELS: [usize; 20] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
];
/// The index of 16, where everything begins.
const FIRST: usize = 7;
const LAST: usize = LEVELS.len() - 1;

/// Fewer answers say nothing of a level,
const ANSWERS_MIN: u64 = 128;
/// nor do fewer than this many for each request inside,
const ROUNDS_MIN: u64 = 4;
/// nor less time. All times are in nanoseconds.
const TIME_MIN: u64 = 1_000_000_000;
/// What is known of a level fades when there is twice as much as this, and more.
const ANSWERS_ENOUGH: u64 = 1_024;
const TIME_ENOUGH: u64 = 8_000_000_000;
/// What is known of all levels fades so often,
const FADE_EVERY: u64 = 300_000_000_000;
/// or, where requests take long, after this many times what one takes.
const FADE_REQUESTS: u64 = 256;
/// Twice the requests have to bring so much more, or they bring nothing.
const FLAT: f64 = 1.3;
/// And this share of what they would if they did not disturb each other, to be worth it.
const GAIN: f64 = 0.4;
/// Where requests take longer, less is tried before more.
const SLOW: u64 = 250_000_000;
/// After the first ask that had to wait, or a step up, one sees by then whether more at a
/// time get more done.
const RISING: u64 = 3_000_000_000;
/// Answers come often, and say little each: a decision is looked for this often.
const LOOK_EVERY: u64 = 10_000_000;

/// What is known of the processes that run one code, and the limit that follows.
///
/// Invariant: the limit is one of [`LEVELS`].
#[derive(Clone, Debug)]
pub(super) struct Learner {
    /// The limit, by its index.
    at: usize,
    tallies: [Tally; LEVELS.len()],
    /// When a decision is looked for next.
    look: Instant,
    /// When all tallies faded last.
    faded: Instant,
    moves: u64,
    rise: Rise,
}

/// Whether asks wait because the limit has yet to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rise {
    /// None has waited.
    Before,
    /// More are tried at a time, and it shows by then whether that helps.
    Until(Instant),
    /// The limit has been found, or was once.
    Over,
}

/// What was seen of one level: at least this many requests inside, and fewer than the next.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    /// What processes spent in it, in nanoseconds.
    time: u64,
    answers: u64,
    /// How many were inside at each answer, and how long what was answered had been inside,
    /// all added up.
    inside: u64,
    stayed: u64,
}

impl Tally {
    fn is_known(&self, level: usize) -> bool {
        let rounds = ROUNDS_MIN * LEVELS[level] as u64;
        self.answers >= ANSWERS_MIN.max(rounds) && self.time >= TIME_MIN
    }

    fn has_plenty(&self, level: usize) -> bool {
        // What is left then is enough to be known.
        let rounds = 2 * ROUNDS_MIN * LEVELS[level] as u64;
        self.answers >= ANSWERS_ENOUGH.max(rounds) && self.time >= TIME_ENOUGH
    }

    fn fade(&mut self) {
        self.time /= 2;
        self.answers /= 2;
        self.inside /= 2;
        self.stayed /= 2;
    }

    /// Answers in a nanosecond.
    fn rate(&self) -> f64 {
        self.answers as f64 / self.time as f64
    }

    /// The same by how long requests stay: this many, each for this long.
    fn rate_by_stay(&self) -> f64 {
        self.inside as f64 / self.stayed.max(1) as f64
    }
}

impl Learner {
    /// Nothing is known.
    pub(super) fn new(now: Instant) -> Self {
        Self::at(FIRST, Rise::Before, now)
    }

    /// This limit was found by another.
    pub(super) fn found(limit: usize, now: Instant) -> Self {
        Self::at(level_of(limit.max(1)), Rise::Over, now)
    }

    fn at(level: usize, rise: Rise, now: Instant) -> Self {
        Self {
            at: level,
            tallies: [Tally::default(); LEVELS.len()],
            look: now,
            faded: now,
            moves: 0,
            rise,
        }
    }

    /// For other code: the limit is the same for now, and has yet to be proven.
    pub(super) fn heir(&self, now: Instant) -> Self {
        Self::at(self.at, self.rise, now)
    }

    /// Have no higher limit than this.
    pub(super) fn stay_within(&mut self, most: usize) {
        self.at = self.at.min(level_of(most));
    }

    /// As many requests at a time in one process.
    pub(super) fn limit(&self) -> usize {
        LEVELS[self.at]
    }

    /// Asks wait, and perhaps only because more at a time have yet to be tried: that is no
    /// overload.
    #[inline]
    pub(super) fn is_rising(&self, now: Instant) -> bool {
        matches!(self.rise, Rise::Until(end) if now < end)
    }

    /// Until when more are tried at a time.
    pub(super) fn rises_until(&self) -> Instant {
        match self.rise {
            Rise::Until(end) => end,
            Rise::Before | Rise::Over => Instant::START,
        }
    }

    /// The most at a time that can be learnt.
    pub(super) const MOST: usize = LEVELS[LAST];

    /// How often the limit changed.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// A process had this many requests inside for so long.
    #[inline]
    pub(super) fn spent(&mut self, inside: usize, time: u64) {
        if inside > 0 {
            self.tallies[level_of(inside)].time += time;
        }
    }

    /// A process with this many requests inside answered one of them, which had been inside
    /// for so long.
    #[inline]
    pub(super) fn answered(&mut self, inside: usize, stayed: u64) {
        if inside > 0 {
            let tally = &mut self.tallies[level_of(inside)];
            tally.answers += 1;
            tally.inside += inside as u64;
            tally.stayed += stayed;
        }
    }

    /// It is time to [`decide`](Self::decide).
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.look <= now
    }

    /// Change the limit, if what is known says so, to no more than `most`. `waits`: an ask
    /// waits for a place. Says whether it changed.
    pub(super) fn decide(&mut self, waits: bool, most: usize, now: Instant) -> bool {
        self.look = now.after(LOOK_EVERY);
        self.fade(now);
        let next = self.next(waits).min(level_of(most));
        let changes = next != self.at;
        self.rise = match self.rise {
            Rise::Before if waits => Rise::Until(now.after(RISING)),
            Rise::Until(_) if next > self.at => Rise::Until(now.after(RISING)),
            Rise::Until(end) if next < self.at || end <= now => Rise::Over,
            rise => rise,
        };
        self.at = next;
        self.moves += u64::from(changes);
        changes
    }

    fn fade(&mut self, now: Instant) {
        for (tally, level) in self.tallies.iter_mut().zip(0..) {
            if tally.has_plenty(level) {
                tally.fade();
            }
        }
        if self.faded.after(FADE_EVERY) > now {
            return;
        }
        let mean = self.mean_inside();
        if self.faded.after(mean.saturating_mul(FADE_REQUESTS)) <= now {
            self.tallies.iter_mut().for_each(Tally::fade);
            self.faded = now;
        }
    }

    /// How long a request is inside, over all levels.
    fn mean_inside(&self) -> u64 {
        let levels = self.tallies.iter().zip(LEVELS);
        let inside: u128 = (levels.clone())
            .map(|(tally, level)| u128::from(tally.time) * level as u128)
            .sum();
        let answers: u64 = levels.map(|(tally, _)| tally.answers).sum();
        u64::try_from(inside / u128::from(answers.max(1))).unwrap_or(u64::MAX)
    }

    /// What the limit should be.
    fn next(&self, waits: bool) -> usize {
        if let Some(flat) = self.flat() {
            // One more than what is enough: there is always something to do.
            let above = (flat + 1).min(LAST);
            return match half(flat) {
                Some(half) if !self.knows(half) && waits => half,
                Some(half) if !self.knows(half) => self.at.min(above),
                _ => above,
            };
        }
        if !waits || !self.knows(self.at) {
            return self.at;
        }
        let Some(double) = double(self.at) else {
            return self.at;
        };
        if self.knows(double) && self.gains(double, self.at) {
            return double;
        }
        match half(self.at) {
            Some(half) if !self.knows(half) && self.is_slow() => half,
            Some(half) if self.knows(half) && !self.gains(self.at, half) => self.at,
            _ => double,
        }
    }

    /// The smallest level whose double is no better.
    ///
    /// Clients that ask together are answered together, all but one of them when others have
    /// left already: that seems to be many answers with few inside. So twice as many have to
    /// stay longer as well.
    fn flat(&self) -> Option<usize> {
        let is_flat = |low: usize, high: usize| {
            let (low, high) = (&self.tallies[low], &self.tallies[high]);
            high.rate() < FLAT * low.rate() && high.rate_by_stay() < FLAT * low.rate_by_stay()
        };
        (0..LEVELS.len()).find(|level| {
            let double = double(*level).filter(|double| LEVELS[*double] == 2 * LEVELS[*level]);
            let double = double.filter(|double| self.knows(*level) && self.knows(*double));
            double.is_some_and(|double| is_flat(*level, double))
        })
    }

    fn knows(&self, level: usize) -> bool {
        self.tallies[level].is_known(level)
    }

    fn rate(&self, level: usize) -> f64 {
        self.tallies[level].rate()
    }

    /// The higher of two levels is so much better that it is worth it.
    fn gains(&self, high: usize, low: usize) -> bool {
        let times = LEVELS[high] as f64 / LEVELS[low] as f64;
        self.rate(high) >= (1.0 + GAIN * (times - 1.0)) * self.rate(low)
    }

    /// A request takes long where as many are inside as may be.
    fn is_slow(&self) -> bool {
        LEVELS[self.at] as f64 / self.rate(self.at) > SLOW as f64
    }
}

/// The index of the greatest level that is not over this number, which is not zero.
#[inline]
fn level_of(inside: usize) -> usize {
    // Two levels for each power of two, but one for the first.
    let power = inside.ilog2() as usize;
    let is_upper = inside >> power.saturating_sub(1) & 1;
    match power {
        0 => 0,
        power => (2 * power - 1 + is_upper).min(LAST),
    }
}

/// The level of twice as many, or the last; none behind that.
fn double(level: usize) -> Option<usize> {
    match level {
        0 => Some(1),
        LAST => None,
        level => Some((level + 2).min(LAST)),
    }
}

/// The level of half as many, rounded down.
fn half(level: usize) -> Option<usize> {
    match level {
        0 => None,
        1 | 2 => Some(0),
        level => Some(level - 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn index(limit: usize) -> usize {
        level_of(limit)
    }

    /// One that has seen these levels for two seconds each, at this many answers a second.
    fn learner(limit: usize, seen: &[(usize, u64)]) -> Learner {
        let mut learner = Learner::at(index(limit), Rise::Before, Instant::START);
        for (level, rate) in seen {
            see(&mut learner, *level, 2, *rate);
        }
        learner
    }

    fn see(learner: &mut Learner, level: usize, seconds: u64, rate: u64) {
        learner.spent(level, seconds * SECOND);
        for _ in 0..seconds * rate {
            learner.answered(level, level as u64 * SECOND / rate);
        }
    }

    fn decided(learner: &mut Learner, waits: bool) -> usize {
        learner.decide(waits, Learner::MOST, Instant::START);
        learner.limit()
    }

    #[test]
    fn levels_are_found_by_number() {
        for inside in 1..=3_000 {
            let known = LEVELS.iter().rposition(|level| *level <= inside);
            assert_eq!(Some(level_of(inside)), known, "{inside}");
        }
        for (level, number) in LEVELS.iter().enumerate() {
            let most = |most: usize| LEVELS.iter().rposition(|level| *level <= most);
            assert_eq!(half(level), most(number / 2), "{number}");
            assert_eq!(double(level), most(2 * number).filter(|_| level < LAST));
        }
        assert_eq!(LEVELS[FIRST], 16);
    }

    #[test]
    fn a_level_is_known_after_a_second_and_enough_answers() {
        let knows = |level, seconds, rate| {
            let mut learner = learner(16, &[]);
            see(&mut learner, level, seconds, rate);
            learner.knows(index(level))
        };
        assert!(knows(1, 1, 128));
        assert!(!knows(1, 1, 127), "too few answers");
        assert!(knows(32, 128, 1));
        assert!(!knows(64, 128, 1), "each place was used twice");
        assert!(knows(64, 256, 1));
        let mut learner = learner(16, &[]);
        learner.spent(8, SECOND - 1);
        (0..1_000).for_each(|_| learner.answered(8, 0));
        assert!(!learner.knows(index(8)), "too short");
    }

    #[test]
    fn one_above_the_first_level_whose_double_is_no_better_is_taken() {
        let mut flat = learner(16, &[(4, 800), (8, 810), (2, 400)]);
        assert_eq!(decided(&mut flat, false), 6);
        let mut flat = learner(16, &[(1, 200), (2, 205)]);
        assert_eq!(decided(&mut flat, false), 2, "one has no half");
        let seen = [(4, 70), (8, 140), (16, 147), (32, 300), (64, 300)];
        let mut both = learner(64, &seen);
        assert_eq!(decided(&mut both, true), 12, "the smaller of two");
    }

    #[test]
    fn the_half_of_a_flat_level_is_looked_at_while_somebody_waits() {
        let seen = [(16, 800), (32, 800)];
        assert_eq!(decided(&mut learner(32, &seen), true), 8);
        assert_eq!(decided(&mut learner(32, &seen), false), 24);
        assert_eq!(
            decided(&mut learner(8, &seen), false),
            8,
            "never more for it"
        );
    }

    #[test]
    fn more_is_tried_while_it_brings_more() {
        let mut fresh = learner(16, &[(16, 320)]);
        assert_eq!(decided(&mut fresh, false), 16, "nobody wants more");
        assert_eq!(decided(&mut fresh, true), 32);
        assert_eq!(decided(&mut fresh, true), 32, "nothing is known of it");
        see(&mut fresh, 32, 2, 640);
        assert_eq!(decided(&mut fresh, true), 64);
        let mut little = learner(32, &[(16, 100), (32, 135)]);
        assert_eq!(
            decided(&mut little, true),
            32,
            "a third more is not worth it"
        );
        let mut known = learner(16, &[(16, 100), (32, 150), (8, 70)]);
        assert_eq!(decided(&mut known, true), 32);
        let mut last = learner(1024, &[(1024, 5_000)]);
        assert_eq!(decided(&mut last, true), 1024);
        let mut alone = learner(1, &[(1, 200)]);
        assert_eq!(decided(&mut alone, true), 2);
    }

    #[test]
    fn it_rises_from_the_first_wait_while_more_is_tried() {
        let at = |seconds| Instant::START.after(seconds * SECOND);
        let mut idle = learner(16, &[(16, 320)]);
        idle.decide(false, Learner::MOST, at(0));
        assert!(!idle.is_rising(at(0)), "none has waited");

        let mut rising = learner(16, &[(16, 320)]);
        assert!(rising.decide(true, Learner::MOST, at(1)));
        assert!(rising.is_rising(at(3)));
        see(&mut rising, 32, 2, 640);
        assert!(rising.decide(true, Learner::MOST, at(3)));
        assert!(rising.is_rising(at(5)), "it went up again");
        see(&mut rising, 64, 2, 640);
        assert!(
            rising.decide(true, Learner::MOST, at(5)),
            "more is no better"
        );
        assert!(!rising.is_rising(at(5)));
        assert!(!rising.heir(at(5)).is_rising(at(5)));

        let mut stuck = learner(16, &[]);
        stuck.decide(true, Learner::MOST, at(1));
        assert!(stuck.is_rising(at(3)));
        assert!(!stuck.is_rising(at(4)), "nothing is learnt of it");
        stuck.decide(true, Learner::MOST, at(4));
        stuck.decide(true, Learner::MOST, at(5));
        assert!(!stuck.is_rising(at(5)), "once only");
    }

    #[test]
    fn where_requests_take_long_less_is_tried_first() {
        let mut slow = learner(16, &[]);
        see(&mut slow, 16, 16, 8);
        assert_eq!(decided(&mut slow, true), 8);
        see(&mut slow, 8, 32, 4);
        assert_eq!(
            decided(&mut slow, true),
            16,
            "they do not disturb each other"
        );
        assert_eq!(decided(&mut slow, true), 32);
    }

    #[test]
    fn what_is_old_fades_and_what_is_plenty_stays_known() {
        for limit in LEVELS {
            let mut busy = learner(limit, &[]);
            for _ in 0..100 {
                see(&mut busy, limit, 1, 1_100);
                let before = busy.knows(index(limit));
                decided(&mut busy, false);
                assert_eq!(busy.knows(index(limit)), before);
            }
            assert!(busy.knows(index(limit)));
            assert!(busy.tallies[index(limit)].answers < 10_000);
        }
        let mut old = learner(16, &[(16, 100)]);
        old.decide(false, Learner::MOST, Instant::START.after(299 * SECOND));
        assert!(old.knows(FIRST));
        old.decide(false, Learner::MOST, Instant::START.after(300 * SECOND));
        assert!(!old.knows(FIRST));
        let mut slow = learner(16, &[]);
        see(&mut slow, 16, 500, 1);
        slow.decide(false, Learner::MOST, Instant::START.after(4_000 * SECOND));
        assert!(slow.knows(FIRST), "256 times 16 s have not passed");
        slow.decide(false, Learner::MOST, Instant::START.after(4_096 * SECOND));
        assert_eq!(slow.tallies[FIRST].answers, 250);
    }

    #[test]
    fn other_code_inherits_the_limit_alone() {
        let mut old = learner(16, &[(1, 200), (2, 205)]);
        assert_eq!(decided(&mut old, true), 2);
        let new = old.heir(Instant::START);
        assert_eq!((new.limit(), new.moves()), (2, 0));
        assert!((0..LEVELS.len()).all(|level| !new.knows(level)));
    }
}
