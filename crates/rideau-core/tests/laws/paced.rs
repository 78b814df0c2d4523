//! The law that keeps promises: its vectors, and a literal model of it.
//!
//! The model has the variables and the steps of the specification and looks at
//! every ask. The queue does the same with two lists and cached heads.

use std::time::Duration;

use proptest::collection;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use rideau_core::queue::{AskOptions, Capacity, Load, Options, Overflow, Queue, Shedding, Turn};
use rideau_core::{Instant, Ledger, Reason, Ticket};

const MS: u64 = 1_000_000;

/// As good as no limit, but named.
const LONG: Option<u64> = Some(1_000_000_000);

#[test]
fn q1_a_lone_waiter_is_served_whenever_the_place_is_free() {
    let mut place = Place::new(1);
    place.ask(0, Some(10_000));
    place.free(3000);
    assert_eq!(place.retry_after(3000), 3000 * MS);
    place.ask(3100, Some(10_000));
    place.free(6000);
    assert_eq!(place.retry_after(6000), 2950 * MS);
    assert_eq!(place.served, [(3000 * MS, 0), (6000 * MS, 1)]);
    assert_eq!(place.shed, []);
}

#[test]
fn q2_a_lone_waiter_without_a_promise_waits_as_well() {
    let mut place = Place::new(1);
    place.ask(0, None);
    for at in 0..300 {
        place.wait(at * 100);
        assert_eq!(place.queue.deadline(), None);
    }
    place.free(30_000);
    assert_eq!(place.served, [(30_000 * MS, 0)]);
}

#[test]
fn q3_four_are_protected() {
    let mut place = Place::new(1);
    place.ask_each([0, 10, 20, 30], None);
    place.wait(60_000);
    assert_eq!((place.queue.len(), place.shed.len()), (4, 0));
}

#[test]
fn q4_the_fifth_costs_the_oldest_its_place() {
    let mut place = Place::new(1);
    place.ask_each([0, 10, 20, 30, 40], None);
    assert_eq!(place.queue.deadline(), Some(Instant::from_nanos(75 * MS)));
    place.wait(5000);
    assert_eq!(place.shed, [(400 * MS + 1, 0, Reason::Bound)]);
    assert_eq!(place.retries, [406 * MS + 1]);
    assert_eq!(place.queue.len(), 4);
}

#[test]
fn q5_promises_are_kept() {
    let mut place = Place::new(1);
    place.ask_each([0, 10, 20, 30, 40], Some(10_000));
    place.wait(9999);
    assert_eq!((place.queue.len(), place.shed.len()), (5, 0));
}

#[test]
fn q6_only_those_without_a_promise_are_shed() {
    let mut place = Place::new(1);
    place.ask_each([0, 10, 20], Some(10_000));
    place.ask_each([30, 40, 50, 60], None);
    place.wait(5000);
    let shed = [(430, 3), (440, 4), (450, 5)];
    let shed = shed.map(|(at, id)| (at * MS + 1, id, Reason::Bound));
    assert_eq!(place.shed, shed);
    assert_eq!(place.queue.len(), 4);
}

#[test]
fn q7_more_capacity_protects_more() {
    let mut place = Place::new(3);
    place.ask_each([0, 10, 20, 30, 40, 50, 60], None);
    place.wait(5000);
    assert_eq!(place.shed, [(400 * MS + 1, 0, Reason::Bound)]);
    assert_eq!(place.queue.len(), 6);
}

#[test]
fn q8_lasting_overload_has_a_tight_bound() {
    let place = overload(2150);
    let first: Vec<_> = place.shed.iter().map(|(at, id, _)| (*at, *id)).collect();
    assert_eq!(first[0], (800 * MS + 1, 80));
    assert_eq!(first[1], (810 * MS + 1, 82));
    let at_once: Vec<_> = first.iter().filter(|(at, _)| *at == 2145 * MS).collect();
    let (oldest, newest) = (at_once[0].1, at_once[at_once.len() - 1].1);
    assert_eq!((at_once.len(), oldest, newest), (50, 349, 398));
    assert_eq!(place.len_at_2145, 30);
    assert_eq!(first[first.len() - 1], (2150 * MS + 1, 400));
}

