//! Applications: their processes, and places in them for asks.
//!
//! The core's machine decides; this carries out what it decides. One lock
//! and one timer are around the machine, and one task is around each process,
//! from before its start until nothing is left of it.

mod app;
mod counts;
mod desk;
mod follow;
mod health;
mod log_rate;
mod memory;
mod output;
mod process_task;
mod restart_file;
mod running;
mod session;
mod stats;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::MutexGuard;
use rideau_core::apps::{
    self as core, AppId, Effect, Ended, Limits, Note, ProcessId, Restart, SessionId,
};
use rideau_core::{Brief, Instant, Machine};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::events::Events;
use crate::run_dirs::RunDirs;

pub use app::App;
pub use counts::{Answered, AppCounters};
pub use output::{AppLine, Output};
pub use running::{Request, Running};
pub(crate) use session::{Asking, Waiting};
pub use session::{Refused, Session, Wanted};
pub use stats::{AppShown, ProcessShown, RequestShown};

use desk::Desk;
use process_task::{ProcessSlot, Stopping};
use rideau_config::Config;
use rideau_process::panics;
use session::{Answer, Waiter};

/// The timer looks so often whether it is needed still.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// All applications of one server.
#[derive(Clone)]
pub struct Apps(Arc<Inner>);

struct Inner {
    desk: Desk<State, Left>,
    /// By name, in the order of the config.
    apps: ArcSwap<Vec<Arc<App>>>,
    /// Rung when the machine has to be looked at sooner than was thought.
    bell: Arc<Notify>,
    began: tokio::time::Instant,
    workshop: Arc<RunDirs>,
    events: Arc<Events>,
    /// Everything was closed and is gone.
    closed: watch::Sender<bool>,
    /// Where processes are looked after, wherever it is asked for them.
    runtime: OnceLock<Handle>,
}

struct State {
    machine: core::Apps<Waiter>,
    effects: Vec<Effect<Waiter>>,
    /// Every process from its start to its end.
    slots: BTreeMap<ProcessId, ProcessSlot>,
    by_id: HashMap<AppId, Arc<App>>,
    last: Instant,
    armed: Instant,
}

/// A session that ended while another thread was at the machine.
struct Left {
    session: SessionId,
    ended: Ended,
}

/// What is done when the lock is released.
#[derive(Default)]
struct After {
    answers: Vec<Answer>,
    starts: Vec<(process_task::Start, process_task::Word)>,
    notes: Vec<Note>,
    rings: bool,
    is_closed: bool,
}

impl Apps {
    /// No applications yet, and room for the processes that the limits allow.
    pub fn new(limits: Limits, workshop: Arc<RunDirs>, events: Arc<Events>) -> Self {
        let limits = Limits {
            max: limits.max.max(1),
            starts_max: limits.starts_max.max(1),
            ..limits
        };
        let seed = getrandom::u64().unwrap_or(0);
        let machine = core::Apps::new(limits, seed, Instant::START);
        let machine = machine.expect("limits above zero break no rule");
        Self(Arc::new(Inner {
            desk: Desk::new(State {
                machine,
                effects: Vec::new(),
                slots: BTreeMap::new(),
                by_id: HashMap::new(),
                last: Instant::START,
                armed: Instant::NEVER,
            }),
            apps: ArcSwap::default(),
            bell: Arc::default(),
            began: tokio::time::Instant::now(),
            workshop,
            events,
            closed: watch::Sender::new(false),
            runtime: OnceLock::new(),
        }))
    }

    /// Begin to serve what a config says. It must be called on a runtime, once.
    pub fn begin(&self, config: &Config) {
        let _ = self.0.runtime.set(Handle::current());
        for_ever("the clock of the apps", &self.0, keep_time);
        for_ever("the look at memory", &self.0, memory::look);
        self.follow(config);
    }

    /// The application of this name.
    pub fn find(&self, name: &str) -> Option<Arc<App>> {
        let apps = self.0.apps.load();
        apps.iter().find(|app| &*app.name == name).cloned()
    }

    /// All of them, in the order of the config.
    pub fn all(&self) -> Arc<Vec<Arc<App>>> {
        self.0.apps.load_full()
    }

    /// Replace the processes of an application.
    pub fn restart(&self, app: &App, how: Restart, by: &str) {
        let text = match how {
            Restart::Rolling => "new processes replace the old ones, one after the other",
            Restart::Blocking => "new processes are started when the old ones have finished",
            Restart::Immediate => "all processes are stopped, and new ones started",
        };
        self.0.tell(&app.name, text.into(), Some(by));
        self.0.step(|state, now| {
            state.machine.restart(app.id, how, now, &mut state.effects);
        });
    }

    /// Start one process more.
    pub fn start_one(&self, app: &App) -> bool {
        self.0
            .step(|state, now| state.machine.start_one(app.id, now, &mut state.effects))
    }

    /// A process gets no new requests, and is not stopped.
    pub fn disable(&self, process: ProcessId) -> bool {
        self.0
            .step(|state, now| state.machine.disable(process, now, &mut state.effects))
    }

