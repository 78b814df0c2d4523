//! A span of time as a person reads it.

use std::fmt;
use std::time::Duration;

/// Written in milliseconds below a second, and in seconds from there on.
#[derive(Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 0.9995 {
            write!(f, "{:.0} ms", seconds * 1e3)
        } else {
            write!(f, "{seconds:.2} s")
        }
    }
}
