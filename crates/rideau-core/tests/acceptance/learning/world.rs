//! Clients, an application of some kind, and the machine of the apps between them, on a virtual
//! clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rideau_core::apps::{
    AppId, Apps, Ask, Came, Effect, Ended, Limits, Note, Options, Session, SessionId,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine, Reply, Rng};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Clients that ask again as soon as they are answered.
pub(super) const CROWD: usize = 512;
/// From the front to the application.
const WAY: u64 = 50 * US;

/// How an application serves: a request waits for something that all wait for at the same time,
/// and then takes one of a few workers for itself.
#[derive(Clone, Copy)]
pub(super) struct Model {
    pub(super) wait: u64,
    pub(super) workers: usize,
    pub(super) work: u64,
    /// One of ten takes so long instead.
    pub(super) rare: Option<u64>,
}

impl Model {
    pub(super) const fn workers(workers: usize, work: u64) -> Self {
        Self {
            wait: 0,
            workers,
            work,
            rare: None,
        }
    }

    pub(super) const fn waits(wait: u64, work: u64) -> Self {
        Self {
            wait,
            workers: 1,
            work,
            rare: None,
        }
    }

    /// What it does in a second if a crowd shares it.
    pub(super) fn capacity(&self) -> f64 {
        let mean = match self.rare {
            Some(rare) => (9 * self.work + rare) as f64 / 10.0,
            None => self.work as f64,
        };
        let by_work = self.workers as f64 / mean;
        let by_wait = CROWD as f64 / (self.wait as f64 + mean);
        by_work.min(by_wait) * SECOND as f64
    }
}

/// How clients ask.
#[derive(Clone, Copy)]
pub(super) enum Clients {
    /// Each of a crowd asks again as soon as it is answered, and a second after it was refused.
    Closed,
    /// They come at this share of what can be done, whatever becomes of them.
    Open(f64),
    /// This many ask together, and again when all are answered.
    InStep(usize),
}

/// What came of a run.
pub(super) struct Learning {
    /// The limits, and since when each.
    pub(super) limits: Vec<(u64, usize)>,
    /// Answers in a second of the last two fifths of the time,
    pub(super) rate: f64,
    /// and how long each of these requests was inside, on average, in milliseconds.
    pub(super) inside_ms: f64,
    pub(super) refused: u64,
    /// How many of these were refused in the last two fifths.
    pub(super) refused_late: u64,
    pub(super) seconds: u64,
}

impl Learning {
    /// From when on the limit was within these, in seconds, before what is known fades the
    /// first time: all is looked at once more then.
    pub(super) fn settled(&self, (least, most): (usize, usize), before: u64) -> f64 {
        let first = self.limits.iter();
        let first: Vec<_> = first
            .take_while(|(since, _)| *since < before * SECOND)
            .collect();
        let is_outside = |limit: usize| !(least..=most).contains(&limit);
        let outside = first.iter().rposition(|(_, limit)| is_outside(*limit));
        let within = first.get(outside.map_or(0, |outside| outside + 1));
        within.map_or(f64::INFINITY, |(since, _)| *since as f64 / SECOND as f64)
    }

    /// The most moves in ten minutes on end.
    pub(super) fn moves(&self) -> usize {
        let times: Vec<_> = self.limits[1..].iter().map(|(since, _)| *since).collect();
        let in_ten_minutes = |(index, first): (usize, &u64)| {
            let later = times[index..].iter();
            later
                .take_while(|since| **since < first + 600 * SECOND)
                .count()
        };
        times
            .iter()
            .enumerate()
            .map(in_ten_minutes)
            .max()
            .unwrap_or(0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A client asks that waits for no answer.
    Asks,
    /// The request in this place wants a worker.
    Arrives(usize),
    /// A worker is done with it.
    Done(usize),
}

struct Client;

impl Reply for Client {
    fn is_gone(&self) -> bool {
        false
    }
}

/// All of it.
pub(super) struct World {
    apps: Apps<Client>,
    app: AppId,
    model: Model,
    clients: Clients,
    rng: Rng,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Happens)>>,
    serial: u64,
    /// Requests inside, each with when it came in, and places that are free again.
    inside: Vec<(Option<SessionId>, Instant)>,
    free: Vec<usize>,
    backlog: VecDeque<usize>,
    busy: usize,
    /// Asks that have no answer.
    open: usize,
    answered: u64,
    stayed: u64,
    refused: u64,
    limits: Vec<(u64, usize)>,
}

impl World {
    /// `fixed`: as many at a time, whatever could be learnt.
    pub(super) fn new(model: Model, clients: Clients, fixed: Option<usize>, seed: u64) -> Self {
        let mut apps = Apps::new(Limits::default(), seed, Instant::START).unwrap();
        let options = Options {
            min: 1,
            max: Some(1),
            concurrency: fixed,
            ..Options::default()
        };
        let mut effects = Vec::new();
        let app = apps.add(options, Instant::START, &mut effects).unwrap();
        let mut world = Self {
            apps,
            app,
            model,
            clients,
            rng: Rng::new(seed),
            now: Instant::START,
            events: BinaryHeap::new(),
            serial: 0,
            inside: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            busy: 0,
            open: 0,
            answered: 0,
            stayed: 0,
            refused: 0,
            limits: Vec::new(),
        };
        world.perform(effects);
        let stats = world.apps.app_stats(app, world.now).unwrap();
        world.limits.push((0, stats.concurrency));
        world
    }

