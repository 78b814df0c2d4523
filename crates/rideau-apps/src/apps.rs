//! Applications: their processes, and places in them for asks.
//!
//! The core's machine decides, the library's driver runs it, and this carries out
//! what it decides. One task is around each process, from before its start until
//! nothing is left of it.

mod app;
mod counts;
mod follow;
mod handover;
mod health;
mod log_rate;
mod memory;
mod output;
mod process_task;
mod restart_file;
mod running;
mod session;
mod shell;
mod stats;
mod trial;

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::MutexGuard;
use rideau::Clock;
use rideau::driver::{Driver, Step};
use rideau_core::Instant;
use rideau_core::apps::{self as core, Limits, ProcessId, Restart};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::events::Events;
use crate::run_dirs::RunDirs;

pub use app::App;
pub use counts::{Answered, AppCounters};
pub use handover::AppHandover;
pub use output::{AppLine, Output};
pub use running::{Request, Running};
pub(crate) use session::{Asking, Waiting};
pub use session::{Refused, Session, Wanted};
pub use stats::{AppShown, ProcessShown, RequestShown};

use handover::Floors;
use rideau_config::Config;
use rideau_process::panics;
use session::Waiter;
use shell::{AppsShell, Tables};

/// All applications of one server.
#[derive(Clone)]
pub struct Apps(Arc<Inner>);

struct Inner {
    driver: Arc<Driver<core::Apps<Waiter>, AppsShell>>,
    /// By name, in the order of the config.
    apps: ArcSwap<Vec<Arc<App>>>,
    run_dirs: Arc<RunDirs>,
    events: Arc<Events>,
    /// Everything was closed and is gone.
    closed: watch::Sender<bool>,
    /// Where processes are looked after. The first task is spawned on it, and later ones
    /// may be by a thread that has no runtime, or that of the timers.
    runtime: OnceLock<Handle>,
    /// How many processes each app has at least while an older server is there.
    floors: ArcSwap<Floors>,
    /// How many processes all have at most then.
    cap: AtomicUsize,
    /// Processes may be started at addresses of the config.
    addresses_free: watch::Sender<bool>,
}

impl Apps {
    /// No applications yet, and room for the processes that the limits allow.
    pub fn new(limits: Limits, run_dirs: Arc<RunDirs>, events: Arc<Events>) -> Self {
        let limits = Limits {
            max: limits.max.max(1),
            starts_max: limits.starts_max.max(1),
            ..limits
        };
        let seed = getrandom::u64().unwrap_or(0);
        let machine = core::Apps::new(limits, seed, Instant::START);
        let machine = machine.expect("limits above zero break no rule");
        Self(Arc::new_cyclic(|me| {
            let shell = AppsShell::new(Weak::clone(me));
            Inner {
                driver: Driver::start(machine, Vec::new(), shell, Clock::system()),
                apps: ArcSwap::default(),
                run_dirs,
                events,
                closed: watch::Sender::new(false),
                runtime: OnceLock::new(),
                floors: ArcSwap::default(),
                cap: AtomicUsize::new(usize::MAX),
                addresses_free: watch::Sender::new(true),
            }
        }))
    }

    /// Begin to serve what a config says. It must be called on a runtime, once.
    pub fn begin(&self, config: &Config) {
        let apps = Arc::downgrade(&self.0);
        self.0.spawn(async move {
            let look = || memory::look(Weak::clone(&apps));
            panics::keep("the look at memory", look).await;
        });
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
        self.0.step(|step| {
            step.machine.restart(app.id, how, step.now, step.effects);
        });
    }

    /// Give the verdict on new code that is on trial. False if none is.
    pub fn end_trial(&self, app: &App, is_good: bool, by: &str) -> bool {
        let has_ended =
            (self.0).step(|step| (step.machine).end_trial(app.id, is_good, step.now, step.effects));
        if has_ended {
            let verdict = if is_good { "accepted" } else { "rejected" };
            self.0.tell(
                &app.name,
                format!("the code on trial was {verdict}"),
                Some(by),
            );
        }
        has_ended
    }

    /// Start one process more.
    pub fn start_one(&self, app: &App) -> bool {
        self.0
            .step(|step| step.machine.start_one(app.id, step.now, step.effects))
    }

    /// A process gets no new requests, and is not stopped.
    pub fn disable(&self, process: ProcessId) -> bool {
        self.0
            .step(|step| step.machine.disable(process, step.now, step.effects))
    }

    /// A process that was disabled gets requests again.
    pub fn enable(&self, process: ProcessId) -> bool {
        self.0
            .step(|step| step.machine.enable(process, step.now, step.effects))
    }

    /// A process finishes what it serves, and goes.
    pub fn detach(&self, process: ProcessId) -> bool {
        self.0
            .step(|step| step.machine.detach(process, step.now, step.effects))
    }

    /// A process is stopped at once, whatever it serves.
    pub fn kill(&self, process: ProcessId) -> bool {
        self.0
            .step(|step| step.machine.kill(process, step.now, step.effects))
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
            .step(|step| step.machine.close(step.now, step.effects));
        let over = closed.wait_for(|closed| *closed);
        if tokio::time::timeout(within, over).await.is_err() {
            self.close_now().await;
        }
    }

    /// Stop everything at once.
    pub async fn close_now(&self) {
        let mut closed = self.0.closed.subscribe();
        self.0
            .step(|step| step.machine.close_now(step.now, step.effects));
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
    /// Let the machine decide something, and carry out what it decides.
    fn step<T>(&self, decide: impl FnOnce(&mut Step<'_, core::Apps<Waiter>>) -> T) -> T {
        self.driver.step(decide)
    }

    /// No step may be made while this is held.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.driver.shell().tables.lock()
    }

    /// Do something that outlives the caller.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.get_or_init(Handle::current).spawn(task));
    }

    fn tell(&self, app: &str, text: String, by: Option<&str>) {
        self.events.add_app(app, &text, String::new(), by);
    }
}
