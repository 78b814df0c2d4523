//! Watches: every change of a range of keys, revision by revision.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;

use super::client::{CallStream, EtcdClient};
use super::error::{EtcdDoubt, EtcdError, EtcdRefusal};
use super::keys::{EtcdKey, KeyRange};
use super::messages::{
    DELETE, KeyEvent, PUT, WHOLE_STREAM, WatchAsk, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};

/// Every change of a range of keys from a revision on.
///
/// A watch goes on after a failure: the next call of [`next`](Self::next) opens it again
/// at the last revision that was given and skips that one, so that none is missing and none
/// comes twice. etcd before 3.4.34 and 3.5.16 serves a watch that begins at the very revision
/// that was compacted, and leaves the deletions of that revision out. Opened one revision
/// earlier, such a watch is told that it was compacted.
pub struct EtcdWatch {
    client: EtcdClient,
    range: KeyRange,
    /// Everything before it was given.
    from: i64,
    /// The revision that the stream begins with, which is not given.
    skipped: i64,
    /// A stream on its way. It outlives a caller that stops waiting: otherwise one that
    /// never waits for long would ask an endpoint that is stuck again and again.
    opening: Option<Opening>,
    stream: Option<CallStream<WatchRequest>>,
    ready: VecDeque<Watched>,
}

type Opening = Pin<Box<dyn Future<Output = Result<CallStream<WatchRequest>, EtcdError>> + Send>>;

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All changes of one revision in the range.
    Changed {
        /// The revision. It is larger than that of all changes before.
        revision: i64,
        /// What changed.
        changes: Vec<KeyChange>,
    },
    /// etcd still serves this watch. It says nothing about revisions: some versions of etcd
    /// send it before changes that came earlier.
    Alive,
    /// What the watch would go on with was compacted. It has ended: read everything again,
    /// and watch from the revision after that.
    Compacted {
        /// The oldest revision that is still there.
        revision: i64,
    },
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// It was put.
    Put(EtcdKey),
    /// It was deleted, or its lease ended. Only `key` and `modified` are told.
    Deleted(EtcdKey),
}

impl EtcdClient {
    /// Watches a range from a revision on, that one included, or from the first one there
    /// was. The revision before must not be compacted, unless it was the last that was.
    /// Nothing is sent before the first call of [`next`](EtcdWatch::next).
    pub fn watch(&self, range: KeyRange, from: i64) -> EtcdWatch {
        EtcdWatch {
            client: self.clone(),
            range,
            // With 0 etcd means now, and would mean a later now when it is opened again.
            from: from.max(1),
            skipped: 0,
            opening: None,
            stream: None,
            ready: VecDeque::new(),
        }
    }
}

impl EtcdWatch {
    /// What the watch tells next. It waits without end; a caller that stops waiting loses
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the watch cannot be opened, or breaks.
    pub async fn next(&mut self) -> Result<Watched, EtcdError> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Ok(told);
            }
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    let opening = match self.opening.take() {
                        Some(opening) => opening,
                        None => self.open(),
                    };
                    let opened = self.opening.insert(opening).await;
                    self.opening = None;
                    self.skipped = self.from - 1;
                    self.stream.insert(opened?)
                }
            };
            let told = match stream.next().await {
                Ok(reply) => {
                    let at = (&mut self.from, self.skipped);
                    read(reply, at, &mut self.ready, stream)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                self.client.leave(stream, &error);
                self.stream = None;
                return Err(error);
            }
            if matches!(self.ready.back(), Some(Watched::Compacted { .. })) {
                self.stream = None;
            }
        }
    }

    /// Asks etcd whether it still serves this watch. [`next`](Self::next) then tells
    /// [`Alive`](Watched::Alive) soon, or changes. If neither comes, the watch is stuck.
    pub fn ask_alive(&self) {
        if let Some(stream) = &self.stream {
            let request = Some(WatchAsk::Progress(WatchProgressRequest {}));
            // If there is no room, etcd was asked already.
            let _ = stream.send(WatchRequest { request });
        }
    }

    /// Gives a stuck watch up: the next call of [`next`](Self::next) opens it again at
    /// the next endpoint.
    pub fn reopen(&mut self) {
        if let Some(stream) = self.stream.take() {
            let error = stream.unknown(EtcdDoubt::Silent, "the watch is stuck");
            self.client.leave(&stream, &error);
        }
    }

    fn open(&self) -> Opening {
        let (client, creation) = (self.client.clone(), self.creation());
        Box::pin(async move { client.open(creation, client.deadline()).await })
    }

    fn creation(&self) -> WatchRequest {
        let create = WatchCreateRequest {
            key: self.range.key.clone(),
            range_end: self.range.end.clone(),
            start_revision: (self.from - 1).max(1),
            progress_notify: true,
        };
        WatchRequest {
            request: Some(WatchAsk::Create(create)),
        }
    }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdWatch");
        shown.field("range", &self.range).field("from", &self.from);
        shown.field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Reads one message, which has whole revisions. `from` moves past them; `skipped` is not
/// given.
fn read(
    reply: WatchResponse,
    (from, skipped): (&mut i64, i64),
    ready: &mut VecDeque<Watched>,
    stream: &CallStream<WatchRequest>,
) -> Result<(), EtcdError> {
    if reply.canceled {
        return match reply.compact_revision {
            0 => Err(canceled(&reply.cancel_reason, stream)),
            revision => {
                ready.push_back(Watched::Compacted { revision });
                Ok(())
            }
        };
    }
    if reply.created {
        return Ok(());
    }
    if reply.fragment {
        return Err(stream.unknown(
            EtcdDoubt::Unclear,
            "a revision in parts, though not asked for",
        ));
    }
    if reply.events.is_empty() {
        // What etcd sends for one watch by itself comes in order, unlike what it sends
        // for the whole stream when asked.
        if reply.watch_id != WHOLE_STREAM {
            let revision = reply.header.map_or(0, |header| header.revision);
            *from = (*from).max(revision.saturating_add(1));
        }
        ready.push_back(Watched::Alive);
        return Ok(());
    }
    let unclear = |said| stream.unknown(EtcdDoubt::Unclear, said);
    for event in reply.events {
        let (revision, change) = change(event).ok_or_else(|| unclear("a change without a key"))?;
        match ready.back_mut() {
            Some(Watched::Changed {
                revision: last,
                changes,
            }) if *last == revision => changes.push(change),
            _ if revision == skipped => continue,
            _ if revision < *from => return Err(unclear("revisions that go back")),
            _ => {
                ready.push_back(Watched::Changed {
                    revision,
                    changes: vec![change],
                });
            }
        }
        *from = revision.saturating_add(1);
    }
    Ok(())
}

fn change(event: KeyEvent) -> Option<(i64, KeyChange)> {
    let key = EtcdKey::from(event.kv?);
    let revision = key.modified;
    match event.kind {
        PUT => Some((revision, KeyChange::Put(key))),
        DELETE => Some((revision, KeyChange::Deleted(key))),
        _ => None,
    }
}

fn canceled(reason: &str, stream: &CallStream<WatchRequest>) -> EtcdError {
    let said = format!("the watch was canceled: {reason}");
    let words = ["permission denied", "auth", "user name"];
    match words.iter().any(|word| reason.contains(word)) {
        true => stream.refused(EtcdRefusal::Auth, said),
        false => stream.unknown(EtcdDoubt::Unavailable, said),
    }
}
