//! Members of etcd of a test's own.

mod process;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Weak};

use process::{Folder, free_port, has_ended, start};
use rideau::store::etcd::{EtcdClient, EtcdOptions, EtcdRead, EtcdRefusal, KeyRange};
use rideau_testing::{Running, Signal, command, signal};

pub(crate) use process::{PATIENCE, until};

pub(crate) struct Server {
    /// None while it is down.
    process: Option<Running>,
    scheme: &'static str,
    port: u16,
    /// What it is started with, each time.
    arguments: Vec<String>,
    folder: Folder,
}

impl Server {
    /// A cluster of one member.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn start_with(more: &[&str]) -> Self {
        let mut server = Self::down("http", "n1", free_port(), "");
        server
            .arguments
            .extend(more.iter().map(ToString::to_string));
        server.start_again().await;
        server
    }

    /// The same, that speaks TLS with clients. It is not known to be ready.
    pub(crate) fn start_secret(more: impl FnOnce(&Folder) -> Vec<String>) -> Self {
        let mut server = Self::down("https", "n1", free_port(), "");
        let more = more(&server.folder);
        server.arguments.extend(more);
        server.process = Some(server.serve());
        server
    }

    /// A cluster of three members.
    pub(crate) async fn start_three() -> [Self; 3] {
        let peers = [free_port(), free_port(), free_port()];
        let names = ["n1", "n2", "n3"];
        let cluster = names
            .iter()
            .zip(peers)
            .map(|(name, port)| member(name, port));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let mut place = names.iter().zip(peers);
        let mut servers = std::array::from_fn(|_| {
            let (name, peer) = place.next().expect("there are three");
            Self::down("http", name, peer, &cluster)
        });
        for server in &mut servers {
            server.process = Some(server.serve());
        }
        for server in &mut servers {
            server.wait_until_ready().await;
        }
        servers
    }

    /// A server for all tests that run at the same time and leave it as it is.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: tokio::sync::Mutex<Weak<Server>> =
            tokio::sync::Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&server);
        server
    }

    fn down(scheme: &'static str, name: &str, peer: u16, cluster: &str) -> Self {
        let (folder, port) = (Folder::in_memory("etcd"), free_port());
        let address = format!("{scheme}://localhost:{port}");
        let (peer, peer_address) = (peer, format!("http://127.0.0.1:{peer}"));
        let cluster = match cluster {
            "" => member(name, peer),
            cluster => cluster.to_owned(),
        };
        // A cluster's id is made from its members and this.
        let token = format!("rideau-{cluster}");
        let store = folder.path().join("store").display().to_string();
        let arguments = [
            ("--name", name),
            ("--data-dir", &store),
            (
                "--listen-client-urls",
                &format!("{scheme}://127.0.0.1:{port}"),
            ),
            ("--advertise-client-urls", &address),
            ("--listen-peer-urls", &peer_address),
            ("--initial-advertise-peer-urls", &peer_address),
            ("--initial-cluster", &cluster),
            ("--initial-cluster-token", &token),
        ];
        let arguments = arguments.map(|(name, value)| [name.to_owned(), value.to_owned()]);
        Self {
            process: None,
            scheme,
            port,
            arguments: arguments.into_iter().flatten().collect(),
            folder,
        }
    }

    /// Where clients connect to.
    pub(crate) fn address(&self) -> String {
        match self.scheme {
            "https" => format!("https://localhost:{}", self.port),
            scheme => format!("{scheme}://127.0.0.1:{}", self.port),
        }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        patient([self.address()])
    }

    pub(crate) async fn client(&self) -> EtcdClient {
        let client = EtcdClient::connect(self.options()).await;
        client.expect("the server is ready")
    }

    /// As a power cut ends it.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Start it with what it has on disk.
    pub(crate) async fn start_again(&mut self) {
        self.process = Some(self.serve());
        self.wait_until_ready().await;
    }

    /// The same, without waiting until it serves.
    pub(crate) fn begin_again(&mut self) {
        self.process = Some(self.serve());
    }

    /// A copy of what it has on disk. It must be down.
    #[allow(dead_code, reason = "tests of nodes use it")]
    pub(crate) fn back_up(&self) -> Folder {
        assert!(self.process.is_none(), "it is down");
        let backup = Folder::new("etcd-backup");
        copy(
            &self.folder.path().join("store"),
            &backup.path().join("store"),
        );
        backup
    }

    /// Put a copy back. It must be down.
    #[allow(dead_code, reason = "tests of nodes use it")]
    pub(crate) fn restore(&self, backup: &Folder) {
        assert!(self.process.is_none(), "it is down");
        let store = self.folder.path().join("store");
        fs::remove_dir_all(&store).expect("it is there");
        copy(&backup.path().join("store"), &store);
    }

    /// It stops where it is, with all its threads.
    pub(crate) async fn pause(&self) {
        let process = self.process.as_ref().expect("it runs").id();
        signal(process, Signal::STOP);
        until("etcd has stopped", async || {
            let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it is there");
            threads.into_iter().all(|thread| {
                let path = thread.expect("it can be read").path().join("stat");
                let stat = fs::read_to_string(path).unwrap_or_default();
                stat.rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        })
        .await;
    }

    /// It goes on.
    pub(crate) fn resume(&self) {
        let process = self.process.as_ref().expect("it runs");
        signal(process.id(), Signal::CONT);
    }

    fn serve(&self) -> Running {
        let mut command = command("etcd");
        command.args(&self.arguments);
        // What it says is of use when a test fails, and too much otherwise.
        start(command.args(["--log-level", "error"]))
    }

    async fn wait_until_ready(&mut self) {
        let options = self.options();
        until("etcd is ready", async || {
            let process = self.process.as_mut().expect("it was started");
            assert!(!has_ended(process), "etcd has ended by itself");
            let Ok(client) = EtcdClient::connect(options.clone()).await else {
                return false;
            };
            // It serves when it has a leader, and says so by a refusal if it asks for a user.
            match client.read(EtcdRead::newest(KeyRange::key("ready"))).await {
                Ok(_) => true,
                Err(error) => error.refusal() == Some(EtcdRefusal::Auth),
            }
        })
        .await;
    }
}

/// With time-outs that only etcd's own failures reach, however busy the machine is.
pub(crate) fn patient(endpoints: impl IntoIterator<Item = String>) -> EtcdOptions {
    let mut options = EtcdOptions::plain(endpoints);
    (options.connect_timeout, options.timeout) = (PATIENCE / 4, PATIENCE / 2);
    options
}

#[allow(dead_code, reason = "tests of nodes use it")]
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => _ = fs::copy(from, to).expect("a file can be copied"),
        }
    }
}

fn member(name: &str, port: u16) -> String {
    format!("{name}=http://127.0.0.1:{port}")
}
