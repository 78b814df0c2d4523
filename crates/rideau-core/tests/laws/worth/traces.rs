//! Made-up traffic of a hundred apps, of twelve kinds.
//!
//! The bench `eviction` reads this file, too: what it measures and what the
//! tests hold it to is the same traffic.

use rideau_core::{Instant, Rng};

pub(crate) const APPS: usize = 100;

/// A request for an app.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) app: u32,
    pub(crate) at: Instant,
}

/// One kind of traffic.
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    kind: Kind,
    /// An uptime monitor asks for every app once in five minutes as well.
    monitored: bool,
}

enum Kind {
    /// Each request is independent, and the app of rank r is asked for as often
    /// as `1 / r^exponent` says.
    Alone {
        exponent: f64,
        /// Requests until two apps change ranks.
        drift: Option<usize>,
        /// Requests until all ranks are dealt anew.
        phase: Option<usize>,
    },
    /// People come, ask about ten times with some seconds between, and go.
    Visitors { visits_per_second: f64 },
    /// People come, look at about five pages, each of about four requests,
    /// and go.
    Pages { requests_per_second: f64 },
}

/// All of them.
pub(crate) const TRACES: [Trace; 12] = [
    trace("zipf 0.6", alone(0.6)),
    trace("zipf 0.8", alone(0.8)),
    trace("zipf 1.0", alone(1.0)),
    trace("zipf 1.2", alone(1.2)),
    trace("drift", DRIFT),
    trace("phases", PHASES),
    trace("visitors", visitors(0.45)),
    trace("visitors slow", visitors(0.15)),
    monitored("zipf + monitor", alone(1.0)),
    monitored("visitors + monitor", visitors(0.45)),
    trace("pages 1/s", pages(1.0)),
    trace("pages 4/s", pages(4.0)),
];

const DRIFT: Kind = Kind::Alone {
    exponent: 1.0,
    drift: Some(250),
    phase: None,
};
const PHASES: Kind = Kind::Alone {
    exponent: 1.0,
    drift: None,
    phase: Some(7500),
};

/// Requests a second where each request is independent.
const RATE: f64 = 4.0;
/// How unequal apps are where people visit them.
const VISITS_EXPONENT: f64 = 1.0;
/// Seconds between two requests of the monitor for the same app.
const MONITOR_EVERY: f64 = 300.0;

const fn trace(name: &'static str, kind: Kind) -> Trace {
    Trace {
        name,
        kind,
        monitored: false,
    }
}

const fn monitored(name: &'static str, kind: Kind) -> Trace {
    Trace {
        name,
        kind,
        monitored: true,
    }
}

const fn alone(exponent: f64) -> Kind {
    Kind::Alone {
        exponent,
        drift: None,
        phase: None,
    }
}

const fn visitors(visits_per_second: f64) -> Kind {
    Kind::Visitors { visits_per_second }
}

const fn pages(requests_per_second: f64) -> Kind {
    Kind::Pages {
        requests_per_second,
    }
}

impl Trace {
    /// The first requests, oldest first; the same for the same seed.
    pub(crate) fn requests(&self, count: usize, seed: u64) -> Vec<Request> {
        let mut dice = Dice(Rng::new(seed));
        let mut asks = match self.kind {
            Kind::Alone {
                exponent,
                drift,
                phase,
            } => alone_asks(exponent, drift, phase, count, &mut dice),
            Kind::Visitors { visits_per_second } => {
                visits(visits_per_second, count, &mut dice, visitor)
            }
            Kind::Pages {
                requests_per_second,
            } => {
                let visits_per_second = requests_per_second / (PAGES * PAGE_REQUESTS);
                visits(visits_per_second, count, &mut dice, reader)
            }
        };
        if self.monitored {
            monitor(&mut asks);
        }
        asks.sort_by(|one, other| one.0.total_cmp(&other.0));
        let requests = asks.into_iter().take(count).map(|(seconds, app)| Request {
            app: u32::try_from(app).expect("a hundred apps"),
            at: Instant::from_nanos((seconds * 1e9) as u64),
        });
        requests.collect()
    }
}

