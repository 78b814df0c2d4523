//! What one peer is to be sent: asks that wait for their answers, messages that are
//! repeated until they were heard, and bytes that wait for the connection.
//!
//! All of it has limits. A caller that would break one is refused at once, so a slow or
//! dead peer costs neither time nor more memory than that.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::LinkError;
use super::message::{
    ENVELOPE_MAX, FRAME_MAX, Frame, LinkMessage, MESSAGE_MAX, PeerAnswer, PeerAsk, write_answer,
    write_ask, write_digest,
};
use super::options::LinkLimits;

/// Short frames that must be sent, as cancels, may go this far beyond the limit. More of
/// them mean that the peer does not read, and the link is cut.
const CONTROL_MAX: usize = 1 << 20;
/// An empty buffer that is longer is given back.
const PENDING_KEPT: usize = 256 << 10;

/// Bytes that all links of a node may have outstanding together.
pub(super) struct LinkBudget {
    used: AtomicUsize,
    max: usize,
}

/// The result of an ask.
pub(super) type AnswerResult = Result<PeerAnswer, LinkError>;

/// The messages for one peer.
///
/// Invariants: `charged` is what the budget counts for this peer. Without a link there are
/// no asks and no bytes.
pub(super) struct Outgoing {
    limits: LinkLimits,
    budget: Arc<LinkBudget>,
    is_open: bool,
    is_overflowed: bool,
    next_id: u64,
    asks: HashMap<u64, OutstandingAsk>,
    /// By id, so that they are repeated in order.
    repeats: BTreeMap<u64, Repeat>,
    /// How many of them are cancels. They count as asks.
    cancels: usize,
    /// Bytes of the others.
    ended: usize,
    pending: Vec<u8>,
    /// Bytes of `pending` that are free once they are written. An ask is free later.
    passing: usize,
    /// The newest of each, by partition and range.
    digests: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    charged: usize,
}

struct OutstandingAsk {
    answer: oneshot::Sender<AnswerResult>,
    len: usize,
    partition: u32,
    epoch: u64,
    until: Option<Instant>,
}

/// A message that is repeated on every new link until it was acknowledged.
struct Repeat {
    partition: u32,
    epoch: u64,
    what: RepeatKind,
}

enum RepeatKind {
    /// The ask with this id is not wanted any more.
    Cancel,
    /// This holder has ended.
    Ended(Vec<u8>),
}

impl LinkBudget {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            max,
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, len: usize) -> bool {
        let more = |used: usize| used.checked_add(len).filter(|sum| *sum <= self.max);
        let taken = (self.used).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    fn force(&self, len: usize) {
        self.used.fetch_add(len, Ordering::Relaxed);
    }

    fn give(&self, len: usize) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }
}

