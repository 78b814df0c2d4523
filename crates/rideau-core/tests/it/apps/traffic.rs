//! Requests that come at a rate to an app whose new code is on trial, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rideau_core::apps::{
    AnswerHead, AppId, Apps, Ask, Came, Effect, Ended, Leaving, Limits, Note, Options, Restart,
    SessionId, TrialRules, TrialStats, TrialVerdict,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Flow, Instant, Machine, Reply, Rng};

/// NoReply waits here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NoReply;

impl Reply for NoReply {
    fn is_gone(&self) -> bool {
        false
    }
}

/// How code answers.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    /// The share of its answers that are failures.
    pub(crate) fails: f64,
    /// What its answers take, on average.
    pub(crate) takes: Duration,
}

pub(crate) const fn code(fails: f64) -> Code {
    Code {
        fails,
        takes: Duration::from_millis(10),
    }
}

/// Requests that come at a rate, an app that answers them, and a clock.
pub(crate) struct Traffic {
    pub(crate) apps: Apps<NoReply>,
    pub(crate) app: AppId,
    rng: Rng,
    pub(crate) now: Instant,
    next: Instant,
    per_s: f64,
    pub(crate) old: Code,
    new: Code,
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
    pub(crate) open: Vec<Option<(SessionId, AnswerHead)>>,
    pub(crate) notes: Vec<Note>,
    /// When both codes were asked for the server's own sake, after the restart.
    pub(crate) probes: Vec<Duration>,
    restarted: Instant,
    pub(crate) rejected: usize,
}

impl Traffic {
    pub(crate) fn new(per_s: f64, old: Code, new: Code, seed: u64) -> Self {
        Self::with_places(100_000, per_s, (old, new), seed)
    }

    pub(crate) fn with_places(
        places: usize,
        per_s: f64,
        (old, new): (Code, Code),
        seed: u64,
    ) -> Self {
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

    pub(crate) fn carry_out(&mut self, effects: Vec<Effect<NoReply>>) {
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
    pub(crate) fn step(&mut self) {
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

    pub(crate) fn restart(&mut self) {
        self.restarted = self.now;
        let mut effects = Vec::new();
        self.apps
            .restart(self.app, Restart::Rolling, self.now, &mut effects);
        self.carry_out(effects);
    }

    pub(crate) fn verdict(&self) -> Option<(TrialVerdict, TrialStats)> {
        self.notes.iter().find_map(|note| match note {
            Note::TrialEnded { ended, .. } => Some((ended.verdict, ended.seen)),
            _ => None,
        })
    }

    /// A thousand answers, then new code: what becomes of it.
    pub(crate) fn judged(mut self) -> (TrialVerdict, TrialStats) {
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
