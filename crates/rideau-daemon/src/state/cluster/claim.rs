//! What nodes tell each other of units of keys, as bytes: what is wanted or held, and what
//! became of an ask.

use std::time::Duration;

use rideau::{AskOptions, Capacity, Full, Reason, Refusal};

/// Units of a key that a client wants or holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LockClaim {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// How many units.
    pub(crate) units: u32,
    /// How many of the key there may be, as the client's node sees it.
    pub(crate) capacity: Capacity,
    /// How long the ask waits.
    pub(crate) wait: ClaimWait,
}

/// How long an ask waits for units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimWait {
    /// Not at all.
    No,
    /// So long, which the client has named.
    Named(Duration),
    /// At most so long, which is usual.
    Usual(Duration),
}

/// The outcome of an ask, besides the fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimOutcome {
    /// It has units.
    Granted {
        /// How many were held then, these included.
        ordinal: u64,
        /// How long it waited.
        waited: Duration,
    },
    /// All are held, and it does not wait.
    Full(Full),
    /// The limit of keys is reached.
    Keys,
    /// The queue refused it.
    Refused(Refusal),
}

impl ClaimWait {
    /// How long that is.
    pub(crate) const fn limit(self) -> Duration {
        match self {
            Self::No => Duration::ZERO,
            Self::Named(limit) | Self::Usual(limit) => limit,
        }
    }

    /// The terms on which an ask waits that has waited so long before; none if it does not.
    pub(crate) fn terms(self, age: Duration) -> Option<AskOptions> {
        let left = self.limit().saturating_sub(age);
        let wait_max = match self {
            Self::No => return None,
            Self::Named(_) => Some(left),
            Self::Usual(_) => None,
        };
        Some(AskOptions {
            wait_max,
            wait_default: Some(left),
            ..AskOptions::default()
        })
    }
}

impl LockClaim {
    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let (kind, wait) = match self.wait {
            ClaimWait::No => (0, 0),
            ClaimWait::Named(wait) => (1, nanos(wait)),
            ClaimWait::Usual(wait) => (2, nanos(wait)),
        };
        let mut out = vec![b'l', kind];
        out.extend_from_slice(&wait.to_be_bytes());
        out.extend_from_slice(&self.units.to_be_bytes());
        out.extend_from_slice(&self.capacity.units().to_be_bytes());
        out.extend_from_slice(&self.key);
        out
    }

    /// Parses the bytes; none if they are not about a lock.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (&[b'l', kind], bytes) = bytes.split_first_chunk()? else {
            return None;
        };
        let (wait, bytes) = bytes.split_first_chunk()?;
        let (units, bytes) = bytes.split_first_chunk()?;
        let (capacity, key) = bytes.split_first_chunk()?;
        let wait = Duration::from_nanos(u64::from_be_bytes(*wait));
        Some(Self {
            key: key.to_vec(),
            units: u32::from_be_bytes(*units),
            capacity: Capacity::new(u64::from_be_bytes(*capacity), 1),
            wait: match kind {
                0 => ClaimWait::No,
                1 => ClaimWait::Named(wait),
                2 => ClaimWait::Usual(wait),
                _ => return None,
            },
        })
    }
}

impl ClaimOutcome {
    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let (kind, numbers) = match *self {
            Self::Granted { ordinal, waited } => (0, [ordinal, nanos(waited), 0, 0]),
            Self::Full(full) => (1, [full.held, full.units.into(), full.capacity, 0]),
            Self::Keys => (2, [0; 4]),
            Self::Refused(no) => {
                let (waited, retry) = (nanos(no.waited), nanos(no.retry_after));
                let reason = no.reason.index() as u64;
                (3, [reason, waited, no.len as u64, retry])
            }
        };
        let mut out = vec![kind];
        for number in numbers {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out
    }

    /// Parses the bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, mut rest) = bytes.split_first()?;
        let mut numbers = [0; 4];
        for number in &mut numbers {
            let (first, behind) = rest.split_first_chunk()?;
            (*number, rest) = (u64::from_be_bytes(*first), behind);
        }
        let [first, second, third, fourth] = numbers;
        Some(match kind {
            0 => Self::Granted {
                ordinal: first,
                waited: Duration::from_nanos(second),
            },
            1 => Self::Full(Full {
                held: first,
                units: u32::try_from(second).ok()?,
                capacity: third,
            }),
            2 => Self::Keys,
            3 => Self::Refused(Refusal {
                reason: *Reason::ALL.get(usize::try_from(first).ok()?)?,
                waited: Duration::from_nanos(second),
                len: usize::try_from(third).ok()?,
                retry_after: Duration::from_nanos(fourth),
            }),
            _ => return None,
        })
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_as_it_was_written() {
        let second = Duration::from_secs(1);
        for wait in [
            ClaimWait::No,
            ClaimWait::Named(second),
            ClaimWait::Usual(second),
        ] {
            let claim = LockClaim {
                key: b"a key".to_vec(),
                units: 3,
                capacity: Capacity::new(5, 2),
                wait,
            };
            let bytes = claim.write();
            assert_eq!(LockClaim::read(&bytes), Some(claim));
            for end in 0..bytes.len() - 5 {
                assert_eq!(LockClaim::read(&bytes[..end]), None);
            }
        }
    }

    #[test]
    fn what_became_of_it_is_read_as_it_was_written() {
        let waited = Duration::from_millis(7);
        let refusal = |reason| {
            ClaimOutcome::Refused(Refusal {
                reason,
                waited,
                len: 4,
                retry_after: Duration::ZERO,
            })
        };
        let full = Full {
            held: 2,
            units: 1,
            capacity: 2,
        };
        let others = [
            ClaimOutcome::Granted { ordinal: 2, waited },
            ClaimOutcome::Full(full),
            ClaimOutcome::Keys,
        ];
        for outcome in Reason::ALL.map(refusal).into_iter().chain(others) {
            assert_eq!(ClaimOutcome::read(&outcome.write()), Some(outcome));
        }
        assert_eq!(ClaimOutcome::read(&[9; 33]), None);
        assert_eq!(ClaimOutcome::read(b""), None);
    }
}