#[test]
fn q9_an_empty_queue_forgets_the_overload() {
    let mut place = overload(5995);
    let mut lens = Vec::new();
    for at in (6005..=6205).step_by(10) {
        place.free(at);
        if [6005, 6105, 6205].contains(&at) {
            lens.push(place.queue.len());
        }
    }
    assert_eq!(lens, [28, 8, 0]);
    // The bound is four hundred milliseconds again.
    let shed = place.shed.len();
    place.ask_each([6300, 6301, 6302, 6303, 6304], None);
    place.wait(6700);
    assert_eq!(place.shed.len(), shed);
    place.wait(6701);
    assert_eq!(place.shed.len(), shed + 1);
}

#[test]
fn q10_long_holds_stretch_both_spans() {
    let mut place = Place::new(1);
    for _ in 0..16 {
        place.load.ended(Duration::from_secs(1));
    }
    place.queue.bear(place.load);
    place.ask_each([0, 0, 0, 0, 0], None);
    place.wait(3000);
    assert_eq!(place.shed, []);
    place.ask(3000, None);
    place.wait(3001);
    let shed = place.shed.iter().map(|(at, id, _)| (*at, *id));
    assert_eq!(
        shed.collect::<Vec<_>>(),
        [(3000 * MS + 1, 0), (3000 * MS + 1, 1)]
    );
    // Slow since 75 ms: overload lasts from 20,075 ms on.
    place.ask_each([18_000; 6], None);
    place.wait(20_074);
    assert_eq!(
        place.queue.deadline(),
        Some(Instant::from_nanos(20_075 * MS))
    );
}

#[test]
fn q11_an_ask_that_would_wait_in_vain_is_refused_at_once() {
    let mut place = Place::new(1);
    place.ask_each([0; 400], LONG);
    (1..=100).for_each(|n| place.free(n * 100));
    assert_eq!(place.queue.len(), 300);
    place.ask(10_050, Some(10_000));
    assert_eq!(place.shed, []);
    place.wait(10_100);
    let refused = place.ask(10_100, Some(10_000));
    assert_eq!(place.shed, [(10_100 * MS, refused, Reason::Hopeless)]);
    place.ask(10_100, Some(30_000));
    assert_eq!(place.shed.len(), 1);
}

#[test]
fn q12_a_serve_at_the_instant_of_the_ask_is_no_gap() {
    let mut place = Place::new(1);
    for n in 0..10 {
        place.ask(n * 100, None);
        place.free(n * 100);
    }
    place.ask(1000, Some(10_000));
    assert_eq!(place.book(3000), 2003 * MS);
}

#[test]
fn q13_appointments_are_one_gap_apart() {
    let mut place = Place::new(1);
    place.ask_each([0; 40], LONG);
    (1..=20).for_each(|n| place.free(n * 50));
    assert_eq!(place.queue.len(), 20);
    let retries: Vec<_> = (0..6).map(|_| place.book(1000) / MS).collect();
    assert_eq!(retries, [1100, 1150, 1200, 1250, 1300, 1350]);
}

#[test]
fn q14_an_ask_that_leaves_makes_room() {
    let mut place = Place::new(1);
    place.ask_each([0, 10, 20, 30, 40], None);
    place.leave(300, 4);
    place.wait(5000);
    assert_eq!((place.queue.len(), place.shed.len()), (4, 0));
}

#[test]
fn q15_a_stall_is_no_reason_to_give_up_hope() {
    let mut place = Place::new(1);
    place.ask_each([0; 200], LONG);
    (1..=100).for_each(|n| place.free(n * 10));
    place.ask(6000, Some(10_000));
    assert_eq!((place.queue.len(), place.shed.len()), (101, 0));
}

