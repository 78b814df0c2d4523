//! Controlled delay against a plain model of it, and what its bound promises.

use std::time::Duration;

use proptest::prelude::{any, proptest};
use rideau_core::queue::{Options, Order, Overflow, Queue, Shedding};
use rideau_core::{Reason, Rng};

use crate::hall::{self, Hall, Input, Outcome, Pause};
use crate::plain::Plain;

const RUNS: u64 = 30_000;

#[test]
fn codel_sheds_serves_and_wakes_as_the_reference_does() {
    for seed in 0..RUNS {
        let run = std::panic::catch_unwind(|| compare_with_reference(seed));
        assert!(run.is_ok(), "the run with seed {seed} differs");
    }
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    #[test]
    fn no_ask_below_the_target_is_shed_by_codel(
        options in hall::single(hall::codel_shedding()),
        history in hall::history(hall::input(hall::single(hall::codel_shedding()))),
    ) {
        let mut hall = Hall::new(&options, false, 0);
        let mut sent = Vec::new();
        for (input, pause) in history {
            hall.pause(pause);
            let guest = hall.guest(&input);
            sent.extend(guest.map(|guest| guest.sent));
            let Outcome { shed, .. } = hall.act(&input, guest);
            let (target, bound) = target_and_bound(&hall.queue);
            for (id, reason) in shed {
                let waited = hall.now - sent[id];
                assert!(reason != Reason::CoDel || waited >= target);
                assert!(reason != Reason::Bound || waited > bound);
            }
        }
    }

    #[test]
    fn a_bounded_codel_is_codel_until_an_ask_waits_over_the_bound(
        options in hall::single(hall::codel_shedding()),
        wait_max in hall::duration(),
        history in hall::history(hall::input(hall::single(hall::codel_shedding()))),
    ) {
        let Shedding::CoDel { target, interval } = unbound(options.shedding.clone()) else {
            unreachable!("only CoDel is asked for");
        };
        let wait_max = wait_max.max(target);
        let bounded = Shedding::BoundedCoDel { target, interval, wait_max };
        let shedding = unbound(bounded.clone());
        let mut plain = Hall::new(&Options { shedding, ..options.clone() }, true, 0);
        let mut bound = Hall::new(&Options { shedding: bounded, ..options }, true, 0);
        for (input, pause) in history {
            if matches!(input, Input::Change(_)) {
                continue;
            }
            bound.pause(pause);
            plain.now = bound.now;
            let guest = bound.guest(&input);
            assert_eq!(guest, plain.guest(&input));
            let waited = |hall: &Hall| {
                let oldest = hall.queue.oldest();
                oldest.map_or(Duration::ZERO, |oldest| hall.instant().since(oldest))
            };
            let comes_late = guest.is_some_and(|guest| hall_wait(&bound, guest.sent) > wait_max);
            if waited(&plain) > wait_max || comes_late {
                break;
            }
            assert_eq!(plain.act(&input, guest), bound.act(&input, guest));
            let soonest = bound.queue.oldest().map(|oldest| oldest + wait_max);
            assert!(
                bound.deadline() == plain.deadline()
                    || bound.deadline() == soonest.map(|at| at.as_nanos() + 1)
            );
        }
    }

    #[test]
    fn no_ask_over_the_bound_is_served_or_kept_while_a_bounded_codel_sheds(
        options in hall::single(hall::codel_shedding()),
        history in hall::history(hall::input(hall::single(hall::codel_shedding()))),
        is_eager in any::<bool>(),
    ) {
        let mut hall = Hall::new(&options, true, 0);
        let mut waiting = Vec::new();
        for (input, pause) in history {
            hall.pause(if is_eager { Pause::After(0) } else { pause });
            let was_shedding = hall.queue.is_shedding(hall.instant());
            let guest = hall.guest(&input);
            waiting.extend(guest);
            let outcome = hall.act(&input, guest);
            waiting.retain(|guest| {
                outcome.shed.iter().all(|(id, _)| *id != guest.id)
                    && !outcome.left.contains(&guest.id)
            });
            let (_, bound) = target_and_bound(&hall.queue);
            let min = hall.queue.options().min as usize;
            let is_over = |sent: u64| hall.now - sent > bound;
            if let Some(id) = outcome.taken {
                let at = waiting.iter().position(|guest| guest.id == id).unwrap();
                let is_spare = waiting.len() > min;
                let sent = waiting.remove(at).sent;
                assert!(!(was_shedding && is_spare && is_over(sent)));
            }
            let has_acted = !matches!(input, Input::Leave(_) | Input::LeaveTagged(_))
                || !outcome.left.is_empty();
            if has_acted && hall.queue.is_shedding(hall.instant()) {
                let spare = waiting.len().saturating_sub(min);
                assert!(waiting.iter().take(spare).all(|guest| !is_over(guest.sent)));
            }
        }
    }
}

