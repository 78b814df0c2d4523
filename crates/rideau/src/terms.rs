//! On what terms somebody waits.

use std::time::Duration;

use rideau_core::pool::Priority;
use rideau_core::queue;
use rideau_core::{Flow, Instant, Tag};

/// On what terms somebody asks or offers. The default: wait as long as the
/// queue lets one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Wait no longer than this.
    pub wait_max: Option<Duration>,
    /// Whose turn it takes in a fair queue.
    pub flow: Flow,
    /// What it can be cancelled by, together with others of the same tag.
    pub tag: Option<Tag>,
    /// Before whom it is served. Pools alone know priorities.
    pub priority: Priority,
}

impl Terms {
    /// Wait as long as the queue lets one.
    pub(crate) const USUAL: Self = Self {
        wait_max: None,
        flow: Flow(0),
        tag: None,
        priority: Priority::Normal,
    };

    /// The same terms for the core, from when the asker came.
    pub(crate) fn since(&self, sent: Instant, wait: bool) -> queue::Terms {
        queue::Terms {
            sent,
            deadline: self.wait_max.map(|wait_max| sent + wait_max),
            flow: self.flow,
            tag: self.tag,
            wait,
        }
    }
}