#[test]
fn a_cold_start_is_no_overload() {
    let mut place = Place::new(1);
    place.load.capacity = Capacity::Starting;
    place.queue.bear(place.load);
    place.ask_each([0; 20], None);
    place.wait(30_000);
    assert_eq!(place.shed, []);
    place.load.capacity = Capacity::Units(1);
    place.queue.bear(place.load);
    // The caller that tells of it looks at once.
    let now = Instant::from_nanos(30_000 * MS);
    place.queue.advance(&mut place.ledger, now, &mut Vec::new());
    place.wait(30_400);
    assert_eq!(place.shed, [], "what was waited before does not count");
    place.wait(30_401);
    assert_eq!(place.shed.len(), 16);
}

#[test]
fn a_cap_shortens_the_wait_that_was_named() {
    let wait_cap = Some(Duration::from_secs(1));
    let mut place = Place::with(Shedding::Paced { wait_cap }, 1);
    place.ask(0, Some(10_000));
    place.ask(500, Some(100));
    place.wait(5000);
    let shed = [(600, 1), (1000, 0)].map(|(at, id)| (at * MS, id, Reason::Deadline));
    assert_eq!(place.shed, shed);
}

#[test]
fn a_full_queue_makes_room_only_at_the_cost_of_asks_without_promise() {
    let mut place = Place::new(1);
    let overflow = Overflow::Oldest;
    let options = Options {
        max: Some(2),
        overflow,
        ..place.queue.options().clone()
    };
    let (now, mut shed) = (Instant::START, Vec::new());
    let changed = place
        .queue
        .reconfigure(options, &mut place.ledger, now, &mut shed);
    assert!(changed.is_ok());
    place.ask_each([0, 1], Some(10_000));
    place.ask(2, None);
    assert_eq!(place.shed, [(2 * MS, 2, Reason::Full)]);
    place.leave(3, 0);
    place.ask_each([4, 5], None);
    assert_eq!(place.shed[1], (5 * MS, 3, Reason::Full));
}

/// An ask comes every 5 ms and one is served every 10 ms, until here.
fn overload(until: u64) -> Place {
    let mut place = Place::new(1);
    for at in (0..=until).step_by(5) {
        place.ask(at, None);
        if at % 10 == 5 {
            place.free(at);
            if at == 2145 {
                place.len_at_2145 = place.queue.len();
            }
        }
    }
    place.wait(until + 1);
    place
}

/// A queue on a clock of milliseconds, advanced whenever it is due.
struct Place {
    queue: Queue,
    ledger: Ledger<usize>,
    load: Load,
    tickets: Vec<Ticket>,
    /// When, and which ask.
    served: Vec<(u64, usize)>,
    shed: Vec<(u64, usize, Reason)>,
    retries: Vec<u64>,
    len_at_2145: usize,
}

impl Place {
    fn new(capacity: u32) -> Self {
        Self::with(Shedding::Paced { wait_cap: None }, capacity)
    }

    fn with(shedding: Shedding, capacity: u32) -> Self {
        let options = Options {
            shedding,
            ..Options::default()
        };
        let mut queue = Queue::new(options, Instant::START).unwrap();
        let load = Load::new(Capacity::Units(capacity));
        queue.bear(load);
        Self {
            queue,
            ledger: Ledger::default(),
            load,
            tickets: Vec::new(),
            served: Vec::new(),
            shed: Vec::new(),
            retries: Vec::new(),
            len_at_2145: 0,
        }
    }

    fn ask_each<const N: usize>(&mut self, at: [u64; N], wait: Option<u64>) {
        for at in at {
            self.ask(at, wait);
        }
    }

    fn ask(&mut self, at: u64, wait: Option<u64>) -> usize {
        self.wait(at);
        let (id, now) = (self.tickets.len(), Instant::from_nanos(at * MS));
        let ticket = self.ledger.open(id);
        self.tickets.push(ticket);
        let terms = AskOptions {
            deadline: wait.map(|wait| now.after(wait * MS)),
            promised: wait.is_some(),
            ..AskOptions::new(now)
        };
        let mut shed = Vec::new();
        self.queue
            .push(ticket, &terms, &mut self.ledger, now, &mut shed);
        self.end(&shed, now);
        id
    }

    fn free(&mut self, at: u64) {
        self.wait(at);
        let (now, mut shed) = (Instant::from_nanos(at * MS), Vec::new());
        let turn = self.queue.pop(&mut self.ledger, now, &mut shed);
        self.end(&shed, now);
        if let Turn::Of(ticket) = turn {
            let id = self.ledger.close(ticket).unwrap();
            self.served.push((now.as_nanos(), id));
        }
    }

