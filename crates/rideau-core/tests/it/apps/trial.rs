//! New code on trial beside the old, on a virtual clock: how often it is rejected, and what
//! that costs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rideau_core::apps::{
    AnswerHead, AppId, Apps, Ask, Came, Deploy, Effect, Ended, Leaving, Limits, Note, Options,
    Restart, SessionId, TrialRules, TrialStats, TrialVerdict,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Flow, Instant, Machine, Reply, Rng};

/// NoReply waits here.
#[derive(Clone, Debug, PartialEq)]
struct NoReply;

impl Reply for NoReply {
    fn is_gone(&self) -> bool {
        false
    }
}

/// How code answers.
#[derive(Clone, Copy)]
struct Code {
    /// The share of its answers that are failures.
    fails: f64,
    /// What its answers take, on average.
    takes: Duration,
}

const fn code(fails: f64) -> Code {
    Code {
        fails,
        takes: Duration::from_millis(10),
    }
}

/// Requests that come at a rate, an app that answers them, and a clock.
struct Traffic {
    apps: Apps<NoReply>,
    app: AppId,
    rng: Rng,
    now: Instant,
    next: Instant,
    per_s: f64,
    old: Code,
    new: Code,
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
    open: Vec<Option<(SessionId, AnswerHead)>>,
    notes: Vec<Note>,
    /// When both codes were asked for the server's own sake, after the restart.
    probes: Vec<Duration>,
    restarted: Instant,
    rejected: usize,
}

impl Traffic {
    fn new(per_s: f64, old: Code, new: Code, seed: u64) -> Self {
        Self::with_places(100_000, per_s, (old, new), seed)
    }

    fn with_places(places: usize, per_s: f64, (old, new): (Code, Code), seed: u64) -> Self {
        let mut apps = Apps::new(Limits::default(), seed, Instant::START).unwrap();
        let options = Options {
            min: 1,
            concurrency: Some(places),
            idle_after: None,
            trial: Some(TrialRules::default()),
            ..Options::default()
        };
        let mut effects = Vec::new();
        let app = apps.add(options, Instant::START, &mut effects).unwrap();
        let mut traffic = Self {
            apps,
            app,
            rng: Rng::new(seed ^ 0x5eed),
            now: Instant::START,
            next: Instant::NEVER,
            per_s,
            old,
            new,
            ends: BinaryHeap::new(),
            open: Vec::new(),
            notes: Vec::new(),
            probes: Vec::new(),
            restarted: Instant::START,
            rejected: 0,
        };
        traffic.carry_out(effects);
        if per_s > 0.0 {
            traffic.next = traffic.now + traffic.gap();
        }
        traffic
    }

    fn chance(&mut self) -> f64 {
        (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.chance()).ln() * mean)
    }

    fn gap(&mut self) -> Duration {
        self.exponential(1.0 / self.per_s)
    }

    fn carry_out(&mut self, effects: Vec<Effect<NoReply>>) {
        for effect in effects {
            let mut more = Vec::new();
            match effect {
                Effect::Start { process, .. } => {
                    assert!(self.apps.started(process, self.now, &mut more));
                }
                Effect::Stop { process, why, .. } => {
                    self.rejected += usize::from(why == Leaving::Rejected);
                    self.apps.gone(process, self.now, &mut more);
                }
                Effect::Probe { app, .. } => {
                    self.probes.push(self.now.since(self.restarted));
                    let [old, new] = [self.old, self.new].map(|code| code.fails > self.chance());
                    self.apps.probed(app, old, new, self.now, &mut more);
                }
                Effect::Note(note) => self.notes.push(note),
                _ => (),
            }
            self.carry_out(more);
        }
    }

    /// The next thing happens.
    fn step(&mut self) {
        let end = self.ends.peek().map_or(Instant::NEVER, |end| end.0.0);
        let due = self.apps.deadline().unwrap_or(Instant::NEVER);
        self.now = end.min(due).min(self.next).max(self.now);
        assert_ne!(self.now, Instant::NEVER, "something goes on");
        let mut effects = Vec::new();
        if end <= self.now {
            let Reverse((_, index)) = self.ends.pop().unwrap();
            let (session, head) = self.open[index as usize].take().unwrap();
            let head = Some(head);
            let ended = Ended::Answered;
            self.apps
                .release_answered(session, ended, head, self.now, &mut effects);
        } else if self.next <= self.now {
            self.next = self.now + self.gap();
            self.arrive(&mut effects);
        } else {
            self.apps.advance(self.now, &mut effects);
        }
        self.carry_out(effects);
    }

    fn arrive(&mut self, effects: &mut Vec<Effect<NoReply>>) {
        let ask = Ask {
            terms: AskOptions {
                sent: self.now,
                deadline: None,
                flow: Flow::default(),
                tag: None,
                wait: true,
                promised: false,
            },
            sticky: None,
            avoid: None,
        };
        let came = self.apps.ask(self.app, &ask, || NoReply, self.now, effects);
        let Came::Granted(session) = came else {
            panic!("there is room for all");
        };
        let code = match session.generation {
            1 => self.old,
            _ => self.new,
        };
        let after = self.exponential(code.takes.as_secs_f64());
        let failed = self.chance() < code.fails;
        self.open
            .push(Some((session.id, AnswerHead { failed, after })));
        self.ends
            .push(Reverse((self.now + after, self.open.len() as u64 - 1)));
    }

    fn restart(&mut self) {
        self.restarted = self.now;
        let mut effects = Vec::new();
        self.apps
            .restart(self.app, Restart::Rolling, self.now, &mut effects);
        self.carry_out(effects);
    }

    fn verdict(&self) -> Option<(TrialVerdict, TrialStats)> {
        self.notes.iter().find_map(|note| match note {
            Note::TrialEnded { ended, .. } => Some((ended.verdict, ended.seen)),
            _ => None,
        })
    }

    /// A thousand answers, then new code: what becomes of it.
    fn judged(mut self) -> (TrialVerdict, TrialStats) {
        while self.open.len() < 1_000 {
            self.step();
        }
        self.restart();
        loop {
            self.step();
            if let Some(verdict) = self.verdict() {
                return verdict;
            }
        }
    }
}