fn hall_wait(hall: &Hall, sent: u64) -> Duration {
    Duration::from_nanos(hall.now - sent)
}

fn unbound(shedding: Shedding) -> Shedding {
    match shedding {
        Shedding::BoundedCoDel {
            target, interval, ..
        } => Shedding::CoDel { target, interval },
        other => other,
    }
}

fn target_and_bound(queue: &Queue) -> (u64, u64) {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap();
    match queue.options().shedding.clone() {
        Shedding::CoDel { target, .. } => (nanos(target), u64::MAX),
        Shedding::BoundedCoDel {
            target, wait_max, ..
        } => (nanos(target), nanos(wait_max)),
        other => panic!("only CoDel is asked for, not {other:?}"),
    }
}

/// Put the queue and the plain line through the same random history.
fn compare_with_reference(seed: u64) {
    let mut rng = Draws::new(seed);
    let start = rng.span();
    let options = options(&mut rng);
    let mut hall = Hall::new(&options, true, start);
    let mut plain = Plain::new(&options, start);
    for step in 0..20 + rng.below(80) {
        hall.pause(pause(&mut rng));
        let input = input(&mut rng);
        let guest = hall.guest(&input);
        let outcome = hall.act(&input, guest);
        let (mut taken, mut left) = (None, Vec::new());
        match &input {
            Input::Push { .. } => plain.push(guest.unwrap(), hall.now),
            Input::Pop => taken = plain.pop(hall.now),
            Input::Wait => plain.wait(hall.now),
            Input::Leave(id) => left.extend(plain.leave(*id, hall.now).then_some(*id)),
            Input::Change(options) => plain.change(options, hall.now),
            Input::LeaveTagged(_) => unreachable!("nobody has a tag here"),
        }
        let wanted = Outcome {
            shed: std::mem::take(&mut plain.shed),
            taken,
            left,
            changed: matches!(input, Input::Change(_)),
        };
        assert_eq!(outcome, wanted, "seed {seed} step {step}: {input:?}");
        assert_eq!(
            hall.queue.len(),
            plain.waiting.len(),
            "seed {seed} step {step}"
        );
        assert_eq!(
            hall.deadline(),
            plain.deadline(),
            "seed {seed} step {step}: {input:?}"
        );
    }
}

fn options(rng: &mut Draws) -> Options {
    let target = Duration::from_nanos(rng.span() * rng.below(8).min(1));
    // Below this, a pace of the control law could be no span at all.
    let interval = Duration::from_nanos(rng.span() + 50);
    let shedding = if rng.below(3) > 0 {
        Shedding::CoDel { target, interval }
    } else {
        let wait_max = target + Duration::from_nanos(rng.span());
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max,
        }
    };
    let min = u32::try_from(rng.below(5)).unwrap().saturating_sub(2);
    let max = u32::try_from(rng.below(20)).unwrap();
    Options {
        max_fits: false,
        order: if rng.below(2) == 0 {
            Order::Fifo
        } else {
            Order::Lifo
        },
        shedding,
        min,
        max: (max < 10).then_some(min + max),
        overflow: if rng.below(2) == 0 {
            Overflow::Newest
        } else {
            Overflow::Oldest
        },
        fair: None,
    }
}

fn input(rng: &mut Draws) -> Input {
    match rng.below(45) {
        0..20 => Input::Push {
            ago: rng.span() * rng.below(2),
            patience: (rng.below(10) == 0).then(|| rng.span()),
            flow: 0,
            tag: None,
            promised: true,
        },
        20..30 => Input::Pop,
        30..38 => Input::Wait,
        38..42 => Input::Leave(usize::try_from(rng.below(60)).unwrap()),
        _ => Input::Change(options(rng)),
    }
}

fn pause(rng: &mut Draws) -> Pause {
    match rng.below(12) {
        0..2 => Pause::Span(0),
        2..7 => Pause::Span(rng.span()),
        7 => Pause::Before(1),
        8..10 => Pause::After(0),
        10 => Pause::After(1),
        _ => Pause::After(rng.span()),
    }
}

/// Random numbers of one run.
struct Draws {
    rng: Rng,
    /// The least magnitude of its spans, and how many there are.
    magnitudes: (u64, u64),
}

impl Draws {
    /// Every other run has spans of all magnitudes from a nanosecond to a
    /// second; the others keep to three, so that episodes follow closely.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let magnitudes = match seed % 2 {
            0 => (0, 9),
            _ => (2 + rng.below(5), 3),
        };
        Self { rng, magnitudes }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn span(&mut self) -> u64 {
        let (least, count) = self.magnitudes;
        let magnitude = 10_u64.pow(u32::try_from(least + self.below(count)).unwrap());
        magnitude + self.below(9 * magnitude)
    }
}
