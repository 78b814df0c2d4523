//! One batch of a node's log: entries of several partitions, written together.

/// Entries of several partitions, in the order in which they were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogBatch {
    sections: Vec<LogSection>,
    len: usize,
}

/// Entries of one partition from one ownership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSection {
    /// Which partition.
    pub partition: u32,
    /// The ownership in which they were made.
    pub epoch: u64,
    /// The entries, in the partition's own format.
    pub entries: Vec<u8>,
}

/// Bytes that are no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBatch;

/// The overhead of a section.
const HEAD: usize = 16;

impl LogBatch {
    /// Add entries behind the others.
    pub fn push(&mut self, partition: u32, epoch: u64, entries: &[u8]) {
        let of =
            |section: &&mut LogSection| section.partition == partition && section.epoch == epoch;
        if let Some(section) = self.sections.iter_mut().find(of) {
            section.entries.extend_from_slice(entries);
            self.len += entries.len();
        } else {
            self.len += HEAD + entries.len();
            self.sections.push(LogSection {
                partition,
                epoch,
                entries: entries.to_vec(),
            });
        }
    }

    /// How many bytes it takes, without the checksum.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// All sections.
    pub fn sections(&self) -> &[LogSection] {
        &self.sections
    }

    /// What is in it of one ownership of a partition. A log may have entries of several
    /// ownerships of one partition, between which another node owned it.
    pub fn entries(&self, partition: u32, epoch: u64) -> impl Iterator<Item = &[u8]> {
        let of =
            move |section: &&LogSection| section.partition == partition && section.epoch == epoch;
        let found = self.sections.iter().filter(of);
        found.map(|section| section.entries.as_slice())
    }

    /// As it is written: each section with its head, and a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len + 8);
        for section in &self.sections {
            let len = u32::try_from(section.entries.len()).expect("a batch has a limit");
            bytes.extend_from_slice(&section.partition.to_be_bytes());
            bytes.extend_from_slice(&section.epoch.to_be_bytes());
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&section.entries);
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// A batch as it was written.
    ///
    /// # Errors
    ///
    /// If the checksum is wrong or a section is not whole.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBatch> {
        let (bytes, sum) = bytes.split_last_chunk::<8>().ok_or(BadBatch)?;
        if checksum(bytes) != u64::from_be_bytes(*sum) {
            return Err(BadBatch);
        }
        let mut batch = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let partition = u32::from_be_bytes(*taken(&mut rest)?);
            let epoch = u64::from_be_bytes(*taken(&mut rest)?);
            let len = u32::from_be_bytes(*taken(&mut rest)?) as usize;
            let (entries, behind) = rest.split_at_checked(len).ok_or(BadBatch)?;
            batch.push(partition, epoch, entries);
            rest = behind;
        }
        Ok(batch)
    }
}

fn taken<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], BadBatch> {
    let (first, behind) = rest.split_first_chunk::<N>().ok_or(BadBatch)?;
    *rest = behind;
    Ok(first)
}

/// FNV-1a: etcd keeps values safe; this finds what another program wrote there.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let mut batch = LogBatch::default();
        batch.push(3, 7, b"one");
        batch.push(4, 7, b"two");
        batch.push(3, 9, b"three");
        batch.push(3, 7, b"four");
        let bytes = batch.encode();
        assert_eq!(bytes.len(), batch.len() + 8);
        assert_eq!(LogBatch::decode(&bytes), Ok(batch.clone()));
        let of = |partition, epoch| Vec::from_iter(batch.entries(partition, epoch));
        assert_eq!(of(3, 7), [b"onefour"]);
        assert_eq!(of(3, 9), [b"three"]);
        assert_eq!(of(5, 7), [] as [&[u8]; 0]);
    }

    #[test]
    fn a_damaged_batch_is_refused() {
        let mut batch = LogBatch::default();
        batch.push(3, 7, b"one");
        let bytes = batch.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(LogBatch::decode(&damaged), Err(BadBatch), "byte {at}");
        }
        assert_eq!(LogBatch::decode(b""), Err(BadBatch));
    }
}
