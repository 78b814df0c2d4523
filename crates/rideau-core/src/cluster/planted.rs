//! Bugs that the simulator has to find. They exist only with the feature `planted`, which
//! no program is built with.

/// One mistake, each against one sentence of the protocol.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A batch is written without comparing the node's key.
    BatchWithoutFence,
    /// A partition of a living node is taken when the link to that node breaks.
    TakeoverOfLiving,
    /// A keepalive counts from its answer, not from when it was sent.
    ValidFromAnswer,
    /// A hand-over of a node to itself does not raise the epoch.
    EpochKept,
    /// A batch of unknown outcome is written again under a new number.
    RetryWithNewNumber,
    /// The next batch is written before the last is known to be.
    TwoInFlight,
    /// The third segment drops the first.
    SegmentForgotten,
    /// Batches are deleted before the snapshot that covers them is named.
    TrimmedEarly,
    /// A keepalive that answers no time counts as one that does.
    KeptWithoutTime,
    /// Compares ask for a name, not for one life of it.
    NamesWithoutFence,
    /// A parked ask gets a route and stays parked.
    RoutedTwice,
    /// A hand-over of unknown outcome is given up.
    ReopenedHandOver,
    /// Names are served before all reports are in.
    ReportsNotAwaited,
    /// A node is not waited for when its link breaks.
    StruckOnLinkLoss,
    /// Each copy of a report counts.
    ReportsCountTwice,
    /// An entry node frees what is held when the link to the owner breaks.
    FreedOnLinkLoss,
    /// A node that joins does not report.
    JoinedSilently,
    /// The nodes that are waited for are those of an older view.
    LaggingSet,
    /// A report is not repeated.
    ReportedOnce,
    /// What is to end before the reports are in is sought at once.
    EndedBeforeReports,
    /// What is unread in a link that was replaced is read.
    OldLinkRead,
    /// A snapshot is named before all that it shows is written.
    NamedEarly,
    /// A late answer counts for a later keepalive.
    StreamKept,
    /// The owner of a value takes the word of any owner of a key, however old.
    OldKeyEpoch,
}

/// Whether this bug is switched on.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($options:expr, $bug:ident) => {
        $options.planted == Some($crate::cluster::Planted::$bug)
    };
}

/// No bug is switched on.
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($options:expr, $bug:ident) => {{
        let _ = &$options;
        false
    }};
}

pub(super) use planted;
