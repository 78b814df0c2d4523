//! One link: reads frames, acts on them, and writes what is to be sent, all in one task.
//!
//! Everything that was read is acted on before the task writes, so answers that are there
//! at once leave in one write.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_resp::Quoted;
use tokio::sync::OwnedMutexGuard;
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::fields::BadFrame;
use super::frame::{BoxRead, BoxWrite, FrameReader, FrameWriter};
use super::message::{FRAME_LIMITS, Frame};
use super::peer::{LinkedPeer, PeerStanding, count};
use super::serve;
use super::shared::LinksShared;
use super::{LinkError, LinkEvent};

/// How often a link looks at its time-outs, at most.
const TICK: Duration = Duration::from_millis(100);
/// After this many reads the link writes, even if there is more to read.
const READS: u32 = 8;
/// How long the last frame of a link may take.
const GOODBYE_MAX: Duration = Duration::from_millis(500);
/// Frames that wait for the watch to show their sender. More are left unread.
const EARLY_FRAMES_MAX: usize = 1_024;
/// Bytes that are read of such a sender.
const EARLY_BYTES_MAX: u64 = 1 << 20;

/// Why a link ended.
#[derive(Debug)]
enum LinkEnd {
    Closed(io::Error),
    Bad(BadFrame),
    /// A ping was not answered in time.
    Dead,
    /// The peer has sent more asks than it may.
    Flood,
    /// The peer has left too much unread.
    Slow,
    Superseded,
    Gone,
    /// The peer said so.
    Told(String),
    Stopped(String),
}

/// Run a link until it ends. The slot is free when nothing of it is read any more.
pub(super) async fn run(
    shared: &Arc<LinksShared>,
    peer: &Arc<LinkedPeer>,
    number: u64,
    mut reader: FrameReader<BoxRead>,
    mut writer: FrameWriter<BoxWrite>,
    slot: OwnedMutexGuard<()>,
) {
    let mut is_told = false;
    peer.traffic().served.begin_link();
    let end = tokio::select! {
        biased;
        reason = shared.stopped() => LinkEnd::Stopped(reason),
        () = peer.superseded(number) => LinkEnd::Superseded,
        () = peer.gone() => LinkEnd::Gone,
        end = read_all(shared, peer, &mut reader, &mut is_told) => end,
        end = keep_times(shared, peer) => end,
        end = write_all(shared, peer, &mut writer) => end,
    };
    if is_told {
        shared.totals.links_now.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(peer = %peer.node, number, reason = %end, "link down");
    } else {
        tracing::debug!(peer = %peer.node, number, reason = %end, "link given up");
    }
    peer.close();
    shared.room.notify_waiters();
    if let Some(reason) = end.goodbye() {
        // What is half written comes first, so the peer reads whole frames.
        Frame::GoAway { reason }.write(writer.buffer());
        let goodbye = async {
            writer.flush().await?;
            writer.shutdown().await
        };
        let _ = timeout(GOODBYE_MAX, goodbye).await;
    }
    if is_told {
        let _ = shared
            .events
            .send(LinkEvent::Unlinked(peer.node.clone()))
            .await;
    }
    drop(slot);
}

async fn read_all(
    shared: &Arc<LinksShared>,
    peer: &Arc<LinkedPeer>,
    reader: &mut FrameReader<BoxRead>,
    is_told: &mut bool,
) -> LinkEnd {
    let early = match wait_for_watch(peer, reader).await {
        Ok(early) => early,
        Err(end) => return end,
    };
    open(shared, peer);
    *is_told = true;
    let linked = LinkEvent::Linked(peer.node.clone());
    let _ = shared.events.send(linked).await;
    for frame in early {
        if let Err(end) = act(shared, peer, frame).await {
            return end;
        }
    }
    let mut reads = 0;
    loop {
        loop {
            match next_frame(reader) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(end) = act(shared, peer, frame).await {
                        return end;
                    }
                }
                Err(bad) => return LinkEnd::Bad(bad),
            }
        }
        match reader.fill().await {
            Ok(len) => {
                count(&peer.counts.bytes_in, len as u64);
                count(&shared.totals.bytes_in, len as u64);
            }
            Err(error) => return LinkEnd::Closed(error),
        }
        reads += 1;
        if reads % READS == 0 {
            yield_now().await;
        }
    }
}

/// Read what the peer sends before the watch has shown it. Only pings are answered.
async fn wait_for_watch(
    peer: &LinkedPeer,
    reader: &mut FrameReader<BoxRead>,
) -> Result<Vec<Frame>, LinkEnd> {
    let mut early = Vec::new();
    while *peer.standing.borrow() == PeerStanding::Early {
        while early.len() < EARLY_FRAMES_MAX {
            match next_frame(reader).map_err(LinkEnd::Bad)? {
                Some(Frame::Ping { seq }) => {
                    peer.traffic().out.control(&Frame::Pong { seq });
                    peer.wake.notify_one();
                }
                Some(frame) => early.push(frame),
                None => break,
            }
        }
        let has_room = early.len() < EARLY_FRAMES_MAX && reader.received() < EARLY_BYTES_MAX;
        tokio::select! {
            () = peer.known() => (),
            filled = reader.fill(), if has_room => {
                filled.map_err(LinkEnd::Closed)?;
            }
        }
    }
    Ok(early)
}

