//! What exact stamps buy.
//!
//! A loop that cannot see when a message came into its mailbox has to
//! estimate it, from marks that it sends itself. The model of such a loop and
//! the broker get the same six messages; only the broker, whose askers say
//! when they asked, gets the waits right.

use std::collections::VecDeque;

use rideau_core::broker::{Broker, Effect, Options};
use rideau_core::meter::{self, Better};
use rideau_core::queue::{self, AskOptions, Shedding};
use rideau_core::{Instant, Reply};

const MILLI: u64 = 1_000_000;
const ARRIVALS: [u64; 6] = [0, MILLI, 2 * MILLI, 3 * MILLI, 4 * MILLI, 30 * MILLI];
const WORK: u64 = 2 * MILLI;
const READ_AFTER: u32 = 3;

#[test]
fn a_loop_that_cannot_see_when_messages_came_has_to_estimate() {
    let mut mailbox = Mailbox::new(&ARRIVALS);
    mailbox.run();
    let sent: Vec<_> = mailbox.taken.iter().map(|(sent, _)| *sent).collect();
    assert_eq!(sent, [0, 0, 0, 0, 0, 30 * MILLI]);
    let now: Vec<_> = mailbox.taken.iter().map(|(_, now)| *now).collect();
    assert_eq!(now, [0, 0, 0, 0, 8 * MILLI, 30 * MILLI]);
    let sample = |at, process, queue| Sample { at, process, queue };
    assert_eq!(
        mailbox.samples,
        [
            sample(8 * MILLI, 2_666_666, 5_333_334),
            sample(10 * MILLI, 2 * MILLI, 8 * MILLI),
            sample(32 * MILLI, 2 * MILLI, 0),
        ]
    );
}

#[test]
fn stamps_of_the_askers_make_waits_and_delays_exact() {
    let never = queue::Options {
        shedding: Shedding::Never,
        ..queue::Options::default()
    };
    let options = Options {
        asks: never.clone(),
        offers: never,
        meters: vec![meter::Options::Better(Better::default())],
        read_after: 1,
    };
    let mut effects = Vec::new();
    let mut broker = Broker::new(options, Instant::START, &mut effects).unwrap();
    for _ in ARRIVALS {
        let terms = AskOptions::new(Instant::START);
        let came = broker.offer(&terms, Silent, Instant::START, &mut effects);
        came.into_effect(&mut effects);
    }

    let (mut waits, mut delays) = (Vec::new(), Vec::new());
    let mut clock = 0;
    for sent in ARRIVALS {
        clock = sent.max(clock);
        let (terms, now) = (
            AskOptions::new(Instant::from_nanos(sent)),
            Instant::from_nanos(clock),
        );
        effects.clear();
        let came = broker.ask(&terms, Silent, now, &mut effects);
        came.into_effect(&mut effects);
        for effect in &effects {
            match effect {
                Effect::Match { ask_waited, .. } => waits.push(ask_waited.as_millis()),
                // Offers wait, so an ask has to expect no more than the delay.
                Effect::Meter(meter::Effect::Better { ask, .. }) => delays.push(ask.as_millis()),
                other => panic!("unexpected {other:?}"),
            }
        }
        clock += WORK;
    }
    assert_eq!(waits, [0, 1, 2, 3, 4, 0]);
    assert_eq!(delays, waits);
}

/// A loop that reads its clock seldom and takes messages without stamps.
struct Mailbox {
    arrivals: VecDeque<u64>,
    messages: VecDeque<Message>,
    clock: u64,
    now: u64,
    sent: u64,
    unread: u32,
    /// For each message when it was sent, as estimated, and the cached now.
    taken: Vec<(u64, u64)>,
    samples: Vec<Sample>,
}

enum Message {
    Ask,
    /// The loop's own, with its cached now.
    Mark(u64),
}

/// What the meters are told.
#[derive(PartialEq, Eq, Debug)]
struct Sample {
    at: u64,
    process: u64,
    queue: u64,
}

#[derive(PartialEq, Eq, Debug)]
struct Silent;

impl Reply for Silent {}

impl Mailbox {
    fn new(arrivals: &[u64]) -> Self {
        Self {
            arrivals: arrivals.iter().copied().collect(),
            messages: VecDeque::new(),
            clock: 0,
            now: 0,
            sent: 0,
            unread: 0,
            taken: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn run(&mut self) {
        while let Some(next) = self.arrivals.front() {
            self.clock = self.clock.max(*next);
            self.receive();
            self.messages.pop_front();
            (self.now, self.sent, self.unread) = (self.clock, self.clock, 0);
            self.mark();
            self.work();
            while let Some(message) = self.messages.pop_front() {
                self.take(message);
            }
        }
    }

    fn take(&mut self, message: Message) {
        if self.unread == READ_AFTER {
            self.read();
        } else {
            self.unread += 1;
        }
        let Message::Mark(mark) = message else {
            return self.work();
        };
        if self.messages.pop_front().is_some() {
            self.mark();
            self.sent = u64::midpoint(mark, self.now);
            self.work();
        } else if self.unread > 0 {
            self.read();
        }
    }

    fn work(&mut self) {
        self.taken.push((self.sent, self.now));
        self.clock += WORK;
        self.receive();
    }

    fn read(&mut self) {
        let process = (self.clock - self.now) / u64::from(self.unread);
        self.samples.push(Sample {
            at: self.clock,
            process,
            queue: self.clock - process - self.sent,
        });
        (self.now, self.unread) = (self.clock, 0);
    }

    fn mark(&mut self) {
        self.messages.push_back(Message::Mark(self.now));
    }

    fn receive(&mut self) {
        while self.arrivals.front().is_some_and(|at| *at <= self.clock) {
            self.arrivals.pop_front();
            self.messages.push_back(Message::Ask);
        }
    }
}
