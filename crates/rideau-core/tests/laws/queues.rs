//! What every queue obeys, whatever its law, order, limits and turns.
//!
//! The witness knows which asks wait and in which order, but no law: it looks
//! at what the queue did and checks that it was allowed to. Laws that are
//! simple enough are then compared with a plain line, decision by decision.

use std::time::Duration;

use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use rideau_core::queue::{FairOptions, Index, Options, Order, Overflow, Shedding, Turn};
use rideau_core::{Instant, Reason, Tag};

use crate::hall::{self, Guest, Hall, Input, NAMES, Outcome, Pause};
use crate::plain::Plain;

proptest! {
    #![proptest_config(crate::cases(4000))]

    #[test]
    fn every_queue_obeys_the_laws(
        options in any_options(),
        is_ordered in prop_oneof![3 => Just(true), 1 => Just(false)],
        history in hall::history(hall::input(options_or_worse())),
    ) {
        let options = told_apart(options, is_ordered);
        let mut hall = Hall::new(&options, is_ordered, 0);
        let mut witness = Witness::new(options, is_ordered);
        for (input, pause) in history {
            let input = match input {
                Input::Change(options) => Input::Change(told_apart(options, is_ordered)),
                other => other,
            };
            witness.step(&mut hall, &input, pause);
        }
        witness.close(&mut hall);
    }

    #[test]
    fn a_queue_with_a_simple_law_does_what_a_plain_line_does(
        options in hall::single(hall::simple_shedding()),
        is_ordered in any::<bool>(),
        history in hall::history(hall::input(hall::single(hall::simple_shedding()))),
    ) {
        compare_with_plain(&options, is_ordered, &history);
    }

    #[test]
    fn an_adaptive_queue_does_what_a_plain_line_does_under_codel_too(
        options in hall::single(hall::codel_shedding()),
        history in hall::history(hall::input(any_single())),
    ) {
        compare_with_plain(&options, true, &history);
    }

    #[test]
    fn a_queue_advanced_in_time_lets_no_ask_wait_over_the_timeout(
        options in hall::single(hall::simple_shedding()),
        wait_max in hall::duration(),
        history in hall::history(hall::input(Just(Options::default()))),
    ) {
        let shedding = Shedding::Timeout { wait_max };
        let mut hall = Hall::new(&Options { shedding, min: 0, ..options }, true, 0);
        let mut sent = Vec::new();
        for (input, pause) in history {
            let Pause::Span(span) = pause else {
                continue;
            };
            let until = hall.now + span;
            let mut gone = Vec::new();
            while let Some(due) = hall.deadline().filter(|due| *due <= until) {
                hall.now = due;
                gone.push((hall.act(&Input::Wait, None), due));
            }
            hall.now = until;
            if !matches!(input, Input::Change(_)) {
                let guest = hall.guest(&input);
                sent.extend(guest.map(|guest| guest.sent));
                gone.push((hall.act(&input, guest), until));
            }
            for (outcome, now) in gone {
                let waited = |id: usize| Duration::from_nanos(now - sent[id]);
                assert!(outcome.taken.is_none_or(|id| waited(id) < wait_max));
                for (id, reason) in outcome.shed {
                    let comes_late = id + 1 == sent.len();
                    assert!(reason != Reason::Timeout || waited(id) == wait_max || comes_late);
                }
            }
        }
    }
}

fn any_shedding() -> impl Strategy<Value = Shedding> {
    prop_oneof![2 => hall::simple_shedding(), 1 => hall::codel_shedding()]
}

fn any_single() -> impl Strategy<Value = Options> {
    hall::single(any_shedding())
}

fn any_options() -> impl Strategy<Value = Options> {
    let shedding = prop_oneof![4 => any_shedding(), 1 => hall::paced_shedding()];
    let single = hall::single(shedding);
    (single, option::of(hall::fair())).prop_map(|(single, fair)| Options { fair, ..single })
}

/// A law that has those with a promise in a list of their own serves by stamps,
/// and only in order are these the order in which all came.
fn told_apart(options: Options, is_ordered: bool) -> Options {
    match options.shedding {
        Shedding::Paced { .. } if !is_ordered => Options {
            shedding: Shedding::Never,
            ..options
        },
        _ => options,
    }
}

