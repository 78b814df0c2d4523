//! One task around each process: it starts it, waits for its end or for the word
//! to end it, and says when nothing is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rideau_config::{AppConfig, AppListen, AppReady, RunSpec};
use rideau_core::apps::{Leaving, ProcessId};
use rideau_process::panics;
use rideau_process::{
    Address, Exit, Listen, OutputLimits, OutputLine, Probe, Process, Program, Ready,
    ResourceLimits, Signal, StartReport, StopTarget,
};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Inner;
use super::app::App;
use super::health;
use super::running::Running;
use crate::upstream::{Connections, KeepAlive};

/// A process that was killed is gone by then, or stuck in the system.
pub(super) const KILLED_WAIT: Duration = Duration::from_secs(10);
/// A path to warm up has so long.
const WARM_UP_MAX: Duration = Duration::from_secs(10);

/// How many idle connections to one process are enough.
const IDLE_MAX: usize = 1024;
/// A longer line of what a process writes is cut.
const LINE_MAX: usize = 16 << 10;

/// A process of the machine.
pub(super) struct ProcessSlot {
    /// There once it is ready.
    pub(super) running: Option<Arc<Running>>,
    pub(super) stop: watch::Sender<Option<Stopping>>,
    draining: watch::Sender<Option<Leaving>>,
}

/// How a process is to be stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    pub(super) why: Leaving,
    pub(super) at_once: bool,
}

/// Where the word to stop arrives.
pub(super) type Word = watch::Receiver<Option<Stopping>>;

/// A process to be started.
pub(super) struct Start {
    pub(super) app: Arc<App>,
    pub(super) process: ProcessId,
    pub(super) generation: u64,
}

impl ProcessSlot {
    pub(super) fn new() -> (Self, Word) {
        let (stop, stopped) = watch::channel(None);
        let slot = Self {
            running: None,
            stop,
            draining: watch::Sender::new(None),
        };
        (slot, stopped)
    }

    /// It gets no more requests.
    pub(super) fn drain(&self, why: Leaving) {
        if let Some(running) = &self.running {
            running.connections.close_idle();
        }
        self.draining.send_if_modified(|draining| {
            let is_new = draining.is_none();
            *draining = draining.or(Some(why));
            is_new
        });
    }
}

/// Tells the machine that nothing is left of a process, however its task ends.
/// One that was still starting has failed to start by that.
struct Gone {
    inner: Arc<Inner>,
    id: ProcessId,
}

impl Drop for Gone {
    fn drop(&mut self) {
        let id = self.id;
        // It may be dropped by a panic, and a second one would end the program.
        let _ = panics::contain(|| self.inner.forget(id));
        let _ = panics::contain(|| {
            self.inner
                .step(|step| step.machine.gone(id, step.now, step.effects));
        });
    }
}

/// See one process from its start to its end. If that panics, the process is
/// killed, and is counted until it is gone.
pub(super) async fn run(inner: Arc<Inner>, start: Start, stop: Word) {
    let id = start.process;
    let _gone = Gone {
        inner: Arc::clone(&inner),
        id,
    };
    let Err(panicked) = panics::contain_async(see(&inner, &start, stop)).await else {
        return;
    };
    let text = format!("process {id} is killed: its task ended with an {panicked}");
    let killed = async {
        inner.tell(&start.app.name, text, None);
        let running = |slot: &ProcessSlot| slot.running.clone();
        let running = inner.tables().slots.get(&id).and_then(running);
        if let Some(running) = running {
            let kill = running.process.stop_with(Signal::Kill, Duration::ZERO);
            kill.await;
        }
    };
    let _ = panics::contain_async(killed).await;
}

