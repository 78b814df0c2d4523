//! The way to the history from where it is asked for.
//!
//! What keeps it stands higher: it reads everything that is here.

use std::fmt;
use std::time::Duration;

/// How far values of a time are apart that is so long.
pub(crate) type SeriesStep = Box<dyn Fn(Duration) -> Duration + Send + Sync>;

/// The values of a series over the last time, the oldest first: when, and what. None if there
/// is no such series.
pub(crate) type SeriesValues = Box<dyn Fn(&str, Duration) -> Option<Vec<(u64, f32)>> + Send + Sync>;

/// The history, as those see it that ask for values.
pub(crate) struct SeriesReader {
    /// How far values are apart.
    pub(crate) step: SeriesStep,
    /// The values of a series.
    pub(crate) values: SeriesValues,
}

impl fmt::Debug for SeriesReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeriesReader").finish_non_exhaustive()
    }
}
