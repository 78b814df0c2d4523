//! A client: calls and streams over the first endpoint that works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::codec::CallCodec;
use super::error::{EtcdDoubt, EtcdError, EtcdRefusal};
use super::messages::{AuthenticateRequest, CompactionRequest, EtcdCall, StatusRequest};
use super::options::EtcdOptions;
use super::targets::{EtcdRoute, Targets, Token};

/// How long a reply may be. A range of very many keys is read in several parts.
const REPLY_LEN_MAX: usize = 256 * 1024 * 1024;

/// A client of a cluster of etcd. Its clones share the connections.
///
/// A request is sent once. Only if it was certainly not sent does the same call go on with
/// the next endpoint, so a request is never applied twice. After any other failure the
/// next call does. Limit a call by [`with_timeout`](Self::with_timeout): one that is dropped
/// has an unknown outcome, too, and the next one asks the same endpoint again.
///
/// The connections are tasks of the runtime in which the client was made: it must have
/// its timer and its I/O, and must be running while a call waits. A thread that blocks on
/// a current-thread runtime of its own for each call does that.
#[derive(Clone)]
pub struct EtcdClient {
    targets: Arc<Targets>,
    connect_timeout: Duration,
    timeout: Duration,
}

/// What a member says of itself and of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStatus {
    /// The member's version.
    pub version: String,
    /// The cluster's id. A cluster that was restored from a backup has another one.
    pub cluster: u64,
    /// The member's id.
    pub member: u64,
    /// The id of the leader that the member knows.
    pub leader: Option<u64>,
    /// The newest revision that the member has.
    pub revision: i64,
    /// Bytes of the member's file. The quota counts them.
    pub bytes: u64,
    /// Bytes of it that are in use. The rest comes back by defragmenting.
    pub used_bytes: u64,
    /// Alarms and what else is wrong, in etcd's words.
    pub errors: Vec<String>,
}

/// A stream of requests and replies to one endpoint.
pub(super) struct CallStream<C: EtcdCall> {
    route: EtcdRoute,
    requests: mpsc::Sender<C>,
    replies: Streaming<C::Reply>,
}

