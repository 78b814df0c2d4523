//! Between which sizes a law decides, and that its options name such sizes.

use crate::settings::{OptionError, Rule};

/// The sizes between which a law decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// Open below.
    pub(super) min: usize,
    /// Closed from here on.
    pub(super) max: usize,
}

/// Fails unless `min` is within `max`.
pub(super) fn check_bounds(min: usize, max: usize) -> Result<(), OptionError> {
    if min > max {
        return Err(OptionError::new("min", Rule::Over { bound: "max" }));
    }
    Ok(())
}
