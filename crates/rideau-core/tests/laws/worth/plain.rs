//! The worth of apps, computed anew from every ask that ever was.

use std::collections::BTreeMap;
use std::time::Duration;

use rideau_core::Instant;

const ESTIMATES: [&str; 4] = ["rates", "gaps", "recency", "hour"];
const HALF_LIVES: [f64; 4] = [5.0, 30.0, 300.0, 3600.0];
const FADE: f64 = 0.9998;

pub(crate) struct Plain {
    max: usize,
    counts_only: bool,
    /// Every ask for every app: when, and how long a start would take.
    asks: BTreeMap<u32, Vec<(Instant, Duration)>>,
    /// By estimate, then by size.
    pools: Vec<Pool>,
    /// Asks so far, those before the losses were last forgotten, and those
    /// before the sizes last changed.
    count: u32,
    count_reset: u32,
    count_resized: u32,
    chosen: usize,
    looked: Instant,
    latest: Instant,
}

#[derive(Clone, Default)]
struct Pool {
    max: usize,
    apps: Vec<u32>,
    /// At which ask, and what it cost.
    losses: Vec<(u32, f64)>,
}

impl Plain {
    pub(crate) fn new(max: usize, counts_only: bool) -> Self {
        let mut plain = Self {
            max,
            counts_only,
            asks: BTreeMap::new(),
            pools: vec![Pool::default(); 8],
            count: 0,
            count_reset: 0,
            count_resized: 0,
            chosen: 0,
            looked: Instant::START,
            latest: Instant::START,
        };
        plain.set_max(max);
        plain
    }

    pub(crate) fn asked(&mut self, app: u32, start_time: Duration, now: Instant) {
        self.forget_the_old(now);
        self.latest = now;
        self.count += 1;
        self.asks.entry(app).or_default().push((now, start_time));
        for estimate in 0..4 {
            self.ask_pool(estimate, estimate, app);
        }
        self.chosen = self.least_lost();
        for size in 4..8 {
            self.ask_pool(size, self.chosen, app);
        }
    }

    pub(crate) fn value(&self, app: u32, start_time: Duration, now: Instant) -> f64 {
        self.worth(app, start_time, self.chosen, now)
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
        for pool in 0..8 {
            let halves = if pool < 4 { 2 } else { pool - 3 };
            self.pools[pool].max = (max * halves / 2).max(1);
            let estimate = if pool < 4 { pool } else { self.chosen };
            while self.pools[pool].apps.len() > self.pools[pool].max {
                self.evict(pool, estimate);
            }
        }
        self.pools[4..]
            .iter_mut()
            .for_each(|pool| pool.losses.clear());
        self.count_resized = self.count;
    }

    pub(crate) fn set_counts_only(&mut self, counts_only: bool) {
        if counts_only != self.counts_only {
            self.counts_only = counts_only;
            self.pools.iter_mut().for_each(|pool| pool.losses.clear());
            (self.count_reset, self.count_resized) = (self.count, self.count);
        }
    }

    pub(crate) fn forget(&mut self, app: u32) {
        self.asks.remove(&app);
        for pool in &mut self.pools {
            pool.apps.retain(|known| *known != app);
        }
    }

    pub(crate) fn losses(&self) -> Vec<(&'static str, f64)> {
        let others = (0..4).filter(|estimate| *estimate != self.chosen);
        let order = std::iter::once(self.chosen).chain(others);
        let loss = |at: usize| (ESTIMATES[at], self.loss(at, self.count_reset));
        order.map(loss).collect()
    }

    pub(crate) fn what_if(&self) -> Vec<(usize, f64)> {
        let mut sizes = BTreeMap::new();
        for pool in 4..8 {
            let loss = self.loss(pool, self.count_resized);
            sizes.entry(self.pools[pool].max).or_insert(loss);
        }
        sizes.into_iter().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.asks.len()
    }

    fn forget_the_old(&mut self, now: Instant) {
        if now.since(self.looked) > Duration::from_secs(1000) {
            self.looked = now;
            let day = Duration::from_secs(86_400);
            let is_old = |asks: &[(Instant, Duration)]| now.since(asks[asks.len() - 1].0) > day;
            let apps = self.asks.iter().filter(|(_, asks)| is_old(asks));
            let old: Vec<u32> = apps.map(|(app, _)| *app).collect();
            old.into_iter().for_each(|app| self.forget(app));
        }
    }

