//! Why a start came to no end of its own.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use rideau_core::Brief;

/// Why a start came to no end of its own: what stands where its manager's error would.
///
/// It is found by `downcast_ref` on [`WhyNot::start_error`](crate::WhyNot::start_error).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StartFault {
    /// It took longer than `start_timeout`, which is this, or was called off.
    TimedOut(Duration),
    /// The manager panicked, with this message.
    Panicked(String),
    /// The runtime on which members live has ended.
    RuntimeEnded,
}

impl StartFault {
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Panicked(message.unwrap_or("a panic without a message").into())
    }
}

impl fmt::Display for StartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(limit) => write!(
                f,
                "the start did not end within start_timeout ({})",
                Brief(*limit)
            ),
            Self::Panicked(message) => write!(f, "the start panicked: {message}"),
            Self::RuntimeEnded => f.write_str("the runtime of the pool's members has ended"),
        }
    }
}

impl Error for StartFault {}
