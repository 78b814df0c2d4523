//! Evictions by worth on the traffic that it was made for: as the bench
//! `eviction` counts them, and as apps have them.

use std::time::Duration;

use rideau_core::apps::{AppId, Apps, Ask, Came, Effect, Ended, EvictFor, Limits, Options};
use rideau_core::eviction_score::EvictionScore;
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Reply};

use super::are_close;
use super::traces::{APPS, Request, TRACES};

const MAX: usize = 10;
const START_TIME: Duration = Duration::from_secs(1);

/// Starts that the bench counts for the first seed.
const SIMULATED: [(&str, usize); 12] = [
    ("zipf 0.6", 20_692),
    ("zipf 0.8", 17_240),
    ("zipf 1.0", 13_518),
    ("zipf 1.2", 9_791),
    ("drift", 13_957),
    ("phases", 14_093),
    ("visitors", 11_744),
    ("visitors slow", 6_148),
    ("zipf + monitor", 14_571),
    ("visitors + monitor", 12_984),
    ("pages 1/s", 758),
    ("pages 4/s", 1_319),
];

#[test]
fn a_pool_that_goes_by_worth_starts_as_many_as_the_simulation() {
    let mut found = Vec::new();
    for trace in &TRACES {
        let mut pool = Pool::new();
        let requests = trace.requests(30_000, 1);
        let starts = requests.iter().filter(|request| pool.ask(request)).count();
        pool.check_shadow();
        found.push((trace.name, starts));
    }
    let are_near = found
        .iter()
        .zip(&SIMULATED)
        .all(|(found, simulated)| found.0 == simulated.0 && is_near(found.1, simulated.1));
    assert!(are_near, "{found:?}");
}

#[test]
fn apps_start_as_many_as_the_simulation() {
    for trace in &TRACES {
        let (mut pool, mut real) = (Pool::new(), RealPool::new());
        let requests = trace.requests(5_000, 2);
        let simulated = requests.iter().filter(|request| pool.ask(request)).count();
        requests.iter().for_each(|request| real.ask(request));
        assert!(
            is_near(real.starts, simulated),
            "{}: {} and not {simulated}",
            trace.name,
            real.starts
        );
    }
}

/// Within two in a hundred.
fn is_near(starts: usize, simulated: usize) -> bool {
    starts.abs_diff(simulated) * 50 <= simulated
}

/// Apps whose processes start, answer and end in no time.
struct RealPool {
    apps: Apps<Client>,
    starts: usize,
}

#[derive(Debug)]
struct Client;

impl Reply for Client {}

impl RealPool {
    fn new() -> Self {
        let limits = Limits {
            max: MAX,
            evict_for: EvictFor::Count,
            ..Limits::default()
        };
        let mut apps = Apps::new(limits, 1, Instant::START).unwrap();
        for _ in 0..APPS {
            let options = Options {
                idle_after: None,
                ..Options::default()
            };
            apps.add(options, Instant::START, &mut Vec::new()).unwrap();
        }
        Self { apps, starts: 0 }
    }

    fn ask(&mut self, request: &Request) {
        let Request { app, at: now } = *request;
        let ask = Ask {
            terms: AskOptions::new(now),
            sticky: None,
            avoid: None,
        };
        let mut effects = Vec::new();
        let app = AppId(app);
        let mut session = match self.apps.ask(app, &ask, || Client, now, &mut effects) {
            Came::Granted(session) => Some(session),
            Came::Waits(_) => None,
            Came::Refused(refusal) => panic!("{refusal:?}"),
        };
        while !effects.is_empty() {
            match effects.remove(0) {
                Effect::Start { process, .. } => {
                    self.starts += 1;
                    assert!(self.apps.started(process, now, &mut effects));
                }
                Effect::Stop { process, .. } => self.apps.gone(process, now, &mut effects),
                Effect::Grant { session: place, .. } => session = Some(place),
                Effect::Note(_) | Effect::Drain { .. } => (),
                other => panic!("{other:?}"),
            }
        }
        let session = session.unwrap().id;
        self.apps
            .release(session, Ended::Answered, now, &mut effects);
        assert!(effects.is_empty(), "{effects:?}");
    }
}

/// Names of apps with a process; the app that is worth least makes room.
struct Pool {
    here: Vec<u32>,
    worth: EvictionScore,
    /// As the worth itself counts them: fading, and all asks beside them.
    starts: f64,
    asks: f64,
}

impl Pool {
    fn new() -> Self {
        Self {
            here: Vec::new(),
            worth: EvictionScore::new(MAX, true),
            starts: 0.0,
            asks: 0.0,
        }
    }

    /// Returns whether the app has to be started.
    fn ask(&mut self, request: &Request) -> bool {
        let Request { app, at } = *request;
        self.worth.asked(app, START_TIME, at);
        let starts = !self.here.contains(&app);
        if starts && self.here.len() == MAX {
            let value = |app: &u32| self.worth.value(*app, START_TIME, at);
            let victim = (0..MAX)
                .min_by(|one, other| value(&self.here[*one]).total_cmp(&value(&self.here[*other])));
            self.here.swap_remove(victim.unwrap());
        }
        if starts {
            self.here.push(app);
        }
        self.starts = self.starts * 0.9998 + f64::from(u8::from(starts));
        self.asks = self.asks * 0.9998 + 1.0;
        starts
    }

    /// The shadow of the pool's own size lost what the pool lost.
    fn check_shadow(&self) {
        let what_if = self.worth.what_if();
        let own = what_if.iter().find(|(size, _)| *size == MAX);
        let (shadow, real) = (own.unwrap().1, self.starts / self.asks);
        assert!(are_close(shadow, real), "{shadow} {real}");
    }
}
