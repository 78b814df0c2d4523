//! What is learnt of an app by the whole machine, on a virtual clock: clients ask again as
//! soon as they are answered, and each process has a few workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rideau_core::apps::{
    AppId, AppStats, Apps, Ask, Came, Effect, Ended, Limits, Note, Options, ProcessId, Restart,
    Session, SessionId,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine, Reason, Reply, Rng};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

struct Client;

impl Reply for Client {
    fn is_gone(&self) -> bool {
        false
    }
}

/// An app whose processes have this many workers, each of which takes about so long.
struct World {
    apps: Apps<Client>,
    app: AppId,
    workers: usize,
    takes: u64,
    rng: Rng,
    now: Instant,
    serial: u64,
    done: BinaryHeap<Reverse<(Instant, u64)>>,
    served: BTreeMap<u64, SessionId>,
    /// Sessions that have no worker yet, and the workers that are busy.
    backlog: BTreeMap<ProcessId, (VecDeque<SessionId>, usize)>,
    /// How many were inside at a time, for each code.
    most: BTreeMap<u64, usize>,
    inside: BTreeMap<u64, usize>,
    generations: BTreeMap<ProcessId, u64>,
    learnt: Vec<(u64, usize, usize)>,
    refused: u64,
}

impl World {
    fn new(options: Options, workers: usize, takes: u64) -> Self {
        let mut apps = Apps::new(Limits::default(), 7, Instant::START).unwrap();
        let mut effects = Vec::new();
        let app = apps.add(options, Instant::START, &mut effects).unwrap();
        let mut world = Self {
            apps,
            app,
            workers,
            takes,
            rng: Rng::new(1),
            now: Instant::START,
            serial: 0,
            done: BinaryHeap::new(),
            served: BTreeMap::new(),
            backlog: BTreeMap::new(),
            most: BTreeMap::new(),
            inside: BTreeMap::new(),
            generations: BTreeMap::new(),
            learnt: Vec::new(),
            refused: 0,
        };
        world.perform(effects);
        world
    }

    fn stats(&self) -> AppStats {
        self.apps.app_stats(self.app, self.now).unwrap()
    }

    /// A client asks; what it has to do with the answer is up to the caller.
    fn came(&mut self) -> Came {
        let ask = Ask {
            terms: AskOptions::new(self.now),
            sticky: None,
            avoid: None,
        };
        let mut effects = Vec::new();
        let came = (self.apps).ask(self.app, &ask, || Client, self.now, &mut effects);
        self.perform(effects);
        came
    }

    fn ask(&mut self) {
        match self.came() {
            Came::Granted(session) => self.begin(session),
            Came::Waits(_) => (),
            Came::Refused(_) => self.refused += 1,
        }
    }

    fn begin(&mut self, session: Session) {
        let inside = self.inside.entry(session.generation).or_default();
        *inside += 1;
        let most = self.most.entry(session.generation).or_default();
        *most = (*most).max(*inside);
        self.generations
            .insert(session.id.process, session.generation);
        let (backlog, _) = self.backlog.entry(session.id.process).or_default();
        backlog.push_back(session.id);
        self.work(session.id.process);
    }

    fn work(&mut self, process: ProcessId) {
        let (backlog, busy) = self.backlog.entry(process).or_default();
        while *busy < self.workers
            && let Some(session) = backlog.pop_front()
        {
            *busy += 1;
            self.serial += 1;
            let takes = self.takes / 2 + self.rng.below(self.takes);
            self.done
                .push(Reverse((self.now.after(takes), self.serial)));
            self.served.insert(self.serial, session);
        }
    }

    /// Let clients be answered, and ask again, for so long.
    fn run(&mut self, seconds: u64) {
        let end = self.now.after(seconds * SECOND);
        while let Some(Reverse((at, _))) = self.done.peek().copied()
            && at <= end
        {
            let due = self.apps.deadline().unwrap_or(Instant::NEVER);
            if due <= at {
                self.now = due;
                self.advance();
                continue;
            }
            self.now = at;
            let Some(Reverse((_, serial))) = self.done.pop() else {
                unreachable!("it was just seen");
            };
            let session = self.served.remove(&serial).unwrap();
            let process = session.process;
            self.backlog.get_mut(&process).unwrap().1 -= 1;
            let mut effects = Vec::new();
            self.apps
                .release(session, Ended::Answered, at, &mut effects);
            *self.inside.get_mut(&self.generations[&process]).unwrap() -= 1;
            self.perform(effects);
            self.work(process);
            self.ask();
        }
        self.now = end;
        self.advance();
    }

    fn advance(&mut self) {
        let mut effects = Vec::new();
        self.apps.advance(self.now, &mut effects);
        self.perform(effects);
    }

