//! A PostgreSQL server of a test's own.

mod process;
mod user;

use process::{Folder, free_port, has_ended, start};
use rideau_testing::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};
use tokio_postgres::{Client, Config, NoTls};
use user::Unprivileged;

pub(crate) use process::{PATIENCE, until};

pub(crate) struct Server {
    process: Running,
    port: u16,
    user: Unprivileged,
    folder: Folder,
}

impl Server {
    /// A server for one test alone.
    pub(crate) async fn start() -> Self {
        let user = Unprivileged::find("postgres");
        let folder = Folder::new("postgres");
        user.give(folder.path());
        run(user
            .command(&program("initdb"))
            .args(["--username=anna", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(folder.path().join("data")));
        let port = free_port();
        let server = Self {
            process: serve(user, folder.path(), port),
            port,
            user,
            folder,
        };
        server.wait_until_ready().await
    }

    /// A server for all tests that run at the same time.
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

    /// Where to connect. The server shows `name` for these connections.
    pub(crate) fn config(&self, name: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port);
        config
            .user("anna")
            .dbname("postgres")
            .application_name(name);
        config
    }

    /// A connection that looks on.
    pub(crate) async fn observer(&self) -> Observer {
        let connected = self.config("observer").connect(NoTls).await;
        let (client, connection) = connected.expect("the server is ready");
        tokio::spawn(connection);
        Observer(client)
    }

    /// Shut down at once, without waiting for clients to leave, and start
    /// again.
    pub(crate) async fn restart(mut self) -> Self {
        run(&mut self.stopping("fast"));
        until("the server has ended", async || {
            has_ended(&mut self.process)
        })
        .await;
        self.process = serve(self.user, self.folder.path(), self.port);
        self.wait_until_ready().await
    }

    async fn wait_until_ready(mut self) -> Self {
        until("the server is ready", async || {
            assert!(
                !has_ended(&mut self.process),
                "the server has ended by itself"
            );
            self.config("observer").connect(NoTls).await.is_ok()
        })
        .await;
        self
    }

    fn stopping(&self, mode: &str) -> Command {
        let mut command = self.user.command(&program("pg_ctl"));
        command.args(["stop", "-w", "-m", mode, "-D"]);
        command.arg(self.folder.path().join("data"));
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is killed leaves shared memory behind.
        if !has_ended(&mut self.process) {
            let _ = self.stopping("immediate").output();
        }
    }
}

fn serve(user: Unprivileged, folder: &Path, port: u16) -> Running {
    let mut command = user.command(&program("postgres"));
    command.arg("-D").arg(folder.join("data"));
    command.arg("-k").arg(folder);
    command.args([
        "-p",
        &port.to_string(),
        "-h",
        "127.0.0.1",
        "-c",
        "fsync=off",
    ]);
    start(&mut command)
}

fn run(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Debian keeps the programs of the server out of the way.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("install postgresql");
    let programs = versions.map(|version| version.expect("it can be read").path());
    let found = programs.map(|version| version.join("bin").join(name));
    found.max().expect("install postgresql")
}

/// A connection that is not the pool's, and sees what the server sees.
pub(crate) struct Observer(Client);

impl Observer {
    /// How many are connected by this name.
    pub(crate) async fn count(&self, name: &str) -> i64 {
        let count = "select count(*) from pg_stat_activity where application_name = $1";
        let row = self.0.query_one(count, &[&name]).await;
        row.expect("the server answers").get(0)
    }

    /// How many of this name are busy with a query.
    pub(crate) async fn busy(&self, name: &str) -> i64 {
        let count = "select count(*) from pg_stat_activity \
            where application_name = $1 and state = 'active'";
        let row = self.0.query_one(count, &[&name]).await;
        row.expect("the server answers").get(0)
    }

    /// Cut off all of this name.
    pub(crate) async fn terminate(&self, name: &str) {
        let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
            where application_name = $1";
        self.0
            .query(cut, &[&name])
            .await
            .expect("the server answers");
    }
}
