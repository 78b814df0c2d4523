//! Rules that every law of a queue has to keep.

use std::fmt::Write;
use std::ops::Range;

use super::span;
use crate::ledger::Ledger;
use crate::queue::{AskOptions, Options, Order, Queue, Shed, Shedding};
use crate::refusal::Reason;
use crate::rng::Rng;
use crate::time::Instant;

/// How many things happen in one schedule.
const STEPS: u32 = 400;
/// A queue whose time has come is advanced so often at one instant at most.
const ROUNDS_MAX: u32 = 1000;

/// Check a law in schedules of these numbers:
///
/// - an ask is served or shed once, and none is lost;
/// - the law sheds none while no more than `min` wait, and none that has not
///   waited;
/// - whenever the queue is due, advancing it makes it due later, so that no
///   driver spins;
/// - the same schedule ends the same.
///
/// # Panics
///
/// If a rule is broken.
pub fn check_shedding(shedding: &Shedding, schedules: Range<u64>) {
    for number in schedules {
        let once = Schedule::run(shedding, number);
        let again = Schedule::run(shedding, number);
        assert_eq!(once, again, "schedule {number}: the law is not pure");
    }
}

struct Schedule {
    number: u64,
    rng: Rng,
    now: Instant,
    min: usize,
    queue: Queue,
    ledger: Ledger<()>,
    came: usize,
    ended: usize,
    /// A log of outcomes, to compare.
    told: String,
}

impl Schedule {
    fn run(shedding: &Shedding, number: u64) -> String {
        let mut rng = Rng::new(number);
        let now = Instant::from_nanos(rng.below(1 << 40));
        let min = u32::try_from(rng.below(4)).expect("it is small");
        let options = Options {
            order: [Order::Fifo, Order::Lifo][usize::from(rng.below(4) == 0)],
            shedding: shedding.clone(),
            min,
            max: None,
            ..Options::default()
        };
        let queue = Queue::new(options, now).expect("the options keep their rules");
        let mut schedule = Self {
            number,
            rng,
            now,
            min: min as usize,
            queue,
            ledger: Ledger::default(),
            came: 0,
            ended: 0,
            told: String::new(),
        };
        for _ in 0..STEPS {
            schedule.step();
        }
        schedule.close();
        schedule.told
    }

    fn step(&mut self) {
        match self.rng.below(5) {
            0 | 1 => self.push(),
            2 | 3 => self.pop(),
            _ => self.pause(),
        }
        let (came, waits) = (self.came, self.queue.len());
        let ended = self.ended;
        assert_eq!(came, ended + waits, "{}: an ask was lost", self.place());
    }

    fn push(&mut self) {
        let mut terms = AskOptions::new(self.now);
        if self.rng.below(3) == 0 {
            terms.deadline = Some(self.now.after(span(&mut self.rng)));
        }
        let ticket = self.ledger.open(());
        self.came += 1;
        let mut shed = Vec::new();
        let before = self.queue.len() + 1;
        self.queue
            .push(ticket, &terms, &mut self.ledger, self.now, &mut shed);
        self.end_shed(before, &shed);
    }

    fn pop(&mut self) {
        let (mut shed, before) = (Vec::new(), self.queue.len());
        let turn = self.queue.pop(&mut self.ledger, self.now, &mut shed);
        self.end_shed(before, &shed);
        if let Some(ticket) = turn.ticket() {
            let sent = self.ledger.sent(ticket);
            let _ = write!(self.told, "served {};", self.now.nanos_since(sent));
            assert!(
                self.ledger.close(ticket).is_some(),
                "{}: it was served twice",
                self.place()
            );
            self.ended += 1;
        }
    }

    /// Let time pass, and advance the queue whenever it is due.
    fn pause(&mut self) {
        let until = self.now.after(span(&mut self.rng));
        let mut rounds = 0;
        while let Some(due) = self.queue.deadline()
            && due <= until
        {
            rounds = if due > self.now { 0 } else { rounds + 1 };
            assert!(
                rounds < ROUNDS_MAX,
                "{}: the queue is due again and again at one instant",
                self.place()
            );
            self.now = self.now.max(due);
            let (mut shed, before) = (Vec::new(), self.queue.len());
            self.queue.advance(&mut self.ledger, self.now, &mut shed);
            self.end_shed(before, &shed);
        }
        self.now = until;
    }

