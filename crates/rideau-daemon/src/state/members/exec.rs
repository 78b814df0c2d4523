//! Members that are processes: started from a config's program, stopped with
//! their whole group, and lost when they end by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rideau::Retired;
use rideau_apps::RunDirs;
use rideau_config::{Exec, PoolConfig};
use rideau_process::{Exit, OutputLine, Process, Program};
use tokio::runtime::Handle;

use super::NoMember;

/// A pool whose starts fail tells so again only after this.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// This many of the last lines are told when a process ends.
const LINES_TOLD: usize = 5;

/// How one pool's processes are started.
pub(super) struct Programs {
    pool: Arc<str>,
    run_dirs: Arc<RunDirs>,
    program: ArcSwap<Program>,
    /// Why the last start failed, if it did.
    failure: Mutex<Option<Arc<str>>>,
    failures: Teller,
    losses: Teller,
}

/// One process, and what is told of it.
pub(super) struct Child {
    process: Process,
    pub(super) value: Arc<str>,
}

/// Tells of what may happen often, but seldom.
#[derive(Default)]
struct Teller {
    last: Mutex<Option<Instant>>,
    untold: AtomicU64,
}

/// The effect of a changed config on processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    /// Running processes can stay.
    Nothing,
    /// Running processes have the old program or options.
    Program,
}

impl Programs {
    pub(super) fn new(
        pool: &Arc<str>,
        config: &PoolConfig,
        exec: &Exec,
        run_dirs: &Arc<RunDirs>,
    ) -> Arc<Self> {
        let programs = Arc::new(Self {
            pool: Arc::clone(pool),
            run_dirs: Arc::clone(run_dirs),
            program: ArcSwap::from_pointee(program(config, exec)),
            failure: Mutex::default(),
            failures: Teller::default(),
            losses: Teller::default(),
        });
        // What an earlier server left is ended even if no take comes for a member.
        if let Ok(runtime) = Handle::try_current() {
            let programs = Arc::clone(&programs);
            runtime.spawn(async move {
                if let Err(error) = programs.run_dirs.folder().await {
                    let text = format!("there is no run folder: {error}");
                    programs.run_dirs.tell(&programs.pool, text, String::new());
                }
            });
        }
        programs
    }

    /// Follow a changed config.
    pub(super) fn change(&self, config: &PoolConfig, exec: &Exec) -> Changed {
        let new = program(config, exec);
        let old = self.program.load();
        let same = Program {
            start_timeout: old.start_timeout,
            stop_timeout: old.stop_timeout,
            ..new.clone()
        };
        let changed = if **old == same {
            Changed::Nothing
        } else {
            Changed::Program
        };
        self.program.store(Arc::new(new));
        changed
    }

    /// Start one.
    pub(super) async fn start(&self) -> Result<Arc<Child>, NoMember> {
        let started = self.try_start().await;
        let why = started.as_ref().err().and_then(NoMember::detail).cloned();
        if let Some(why) = &why {
            let text = "a member could not be started";
            let tell = |detail| self.run_dirs.tell(&self.pool, text.into(), detail);
            self.failures.tell(|| format!(": {why}"), tell);
        }
        *self.failure.lock() = why;
        started
    }

    async fn try_start(&self) -> Result<Arc<Child>, NoMember> {
        let folder = self.run_dirs.folder().await;
        let folder =
            folder.map_err(|error| no_member(&format!("there is no run folder: {error}")))?;
        let program = self.program.load_full();
        let presence = self.run_dirs.enter();
        let pool = Arc::clone(&self.pool);
        let said = move |line: &OutputLine| {
            // It is there for as long as its output is read.
            let _ = &presence;
            tracing::debug!(pool = &*pool, "{}", line.text);
        };
        let process = Process::start(&program, folder, said).await;
        let process = process.map_err(|error| no_member(&error.to_string()))?;
        let value = match process.address() {
            Some(address) => address.to_string(),
            None => process.pid().to_string(),
        };
        Ok(Arc::new(Child {
            process,
            value: value.into(),
        }))
    }

