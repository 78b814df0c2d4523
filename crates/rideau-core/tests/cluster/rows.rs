//! The rows of one entry node and one owner, step by step.

use std::time::Duration;

use rideau_core::Instant;
use rideau_core::cluster::{
    EntryRows, Incarnation, Options, ReportedRow, RowAnswer, RowEffect, RowMessage, RowNews,
};

/// The entry node `a`, and what it wanted so far.
struct Entry {
    rows: EntryRows,
    effects: Vec<RowEffect>,
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// An owner.
fn owner() -> Incarnation {
    Incarnation::new("b", 7)
}

impl Entry {
    /// A node with a link to the owner of partition 0, which has heard of everything.
    fn linked() -> Self {
        let mut options = Options::new("sim", "a");
        options.partitions = 1;
        let mut entry = Self {
            rows: EntryRows::new(options),
            effects: Vec::new(),
        };
        entry.rows.joined(Incarnation::new("a", 3));
        entry.rows.linked(&owner(), 1, &mut entry.effects);
        entry.owned(1);
        entry.heard(
            1,
            RowMessage::Reported {
                partition: 0,
                epoch: 1,
            },
        );
        entry.effects.clear();
        entry
    }

    fn owned(&mut self, epoch: u64) {
        let effects = &mut self.effects;
        self.rows.owned(0, epoch, &owner(), at(1_000), effects);
    }

    fn heard(&mut self, link: u64, message: RowMessage) {
        self.rows.heard(&owner(), link, &message, &mut self.effects);
    }

    /// Holder 9 asks in epoch 1, at the first second.
    fn asks(&mut self, ticket: u64) {
        self.rows.asked(ticket, 0, 9, b"x", at(0));
        let effects = &mut self.effects;
        self.rows.routed(ticket, &owner(), 1, at(0), effects);
    }

    fn granted(&mut self, ticket: u64, epoch: u64) {
        let message = RowMessage::Answer {
            partition: 0,
            epoch,
            ticket,
            answer: RowAnswer::Granted { fence: 40 },
        };
        self.heard(1, message);
    }

    fn holds(&mut self, ticket: u64) {
        self.asks(ticket);
        self.granted(ticket, 1);
        self.effects.clear();
    }

