//! Applications of many kinds in front of the very learner: where it settles, how soon, how
//! often it moves, and what that costs.
//!
//! 512 clients ask again as soon as they are answered, and wait in one queue. A request is on
//! its way for a moment, then it may wait for something that all wait for at the same time,
//! and then it takes one of a few workers for itself. Service times are within a half of
//! their mean. A soak has more seeds and more time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Learner;
use crate::rng::Rng;
use crate::time::Instant;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

const CLIENTS: usize = 512;

/// A kind of application, and what the learner has to make of it.
struct Case {
    name: &'static str,
    model: Model,
    /// Simulated seconds, and those of a soak.
    seconds: (u64, u64),
    /// It settles within these limits,
    settles: (usize, usize),
    /// after this many seconds.
    after: u64,
    /// Its rate is at least this share of what it could do, once it has settled.
    share: f64,
}

/// The clients.
#[derive(Clone, Copy)]
enum Clients {
    /// Each asks again as soon as it is answered.
    Closed,
    /// They come at this share of what can be done, whatever becomes of them.
    Open(f64),
    /// This many ask together, and again when all are answered.
    InStep(usize),
}

/// How an application serves.
#[derive(Clone, Copy)]
struct Model {
    /// What requests wait for together.
    wait: u64,
    workers: usize,
    work: u64,
    /// One of ten takes so long instead.
    rare: Option<u64>,
}

/// The table of what is wanted.
const CASES: &[Case] = &[
    Case {
        name: "1 worker, 5 ms",
        model: workers(1, 5 * MS),
        seconds: (60, 600),
        settles: (2, 2),
        after: 7,
        share: 0.98,
    },
    Case {
        name: "1 worker, 50 ms",
        model: workers(1, 50 * MS),
        seconds: (300, 600),
        settles: (2, 2),
        after: 36,
        share: 0.98,
    },
    Case {
        name: "4 workers, 5 ms",
        model: workers(4, 5 * MS),
        seconds: (60, 600),
        settles: (6, 6),
        after: 6,
        share: 0.98,
    },
    Case {
        name: "4 workers, 5 ms, a tenth 500 ms",
        model: Model {
            rare: Some(500 * MS),
            ..workers(4, 5 * MS)
        },
        seconds: (300, 600),
        settles: (3, 24),
        after: 20,
        share: 0.6,
    },
    Case {
        name: "16 threads, 20 ms",
        model: workers(16, 20 * MS),
        seconds: (60, 600),
        settles: (24, 24),
        after: 4,
        share: 0.98,
    },
    Case {
        name: "async 50 ms, 0.2 ms of processor",
        model: waits(50 * MS, 200 * US),
        seconds: (30, 600),
        settles: (384, 384),
        after: 7,
        share: 0.98,
    },
    Case {
        name: "async 50 ms, 1 ms of processor",
        model: waits(50 * MS, MS),
        seconds: (60, 600),
        settles: (96, 96),
        after: 6,
        share: 0.98,
    },
    Case {
        name: "one core, 1 ms of processor",
        model: workers(1, MS),
        seconds: (60, 600),
        settles: (2, 2),
        after: 7,
        share: 0.98,
    },
    Case {
        name: "two cores, 50 us of processor",
        model: Model {
            workers: 2,
            ..waits(100 * US, 50 * US)
        },
        seconds: (15, 600),
        settles: (12, 12),
        after: 6,
        share: 0.9,
    },
    Case {
        name: "1 worker, 1 s",
        model: workers(1, SECOND),
        seconds: (1_800, 3_600),
        settles: (1, 2),
        after: 600,
        share: 0.97,
    },
    Case {
        name: "5 threads, 1 s",
        model: workers(5, SECOND),
        seconds: (600, 1_800),
        settles: (6, 12),
        after: 180,
        share: 0.9,
    },
    Case {
        name: "async 2 s",
        model: waits(2 * SECOND, 200 * US),
        seconds: (300, 600),
        settles: (512, 512),
        after: 90,
        share: 0.98,
    },
];

const fn workers(workers: usize, work: u64) -> Model {
    Model {
        wait: 0,
        workers,
        work,
        rare: None,
    }
}

const fn waits(wait: u64, work: u64) -> Model {
    Model {
        wait,
        workers: 1,
        work,
        rare: None,
    }
}