/// Options of which every fifth breaks a rule.
fn options_or_worse() -> impl Strategy<Value = Options> {
    let break_rule = |options| Options {
        min: 3,
        max: Some(2),
        ..options
    };
    prop_oneof![4 => any_options(), 1 => any_options().prop_map(break_rule)]
}

fn compare_with_plain(options: &Options, is_ordered: bool, history: &[(Input, Pause)]) {
    let mut hall = Hall::new(options, is_ordered, 0);
    let mut plain = Plain::new(options, 0);
    for (input, pause) in history {
        hall.pause(*pause);
        let guest = hall.guest(input);
        let (mut taken, mut left) = (None, Vec::new());
        match input {
            Input::Push { .. } => plain.push(guest.unwrap(), hall.now),
            Input::Pop => taken = plain.pop(hall.now),
            Input::Wait => plain.wait(hall.now),
            Input::Leave(id) => left.extend(plain.leave(*id, hall.now).then_some(*id)),
            Input::LeaveTagged(tag) => {
                let is_tagged = |guest: &Guest| guest.tag == Some(*tag);
                while let Some(last) = plain
                    .waiting
                    .iter()
                    .map(|who| who.guest)
                    .filter(is_tagged)
                    .max_by_key(|guest| guest.id)
                {
                    assert!(plain.leave(last.id, hall.now));
                    left.push(last.id);
                }
            }
            Input::Change(options) => plain.change(options, hall.now),
        }
        let wanted = Outcome {
            shed: std::mem::take(&mut plain.shed),
            taken,
            left,
            changed: matches!(input, Input::Change(_)),
        };
        assert_eq!(hall.act(input, guest), wanted, "{input:?} at {}", hall.now);
        assert_eq!(hall.queue.len(), plain.waiting.len());
        assert_eq!(
            hall.deadline(),
            plain.deadline(),
            "{input:?} at {}",
            hall.now
        );
    }
}

/// The waiting asks, oldest first, and the options.
struct Witness {
    options: Options,
    is_ordered: bool,
    /// Some may stand in a line that several flows share.
    is_mixed: bool,
    waiting: Vec<Guest>,
    came: usize,
    ended: usize,
}

impl Witness {
    fn new(options: Options, is_ordered: bool) -> Self {
        Self {
            is_mixed: may_mix(&options),
            options,
            is_ordered,
            waiting: Vec::new(),
            came: 0,
            ended: 0,
        }
    }

    fn step(&mut self, hall: &mut Hall, input: &Input, pause: Pause) {
        hall.pause(pause);
        let due = hall.deadline();
        let before = format!("{:?}", hall.queue);
        let guest = hall.guest(input);
        self.came += usize::from(guest.is_some());
        let outcome = hall.act(input, guest);
        self.ended += outcome.shed.len() + outcome.left.len();
        self.ended += usize::from(outcome.taken.is_some());

        let is_refused = matches!(input, Input::Change(_)) && !outcome.changed;
        let is_unknown = matches!(input, Input::Leave(_)) && outcome.left.is_empty();
        if is_refused || is_unknown {
            assert_eq!(outcome, Outcome::default());
            assert_eq!(format!("{:?}", hall.queue), before, "nothing changes");
            return;
        }
        if let Input::LeaveTagged(tag) = input {
            return self.leave_together(hall, *tag, &outcome);
        }
        self.waiting
            .retain(|guest| !outcome.left.contains(&guest.id));
        self.check_idle(input, &outcome, due, hall.now, guest);
        self.check_deadlines(&outcome, guest, hall.now);
        let is_newest_first = self.newest_first(input, &outcome, hall.now);
        match input {
            Input::Change(options) => self.change(options, &outcome),
            _ => self.check_room(&outcome, guest),
        }
        let lens = self.check_minimum(&outcome, guest, input);
        self.waiting.extend(guest);
        self.drop_shed(&outcome);
        self.check_taken(&outcome, is_newest_first, matches!(input, Input::Pop));
        self.check_looks(hall, lens);
    }

