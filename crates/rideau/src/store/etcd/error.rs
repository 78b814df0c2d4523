//! What went wrong with a call, and above all whether etcd may have done it.

use std::error::Error;
use std::fmt;

use tonic::{Code, ConnectError, Status};

/// Why a call has no reply.
///
/// The two variants differ in what the caller may conclude. Whatever is not known to be a
/// refusal is [`Unknown`](Self::Unknown).
#[derive(Clone, Debug)]
pub enum EtcdError {
    /// etcd did not do it and never will: it said no, or it was not asked.
    Refused {
        /// Why not.
        reason: EtcdRefusal,
        /// Which call it was.
        call: &'static str,
        /// The endpoint that was asked last.
        endpoint: String,
        /// What etcd said, or the system.
        said: String,
    },
    /// etcd may have done it, may still do it, or may never do it.
    ///
    /// The caller finds out by a request that has the same effect if it is done twice.
    Unknown {
        /// Why it is not known.
        reason: EtcdDoubt,
        /// Which call it was.
        call: &'static str,
        /// The endpoint that was asked last.
        endpoint: String,
        /// What etcd said, or the system.
        said: String,
    },
}

/// Why etcd did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdRefusal {
    /// No endpoint could be reached in time, so no request was sent.
    Unreachable,
    /// The lease has expired or was revoked.
    LeaseNotFound,
    /// The revision is older than what etcd keeps.
    Compacted,
    /// There is no such revision yet.
    Future,
    /// The user, its password, its token or its rights.
    Auth,
    /// More bytes than etcd takes at once.
    TooLarge,
    /// More compares or operations than etcd takes at once.
    TooMany,
    /// The transaction changes a key twice.
    KeyTwice,
    /// More requests wait than etcd takes.
    Busy,
    /// A version of etcd that is known to damage what it keeps, or lacks what is needed.
    Version,
    /// The endpoint belongs to another cluster than those before it.
    OtherCluster,
    /// The options of the client make no sense.
    Options,
    /// Something else that etcd says of a request that it does not do.
    Other,
}

/// Why it is not known whether etcd did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdDoubt {
    /// No reply came in time.
    Silent,
    /// The connection broke before the reply.
    Broken,
    /// etcd has no leader, lost it meanwhile, or is about to stop.
    Unavailable,
    /// etcd has no room left. **It does what makes it full, and refuses it all the same.**
    NoSpace,
    /// A reply came that makes no sense.
    Unclear,
}

impl EtcdError {
    /// Whether etcd may have done it.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// Why etcd did not do it, if that is certain.
    pub const fn refusal(&self) -> Option<EtcdRefusal> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Unknown { .. } => None,
        }
    }

    /// Why it is not known whether etcd did it, if it is not.
    pub const fn doubt(&self) -> Option<EtcdDoubt> {
        match self {
            Self::Refused { .. } => None,
            Self::Unknown { reason, .. } => Some(*reason),
        }
    }

    pub(super) fn refused(
        reason: EtcdRefusal,
        call: &'static str,
        endpoint: &str,
        said: impl Into<String>,
    ) -> Self {
        Self::Refused {
            reason,
            call,
            endpoint: endpoint.to_owned(),
            said: said.into(),
        }
    }

    pub(super) fn unknown(
        reason: EtcdDoubt,
        call: &'static str,
        endpoint: &str,
        said: impl Into<String>,
    ) -> Self {
        Self::Unknown {
            reason,
            call,
            endpoint: endpoint.to_owned(),
            said: said.into(),
        }
    }

    /// Sorts what a call ended with.
    pub(super) fn of(status: &Status, call: &'static str, endpoint: &str) -> Self {
        let said = text(status);
        if is_unsent(status) {
            return Self::refused(EtcdRefusal::Unreachable, call, endpoint, said);
        }
        match sort(status.code(), status.message()) {
            Ok(reason) => Self::refused(reason, call, endpoint, said),
            Err(reason) => Self::unknown(reason, call, endpoint, said),
        }
    }

    /// The same failure, of a request that only prepared the one that counts: that one
    /// was not sent.
    pub(super) fn before_sending(self) -> Self {
        match self {
            Self::Refused { .. } => self,
            Self::Unknown {
                call,
                endpoint,
                said,
                ..
            } => Self::Refused {
                reason: EtcdRefusal::Unreachable,
                call,
                endpoint,
                said,
            },
        }
    }

    /// Whether a new login may help: etcd forgets tokens when it restarts, and when users
    /// or roles change.
    pub(super) fn is_stale_token(&self) -> bool {
        matches!(self, Self::Refused { reason: EtcdRefusal::Auth, said, .. }
            if said.contains("invalid auth token") || said.contains("auth store is old"))
    }
}

