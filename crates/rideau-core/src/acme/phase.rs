//! What a host does that needs a certificate, and why it waits.

use super::{AcmeChallenge, CertificateLife};
use crate::time::Instant;

/// Why a host waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcmeWait {
    /// Its certificate is good for that long.
    Good,
    /// The authority said when to renew it.
    Suggested,
    /// It needs one, and others are ordered first.
    Turn,
    /// It does not find itself by its name; it looks again then.
    NotFound,
    /// The authority was not reached.
    Unreached,
    /// Its last orders failed.
    BackedOff,
    /// The authority said to come again then.
    ToldLater,
    /// Too many of its orders failed in an hour.
    FailuresMax,
    /// There were too many first orders in three hours.
    FirstOrdersMax,
    /// It got too many certificates in a week.
    IssuedMax,
}

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcmePhase {
    /// It waits until then.
    Waiting(Instant, AcmeWait),
    /// It looks whether it finds itself.
    Checking(AcmeChallenge),
    /// A certificate is ordered.
    Ordering(AcmeChallenge),
}

/// A host as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcmeHostState {
    /// The life of its certificate, if it has one.
    pub life: Option<CertificateLife>,
    /// Orders that failed since the last certificate.
    pub failures: u32,
    /// What it does.
    pub phase: AcmePhase,
}