/// The share of trials that rejected the new code, and the middle of its failures by then.
fn rejected(per_s: f64, old: Code, new: Code, seeds: u64) -> (f64, u64) {
    let judged = (0..seeds).map(|seed| Traffic::new(per_s, old, new, seed).judged());
    let bad = judged.filter(|(verdict, _)| !verdict.is_good());
    let mut failures: Vec<_> = bad.map(|(_, seen)| seen.new.failures).collect();
    failures.sort_unstable();
    let middle = failures.get(failures.len() / 2).copied();
    (failures.len() as f64 / seeds as f64, middle.unwrap_or(0))
}

#[test]
fn code_that_fails_is_rejected_and_code_that_does_not_is_kept() {
    // A row is: requests a second, what the old code fails, what the new one fails, how many
    // trials; the least and the largest share of rejections, and the most failures.
    let rows = [
        (1.0, 0.0, 0.0, 100, 0.0, 0.0, 0),
        (1.0, 0.0, 0.2, 200, 0.5, 0.78, 9),
        (1.0, 0.0, 0.5, 100, 0.97, 1.0, 4),
        (1.0, 0.0, 1.0, 50, 1.0, 1.0, 4),
        (1.0, 0.1, 0.1, 200, 0.0, 0.01, 99),
        (1.0, 0.1, 0.5, 200, 0.5, 0.78, 20),
        (10.0, 0.0, 0.0, 100, 0.0, 0.0, 0),
        (10.0, 0.0, 0.05, 200, 0.0, 0.15, 99),
        (10.0, 0.0, 0.2, 100, 0.9, 1.0, 9),
        (10.0, 0.0, 0.5, 100, 0.99, 1.0, 4),
        (10.0, 0.01, 0.21, 100, 0.75, 1.0, 12),
        (10.0, 0.1, 0.1, 200, 0.0, 0.01, 99),
        (10.0, 0.1, 0.3, 200, 0.12, 0.36, 99),
        (10.0, 0.1, 0.5, 100, 0.8, 1.0, 25),
        (1000.0, 0.0, 0.05, 10, 0.9, 1.0, 6),
        (1000.0, 0.01, 0.01, 10, 0.0, 0.0, 99),
        (1000.0, 0.1, 0.3, 10, 0.9, 1.0, 40),
    ];
    for (per_s, old, new, seeds, least, largest, most) in rows {
        let (share, failures) = rejected(per_s, code(old), code(new), seeds);
        let row = format!("{per_s}/s, {old} and {new}: {share}, {failures} failures");
        println!("{row}");
        assert!((least..=largest).contains(&share), "{row}");
        assert!(failures <= most, "{row}");
    }
}

#[test]
fn code_that_is_much_slower_is_rejected() {
    let slower = |times: u32| Code {
        fails: 0.0,
        takes: code(0.0).takes * times,
    };
    for (per_s, times, seeds, least, largest) in [
        (10.0, 1, 50, 0.0, 0.0),
        (10.0, 2, 50, 0.0, 0.1),
        (10.0, 20, 30, 0.95, 1.0),
        (1000.0, 20, 3, 1.0, 1.0),
    ] {
        let (share, _) = rejected(per_s, code(0.0), slower(times), seeds);
        let row = format!("{per_s}/s, {times} times as slow: {share}");
        println!("{row}");
        assert!((least..=largest).contains(&share), "{row}");
    }
}