    fn ask_pool(&mut self, pool: usize, estimate: usize, app: u32) {
        if self.pools[pool].apps.contains(&app) {
            return;
        }
        let start_time = self.asks[&app].last().unwrap().1;
        let loss = (self.count, self.cost(start_time));
        self.pools[pool].losses.push(loss);
        if self.pools[pool].apps.len() == self.pools[pool].max {
            self.evict(pool, estimate);
        }
        self.pools[pool].apps.push(app);
    }

    fn evict(&mut self, pool: usize, estimate: usize) {
        let worth = |app: u32| {
            let start_time = self.asks[&app].last().unwrap().1;
            self.worth(app, start_time, estimate, self.latest)
        };
        let apps = self.pools[pool].apps.iter().copied();
        let victim = apps.min_by(|one, other| worth(*one).total_cmp(&worth(*other)));
        let victim = victim.unwrap();
        self.pools[pool].apps.retain(|app| *app != victim);
    }

    fn worth(&self, app: u32, start_time: Duration, estimate: usize, now: Instant) -> f64 {
        self.asks.get(&app).map_or(0.0, |asks| {
            let times: Vec<Instant> = asks.iter().map(|(at, _)| *at).collect();
            self.cost(start_time) * hazard(&times, estimate, now)
        })
    }

    fn cost(&self, start_time: Duration) -> f64 {
        if self.counts_only {
            1.0
        } else {
            start_time.as_secs_f64().max(0.001)
        }
    }

    fn least_lost(&self) -> usize {
        let mut least = 0;
        for estimate in 1..4 {
            // Equal but for rounding is equal.
            let loss = |at| self.loss(at, self.count_reset);
            if loss(estimate) < loss(least) * (1.0 - 1e-12) {
                least = estimate;
            }
        }
        least
    }

    /// What a pool lost for each ask since that of the number `since`.
    fn loss(&self, pool: usize, since: u32) -> f64 {
        let weight = |ask: u32| FADE.powi((self.count - ask) as i32);
        let asks: f64 = (since + 1..=self.count).map(weight).sum();
        let losses = self.pools[pool].losses.iter();
        let lost: f64 = losses.map(|(ask, cost)| cost * weight(*ask)).sum();
        if asks > 0.0 { lost / asks } else { 0.0 }
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.nanos_since(from) as f64 / 1e9
}

fn hazard(times: &[Instant], estimate: usize, now: Instant) -> f64 {
    let age = seconds(times[times.len() - 1], now);
    match ESTIMATES[estimate] {
        "rates" => HALF_LIVES.iter().map(|span| rate(times, *span, now)).sum(),
        "gaps" => gap_hazard(times, age),
        "recency" => 1.0 / age,
        "hour" => rate(times, HALF_LIVES[3], now),
        unknown => panic!("no estimate is called {unknown}"),
    }
}

fn rate(times: &[Instant], half_life: f64, now: Instant) -> f64 {
    let first = 0.5_f64.powf(seconds(times[0], now) / half_life);
    let later = times.windows(2).map(|pair| {
        let left = 0.5_f64.powf(seconds(pair[1], now) / half_life);
        visit(seconds(pair[0], pair[1])) * left
    });
    (first + later.sum::<f64>()) * 2_f64.ln() / half_life
}

/// A gap of less than three seconds counts for less than a visit.
fn visit(gap: f64) -> f64 {
    (gap / 3.0).min(1.0)
}

/// As short and long gaps of the past say: counts, and seconds, of both.
fn gap_hazard(times: &[Instant], age: f64) -> f64 {
    const PRIOR: [(f64, f64); 2] = [(1.0, 5.0), (1.0, 600.0)];
    let mut kinds = PRIOR;
    for pair in times.windows(2) {
        let gap = seconds(pair[0], pair[1]);
        let fits = kinds.map(|(count, sum)| count * (count / sum) * (-gap * count / sum).exp());
        let short = if fits[0] > 0.0 {
            fits[0] / (fits[0] + fits[1])
        } else {
            0.0
        };
        let weight = visit(gap);
        for ((kind, prior), likely) in kinds.iter_mut().zip(PRIOR).zip([short, 1.0 - short]) {
            let fade = 1.0 - 0.02 * weight;
            kind.0 = prior.0 + (kind.0 - prior.0) * fade + weight * likely;
            kind.1 = prior.1 + (kind.1 - prior.1) * fade + weight * likely * gap;
        }
    }
    let [short, long] = kinds;
    let left = [short, long].map(|(count, sum)| count * (-age * count / sum).exp());
    let rates = [short.0 / short.1, long.0 / (long.1 + age)];
    if left[0] > 0.0 {
        (left[0] * rates[0] + left[1] * rates[1]) / (left[0] + left[1])
    } else {
        rates[1]
    }
}
