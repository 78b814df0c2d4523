//! A real server within the test, with the parts that look after it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Daemon;
use crate::Source;
use crate::redis::commands;
use crate::serve::Listener;
use rideau_apps::IoThreads;
use rideau_config::{Config, Listen};
use tokio::runtime::Runtime;

use crate::tests::commands::peer::Peer;

pub(crate) struct Server {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) runtime: Option<Runtime>,
    port: u16,
    dir: Option<PathBuf>,
}

impl Server {
    /// A server that does what a text says.
    pub(crate) fn start(text: &str) -> Self {
        let source = Source {
            text: text.into(),
            file: None,
        };
        Self::of(source, None)
    }

    /// A server that was started with a file.
    pub(crate) fn of_file(text: &str) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-commands-{}-{serial}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("rideau.toml");
        std::fs::write(&file, text).unwrap();
        Self::of(Source::read(&file).unwrap(), Some(dir))
    }

    fn of(source: Source, dir: Option<PathBuf>) -> Self {
        let config = Config::parse(&source.text, "test.toml", &|_| None).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (daemon, port) = runtime.block_on(async {
            let daemon = Daemon::with(config, source, crate::COMMAND_NAMES).unwrap();
            let listen = Listen::Tcp("127.0.0.1:0".parse().unwrap());
            let listener = Listener::bind(&listen, 0).await.unwrap();
            let port = listener.port().unwrap();
            let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
            tokio::spawn(listener.serve(Arc::clone(&daemon), io_threads));
            tokio::spawn(crate::serve::keep_sessions(Arc::clone(&daemon)));
            (daemon, port)
        });
        Self {
            daemon,
            runtime: Some(runtime),
            port,
            dir,
        }
    }

    /// Look after the places from now on, as the program does.
    pub(crate) fn watch(&self) {
        let watch = crate::serve::leak_check::keep(Arc::clone(&self.daemon));
        self.runtime.as_ref().unwrap().spawn(watch);
    }

    /// A connection without a login. Where there are no users, what needs the
    /// operator is said on a connection of the operator.
    pub(crate) fn connect(&self) -> Peer {
        let peer = self.stranger();
        match self.daemon.config.load().users.is_empty() {
            true => {
                let token = self.daemon.operator.token().unwrap();
                peer.with_operator(self.port, token, |name| {
                    commands::find(name.as_bytes()).is_some_and(|about| about.is_control)
                })
            }
            false => peer,
        }
    }

    /// A connection without a login, and nothing else.
    pub(crate) fn stranger(&self) -> Peer {
        Peer::new(self.port)
    }

    /// A connection of the operator.
    pub(crate) fn operator(&self) -> Peer {
        Peer::operator(self.port, self.daemon.operator.token().unwrap())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.as_ref().unwrap().join("rideau.toml")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if let Some(dir) = &self.dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