    /// All asks are let go, and no trace is left.
    fn close(&mut self, hall: &mut Hall) {
        let mut shed = Vec::new();
        hall.queue.close(&mut hall.ledger, &mut shed);
        let reasons_hold = shed.iter().all(|gone| gone.reason == Reason::Closed);
        assert!(reasons_hold && shed.len() == self.waiting.len());
        for gone in shed {
            assert!(hall.ledger.close(gone.ticket).is_some());
            self.ended += 1;
        }
        assert_eq!(self.came, self.ended, "each ticket has exactly one end");
        assert!(hall.queue.is_empty() && hall.ledger.is_empty());
        assert!((0..NAMES).all(|tag| hall.ledger.newest(Tag(tag)).is_none()));
        assert_eq!(hall.deadline(), None);
        let (now, mut shed) = (hall.instant(), Vec::new());
        assert_eq!(
            hall.queue.pop(&mut hall.ledger, now, &mut shed),
            Turn::Empty
        );
        assert!(shed.is_empty());
        assert!(self.options.fair.is_none() || hall.queue.flows() == 0);
    }

    /// All with the tag are gone, the newest first but for those shed on the
    /// way.
    fn leave_together(&mut self, hall: &Hall, tag: u64, outcome: &Outcome) {
        assert!(outcome.left.windows(2).all(|pair| pair[0] > pair[1]));
        let is_gone = |guest: &Guest| {
            outcome.left.contains(&guest.id) || outcome.shed.iter().any(|gone| gone.0 == guest.id)
        };
        let tagged = |guest: &Guest| guest.tag == Some(tag);
        assert!(
            self.waiting
                .iter()
                .filter(|guest| tagged(guest))
                .all(is_gone)
        );
        self.waiting.retain(|guest| !is_gone(guest));
        assert_eq!(hall.queue.len(), self.waiting.len());
    }

    /// The law rests until it is due.
    fn check_idle(
        &self,
        input: &Input,
        outcome: &Outcome,
        due: Option<u64>,
        now: u64,
        guest: Option<Guest>,
    ) {
        let may_act = match input {
            // A newcomer may lift the line over the minimum.
            Input::Push { .. } => {
                self.options.fair.is_some() || self.waiting.len() <= self.options.min as usize
            }
            Input::Pop => matches!(self.options.shedding, Shedding::MinDelay { .. }),
            Input::Change(_) => true,
            Input::Wait | Input::Leave(_) | Input::LeaveTagged(_) => false,
        };
        let may_act = may_act || matches!(self.options.shedding, Shedding::Paced { .. });
        if may_act || !self.is_ordered || due.is_some_and(|due| due <= now) {
            return;
        }
        for (id, reason) in &outcome.shed {
            // A standing queue settles a newcomer's limit when it comes.
            let is_new = guest.is_some_and(|guest| guest.id == *id);
            assert!(!is_lawful(*reason) || is_new, "not due: {outcome:?}");
        }
    }

    /// An ask goes at its own deadline, and no other ask goes for that reason;
    /// a law that settles limits may have come first.
    fn check_deadlines(&self, outcome: &Outcome, guest: Option<Guest>, now: u64) {
        for guest in self.waiting.iter().chain(&guest) {
            let gone = outcome.shed.iter().find(|(id, _)| *id == guest.id);
            let reason = gone.map(|(_, reason)| *reason);
            if guest.deadline <= now {
                assert!(matches!(reason, Some(Reason::Deadline | Reason::Standing)));
            } else {
                assert_ne!(reason, Some(Reason::Deadline));
            }
        }
    }

    /// No ask goes for want of room unless one came to a full line.
    fn check_room(&self, outcome: &Outcome, guest: Option<Guest>) {
        let full = shed_for(outcome, |reason| reason == Reason::Full);
        let Some(line) = guest.map(|guest| self.line(&guest)) else {
            return assert_eq!(full, []);
        };
        let (guest, max) = (guest.unwrap(), self.options.max);
        let shed_first = shed_for(outcome, |reason| {
            matches!(reason, Reason::Deadline | Reason::Standing)
        });
        let there: Vec<_> = self
            .waiting
            .iter()
            .filter(|other| line.is_some() && self.line(other) == line)
            .map(|other| other.id)
            .filter(|id| !shed_first.contains(id))
            .collect();
        if line.is_none() || self.has_own_limits() || shed_first.contains(&guest.id) {
            return;
        }
        let is_full = max.is_some_and(|max| there.len() >= max as usize);
        let wanted = match self.options.overflow {
            _ if !is_full => None,
            Overflow::Oldest if !there.is_empty() => Some(there[0]),
            Overflow::Oldest | Overflow::Newest => Some(guest.id),
        };
        assert_eq!(full, Vec::from_iter(wanted));
    }

