//! Links to the other nodes of a cluster: one connection for each pair.
//!
//! A link carries asks and their answers, in any order, and messages that need no answer.
//! It says nothing of whether a node lives: that is what etcd says, by way of
//! [`PeerLinks::set_peers`]. When a link breaks, the asks that wait on it fail, their ids
//! are noted, and the next link sends them first, so that the other node ends whatever
//! they became.
//!
//! Of two nodes the one with the smaller name connects. Both prove that they know the
//! secret of the cluster before anything else is read.

mod conn;
mod dial;
mod fields;
mod frame;
#[cfg(test)]
mod fuzz;
mod hello;
mod message;
mod options;
mod outgoing;
mod peer;
mod proof;
mod refusal;
mod reports;
mod rows;
mod serve;
mod served;
mod shared;
mod tls;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rideau_core::cluster::{Incarnation, PeerMessage, RowMessage};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use message::{LinkMessage, MESSAGE_MAX, PeerAnswer, PeerAsk};
pub use options::{LINK_VERSIONS, LinkLimits, LinkOptions, LinkTimes};
pub use proof::{BadSecret, LinkSecret};
pub use refusal::RefusalReason;
pub use reports::{ReportParts, ReportTooLong};
pub use rows::{read_report, write_report};
pub use shared::{LinkStats, PeerStats};
pub use tls::{BadPeerTls, PeerTls};

use message::Frame;
use outgoing::AnswerResult;
use peer::{LinkedPeer, count};
use shared::LinksShared;

/// Events that may wait for the node. While there are more, links are not read.
const EVENTS_MAX: usize = 64;
/// The first version of the protocol in which nodes tell which shared config they follow.
const VERSION_OF_CONFIG: u32 = 2;
/// A report of more bytes goes in chunks.
const REPORT_AT_ONCE: usize = 32 << 10;

/// The links of one incarnation of this node.
///
/// Clones share them. When the last clone is dropped, all links end. Numbers of links and
/// asks begin anew with each, so an incarnation has one `PeerLinks` in its life.
#[derive(Clone)]
pub struct PeerLinks {
    handle: Arc<LinksHandle>,
}

/// An event of the links for the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// There is a link. What follows from this node is on it.
    Linked(Incarnation),
    /// The link is gone. That says nothing of the node.
    Unlinked(Incarnation),
    /// Another node said something.
    Message(Incarnation, LinkMessage),
}

/// Runs commands of other nodes.
pub trait ServeAsks: Send + Sync + 'static {
    /// Another node asks. The pair of node and id stands for this ask alone, and never
    /// comes twice. The future is dropped when the ask is cancelled.
    ///
    /// It is polled first on the task that reads the link: it must not block.
    fn serve(&self, from: &Incarnation, id: u64, ask: PeerAsk) -> ServedAnswer;

    /// What an answer took is not wanted any more: the ask was cancelled, or the answer
    /// was lost. The row is that of the answer.
    fn undo(&self, from: &Incarnation, row: Vec<u8>);

    /// An answer of another node came, and its [`PendingAnswer`] was dropped before it was
    /// read. If it took something, this node has to release it.
    fn unclaimed(&self, from: &Incarnation, answer: PeerAnswer);
}

/// The answer to an ask of another node.
pub type ServedAnswer = Pin<Box<dyn Future<Output = PeerAnswer> + Send>>;

/// The answer of another node, when it has come. Dropped before, it cancels the ask.
#[must_use = "an ask is cancelled when this is dropped"]
pub struct PendingAnswer {
    id: u64,
    peer: Arc<LinkedPeer>,
    shared: Arc<LinksShared>,
    answer: oneshot::Receiver<AnswerResult>,
    is_over: bool,
}

/// Why something was not sent, or was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkError {
    /// Too much is outstanding. Nothing was sent.
    Busy,
    /// The link broke before the answer. Whatever the ask took will be undone.
    Broken,
    /// There is no link. Nothing was sent.
    NoLink,
    /// No answer came in time. Whatever the ask took will be undone.
    TimedOut,
    /// It is longer than a frame may be. Nothing was sent.
    TooLong,
}