    /// All that were shed out of `before` that waited.
    fn end_shed(&mut self, before: usize, shed: &[Shed]) {
        let mut left = before;
        for shed in shed {
            let sent = self.ledger.sent(shed.ticket);
            let waited = self.now.nanos_since(sent);
            let _ = write!(self.told, "{} {waited};", shed.reason.word());
            if !matches!(shed.reason, Reason::Deadline | Reason::Timeout) {
                let place = self.place();
                assert!(left > self.min, "{place}: the law shed a protected ask");
                assert!(
                    waited > 0,
                    "{place}: the law shed an ask that had not waited"
                );
            }
            assert!(
                self.ledger.close(shed.ticket).is_some(),
                "{}: it was shed twice",
                self.place()
            );
            left -= 1;
            self.ended += 1;
        }
    }

    fn close(&mut self) {
        let mut shed = Vec::new();
        self.queue.close(&mut self.ledger, &mut shed);
        for shed in shed {
            assert!(self.ledger.close(shed.ticket).is_some());
        }
        assert!(self.ledger.is_empty(), "{}: an ask was lost", self.place());
    }

    fn place(&self) -> String {
        format!("schedule {} at {:?}", self.number, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::CustomLaw;
    use crate::settings::Settings;

    #[test]
    fn the_laws_of_the_library_keep_the_rules() {
        for words in [
            "kind=never",
            "kind=timeout timeout=10ms",
            "kind=codel target=5ms interval=100ms",
            "kind=bounded-codel target=5ms interval=100ms wait_max=50ms",
            "kind=min-delay target=5ms interval=100ms",
            "kind=standing target=5ms interval=100ms",
            "kind=paced",
        ] {
            let options = Options::parse(Settings::parse(words).unwrap()).unwrap();
            check_shedding(&options.shedding, 0..50);
        }
    }

    /// Does as it is told.
    #[derive(Debug)]
    struct Told {
        sheds: fn(Instant, Instant) -> bool,
        due: Option<u64>,
    }

    impl CustomLaw for Told {
        fn sheds_at_serve(&mut self, oldest: Instant, now: Instant) -> bool {
            (self.sheds)(oldest, now)
        }

        fn sheds(&mut self, oldest: Instant, now: Instant) -> bool {
            (self.sheds)(oldest, now)
        }

        fn due(&self, oldest: Instant) -> Option<Instant> {
            self.due.map(|span| oldest.after(span))
        }
    }

    fn told(sheds: fn(Instant, Instant) -> bool, due: Option<u64>) -> Shedding {
        Shedding::custom("told", move |_| Told { sheds, due })
    }

    const LONG: u64 = 5_000_000;

    #[test]
    fn a_law_of_ones_own_sheds_when_it_is_due_and_spares_the_minimum() {
        let law = told(|oldest, now| oldest.after(LONG) <= now, Some(LONG));
        check_shedding(&law, 0..50);
        let options = Options {
            shedding: law,
            min: 1,
            ..Options::default()
        };
        let (start, mut shed) = (Instant::from_nanos(7), Vec::new());
        let mut queue = Queue::new(options, start).unwrap();
        let mut ledger = Ledger::default();
        let tickets = [(); 3].map(|()| {
            let ticket = ledger.open(());
            queue.push(
                ticket,
                &AskOptions::new(start),
                &mut ledger,
                start,
                &mut shed,
            );
            ticket
        });
        assert_eq!(queue.deadline(), Some(start.after(LONG)));
        queue.advance(&mut ledger, start.after(LONG), &mut shed);
        let reason = Reason::Custom;
        let gone = [tickets[0], tickets[1]].map(|ticket| Shed { ticket, reason });
        assert_eq!(shed, gone);
        assert_eq!(queue.deadline(), None);
    }

    #[test]
    fn a_law_that_is_always_due_does_not_keep_its_driver_busy() {
        check_shedding(&told(|_, _| false, Some(0)), 0..20);
    }

    #[test]
    #[should_panic(expected = "had not waited")]
    fn a_law_that_sheds_every_new_ask_is_found() {
        check_shedding(&told(|_, _| true, None), 0..20);
    }

    #[test]
    #[should_panic(expected = "not pure")]
    fn a_law_that_remembers_other_runs_is_found() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let sheds = |oldest: Instant, now: Instant| {
            oldest < now && CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
        };
        check_shedding(&told(sheds, None), 0..20);
    }
}