/// The link counts from now on.
fn open(shared: &LinksShared, peer: &LinkedPeer) {
    let mut traffic = peer.traffic();
    traffic.out.open();
    let seq = traffic.served.ping(Instant::now());
    traffic.out.control(&Frame::Ping { seq });
    drop(traffic);
    peer.wake.notify_one();
    let former = peer.counts.links.fetch_add(1, Ordering::Relaxed);
    count(&shared.totals.links, 1);
    count(&shared.totals.reconnects, u64::from(former > 0));
    count(&shared.totals.links_now, 1);
    tracing::info!(peer = %peer.node, "link up");
}

fn next_frame(reader: &mut FrameReader<BoxRead>) -> Result<Option<Frame>, BadFrame> {
    match reader.next(&FRAME_LIMITS)? {
        Some(value) => Frame::read(value).map(Some),
        None => Ok(None),
    }
}

async fn act(
    shared: &Arc<LinksShared>,
    peer: &Arc<LinkedPeer>,
    frame: Frame,
) -> Result<(), LinkEnd> {
    match frame {
        Frame::Ask { id, ask } => {
            serve::begin(shared, peer, id, ask).map_err(|serve::AskFlood| LinkEnd::Flood)?;
        }
        Frame::Answer { id, answer } => {
            let asked = peer.traffic().out.answered(id);
            shared.room.notify_waiters();
            // A caller that has just gone finds the answer when it drops the other end.
            if let Some(asked) = asked
                && let Err(Ok(unclaimed)) = asked.send(Ok(answer))
            {
                shared.unclaimed(&peer.node, unclaimed);
            }
        }
        Frame::Cancel { id, .. } => serve::cancel(shared, peer, id),
        Frame::Cancelled { id } | Frame::Heard { id } => peer.traffic().out.heard(id),
        Frame::Ping { seq } => {
            peer.traffic().out.control(&Frame::Pong { seq });
            peer.wake.notify_one();
        }
        Frame::Pong { seq } => peer.traffic().served.pong(seq, Instant::now()),
        Frame::GoAway { reason } => return Err(LinkEnd::Told(reason)),
        Frame::Message(message) => {
            let event = LinkEvent::Message(peer.node.clone(), message);
            let _ = shared.events.send(event).await;
        }
    }
    Ok(())
}

/// Ping the peer, and end what takes too long.
async fn keep_times(shared: &LinksShared, peer: &LinkedPeer) -> LinkEnd {
    let times = &shared.options.times;
    let mut tick = interval(TICK.min(times.ping));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_ping = Instant::now() + times.ping;
    loop {
        tick.tick().await;
        let now = Instant::now();
        let mut traffic = peer.traffic();
        if traffic.out.is_overflowed() {
            return LinkEnd::Slow;
        }
        let silent_since = traffic.served.silent_since();
        if silent_since.is_some_and(|since| now.duration_since(since) >= times.dead) {
            return LinkEnd::Dead;
        }
        // A peer that the watch has not shown is not asked: its answer would wait.
        if next_ping <= now && traffic.out.is_open() {
            next_ping = now + times.ping;
            let seq = traffic.served.ping(now);
            traffic.out.control(&Frame::Ping { seq });
        }
        let expired = traffic.out.expire(now);
        drop(traffic);
        peer.wake.notify_one();
        for ask in expired {
            let _ = ask.send(Err(LinkError::TimedOut));
        }
    }
}

/// Write whatever there is, in as few writes as possible.
async fn write_all(
    shared: &LinksShared,
    peer: &LinkedPeer,
    writer: &mut FrameWriter<BoxWrite>,
) -> LinkEnd {
    loop {
        let passing = peer.traffic().out.take(writer.buffer());
        let len = writer.buffer().len();
        if len == 0 {
            peer.wake.notified().await;
            continue;
        }
        if let Err(error) = writer.flush().await {
            return LinkEnd::Closed(error);
        }
        peer.traffic().out.written(passing);
        count(&peer.counts.bytes_out, len as u64);
        count(&shared.totals.bytes_out, len as u64);
        shared.room.notify_waiters();
    }
}

impl LinkEnd {
    /// The reason for the peer, if it is of use to it.
    fn goodbye(&self) -> Option<String> {
        match self {
            Self::Closed(_) | Self::Dead | Self::Slow | Self::Superseded | Self::Told(_) => None,
            Self::Stopped(reason) => Some(reason.clone()),
            Self::Bad(_) | Self::Flood | Self::Gone => Some(self.to_string()),
        }
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(error) => write!(f, "the connection ended: {error}"),
            Self::Bad(bad) => bad.fmt(f),
            Self::Dead => f.write_str("a ping was not answered"),
            Self::Flood => f.write_str("more asks than a link may carry"),
            Self::Slow => f.write_str("the peer leaves too much unread"),
            Self::Superseded => f.write_str("a newer link is there"),
            Self::Gone => f.write_str("the incarnation is gone"),
            Self::Told(reason) => write!(f, "the peer said {}", Quoted(reason.as_bytes())),
            Self::Stopped(reason) => f.write_str(reason),
        }
    }
}