impl EtcdClient {
    /// Connects to the first endpoint that can be reached, logs in and checks its version.
    ///
    /// # Errors
    ///
    /// If none can be reached, or the first that can is refused.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(options: EtcdOptions) -> Result<Self, EtcdError> {
        let client = Self {
            targets: Arc::new(Targets::new(&options)?),
            connect_timeout: options.connect_timeout,
            timeout: options.timeout,
        };
        client.route(client.deadline()).await?;
        Ok(client)
    }

    /// The same client with another limit for its calls.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut client = self.clone();
        client.timeout = timeout;
        client
    }

    /// Asks the member in use how it is.
    ///
    /// # Errors
    ///
    /// If no member answers.
    pub async fn status(&self) -> Result<EtcdStatus, EtcdError> {
        let status = self.call(StatusRequest {}).await?;
        let header = status.header.unwrap_or_default();
        Ok(EtcdStatus {
            version: status.version,
            cluster: header.cluster_id,
            member: header.member_id,
            leader: (status.leader != 0).then_some(status.leader),
            revision: header.revision,
            bytes: u64::try_from(status.db_size).unwrap_or(0),
            used_bytes: u64::try_from(status.db_size_in_use).unwrap_or(0),
            errors: status.errors,
        })
    }

    /// Forgets what was before a revision, but for the newest of each key. The revision
    /// itself can still be read.
    ///
    /// # Errors
    ///
    /// [`Compacted`](EtcdRefusal::Compacted) if it was done already.
    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        self.call(CompactionRequest { revision }).await?;
        Ok(())
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// One request and its reply.
    pub(super) async fn call<C: EtcdCall>(&self, request: C) -> Result<C::Reply, EtcdError> {
        let deadline = self.deadline();
        let (mut tries, mut logins) = (self.targets.len(), 1);
        loop {
            let route = self.route(deadline).await?;
            let error = match exchange(&route, request.clone(), deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            self.targets.leave(&route, &error);
            if error.refusal() == Some(EtcdRefusal::Unreachable) && tries > 1 {
                tries -= 1;
            } else if error.is_stale_token() && logins > 0 {
                logins -= 1;
            } else {
                return Err(error);
            }
        }
    }

    /// Opens a stream with its first request, whose reply is the first of the stream.
    ///
    /// All streams are such that a request does no harm twice, so every endpoint is tried.
    pub(super) async fn open<C: EtcdCall>(
        &self,
        first: C,
        deadline: Instant,
    ) -> Result<CallStream<C>, EtcdError> {
        let mut tries = self.targets.len();
        loop {
            let route = self.route(deadline).await?;
            let error = match stream(&route, first.clone(), deadline).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            self.targets.leave(&route, &error);
            tries -= 1;
            if tries == 0 || Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// Notes why a stream is given up.
    pub(super) fn leave<C: EtcdCall>(&self, stream: &CallStream<C>, error: &EtcdError) {
        self.targets.leave(&stream.route, error);
    }

    /// The failure of a call whose reply came over the endpoint in use.
    pub(super) fn unknown(
        &self,
        reason: EtcdDoubt,
        call: &'static str,
        said: impl Into<String>,
    ) -> EtcdError {
        EtcdError::unknown(reason, call, &self.targets.route().name, said)
    }

    /// How many endpoints there are.
    pub(super) fn endpoints(&self) -> usize {
        self.targets.len()
    }

    /// The way to the first endpoint that is connected, fit and of this cluster.
    async fn route(&self, deadline: Instant) -> Result<EtcdRoute, EtcdError> {
        let mut tries = self.targets.len();
        loop {
            let mut route = self.targets.route();
            let soon = deadline.min(Instant::now() + self.connect_timeout);
            let error = match self.prepare(&mut route, soon).await {
                Ok(()) => return Ok(route),
                Err(error) => error,
            };
            self.targets.leave(&route, &error);
            let error = error.before_sending();
            tries -= 1;
            let is_reachable = error.refusal() != Some(EtcdRefusal::Unreachable);
            if tries == 0 || is_reachable || Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    async fn prepare(&self, route: &mut EtcdRoute, deadline: Instant) -> Result<(), EtcdError> {
        if !route.is_checked {
            let status = exchange(route, StatusRequest {}, deadline).await?;
            self.targets.admit(route, &status)?;
        }
        let mut token = self.targets.token();
        if let (Token::Needed, Some(login)) = (&token, self.targets.login()) {
            let request = AuthenticateRequest {
                name: login.user.clone(),
                password: login.password.clone(),
            };
            token = log_in(route, request, deadline).await?;
            self.targets.set_token(token.clone());
        }
        if let Token::Held(token) = token {
            route.token = Some(token);
        }
        Ok(())
    }
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdClient");
        shown.field("endpoint", &self.targets.route().name);
        shown.finish_non_exhaustive()
    }
}

impl<C: EtcdCall> fmt::Debug for CallStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CallStream");
        shown.field("endpoint", &self.route.name);
        shown.finish_non_exhaustive()
    }
}

impl<C: EtcdCall> CallStream<C> {
    /// Sends one more request. Says no if the stream has ended, or if it does not take any
    /// more now.
    pub(super) fn send(&self, request: C) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// The next reply. A caller that stops waiting can ask again.
    pub(super) async fn next(&mut self) -> Result<C::Reply, EtcdError> {
        match self.replies.message().await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(self.unknown(EtcdDoubt::Broken, "the stream was closed")),
            Err(status) => Err(EtcdError::of(&status, C::name(), &self.route.name)),
        }
    }

    /// The next reply, if it comes in time.
    pub(super) async fn next_until(&mut self, deadline: Instant) -> Result<C::Reply, EtcdError> {
        match timeout_at(deadline, self.next()).await {
            Ok(reply) => reply,
            Err(_) => Err(self.unknown(EtcdDoubt::Silent, SILENT)),
        }
    }

    pub(super) fn unknown(&self, reason: EtcdDoubt, said: impl Into<String>) -> EtcdError {
        EtcdError::unknown(reason, C::name(), &self.route.name, said)
    }

    pub(super) fn refused(&self, reason: EtcdRefusal, said: impl Into<String>) -> EtcdError {
        EtcdError::refused(reason, C::name(), &self.route.name, said)
    }
}