impl PeerLinks {
    /// Accept and make links from now on, on the runtime that this is called on. What they
    /// tell is in the receiver; as long as it is full, links are not read.
    ///
    /// # Errors
    ///
    /// If the listener cannot be used, or is not on a loopback address although there is
    /// no TLS and the network is not private.
    pub fn start(
        options: LinkOptions,
        listener: TcpListener,
        server: Arc<dyn ServeAsks>,
    ) -> io::Result<(Self, mpsc::Receiver<LinkEvent>)> {
        let invalid =
            |why: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, why.to_string());
        if options.tls.is_some() {
            tls::certified_name(&options.me).map_err(|refusal| invalid(&refusal))?;
        } else {
            let address = listener.local_addr()?.ip();
            let plain = tls::may_be_plain(address, options.is_private);
            plain.map_err(|refusal| invalid(&refusal))?;
        }
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (events, told) = mpsc::channel(EVENTS_MAX);
        let shared = LinksShared::new(options, server, events, Handle::current());
        let shared = Arc::new(shared);
        tokio::spawn(dial::accept_all(Arc::clone(&shared), listener));
        let handle = Arc::new(LinksHandle { shared });
        Ok((Self { handle }, told))
    }

    /// The watch shows these nodes, with their addresses, at this revision. This node may
    /// be among them. Links to others end; what an incarnation sends that was created
    /// later waits for the watch.
    pub fn set_peers(&self, revision: u64, nodes: Vec<(Incarnation, String)>) {
        let shared = self.shared();
        for (peer, address) in shared.set_peers(revision, nodes) {
            let task = dial::keep_linked(Arc::clone(shared), peer, address);
            shared.runtime.spawn(task);
        }
    }

    /// Use other certificates for links that are made from now on.
    pub fn renew_tls(&self, tls: PeerTls) {
        *self.shared().tls.lock() = Some(tls);
    }

    /// Ask another node. It is sent at once, or not at all.
    ///
    /// # Errors
    ///
    /// [`Busy`](LinkError::Busy), [`NoLink`](LinkError::NoLink) or
    /// [`TooLong`](LinkError::TooLong).
    pub fn ask(&self, to: &Incarnation, ask: &PeerAsk) -> Result<PendingAnswer, LinkError> {
        let shared = self.shared();
        let peer = shared.peer(to).ok_or(LinkError::NoLink)?;
        let slack = shared.options.times.answer;
        let until = |wait| Instant::now().checked_add(slack.saturating_add(wait));
        let asked = peer.traffic().out.ask(ask, ask.wait.and_then(until));
        if asked.as_ref().err() == Some(&LinkError::Busy) {
            count(&shared.totals.asks_busy, 1);
        }
        let (id, answer) = asked?;
        peer.wake.notify_one();
        count(&peer.counts.asks_out, 1);
        count(&shared.totals.asks_out, 1);
        Ok(PendingAnswer {
            id,
            peer,
            shared: Arc::clone(shared),
            answer,
            is_over: false,
        })
    }

    /// Send a message. A [digest](LinkMessage::Digest) replaces an older one of the same
    /// range and partition that was not yet written.
    ///
    /// # Errors
    ///
    /// [`Busy`](LinkError::Busy), [`NoLink`](LinkError::NoLink) or
    /// [`TooLong`](LinkError::TooLong). If there is none, the message may still be lost
    /// when the link breaks.
    pub fn send(&self, to: &Incarnation, message: LinkMessage) -> Result<(), LinkError> {
        let bytes_max = self.shared().options.limits.bytes_max;
        self.send_within(to, message, bytes_max)
    }

    /// The same, for what may be left out: it is refused when half of the room is taken.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub fn send_if_room(&self, to: &Incarnation, message: LinkMessage) -> Result<(), LinkError> {
        let bytes_max = self.shared().options.limits.bytes_max;
        self.send_within(to, message, bytes_max / 2)
    }

    /// Send what the core tells another node.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub fn tell(&self, to: &Incarnation, message: PeerMessage) -> Result<(), LinkError> {
        self.send(to, LinkMessage::Peer(message))
    }

    /// Tell another node what concerns things that are kept in memory. Only an ask is
    /// refused when too much is outstanding. A long report goes at the pace of the link, and
    /// in chunks.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub fn send_row(
        &self,
        to: &Incarnation,
        message: RowMessage,
        told: Vec<u8>,
    ) -> Result<(), LinkError> {
        let is_ask = matches!(message, RowMessage::Ask { .. });
        let is_long = rows::len(&message) > REPORT_AT_ONCE;
        let message = match message {
            RowMessage::Report {
                partition,
                epoch,
                rows,
            } if is_long => {
                let (links, to) = (self.clone(), to.clone());
                self.shared().runtime.spawn(async move {
                    let report = write_report(&rows);
                    // If the link breaks, the next one gets it again.
                    let _ = links.send_report(&to, partition, epoch, &report).await;
                });
                return Ok(());
            }
            message => LinkMessage::Row { message, told },
        };
        if is_ask {
            return self.send(to, message);
        }
        let peer = self.shared().peer(to).ok_or(LinkError::NoLink)?;
        peer.traffic().out.send_always(message)?;
        peer.wake.notify_one();
        Ok(())
    }

    /// Tell another node that a holder behind this one has ended. It is repeated on every
    /// new link until the other node has [heard](Self::heard) it, its incarnation is gone,
    /// or a newer ownership [was reported for](Self::reported).
    ///
    /// # Errors
    ///
    /// [`NoLink`](LinkError::NoLink) if the watch does not show the node, and
    /// [`Busy`](LinkError::Busy) if too many were not heard. Then nothing is noted.
    pub fn end_holder(
        &self,
        to: &Incarnation,
        partition: u32,
        epoch: u64,
        holder: Vec<u8>,
    ) -> Result<(), LinkError> {
        let peer = self.shared().peer(to).ok_or(LinkError::NoLink)?;
        peer.traffic().out.end_holder(partition, epoch, holder)?;
        peer.wake.notify_one();
        Ok(())
    }

    /// This node has acted on an [`Ended`](LinkMessage::Ended) of another. Without a link
    /// this is lost, and the other node says it again.
    pub fn heard(&self, from: &Incarnation, id: u64) {
        if let Some(peer) = self.shared().peer(from) {
            let mut traffic = peer.traffic();
            if traffic.out.is_open() {
                traffic.out.control(&Frame::Heard { id });
            }
            drop(traffic);
            peer.wake.notify_one();
        }
    }

    /// This node has reported for an ownership. What concerns an older one of that
    /// partition is not repeated any more, to any node.
    pub fn reported(&self, partition: u32, epoch: u64) {
        for peer in self.shared().peers() {
            peer.traffic().out.forget_older(partition, epoch);
        }
    }

    /// Send a report in as many chunks as it takes, at the pace of the link. It uses half
    /// of what a link may have outstanding, so asks still pass.
    ///
    /// # Errors
    ///
    /// [`NoLink`](LinkError::NoLink) if the link is not there, or breaks meanwhile. That
    /// there is none does not mean that the report has arrived.
    pub async fn send_report(
        &self,
        to: &Incarnation,
        partition: u32,
        epoch: u64,
        report: &[u8],
    ) -> Result<(), LinkError> {
        let half = self.shared().options.limits.bytes_max / 2;
        let chunk_len = MESSAGE_MAX.min(half / 2).max(1);
        let count = report.len().div_ceil(chunk_len).max(1);
        let chunks = u32::try_from(count).map_err(|_| LinkError::TooLong)?;
        for chunk in 0..chunks {
            let rest = &report[chunk as usize * chunk_len..];
            let message = LinkMessage::Report {
                partition,
                epoch,
                chunk,
                chunks,
                bytes: rest[..rest.len().min(chunk_len)].to_vec(),
            };
            self.send_when_there_is_room(to, message, half).await?;
        }
        Ok(())
    }

    /// End all links, and tell the other nodes why. Events of their ends follow.
    pub fn close(&self, reason: &str) {
        self.handle.stop(reason);
    }

    /// Counters of all links since the start.
    pub fn stats(&self) -> LinkStats {
        self.shared().stats()
    }

    /// The same for each peer.
    pub fn peers(&self) -> Vec<PeerStats> {
        let peers = self.shared().peers();
        peers.iter().map(|peer| peer.stats()).collect()
    }

    async fn send_when_there_is_room(
        &self,
        to: &Incarnation,
        message: LinkMessage,
        max: usize,
    ) -> Result<(), LinkError> {
        loop {
            let mut room = std::pin::pin!(self.shared().room.notified());
            room.as_mut().enable();
            match self.send_within(to, message.clone(), max) {
                Err(LinkError::Busy) => room.await,
                sent => return sent,
            }
        }
    }

    fn send_within(
        &self,
        to: &Incarnation,
        message: LinkMessage,
        max: usize,
    ) -> Result<(), LinkError> {
        let peer = self.shared().peer(to).ok_or(LinkError::NoLink)?;
        let is_config = matches!(message, LinkMessage::Config { .. });
        if is_config && peer.version() < Some(VERSION_OF_CONFIG) {
            // A node of an earlier version shares no config.
            return Ok(());
        }
        peer.traffic().out.send(message, max)?;
        peer.wake.notify_one();
        Ok(())
    }

    fn shared(&self) -> &Arc<LinksShared> {
        &self.handle.shared
    }
}