    /// Everything that the machine wants is done at once.
    fn perform(&mut self, effects: Vec<Effect<Client>>) {
        for effect in effects {
            let mut more = Vec::new();
            match effect {
                Effect::Grant { session, .. } => self.begin(session),
                Effect::Shed { .. } => self.refused += 1,
                Effect::Start { process, .. } => {
                    self.apps.started(process, self.now, &mut more);
                }
                Effect::Stop { process, .. } => self.apps.gone(process, self.now, &mut more),
                Effect::Note(Note::Learnt {
                    generation,
                    concurrency: (before, after),
                    ..
                }) => self.learnt.push((generation, before, after)),
                _ => (),
            }
            self.perform(more);
        }
    }
}

fn auto() -> Options {
    Options {
        min: 1,
        max: Some(1),
        ..Options::default()
    }
}

#[test]
fn the_limit_of_a_process_is_learnt_and_new_code_inherits_it() {
    let mut world = World::new(auto(), 4, 5 * MS);
    (0..64).for_each(|_| world.ask());
    assert_eq!(world.stats().concurrency, 16);
    world.run(8);
    assert_eq!(world.stats().concurrency, 6);
    let first = world.learnt.clone();
    assert_eq!(world.stats().concurrency_moves, first.len() as u64);
    assert_eq!(first.last().map(|(_, _, after)| *after), Some(6));
    let mut effects = Vec::new();
    world.most.clear();
    (world.apps).restart(world.app, Restart::Rolling, world.now, &mut effects);
    world.perform(effects);
    world.run(1);
    assert_eq!(world.stats().generation, 2);
    assert_eq!((world.learnt.len(), world.most[&2]), (first.len(), 6));
    world.run(7);
    let of_new = world.learnt[first.len()..].iter();
    assert!(of_new.clone().all(|(generation, ..)| *generation == 2));
    assert!(of_new.count() > 0, "nothing was known of it");
    // Six was tried first this time, and then twelve and three.
    assert_eq!(world.stats().concurrency, 8);
    assert_eq!(world.refused, 0);
}

#[test]
fn nobody_is_shed_while_more_at_a_time_get_more_done() {
    let mut waiting = World::new(auto(), 1_000, 50 * MS);
    (0..256).for_each(|_| waiting.ask());
    waiting.run(15);
    assert!(waiting.stats().concurrency >= 192);
    assert_eq!(waiting.refused, 0);

    let mut busy = World::new(auto(), 1, 50 * MS);
    (0..256).for_each(|_| busy.ask());
    busy.run(3);
    assert_eq!(busy.refused, 0);
    busy.run(3);
    assert!(
        busy.refused > 100,
        "it cannot do more, and that is overload"
    );
}

#[test]
fn a_number_stays_that_number() {
    let options = Options {
        concurrency: Some(16),
        ..auto()
    };
    let mut world = World::new(options, 1, 5 * MS);
    (0..64).for_each(|_| world.ask());
    world.run(10);
    assert_eq!(
        (world.stats().concurrency, &world.learnt[..]),
        (16, &[][..])
    );
    assert_eq!(world.most[&1], 16);
    let mut effects = Vec::new();
    (world.apps)
        .reconfigure(world.app, auto(), world.now, &mut effects)
        .unwrap();
    world.perform(effects);
    world.run(10);
    assert_eq!(
        world.stats().concurrency,
        2,
        "what was seen meanwhile counts"
    );
}

#[test]
fn streams_neither_take_places_nor_say_how_fast_a_process_is() {
    let mut world = World::new(auto(), 4, 5 * MS);
    let mut effects = Vec::new();
    for stream in 1..=100 {
        let Came::Granted(session) = world.came() else {
            panic!("{stream} have to wait for streams");
        };
        world
            .apps
            .streamed(session.id, None, world.now, &mut effects);
        assert_eq!(world.stats().streams, stream);
    }
    (0..64).for_each(|_| world.ask());
    world.run(8);
    assert_eq!(world.stats().concurrency, 6);
    assert_eq!(world.stats().sessions, 106);
}

#[test]
fn as_many_may_wait_as_fit_the_places() {
    let waits = |concurrency, fits| {
        let mut options = Options {
            concurrency: Some(concurrency),
            ..auto()
        };
        options.queue.max_fits = fits;
        let mut world = World::new(options, 4, SECOND);
        let came = std::iter::from_fn(|| Some(world.came()));
        let came = came.skip_while(|came| matches!(came, Came::Granted(_)));
        let mut waits = 0;
        for came in came.take(100_000) {
            match came {
                Came::Waits(_) => waits += 1,
                Came::Refused(refusal) => {
                    assert_eq!(refusal.reason, Reason::Full);
                    return waits;
                }
                Came::Granted(_) => panic!("others wait"),
            }
        }
        waits
    };
    assert_eq!(waits(1, true), 1_000);
    assert_eq!(waits(16, true), 1_024);
    assert_eq!(waits(32, true), 2_048);
    assert_eq!(waits(1_000, true), 10_000);
    assert_eq!(waits(1, false), 65_536, "as the queue says");
}
