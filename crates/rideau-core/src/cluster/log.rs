//! The log of one life of a node: numbered batches, of which one at a time is on its way.

use std::collections::VecDeque;

use super::batch::LogBatch;

/// The largest overhead of a section in a batch.
const SECTION_MAX: usize = 24;

/// Batches that are not written yet, and how far the log is written.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchLog {
    /// The number of the next batch that is begun.
    next: u64,
    queue: VecDeque<QueuedBatch>,
    /// Batches that are written and not deleted, with their lengths.
    kept: VecDeque<(u64, usize)>,
    kept_len: usize,
    /// Every batch before this one is deleted.
    trimmed: u64,
    /// Every batch before this one is being deleted.
    pub(super) trimming: Option<u64>,
}

#[derive(Clone, Debug)]
struct QueuedBatch {
    seq: u64,
    batch: LogBatch,
    /// Nothing may be added: it is on its way, or a number was given out as its end.
    sealed: bool,
    sent: bool,
}

impl BatchLog {
    /// Add entries, and return the number of the batch that has them.
    pub(super) fn append(
        &mut self,
        partition: u32,
        epoch: u64,
        entries: &[u8],
        len_max: usize,
    ) -> u64 {
        let fits = |last: &&mut QueuedBatch| {
            !last.sealed && last.batch.len() + entries.len() + SECTION_MAX <= len_max
        };
        if let Some(last) = self.queue.back_mut().filter(fits) {
            last.batch.push(partition, epoch, entries);
            return last.seq;
        }
        let mut batch = LogBatch::default();
        batch.push(partition, epoch, entries);
        let seq = self.next;
        self.next += 1;
        self.queue.push_back(QueuedBatch {
            seq,
            batch,
            sealed: false,
            sent: false,
        });
        seq
    }

    /// Sections of these lengths are added next, and shall be in one batch.
    pub(super) fn make_room(&mut self, lens: impl Iterator<Item = usize>, len_max: usize) {
        let len: usize = lens.map(|len| len + SECTION_MAX).sum();
        if let Some(last) = self.queue.back_mut() {
            last.sealed |= last.batch.len() + len > len_max;
        }
    }

    /// The number of a batch that has nothing of what was added so far, and all that is
    /// added from now on is in it or behind it.
    pub(super) fn seal(&mut self) -> u64 {
        if let Some(last) = self.queue.back_mut() {
            last.sealed = true;
        }
        self.next
    }

    /// Everything that was added so far is in a batch before this one.
    pub(super) const fn end(&self) -> u64 {
        self.next
    }

    /// Every batch before this one is written.
    pub(super) fn written(&self) -> u64 {
        self.queue.front().map_or(self.next, |first| first.seq)
    }

    /// The next batch that is to be sent while at most `max` are on their way.
    pub(super) fn send(&mut self, max: usize) -> Option<u64> {
        let first = self.queue.iter_mut().take(max).find(|batch| !batch.sent)?;
        first.sent = true;
        first.sealed = true;
        Some(first.seq)
    }

    /// How many are on their way.
    pub(super) fn sent(&self) -> usize {
        self.queue.iter().filter(|batch| batch.sent).count()
    }

    /// A batch that is on its way.
    pub(super) fn batch(&self, seq: u64) -> Option<&LogBatch> {
        let found = self.queue.iter().find(|batch| batch.seq == seq);
        found.map(|found| &found.batch)
    }

    /// A batch is written.
    pub(super) fn commit(&mut self, seq: u64) -> bool {
        let Some(at) = self.queue.iter().position(|batch| batch.seq == seq) else {
            return false;
        };
        if let Some(written) = self.queue.remove(at) {
            self.kept.push_back((seq, written.batch.len()));
            self.kept_len += written.batch.len();
        }
        true
    }

    /// Every batch before this one is deleted.
    pub(super) const fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Batches are deleted.
    pub(super) fn trim(&mut self, before: u64) {
        self.trimmed = before;
        while let Some((_, len)) = self.kept.front().filter(|(seq, _)| *seq < before) {
            self.kept_len -= len;
            self.kept.pop_front();
        }
    }

    /// How many bytes are written and not deleted.
    pub(super) const fn kept_len(&self) -> usize {
        self.kept_len
    }

    /// Put a batch under a new number.
    #[cfg(feature = "planted")]
    pub(super) fn renumber(&mut self, seq: u64) -> u64 {
        let new = self.next;
        self.next += 1;
        for batch in self.queue.iter_mut().filter(|batch| batch.seq == seq) {
            batch.seq = new;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_sealed_or_on_its_way_gets_nothing_more() {
        let mut log = BatchLog::default();
        assert_eq!(log.append(1, 1, b"a", 1_000), 0);
        assert_eq!(log.append(2, 1, b"b", 1_000), 0);
        assert_eq!(log.send(1), Some(0));
        assert_eq!(log.append(1, 1, b"c", 1_000), 1);
        assert_eq!(log.send(1), None, "one at a time");
        assert_eq!(log.seal(), 2);
        assert_eq!(log.append(1, 1, b"d", 1_000), 2);
        assert!(log.commit(0));
        assert!(!log.commit(0));
        assert_eq!((log.written(), log.send(1)), (1, Some(1)));
        assert_eq!(log.batch(1).map(LogBatch::len), Some(17));
    }

    #[test]
    fn what_is_added_together_is_in_one_batch_if_it_fits() {
        let mut log = BatchLog::default();
        assert_eq!(log.append(1, 1, &[0; 20], 200), 0);
        log.make_room([20, 20].into_iter(), 200);
        assert_eq!(log.append(2, 1, &[0; 20], 200), 0);
        assert_eq!(log.append(3, 1, &[0; 20], 200), 0);
        log.make_room([40, 20].into_iter(), 200);
        assert_eq!(log.append(4, 1, &[0; 40], 200), 1);
        assert_eq!(log.append(5, 1, &[0; 20], 200), 1);
    }

    #[test]
    fn a_batch_has_a_limit() {
        let mut log = BatchLog::default();
        assert_eq!(log.append(1, 1, &[0; 50], 100), 0);
        assert_eq!(log.append(1, 1, &[0; 50], 100), 1);
    }
}