    /// A process that was disabled gets requests again.
    pub fn enable(&self, process: ProcessId) -> bool {
        self.0
            .step(|state, now| state.machine.enable(process, now, &mut state.effects))
    }

    /// A process finishes what it serves, and goes.
    pub fn detach(&self, process: ProcessId) -> bool {
        self.0
            .step(|state, now| state.machine.detach(process, now, &mut state.effects))
    }

    /// A process is stopped at once, whatever it serves.
    pub fn kill(&self, process: ProcessId) -> bool {
        self.0
            .step(|state, now| state.machine.kill(process, now, &mut state.effects))
    }

    /// The process with this number, the system's or ours, and the app it is of.
    pub fn process(&self, number: u64) -> Option<(ProcessId, Arc<App>)> {
        let all = self.0.running(|_| true);
        let is_pid = |running: &&Arc<Running>| u64::try_from(running.pid()) == Ok(number);
        let is_id = |running: &&Arc<Running>| running.id.0 == number;
        let found = all.iter().find(is_pid).or_else(|| all.iter().find(is_id))?;
        Some((found.id, Arc::clone(&found.app)))
    }

    /// Serve no new asks; what is served goes on. Everything is gone when this
    /// returns, or the time is over and the rest is killed.
    pub async fn close(&self, within: Duration) {
        let mut closed = self.0.closed.subscribe();
        self.0
            .step(|state, now| state.machine.close(now, &mut state.effects));
        let over = closed.wait_for(|closed| *closed);
        if tokio::time::timeout(within, over).await.is_err() {
            self.close_now().await;
        }
    }

    /// Stop everything at once.
    pub async fn close_now(&self) {
        let mut closed = self.0.closed.subscribe();
        self.0
            .step(|state, now| state.machine.close_now(now, &mut state.effects));
        let over = closed.wait_for(|closed| *closed);
        let _ = tokio::time::timeout(process_task::KILLED_WAIT, over).await;
    }
}

impl fmt::Debug for Apps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apps").finish_non_exhaustive()
    }
}

impl Inner {
    fn now(&self) -> Instant {
        self.instant(tokio::time::Instant::now())
    }

