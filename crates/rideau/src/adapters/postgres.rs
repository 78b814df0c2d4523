//! Lends connections to PostgreSQL, made by tokio-postgres.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::{CancelToken, Client, Config, Error, Socket};

use super::task::Task;
use crate::Retired;
use crate::pool::{About, Manager};

/// How long a server may take to hear that a query is to be cancelled.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// Ends an open transaction, be it a failed one, without the warning that a
/// ROLLBACK outside of a transaction leaves in the server's log: there always is
/// one by then, since a BEGIN goes ahead.
///
/// The rest is what DISCARD ALL does, but for DEALLOCATE ALL: tokio-postgres
/// keeps prepared statements of its own, to look up types, and would use them
/// after they are gone.
const CLEAN: &str = "ROLLBACK; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; \
    UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES";

/// Starts, checks and stops connections to PostgreSQL.
///
/// ```no_run
/// use rideau::adapters::{Postgres, Recycle};
///
/// let plain: Postgres = "host=/run/postgresql user=anna".parse()?;
/// let clean = Postgres { recycle: Recycle::Clean, ..plain };
/// # Ok::<(), tokio_postgres::Error>(())
/// ```
///
/// A connection whose task has ended is known to be broken, and lost. To end a
/// holder's work cuts the connection and asks the server to cancel the query
/// that runs on it.
#[derive(Clone, Debug)]
pub struct Postgres<T = NoTls> {
    /// Where to connect, and as which user.
    pub config: Config,
    /// How to encrypt what is sent.
    pub tls: T,
    /// What a check does to a connection.
    pub recycle: Recycle,
}

/// What a check does to a connection that a holder has used.
///
/// A [`Transaction`](tokio_postgres::Transaction) that is dropped rolls itself
/// back, under either. What a holder changed by statements of its own stays: a
/// BEGIN without its end, a SET, a LISTEN, a temporary table, an advisory lock.
/// The driver does not tell of it, so only a check can undo it, and a check only
/// happens to members that were idle for over the pool's `check_after`. With
/// [`Clean`](Self::Clean) and a `check_after` of zero, those are all, also one
/// that goes from its holder to a take that waits for it. Only
/// [`try_take`](crate::Pool::try_take) never checks.
///
/// Whether an error of a query is the connection's is the holder's to say, by
/// [`Held::fail`](crate::Held::fail): a server that shuts down first answers
/// and only then closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recycle {
    /// One round trip that changes nothing. For holders that leave nothing
    /// behind.
    #[default]
    Fast,
    /// One round trip that rolls back an open transaction and undoes what
    /// changed in the session, as DISCARD ALL would. Only statements that were
    /// prepared stay so.
    Clean,
}

impl Postgres {
    /// Connections that are not encrypted, with [`Recycle::Fast`].
    pub fn new(config: Config) -> Self {
        Self::with_tls(config, NoTls)
    }
}

impl<T> Postgres<T> {
    /// Connections encrypted by `tls` as far as `config` asks for it, with
    /// [`Recycle::Fast`].
    pub fn with_tls(config: Config, tls: T) -> Self {
        Self {
            config,
            tls,
            recycle: Recycle::default(),
        }
    }
}

/// From a connection string of either kind: `host=… user=…` or `postgresql://…`.
impl FromStr for Postgres {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().map(Self::new)
    }
}

impl<T> Manager for Postgres<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    type Member = PostgresClient;
    type Error = Error;

    async fn start(&self) -> Result<PostgresClient, Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        let task = Task::spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        Ok(PostgresClient {
            client,
            task,
            runtime: Handle::current(),
        })
    }

    async fn check(&self, member: &mut PostgresClient, about: &About) -> Result<(), Error> {
        let unused = about.uses == 0;
        match self.recycle {
            Recycle::Clean if !unused => {
                // Its answer is not waited for: within a transaction it is a
                // warning or an error, and the ROLLBACK is right after all three.
                drop(member.simple_query_raw("BEGIN").await?);
                member.batch_execute(CLEAN).await
            }
            Recycle::Clean | Recycle::Fast => member.batch_execute("").await,
        }
    }

    fn is_broken(&self, member: &mut PostgresClient) -> bool {
        member.is_closed()
    }

    /// Says goodbye to the server, and waits until the connection is closed.
    ///
    /// What still runs on it is orphaned, and cancelled if the pool gives up
    /// waiting.
    async fn stop(&self, member: PostgresClient, _why: Retired) {
        let mut given_up = GivenUp(self.abort(&member));
        let PostgresClient { client, task, .. } = member;
        drop(client);
        task.ended().await;
        given_up.0 = None;
    }

    fn lost(&self, member: &PostgresClient) -> impl Future<Output = ()> + Send + 'static {
        member.task.ended()
    }

    fn abort(&self, member: &PostgresClient) -> Option<Box<dyn FnOnce() + Send>> {
        let (task, runtime) = (member.task.clone(), member.runtime.clone());
        let cancelled = cancel(member.cancel_token(), self.tls.clone());
        Some(Box::new(move || {
            if !task.has_ended() {
                task.end();
                runtime.spawn(cancelled);
            }
        }))
    }
}

/// A server goes on with a query although no caller is there any more to take the
/// answer, so it has to be told.
async fn cancel<T>(token: CancelToken, tls: T)
where
    T: MakeTlsConnect<Socket>,
{
    match timeout(CANCEL_MAX, token.cancel_query(tls)).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::debug!(%error, "a query could not be cancelled"),
        Err(_) => tracing::debug!("a query could not be cancelled in time"),
    }
}

/// What to do when the task that waits for the end of a connection gives up.
struct GivenUp(Option<Box<dyn FnOnce() + Send>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(abort) = self.0.take() {
            abort();
        }
    }
}

/// A [`Client`] and the task that serves it.
///
/// The connection is closed when this is dropped and what was asked on it is
/// answered.
pub struct PostgresClient {
    client: Client,
    task: Task,
    // The caller that aborts it may be on a plain thread.
    runtime: Handle,
}

impl Deref for PostgresClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for PostgresClient {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl fmt::Debug for PostgresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClient")
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