    /// All keep their places, but for those over the new limit.
    fn change(&mut self, options: &Options, outcome: &Outcome) {
        let old = std::mem::replace(&mut self.options, options.clone());
        let index = |fair: &Option<FairOptions>| fair.as_ref().map(|fair| fair.index);
        let is_new = index(&old.fair) != index(&options.fair) || self.waiting.is_empty();
        if old.fair.is_some() && is_new {
            self.waiting.sort_by_key(|guest| (guest.sent, guest.id));
        }
        self.is_mixed = may_mix(options) || (self.is_mixed && !is_new);
        let Some(max) = options.max else {
            return assert_eq!(shed_for(outcome, |reason| reason == Reason::Full), []);
        };
        if self.has_own_limits() {
            return;
        }
        let mut full = shed_for(outcome, |reason| reason == Reason::Full);
        full.sort_unstable();
        let mut wanted = Vec::new();
        for line in self.lines() {
            let there: Vec<_> = line
                .iter()
                .map(|guest| guest.id)
                .filter(|id| !outcome.shed.contains(&(*id, Reason::Deadline)))
                .collect();
            let surplus = there.len().saturating_sub(max as usize);
            wanted.extend(match options.overflow {
                Overflow::Oldest => &there[..surplus],
                Overflow::Newest => &there[there.len() - surplus..],
            });
        }
        wanted.sort_unstable();
        assert!(self.is_mixed || full == wanted, "{full:?} {wanted:?}");
    }

    /// The law keeps the minimum, but for an ask that is served out of it.
    /// Gives how many are left in the longest line.
    fn check_minimum(&self, outcome: &Outcome, guest: Option<Guest>, input: &Input) -> usize {
        let min = self.options.min as usize;
        let mut there: Vec<_> = self.waiting.clone();
        there.extend(guest.filter(|guest| !outcome.shed.contains(&(guest.id, Reason::Full))));
        for (id, reason) in &outcome.shed {
            let Some(at) = there.iter().position(|guest| guest.id == *id) else {
                continue;
            };
            let gone = there.remove(at);
            let line = self.line(&gone);
            let left = there
                .iter()
                .filter(|other| self.line(other) == line)
                .count();
            let is_served = matches!(input, Input::Pop);
            if line.is_some() && is_lawful(*reason) && !is_served {
                assert!(left >= min, "{left} left: {outcome:?}");
            }
            assert!(!is_lawful(*reason) || line.is_none() || left + 1 >= min);
        }
        let taken = |guest: &&Guest| outcome.taken != Some(guest.id);
        let rest: Vec<_> = there.iter().filter(taken).collect();
        let len = |guest: &Guest| {
            rest.iter()
                .filter(|other| self.line(other) == self.line(guest))
                .count()
        };
        rest.iter().map(|guest| len(guest)).max().unwrap_or(0)
    }

    /// Whether a serve took the newest of the line it took from.
    fn newest_first(&self, input: &Input, outcome: &Outcome, now: u64) -> bool {
        let Order::Adaptive { slow } = self.options.order else {
            return self.options.order == Order::Lifo;
        };
        let taken = self
            .waiting
            .iter()
            .find(|guest| outcome.taken == Some(guest.id));
        let (Input::Pop, Some(taken)) = (input, taken) else {
            return false;
        };
        let oldest = self.waiting.iter().find(|guest| {
            let reason = outcome.shed.iter().find(|(id, _)| *id == guest.id);
            let is_out = matches!(reason, Some((_, Reason::Deadline | Reason::Standing)));
            self.line(guest) == self.line(taken) && !is_out
        });
        oldest.is_some_and(|oldest| Duration::from_nanos(now - oldest.sent) >= slow)
    }

    fn drop_shed(&mut self, outcome: &Outcome) {
        for (id, _) in &outcome.shed {
            let at = self.waiting.iter().position(|guest| guest.id == *id);
            self.waiting.remove(at.expect("only a waiting ask is shed"));
        }
    }