    pub(super) fn run(mut self, seconds: u64) -> Learning {
        let end = Instant::START.after(seconds * SECOND);
        let late_from = Instant::START.after(seconds * SECOND * 3 / 5);
        match self.clients {
            Clients::Closed => (0..CROWD).for_each(|_| self.ask()),
            Clients::Open(share) => self.expect(share),
            Clients::InStep(count) => (0..count).for_each(|_| self.ask()),
        }
        let mut early = None;
        while let Some(Reverse((at, _, event))) = self.events.peek().copied()
            && at <= end
        {
            let due = self.apps.deadline().unwrap_or(Instant::NEVER);
            if due <= at {
                self.now = due.max(self.now);
                let mut effects = Vec::new();
                self.apps.advance(self.now, &mut effects);
                self.perform(effects);
                continue;
            }
            if at > late_from && early.is_none() {
                early = Some((self.answered, self.stayed, self.refused));
            }
            self.events.pop();
            self.now = at;
            self.happens(event);
            self.work();
        }
        let (answered, stayed, refused) = early.expect("something happens up to the end");
        let late = self.answered - answered;
        Learning {
            limits: self.limits,
            rate: late as f64 / (seconds as f64 * 0.4),
            inside_ms: (self.stayed - stayed) as f64 / late.max(1) as f64 / MS as f64,
            refused: self.refused,
            refused_late: self.refused - refused,
            seconds,
        }
    }

    fn happens(&mut self, event: Happens) {
        match event {
            Happens::Asks => match self.clients {
                Clients::InStep(count) => (0..count).for_each(|_| self.ask()),
                Clients::Open(share) => {
                    self.ask();
                    self.expect(share);
                }
                Clients::Closed => self.ask(),
            },
            Happens::Arrives(place) => self.backlog.push_back(place),
            Happens::Done(place) => {
                self.busy -= 1;
                self.answer(place);
            }
        }
    }

    fn push(&mut self, after: u64, event: Happens) {
        self.serial += 1;
        let at = self.now.after(after);
        self.events.push(Reverse((at, self.serial, event)));
    }

    /// From a half of a span to one and a half; of clients that ask together all take as long.
    fn about(&mut self, span: u64) -> u64 {
        match self.clients {
            Clients::InStep(_) => span,
            _ => span / 2 + self.rng.below(span.max(1)),
        }
    }

    /// The next client comes.
    fn expect(&mut self, share: f64) {
        let lot = (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let gap = -(1.0 - lot).ln() / (share * self.model.capacity()) * SECOND as f64;
        self.push(gap as u64, Happens::Asks);
    }

    fn ask(&mut self) {
        let ask = Ask {
            terms: AskOptions::new(self.now),
            sticky: None,
            avoid: None,
        };
        self.open += 1;
        let mut effects = Vec::new();
        match (self.apps).ask(self.app, &ask, || Client, self.now, &mut effects) {
            Came::Granted(session) => self.begin(session),
            Came::Waits(_) => (),
            Came::Refused(_) => self.refuse(),
        }
        self.perform(effects);
    }

    fn refuse(&mut self) {
        self.refused += 1;
        self.open -= 1;
        match self.clients {
            Clients::Closed => self.push(5 * SECOND, Happens::Asks),
            Clients::Open(_) => (),
            Clients::InStep(_) => self.once_more(),
        }
    }

    fn begin(&mut self, session: Session) {
        let request = (Some(session.id), self.now);
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.inside.push((None, self.now));
                self.inside.len() - 1
            }
        };
        self.inside[place] = request;
        let wait = self.about(self.model.wait);
        self.push(WAY + wait, Happens::Arrives(place));
    }

    fn work(&mut self) {
        while self.busy < self.model.workers
            && let Some(place) = self.backlog.pop_front()
        {
            self.busy += 1;
            let rare = self.model.rare.filter(|_| self.rng.below(10) == 0);
            let took = self.about(rare.unwrap_or(self.model.work));
            self.push(took, Happens::Done(place));
        }
    }

    fn answer(&mut self, place: usize) {
        let (session, since) = self.inside[place];
        let session = session.expect("who is answered is inside");
        self.inside[place].0 = None;
        self.free.push(place);
        self.answered += 1;
        self.stayed += self.now.nanos_since(since);
        self.open -= 1;
        let mut effects = Vec::new();
        (self.apps).release(session, Ended::Answered, self.now, &mut effects);
        self.perform(effects);
        match self.clients {
            Clients::Closed => self.ask(),
            Clients::Open(_) => (),
            Clients::InStep(_) => self.once_more(),
        }
    }

    /// Those that ask together come again when all of them have been answered.
    fn once_more(&mut self) {
        if self.open == 0 {
            self.push(MS, Happens::Asks);
        }
    }

    /// Everything that the machine wants is done at once.
    fn perform(&mut self, effects: Vec<Effect<Client>>) {
        for effect in effects {
            let mut more = Vec::new();
            match effect {
                Effect::Grant { session, .. } => self.begin(session),
                Effect::Shed { .. } => self.refuse(),
                Effect::Start { process, .. } => {
                    self.apps.started(process, self.now, &mut more);
                }
                Effect::Stop { process, .. } => self.apps.gone(process, self.now, &mut more),
                Effect::Note(Note::Learnt { concurrency, .. }) => {
                    let at = self.now.nanos_since(Instant::START);
                    self.limits.push((at, concurrency.1));
                }
                _ => (),
            }
            self.perform(more);
        }
    }
}
