//! Mistakes that the simulator has to find, each against one sentence of the protocol.

use rideau_core::cluster::Planted;

use crate::laws::{self, Seeds};

/// A mistake: of the machine, or of what carries out its effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    Machine(Planted),
    /// A node is asked whether it serves before the register is, and not before the
    /// answer is written.
    CheckedOnce,
    /// The ends of holds are taken for wall time after a takeover.
    EndsByWall,
    /// The clock stops while the machine sleeps.
    ClockSleeps,
    /// Sections of any epoch are loaded.
    SectionsOfAnyEpoch,
    /// A holder counts from the answer on.
    SureFromAnswer,
    /// A change of the shared config does not say which version it is based on.
    ConfigOverwritten,
    /// Keys of records that are not written are not reported.
    UnwrittenKeysUnreported,
    /// A lease that is given back at another node is over before its row is dropped.
    AnsweredBeforeDrop,
}

impl Bug {
    pub(crate) const fn planted(self) -> Option<Planted> {
        match self {
            Self::Machine(planted) => Some(planted),
            _ => None,
        }
    }
}

const SEEDS_MAX: u64 = 2_000;

/// A test for each bug, so that each is named where it is not found.
macro_rules! finds {
    ($($name:ident: $bug:expr;)*) => {
        $(#[test]
        fn $name() {
            let found = laws::first_failure($bug, SEEDS_MAX);
            let (seed, why) = found.expect("the bug is found");
            println!("{:?}: seed {seed}: {why}", $bug);
        })*
    };
}

finds! {
    a_batch_without_fence_is_found: Bug::Machine(Planted::BatchWithoutFence);
    a_takeover_of_the_living_is_found: Bug::Machine(Planted::TakeoverOfLiving);
    a_lease_that_counts_from_the_answer_is_found: Bug::Machine(Planted::ValidFromAnswer);
    a_check_before_the_machine_alone_is_found: Bug::CheckedOnce;
    an_epoch_that_is_not_raised_is_found: Bug::Machine(Planted::EpochKept);
    a_batch_under_two_numbers_is_found: Bug::Machine(Planted::RetryWithNewNumber);
    two_batches_on_their_way_are_found: Bug::Machine(Planted::TwoInFlight);
    a_forgotten_segment_is_found: Bug::Machine(Planted::SegmentForgotten);
    a_log_that_is_trimmed_early_is_found: Bug::Machine(Planted::TrimmedEarly);
    a_keepalive_without_time_is_found: Bug::Machine(Planted::KeptWithoutTime);
    ends_by_the_wall_clock_are_found: Bug::EndsByWall;
    a_clock_that_sleeps_is_found: Bug::ClockSleeps;
    names_without_fences_are_found: Bug::Machine(Planted::NamesWithoutFence);
    a_hand_over_that_is_given_up_is_found: Bug::Machine(Planted::ReopenedHandOver);
    an_ask_that_gets_two_routes_is_found: Bug::Machine(Planted::RoutedTwice);
    names_that_are_served_before_all_reports_are_found:
        Bug::Machine(Planted::ReportsNotAwaited);
    a_node_that_is_struck_off_with_its_link_is_found: Bug::Machine(Planted::StruckOnLinkLoss);
    a_report_that_counts_twice_is_found: Bug::Machine(Planted::ReportsCountTwice);
    a_lease_that_is_freed_with_a_link_is_found: Bug::Machine(Planted::FreedOnLinkLoss);
    a_holder_that_counts_from_the_answer_is_found: Bug::SureFromAnswer;
    a_node_that_joins_without_reports_is_found: Bug::Machine(Planted::JoinedSilently);
    reports_of_a_view_that_lags_are_found: Bug::Machine(Planted::LaggingSet);
    a_report_that_is_sent_once_is_found: Bug::Machine(Planted::ReportedOnce);
    an_end_before_the_reports_is_found: Bug::Machine(Planted::EndedBeforeReports);
    an_answer_before_the_row_is_dropped_is_found: Bug::AnsweredBeforeDrop;
    an_old_link_that_is_read_is_found: Bug::Machine(Planted::OldLinkRead);
    sections_of_any_epoch_are_found: Bug::SectionsOfAnyEpoch;
    a_snapshot_that_is_named_early_is_found: Bug::Machine(Planted::NamedEarly);
    an_old_word_for_a_key_is_found: Bug::Machine(Planted::OldKeyEpoch);
    a_config_that_is_overwritten_is_found: Bug::ConfigOverwritten;
    unwritten_keys_that_are_not_reported_are_found: Bug::UnwrittenKeysUnreported;
    an_answer_for_a_later_keepalive_is_found: Bug::Machine(Planted::StreamKept);
}

#[test]
fn without_a_bug_the_same_seeds_pass() {
    Seeds::first(20).pass();
}