    fn leave(&mut self, at: u64, id: usize) {
        self.wait(at);
        let (now, mut shed) = (Instant::from_nanos(at * MS), Vec::new());
        let ticket = self.tickets[id];
        assert!(self.queue.remove(ticket, &mut self.ledger, now, &mut shed));
        self.ledger.close(ticket);
        self.end(&shed, now);
    }

    /// Advance the queue whenever it is due, up to and with this instant.
    fn wait(&mut self, at: u64) {
        let until = Instant::from_nanos(at * MS);
        while let Some(due) = self.queue.deadline().filter(|due| *due <= until) {
            let mut shed = Vec::new();
            self.queue.advance(&mut self.ledger, due, &mut shed);
            self.end(&shed, due);
        }
    }

    fn end(&mut self, shed: &[rideau_core::queue::Shed], now: Instant) {
        for gone in shed {
            let sent = self.ledger.sent(gone.ticket);
            let id = self.ledger.close(gone.ticket).unwrap();
            self.shed.push((now.as_nanos(), id, gone.reason));
            let refusal = self.queue.refuse(gone.reason, sent, now);
            self.retries
                .push(u64::try_from(refusal.retry_after.as_nanos()).unwrap());
        }
    }

    /// What a look at the queue says.
    fn retry_after(&self, at: u64) -> u64 {
        let now = Instant::from_nanos(at * MS);
        let refusal = self.queue.refusal(Reason::Busy, now, now);
        u64::try_from(refusal.retry_after.as_nanos()).unwrap()
    }