    /// A serve takes the oldest or the newest of a line, if any ask waits.
    fn check_taken(&mut self, outcome: &Outcome, is_newest_first: bool, is_pop: bool) {
        let Some(id) = outcome.taken else {
            return assert!(!is_pop || self.waiting.is_empty());
        };
        let at = self.waiting.iter().position(|guest| guest.id == id);
        let at = at.expect("only a waiting ask is served");
        let line = self.line(&self.waiting[at]);
        let mut others = if is_newest_first {
            self.waiting[at + 1..].iter()
        } else {
            self.waiting[..at].iter()
        };
        assert!(line.is_none() || !others.any(|other| self.line(other) == line));
        self.waiting.remove(at);
    }

    /// What the queue tells about itself is true.
    fn check_looks(&self, hall: &Hall, longest: usize) {
        assert_eq!(hall.queue.len(), self.waiting.len());
        assert_eq!(hall.ledger.len(), self.waiting.len());
        assert_eq!(hall.queue.is_empty(), self.waiting.is_empty());
        let oldest = hall.queue.oldest().map(Instant::as_nanos);
        if !self.is_mixed || self.is_ordered {
            let lines = self.lines();
            let wanted = lines.iter().map(|line| line[0].sent).min();
            assert_eq!(oldest, wanted);
        }
        for guest in &self.waiting {
            let sent = Instant::from_nanos(guest.sent);
            let no = hall.queue.refusal(Reason::Busy, sent, hall.instant());
            assert_eq!(no.waited, Duration::from_nanos(hall.now - guest.sent));
            assert_eq!(no.len, self.waiting.len());
        }
        if self.options.fair.is_some() && hall.queue.flows() == 0 {
            assert!(!hall.queue.is_shedding(hall.instant()));
        }
        self.check_deadline(hall, longest);
    }

    fn check_deadline(&self, hall: &Hall, longest: usize) {
        let deadline = hall.deadline();
        assert!(!self.is_ordered || deadline.is_none_or(|at| at >= hall.now));
        let own = self.waiting.iter().map(|guest| guest.deadline).min();
        let own = own.filter(|at| *at != u64::MAX);
        if let Some(own) = own {
            return assert!(deadline.is_some_and(|at| at <= own));
        }
        let is_timeless = matches!(
            self.options.shedding,
            Shedding::Never
                | Shedding::Timeout {
                    wait_max: Duration::MAX
                }
        );
        let is_spare = longest > self.options.min as usize;
        match self.options.shedding {
            _ if is_timeless => assert_eq!(deadline, None),
            // It protects more than the minimum.
            Shedding::Paced { .. } if is_spare => (),
            _ if is_spare && !self.is_mixed => assert!(deadline.is_some()),
            _ if is_spare => (),
            // A limit may come while the minimum keeps its owner.
            Shedding::Standing { .. } => (),
            _ => assert_eq!(deadline, None),
        }
    }

    fn has_own_limits(&self) -> bool {
        matches!(
            self.options.shedding,
            Shedding::Standing { .. } | Shedding::Paced { .. }
        )
    }

    /// The line that an ask stands in, if that can be told.
    fn line(&self, guest: &Guest) -> Option<u64> {
        let flow = if self.options.fair.is_some() {
            guest.flow
        } else {
            0
        };
        (!self.is_mixed).then_some(flow)
    }

    /// All asks by line; one line if they cannot be told.
    fn lines(&self) -> Vec<Vec<Guest>> {
        let mut lines: Vec<Vec<Guest>> = Vec::new();
        for guest in &self.waiting {
            let same = |line: &&mut Vec<Guest>| self.line(&line[0]) == self.line(guest);
            match lines.iter_mut().find(same) {
                Some(line) => line.push(*guest),
                None => lines.push(vec![*guest]),
            }
        }
        lines
    }
}

/// With few lines it cannot be told from outside which asks share one.
fn may_mix(options: &Options) -> bool {
    let fair = options.fair.as_ref();
    fair.is_some_and(|fair| fair.index != Index::Flow || fair.flows_max.get() < 100)
}

fn is_lawful(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Timeout | Reason::CoDel | Reason::Bound | Reason::MinDelay | Reason::Standing
    )
}

fn shed_for(outcome: &Outcome, is_it: impl Fn(Reason) -> bool) -> Vec<usize> {
    let ids = outcome.shed.iter().filter(|(_, reason)| is_it(*reason));
    ids.map(|(id, _)| *id).collect()
}
