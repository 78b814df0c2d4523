//! Lends connections to Redis, made by the redis crate.

use std::fmt;
use std::ops::{Deref, DerefMut};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::task::Task;
use crate::pool::{About, Manager, Retired};

/// Starts, checks and stops connections to Redis.
///
/// ```no_run
/// let redis = rideau::adapters::Redis::open("redis://127.0.0.1/")?;
/// # Ok::<(), redis::RedisError>(())
/// ```
///
/// A connection over TCP or a Unix socket is known to be broken, and lost, as
/// soon as it is closed, and a holder's work is ended by closing it. Of one over
/// TLS it is known only after a command has failed: the redis crate keeps those
/// to itself.
///
/// What a holder changes in its session stays for the next one: a WATCH without
/// an EXEC, a SELECT, a SUBSCRIBE. Redis' own RESET would forget the user too.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Where to connect, and as whom.
    pub client: Client,
    /// How the connections behave. The pool limits how long it takes to start
    /// one, and the linger time of `client` is for TLS only.
    pub config: AsyncConnectionConfig,
}

impl Redis {
    /// Connections as `client` makes them.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            config: AsyncConnectionConfig::default(),
        }
    }

    /// Connections to an address such as `redis://127.0.0.1/`.
    pub fn open(address: impl IntoConnectionInfo) -> RedisResult<Self> {
        Client::open(address).map(Self::new)
    }

    /// A connection over `stream`, served by a task of our own.
    async fn start_on<S>(&self, stream: S) -> RedisResult<RedisConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = self.client.get_connection_info().redis_settings();
        let config = self.config.clone();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(settings, stream, config).await?;
        Ok(RedisConnection {
            connection,
            task: Some(Task::spawn(driver)),
            failed: false,
        })
    }

    /// A connection served by a task that only the redis crate knows.
    async fn start_unseen(&self) -> RedisResult<RedisConnection> {
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        Ok(RedisConnection {
            connection,
            task: None,
            failed: false,
        })
    }
}

impl Manager for Redis {
    type Member = RedisConnection;
    type Error = RedisError;

    async fn start(&self) -> RedisResult<RedisConnection> {
        let settings = self.client.get_connection_info();
        match settings.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                apply(settings.tcp_settings(), &stream)?;
                self.start_on(stream).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await?;
                self.start_on(stream).await
            }
            _ => self.start_unseen().await,
        }
    }

    async fn check(&self, member: &mut RedisConnection, _about: &About) -> RedisResult<()> {
        redis::cmd("PING").query_async(member).await
    }

    fn is_broken(&self, member: &mut RedisConnection) -> bool {
        member.failed || member.task.as_ref().is_some_and(Task::has_ended)
    }

    /// Closes the connection, also for clones of it that a holder has kept.
    async fn stop(&self, member: RedisConnection, _why: Retired) {
        let RedisConnection { task, .. } = member;
        if let Some(task) = task {
            task.end();
            task.ended().await;
        }
    }

    fn lost(&self, member: &RedisConnection) -> impl Future<Output = ()> + Send + 'static {
        let ended = member.task.as_ref().map(Task::ended);
        async {
            match ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        }
    }

    fn abort(&self, member: &RedisConnection) -> Option<Box<dyn FnOnce() + Send>> {
        let task = member.task.clone()?;
        Some(Box::new(move || task.end()))
    }
}

fn apply(settings: &TcpSettings, stream: &TcpStream) -> RedisResult<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// A [`MultiplexedConnection`] and the task that serves it.
///
/// Commands are sent on it as on the connection itself.
pub struct RedisConnection {
    connection: MultiplexedConnection,
    // None where the redis crate spawned it, which it does not tell of.
    task: Option<Task>,
    failed: bool,
}

impl Deref for RedisConnection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

impl DerefMut for RedisConnection {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}

/// Passes everything on, and remembers when the connection has failed.
impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async {
            let answer = self.connection.req_packed_command(cmd).await;
            answer.inspect_err(|error| self.failed |= error.is_unrecoverable_error())
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let answer = self.connection.req_packed_commands(pipeline, offset, count);
            let answer = answer.await;
            answer.inspect_err(|error| self.failed |= error.is_unrecoverable_error())
        })
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection")
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