/// Why etcd says no for certain, or else why one cannot know.
///
/// Only what etcd itself decides before it writes is a refusal. gRPC makes statuses of its
/// own, in this process and in others on the way, with the same codes.
fn sort(code: Code, message: &str) -> Result<EtcdRefusal, EtcdDoubt> {
    if message.starts_with("grpc: received message larger than max") {
        return Ok(EtcdRefusal::TooLarge);
    }
    let Some(said) = message.strip_prefix("etcdserver: ") else {
        return Err(match code {
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded => {
                EtcdDoubt::Broken
            }
            _ => EtcdDoubt::Unclear,
        });
    };
    match (code, said) {
        // The request that reaches the quota is applied and then answered with this.
        (_, "mvcc: database space exceeded") => Err(EtcdDoubt::NoSpace),
        (Code::NotFound, "requested lease not found") => Ok(EtcdRefusal::LeaseNotFound),
        (Code::OutOfRange, "mvcc: required revision has been compacted") => {
            Ok(EtcdRefusal::Compacted)
        }
        (Code::OutOfRange, "mvcc: required revision is a future revision") => {
            Ok(EtcdRefusal::Future)
        }
        (Code::InvalidArgument, "request is too large") => Ok(EtcdRefusal::TooLarge),
        (Code::InvalidArgument, "too many operations in txn request") => Ok(EtcdRefusal::TooMany),
        (Code::InvalidArgument, "duplicate key given in txn request") => Ok(EtcdRefusal::KeyTwice),
        (Code::ResourceExhausted, "too many requests") => Ok(EtcdRefusal::Busy),
        (Code::Unauthenticated | Code::PermissionDenied, _) => Ok(EtcdRefusal::Auth),
        (Code::InvalidArgument | Code::FailedPrecondition, said) if is_about_users(said) => {
            Ok(EtcdRefusal::Auth)
        }
        (
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange,
            _,
        ) => Ok(EtcdRefusal::Other),
        (Code::Unavailable, _) => Err(EtcdDoubt::Unavailable),
        _ => Err(EtcdDoubt::Unclear),
    }
}

fn is_about_users(said: &str) -> bool {
    ["user ", "role ", "root ", "auth", "revision of auth store"]
        .iter()
        .any(|start| said.starts_with(start))
}

/// Whether the connection could not be made, so that the request stayed here.
fn is_unsent(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<ConnectError>())
}

/// What the status says, and what is behind it.
fn text(status: &Status) -> String {
    let mut text = status.message().to_owned();
    for cause in causes(status).map(ToString::to_string) {
        if cause != "transport error" && !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause| Error::source(*cause))
}

