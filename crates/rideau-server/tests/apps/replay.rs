//! Traffic for many applications that share room for few processes: the server
//! starts as many as the machine alone does for the same clients.

#[path = "../../../rideau-core/tests/laws/worth/traces.rs"]
#[allow(dead_code, reason = "it has more than is needed here")]
mod traces;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rideau_core::apps::{
    AppId, Apps, Ask, Came, Effect, Ended, EvictFor, Limits, Options, ProcessId, SessionId,
};
use rideau_core::queue::AskOptions;
use rideau_core::{Machine, Reply};

use self::traces::{APPS, Request, TRACES};
use crate::harness::{Harness, folder, is_soak, processes_of};
use crate::peer::{cell, rows};
use crate::tiny;

const MAX: usize = 10;
/// Time goes this many times faster than in the trace, if the machine can.
const FASTER: u32 = 50;
/// How many ask at a time.
const CLIENTS: usize = 4;
/// How often processes are counted.
const LOOK: Duration = Duration::from_millis(50);
/// A process that was asked to stop is gone after about so long.
const END: Duration = Duration::from_millis(10);
/// A request that finds a process takes about so long.
const SERVICE: Duration = Duration::from_millis(2);

/// Scenario 38.
#[test]
fn a_hundred_applications_share_room_for_ten_processes() {
    tiny::serve_if_asked();
    // So few tell less, and the first starts are the same whatever one does.
    let (count, within) = if is_soak() { (20_000, 5) } else { (400, 12) };
    let zipf = TRACES.iter().find(|trace| trace.name == "zipf 1.0");
    let requests = zipf.unwrap().requests(count, 1);
    let folder = folder();
    let keys = tiny::keys("replay::a_hundred_applications_share_room_for_ten_processes");
    let app = |n| format!("[app.a{n}]\nhosts = [\"a{n}.test\"]\nidle_after = \"none\"\n{keys}");
    let apps: String = (0..APPS).map(app).collect();
    let front = format!("max = {MAX}\nstarts_max = 2\nevict_for = \"count\"");
    let harness = Harness::with_front(&folder, &front, &apps);

    let (over, is_over) = mpsc::channel::<()>();
    let seen = &folder;
    let most = thread::scope(|scope| {
        let most = scope.spawn(move || {
            let mut most = 0;
            // The thread that has the other end drops it, also when a request
            // has failed.
            while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                most = most.max(processes_of(seen).len());
            }
            most
        });
        // Moved here, so that it goes whatever happens.
        let over = over;
        replay(&harness, &requests);
        drop(over);
        most.join().unwrap()
    });
    assert!(most <= MAX + 1, "there were {most} at a time");
    assert!(most > MAX / 2, "there were only {most} at a time");

    let mut ops = harness.peer();
    let shown = ops.ask(&["SHOW", "APPS"]);
    let column = |name: &str| -> Vec<u64> {
        let all = (0..rows(&shown).len()).map(|row| cell(&shown, row, name));
        all.map(|text| text.parse().unwrap()).collect()
    };
    let sum = |name: &str| column(name).iter().sum::<u64>();
    assert_eq!(sum("starts_failed"), 0);
    assert_eq!(sum("sessions"), 0, "a place is still taken");
    // The usual time: a busy machine has starts that tell nothing of the others.
    let mut took = column("start_us");
    took.sort_unstable();
    let took = Duration::from_micros(took[took.len() / 2]);
    let (starts, simulated) = (sum("starts"), Simulation::new(&requests, took).run());
    assert!(
        starts.abs_diff(simulated) * 100 <= simulated * within,
        "{starts} starts, and the machine alone makes {simulated}"
    );
    harness.end();
}

/// When a request is due.
fn due(request: &Request) -> Duration {
    request.at.since(rideau_core::Instant::START) / FASTER
}

/// Ask for all that the trace has. No request is refused.
fn replay(harness: &Harness, requests: &[Request]) {
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let ask = || {
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            thread::sleep(due(request).saturating_sub(began.elapsed()));
            let host = format!("a{}.test", request.app);
            let answer = harness.ask("GET", &host, "/", b"").unwrap();
            assert_eq!(answer.status, 200, "{host}: {answer:?}");
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
    });
}