    /// What a refused ask is told.
    fn book(&mut self, at: u64) -> u64 {
        let now = Instant::from_nanos(at * MS);
        let refusal = self.queue.refuse(Reason::Busy, now, now);
        u64::try_from(refusal.retry_after.as_nanos()).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Input {
    Ask { wait: Option<u64> },
    Free,
    Look,
    Leave(usize),
    Ended(u64),
    Capacity(Capacity),
    Refuse,
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    #[test]
    fn a_paced_queue_does_what_the_specification_says(
        capacity in capacity(),
        history in collection::vec((input(), 0_u32..6, 0_u64..200), 1..150),
    ) {
        let mut queue = Queue::new(
            Options {
                shedding: Shedding::Paced { wait_cap: None },
                ..Options::default()
            },
            Instant::START,
        )
        .unwrap();
        let (mut ledger, mut load) = (Ledger::<usize>::default(), Load::default());
        let (mut tickets, mut model) = (Vec::<Ticket>::new(), Model::default());
        (load.capacity, model.capacity) = (capacity, capacity);
        queue.bear(load);
        let mut now = 0;
        for (input, power, mantissa) in history {
            now += mantissa * 10_u64.pow(power) * 10_000;
            // Sometimes the queue is looked at right when it is due.
            if mantissa % 3 == 0 {
                now = model.due().filter(|due| *due > now).unwrap_or(now);
            }
            let instant = Instant::from_nanos(now);
            let (mut shed, mut taken, mut retry) = (Vec::new(), None, None);
            let mut wanted_taken = None;
            match input {
                Input::Ask { wait } => {
                    let id = tickets.len();
                    let ticket = ledger.open(id);
                    tickets.push(ticket);
                    let terms = AskOptions {
                        deadline: wait.map(|wait| instant.after(wait)),
                        promised: wait.is_some(),
                        ..AskOptions::new(instant)
                    };
                    queue.push(ticket, &terms, &mut ledger, instant, &mut shed);
                    model.push(id, wait, now);
                }
                Input::Free => {
                    let turn = queue.pop(&mut ledger, instant, &mut shed);
                    taken = turn.ticket().map(|ticket| ledger.close(ticket).unwrap());
                    wanted_taken = model.pop(now);
                }
                Input::Look => {
                    queue.advance(&mut ledger, instant, &mut shed);
                    model.expire(now);
                    model.settle(now);
                }
                Input::Leave(id) => {
                    let Some(ticket) = tickets.get(id) else { continue };
                    let left = queue.remove(*ticket, &mut ledger, instant, &mut shed);
                    assert_eq!(left, model.leave(id, now));
                    if left {
                        ledger.close(*ticket);
                    }
                }
                Input::Ended(held) => {
                    load.ended(Duration::from_nanos(held));
                    queue.bear(load);
                    sample(&mut model.hold, &mut model.holds, held);
                    continue;
                }
                Input::Capacity(capacity) => {
                    (load.capacity, model.capacity) = (capacity, capacity);
                    queue.bear(load);
                    continue;
                }
                Input::Refuse => {
                    let refusal = queue.refuse(Reason::Busy, instant, instant);
                    retry = Some((refusal.retry_after, model.retry_after(now)));
                }
            }
            let shed: Vec<_> = shed
                .into_iter()
                .map(|gone| (ledger.close(gone.ticket).unwrap(), gone.reason))
                .collect();
            assert_eq!(shed, std::mem::take(&mut model.shed), "at {now}");
            assert_eq!(taken, wanted_taken, "at {now}");
            assert_eq!(queue.len(), model.waiting.len());
            assert_eq!(queue.deadline().map(Instant::as_nanos), model.due(), "at {now}");
            if let Some((told, wanted)) = retry {
                assert_eq!(told, Duration::from_nanos(wanted), "at {now}");
            }
        }
    }
}

fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![
        3 => (0_u32..6).prop_map(Capacity::Units),
        2 => Just(Capacity::Unknown),
        1 => Just(Capacity::Starting),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let wait =
        (1_u64..1000, any::<bool>()).prop_map(|(tens, named)| named.then_some(tens * 10 * MS));
    prop_oneof![
        12 => wait.prop_map(|wait| Input::Ask { wait }),
        6 => Just(Input::Free),
        4 => Just(Input::Look),
        1 => (0_usize..60).prop_map(Input::Leave),
        2 => (1_u64..3000).prop_map(|ms| Input::Ended(ms * MS)),
        1 => capacity().prop_map(Input::Capacity),
        1 => Just(Input::Refuse),
    ]
}

/// A waiting ask: which, since when, until when, and whether it was promised.
#[derive(Clone, Copy)]
struct Ask {
    id: usize,
    sent: u64,
    deadline: u64,
    promised: bool,
}

/// The variables of the specification.
#[derive(Default)]
struct Model {
    waiting: Vec<Ask>,
    shed: Vec<(usize, Reason)>,
    capacity: Capacity,
    last: u64,
    gap: u64,
    gaps: u64,
    hold: u64,
    holds: u64,
    slow: Option<u64>,
    /// Since when there is something to serve with; none while it starts.
    awake: Option<u64>,
    booked: u64,
    /// When it was last settled.
    now: u64,
}

impl Model {
    fn protected(&self) -> usize {
        let number = match self.capacity {
            Capacity::Units(units) => 2 * u64::from(units),
            Capacity::Unknown if self.holds > 0 && self.gaps > 0 => 2 * self.hold / self.gap.max(1),
            Capacity::Unknown | Capacity::Starting => 0,
        };
        usize::try_from(number.max(4)).unwrap()
    }

    fn lasting(&self) -> u64 {
        (2000 * MS).max(20 * self.hold)
    }

    fn bound(&self, now: u64) -> u64 {
        let lasts = self.slow.is_some_and(|slow| now - slow >= self.lasting());
        if lasts {
            150 * MS
        } else {
            (400 * MS).max(3 * self.hold)
        }
    }

    fn since(&self, ask: &Ask) -> u64 {
        ask.sent.max(self.awake.unwrap_or(u64::MAX))
    }

    fn unpromised(&self) -> Option<usize> {
        self.waiting.iter().position(|ask| !ask.promised)
    }

    fn expire(&mut self, now: u64) {
        loop {
            let due = |ask: &&Ask| ask.deadline <= now;
            let asks = self.waiting.iter().filter(due);
            let Some(first) = asks.min_by_key(|ask| (ask.deadline, ask.id)).copied() else {
                return;
            };
            self.waiting.retain(|ask| ask.id != first.id);
            self.shed.push((first.id, Reason::Deadline));
        }
    }

    fn settle(&mut self, now: u64) {
        self.now = now;
        if self.capacity == Capacity::Starting {
            (self.slow, self.awake) = (None, None);
            return;
        }
        self.awake.get_or_insert(now);
        let Some(oldest) = self.waiting.first() else {
            self.slow = None;
            return;
        };
        if self.slow.is_none() && now - self.since(oldest) >= 75 * MS {
            self.slow = Some(now);
        }
        let bound = self.bound(now);
        while self.waiting.len() > self.protected()
            && let Some(at) = self.unpromised()
            && now - self.since(&self.waiting[at]) > bound
        {
            let gone = self.waiting.remove(at);
            self.shed.push((gone.id, Reason::Bound));
        }
    }

    fn push(&mut self, id: usize, wait: Option<u64>, now: u64) {
        self.expire(now);
        self.settle(now);
        let len = self.waiting.len() as u64;
        if len == 0 {
            (self.last, self.booked) = (now, 0);
        }
        if let (Some(wait), Some(slow)) = (wait, self.slow)
            && len >= 8
            && now - slow >= wait
            && len * self.gap + (now - self.last) > 2 * wait
        {
            self.shed.push((id, Reason::Hopeless));
            return;
        }
        self.waiting.push(Ask {
            id,
            sent: now,
            deadline: wait.map_or(u64::MAX, |wait| now + wait),
            promised: wait.is_some(),
        });
        self.settle(now);
    }

    fn pop(&mut self, now: u64) -> Option<usize> {
        self.expire(now);
        self.settle(now);
        if self.waiting.is_empty() {
            return None;
        }
        let served = self.waiting.remove(0);
        let (waited, span) = (now - served.sent, now - self.last);
        self.last = now;
        if waited > 0 {
            sample(&mut self.gap, &mut self.gaps, span);
        }
        let is_quick = self.since(&served).saturating_add(75 * MS) > now;
        if is_quick {
            self.slow = None;
        } else if self.slow.is_none() {
            self.slow = Some(now);
        }
        Some(served.id)
    }

    fn leave(&mut self, id: usize, now: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|ask| ask.id != id);
        let left = self.waiting.len() < before;
        if left {
            self.expire(now);
            self.settle(now);
        }
        left
    }

    fn due(&self) -> Option<u64> {
        let own = self.waiting.iter().map(|ask| ask.deadline).min();
        let own = own.filter(|due| *due != u64::MAX);
        let is_asleep = self.capacity == Capacity::Starting;
        let law = (self.waiting.len() > self.protected() && !is_asleep)
            .then(|| self.unpromised())
            .flatten()
            .map(|at| match self.slow {
                _ if self.awake.is_none() => 0,
                None => self.since(&self.waiting[0]) + 75 * MS,
                Some(slow) => {
                    let lasts = self.now - slow >= self.lasting();
                    let over = self.since(&self.waiting[at]) + self.bound(self.now) + 1;
                    let lasting = if lasts {
                        u64::MAX
                    } else {
                        slow + self.lasting()
                    };
                    over.min(lasting)
                }
            });
        own.into_iter().chain(law).min()
    }

    fn retry_after(&mut self, now: u64) -> u64 {
        let gap = if self.gaps > 0 { self.gap } else { MS };
        let len = self.waiting.len() as u64;
        let stalled = if len > 0 { now - self.last } else { 0 };
        let wait = (len + 1) * gap + stalled;
        let latest = now + 8 * wait.max(self.bound(self.now));
        self.booked = (self.booked.max(now + wait) + gap).min(latest);
        (self.booked - now).clamp(MS, 3_600_000 * MS)
    }
}

fn sample(average: &mut u64, count: &mut u64, span: u64) {
    let mut span = span;
    if *count >= 8 {
        span = span.min((8 * *average).max(MS));
    }
    *count = (*count + 1).min(16);
    let step = (i128::from(span) - i128::from(*average)) / i128::from(*count);
    *average = u64::try_from(i128::from(*average) + step).unwrap();
}