impl EtcdRefusal {
    const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => "nothing was sent; see that etcd runs there and can be reached",
            Self::LeaseNotFound => "nothing was done; the lease has ended, so ask for a new one",
            Self::Compacted => "read everything again at the newest revision",
            Self::Auth => "nothing was done; see the user, its password and its roles in etcd",
            Self::Future => "nothing was done; see whether etcd was restored from a backup",
            Self::TooLarge | Self::TooMany => "nothing was done; send less at once",
            Self::KeyTwice => "nothing was done; name each key once",
            Self::Busy => "nothing was done; try again later, or give etcd a faster disk",
            Self::Version => "nothing was done; upgrade etcd to 3.4.22, 3.5.6, 3.6 or later",
            Self::OtherCluster => {
                "nothing was done; name members of one cluster only, and see whether etcd was \
                 restored from a backup"
            }
            Self::Options => "correct the options of the client",
            Self::Other => "nothing was done; see what etcd's log says",
        }
    }
}

impl EtcdDoubt {
    const fn advice(self) -> &'static str {
        match self {
            Self::Silent | Self::Broken => {
                "it may have been done; ask again, and see that etcd runs and can be reached"
            }
            Self::Unavailable => {
                "it may have been done; ask again, and see that most members of etcd run"
            }
            Self::NoSpace => {
                "it may have been done; etcd is full, so compact it, then defragment each \
                 member, then disarm the alarm"
            }
            Self::Unclear => "it may have been done; see that this is etcd and what its log says",
        }
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (call, endpoint, said, advice) = match self {
            Self::Refused {
                reason,
                call,
                endpoint,
                said,
            } => (call, endpoint, said, reason.advice()),
            Self::Unknown {
                reason,
                call,
                endpoint,
                said,
            } => (call, endpoint, said, reason.advice()),
        };
        write!(f, "{call} of etcd at {endpoint}: {said}; {advice}")
    }
}

impl Error for EtcdError {}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::{EtcdDoubt, EtcdError, EtcdRefusal, sort};

    #[test]
    fn only_what_etcd_decides_before_it_writes_is_a_refusal() {
        for (code, message, refusal) in [
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                EtcdRefusal::LeaseNotFound,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                EtcdRefusal::Compacted,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                EtcdRefusal::Future,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                EtcdRefusal::TooMany,
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3 vs. 2)",
                EtcdRefusal::TooLarge,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                EtcdRefusal::Busy,
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                EtcdRefusal::Auth,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                EtcdRefusal::Auth,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
                EtcdRefusal::KeyTwice,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: key is not provided",
                EtcdRefusal::Other,
            ),
        ] {
            assert_eq!(sort(code, message), Ok(refusal), "{message}");
        }
    }

    #[test]
    fn everything_else_may_have_been_done() {
        for (code, message, doubt) in [
            // With this etcd answers a request that it has applied.
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                EtcdDoubt::NoSpace,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                EtcdDoubt::Unavailable,
            ),
            (
                Code::Unavailable,
                "etcdserver: leader changed",
                EtcdDoubt::Unavailable,
            ),
            (
                Code::DataLoss,
                "etcdserver: corrupt cluster",
                EtcdDoubt::Unclear,
            ),
            (
                Code::Unknown,
                "h2 protocol error: http2 error",
                EtcdDoubt::Broken,
            ),
            (Code::Cancelled, "operation was canceled", EtcdDoubt::Broken),
            // The reply was too long for this process: etcd had done it.
            (
                Code::OutOfRange,
                "Error, decoded message length too large",
                EtcdDoubt::Unclear,
            ),
            // A proxy may say this after it has passed the request on.
            (Code::PermissionDenied, "forbidden", EtcdDoubt::Unclear),
            (Code::Internal, "", EtcdDoubt::Unclear),
        ] {
            assert_eq!(sort(code, message), Err(doubt), "{message}");
        }
    }

    #[test]
    fn an_error_names_call_and_endpoint_and_says_what_to_do() {
        let status = Status::new(Code::NotFound, "etcdserver: requested lease not found");
        let error = EtcdError::of(&status, "Txn", "http://a:2379");
        assert_eq!(
            error.to_string(),
            "Txn of etcd at http://a:2379: etcdserver: requested lease not found; \
             nothing was done; the lease has ended, so ask for a new one"
        );
    }
}