    fn taken(&mut self) -> Vec<RowEffect> {
        std::mem::take(&mut self.effects)
    }
}

fn sent(message: RowMessage) -> RowEffect {
    RowEffect::Send {
        to: owner(),
        message,
    }
}

fn end(epoch: u64, ticket: u64) -> RowEffect {
    end_with(epoch, ticket, b"")
}

fn end_with(epoch: u64, ticket: u64, how: &[u8]) -> RowEffect {
    sent(RowMessage::End {
        partition: 0,
        epoch,
        ticket,
        how: how.to_vec(),
    })
}

fn told(ticket: u64, news: RowNews) -> RowEffect {
    RowEffect::Tell {
        ticket,
        holder: 9,
        news,
    }
}

fn row(ticket: u64, fence: Option<u64>) -> ReportedRow {
    ReportedRow {
        ticket,
        fence,
        age: Duration::from_secs(1),
        what: b"x".to_vec(),
    }
}

#[test]
fn a_new_owner_is_told_of_leases_and_asks_and_older_answers_do_not_count() {
    let mut entry = Entry::linked();
    entry.holds(1);
    entry.asks(2);
    entry.effects.clear();
    entry.owned(2);
    let report = sent(RowMessage::Report {
        partition: 0,
        epoch: 2,
        rows: vec![row(1, Some(40)), row(2, None)],
    });
    assert_eq!(entry.taken(), [report]);
    entry.granted(2, 1);
    assert_eq!(entry.taken(), [], "it was granted in the epoch before");
    entry.heard(
        1,
        RowMessage::DropRow {
            partition: 0,
            epoch: 1,
            ticket: 1,
            how: Vec::new(),
        },
    );
    assert_eq!(entry.taken(), []);
    entry.granted(2, 2);
    let granted = RowNews::Granted { fence: 40 };
    assert_eq!(entry.taken(), [told(2, granted)]);
    assert_eq!(entry.rows.leases().count(), 2);
}

#[test]
fn a_report_is_repeated_until_it_is_acknowledged() {
    let mut entry = Entry::linked();
    entry.owned(2);
    entry.rows.unlinked(&owner(), 1, &mut entry.effects);
    entry.effects.clear();
    entry.rows.linked(&owner(), 2, &mut entry.effects);
    let (partition, epoch) = (0, 2);
    let report = RowMessage::Report {
        partition,
        epoch,
        rows: Vec::new(),
    };
    assert_eq!(entry.taken(), [sent(report)]);
    assert_eq!(entry.rows.unheard(), 1);
    let reported = RowMessage::Reported { partition, epoch };
    entry.heard(1, reported.clone());
    assert_eq!(entry.rows.unheard(), 1, "the old link is not read");
    entry.heard(2, reported);
    assert_eq!(entry.rows.unheard(), 0);
}

#[test]
fn an_ask_is_given_up_with_its_link_and_its_end_goes_first_on_the_next() {
    let mut entry = Entry::linked();
    entry.holds(1);
    entry.asks(2);
    entry.effects.clear();
    entry.rows.unlinked(&owner(), 1, &mut entry.effects);
    assert_eq!(entry.taken(), [told(2, RowNews::Down)]);
    assert_eq!(entry.rows.leases().count(), 1, "leases stay");
    entry.rows.linked(&owner(), 2, &mut entry.effects);
    assert_eq!(entry.taken(), [end(1, 2)]);
    entry.rows.linked(&owner(), 3, &mut entry.effects);
    assert_eq!(entry.taken(), [end(1, 2)], "until it is heard");
    let (partition, epoch, ticket) = (0, 1, 2);
    entry.heard(
        3,
        RowMessage::Ended {
            partition,
            epoch,
            ticket,
        },
    );
    assert_eq!(entry.rows.unheard(), 0);
}

#[test]
fn a_grant_that_finds_no_ask_is_given_back() {
    let mut entry = Entry::linked();
    entry.granted(5, 1);
    assert_eq!(entry.taken(), [end(1, 5)]);
}

#[test]
fn without_a_link_to_the_new_owner_asks_are_given_up_and_leases_reported() {
    let mut entry = Entry::linked();
    entry.holds(1);
    entry.asks(2);
    entry.effects.clear();
    let other = Incarnation::new("c", 8);
    let effects = &mut entry.effects;
    entry.rows.owned(0, 2, &other, at(1_000), effects);
    assert_eq!(entry.taken(), [told(2, RowNews::Down)]);
    entry.rows.linked(&other, 1, &mut entry.effects);
    let rows = vec![row(1, Some(40))];
    let (partition, epoch) = (0, 2);
    let message = RowMessage::Report {
        partition,
        epoch,
        rows,
    };
    assert_eq!(entry.taken(), [RowEffect::Send { to: other, message }]);
}

#[test]
fn a_node_vouches_for_half_a_lease_at_most_and_for_nothing_when_it_is_unsure() {
    let mut entry = Entry::linked();
    let millis = Duration::from_millis;
    assert_eq!(entry.rows.sure(9, at(4_000), at(0)), millis(2_500));
    assert_eq!(entry.rows.sure(9, at(4_000), at(3_000)), millis(1_000));
    assert_eq!(entry.rows.sure(9, at(4_000), at(4_500)), millis(0));
}

#[test]
fn a_lease_of_an_ended_holder_goes_when_no_clock_can_rely_on_it() {
    let mut entry = Entry::linked();
    entry.holds(1);
    entry.rows.sure(9, at(4_000), at(0));
    let effects = &mut entry.effects;
    entry.rows.evicted(9, at(100), effects);
    assert_eq!(entry.rows.deadline(), Some(at(3_100)));
    entry.rows.advance(at(3_099), effects);
    assert_eq!(effects[..], []);
    entry.rows.advance(at(3_100), effects);
    assert_eq!(entry.taken(), [end(1, 1)]);
    // A client that closes its connection relies on nothing.
    entry.holds(2);
    entry.rows.sure(9, at(9_000), at(5_000));
    entry.rows.closed(9, &mut entry.effects);
    assert_eq!(entry.taken(), [end(1, 2)]);
}

#[test]
fn a_lease_that_the_node_takes_back_goes_when_it_does_not_vouch_for_it() {
    let mut entry = Entry::linked();
    entry.holds(1);
    entry.holds(2);
    entry.rows.sure(9, at(4_000), at(0));
    let effects = &mut entry.effects;
    entry.rows.revoked(1, b"silent".to_vec(), at(100), effects);
    assert_eq!(effects[..], []);
    entry.rows.advance(at(3_100), effects);
    assert_eq!(entry.taken(), [end_with(1, 1, b"silent")]);
    let effects = &mut entry.effects;
    entry.rows.revoked(2, Vec::new(), at(3_200), effects);
    assert_eq!(
        entry.taken(),
        [end(1, 2)],
        "it vouches for nothing any more"
    );
}