/// Ends all links when the last clone is dropped. Tasks do not hold it.
struct LinksHandle {
    shared: Arc<LinksShared>,
}

impl LinksHandle {
    fn stop(&self, reason: &str) {
        self.shared.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            stop.get_or_insert_with(|| reason.to_owned());
            is_first
        });
        self.shared.peers().iter().for_each(|peer| peer.forget());
    }
}

impl Drop for LinksHandle {
    fn drop(&mut self) {
        self.stop("the node has ended its links");
    }
}

impl PendingAnswer {
    /// The id of the ask. With this node it stands for this ask alone.
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl Future for PendingAnswer {
    type Output = Result<PeerAnswer, LinkError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        self.is_over = true;
        Poll::Ready(answer.unwrap_or(Err(LinkError::Broken)))
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The answer may come at the same moment: closed, it cannot come any more.
        self.answer.close();
        if let Ok(Ok(answer)) = self.answer.try_recv() {
            self.shared.unclaimed(&self.peer.node, answer);
            return;
        }
        self.peer.traffic().out.abandon(self.id);
        self.peer.wake.notify_one();
    }
}

impl fmt::Debug for PeerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let me = &self.shared().options.me;
        f.debug_struct("PeerLinks")
            .field("me", me)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PendingAnswer");
        shown.field("to", &self.peer.node).field("id", &self.id);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "too much is outstanding on the link",
            Self::Broken => "the link broke",
            Self::NoLink => "there is no link",
            Self::TimedOut => "no answer came in time",
            Self::TooLong => "it is longer than a frame may be",
        })
    }
}

impl std::error::Error for LinkError {}