/// A time in seconds, and the app that is asked for.
type Ask = (f64, usize);

fn alone_asks(
    exponent: f64,
    drift: Option<usize>,
    phase: Option<usize>,
    count: usize,
    dice: &mut Dice,
) -> Vec<Ask> {
    let zipf = Zipf::new(exponent);
    let mut apps: Vec<usize> = (0..APPS).collect();
    let mut now = 0.0;
    let mut asks = Vec::new();
    for number in 1..=count {
        now += dice.exponential(1.0 / RATE);
        asks.push((now, apps[zipf.rank(dice)]));
        if drift.is_some_and(|every| number % every == 0) {
            apps.swap(dice.below(APPS), dice.below(APPS));
        }
        if phase.is_some_and(|every| number % every == 0) {
            dice.shuffle(&mut apps);
        }
    }
    asks
}

/// Visits come by themselves; what one does is up to `visit`.
fn visits(
    visits_per_second: f64,
    count: usize,
    dice: &mut Dice,
    visit: fn(Ask, &mut Vec<Ask>, &mut Dice),
) -> Vec<Ask> {
    let zipf = Zipf::new(VISITS_EXPONENT);
    let mut asks = Vec::new();
    let mut now = 0.0;
    // Later visits cannot ask before they begin, so these are the first.
    while asks.iter().filter(|(at, _)| *at <= now).take(count).count() < count {
        for _ in 0..100 {
            now += dice.exponential(1.0 / visits_per_second);
            visit((now, zipf.rank(dice)), &mut asks, dice);
        }
    }
    asks
}

fn visitor((mut now, app): Ask, asks: &mut Vec<Ask>, dice: &mut Dice) {
    let think = dice.between(5.0, 15.0);
    for _ in 0..dice.geometric(10.0) {
        asks.push((now, app));
        now += dice.exponential(think);
    }
}

fn reader((mut now, app): Ask, asks: &mut Vec<Ask>, dice: &mut Dice) {
    for _ in 0..dice.geometric(PAGES) {
        asks.push((now, app));
        for _ in 1..dice.geometric(PAGE_REQUESTS) {
            asks.push((now + dice.between(0.05, 0.5), app));
        }
        now += 1.0 + dice.exponential(8.0);
    }
}

/// Pages of a visit, and requests of a page, in the mean.
const PAGES: f64 = 5.0;
const PAGE_REQUESTS: f64 = 4.0;

fn monitor(asks: &mut Vec<Ask>) {
    let end = asks.iter().map(|(at, _)| *at).fold(0.0, f64::max);
    for app in 0..APPS {
        let mut now = MONITOR_EVERY / APPS as f64 * app as f64;
        while now < end {
            asks.push((now, app));
            now += MONITOR_EVERY;
        }
    }
}

/// Ranks, the first the most frequent.
struct Zipf {
    /// The share of each rank and all before it.
    shares: Vec<f64>,
}

impl Zipf {
    fn new(exponent: f64) -> Self {
        let weights = (1..=APPS).map(|rank| (rank as f64).powf(-exponent));
        let mut shares: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let sum = shares[APPS - 1];
        shares.iter_mut().for_each(|share| *share /= sum);
        Self { shares }
    }

    fn rank(&self, dice: &mut Dice) -> usize {
        let drawn = dice.unit();
        self.shares.partition_point(|share| *share < drawn)
    }
}

/// Chance of all the kinds that traffic needs.
pub(crate) struct Dice(pub(crate) Rng);

impl Dice {
    /// Above 0 and below 1.
    fn unit(&mut self) -> f64 {
        (self.0.below(1 << 52) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    pub(crate) fn between(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.unit()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// At least one.
    fn geometric(&mut self, mean: f64) -> usize {
        1 + (self.unit().ln() / (1.0 - 1.0 / mean).ln()) as usize
    }

    fn shuffle(&mut self, list: &mut [usize]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}
