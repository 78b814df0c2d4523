//! Batches of several partitions, as they stand in a log.
//!
//! A batch of the only partition stands there as it is. In any other each section comes
//! with its partition and its length.

use rideau_core::cluster::Partitions;

use crate::store::BatchSection;

const HEAD_LEN: usize = 8;

/// A batch as it is written. The buffer is used where the bytes do not stand together.
pub(super) fn encode<'a>(
    partitions: Partitions,
    batch: &[BatchSection<'a>],
    buffer: &'a mut Vec<u8>,
) -> &'a [u8] {
    let has_one = partitions.count() == 1;
    if let [section] = batch
        && has_one
    {
        return section.bytes;
    }
    buffer.clear();
    for section in batch {
        if !has_one {
            let len = u32::try_from(section.bytes.len()).expect("a batch has a limit far below");
            buffer.extend(section.partition.to_le_bytes());
            buffer.extend(len.to_le_bytes());
        }
        buffer.extend(section.bytes);
    }
    buffer
}

/// The sections of a batch, or none for bytes that are no section.
pub(super) fn decode(
    partitions: Partitions,
    batch: &[u8],
) -> impl Iterator<Item = Option<BatchSection<'_>>> {
    let has_one = partitions.count() == 1;
    let only = has_one.then(|| Some(BatchSection::only(batch)));
    let mut left = if has_one { &[] } else { batch };
    let next = move || {
        if left.is_empty() {
            return None;
        }
        let section = split(left).filter(|(section, _)| section.partition < partitions.count());
        left = section.map_or(&[], |(_, rest)| rest);
        Some(section.map(|(section, _)| section))
    };
    only.into_iter().chain(std::iter::from_fn(next))
}

/// How many bytes the sections have together.
pub(super) fn len(batch: &[BatchSection<'_>]) -> u64 {
    batch.iter().map(|section| section.bytes.len() as u64).sum()
}

fn split(bytes: &[u8]) -> Option<(BatchSection<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_LEN)?;
    let partition = u32::from_le_bytes(head[..4].try_into().ok()?);
    let len = u32::from_le_bytes(head[4..].try_into().ok()?);
    let (bytes, rest) = rest.split_at_checked(len as usize)?;
    Some((BatchSection { partition, bytes }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: [BatchSection<'static>; 3] = [
        BatchSection {
            partition: 3,
            bytes: b"three",
        },
        BatchSection {
            partition: 0,
            bytes: b"",
        },
        BatchSection {
            partition: 3,
            bytes: b"again",
        },
    ];

    #[test]
    fn sections_come_back_as_they_were() {
        let four = Partitions::new(4, 0).unwrap();
        let mut buffer = Vec::new();
        let bytes = encode(four, &BATCH, &mut buffer).to_vec();
        let found: Option<Vec<_>> = decode(four, &bytes).collect();
        assert_eq!(found.as_deref(), Some(&BATCH[..]));
        for end in 1..bytes.len() {
            let found: Vec<_> = decode(four, &bytes[..end]).collect();
            let is_cut = !matches!(end, 13 | 21);
            assert_eq!(found.contains(&None), is_cut, "cut to {end}");
        }
        let two = Partitions::new(2, 0).unwrap();
        assert!(decode(two, &bytes).any(|section| section.is_none()));
    }

    #[test]
    fn the_only_partition_stands_there_as_it_is() {
        let mut buffer = Vec::new();
        for bytes in [&b"bytes"[..], b""] {
            let batch = [BatchSection::only(bytes)];
            assert_eq!(encode(Partitions::ONE, &batch, &mut buffer), bytes);
            assert_eq!(
                decode(Partitions::ONE, bytes).collect::<Vec<_>>(),
                [Some(batch[0])]
            );
        }
    }
}
