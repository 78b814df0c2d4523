//! The etcd of the demo: one of its own on loopback, or one that is there already.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdOptions, KeyRange, Txn, TxnOp};
use rideau_process::{Address, Listen, Probe, Process, Program, Ready, RunFolder, Signal};
use tokio::time::{sleep, timeout};

use super::ports::free_ports;
use crate::exit::Failure;

/// How long an etcd that was stopped is away.
const AWAY: Duration = Duration::from_secs(1);
/// An etcd that is named has to answer by then.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The etcd of the demo.
pub(super) struct DemoEtcd {
    /// Where it is.
    pub(super) url: String,
    /// The name of the cluster in it.
    pub(super) cluster: String,
    /// The process, if it is ours.
    own: Option<OwnEtcd>,
}

struct OwnEtcd {
    process: Process,
    program: Program,
    folder: RunFolder,
}

impl DemoEtcd {
    /// Start one, or look whether the named one answers.
    pub(super) async fn start(
        named: Option<&str>,
        folder: &Path,
        run_folder: &RunFolder,
    ) -> Result<Self, Failure> {
        let cluster = format!("demo-{}", std::process::id());
        if let Some(url) = named {
            let etcd = Self {
                url: url.to_owned(),
                cluster,
                own: None,
            };
            let client = EtcdClient::connect(EtcdOptions::plain([url]));
            let client = client.await.map_err(|error| no_etcd(url, &error))?;
            match timeout(ANSWER_MAX, client.status()).await {
                Ok(Ok(_)) => return Ok(etcd),
                Ok(Err(error)) => return Err(no_etcd(url, &error)),
                Err(late) => return Err(no_etcd(url, &late)),
            }
        }
        if !is_in_path("etcd") {
            return Err(Failure::Broken(
                "there is no `etcd` in the PATH. Install it (Debian and Ubuntu: apt install \
                 etcd-server; others: https://etcd.io/docs/latest/install), or name one that \
                 runs: rideau demo --cluster --etcd http://127.0.0.1:2379"
                    .into(),
            ));
        }
        let [port, peers] = free_ports()?;
        let program = program(folder, port, peers);
        let process = Process::start(&program, run_folder, |_| ()).await;
        let process = process.map_err(|error| Failure::Broken(format!("etcd: {error}")))?;
        Ok(Self {
            url: format!("http://127.0.0.1:{port}"),
            cluster,
            own: Some(OwnEtcd {
                process,
                program,
                folder: run_folder.clone(),
            }),
        })
    }

    /// Stop it and start it again. Says what was done.
    pub(super) async fn restart(&mut self) -> Result<String, Failure> {
        let Some(own) = &mut self.own else {
            return Ok("this etcd is not ours to stop".into());
        };
        own.process.stop_with(Signal::Kill, Duration::ZERO).await;
        sleep(AWAY).await;
        let started = Process::start(&own.program, &own.folder, |_| ()).await;
        own.process = started.map_err(|error| Failure::Broken(format!("etcd: {error}")))?;
        Ok(format!(
            "etcd was killed, and is back after {} s",
            AWAY.as_secs()
        ))
    }

    /// Leave nothing behind.
    pub(super) async fn end(self) {
        if let Some(own) = self.own {
            own.process.stop_with(Signal::Kill, Duration::ZERO).await;
            return;
        }
        let keys = format!("/rideau/{}/", self.cluster);
        let clear = async {
            let client = EtcdClient::connect(EtcdOptions::plain([&self.url])).await?;
            let delete = TxnOp::Delete(KeyRange::prefix(keys.clone()));
            client.txn(Txn::new().then(delete)).await
        };
        if let Err(error) = clear.await {
            eprintln!("the keys below {keys} are left in etcd: {error}");
        }
    }
}

fn no_etcd(url: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Broken(format!("no etcd answers at {url}: {error}"))
}

fn program(folder: &Path, port: u16, peers: u16) -> Program {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let words = [
        "etcd".to_owned(),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={}", url(port)),
        format!("--advertise-client-urls={}", url(port)),
        format!("--listen-peer-urls={}", url(peers)),
        format!("--initial-advertise-peer-urls={}", url(peers)),
        format!("--initial-cluster=default={}", url(peers)),
    ];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Program {
        name: "etcd".into(),
        argv: words.to_vec(),
        listen: Listen::Fixed(Address::Port(address)),
        ready: Ready::Http {
            probe: Probe {
                path: "/health".into(),
                ..Probe::default()
            },
            exact_200: true,
        },
        ..Program::default()
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    folders.any(|folder| fs::metadata(folder.join(program)).is_ok_and(|found| found.is_file()))
}
