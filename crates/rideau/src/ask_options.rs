//! On what terms an ask or an offer waits.

use std::time::Duration;

use rideau_core::queue;
use rideau_core::{Flow, Instant, Priority, Tag};

/// On what terms a caller asks or offers. The default: wait as long as the queue
/// lets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AskOptions {
    /// Wait for this long. A queue whose law keeps promises, as the default
    /// does, lets the ask wait until then.
    pub wait_max: Option<Duration>,
    /// Wait no longer than this if `wait_max` names no time. That is a limit and
    /// no promise: under overload the ask may be shed before.
    pub wait_default: Option<Duration>,
    /// The flow (tenant) that it belongs to in a fair queue.
    pub flow: Flow,
    /// The tag by which it can be cancelled, together with others of the same tag.
    pub tag: Option<Tag>,
    /// Before which others it is served. Pools alone know priorities.
    pub priority: Priority,
}

impl AskOptions {
    /// Wait for this long, and else as by default.
    ///
    /// ```
    /// use rideau::AskOptions;
    /// use std::time::Duration;
    ///
    /// let terms = AskOptions::within(Duration::from_millis(50));
    /// assert_eq!(terms.wait_max, Some(Duration::from_millis(50)));
    /// ```
    pub const fn within(wait_max: Duration) -> Self {
        Self {
            wait_max: Some(wait_max),
            ..Self::USUAL
        }
    }

    /// Wait as long as the queue lets one.
    pub(crate) const USUAL: Self = Self {
        wait_max: None,
        wait_default: None,
        flow: Flow(0),
        tag: None,
        priority: Priority::Normal,
    };

    /// The same terms for the core, from when the asker came.
    pub(crate) fn since(&self, sent: Instant, wait: bool) -> queue::AskOptions {
        queue::AskOptions {
            sent,
            deadline: self.limit().map(|limit| sent + limit),
            flow: self.flow,
            tag: self.tag,
            wait,
            promised: self.wait_max.is_some(),
        }
    }

    /// The longest wait on these terms.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait_max.or(self.wait_default)
    }
}
