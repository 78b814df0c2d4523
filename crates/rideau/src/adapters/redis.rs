//! Lends connections to Redis, made by the redis crate.

use std::fmt;
use std::ops::{Deref, DerefMut};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisError, RedisResult,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::task::Task;
use crate::Retired;
use crate::pool::{About, Manager};

/// Starts, checks and stops connections to Redis.
///
/// ```no_run
/// let redis = rideau::adapters::Redis::open("redis://127.0.0.1/")?;
/// # Ok::<(), redis::RedisError>(())
/// ```
///
/// A connection over TCP or a Unix socket is known to be broken, and lost, as
/// soon as it is closed, and a holder's work is ended by closing it. Of one over
/// TLS only a check finds it out, and nothing ends a holder's work: the redis
/// crate keeps the task that serves it to itself.
///
/// What a holder changes in its session stays for the next one: a WATCH without
/// an EXEC, a SELECT, a SUBSCRIBE. Redis' own RESET would forget the user too.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Where to connect, and as which user.
    pub client: Client,
    /// How the connections behave. Of this, how to look up hosts and how long a
    /// start may take hold only over TLS, as does the linger time of `client`:
    /// otherwise the pool limits how long a start takes.
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
        redis::cmd("PING").query_async(&mut **member).await
    }

    fn is_broken(&self, member: &mut RedisConnection) -> bool {
        member.task.as_ref().is_some_and(Task::has_ended)
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
/// Commands are methods, as on the connection itself; where the redis crate
/// wants a connection to be passed, pass `&mut **held`.
pub struct RedisConnection {
    connection: MultiplexedConnection,
    // None where the redis crate spawned it, which it does not tell of.
    task: Option<Task>,
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

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection")
            .field("closed", &self.task.as_ref().map(Task::has_ended))
            .finish_non_exhaustive()
    }
}