    /// Why the last start failed, if it did.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.failure.lock().clone()
    }

    /// Stop one, within the time that its pool says now.
    pub(super) async fn stop(&self, child: &Child, why: Retired) {
        let within = self.program.load().stop_timeout;
        // Its own, and not what its pool's next processes are stopped with.
        let signal = child.process.stop_signal();
        let stopped = child.process.stop_with(signal, within).await;
        if stopped.is_none() {
            let (pid, value) = (child.process.pid(), &child.value);
            let text = format!(
                "the process {pid} ({value}) was killed ({why:?}) and has not \
                ended"
            );
            self.run_dirs.tell(&self.pool, text, String::new());
        }
    }

    /// Wait until one has ended by itself, and tell of it.
    pub(super) fn lost(
        self: &Arc<Self>,
        child: &Arc<Child>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let exited = child.process.exited();
        // The task that waits for the end does not put it off.
        let (child, programs) = (Arc::downgrade(child), Arc::clone(self));
        async move {
            let exit = exited.await;
            let Some(child) = child.upgrade() else {
                return;
            };
            let text = child.ended(exit);
            let tell = |detail| programs.run_dirs.tell(&programs.pool, text, detail);
            programs.losses.tell(|| child.said(), tell);
            programs.run_dirs.lose();
        }
    }
}

impl Child {
    pub(super) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    fn ended(&self, exit: Exit) -> String {
        let (pid, value) = (self.process.pid(), &self.value);
        format!("the process {pid} ({value}) {exit} by itself")
    }

    /// The last lines of its output.
    fn said(&self) -> String {
        let lines = self.process.last_lines();
        let last = &lines[lines.len().saturating_sub(LINES_TOLD)..];
        let said: Vec<_> = last
            .iter()
            .map(|line| line.text.replace(char::is_control, "\u{fffd}"))
            .collect();
        match &said[..] {
            [] => "; it said nothing".to_owned(),
            said => format!("; it said last: {}", said.join(" | ")),
        }
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.process.fmt(f)
    }
}

impl Teller {
    fn tell(&self, text: impl FnOnce() -> String, tell: impl FnOnce(String)) {
        let now = Instant::now();
        let mut last = self.last.lock();
        if last.is_some_and(|last| now.duration_since(last) < TELL_EVERY) {
            self.untold.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *last = Some(now);
        drop(last);
        let text = text();
        tell(match self.untold.swap(0, Ordering::Relaxed) {
            0 => text,
            untold => format!("{text} (and {untold} times before)"),
        });
    }
}

/// A program that does not start: not every user is to know why.
fn no_member(why: &str) -> NoMember {
    NoMember {
        text: "its program does not start".into(),
        detail: Some(why.into()),
    }
}

fn program(config: &PoolConfig, exec: &Exec) -> Program {
    Program {
        name: config.name.clone(),
        argv: exec.command.clone(),
        shown: exec.shown.clone(),
        env: exec.env.clone(),
        directory: exec.dir.clone(),
        ready: exec.ready.clone(),
        start_timeout: config.options.start_timeout,
        stop_timeout: config.options.stop_timeout,
        stop_signal: exec.stop_signal,
        new_privileges: exec.new_privileges,
        ..Program::default()
    }
}

#[cfg(test)]
mod tests {
    use super::Teller;

    #[test]
    fn what_happens_often_is_told_once() {
        let teller = Teller::default();
        let mut told = Vec::new();
        for number in 0..3 {
            teller.tell(|| number.to_string(), |text| told.push(text));
        }
        assert_eq!(told, ["0"]);
        *teller.last.lock() = None;
        teller.tell(|| "3".into(), |text| told.push(text));
        assert_eq!(told, ["0", "3 (and 2 times before)"]);
    }
}