async fn see(inner: &Arc<Inner>, start: &Start, mut stop: Word) {
    #[cfg(test)]
    start.plant("start");
    let id = start.process;
    let config = start.app.config.load_full();
    let started = {
        let (here, gone) = oneshot::channel();
        let starting = begin(inner, start, &config, here);
        tokio::select! {
            biased;
            started = starting => Some(started),
            _ = stopped(&mut stop) => {
                // The start was dropped, and its process with it; the other end
                // of the channel goes with the last of it.
                let _ = timeout(KILLED_WAIT, gone).await;
                None
            }
        }
    };
    match started {
        None => (),
        Some(Err(report)) => {
            let text = format!("process {id} did not start");
            let detail = format!(": {}", report.summary);
            let events = &inner.events;
            events.add_app(&start.app.name, &text, detail, None);
            start.app.report.store(Some(Arc::from(report)));
        }
        Some(Ok(process)) => serve(inner, start, &mut stop, &config, process).await,
    }
}

/// A process is ready: tell the machine, and wait for its end.
async fn serve(
    inner: &Arc<Inner>,
    start: &Start,
    stop: &mut Word,
    config: &AppConfig,
    process: Process,
) {
    let id = start.process;
    let running = match inner.attach(start, process) {
        Ok(running) => running,
        Err(process) => {
            process.stop().await;
            return;
        }
    };
    start.app.report.store(None);
    inner.step(|step| step.machine.started(id, step.now, step.effects));
    let well = {
        let (inner, running) = (Arc::downgrade(inner), Arc::downgrade(&running));
        let health = config.health.clone();
        tokio::spawn(async move {
            let watch = || health::watch(&inner, &running, &health);
            panics::keep("the watch over a process", watch).await;
        })
    };
    #[cfg(test)]
    start.plant("service");
    let stopping = tokio::select! {
        exit = running.process.exited() => Err(exit),
        stopping = stopped(stop) => Ok(stopping),
    };
    #[cfg(test)]
    start.plant("end");
    well.abort();
    // Requests notice first when a process ends; then its end says more than theirs.
    let stopping = match stopping {
        Ok(Stopping { why, .. }) if why == Leaving::Unreachable && running.is_ending() => {
            tokio::select! {
                exit = running.process.exited() => Err(exit),
                () = hurried(stop) => stopping,
                () = sleep(KILLED_WAIT) => stopping,
            }
        }
        stopping => stopping,
    };
    let ended = match stopping {
        Ok(Stopping { why, at_once }) => {
            let text = format!(
                "process {id} (pid {}) is stopped: {}",
                running.pid(),
                why.word()
            );
            inner.tell(&start.app.name, text, None);
            end(&running, stop, at_once).await
        }
        Err(exit) => {
            let text = format!("process {id} (pid {}) ended: {exit}", running.pid());
            inner.tell(&start.app.name, text, None);
            lose(inner, start, &running, &program(config, None), exit);
            running
                .process
                .stop_with(Signal::Kill, Duration::ZERO)
                .await
        }
    };
    if ended.is_none() {
        let text = format!(
            "process {id} (pid {}) was killed and is stuck",
            running.pid()
        );
        inner.tell(&start.app.name, text, None);
        // It is counted for as long as there is anything of it.
        running.process.gone().await;
    }
}

/// A process has ended by itself. If that makes its start a failed one, the asks
/// that are refused from now on are told why.
fn lose(inner: &Arc<Inner>, start: &Start, running: &Running, program: &Program, exit: Exit) {
    let report = StartReport::unanswered(program, &running.process, exit);
    let known = start.app.report.swap(Some(Arc::new(report)));
    let has_failed = inner.step(|step| {
        // A request to it may have noticed first.
        let was_of_use = step.machine.has_answered(start.process);
        match exit.is_kill() {
            true => step.machine.killed(start.process, step.now, step.effects),
            false => step.machine.lost(start.process, step.now, step.effects),
        }
        !was_of_use && step.machine.is_failing(start.app.id)
    });
    if !has_failed {
        start.app.report.store(known);
    }
}

/// Stop it mildly, unless there is or comes word to kill it.
async fn end(running: &Running, stop: &mut Word, at_once: bool) -> Option<Exit> {
    let kill = || running.process.stop_with(Signal::Kill, Duration::ZERO);
    if at_once {
        return kill().await;
    }
    tokio::select! {
        ended = running.process.stop() => ended,
        () = hurried(stop) => kill().await,
    }
}

