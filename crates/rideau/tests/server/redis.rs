//! A Redis server of a test's own.

mod process;

use process::{Folder, free_port, has_ended, start};
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use rideau_testing::{Running, command};
use std::path::Path;

pub(crate) use process::{PATIENCE, until};

/// Where those work that are counted.
const DATABASE: u32 = 1;

pub(crate) struct Server {
    process: Running,
    port: u16,
    folder: Folder,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let folder = Folder::new("redis");
        let port = free_port();
        let server = Self {
            process: serve(folder.path(), port),
            port,
            folder,
        };
        server.wait_until_ready().await
    }

    /// Where to connect over TCP.
    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// Where to connect over a Unix socket.
    pub(crate) fn unix_address(&self) -> String {
        format!(
            "redis+unix://{}/socket?db={DATABASE}",
            self.folder.path().display()
        )
    }

    /// Kill it, and start it again on the same port.
    pub(crate) async fn restart(mut self) -> Self {
        self.process.end();
        self.process = serve(self.folder.path(), self.port);
        self.wait_until_ready().await
    }

    /// A connection that looks on.
    pub(crate) async fn observer(&self) -> Observer {
        let connection = self.client().get_multiplexed_async_connection().await;
        Observer(connection.expect("the server is ready"))
    }

    /// For connections that are not counted.
    fn client(&self) -> Client {
        Client::open(("127.0.0.1", self.port)).expect("it is an address")
    }

    async fn wait_until_ready(mut self) -> Self {
        let client = self.client();
        until("the server is ready", async || {
            assert!(
                !has_ended(&mut self.process),
                "the server has ended by itself"
            );
            client.get_multiplexed_async_connection().await.is_ok()
        })
        .await;
        self
    }
}

fn serve(folder: &Path, port: u16) -> Running {
    let mut command = command("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(folder);
    command.arg("--unixsocket").arg(folder.join("socket"));
    start(&mut command)
}

/// A connection that is not the pool's, and sees what the server sees.
pub(crate) struct Observer(MultiplexedConnection);

impl Observer {
    /// How many are connected, but for those that look on.
    pub(crate) async fn count(&mut self) -> usize {
        let clients = self.clients().await;
        let database = format!(" db={DATABASE} ");
        let counted = clients.lines().filter(|line| line.contains(&database));
        counted.count()
    }

    /// How many wait for something to come.
    pub(crate) async fn blocked(&mut self) -> usize {
        let clients = self.clients().await;
        let blocked = clients.lines().filter(|line| line.contains("flags=b"));
        blocked.count()
    }

    async fn clients(&mut self) -> String {
        let mut list = cmd("CLIENT");
        list.arg("LIST");
        list.query_async(&mut self.0).await.expect("it answers")
    }

    /// Cut off all but this one.
    pub(crate) async fn terminate(&mut self) {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg(&["TYPE", "normal", "SKIPME", "yes"]);
        let killed: usize = kill.query_async(&mut self.0).await.expect("it answers");
        assert!(killed > 0, "no client was there");
    }
}
