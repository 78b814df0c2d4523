//! A front with apps behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::Events;
use rideau_apps::RunDirs;
use rideau_apps::{App, Apps};
use rideau_apps::{Front, FrontListener, Tls};
use rideau_config::{AppConfig, AppListen, AppReady, Config, FrontConfig, Server};
use rideau_core::apps::Limits;
use tokio::task::JoinHandle;

use super::wire::Peer;

pub(crate) struct Stage {
    /// Where clients come.
    pub(crate) address: SocketAddr,
    pub(crate) front: Arc<Front>,
    pub(crate) apps: Apps,
    pub(crate) served: JoinHandle<()>,
    _folder: Folder,
}

/// A folder of its own, gone with the stage.
struct Folder(std::path::PathBuf);

/// An app that a server of the test stands in for: its process only says that it
/// is ready.
pub(crate) fn app() -> AppConfig {
    let script = "echo ready; exec sleep 1000";
    let mut config = AppConfig::new("app", vec!["sh".into(), "-c".into(), script.into()]);
    config.run.ready = AppReady::Line("ready".into());
    config.run.stop_timeout = Duration::from_secs(1);
    config.options.uptime_min = Duration::ZERO;
    config.options.trial = None;
    config.restart_dir = None;
    config
}

impl Stage {
    /// One app at this address.
    pub(crate) async fn new(server: SocketAddr) -> Self {
        Self::of(app(), server, FrontConfig::default()).await
    }

    /// One app like this, at this address.
    pub(crate) async fn of(mut config: AppConfig, server: SocketAddr, front: FrontConfig) -> Self {
        config.run.listen = AppListen::Fixed(server);
        Self::with(vec![config], front, None).await
    }

    /// Apps like these, whose processes are their own.
    pub(crate) async fn with(
        configs: Vec<AppConfig>,
        front: FrontConfig,
        tls: Option<Tls>,
    ) -> Self {
        let number: u64 = rand();
        let folder = std::env::temp_dir().join(format!("rideau-front-{number:x}"));
        let server = Server {
            run_dir: Some(folder.clone()),
            ..Server::default()
        };
        let run_dirs = Arc::new(RunDirs::new(&server, Arc::new(Events::default())));
        let limits = Limits {
            max: 8,
            ..Limits::default()
        };
        let apps = Apps::new(limits, run_dirs, Arc::default());
        let mut config = Config {
            front: front.clone(),
            apps: configs,
            ..Config::default()
        };
        config.front.limits = limits;
        apps.begin(&config);
        let mut listener = FrontListener::default();
        let at = "127.0.0.1:0".parse().expect("an address");
        let address = listener.listen(at, tls).await.expect("a port");
        let front = Front::new(apps.clone(), front);
        let served = tokio::spawn(listener.serve(Arc::clone(&front)));
        Self {
            address,
            front,
            apps,
            served,
            _folder: Folder(folder),
        }
    }

    pub(crate) async fn client(&self) -> Peer {
        Peer::connect(self.address).await
    }

    pub(crate) fn app(&self) -> Arc<App> {
        Arc::clone(&self.apps.all()[0])
    }

    fn sessions(&self) -> usize {
        let all = self.apps.all();
        let shown = all.iter().filter_map(|app| self.apps.shown(app));
        shown
            .map(|app| app.stats.sessions + app.stats.waiting)
            .sum()
    }

    /// Wait until no request has a place or waits for one any more.
    pub(crate) async fn quiet(&self) {
        while self.sessions() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stop everything; no request has a place by then.
    pub(crate) async fn end(self) {
        self.quiet().await;
        self.front.cut();
        self.apps.close_now().await;
    }
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