impl Outgoing {
    pub(super) fn new(limits: LinkLimits, budget: Arc<LinkBudget>) -> Self {
        Self {
            limits,
            budget,
            is_open: false,
            is_overflowed: false,
            next_id: 1,
            asks: HashMap::new(),
            repeats: BTreeMap::new(),
            cancels: 0,
            ended: 0,
            pending: Vec::new(),
            passing: 0,
            digests: BTreeMap::new(),
            charged: 0,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the peer has left so much unread that the link must be cut.
    pub(super) const fn is_overflowed(&self) -> bool {
        self.is_overflowed
    }

    /// Asks that wait for an answer.
    pub(super) fn asks(&self) -> usize {
        self.asks.len()
    }

    /// Messages that were not heard.
    pub(super) fn repeats(&self) -> usize {
        self.repeats.len()
    }

    /// Bytes that count.
    pub(super) const fn charged(&self) -> usize {
        self.charged
    }

    /// A link is there. What was not heard goes first.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        let repeats = mem::take(&mut self.repeats);
        for (id, repeat) in &repeats {
            self.send_repeat(*id, repeat);
        }
        self.repeats = repeats;
    }

    /// The link is gone. Returns where each ask has to be told. Their ids are noted.
    pub(super) fn close(&mut self) -> Vec<oneshot::Sender<AnswerResult>> {
        self.is_open = false;
        self.is_overflowed = false;
        self.pending = Vec::new();
        self.passing = 0;
        self.digests.clear();
        self.budget.give(mem::take(&mut self.charged));
        let asks = mem::take(&mut self.asks).into_iter();
        asks.map(|(id, ask)| {
            self.note_cancel(id, ask.partition, ask.epoch);
            ask.answer
        })
        .collect()
    }

    /// The peer is gone for good, and nothing has to be heard any more.
    pub(super) fn forget(&mut self) {
        self.repeats.clear();
        (self.cancels, self.ended) = (0, 0);
    }

    /// A newer ownership of a partition counts. What concerns older ones is not repeated.
    pub(super) fn forget_older(&mut self, partition: u32, epoch: u64) {
        let is_older = |it: &Repeat| it.partition == partition && it.epoch < epoch;
        let older: Vec<u64> = (self.repeats.iter())
            .filter(|(_, repeat)| is_older(repeat))
            .map(|(id, _)| *id)
            .collect();
        older.into_iter().for_each(|id| self.heard(id));
    }

    /// Send an ask. Returns its id, and where the answer will be.
    pub(super) fn ask(
        &mut self,
        ask: &PeerAsk,
        until: Option<Instant>,
    ) -> Result<(u64, oneshot::Receiver<AnswerResult>), LinkError> {
        if ask.command.len() + ask.holder.len() + ask.user.len() > FRAME_MAX - ENVELOPE_MAX {
            return Err(LinkError::TooLong);
        }
        if !self.is_open {
            return Err(LinkError::NoLink);
        }
        if self.asks.len() + self.cancels >= self.limits.asks_max {
            return Err(LinkError::Busy);
        }
        let id = self.next_id;
        let len = self.append(self.limits.bytes_max, |out| write_ask(id, ask, out))?;
        self.next_id += 1;
        let (answer, answered) = oneshot::channel();
        let outstanding = OutstandingAsk {
            answer,
            len,
            partition: ask.partition,
            epoch: ask.epoch,
            until,
        };
        self.asks.insert(id, outstanding);
        Ok((id, answered))
    }

    /// An answer came. Returns where to tell it, unless the ask is not there any more.
    pub(super) fn answered(&mut self, id: u64) -> Option<oneshot::Sender<AnswerResult>> {
        let ask = self.asks.remove(&id)?;
        self.free(ask.len);
        Some(ask.answer)
    }

    /// The caller does not wait any more. False if the ask was settled before.
    pub(super) fn abandon(&mut self, id: u64) -> bool {
        self.cancel(id).is_some()
    }

    /// Cancel all asks whose time is over. Returns where each has to be told.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<oneshot::Sender<AnswerResult>> {
        let is_over = |ask: &OutstandingAsk| ask.until.is_some_and(|until| until <= now);
        let over: Vec<u64> = (self.asks.iter())
            .filter(|(_, ask)| is_over(ask))
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().filter_map(|id| self.cancel(id)).collect()
    }

    fn cancel(&mut self, id: u64) -> Option<oneshot::Sender<AnswerResult>> {
        let ask = self.asks.remove(&id)?;
        self.free(ask.len);
        let (partition, epoch) = (ask.partition, ask.epoch);
        self.note_cancel(id, partition, epoch);
        self.control(&Frame::Cancel {
            id,
            partition,
            epoch,
        });
        Some(ask.answer)
    }

