//! Why there is no answer, or no ranges at all.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rideau_core::allocator::{RangeError, Refused};

use crate::store::StoreError;

/// Why there is no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failed {
    /// It was refused, and nothing happened.
    Refused(Refused),
    /// The store failed: it is not known whether it happened.
    Store(Arc<StoreError>),
    /// This node lost a partition before it was written: it is not known whether it
    /// happened. A caller that asks again with the same id hears.
    Unknown {
        /// Which partition.
        partition: u32,
    },
    /// The ranges are closed.
    Closed,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Unknown { partition } => write!(
                f,
                "partition {partition} moved before this was written, and the outcome is not \
                 known: ask again with the same id"
            ),
            Self::Closed => f.write_str("the ranges are closed"),
        }
    }
}

impl Error for Failed {}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Why ranges cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be used.
    Store(StoreError),
    /// A range cannot be like that.
    Range {
        /// Which.
        name: String,
        /// Why.
        error: RangeError,
    },
    /// There is no thread to be had.
    Thread(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Range { name, error } => write!(f, "range `{name}`: {error}"),
            Self::Thread(error) => write!(f, "no thread can be started: {error}"),
        }
    }
}

impl Error for OpenError {}
