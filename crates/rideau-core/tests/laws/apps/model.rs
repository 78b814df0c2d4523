//! Apps as plain lists: what each process is doing, which asks wait, which have
//! a session.
//!
//! The model decides nothing. It is told the inputs, judges every effect in its
//! order, and compares what it counts with what the machine says.

use std::cell::Cell;
use std::rc::Rc;

use rideau_core::apps::{
    AppId, Apps, Effect, Leaving, Limits, Note, Options, ProcessId, Session, SessionId, State,
};
use rideau_core::{Instant, Reason, Reply, Ticket};

/// How an asker is answered.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) u64, pub(crate) Rc<Cell<bool>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.get()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Doing {
    Starting,
    Ready,
    Disabled,
    Down,
    Draining(Instant),
    Stopping,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) app: AppId,
    pub(crate) generation: u64,
    pub(crate) doing: Doing,
    pub(crate) finished: u64,
    used: Instant,
    pub(crate) is_server: bool,
    /// It was to be looked at.
    pub(crate) is_looked_at: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) name: Name,
    pub(crate) ticket: Ticket,
    pub(crate) sent: Instant,
    /// It may wait for a process of its own until then.
    pub(crate) sticky: Option<(ProcessId, Instant)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) id: SessionId,
    pub(crate) app: AppId,
    pub(crate) streamed: bool,
    /// It takes no place.
    pub(crate) aside: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) id: AppId,
    pub(crate) options: Options,
    pub(crate) generation: u64,
    pub(crate) finished: u64,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) is_removed: bool,
    /// Servers of it are looked for.
    pub(crate) awaits: bool,
}

pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) apps: Vec<App>,
    pub(crate) processes: Vec<Process>,
    pub(crate) sessions: Vec<Open>,
    pub(crate) now: Instant,
    pub(crate) is_closing: bool,
    pub(crate) is_closed: bool,
    /// Processes that may go though others would be fewer than there should be.
    pub(crate) is_lowered: bool,
    last: u64,
}

/// What is learnt of so few requests: nothing.
const LEARNT: usize = 16;

/// Sessions that fit into one process, if that is not learnt.
fn places(options: &Options) -> Option<usize> {
    match options.one_each {
        true => Some(1),
        false => options.concurrency,
    }
}