    /// A holder has ended. The peer is told now or with the next link.
    pub(super) fn end_holder(
        &mut self,
        partition: u32,
        epoch: u64,
        holder: Vec<u8>,
    ) -> Result<(), LinkError> {
        let len = holder.len() + size_of::<Repeat>();
        if holder.len() > ENVELOPE_MAX {
            return Err(LinkError::TooLong);
        }
        if self.ended + len > self.limits.bytes_max / 2 {
            return Err(LinkError::Busy);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.ended += len;
        let repeat = Repeat {
            partition,
            epoch,
            what: RepeatKind::Ended(holder),
        };
        if self.is_open {
            self.send_repeat(id, &repeat);
        }
        self.repeats.insert(id, repeat);
        Ok(())
    }

    /// A repeated message was heard.
    pub(super) fn heard(&mut self, id: u64) {
        match self.repeats.remove(&id).map(|repeat| repeat.what) {
            Some(RepeatKind::Cancel) => self.cancels -= 1,
            Some(RepeatKind::Ended(holder)) => self.ended -= holder.len() + size_of::<Repeat>(),
            None => (),
        }
    }

    /// Send a message, if there is room within `max` bytes.
    pub(super) fn send(&mut self, message: LinkMessage, max: usize) -> Result<(), LinkError> {
        if message.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        if !self.is_open {
            return Err(LinkError::NoLink);
        }
        if let LinkMessage::Digest {
            partition,
            range,
            bytes,
        } = message
        {
            return self.digest(partition, range, bytes);
        }
        let frame = Frame::Message(message);
        self.passing += self.append(max, |out| frame.write(out))?;
        Ok(())
    }

    /// Send a message that cannot be refused. If the peer leaves too much unread, the link is
    /// cut, and what has to arrive is repeated on the next.
    pub(super) fn send_always(&mut self, message: LinkMessage) -> Result<(), LinkError> {
        if message.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        if !self.is_open {
            return Err(LinkError::NoLink);
        }
        self.control(&Frame::Message(message));
        Ok(())
    }

    /// A digest takes the place of an older one that was not yet written.
    fn digest(&mut self, partition: u32, range: Vec<u8>, bytes: Vec<u8>) -> Result<(), LinkError> {
        let key = (partition, range);
        let old = self.digests.remove(&key);
        self.free(old.map_or(0, |old| digest_len(&key, &old)));
        self.charge(digest_len(&key, &bytes), self.limits.bytes_max)?;
        self.digests.insert(key, bytes);
        Ok(())
    }

    /// Send an answer. False if it does not fit.
    pub(super) fn answer(&mut self, id: u64, answer: &PeerAnswer) -> bool {
        let row = answer.row.as_ref().map_or(0, Vec::len);
        if row + answer.reply.len() > FRAME_MAX - ENVELOPE_MAX {
            return false;
        }
        match self.append(self.limits.bytes_max, |out| write_answer(id, answer, out)) {
            Ok(len) => self.passing += len,
            Err(_) => return false,
        }
        true
    }

    /// Send a short frame that cannot be refused.
    pub(super) fn control(&mut self, frame: &Frame) {
        let start = self.pending.len();
        frame.write(&mut self.pending);
        let len = self.pending.len() - start;
        self.budget.force(len);
        self.charged += len;
        self.passing += len;
        self.is_overflowed |= self.charged > self.limits.bytes_max + CONTROL_MAX;
    }

    /// Move what is to be written to an empty buffer. Returns how many of its bytes are
    /// free once they are [`written`](Self::written).
    pub(super) fn take(&mut self, buffer: &mut Vec<u8>) -> usize {
        debug_assert!(buffer.is_empty(), "the last batch was written");
        mem::swap(&mut self.pending, buffer);
        if self.pending.capacity() > PENDING_KEPT {
            self.pending = Vec::new();
        }
        let mut passing = mem::take(&mut self.passing);
        for (key, bytes) in mem::take(&mut self.digests) {
            passing += digest_len(&key, &bytes);
            write_digest(key.0, &key.1, &bytes, buffer);
        }
        passing
    }

    /// The messages that were taken are written.
    pub(super) fn written(&mut self, passing: usize) {
        self.free(passing);
    }

    fn note_cancel(&mut self, id: u64, partition: u32, epoch: u64) {
        self.cancels += 1;
        let what = RepeatKind::Cancel;
        let repeat = Repeat {
            partition,
            epoch,
            what,
        };
        self.repeats.insert(id, repeat);
    }

    fn send_repeat(&mut self, id: u64, repeat: &Repeat) {
        let (partition, epoch) = (repeat.partition, repeat.epoch);
        let frame = match &repeat.what {
            RepeatKind::Cancel => Frame::Cancel {
                id,
                partition,
                epoch,
            },
            RepeatKind::Ended(holder) => Frame::Message(LinkMessage::Ended {
                id,
                partition,
                epoch,
                holder: holder.clone(),
            }),
        };
        self.control(&frame);
    }

    /// Append a frame if it fits. Returns its length.
    fn append(&mut self, max: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<usize, LinkError> {
        let start = self.pending.len();
        write(&mut self.pending);
        let len = self.pending.len() - start;
        let charged = self.charge(len, max);
        if charged.is_err() {
            self.pending.truncate(start);
        }
        charged.map(|()| len)
    }

    fn charge(&mut self, len: usize, max: usize) -> Result<(), LinkError> {
        if self.charged + len > max || !self.budget.take(len) {
            return Err(LinkError::Busy);
        }
        self.charged += len;
        Ok(())
    }

    fn free(&mut self, len: usize) {
        self.charged -= len;
        self.budget.give(len);
    }
}

/// The size of a digest.
fn digest_len((_, range): &(u32, Vec<u8>), bytes: &[u8]) -> usize {
    range.len() + bytes.len() + 64
}

#[cfg(test)]
mod tests {
    use rideau_core::Rng;
    use rideau_resp::Protocol;

    use super::*;

    const LIMITS: LinkLimits = LinkLimits {
        asks_max: 10,
        bytes_max: 2_000,
        node_bytes_max: 3_000,
    };

    fn outgoing() -> Outgoing {
        Outgoing::new(LIMITS, Arc::new(LinkBudget::new(LIMITS.node_bytes_max)))
    }

    fn ask(len: usize, partition: u32, epoch: u64) -> PeerAsk {
        PeerAsk {
            hop: 1,
            partition,
            epoch,
            holder: Vec::new(),
            user: String::new(),
            wait: None,
            protocol: Protocol::Resp2,
            command: vec![b'x'; len],
        }
    }

    fn digest(partition: u32, bytes: &[u8]) -> LinkMessage {
        LinkMessage::Digest {
            partition,
            range: b"ports".to_vec(),
            bytes: bytes.to_vec(),
        }
    }

    fn taken(out: &mut Outgoing) -> String {
        let mut bytes = Vec::new();
        let passing = out.take(&mut bytes);
        out.written(passing);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_digest_replaces_one_that_was_not_written() {
        let mut out = outgoing();
        out.open();
        for count in 0..1_000 {
            let bytes = format!("number {count}");
            out.send(digest(1, bytes.as_bytes()), LIMITS.bytes_max)
                .unwrap();
            out.send(digest(2, b"other"), LIMITS.bytes_max).unwrap();
        }
        assert_eq!(out.charged(), out.budget.used());
        let sent = taken(&mut out);
        assert_eq!(sent.matches("digest").count(), 2);
        assert!(sent.contains("number 999"));
        assert_eq!((out.charged(), taken(&mut out).as_str()), (0, ""));
    }

    #[test]
    fn a_broken_link_leaves_ids_that_the_next_one_sends_first() {
        let mut out = outgoing();
        assert_eq!(out.ask(&ask(1, 1, 1), None).err(), Some(LinkError::NoLink));
        out.open();
        let (first, _) = out.ask(&ask(1, 1, 4), None).unwrap();
        let (second, _) = out.ask(&ask(1, 2, 5), None).unwrap();
        let (third, _) = out.ask(&ask(1, 2, 6), None).unwrap();
        assert!(out.answered(second).is_some());
        assert_eq!(out.close().len(), 2);
        assert_eq!((out.charged(), out.budget.used()), (0, 0));
        out.end_holder(3, 7, b"conn".to_vec()).unwrap();
        out.open();
        out.ask(&ask(1, 1, 1), None).unwrap();
        let sent = taken(&mut out);
        let verbs: Vec<_> = ["cancel", "cancel", "ended", "ask"].into();
        let found: Vec<_> = sent
            .split("\r\n")
            .filter(|line| verbs.contains(line))
            .collect();
        assert_eq!(found, verbs);
        out.heard(first);
        out.forget_older(2, 6);
        assert_eq!(out.repeats(), 2);
        out.forget_older(2, 7);
        assert_eq!(out.repeats(), 1);
        out.heard(third);
        assert_eq!((out.cancels, out.repeats()), (0, 1));
    }

    #[test]
    fn short_frames_that_the_peer_leaves_unread_cut_the_link() {
        let mut out = outgoing();
        out.open();
        let mut count = 0_u64;
        while !out.is_overflowed() {
            out.control(&Frame::Pong { seq: count });
            count += 1;
        }
        assert!(out.charged() <= LIMITS.bytes_max + CONTROL_MAX + 100);
        out.close();
        assert!(!out.is_overflowed());
        assert_eq!(out.budget.used(), 0);
    }

    #[test]
    fn bytes_are_counted_to_the_last_whatever_happens() {
        for seed in 0..300 {
            let rng = &mut Rng::new(seed);
            let mut out = outgoing();
            let (mut ids, mut written) = (Vec::new(), 0);
            for _ in 0..200 {
                let id = ids
                    .get(rng.below(ids.len().max(1) as u64) as usize)
                    .copied();
                match rng.below(12) {
                    0 => {
                        out.close();
                        written = 0;
                    }
                    1 if !out.is_open() => out.open(),
                    2..6 => {
                        let asked = out.ask(&ask(rng.below(500) as usize, 1, 1), None);
                        ids.extend(asked.ok().map(|(id, _)| id));
                    }
                    6 => _ = id.and_then(|id| out.answered(id)),
                    7 => _ = id.map(|id| out.abandon(id)),
                    8 => _ = id.map(|id| out.heard(id)),
                    9 => {
                        let bytes = vec![b'x'; rng.below(200) as usize];
                        let partition = rng.below(3) as u32;
                        let _ = out.send(digest(partition, &bytes), LIMITS.bytes_max);
                    }
                    10 if out.is_open() => _ = out.answer(1, &PeerAnswer::new(vec![b'x'; 100])),
                    _ if out.is_open() => {
                        out.written(mem::take(&mut written));
                        written = out.take(&mut Vec::new());
                    }
                    _ => (),
                }
                assert_eq!(out.charged(), out.budget.used(), "seed {seed}");
                assert!(out.asks() + out.cancels <= LIMITS.asks_max, "seed {seed}");
                assert!(out.is_open() || out.charged() == 0, "seed {seed}");
            }
            out.close();
            assert_eq!(out.budget.used(), 0, "seed {seed}");
        }
    }
}
