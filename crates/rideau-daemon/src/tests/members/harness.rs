//! A server with a temporary folder, and what a test wants to know of its
//! children.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rideau_apps::IoThreads;
use rideau_config::Config;

use crate::Daemon;
use crate::serve::Listener;
use crate::state::viewer::Viewer;
use crate::tests::members::peer::{Answer, LONG, Peer};
use crate::view::explain::explain;

/// A temporary folder, gone with the test.
pub(crate) struct Harness(PathBuf);

impl Harness {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-members-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A test that was killed may have had our number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// Write a script and say where it is.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The text of a config whose run folder is here.
    pub(crate) fn text(&self, pools: &str) -> String {
        let run_dir = self.run_dir();
        // On a busy machine a start is slow, and no take is to be shed for
        // that.
        let patient = |line: &str| match line.trim_start().starts_with("[pool.") {
            true => format!("{line}\nqueue = \"never\"\n"),
            false => format!("{line}\n"),
        };
        let pools: String = pools.lines().map(patient).collect();
        let listen = "listen = [\"127.0.0.1:0\"]\nadmin = \"none\"\ndrain = \"1s\"";
        format!("[server]\nrun_dir = {run_dir:?}\n{listen}\n{pools}")
    }

    pub(crate) fn config(&self, pools: &str) -> Config {
        let text = self.text(pools);
        Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|faults| panic!("{faults}"))
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server in this program.
pub(crate) struct Server {
    pub(crate) daemon: Arc<Daemon>,
    address: String,
    pub(crate) harness: Harness,
}

impl Server {
    pub(crate) async fn start(pools: &str) -> Self {
        Self::start_in(Harness::new(), pools).await
    }

    pub(crate) async fn start_in(harness: Harness, pools: &str) -> Self {
        let config = harness.config(pools);
        let listen = config.server.listen[0].clone();
        let daemon = Daemon::new(config, crate::COMMAND_NAMES).unwrap();
        let listener = Listener::bind(&listen, 0o600).await.unwrap();
        let address = listener.address();
        let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
        tokio::spawn(listener.serve(Arc::clone(&daemon), io_threads));
        Self {
            daemon,
            address,
            harness,
        }
    }

    pub(crate) async fn peer(&self) -> Peer {
        Peer::connect(&self.address).await
    }

    /// A connection of the operator, who is told what programs write.
    pub(crate) async fn operator(&self) -> Peer {
        let mut peer = self.peer().await;
        let token = self.daemon.operator.token().unwrap();
        peer.send(&format!("AUTH {token}")).await;
        assert_eq!(peer.answer().await, Answer::Text("OK".into()));
        peer
    }

    pub(crate) fn change(&self, pools: &str) {
        let text = self.harness.text(pools);
        let changed = self.daemon.apply(&text, "a test");
        assert!(changed.is_ok(), "{:?}", changed.err());
    }

    /// What was told of a pool, the newest first.
    pub(crate) fn events(&self, pool: &str) -> Vec<String> {
        let events = self.daemon.events.newest(100).into_iter();
        let of_pool = events.filter(|event| event.name == pool);
        of_pool.map(|event| Viewer::ALL.text_of(&event)).collect()
    }

    pub(crate) fn explain(&self, pool: &str) -> String {
        let explained = explain(&self.daemon, &format!("pool:{pool}"), Viewer::ALL);
        explained.map_or_else(String::new, |explained| explained.text)
    }

    pub(crate) async fn stop(self) {
        tokio::time::timeout(LONG, crate::serve::drain(&self.daemon))
            .await
            .unwrap();
        let folder = self.harness.run_dir();
        until("the run folder is empty", || files(&folder).is_empty()).await;
    }
}

/// What is left in a run folder.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let Ok(names) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock").collect()
}

/// Wait for something to become so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut waited = Duration::ZERO;
    while !is_so() {
        assert!(waited < LONG, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(2)).await;
        waited += Duration::from_millis(2);
    }
}

/// Does a process with this number run? A zombie does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// The number that a child wrote to a file.
pub(crate) async fn number_in(path: &Path) -> i32 {
    let mut number = None;
    until("a number in a file", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    })
    .await;
    number.unwrap()
}
