//! What several nodes decide alike, each by itself: which partition a name or a value
//! belongs to, and which node should own a partition.
//!
//! All of it is pure: nodes that see the same input decide the same.

mod partitions;
mod shares;
mod slots;

pub use partitions::{BadPartitions, Partitions};
pub use shares::{Node, shares};
pub use slots::{SLOTS, slot_of};