/// What happens in the simulation, and to what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happens {
    /// A client asks for this app.
    Asked(u32),
    Started(ProcessId),
    Gone(ProcessId),
    /// One of the sessions is over.
    Answered(usize),
}

#[derive(Debug)]
struct Client;

impl Reply for Client {}

/// The machine and its clients, without a server and in no time: each asks for
/// what is next when it was answered.
struct Simulation<'a> {
    apps: Apps<Client>,
    agenda: BinaryHeap<Reverse<(Duration, usize, Happens)>>,
    requests: std::slice::Iter<'a, Request>,
    sessions: Vec<SessionId>,
    start: Duration,
    starts: u64,
    serial: usize,
}

impl<'a> Simulation<'a> {
    fn new(requests: &'a [Request], start: Duration) -> Self {
        let limits = Limits {
            max: MAX,
            starts_max: 2,
            evict_for: EvictFor::Count,
            ..Limits::default()
        };
        let now = rideau_core::Instant::START;
        let mut apps = Apps::new(limits, 1, now).unwrap();
        for _ in 0..APPS {
            let options = Options {
                idle_after: None,
                ..Options::default()
            };
            apps.add(options, now, &mut Vec::new()).unwrap();
        }
        Self {
            apps,
            agenda: BinaryHeap::new(),
            requests: requests.iter(),
            sessions: Vec::new(),
            start,
            starts: 0,
            serial: 0,
        }
    }

    /// How many processes are started for all of them.
    fn run(mut self) -> u64 {
        (0..CLIENTS).for_each(|_| self.come(Duration::ZERO));
        while let Some(Reverse((at, _, happens))) = self.agenda.pop() {
            let now = rideau_core::Instant::START + at;
            let mut effects = Vec::new();
            // What was due before.
            while let Some(due) = self.apps.deadline()
                && due <= now
            {
                self.apps.advance(due, &mut effects);
            }
            match happens {
                Happens::Asked(app) => self.ask(app, at, now, &mut effects),
                Happens::Started(process) => {
                    self.apps.started(process, now, &mut effects);
                }
                Happens::Gone(process) => self.apps.gone(process, now, &mut effects),
                Happens::Answered(session) => {
                    let session = self.sessions[session];
                    self.apps
                        .release(session, Ended::Answered, now, &mut effects);
                    self.come(at);
                }
            }
            effects
                .into_iter()
                .for_each(|effect| self.perform(effect, at));
        }
        self.starts
    }

    fn plan(&mut self, at: Duration, happens: Happens) {
        self.serial += 1;
        self.agenda.push(Reverse((at, self.serial, happens)));
    }

    /// A client comes for what is next.
    fn come(&mut self, at: Duration) {
        if let Some(request) = self.requests.next() {
            self.plan(at.max(due(request)), Happens::Asked(request.app));
        }
    }

    fn ask(
        &mut self,
        app: u32,
        at: Duration,
        now: rideau_core::Instant,
        effects: &mut Vec<Effect<Client>>,
    ) {
        let ask = Ask {
            terms: AskOptions::new(now),
            sticky: None,
            avoid: None,
        };
        match self.apps.ask(AppId(app), &ask, || Client, now, effects) {
            Came::Granted(session) => self.serve(session.id, at),
            Came::Waits(_) => (),
            Came::Refused(refusal) => panic!("{refusal:?}"),
        }
    }

    fn serve(&mut self, session: SessionId, at: Duration) {
        self.sessions.push(session);
        let answered = Happens::Answered(self.sessions.len() - 1);
        self.plan(at + SERVICE, answered);
    }

    fn perform(&mut self, effect: Effect<Client>, at: Duration) {
        match effect {
            Effect::Start { process, .. } => {
                self.starts += 1;
                self.plan(at + self.start, Happens::Started(process));
            }
            Effect::Stop { process, .. } => self.plan(at + END, Happens::Gone(process)),
            Effect::Grant { session, .. } => self.serve(session.id, at),
            Effect::Note(_) | Effect::Drain { .. } => (),
            other => panic!("{other:?}"),
        }
    }
}