const SILENT: &str = "no reply in time";

async fn log_in(
    route: &EtcdRoute,
    request: AuthenticateRequest,
    deadline: Instant,
) -> Result<Token, EtcdError> {
    let call = AuthenticateRequest::name();
    match exchange(route, request, deadline).await {
        Ok(reply) => match reply.token.parse() {
            Ok(token) => Ok(Token::Held(token)),
            Err(_) => {
                let said = "the token is not text";
                Err(EtcdError::refused(
                    EtcdRefusal::Auth,
                    call,
                    &route.name,
                    said,
                ))
            }
        },
        Err(EtcdError::Refused { said, .. }) if said.contains("authentication is not enabled") => {
            tracing::warn!(
                endpoint = route.name,
                "etcd asks for no user, so the login is not used"
            );
            Ok(Token::Unneeded)
        }
        Err(error) => Err(error),
    }
}

/// Sends a request once, and waits for its reply.
async fn exchange<C: EtcdCall>(
    route: &EtcdRoute,
    request: C,
    deadline: Instant,
) -> Result<C::Reply, EtcdError> {
    let sent = async {
        let mut grpc = grpc(route).await?;
        let request = with_token(request, route);
        grpc.unary(request, path::<C>(), CallCodec::<C>::new())
            .await
    };
    within(deadline, sent, C::name(), route).await
}

/// Opens a stream, and waits until its first reply begins.
async fn stream<C: EtcdCall>(
    route: &EtcdRoute,
    first: C,
    deadline: Instant,
) -> Result<CallStream<C>, EtcdError> {
    // One request is outstanding at most, and one may be asked for its progress.
    let (requests, receiver) = mpsc::channel(2);
    let opened = async {
        let mut grpc = grpc(route).await?;
        // etcd answers nothing before the first request.
        let _ = requests.try_send(first);
        let mut request = with_token(ReceiverStream::new(receiver), route);
        // Without it a member that is cut off from the others serves a watch that shows
        // nothing, and says that it is alive.
        let has_leader = MetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", has_leader);
        grpc.streaming(request, path::<C>(), CallCodec::<C>::new())
            .await
    };
    let replies = within(deadline, opened, C::name(), route).await?;
    Ok(CallStream {
        route: route.clone(),
        requests,
        replies,
    })
}

async fn grpc(route: &EtcdRoute) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(route.channel.clone()).max_decoding_message_size(REPLY_LEN_MAX);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::from_error(Box::new(error)))?;
    Ok(grpc)
}

fn with_token<T>(request: T, route: &EtcdRoute) -> Request<T> {
    let mut request = Request::new(request);
    if let Some(token) = &route.token {
        request.metadata_mut().insert("token", token.clone());
    }
    request
}

const fn path<C: EtcdCall>() -> PathAndQuery {
    PathAndQuery::from_static(C::PATH)
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<Response<T>, Status>>,
    call: &'static str,
    route: &EtcdRoute,
) -> Result<T, EtcdError> {
    match timeout_at(deadline, work).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(EtcdError::of(&status, call, &route.name)),
        Err(_) => Err(EtcdError::unknown(
            EtcdDoubt::Silent,
            call,
            &route.name,
            SILENT,
        )),
    }
}