#[test]
fn what_new_code_has_failed_waits_for_the_old_code() {
    let codes = (code(0.0), code(0.0));
    let mut traffic = Traffic::with_places(1, 0.0, codes, 1);
    traffic.restart();
    let mut effects = Vec::new();
    let mut ask = |avoid, effects: &mut Vec<_>| {
        let ask = Ask {
            terms: AskOptions::new(traffic.now),
            sticky: None,
            avoid,
        };
        let (app, now) = (traffic.app, traffic.now);
        traffic.apps.ask(app, &ask, || NoReply, now, effects)
    };
    let sessions = [None; 2].map(|avoid| match ask(avoid, &mut effects) {
        Came::Granted(session) => session,
        _ => panic!("each code has a place"),
    });
    let of = |generation| {
        sessions
            .iter()
            .find(|it| it.generation == generation)
            .unwrap()
    };
    let (old, new) = (of(1), of(2));
    let now = traffic.now;
    traffic
        .apps
        .release(new.id, Ended::Broken, now, &mut effects);
    let again = Ask {
        terms: AskOptions::new(now),
        sticky: None,
        avoid: Some(new.id.process),
    };
    let came = traffic
        .apps
        .ask(traffic.app, &again, || NoReply, now, &mut effects);
    assert!(matches!(came, Came::Waits(_)), "the new code has a place");
    effects.clear();
    traffic
        .apps
        .release(old.id, Ended::Answered, now, &mut effects);
    let granted = effects.iter().find_map(|effect| match effect {
        Effect::Grant { session, .. } => Some(session.generation),
        _ => None,
    });
    assert_eq!(granted, Some(1));
}

#[test]
fn a_repair_is_never_rejected() {
    for per_s in [1.0, 10.0] {
        for seed in 0..50 {
            let (verdict, seen) = Traffic::new(per_s, code(1.0), code(0.0), seed).judged();
            assert_eq!(verdict, TrialVerdict::Good, "{seen:?}");
        }
    }
}

#[test]
fn what_fails_together_is_never_found_good_while_it_does() {
    for seed in 0..20 {
        let mut traffic = Traffic::new(10.0, code(0.0), code(1.0), seed);
        while traffic.open.len() < 1_000 {
            traffic.step();
        }
        // Both depend on something that is gone.
        traffic.old = code(1.0);
        traffic.restart();
        while traffic.verdict().is_none() {
            traffic.step();
        }
        let (verdict, _) = traffic.verdict().unwrap();
        assert!(!verdict.is_good(), "{verdict:?}");
    }
}

#[test]
fn without_traffic_both_are_asked_the_same() {
    let mut quiet = Traffic::new(0.0, code(0.0), code(0.0), 1);
    quiet.restart();
    while quiet.verdict().is_none() {
        quiet.step();
    }
    let (verdict, seen) = quiet.verdict().unwrap();
    assert_eq!(verdict, TrialVerdict::Good);
    assert_eq!(seen.lasts, Duration::from_secs(60));
    let seconds: Vec<_> = quiet.probes.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [10, 20, 30, 40, 50]);
    let mut broken = Traffic::new(0.0, code(0.0), code(1.0), 1);
    broken.restart();
    while broken.verdict().is_none() {
        broken.step();
    }
    assert!(!broken.verdict().unwrap().0.is_good());
    assert_eq!(broken.rejected, 1, "its process goes");
}

#[test]
fn newer_code_calls_a_trial_off() {
    let mut traffic = Traffic::new(10.0, code(0.0), code(0.0), 1);
    while traffic.open.len() < 100 {
        traffic.step();
    }
    traffic.restart();
    for _ in 0..20 {
        traffic.step();
    }
    traffic.restart();
    let began = |note: &&Note| matches!(note, Note::TrialBegan { .. });
    assert_eq!(traffic.notes.iter().filter(began).count(), 2);
    while traffic.verdict().is_none() {
        traffic.step();
    }
    for _ in 0..100 {
        traffic.step();
    }
    let stats = traffic.apps.app_stats(traffic.app, traffic.now).unwrap();
    assert_eq!((stats.generation, stats.deploy), (3, Deploy::Settled));
    assert!(stats.processes.iter().all(|it| it.generation == 3));
}

#[test]
fn where_the_old_code_is_lost_the_new_serves() {
    let mut traffic = Traffic::new(10.0, code(0.0), code(0.5), 1);
    while traffic.open.len() < 100 {
        traffic.step();
    }
    traffic.restart();
    let stats = traffic.apps.app_stats(traffic.app, traffic.now).unwrap();
    let old = stats
        .processes
        .iter()
        .find(|it| it.generation == 1)
        .unwrap();
    let mut effects = Vec::new();
    traffic.apps.lost(old.process, traffic.now, &mut effects);
    traffic.carry_out(effects);
    assert_eq!(traffic.verdict().unwrap().0, TrialVerdict::Alone);
}

#[test]
fn an_operator_gives_the_verdict() {
    for is_good in [true, false] {
        let mut traffic = Traffic::new(10.0, code(0.0), code(0.0), 1);
        traffic.restart();
        let (mut effects, now) = (Vec::new(), traffic.now);
        let app = traffic.app;
        assert!(traffic.apps.end_trial(app, is_good, now, &mut effects));
        traffic.carry_out(effects);
        assert!(!traffic.apps.end_trial(app, is_good, now, &mut Vec::new()));
        let stats = traffic.apps.app_stats(app, now).unwrap();
        let deploy = if is_good {
            Deploy::Settled
        } else {
            Deploy::Failed
        };
        assert_eq!(stats.deploy, deploy);
    }
}
