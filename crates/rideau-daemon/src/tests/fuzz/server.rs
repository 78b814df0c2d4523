//! A real server within the test, and every panic in it.

use std::net::SocketAddr;
use std::panic;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::Daemon;
use crate::Source;
use crate::admin::AdminListener;
use crate::serve::Listener;
use crate::serve::leak_check;
use rideau_apps::IoThreads;
use rideau_config::{Config, Listen};
use tokio::runtime::{Builder, Runtime};

use rideau_testing::fuzz::Tried;

/// Nothing takes longer, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Something of each kind that a client can name. No wait is long.
const CONFIG: &str = r#"
[server]
wait_max = "5ms"
wait_default = "2ms"
[limits]
frame_max = "64KiB"
output_max = "256KiB"
name_len_max = 64
held_max = 50
waiters_max = 20
sessions_max = 20
names_max = 20
[log]
level = "error"
[pool.pg]
group = "db"
member = { list = ["one", "two"] }
[pool.brought]
member = "offered"
leak_after = "1ms"
[broker.work]
asks = { kind = "timeout", timeout = "3ms" }
[regulator.few]
valve = { kind = "open", max = 2 }
[lock."*"]
per = 2
[store]
kind = "memory"
[range.office]
values = ["10.20.0.0/29", "2001:db8::/126"]
start = "free"
detach = "1h"
[range.number]
values = ["1-9"]
start = "free"
hold = "connection"
[view.both]
values = ["10.20.0.2-10.20.0.9", "1"]
"#;

pub(crate) struct Server {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) redis: SocketAddr,
    pub(crate) http: SocketAddr,
    /// The settings that it began with.
    generation: u64,
    runtime: Option<Runtime>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let config = Config::parse(CONFIG, "test.toml", &|_| None).unwrap();
        let source = Source {
            text: CONFIG.into(),
            file: None,
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime
            .block_on(async {
                let daemon = Daemon::with(config, source, crate::COMMAND_NAMES).unwrap();
                let free = SocketAddr::from(([127, 0, 0, 1], 0));
                let redis = Listener::bind(&Listen::Tcp(free), 0).await.unwrap();
                let mut admin = AdminListener::default();
                let http = admin.listen(free, None).await.unwrap();
                let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
                daemon.apps.begin(&daemon.config.load());
                let server = Self {
                    redis: SocketAddr::from(([127, 0, 0, 1], redis.port().unwrap())),
                    http,
                    generation: daemon.settings.generation(),
                    daemon: Arc::clone(&daemon),
                    runtime: None,
                };
                tokio::spawn(redis.serve(Arc::clone(&daemon), io_threads));
                tokio::spawn(admin.serve(Arc::clone(&daemon)));
                tokio::spawn(crate::serve::keep_sessions(Arc::clone(&daemon)));
                tokio::spawn(leak_check::keep(daemon));
                server
            })
            .with(runtime)
    }

    fn with(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Whether it is as it was at the start.
    pub(crate) fn is_unchanged(&self) -> bool {
        // After more failed logins the answers come ever later.
        let failed = self.daemon.counts.denied.load(Ordering::Relaxed);
        self.daemon.settings.generation() == self.generation && failed < 3
    }

    /// Wait until nothing is left of connections.
    pub(crate) fn is_left_alone(&self) -> Tried {
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = self.daemon.lease_table.all();
            let mut held = rows.iter().filter(|row| row.card.connection.is_some());
            let (held, clients) = (held.next(), self.daemon.clients.len());
            if held.is_none() && clients == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                let held = held.map(|row| format!("{} of {}", row.ticket, row.name));
                return Err(format!("{clients} connections are left, and {held:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Every panic of this process since it was last looked.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn all_panics() -> MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics are those of one test as long as it has this.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            all_panics().push(panic.to_string());
            usual(panic);
        }));
    });
    all_panics().clear();
    guard
}

/// Nothing has panicked.
pub(crate) fn is_sound() -> Tried {
    let panics = std::mem::take(&mut *all_panics());
    match panics.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} panics, first: {first}", panics.len())),
    }
}