impl Model {
    /// What it can do in a second if that is shared by as many requests as there are.
    fn capacity(&self) -> f64 {
        let mean = match self.rare {
            Some(rare) => (9 * self.work + rare) as f64 / 10.0,
            None => self.work as f64,
        };
        let by_work = self.workers as f64 / mean;
        let by_wait = CLIENTS as f64 / (self.wait as f64 + mean);
        by_work.min(by_wait) * SECOND as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client asks that waits for no answer.
    Asks,
    /// A request that is inside since then wants a worker.
    Arrives(u64),
    /// A worker is done with it.
    Done(u64),
}

struct World {
    model: Model,
    clients: Clients,
    rng: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    /// Requests that want a worker, each with when it came in.
    backlog: VecDeque<u64>,
    busy: usize,
    inside: usize,
    waiting: usize,
    /// When the number inside changed last.
    since: u64,
    answered: u64,
    learner: Learner,
}

/// What came of a run.
struct Run {
    /// The limits, and since when each.
    limits: Vec<(u64, usize)>,
    /// Answers from one half of the time on.
    late: f64,
    end: u64,
}

impl World {
    fn new(model: Model, clients: Clients, seed: u64) -> Self {
        Self {
            model,
            clients,
            rng: Rng::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            serial: 0,
            backlog: VecDeque::new(),
            busy: 0,
            inside: 0,
            waiting: 0,
            since: 0,
            answered: 0,
            learner: Learner::new(Instant::START),
        }
    }

    fn push(&mut self, after: u64, event: Event) {
        self.serial += 1;
        self.events
            .push(Reverse((self.now + after, self.serial, event)));
    }

    /// From a half of a span to one and a half; of clients that ask together all take as long.
    fn about(&mut self, span: u64) -> u64 {
        if matches!(self.clients, Clients::InStep(_)) {
            return span;
        }
        span / 2 + self.rng.below(span.max(1))
    }

    fn change(&mut self, inside: usize) {
        self.learner.spent(self.inside, self.now - self.since);
        (self.inside, self.since) = (inside, self.now);
    }

    /// Let requests in, as far as there is room.
    fn admit(&mut self) {
        const WAY: u64 = 50 * US;
        while self.waiting > 0 && self.inside < self.learner.limit() {
            self.waiting -= 1;
            self.change(self.inside + 1);
            let wait = self.about(self.model.wait);
            self.push(WAY + wait, Event::Arrives(self.now));
        }
    }

    fn work(&mut self) {
        while self.busy < self.model.workers
            && let Some(since) = self.backlog.pop_front()
        {
            self.busy += 1;
            let rare = self.model.rare.filter(|_| self.rng.below(10) == 0);
            let took = self.about(rare.unwrap_or(self.model.work));
            self.push(took, Event::Done(since));
        }
    }

    fn answer(&mut self, since: u64) {
        self.answered += 1;
        let inside = self.inside;
        self.change(inside - 1);
        self.learner.answered(inside, self.now - since);
        let now = Instant::from_nanos(self.now);
        if self.learner.is_due(now) {
            self.learner.decide(self.waiting > 0, Learner::MOST, now);
        }
        match self.clients {
            Clients::Closed => self.waiting += 1,
            Clients::InStep(_) if self.waiting + self.inside == 0 => self.push(MS, Event::Asks),
            _ => (),
        }
    }