    fn instant(&self, at: tokio::time::Instant) -> Instant {
        let since = at.saturating_duration_since(self.began);
        Instant::START.after(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Let the machine decide something, and carry out what it decides.
    fn step<T>(self: &Arc<Self>, decide: impl FnOnce(&mut State, Instant) -> T) -> T {
        self.step_at(None, decide)
    }

    /// The same for a caller that has just looked at a clock.
    fn step_at<T>(
        self: &Arc<Self>,
        at: Option<tokio::time::Instant>,
        decide: impl FnOnce(&mut State, Instant) -> T,
    ) -> T {
        let decision = self.step_in(self.desk.lock(), at, decide);
        self.see_to_left();
        decision
    }

    /// The same if no other thread is at the machine; else nothing is decided.
    fn try_step_at<T>(
        self: &Arc<Self>,
        at: Option<tokio::time::Instant>,
        decide: impl FnOnce(&mut State, Instant) -> T,
    ) -> Option<T> {
        let decision = self.step_in(self.desk.try_lock()?, at, decide);
        self.see_to_left();
        Some(decision)
    }

    fn step_in<T>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        at: Option<tokio::time::Instant>,
        decide: impl FnOnce(&mut State, Instant) -> T,
    ) -> T {
        let now = at.map_or_else(|| self.now(), |at| self.instant(at));
        let now = self.enter(&mut state, now);
        let decision = decide(&mut state, now);
        let after = self.settle(&mut state);
        drop(state);
        if let Some(after) = after {
            self.finish(after);
        }
        decision
    }

    /// Time moves on to `now`, unless it is past that. Sessions end that were left.
    fn enter(&self, state: &mut State, now: Instant) -> Instant {
        state.last = now.max(state.last);
        let now = state.last;
        for Left { session, ended } in self.desk.take_left() {
            state
                .machine
                .release(session, ended, now, &mut state.effects);
        }
        now
    }

    /// A session is over. Its end may be left to the thread that is at the machine.
    fn end(self: &Arc<Self>, session: SessionId, ended: Ended, at: Option<tokio::time::Instant>) {
        let released = self.try_step_at(at, |state, now| {
            state
                .machine
                .release(session, ended, now, &mut state.effects);
        });
        if released.is_none() {
            self.desk.leave(Left { session, ended });
            self.see_to_left();
        }
    }

    /// No thread may be at the machine any more that would see to what was left.
    fn see_to_left(self: &Arc<Self>) {
        while let Some(state) = self.desk.lock_for_left() {
            self.step_in(state, None, |_, _| ());
        }
    }

    /// Carry out what has to happen in the order of decisions, and note the
    /// rest for when the lock is released. Mostly there is nothing.
    fn settle(self: &Arc<Self>, state: &mut State) -> Option<After> {
        let earlier = |state: &State| {
            let due = state.machine.deadline();
            due.filter(|due| *due < state.armed)
        };
        if state.effects.is_empty() && earlier(state).is_none() {
            return None;
        }
        let mut after = After::default();
        let mut effects = std::mem::take(&mut state.effects);
        for effect in effects.drain(..) {
            self.perform(effect, state, &mut after);
        }
        state.effects = effects;
        // What was carried out may have moved it.
        if let Some(due) = earlier(state) {
            state.armed = due;
            after.rings = true;
        }
        Some(after)
    }

    fn perform(self: &Arc<Self>, effect: Effect<Waiter>, state: &mut State, after: &mut After) {
        match effect {
            Effect::Grant { reply, session } => {
                let granted = self.session(state, session);
                after.answers.push(Answer::Granted(reply, granted));
            }
            Effect::Shed { reply, refusal } => after.answers.push(Answer::Shed(reply, refusal)),
            Effect::Forget(reply) => after.answers.push(Answer::Nobody(reply)),
            Effect::Start {
                app,
                process,
                generation,
            } => {
                let app = Arc::clone(&state.by_id[&app]);
                let (slot, stop) = ProcessSlot::new();
                state.slots.insert(process, slot);
                let start = process_task::Start {
                    app,
                    process,
                    generation,
                };
                after.starts.push((start, stop));
            }
            Effect::Drain { process, why } => {
                if let Some(slot) = state.slots.get(&process) {
                    slot.drain(why);
                }
            }
            Effect::Stop {
                process,
                why,
                at_once,
            } => {
                if let Some(slot) = state.slots.get(&process) {
                    slot.drain(why);
                    slot.stop.send_replace(Some(Stopping { why, at_once }));
                }
            }
            Effect::Note(Note::Removed { app }) => {
                state.by_id.remove(&app);
            }
            Effect::Note(note) => after.notes.push(note),
            Effect::Closed => after.is_closed = true,
        }
    }

    /// What could wait, wake or call back.
    fn finish(self: &Arc<Self>, after: After) {
        for (start, stop) in after.starts {
            self.spawn(process_task::run(Arc::clone(self), start, stop));
        }
        for answer in after.answers {
            answer.give();
        }
        for note in after.notes {
            self.note(note);
        }
        if after.rings {
            self.bell.notify_one();
        }
        if after.is_closed {
            self.closed.send_replace(true);
        }
    }

    /// Do something that outlives the caller.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.runtime.get() {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    fn note(self: &Arc<Self>, note: Note) {
        let (app, text) = match note {
            Note::Started { app, process, took } => {
                let took = Brief(took);
                (app, format!("process {process} is ready after {took}"))
            }
            Note::Failing {
                app,
                failures,
                retry_after,
            } => (
                app,
                format!(
                    "{}: the next is tried in {}",
                    match failures {
                        1 => "a start failed".into(),
                        failures => format!("{failures} starts in a row failed"),
                    },
                    Brief(retry_after)
                ),
            ),
            Note::Deployed { app, generation } => {
                (app, format!("all processes run generation {generation}"))
            }
            Note::DeployFailed { app, generation } => (
                app,
                format!(
                    "deploy_failed: generation {generation} does not start, the old one goes on"
                ),
            ),
            Note::Starved { app, from } => (
                app,
                format!("it waited too long for room, so process {from} makes room"),
            ),
            _ => return,
        };
        let name = self.step(|state, _| state.by_id.get(&app).map(|app| Arc::clone(&app.name)));
        if let Some(name) = name {
            self.tell(&name, text, None);
        }
    }

    fn tell(&self, app: &str, text: String, by: Option<&str>) {
        self.events.add_app(app, &text, String::new(), by);
    }

    /// Do what is due, and say when to look again.
    fn advance(self: &Arc<Self>) -> Option<Instant> {
        let (due, after) = {
            let mut state = self.desk.lock();
            let now = self.enter(&mut state, self.now());
            // Whatever is due then need not ring for the task that is here now.
            state.armed = Instant::START;
            let State {
                machine, effects, ..
            } = &mut *state;
            while machine.deadline().is_some_and(|due| due <= now) {
                machine.advance(now, effects);
            }
            let after = self.settle(&mut state);
            let due = state.machine.deadline();
            state.armed = due.unwrap_or(Instant::NEVER);
            (due, after)
        };
        if let Some(mut after) = after {
            after.rings = false;
            self.finish(after);
        }
        self.see_to_left();
        due
    }
}

/// Do this for as long as there are apps, also after a panic.
fn for_ever<F>(name: &'static str, apps: &Arc<Inner>, task: fn(Weak<Inner>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let apps = Arc::downgrade(apps);
    tokio::spawn(async move { panics::keep(name, || task(Weak::clone(&apps))).await });
}

/// Look at the machine when it is due, until it has no holder any more.
async fn keep_time(apps: Weak<Inner>) {
    loop {
        let Some(inner) = apps.upgrade() else { return };
        let due = inner.advance();
        let at = due.map(|due| inner.began + due.since(Instant::START));
        let bell = Arc::clone(&inner.bell);
        drop(inner);
        let at = at.unwrap_or_else(|| tokio::time::Instant::now() + LOOK_AGAIN);
        tokio::select! {
            () = bell.notified() => (),
            () = tokio::time::sleep_until(at) => (),
        }
    }
}
