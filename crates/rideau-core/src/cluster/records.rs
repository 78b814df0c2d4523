//! Records of nodes and partitions, as text that people can read.

use std::fmt;
use std::str::FromStr;

/// One life of a node: its name, and the revision at which its key was created. That
/// revision is the fence of everything the node writes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation {
    /// The name of the node.
    pub name: String,
    /// When its key was created.
    pub fence: u64,
}

/// The value of a node's key. It never changes while the key lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRecord {
    /// Drawn for this life, and kept in the node's folder: a later process of the same
    /// folder knows its own key by it.
    pub id: u64,
    /// How much the node should own beside the others.
    pub weight: u32,
    /// Further data that the node publishes, in the format of the shell.
    pub about: String,
}

/// The value of a partition's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRecord {
    /// The number of this ownership. It only grows.
    pub epoch: u64,
    /// The owner.
    pub owner: Incarnation,
    /// The newest snapshot, if there is one.
    pub snapshot: Option<SnapshotId>,
    /// The log segments after the snapshot, the oldest first.
    pub segments: Vec<Segment>,
}

/// The batches of one log that have entries of one ownership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The ownership. Sections of other epochs do not count.
    pub epoch: u64,
    /// The incarnation that wrote the log.
    pub log: Incarnation,
    /// The first batch that counts. None if the owner had not begun when this was written.
    pub from: Option<u64>,
    /// The last batch that counts. None if only the end of the log ends it.
    pub to: Option<u64>,
}

/// A snapshot of one partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SnapshotId {
    /// The ownership in which it was taken.
    pub epoch: u64,
    /// Which one in that ownership: the first batch that is needed with it.
    pub number: u64,
    /// In how many pieces it was written.
    pub chunks: u32,
}

/// A value that was not written by this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRecord;

impl OwnerRecord {
    /// The record of the next ownership: what there was, the last segment closed, and a
    /// new segment for the new owner. If there are `max` segments already, there is none
    /// for the new owner: it has to write a snapshot before it serves.
    #[must_use]
    pub fn succeeded_by(
        &self,
        epoch: u64,
        owner: Incarnation,
        from: Option<u64>,
        max: usize,
    ) -> Self {
        let mut segments = self.segments.clone();
        if segments.len() < max {
            segments.push(Segment {
                epoch,
                log: owner.clone(),
                from,
                to: None,
            });
        }
        Self {
            epoch,
            owner,
            snapshot: self.snapshot,
            segments,
        }
    }

    /// Whether what the present owner writes would be found by the next one.
    pub fn is_listed(&self) -> bool {
        let last = self.segments.last();
        last.is_some_and(|last| last.epoch == self.epoch)
    }
}

impl Incarnation {
    /// This life of the node with this name.
    pub fn new(name: &str, fence: u64) -> Self {
        Self {
            name: name.to_owned(),
            fence,
        }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.fence)
    }
}

impl FromStr for Incarnation {
    type Err = BadRecord;

    fn from_str(text: &str) -> Result<Self, BadRecord> {
        let (name, fence) = text.rsplit_once('@').ok_or(BadRecord)?;
        Ok(Self::new(name, number(fence)?))
    }
}

impl fmt::Display for NodeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {} {}", self.id, self.weight, self.about)
    }
}

impl FromStr for NodeRecord {
    type Err = BadRecord;

    fn from_str(text: &str) -> Result<Self, BadRecord> {
        let [id, weight, about] = fields(text)?;
        Ok(Self {
            id: number(id)?,
            weight: number(weight)?,
            about: about.to_owned(),
        })
    }
}

impl fmt::Display for OwnerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 {} {} ", self.epoch, self.owner)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "{snapshot}")?,
            None => f.write_str("-")?,
        }
        f.write_str(" ")?;
        for segment in &self.segments {
            write!(f, "{segment};")?;
        }
        Ok(())
    }
}

impl FromStr for OwnerRecord {
    type Err = BadRecord;

    fn from_str(text: &str) -> Result<Self, BadRecord> {
        let [epoch, owner, snapshot, segments] = fields(text)?;
        let segments = segments.split_terminator(';').map(str::parse);
        Ok(Self {
            epoch: number(epoch)?,
            owner: owner.parse()?,
            snapshot: match snapshot {
                "-" => None,
                some => Some(some.parse()?),
            },
            segments: segments.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.epoch, self.number, self.chunks)
    }
}

impl FromStr for SnapshotId {
    type Err = BadRecord;

    fn from_str(text: &str) -> Result<Self, BadRecord> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(BadRecord);
        Ok(Self {
            epoch: number(next()?)?,
            number: number(next()?)?,
            chunks: number(next()?)?,
        })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |end: Option<u64>| end.map_or(String::from("*"), |end| end.to_string());
        let (from, to) = (end(self.from), end(self.to));
        write!(f, "{},{},{from},{to}", self.epoch, self.log)
    }
}

impl FromStr for Segment {
    type Err = BadRecord;

    fn from_str(text: &str) -> Result<Self, BadRecord> {
        let mut parts = text.split(',');
        let mut next = || parts.next().ok_or(BadRecord);
        let end = |text: &str| match text {
            "*" => Ok(None),
            some => number(some).map(Some),
        };
        Ok(Self {
            epoch: number(next()?)?,
            log: next()?.parse()?,
            from: end(next()?)?,
            to: end(next()?)?,
        })
    }
}

/// The fields of a record of the first format.
fn fields<const N: usize>(text: &str) -> Result<[&str; N], BadRecord> {
    let text = text.strip_prefix("1 ").ok_or(BadRecord)?;
    let fields: Vec<_> = text.splitn(N, ' ').collect();
    fields.try_into().map_err(|_| BadRecord)
}

fn number<T: FromStr>(text: &str) -> Result<T, BadRecord> {
    text.parse().map_err(|_| BadRecord)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> OwnerRecord {
        OwnerRecord {
            epoch: 7,
            owner: Incarnation::new("n-2.example", 33),
            snapshot: None,
            segments: vec![Segment {
                epoch: 6,
                log: Incarnation::new("n1", 12),
                from: Some(4),
                to: Some(9),
            }],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut record = record();
        assert_eq!(record.to_string().parse(), Ok(record.clone()));
        record.segments.clear();
        record.snapshot = Some(SnapshotId {
            epoch: 5,
            number: 3,
            chunks: 2,
        });
        assert_eq!(record.to_string().parse(), Ok(record));
        for about in ["", "peers=10.0.0.1:7435 zone=a"] {
            let node = NodeRecord {
                id: 9,
                weight: 1,
                about: about.to_owned(),
            };
            assert_eq!(node.to_string().parse(), Ok(node));
        }
        for bad in ["", "1 ", "2 7 n@1 - ", "1 7 n - ", "1 7 n@1 - x;"] {
            assert_eq!(bad.parse::<OwnerRecord>(), Err(BadRecord), "{bad}");
        }
    }

    #[test]
    fn a_new_owner_is_listed_while_there_is_room() {
        let next = record().succeeded_by(8, Incarnation::new("n3", 40), None, 2);
        assert!(next.is_listed());
        assert_eq!(next.segments.len(), 2);
        let next = next.succeeded_by(9, Incarnation::new("n3", 40), Some(1), 2);
        assert!(!next.is_listed());
        assert_eq!(next.segments.len(), 2);
    }
}