    /// The next client comes.
    fn expect(&mut self, share: f64) {
        let lot = (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let gap = -(1.0 - lot).ln() / (share * self.model.capacity()) * SECOND as f64;
        self.push(gap as u64, Event::Asks);
    }

    fn run(mut self, seconds: u64) -> Run {
        let end = seconds * SECOND;
        let mut limits = vec![(0, self.learner.limit())];
        let mut before = 0;
        match self.clients {
            Clients::Closed => self.waiting = CLIENTS,
            Clients::Open(share) => self.expect(share),
            Clients::InStep(_) => self.push(0, Event::Asks),
        }
        self.admit();
        while let Some(Reverse((at, _, event))) = self.events.pop()
            && at <= end
        {
            self.now = at;
            match event {
                Event::Asks => match self.clients {
                    Clients::InStep(count) => self.waiting += count,
                    Clients::Open(share) => {
                        self.waiting += 1;
                        self.expect(share);
                    }
                    Clients::Closed => self.waiting += 1,
                },
                Event::Arrives(since) => self.backlog.push_back(since),
                Event::Done(since) => {
                    self.busy -= 1;
                    self.answer(since);
                }
            }
            if at <= end / 2 {
                before = self.answered;
            }
            let limit = self.learner.limit();
            if limits.last().is_some_and(|(_, last)| *last != limit) {
                limits.push((at, limit));
            }
            self.work();
            self.admit();
        }
        let late = (self.answered - before) as f64 / (end - end / 2) as f64;
        Run {
            limits,
            late: late * SECOND as f64,
            end,
        }
    }
}

impl Run {
    /// From when on the limit was within these, in seconds. What is known fades after five
    /// minutes, and is looked at once more then.
    fn settled(&self, case: &Case) -> f64 {
        const FADES: u64 = 300 * SECOND;
        let first = |(since, _): &&(u64, usize)| *since < FADES.max(case.after * SECOND);
        let (least, most) = case.settles;
        let first: Vec<_> = self.limits.iter().take_while(first).collect();
        let is_outside = |limit: usize| !(least..=most).contains(&limit);
        let outside = first.iter().rposition(|(_, limit)| is_outside(*limit));
        let within = first.get(outside.map_or(0, |outside| outside + 1));
        within.map_or(f64::INFINITY, |(since, _)| *since as f64 / SECOND as f64)
    }

    /// Moves in ten minutes, or in all of a shorter time.
    fn moves(&self) -> f64 {
        const TEN_MINUTES: f64 = 600.0 * SECOND as f64;
        let moves = (self.limits.len() - 1) as f64;
        moves * (TEN_MINUTES / self.end as f64).min(1.0)
    }
}

fn is_soak() -> bool {
    std::env::var_os("RIDEAU_SOAK").is_some()
}

#[test]
fn the_limit_settles_where_an_application_serves_best() {
    let seeds = if is_soak() { 8 } else { 3 };
    for case in CASES {
        let (short, long) = case.seconds;
        let seconds = if is_soak() { long } else { short };
        for seed in 0..seeds {
            let run = World::new(case.model, Clients::Closed, seed).run(seconds);
            let (settled, moves) = (run.settled(case), run.moves());
            let share = run.late / case.model.capacity();
            let told = format!(
                "{}, seed {seed}: settled after {settled:.1} s, {moves:.1} moves, {share:.2} of \
                 what it can do: {:?}",
                case.name, run.limits
            );
            assert!(settled <= case.after as f64, "{told}");
            assert!(moves <= 12.0, "{told}");
            assert!(share >= case.share, "{told}");
        }
    }
}

#[test]
fn where_there_is_room_for_all_nobody_is_kept_waiting() {
    for case in CASES {
        let (short, long) = case.seconds;
        let seconds = if is_soak() { long } else { short };
        let run = World::new(case.model, Clients::Open(0.7), 1).run(seconds);
        let share = run.late / case.model.capacity();
        assert!((0.6..0.8).contains(&share), "{}: {share:.2}", case.name);
    }
}

/// Most answers come when others have left already: that says nothing of what fewer at a time
/// would get done.
#[test]
fn clients_that_ask_together_and_wait_for_each_other_keep_their_room() {
    for (count, wait) in [(4, 100 * MS), (10, 100 * MS), (16, 20 * MS), (10, SECOND)] {
        let clients = Clients::InStep(count);
        let run = World::new(waits(wait, MS), clients, 1).run(1_200);
        let least = run.limits.iter().map(|(_, limit)| *limit).min();
        assert!(least >= Some(count), "{count}, {wait}: {:?}", run.limits);
    }
}

/// A worker that takes one at a time is found before it has too much to do.
#[test]
fn one_worker_is_found_without_overload() {
    for (seed, work) in [(1, 5 * MS), (2, 5 * MS), (1, 50 * MS), (2, 50 * MS)] {
        let run = World::new(workers(1, work), Clients::Open(0.7), seed).run(600);
        let last = run.limits.last().map(|(_, limit)| *limit);
        assert!(last <= Some(6), "{work}: {:?}", run.limits);
    }
}
