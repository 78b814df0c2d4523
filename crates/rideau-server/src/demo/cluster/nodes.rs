//! The nodes of the demo: servers as `rideau serve` starts them, each a process of its own.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rideau_process::{Process, Program, Ready, RunFolder, Signal};
use tokio::time::Instant;

use super::BACK_AFTER;
use super::etcd::DemoEtcd;
use super::ports::{free_ports, is_free};
use crate::exit::Failure;
use crate::wire::Server;

/// Where clients reach the nodes, if these are free.
const PORTS: [u16; 3] = [7433, 7443, 7453];
/// The dashboard of a node is at the port behind.
const PAGE: u16 = 1;
/// Values that the nodes share.
pub(super) const RANGE: &str = "0-65535";

/// The nodes of the demo.
pub(super) struct DemoNodes {
    /// All of them, by name.
    pub(super) all: Vec<DemoNode>,
    folder: RunFolder,
    files: PathBuf,
    /// Where etcd is, and the name of the cluster in it.
    etcd: (String, String),
}

/// A node.
pub(super) struct DemoNode {
    /// Its name.
    pub(super) name: String,
    /// Where clients reach it.
    pub(super) port: u16,
    /// Where its dashboard is.
    pub(super) page: u16,
    program: Program,
    state: NodeProcess,
}

enum NodeProcess {
    Runs(Process),
    /// It was killed, and comes back.
    Dead {
        until: Instant,
    },
    /// It was not started yet.
    New,
}

impl DemoNodes {
    /// Nodes that are not started yet.
    pub(super) fn new(
        folder: &Path,
        run_folder: RunFolder,
        etcd: &DemoEtcd,
    ) -> Result<Self, Failure> {
        write_secret(&folder.join("secret"))?;
        let names = ["n1", "n2", "n3"].map(str::to_owned);
        let mut nodes = Self {
            all: names.map(DemoNode::new).into(),
            folder: run_folder,
            files: folder.to_owned(),
            etcd: (etcd.url.clone(), etcd.cluster.clone()),
        };
        let is_free = PORTS
            .iter()
            .all(|port| is_free(*port) && is_free(port + PAGE));
        nodes.configure(is_free)?;
        Ok(nodes)
    }

    /// Write what each node is told of itself.
    fn configure(&mut self, is_usual: bool) -> io::Result<()> {
        for (node, usual) in self.all.iter_mut().zip(PORTS) {
            let [port, page, peers] = free_ports()?;
            (node.port, node.page) = match is_usual {
                true => (usual, usual + PAGE),
                false => (port, page),
            };
            let own = self.files.join(&node.name);
            fs::create_dir_all(&own)?;
            let config = own.join("rideau.toml");
            fs::write(&config, config_text(node, peers, &self.files, &self.etcd))?;
            node.program = program(&node.name, &config, node.port)?;
        }
        Ok(())
    }

    /// Where clients reach them.
    pub(super) fn servers(&self) -> Vec<Server> {
        let ports = self.all.iter().map(|node| node.port);
        ports.map(Server::local).collect()
    }

    /// Start all of them.
    pub(super) async fn start_all(&mut self) -> Result<(), Failure> {
        if self.start_each().await.is_ok() {
            return Ok(());
        }
        // Another program may have come to a port meanwhile.
        self.end().await;
        self.configure(false)?;
        self.start_each().await
    }

    async fn start_each(&mut self) -> Result<(), Failure> {
        for node in &mut self.all {
            node.start(&self.folder).await?;
        }
        Ok(())
    }

    /// Kill a node, unless it is dead. Says what was done.
    pub(super) async fn kill(&mut self, at: usize) -> String {
        let node = &mut self.all[at];
        let NodeProcess::Runs(process) = &node.state else {
            return format!("{} is dead already", node.name);
        };
        process.stop_with(Signal::Kill, Duration::ZERO).await;
        let until = Instant::now() + BACK_AFTER;
        node.state = NodeProcess::Dead { until };
        format!(
            "{} is killed (kill -9), and comes back in {} s",
            node.name,
            BACK_AFTER.as_secs()
        )
    }

    /// Start those that were dead for long enough. Says which.
    pub(super) async fn start_due(&mut self) -> Result<Vec<String>, Failure> {
        let mut said = Vec::new();
        for node in &mut self.all {
            if let NodeProcess::Dead { until } = node.state
                && until <= Instant::now()
            {
                node.start(&self.folder).await?;
                said.push(format!("{} is started again", node.name));
            }
        }
        Ok(said)
    }

    /// End all of them at once.
    pub(super) async fn end(&mut self) {
        for node in &mut self.all {
            if let NodeProcess::Runs(process) = &node.state {
                process.stop_with(Signal::Kill, Duration::ZERO).await;
            }
            node.state = NodeProcess::New;
        }
    }
}

impl DemoNode {
    fn new(name: String) -> Self {
        Self {
            name,
            port: 0,
            page: 0,
            program: Program::default(),
            state: NodeProcess::New,
        }
    }

    /// Whether its process runs.
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.state, NodeProcess::Runs(_))
    }

    async fn start(&mut self, folder: &RunFolder) -> Result<(), Failure> {
        let started = Process::start(&self.program, folder, |_| ()).await;
        let failed = |error| Failure::Broken(format!("node {}: {error}", self.name));
        self.state = NodeProcess::Runs(started.map_err(failed)?);
        Ok(())
    }
}

fn program(name: &str, config: &Path, port: u16) -> io::Result<Program> {
    let ours = std::env::current_exe()?;
    let words = [ours.as_path(), "serve".as_ref(), "-c".as_ref(), config];
    let words = words.map(|word| word.display().to_string());
    Ok(Program {
        name: name.into(),
        argv: words.to_vec(),
        ready: Ready::Line(format!("rideau serves at 127.0.0.1:{port}")),
        ..Program::default()
    })
}

fn config_text(node: &DemoNode, peers: u16, files: &Path, etcd: &(String, String)) -> String {
    let DemoNode {
        name, port, page, ..
    } = node;
    let (url, cluster) = etcd;
    let own = files.join(name);
    let (run, store, secret) = (own.join("run"), own.join("store"), files.join("secret"));
    format!(
        "[server]\nname = {name:?}\nlisten = [\"127.0.0.1:{port}\"]\n\
         admin = \"127.0.0.1:{page}\"\nrun_dir = {run:?}\n\n\
         [log]\nlevel = \"warn\"\n\n\
         [cluster]\nname = {cluster:?}\nnode = {name:?}\netcd = [{url:?}]\n\
         listen = \"127.0.0.1:{peers}\"\nsecret_file = {secret:?}\nlease = \"2s\"\n\n\
         [store]\npath = {store:?}\n\n\
         [range.demo]\nvalues = [{RANGE:?}]\n",
    )
}

/// Writes the secret of the nodes. It lasts as long as the demo.
fn write_secret(path: &Path) -> io::Result<()> {
    let mut secret = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    io::Write::write_all(&mut file, &secret)
}