/// Wait for word to kill it.
async fn hurried(stop: &mut Word) {
    let told = stop.wait_for(|stop| stop.is_some_and(|stop| stop.at_once));
    if told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn stopped(stop: &mut Word) -> Stopping {
    let told = stop.wait_for(Option::is_some).await;
    told.ok().and_then(|told| *told).unwrap_or(Stopping {
        why: Leaving::Closed,
        at_once: true,
    })
}

/// Start a process and wait until it is ready and warm. If the future is
/// dropped, `here` is, once nothing of it is left.
async fn begin(
    inner: &Arc<Inner>,
    start: &Start,
    config: &AppConfig,
    here: oneshot::Sender<()>,
) -> Result<Process, Box<StartReport>> {
    let run = &config.run;
    inner.may_bind(config).await;
    let folder = inner.run_dirs.folder().await;
    let folder = folder.map_err(|error| {
        let doing = "open the run folder";
        Box::new(StartReport::unprepared(
            &program(config, None),
            doing,
            error,
        ))
    })?;
    let root = resolved(run.root.as_deref()).await;
    let program = program(config, root);
    let (app, id) = (Arc::clone(&start.app), start.process);
    let said = move |line: &OutputLine| {
        let _ = &here;
        app.output.add(&app.name, id, line);
    };
    let process = Process::start_reported(&program, folder, said).await?;
    if let Some(address) = process.address() {
        for path in &run.warm_up {
            // What it answers is its own business.
            let probe = probe(config, path, "warm-up");
            let _ = timeout(WARM_UP_MAX, probe.status(address)).await;
        }
    }
    Ok(process)
}

/// Where the links on the way to the root lead now. A root that is not there is
/// for the start to complain about.
async fn resolved(root: Option<&Path>) -> Option<PathBuf> {
    let root = root?.to_owned();
    let found = root.clone();
    let found = spawn_blocking(move || found.canonicalize()).await;
    Some(found.ok().and_then(Result::ok).unwrap_or(root))
}

/// A request of the server's own to a process of an app.
pub(super) fn probe(config: &AppConfig, path: &str, purpose: &'static str) -> Probe {
    Probe {
        path: path.into(),
        host: config.probe_host().into(),
        purpose,
    }
}

fn program(config: &AppConfig, root: Option<PathBuf>) -> Program {
    let run: &RunSpec = &config.run;
    Program {
        name: config.name.clone(),
        argv: run.command.clone(),
        shown: run.shown.clone(),
        env: run.env.clone(),
        directory: root,
        listen: match &run.listen {
            AppListen::Inherit => Listen::InheritSocket,
            AppListen::Socket => Listen::Socket,
            AppListen::Port => Listen::Port,
            AppListen::Fixed(address) => Listen::Fixed(Address::Port(*address)),
        },
        ready: match &run.ready {
            AppReady::Auto => {
                let health = config.health.as_ref();
                let path = health.map_or("/", |health| &health.path);
                Ready::Auto(probe(config, path, "ready"))
            }
            AppReady::Connect => Ready::Connect,
            AppReady::Http(path) => Ready::Http {
                probe: probe(config, path, "ready"),
                exact_200: false,
            },
            AppReady::Notify => Ready::Notify,
            AppReady::Line(text) => Ready::Line(text.clone()),
        },
        watchdog: run.watchdog,
        start_timeout: run.start_timeout,
        stop_timeout: run.stop_timeout,
        stop_signal: run.stop_signal,
        // It stops its own workers, and knows better in which order.
        stop_target: StopTarget::Child,
        user: run.user.clone(),
        group: run.group.clone(),
        umask: run.umask,
        new_privileges: run.new_privileges,
        limits: ResourceLimits {
            files_max: run.files_max,
            processes_max: run.processes_max,
            ..ResourceLimits::default()
        },
        output: OutputLimits {
            line_bytes_max: LINE_MAX,
            ..OutputLimits::default()
        },
    }
}

impl Inner {
    /// The process is ready, unless it is not wanted any more.
    fn attach(&self, start: &Start, process: Process) -> Result<Arc<Running>, Box<Process>> {
        let Some(address) = process.address().cloned() else {
            return Err(Box::new(process));
        };
        let config = start.app.config.load();
        let keep_alive = KeepAlive {
            idle_for: config.http.keep_alive,
            // This many as can be used at a time may be used again.
            idle_max: config
                .options
                .concurrency
                .map_or(IDLE_MAX, |most| most.min(IDLE_MAX)),
            ..KeepAlive::default()
        };
        let mut tables = self.tables();
        let Some(slot) = tables.slots.get_mut(&start.process) else {
            return Err(Box::new(process));
        };
        let running = Arc::new(Running {
            id: start.process,
            generation: start.generation,
            app: Arc::clone(&start.app),
            connections: Connections::new(address.clone(), keep_alive),
            address,
            requests: Default::default(),
            processor: Default::default(),
            process,
            draining: slot.draining.subscribe(),
        });
        slot.running = Some(Arc::clone(&running));
        Ok(running)
    }

    /// Nothing is left of a process.
    fn forget(&self, id: ProcessId) {
        let slot = self.tables().slots.remove(&id);
        drop(slot);
    }
}

#[cfg(test)]
impl Start {
    /// Panic if a test wants it here, but only over the first process.
    fn plant(&self, place: &str) {
        let is_wanted = self.app.name.strip_prefix("panics-in-") == Some(place);
        assert!(!is_wanted || self.process != ProcessId(1), "planted");
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::apps::Limits;
    use tokio::time::Instant;

    use crate::apps::Apps;
    use crate::run_dirs::RunDirs;
    use rideau_config::{AppReady, Config, Server};
    use rideau_testing::Scratch;

    use super::*;

    /// Nothing takes longer, unless it hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// An app of one process that only says that it is ready.
    fn app(name: &str) -> AppConfig {
        let script = "echo ready; exec sleep 1000";
        let mut config = AppConfig::new(name, vec!["sh".into(), "-c".into(), script.into()]);
        config.run.ready = AppReady::Line("ready".into());
        config.run.stop_timeout = Duration::from_secs(1);
        config.options.uptime_min = Duration::ZERO;
        config.options.min = 1;
        config.options.max = Some(1);
        config.restart_dir = None;
        config
    }

    fn begin_apps(folder: &Scratch, config: AppConfig) -> Apps {
        let server = Server {
            run_dir: Some(folder.join("run")),
            ..Server::default()
        };
        let run_dirs = Arc::new(RunDirs::new(&server, Arc::default()));
        let apps = Apps::new(Limits::default(), run_dirs, Arc::default());
        apps.begin(&Config {
            apps: vec![config],
            ..Config::default()
        });
        apps
    }

    /// Wait until a process is ready that satisfies this.
    async fn ready(apps: &Apps, wanted: impl Fn(&Running) -> bool) -> Arc<Running> {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = apps.0.running(&wanted).pop();
            if let Some(found) = found {
                return found;
            }
            assert!(Instant::now() < until, "no process is ready");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_over_a_process_costs_that_process() {
        for place in ["start", "service", "end"] {
            let folder = Scratch::new();
            let apps = begin_apps(&folder, app(&format!("panics-in-{place}")));
            let is_first = |running: &Running| running.id == ProcessId(1);
            if place == "end" {
                let first = ready(&apps, is_first).await;
                assert!(apps.detach(first.id));
            }
            let next = ready(&apps, |running| !is_first(running)).await;
            assert!(next.process.is_alive(), "{place}");
            // Nothing is left of the first, and it is counted no more.
            let until = Instant::now() + PATIENCE;
            let shown = || apps.shown(&apps.all()[0]).expect("it is there");
            while shown().processes.len() != 1 || !apps.0.running(is_first).is_empty() {
                assert!(Instant::now() < until, "{place}: it is never forgotten");
                sleep(Duration::from_millis(5)).await;
            }
            drop(next);
            let closed = timeout(PATIENCE, apps.close(PATIENCE)).await;
            assert!(closed.is_ok(), "{place}: the apps never end");
            assert!(apps.0.running(|_| true).is_empty(), "{place}");
        }
    }
}
