//! A goal beside what was measured.

use std::fmt;

use super::short;

#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    value: f64,
    wanted: String,
    pub(crate) met: bool,
}

impl Verdict {
    pub(crate) fn at_least(what: String, value: f64, min: f64) -> Self {
        Self {
            what,
            value,
            wanted: format!("at least {min}"),
            met: value >= min,
        }
    }

    pub(crate) fn at_most(what: String, value: f64, max: f64) -> Self {
        Self {
            what,
            value,
            wanted: format!("at most {max}"),
            met: value <= max,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, wanted, .. } = self;
        let value = short(self.value);
        let met = if self.met { "met" } else { "MISSED" };
        write!(f, "{what:<36}{value:>6}   {wanted:<14}{met}")
    }
}
