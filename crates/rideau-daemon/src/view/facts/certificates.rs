//! Facts of a certificate of the front, or of a host that one is ordered for.

use std::time::{Duration, SystemTime};

use rideau_config::challenge_word;
use rideau_core::acme::{AcmePhase, AcmeWait};

use super::facts;
use crate::state::certificates::{CertificateBook, CertificateRow, OrderedHost};

/// A certificate of the front at one moment, or a host that has none yet.
pub(crate) struct CertificateNow {
    name: String,
    hosts: Vec<String>,
    is_ordered: bool,
    life: Option<(SystemTime, SystemTime)>,
    /// What is done to have it, or to renew it.
    order: Option<OrderedHost>,
    now: SystemTime,
}

impl CertificateNow {
    /// Those that the config names, and those of hosts that certificates are ordered for.
    pub(crate) fn all(book: &CertificateBook) -> Vec<Self> {
        let rows = book.rows();
        let now = SystemTime::now();
        let of = |row: CertificateRow, order: Option<OrderedHost>| Self {
            name: row.name,
            hosts: row.hosts,
            is_ordered: row.is_ordered,
            life: Some(row.life),
            order,
            now,
        };
        let (ordered, named): (Vec<_>, Vec<_>) =
            rows.shown.into_iter().partition(|row| row.is_ordered);
        let mut all: Vec<_> = named.into_iter().map(|row| of(row, None)).collect();
        let mut ordered = ordered;
        for order in rows.ordered {
            let at = ordered.iter().position(|row| row.name == order.name);
            all.push(match at {
                Some(at) => of(ordered.remove(at), Some(order)),
                None => Self {
                    name: order.name.clone(),
                    hosts: vec![order.name.clone()],
                    is_ordered: true,
                    life: None,
                    order: Some(order),
                    now,
                },
            });
        }
        all.extend(ordered.into_iter().map(|row| of(row, None)));
        all
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub(crate) const fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    pub(crate) const fn order(&self) -> Option<&OrderedHost> {
        self.order.as_ref()
    }

    /// For how long it is valid; zero if its time is up.
    pub(crate) fn expires(&self) -> Option<Duration> {
        let (_, until) = self.life?;
        Some(until.duration_since(self.now).unwrap_or_default())
    }

    /// How long until something is done, and why it is not done before.
    pub(crate) fn waits(&self) -> Option<(Duration, AcmeWait)> {
        let AcmePhase::Waiting(at, why) = self.order.as_ref()?.state.phase else {
            return None;
        };
        let now = super::since_1970(self.now);
        let left = Duration::from_nanos(at.as_nanos()).saturating_sub(now);
        Some(match left {
            Duration::ZERO => (left, AcmeWait::Turn),
            _ => (left, why),
        })
    }

    /// In a word.
    pub(crate) fn state(&self) -> &'static str {
        let is_over = self.expires() == Some(Duration::ZERO);
        match self.order.as_ref().map(|order| order.state.phase) {
            Some(AcmePhase::Checking(_)) => "checking",
            Some(AcmePhase::Ordering(_)) => "ordering",
            _ if is_over => "expired",
            _ if self.life.is_none() => "missing",
            _ if self.fault().is_some() => "failing",
            _ => "good",
        }
    }

    /// What went wrong last.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.order.as_ref()?.fault.as_deref()
    }

    /// By which challenge it is proved just now that the host is ours.
    pub(crate) fn challenge(&self) -> Option<&'static str> {
        match self.order.as_ref()?.state.phase {
            AcmePhase::Checking(challenge) | AcmePhase::Ordering(challenge) => {
                Some(challenge_word(challenge))
            }
            AcmePhase::Waiting(..) => None,
        }
    }
}

facts! { CertificateNow: "certificate" by "name", joined {};
    name: Text, [SHOW], |it| &*it.name, "Its name in the config, or the host it is ordered for.";
    source: Text, [SHOW], |it| if it.is_ordered { "acme" } else { "file" }, "Where it is from.";
    state: Text, [SHOW], |it| it.state(),
        "`good`, `missing`, `checking`, `ordering`, `failing` or `expired`.";
    expires_s: Span|null, [SHOW, GAUGE], |it| it.expires(),
        "How long it is still valid; zero if its time is up.";
    hosts: Names, [SHOW], |it| it.hosts.clone(), "The hosts it is for.";
    next_s: Span|null, [SHOW], |it| it.waits().map(|(left, _)| left),
        "How long until it is ordered or renewed.";
    failures: Count, [SHOW], |it| it.order.as_ref().map_or(0, |order| order.state.failures),
        "Orders that failed since the last certificate.";
    fault: Text|null, [SHOW], |it| it.fault().map(str::to_owned), "What went wrong last.";
}
