//! Puts reports together that come in chunks.

use std::collections::BTreeMap;
use std::fmt;

use rideau_core::cluster::Incarnation;

/// Reports of other nodes that are not all there.
///
/// Chunks of a report come in order, over one link. A report that was cut off is begun
/// again on the next one.
#[derive(Debug)]
pub struct ReportParts {
    bytes_max: usize,
    len: usize,
    open: BTreeMap<(Incarnation, u32), OpenReport>,
}

#[derive(Debug)]
struct OpenReport {
    epoch: u64,
    next: u32,
    chunks: u32,
    bytes: Vec<u8>,
}

/// All reports that are not complete are longer together than was allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportTooLong;

impl ReportParts {
    /// No reports. Those that are not complete may have this many bytes together.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            len: 0,
            open: BTreeMap::new(),
        }
    }

    /// A chunk came. Returns the whole report if it was the last one. A chunk that does not
    /// follow the one before it ends that report.
    ///
    /// # Errors
    ///
    /// If there is no room for it. The report is dropped.
    pub fn add(
        &mut self,
        from: &Incarnation,
        partition: u32,
        epoch: u64,
        (chunk, chunks): (u32, u32),
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, ReportTooLong> {
        let key = (from.clone(), partition);
        let former = self.open.remove(&key);
        self.len -= former.as_ref().map_or(0, |report| report.bytes.len());
        let follows = |it: &OpenReport| (it.epoch, it.next, it.chunks) == (epoch, chunk, chunks);
        let begun = OpenReport {
            epoch,
            next: 0,
            chunks,
            bytes: Vec::new(),
        };
        let report = match chunk {
            0 => Some(begun),
            _ => former.filter(follows),
        };
        let Some(mut report) = report else {
            return Ok(None);
        };
        if self.len + report.bytes.len() + bytes.len() > self.bytes_max {
            return Err(ReportTooLong);
        }
        report.bytes.extend_from_slice(bytes);
        report.next = chunk + 1;
        if report.next >= chunks {
            return Ok(Some(report.bytes));
        }
        self.len += report.bytes.len();
        self.open.insert(key, report);
        Ok(None)
    }

    /// The link to a node is gone, and with it the rest of its reports.
    pub fn forget(&mut self, from: &Incarnation) {
        self.open.retain(|(node, _), report| {
            let stays = node != from;
            self.len -= if stays { 0 } else { report.bytes.len() };
            stays
        });
    }
}

impl fmt::Display for ReportTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reports of other nodes are too long")
    }
}

impl std::error::Error for ReportTooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_in_order_make_a_report() {
        let (one, two) = (Incarnation::new("n1", 1), Incarnation::new("n2", 1));
        let mut parts = ReportParts::new(100);
        assert_eq!(parts.add(&one, 1, 5, (0, 3), b"a"), Ok(None));
        assert_eq!(parts.add(&two, 1, 5, (0, 2), b"x"), Ok(None));
        assert_eq!(parts.add(&one, 1, 5, (1, 3), b"b"), Ok(None));
        assert_eq!(
            parts.add(&one, 2, 5, (0, 1), b"whole"),
            Ok(Some(b"whole".to_vec()))
        );
        assert_eq!(
            parts.add(&two, 1, 5, (1, 2), b"y"),
            Ok(Some(b"xy".to_vec()))
        );
        assert_eq!(
            parts.add(&one, 1, 5, (2, 3), b"c"),
            Ok(Some(b"abc".to_vec()))
        );
        assert_eq!((parts.len, parts.open.len()), (0, 0));
        assert_eq!(parts.add(&one, 1, 6, (0, 1), b""), Ok(Some(Vec::new())));
    }

    #[test]
    fn a_gap_ends_a_report_and_its_first_chunk_begins_it_again() {
        let one = Incarnation::new("n1", 1);
        let mut parts = ReportParts::new(100);
        for (epoch, chunk, chunks) in [(5, 2, 3), (6, 1, 3), (5, 1, 4), (5, 3, 3)] {
            assert_eq!(parts.add(&one, 1, 5, (0, 3), b"a"), Ok(None));
            assert_eq!(parts.add(&one, 1, epoch, (chunk, chunks), b"x"), Ok(None));
            assert_eq!(parts.add(&one, 1, 5, (1, 3), b"b"), Ok(None));
            assert_eq!((parts.len, parts.open.len()), (0, 0));
        }
        assert_eq!(parts.add(&one, 1, 5, (0, 2), b"a"), Ok(None));
        parts.forget(&one);
        assert_eq!((parts.len, parts.open.len()), (0, 0));
        assert_eq!(parts.add(&one, 1, 5, (1, 2), b"b"), Ok(None));
    }

    #[test]
    fn reports_have_a_limit_together() {
        let (one, two) = (Incarnation::new("n1", 1), Incarnation::new("n2", 1));
        let mut parts = ReportParts::new(10);
        assert_eq!(parts.add(&one, 1, 5, (0, 2), b"123456"), Ok(None));
        assert_eq!(parts.add(&two, 1, 5, (0, 2), b"12345"), Err(ReportTooLong));
        assert_eq!(parts.add(&two, 1, 5, (0, 2), b"1234"), Ok(None));
        assert_eq!(parts.add(&one, 1, 5, (1, 2), b"7"), Err(ReportTooLong));
        assert_eq!(parts.len, 4);
        assert_eq!(parts.add(&one, 1, 5, (0, 2), b"123456"), Ok(None));
    }
}