impl Process {
    /// It is ready.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.used = now;
    }
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            apps: Vec::new(),
            processes: Vec::new(),
            sessions: Vec::new(),
            now: Instant::START,
            is_closing: false,
            is_closed: false,
            is_lowered: false,
            last: 0,
        }
    }

    pub(crate) fn app(&mut self, id: AppId) -> &mut App {
        let app = self.apps.iter_mut().find(|app| app.id == id);
        app.expect("there is such an app")
    }

    pub(crate) fn at(&mut self, id: ProcessId) -> &mut Process {
        let process = self.processes.iter_mut().find(|it| it.id == id);
        process.unwrap_or_else(|| panic!("there is a process {id}"))
    }

    pub(crate) fn ids(&self, is: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
        let found = self.processes.iter().filter(|it| is(it));
        found.map(|it| it.id).collect()
    }

    pub(crate) fn count(&self, is: impl Fn(&Process) -> bool) -> usize {
        self.processes.iter().filter(|it| is(it)).count()
    }

    pub(crate) fn waits(&self) -> usize {
        self.apps.iter().map(|app| app.waiters.len()).sum()
    }

    fn places(&self, id: ProcessId) -> usize {
        let open = self.sessions.iter();
        open.filter(|it| it.id.process == id && !it.aside).count()
    }

    fn aside(&self, id: ProcessId) -> usize {
        let open = self.sessions.iter();
        open.filter(|it| it.id.process == id && it.aside).count()
    }

    /// One more session fits into a process.
    fn has_room(&self, process: &Process, options: &Options) -> bool {
        let open = self.places(process.id);
        let most = places(options).unwrap_or(LEARNT);
        process.doing == Doing::Ready && open < most && !(options.one_each && process.finished > 0)
    }

    /// An ask begins a session.
    pub(crate) fn grant(&mut self, app: AppId, session: Session) {
        let process = self.at(session.id.process).clone();
        assert_eq!(process.app, app);
        assert_eq!(process.generation, session.generation, "I6");
        let options = self.app(app).options.clone();
        assert!(self.has_room(&process, &options), "no place was free");
        self.at(process.id).used = self.now;
        let others = self.sessions.iter().filter(|it| it.id == session.id);
        assert_eq!(others.count(), 0, "a session is given once");
        self.sessions.push(Open {
            id: session.id,
            app,
            streamed: false,
            aside: false,
        });
    }

    /// A session is over.
    pub(crate) fn release(&mut self, id: SessionId, counts: bool) {
        let index = self.sessions.iter().position(|it| it.id == id).unwrap();
        let open = self.sessions.remove(index);
        if let Some(app) = self.apps.iter_mut().find(|it| it.id == open.app) {
            app.finished += u64::from(counts);
        }
        let now = self.now;
        let processes = &mut self.processes;
        if let Some(process) = processes.iter_mut().find(|it| it.id == id.process) {
            process.finished += u64::from(counts);
            if counts {
                process.used = now;
            }
        }
    }

    pub(crate) fn stream(&mut self, id: SessionId) {
        let open = *self.sessions.iter().find(|it| it.id == id).unwrap();
        let app = self.apps.iter().find(|it| it.id == open.app);
        let is_there = self.processes.iter().any(|it| it.id == id.process);
        let aside = self.aside(id.process);
        let may = app.is_some_and(|app| {
            let takes_place = app.options.streams_count || places(&app.options) == Some(1);
            !takes_place && aside < app.options.streams_max && is_there
        });
        let open = self.sessions.iter_mut().find(|it| it.id == id).unwrap();
        if !open.streamed {
            open.streamed = true;
            open.aside = may;
        }
    }

    /// Judge what one input brought about.
    pub(crate) fn judge(&mut self, effects: &[Effect<Name>]) {
        let ended = effects.iter().filter_map(|effect| match effect {
            Effect::Shed { reply, .. } | Effect::Forget(reply) => Some(reply.0),
            _ => None,
        });
        let ended: Vec<u64> = ended.collect();
        for effect in effects {
            assert!(!self.is_closed, "nothing follows the end: {effect:?}");
            self.judge_one(effect, &ended);
        }
    }

    fn judge_one(&mut self, effect: &Effect<Name>, ended: &[u64]) {
        match effect {
            Effect::Grant { reply, session } => {
                assert!(!reply.1.get(), "no ask is granted that is gone");
                let app = self.at(session.id.process).app;
                let waiter = self.leave(reply.0);
                self.check_turn(app, &waiter, ended);
                self.grant(app, *session);
            }
            Effect::Shed { reply, refusal } => {
                let waiter = self.leave(reply.0);
                assert_eq!(refusal.waited, self.now.since(waiter.sent));
            }
            Effect::Forget(reply) => {
                assert!(reply.1.get(), "no ask is forgotten that is there");
                self.leave(reply.0);
            }
            Effect::Start {
                app,
                process,
                generation,
            } => self.start(*app, *process, *generation),
            Effect::Drain { process, why } => self.drain(*process, *why),
            Effect::Stop {
                process,
                why,
                at_once,
            } => self.stop(*process, *why, *at_once),
            Effect::Note(Note::Removed { app }) => {
                assert!(self.app(*app).is_removed);
                assert_eq!(self.count(|it| it.app == *app), 0);
                self.apps.retain(|it| it.id != *app);
            }
            Effect::Note(Note::ServerDown { app, server, .. }) => {
                let process = self.at(*server);
                assert_eq!((process.app, process.doing), (*app, Doing::Ready));
                process.doing = Doing::Down;
            }
            Effect::Note(Note::ServerUp { app, server, .. }) => {
                let process = self.at(*server);
                assert_eq!((process.app, process.doing), (*app, Doing::Down));
                process.doing = Doing::Ready;
            }
            Effect::Look { app, server } => {
                let process = self.at(*server);
                assert!(!process.is_looked_at, "once at a time");
                process.is_looked_at = true;
                assert!(matches!(process.doing, Doing::Down | Doing::Ready));
                assert_eq!(process.app, *app);
            }
            Effect::Note(_) => (),
            Effect::Probe { app, old, new } => {
                let [old, new] =
                    [*old, *new].map(|id| self.processes.iter().find(|it| it.id == id));
                let (old, new) = (old.expect("it is there"), new.expect("it is there"));
                assert_eq!((old.app, new.app), (*app, *app));
                assert!(old.generation < new.generation, "T1");
            }
            Effect::Closed => {
                assert!(self.is_closing && self.processes.is_empty());
                assert_eq!(self.waits(), 0, "what waits was refused before");
                self.is_closed = true;
            }
        }
    }

    /// No ask is served before one that came earlier and is as free to go.
    fn check_turn(&mut self, app: AppId, granted: &Waiter, ended: &[u64]) {
        let now = self.now;
        let app = self.app(app);
        if granted.sticky.is_some() || app.waiters.iter().any(|it| it.sticky.is_some()) {
            return;
        }
        let mut earlier = app.waiters.iter();
        let is_there = |it: &Waiter| !ended.contains(&it.name.0) && !it.name.1.get();
        let overtaken = earlier.find(|it| it.name.0 < granted.name.0 && is_there(it));
        assert!(
            overtaken.is_none(),
            "{overtaken:?} was overtaken by {granted:?} at {now:?}"
        );
    }

    pub(crate) fn leave(&mut self, name: u64) -> Waiter {
        for app in &mut self.apps {
            if let Some(at) = app.waiters.iter().position(|it| it.name.0 == name) {
                return app.waiters.remove(at);
            }
        }
        panic!("{name} was answered twice, or never waited (I8)");
    }

    fn start(&mut self, app: AppId, id: ProcessId, generation: u64) {
        assert!(id.0 > self.last, "ids are given once");
        self.last = id.0;
        let of = self.app(app);
        assert!(of.options.servers.is_none(), "others start them");
        assert_eq!(of.generation, generation);
        assert!(!of.is_removed);
        let (most, limits) = (of.options.max.unwrap_or(usize::MAX), self.limits);
        assert!(!self.is_closing, "nothing starts at the end");
        self.processes.push(Process {
            id,
            app,
            generation,
            doing: Doing::Starting,
            finished: 0,
            used: self.now,
            is_server: false,
            is_looked_at: false,
        });
        let live = self.count(|it| !it.is_server);
        assert!(live <= limits.max + limits.headroom, "I3");
        let starting = |it: &Process| it.doing == Doing::Starting;
        assert!(self.count(starting) <= limits.starts_max, "I7");
        assert!(self.count(|it| it.app == app && starting(it)) <= 2, "I7");
        let own = self.count(|it| it.app == app && is_used(it));
        assert!(own <= most.saturating_add(1), "as many as the app may have");
    }

    /// There is a new server.
    pub(crate) fn add_server(&mut self, app: AppId, id: ProcessId) {
        assert!(id.0 > self.last, "ids are given once");
        self.last = id.0;
        self.processes.push(Process {
            id,
            app,
            generation: 1,
            doing: Doing::Ready,
            finished: 0,
            used: self.now,
            is_server: true,
            is_looked_at: false,
        });
    }

    fn drain(&mut self, id: ProcessId, why: Leaving) {
        self.judge_leave(id, why);
        assert!(
            self.places(id) + self.aside(id) > 0,
            "an idle process is stopped"
        );
        let app = self.at(id).app;
        let until = self.now + self.app(app).options.drain_timeout;
        self.at(id).doing = Doing::Draining(until);
    }

    fn stop(&mut self, id: ProcessId, why: Leaving, at_once: bool) {
        let open = self.places(id) + self.aside(id);
        let now = self.now;
        match self.at(id).doing {
            Doing::Stopping => assert!(at_once, "it is stopped once, and killed then"),
            Doing::Draining(until) => {
                assert!(at_once || open == 0 || until <= now, "it had time left");
            }
            Doing::Starting | Doing::Ready | Doing::Disabled | Doing::Down => {
                assert!(at_once || open == 0, "nobody is cut off");
                self.judge_leave(id, why);
            }
        }
        self.at(id).doing = Doing::Stopping;
    }

    /// A process goes, for a good reason.
    fn judge_leave(&mut self, id: ProcessId, why: Leaving) {
        let (now, open) = (self.now, self.places(id) + self.aside(id));
        let process = self.at(id).clone();
        assert!(is_used(&process), "it goes once: {process:?}");
        if process.is_server {
            assert!(matches!(
                why,
                Leaving::Detached | Leaving::Killed | Leaving::Closed
            ));
        }
        let options = self.app(process.app).options.clone();
        let ready = self.count(|it| it.app == process.app && it.doing == Doing::Ready);
        match why {
            Leaving::Idle => {
                let idle_after = options.idle_after.unwrap();
                assert!(open == 0 && process.used + idle_after <= now);
                assert!(ready > options.min);
            }
            Leaving::Evicted => {
                assert_eq!(process.doing, Doing::Ready);
                assert!(open == 0 && ready > options.min);
            }
            Leaving::Starved => assert!(ready > options.min),
            Leaving::Unwanted => assert_eq!(process.doing, Doing::Starting),
            Leaving::Closed => {
                assert!(self.is_closing || self.app(process.app).is_removed);
            }
            Leaving::Surplus => assert!(self.is_lowered),
            _ => (),
        }
    }

    /// Compare everything with the machine.
    pub(crate) fn compare(&mut self, apps: &Apps<Name>) {
        let stats = apps.stats(self.now);
        let starting = self.count(|it| it.doing == Doing::Starting);
        assert_eq!(stats.starting, starting, "I1");
        let is_used = |it: &Process| !it.is_server && is_used(it);
        assert_eq!(stats.used, self.count(is_used), "I1");
        assert_eq!(stats.live, self.count(|it| !it.is_server), "I1");
        let active = |it: &Process| !it.is_server && self.places(it.id) + self.aside(it.id) > 0;
        assert_eq!(stats.active, self.count(active), "I1");
        let replacing = self.apps.iter().filter(|app| {
            let has = |doing| {
                let mut own = self.processes.iter().filter(|it| it.app == app.id);
                own.any(|it| it.doing == doing)
            };
            has(Doing::Starting) && has(Doing::Ready)
        });
        assert!(stats.used <= self.limits.max + replacing.count(), "I2");
        for app in &self.apps {
            self.compare_app(app, apps);
        }
        assert_eq!(apps.ids().count(), self.apps.len());
    }

    fn compare_app(&self, app: &App, apps: &Apps<Name>) {
        let stats = apps.app_stats(app.id, self.now).expect("it is there");
        assert_eq!(stats.waiting, app.waiters.len());
        assert_eq!(stats.finished, app.finished, "I9");
        assert_eq!(stats.generation, app.generation);
        let open = self.sessions.iter().filter(|it| it.app == app.id);
        assert_eq!(stats.sessions, open.count(), "I5");
        let own: Vec<_> = self
            .processes
            .iter()
            .filter(|it| it.app == app.id)
            .collect();
        assert_eq!(stats.processes.len(), own.len());
        for (told, process) in stats.processes.iter().zip(&own) {
            assert_eq!(told.process, process.id);
            assert_eq!(told.generation, process.generation);
            assert_eq!(told.sessions, self.places(process.id));
            assert_eq!(told.streams, self.aside(process.id));
            assert_eq!(told.finished, process.finished);
            let is_same = match process.doing {
                Doing::Starting => told.state == State::Starting,
                Doing::Ready => told.state == State::Ready,
                Doing::Disabled => told.state == State::Disabled,
                Doing::Down => matches!(told.state, State::Down(_)),
                Doing::Draining(_) => matches!(told.state, State::Draining(_)),
                Doing::Stopping => matches!(told.state, State::Stopping(_)),
            };
            assert!(is_same, "{told:?} is {process:?}");
        }
        let has_room = own.iter().any(|it| self.has_room(it, &app.options));
        let is_free = |it: &Waiter| {
            let sticks = it.sticky.is_some_and(|(process, _)| {
                let mut own = own.iter();
                own.any(|it| it.id == process && !self.has_room(it, &app.options))
            });
            !sticks
        };
        assert!(!has_room || !app.waiters.iter().any(is_free), "I4");
    }

    /// An ask that was refused at once was so for a reason.
    pub(crate) fn judge_refusal(&mut self, app: AppId, reason: Reason) {
        let is_open = !self.is_closing && self.apps.iter().any(|it| it.id == app && !it.is_removed);
        assert_eq!(reason == Reason::Closed, !is_open);
        let comes = |it: &Process| matches!(it.doing, Doing::Starting | Doing::Ready);
        let is_hopeless = matches!(reason, Reason::Starting | Reason::Down);
        if is_hopeless {
            assert_eq!(self.count(|it| it.app == app && comes(it)), 0);
            let app = self.app(app);
            assert_eq!(reason == Reason::Down, app.options.servers.is_some());
            assert!(!app.awaits);
        }
    }
}

pub(crate) fn is_used(process: &Process) -> bool {
    matches!(
        process.doing,
        Doing::Starting | Doing::Ready | Doing::Disabled | Doing::Down
    )
}
