//! All addresses of two ranges are given out, and lapse.

use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rideau::allocator::{
    Ask, Place, Prefer, RangeId, RangeOptions, Refused, Reservation, Span, Which,
};
use rideau::{Failed, Ranges};

use crate::report::{Shown, Times};

/// How many values, how long, and how many clients want them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Each of the two ranges is a network of this length.
    pub(crate) prefix: u32,
    pub(crate) ttl: Duration,
    pub(crate) clients: usize,
    /// How many are given back and taken again when nearly all are taken.
    pub(crate) turns: usize,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        prefix: 17,
        ttl: Duration::from_secs(30),
        clients: 16,
        turns: 2_000,
    };
    pub(crate) const QUICK: Self = Self {
        prefix: 21,
        ttl: Duration::from_secs(5),
        clients: 8,
        turns: 100,
    };

    pub(crate) fn values(self) -> u64 {
        2 << (32 - self.prefix)
    }
}

/// How it went.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) initial: Vec<Shown>,
    pub(crate) peak: Vec<Shown>,
    pub(crate) end: Vec<Shown>,
    /// All that were given, in the order in which that was decided.
    pub(crate) given: Vec<Reservation>,
    pub(crate) lapsed: u64,
    pub(crate) times: Times,
}

/// The two ranges.
pub(crate) fn ranges(prefix: u32) -> Vec<(String, RangeOptions)> {
    let range = |(name, base): (&str, &str)| {
        let span = Span::parse(&format!("{base}/{prefix}")).expect("a network");
        (name.to_owned(), RangeOptions::new(vec![span]))
    };
    [("primary", "10.128.0.0"), ("secondary", "10.0.0.0")]
        .map(range)
        .into()
}

/// Reserve all, and wait until all have lapsed; `pass` lets time pass.
pub(crate) fn run(ranges: &Ranges, plan: Plan, pass: impl Fn(Duration)) -> Result<Report, Failed> {
    let initial = shown(ranges);
    let (given, times) = reserve_all(ranges, plan, plan.ttl)?;
    let peak = shown(ranges);
    pass(plan.ttl + Duration::from_secs(1));
    // They are swept up in small steps.
    let begun = Instant::now();
    while held(ranges) > 0 && begun.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
    }
    Ok(Report {
        initial,
        peak,
        end: shown(ranges),
        lapsed: given.len() as u64 - held(ranges),
        given,
        times,
    })
}

/// Ask for primary values, and secondary ones when there are none.
fn preferred(ranges: &Ranges) -> [Prefer; 2] {
    let range = |name| Place::Range(ranges.range(name).expect("it was opened"));
    [(0, "primary"), (1, "secondary")].map(|(tier, name)| Prefer {
        tier,
        place: range(name),
    })
}

/// Clients ask until there is nothing left.
fn reserve_all(
    ranges: &Ranges,
    plan: Plan,
    ttl: Duration,
) -> Result<(Vec<Reservation>, Times), Failed> {
    let prefer = preferred(ranges);
    let ask = Ask {
        ttl: Some(ttl),
        ..Ask::new(&prefer)
    };
    let all = Mutex::new((Vec::new(), Times::default()));
    thread::scope(|scope| {
        let client = || {
            let (mut given, mut times) = (Vec::new(), Times::default());
            loop {
                let begun = Instant::now();
                match ranges.reserve(&ask).wait() {
                    Ok(one) => {
                        times.record(one[0].tier, begun.elapsed());
                        given.push(one[0]);
                    }
                    Err(Failed::Refused(Refused::Exhausted { .. })) => break,
                    Err(failed) => return Err(failed),
                }
            }
            let mut all = all.lock().expect("no thread panics");
            all.0.extend(given);
            all.1.add(&times);
            Ok(())
        };
        let clients: Vec<_> = (0..plan.clients).map(|_| scope.spawn(client)).collect();
        let mut ended = clients.into_iter();
        ended.try_for_each(|client| client.join().expect("no thread panics"))
    })?;
    let (mut given, times) = all.into_inner().expect("no thread panics");
    given.sort_unstable_by_key(|one| one.fence);
    Ok((given, times))
}

/// With one value in a thousand free, give some back and take as many again.
///
/// The two tiers take turns, so that both are asked for on the same disk: that of
/// a minute later may be twice as slow.
pub(crate) fn run_nearly_full(ranges: &Ranges, plan: Plan) -> Result<NearlyFull, Failed> {
    const ROUNDS: usize = 50;
    let (mut given, _) = reserve_all(ranges, plan, Duration::from_secs(3_600))?;
    let prefer = preferred(ranges);
    let mut times = Times::default();
    for round in 0..ROUNDS {
        for only in prefer {
            let Place::Range(range) = only.place else {
                continue;
            };
            let mut own = of_range(&mut given, range);
            let turns = plan.turns.div_ceil(ROUNDS);
            let begin = round * turns;
            take_turns(ranges, &mut own, begin..begin + turns, &mut times)?;
            // Full again, so that the next tier is asked for.
            while let Ok(more) = ranges.reserve(&Ask::new(&[only])).wait() {
                own.extend(more);
            }
            given.extend(own);
        }
    }
    for one in given {
        let released = ranges.release(one.value, Some(one.fence));
        drop(released.into_parts());
    }
    ranges.lookup(Which::Value(0)).wait()?;
    Ok(NearlyFull(times))
}

/// Some of these are free, half of all that is; and one after the other another
/// one is. The best tier that has any is asked for.
fn take_turns(
    ranges: &Ranges,
    own: &mut Vec<Reservation>,
    turns: std::ops::Range<usize>,
    times: &mut Times,
) -> Result<(), Failed> {
    let prefer = preferred(ranges);
    let spare = (own.len() / 1_000).max(1);
    for one in own.drain(..spare) {
        ranges.release(one.value, Some(one.fence)).wait()?;
    }
    for turn in turns {
        let at = turn * 7_919 % own.len();
        let begun = Instant::now();
        let one = ranges.reserve(&Ask::new(&prefer)).wait()?[0];
        times.record(one.tier, begun.elapsed());
        let old = std::mem::replace(&mut own[at], one);
        ranges.release(old.value, Some(old.fence)).wait()?;
    }
    Ok(())
}

fn of_range(given: &mut Vec<Reservation>, range: RangeId) -> Vec<Reservation> {
    given.extract_if(.., |one| one.range == range).collect()
}

fn shown(ranges: &Ranges) -> Vec<Shown> {
    ranges.all_stats().iter().map(Shown::of).collect()
}

fn held(ranges: &Ranges) -> u64 {
    ranges.all_stats().iter().map(|stats| stats.reserved).sum()
}

impl Report {
    /// All came back.
    pub(crate) fn has_passed(&self) -> bool {
        self.initial == self.end
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Test report:")?;
        writeln!(f, "  {:<16}{}", "test_passed", self.has_passed())?;
        let moments = [
            ("initial", &self.initial),
            ("peak", &self.peak),
            ("final", &self.end),
        ];
        for (name, ranges) in moments {
            for range in ranges {
                writeln!(f, "  {name:<16}{range}")?;
            }
        }
        self.times.counters(f)?;
        let (given, lapsed) = (self.given.len(), self.lapsed);
        writeln!(f, "  {:<16}{given:>10}{lapsed:>10}", "count_reserved")?;
        write!(f, "  ")?;
        self.times.summary(f)
    }
}

/// How long it took when one value in a thousand was free.
#[derive(Debug)]
pub(crate) struct NearlyFull(pub(crate) Times);

impl fmt::Display for NearlyFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  99.9 % taken: ")?;
        self.0.summary(f)
    }
}
