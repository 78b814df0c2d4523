//! No waiting take is overtaken, whatever the law of the queue is.

use std::time::Duration;

use rideau_core::pool::{Came, Effect, Grant, Options, Pool, Priority, Retired, Use};
use rideau_core::queue::{self, AskOptions, Shedding};
use rideau_core::{Instant, Machine, Reply, Ticket};

use super::inputs::Dice;

const STEPS: usize = 300;

/// A taker, by its number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Name(u64);

impl Reply for Name {}

struct Waiter {
    name: Name,
    ticket: Ticket,
    /// When it came, and when it stood in line: a thread may wait for a lock in
    /// between.
    sent: Instant,
    joined: Instant,
}

struct Run {
    pool: Pool<Name>,
    dice: Dice,
    now: Instant,
    waiting: Vec<Waiter>,
    held: Vec<u32>,
    last_name: u64,
    /// This many were served after a wait.
    served: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (now, mut effects) = (Instant::from_nanos(dice.nanos()), Vec::new());
        let options = options(&mut dice);
        let mut run = Self {
            pool: Pool::new(options, now, &mut effects).unwrap(),
            dice,
            now,
            waiting: Vec::new(),
            held: Vec::new(),
            last_name: 0,
            served: 0,
        };
        run.perform(None, effects);
        run
    }

    fn step(&mut self) {
        if self.dice.chance(60) {
            self.now = self.now.after(self.dice.nanos_of(9));
        }
        let (now, mut effects, mut at_once) = (self.now, Vec::new(), None);
        match self.dice.below(20) {
            0..10 => at_once = self.take(&mut effects),
            10..17 if !self.held.is_empty() => {
                let slot = self.held.swap_remove(self.dice.below(self.held.len()));
                let used = match self.dice.below(10) {
                    0 => Use::Over(Retired::Failed),
                    _ => Use::Fine,
                };
                let held = Duration::from_nanos(self.dice.nanos());
                self.pool.release(slot, used, 1, held, now, &mut effects);
            }
            17 if !self.waiting.is_empty() => {
                let at = self.dice.below(self.waiting.len());
                let gone = self.waiting.remove(at).ticket;
                assert!(self.pool.cancel(gone, now, &mut effects).is_some());
            }
            18 => {
                let options = Options {
                    queue: options(&mut self.dice).queue,
                    ..self.pool.options().clone()
                };
                self.pool.reconfigure(options, now, &mut effects).unwrap();
            }
            _ => self.pool.advance(now, &mut effects),
        }
        self.perform(at_once, effects);
    }

    /// Says what was granted at once, and when its taker came.
    fn take(&mut self, effects: &mut Vec<Effect<Name>>) -> Option<(Grant, Instant)> {
        let (now, late) = (self.now.as_nanos(), self.dice.nanos_of(9));
        let sent = match self.dice.chance(30) {
            true => Instant::from_nanos(now.saturating_sub(late)),
            false => self.now,
        };
        let promised = self.dice.chance(50);
        let terms = AskOptions {
            deadline: promised.then(|| self.now.after(self.dice.nanos())),
            promised,
            ..AskOptions::new(sent)
        };
        self.last_name += 1;
        let name = Name(self.last_name);
        let came = self
            .pool
            .take(&terms, Priority::Normal, || name, self.now, effects);
        match came {
            Came::Granted(grant) => return Some((grant, sent)),
            Came::Waits(ticket) => self.waiting.push(Waiter {
                name,
                ticket,
                sent,
                joined: self.now,
            }),
            Came::Refused(_) => (),
        }
        None
    }

    fn perform(&mut self, at_once: Option<(Grant, Instant)>, effects: Vec<Effect<Name>>) {
        // A take that the law shed is told last, and was out of the line
        // before.
        for effect in &effects {
            if let Effect::Shed { reply, .. } = effect {
                self.leave(*reply);
            }
        }
        if let Some((grant, sent)) = at_once {
            self.grant(grant, sent);
        }
        let mut more = Vec::new();
        for effect in effects {
            match effect {
                Effect::Grant { reply, grant } => {
                    let sent = self.leave(reply).sent;
                    self.grant(grant, sent);
                    self.served += 1;
                }
                Effect::Shed { .. } => (),
                Effect::Start { slot, id } => {
                    let birth = self.pool.started(slot, id, self.now, &mut more);
                    birth.expect("what was started is wanted");
                }
                Effect::Stop { slot, id, .. } => self.pool.gone(slot, id, self.now, &mut more),
                other => panic!("nothing asked for {other:?}"),
            }
        }
        if !more.is_empty() {
            self.perform(None, more);
        }
    }

    fn leave(&mut self, name: Name) -> Waiter {
        let at = self.waiting.iter().position(|it| it.name == name);
        self.waiting
            .remove(at.expect("only a waiting take is answered"))
    }

    /// A take that came at `sent` has a member, and every take that waited by
    /// then had one before.
    fn grant(&mut self, grant: Grant, sent: Instant) {
        self.held.push(grant.slot);
        let overtaken = self.waiting.iter().find(|it| it.joined < sent);
        assert!(overtaken.is_none(), "{:?}", overtaken.map(|it| it.name));
    }
}

/// Members that live for ever, and any law.
fn options(dice: &mut Dice) -> Options {
    let max = 1 + dice.below(4);
    let target = Duration::from_nanos(dice.nanos());
    let interval = target + Duration::from_nanos(dice.nanos());
    let shedding = match dice.below(8) {
        0 => Shedding::Never,
        1 => Shedding::Timeout { wait_max: interval },
        2 => Shedding::CoDel { target, interval },
        3 => Shedding::MinDelay { target, interval },
        4 => Shedding::Standing { target, interval },
        5 => Shedding::Paced {
            wait_cap: Some(interval),
        },
        _ => Shedding::Paced { wait_cap: None },
    };
    Options {
        init: max,
        max,
        idle_age_max: None,
        life_max: None,
        check_after: None,
        queue: queue::Options {
            shedding,
            ..queue::Options::default()
        },
        ..Options::default()
    }
}

#[test]
fn no_waiting_take_is_overtaken_under_any_law() {
    let mut served = 0;
    let cases = u64::from(crate::cases(2_000).cases);
    for seed in 0..cases {
        let mut run = Run::new(seed);
        println!("seed {seed}");
        (0..STEPS).for_each(|_| run.step());
        served += run.served;
    }
    assert!(
        served as u64 > 10 * cases,
        "{served} were served after a wait"
    );
}
