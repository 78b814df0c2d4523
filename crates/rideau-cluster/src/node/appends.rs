//! Calls that wait until what they appended is safe.

use std::sync::mpsc::Sender;
use std::time::Duration;

use rideau::store::PartitionsLost;
use rideau_core::Instant;

/// Calls whose batches are not committed yet.
#[derive(Debug, Default)]
pub(super) struct PendingAppends(Vec<PendingAppend>);

/// One call that waits.
#[derive(Debug)]
pub(super) struct PendingAppend {
    /// The batches of its sections, and their partitions.
    pub(super) open: Vec<(u64, u32)>,
    /// The partitions that are not this node's any more.
    pub(super) lost: Vec<u32>,
    pub(super) reply: Sender<Result<(), PartitionsLost>>,
    pub(super) since: Instant,
}

impl PendingAppends {
    /// A call waits. One without open sections is answered.
    pub(super) fn add(&mut self, call: PendingAppend) {
        self.0.push(call);
        self.settle(|_| ());
    }

    /// A batch is safe. Tells for how long each call waited that has its answer now.
    pub(super) fn committed(&mut self, seq: u64, now: Instant, mut waited: impl FnMut(Duration)) {
        for call in &mut self.0 {
            call.open.retain(|(batch, _)| *batch != seq);
        }
        self.settle(|call| waited(now.since(call.since)));
    }

    /// The unsafe writes of a partition will never be confirmed.
    pub(super) fn lost(&mut self, partition: u32) {
        for call in &mut self.0 {
            let before = call.open.len();
            call.open.retain(|(_, of)| *of != partition);
            if call.open.len() < before {
                call.lost.push(partition);
            }
        }
        self.settle(|_| ());
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn settle(&mut self, mut each: impl FnMut(&PendingAppend)) {
        self.0.retain_mut(|call| {
            if !call.open.is_empty() {
                return true;
            }
            each(call);
            let partitions = std::mem::take(&mut call.lost);
            let answer = match partitions.is_empty() {
                true => Ok(()),
                false => Err(PartitionsLost { partitions }),
            };
            // A caller that is gone needs no answer.
            let _ = call.reply.send(answer);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, TryRecvError, channel};

    use super::*;

    type Answer = Receiver<Result<(), PartitionsLost>>;

    fn call(open: &[(u64, u32)], lost: &[u32]) -> (PendingAppend, Answer) {
        let (reply, answer) = channel();
        let call = PendingAppend {
            open: open.to_vec(),
            lost: lost.to_vec(),
            reply,
            since: Instant::START,
        };
        (call, answer)
    }

    #[test]
    fn a_call_is_answered_when_all_its_batches_are_safe_or_lost() {
        let mut appends = PendingAppends::default();
        let (one, one_told) = call(&[(3, 1), (4, 2)], &[]);
        let (two, two_told) = call(&[(4, 5)], &[]);
        appends.add(one);
        appends.add(two);
        let mut waited = 0;
        appends.committed(3, Instant::from_nanos(5), |_| waited += 1);
        assert_eq!((one_told.try_recv(), waited), (Err(TryRecvError::Empty), 0));
        appends.lost(2);
        let lost = PartitionsLost {
            partitions: vec![2],
        };
        assert_eq!(one_told.try_recv(), Ok(Err(lost)));
        appends.committed(4, Instant::from_nanos(5), |_| waited += 1);
        assert_eq!((two_told.try_recv(), waited), (Ok(Ok(())), 1));
        assert!(appends.is_empty());
    }

    #[test]
    fn a_call_that_lost_everything_is_answered_at_once() {
        let mut appends = PendingAppends::default();
        let (one, told) = call(&[], &[7]);
        appends.add(one);
        let lost = PartitionsLost {
            partitions: vec![7],
        };
        assert_eq!(told.try_recv(), Ok(Err(lost)));
    }
}
