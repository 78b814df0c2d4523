//! Keys, ranges of them, and reading them.

use bytes::Bytes;

use super::client::EtcdClient;
use super::error::{EtcdDoubt, EtcdError};
use super::lease::LeaseId;
use super::messages::{EtcdCall, KeyValue, RangeRequest, RangeResponse, ResponseHeader};

/// One key, or all keys from one up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub(super) key: Bytes,
    /// Empty for the one key.
    pub(super) end: Bytes,
}

impl KeyRange {
    /// The one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            end: Bytes::new(),
        }
    }

    /// All keys from `from` on that come before `to`.
    ///
    /// # Panics
    ///
    /// If `to` does not come after `from`: etcd takes some such ranges for others.
    pub fn between(from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        let (key, end) = (from.into(), to.into());
        assert!(key < end, "a range ends after its beginning");
        Self { key, end }
    }

    /// All keys that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let key: Bytes = prefix.into();
        // The next key that does not begin so: one more in the last place that has room.
        let end = match key.iter().rposition(|byte| *byte != u8::MAX) {
            Some(last) => {
                let mut end = key[..=last].to_vec();
                end[last] += 1;
                Bytes::from(end)
            }
            // With this etcd means the end of all keys.
            None => Bytes::from_static(b"\0"),
        };
        let key = match key.is_empty() {
            true => Bytes::from_static(b"\0"),
            false => key,
        };
        Self { key, end }
    }
}

/// A key as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdKey {
    /// Its name.
    pub key: Bytes,
    /// What it holds. Empty in a deletion.
    pub value: Bytes,
    /// The revision that created it.
    pub created: i64,
    /// The revision that changed it last.
    pub modified: i64,
    /// How often it was put since it was created.
    pub version: i64,
    /// The lease that it ends with.
    pub lease: Option<LeaseId>,
}

impl From<KeyValue> for EtcdKey {
    fn from(kv: KeyValue) -> Self {
        Self {
            key: kv.key,
            value: kv.value,
            created: kv.create_revision,
            modified: kv.mod_revision,
            version: kv.version,
            lease: LeaseId::of(kv.lease),
        }
    }
}

/// What to read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdRead {
    /// Which keys.
    pub range: KeyRange,
    /// How many keys at most; 0 for all.
    pub keys_max: u32,
    /// As of this revision; 0 for the newest.
    pub revision: i64,
    /// Whether to leave the values out.
    pub keys_only: bool,
    /// Whether the member may answer with what it has, which may be old. It does so
    /// without asking the others.
    pub may_be_old: bool,
}

impl EtcdRead {
    /// Everything in a range as of now.
    pub const fn newest(range: KeyRange) -> Self {
        Self {
            range,
            keys_max: 0,
            revision: 0,
            keys_only: false,
            may_be_old: false,
        }
    }

    pub(super) fn request(self) -> RangeRequest {
        RangeRequest {
            key: self.range.key,
            range_end: self.range.end,
            limit: i64::from(self.keys_max),
            revision: self.revision,
            serializable: self.may_be_old,
            keys_only: self.keys_only,
        }
    }
}

/// What was read, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdKeys {
    /// The newest revision when it was read.
    pub revision: i64,
    /// The keys.
    pub keys: Vec<EtcdKey>,
    /// Whether there are more in the range than were asked for.
    pub has_more: bool,
    /// How many there are in the range.
    pub count: u64,
}

impl EtcdKeys {
    pub(super) fn of(reply: RangeResponse, revision: i64) -> Self {
        Self {
            revision,
            keys: reply.kvs.into_iter().map(EtcdKey::from).collect(),
            has_more: reply.more,
            count: u64::try_from(reply.count).unwrap_or(0),
        }
    }
}

impl EtcdClient {
    /// Reads keys. What was written before the call is seen, unless it
    /// [may be old](EtcdRead::may_be_old).
    ///
    /// # Errors
    ///
    /// [`Compacted`](super::EtcdRefusal::Compacted) if the revision is gone.
    pub async fn read(&self, read: EtcdRead) -> Result<EtcdKeys, EtcdError> {
        let reply = self.call(read.request()).await?;
        let revision = self.revision(reply.header.as_ref(), RangeRequest::name())?;
        Ok(EtcdKeys::of(reply, revision))
    }

    /// The revision of a reply. Callers use it as a fence, so a reply without one is none.
    pub(super) fn revision(
        &self,
        header: Option<&ResponseHeader>,
        call: &'static str,
    ) -> Result<i64, EtcdError> {
        match header {
            Some(header) if header.revision > 0 => Ok(header.revision),
            _ => Err(self.unknown(EtcdDoubt::Unclear, call, "the reply has no revision")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyRange;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_does_not_begin_so() {
        for (prefix, key, end) in [
            (&b"a/"[..], &b"a/"[..], &b"a0"[..]),
            (b"a\xff", b"a\xff", b"b"),
            (b"a\xff\xff", b"a\xff\xff", b"b"),
            (b"\xff\xff", b"\xff\xff", b"\0"),
            (b"", b"\0", b"\0"),
        ] {
            let range = KeyRange::prefix(prefix);
            assert_eq!((&range.key[..], &range.end[..]), (key, end));
        }
    }
}
