//! Three nodes that share a range over one etcd: with traffic, and with nodes that are killed
//! now and then. What a client was told is noted, and has to stay true.

mod board;
mod etcd;
mod ledger;
mod nodes;
mod ports;
mod terminal;
mod traffic;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rideau_config::{Log, LogLevel};
use rideau_core::Rng;
use rideau_process::RunFolder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, interval_at, sleep};

use super::Seconds;
use super::screen::Screen;
use crate::exit::{Done, Failure, start_log};
use board::Board;
use etcd::DemoEtcd;
use ledger::Ledger;
use nodes::DemoNodes;
use terminal::Keys;
use traffic::ShopTraffic;

/// A node is killed so long after the beginning, and then each time after so long.
const KILL_FIRST: u32 = 4;
const KILL_EVERY: u32 = 15;
/// A node that was killed is started again after this long.
pub(super) const BACK_AFTER: Duration = Duration::from_secs(6);
/// All partitions have an owner by then, on the slowest machine.
const SERVED_MAX: Duration = Duration::from_secs(120);

/// The options of the demo.
pub(super) struct ClusterDemo<'a> {
    /// How long it runs.
    pub(super) seconds: Seconds,
    /// An etcd that is there already.
    pub(super) etcd: Option<&'a str>,
    /// It writes JSON.
    pub(super) is_json: bool,
}

impl ClusterDemo<'_> {
    pub(super) fn run(&self) -> Done {
        start_log(Log {
            level: LogLevel::Error,
            ..Log::default()
        });
        let folder = DemoFolder::make()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let played = runtime.block_on(self.play(&folder.0));
        runtime.shutdown_background();
        drop(folder);
        played
    }

    /// Start everything, show it, and end it, whatever happens meanwhile.
    async fn play(&self, folder: &Path) -> Done {
        let mut ends = Ends::listen()?;
        let run_folder = RunFolder::open(&folder.join("run"))?;
        let mut etcd = tokio::select! {
            etcd = DemoEtcd::start(self.etcd, folder, &run_folder) => etcd?,
            () = ends.told() => return Ok(ExitCode::SUCCESS),
        };
        let mut nodes = DemoNodes::new(folder, run_folder, &etcd)?;
        let ledger = Ledger::default();
        let shown = tokio::select! {
            shown = self.show(&mut nodes, &mut etcd, &ledger) => shown,
            () = ends.told() => Ok(()),
        };
        nodes.end().await;
        etcd.end().await;
        shown?;
        ledger.verdict()?;
        Ok(ExitCode::SUCCESS)
    }

    async fn show(
        &self,
        nodes: &mut DemoNodes,
        etcd: &mut DemoEtcd,
        ledger: &Ledger,
    ) -> Result<(), Failure> {
        let mut screen = Screen::stdout();
        let mut board = Board::new(self.is_json);
        board.introduce(&mut screen, nodes, etcd, self.seconds)?;
        nodes.start_all().await?;
        self.until_served(nodes, &board).await?;
        let traffic = ShopTraffic::start(&nodes.servers(), ledger);
        board.heads(&mut screen)?;
        self.watch(nodes, etcd, &traffic, &mut board, &mut screen)
            .await?;
        traffic.stop().await;
        // A value of a partition without owner has to wait for one.
        let checked = ledger.check(&nodes.servers()).await;
        board.conclude(&mut screen, ledger, checked)
    }

    async fn until_served(&self, nodes: &DemoNodes, board: &Board) -> Result<(), Failure> {
        let until = Instant::now() + SERVED_MAX;
        while !board.is_served(nodes).await {
            if Instant::now() > until {
                let text = "the nodes do not share the partitions: look at the log of one, by \
                            `rideau serve -c FILE` with such a config";
                return Err(Failure::Broken(text.into()));
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Show what happens each second, and let nodes die.
    async fn watch(
        &self,
        nodes: &mut DemoNodes,
        etcd: &mut DemoEtcd,
        traffic: &ShopTraffic,
        board: &mut Board,
        screen: &mut Screen,
    ) -> Result<(), Failure> {
        let mut keys = Keys::listen();
        let second = Duration::from_secs(1);
        let mut ticks = interval_at(Instant::now() + second, second);
        let mut rng = Rng::new(u64::from(std::process::id()));
        let mut at = 0;
        while self.seconds == Seconds::Forever || Seconds::For(at) != self.seconds {
            let key = tokio::select! {
                _ = ticks.tick() => None,
                key = keys.next() => Some(key),
            };
            if let Some(key) = key {
                match key {
                    b'q' => return Ok(()),
                    b'1'..=b'3' => {
                        let said = nodes.kill(usize::from(key - b'1')).await;
                        board.happened(screen, &said)?;
                    }
                    b'e' => {
                        let said = etcd.restart().await?;
                        board.happened(screen, &said)?;
                    }
                    _ => (),
                }
                continue;
            }
            at += 1;
            if at >= KILL_FIRST && (at - KILL_FIRST).is_multiple_of(KILL_EVERY) {
                let said = nodes.kill(rng.below(3) as usize).await;
                board.happened(screen, &said)?;
            }
            for said in nodes.start_due().await? {
                board.happened(screen, &said)?;
            }
            board.second(screen, at, nodes, traffic).await?;
        }
        Ok(())
    }
}

/// The signals that end the demo.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Ends {
    fn listen() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            _ = self.hangup.recv() => (),
        }
    }
}

/// Where everything of the demo is. It goes with it.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn make() -> Result<Self, Failure> {
        let name = format!("rideau-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // What an earlier process of the same number has left is not in the way.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed is one for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
