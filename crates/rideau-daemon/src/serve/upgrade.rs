//! A newer program takes over from this one, or this one from an older program.
//!
//! The older server starts the newer one with a socket as its standard input, and both say
//! over it what the machines of the core decide. What else has to be done is here, too.

mod last_lines;
mod newer;
mod older;
mod program;
mod words;

pub(super) use self::newer::Newer;
pub(super) use self::older::{Older, OlderTurn};
pub(super) use self::words::Offer;
