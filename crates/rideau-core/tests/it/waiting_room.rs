//! A crowd before a few places: visitors that come back when they are told to, or not.

use std::collections::VecDeque;
use std::time::Duration;

use rideau_core::{Instant, Rng, RoomEntry, RoomLoad, RoomPlace, WaitingRoom, WaitingRoomOptions};

const OPTIONS: WaitingRoomOptions = WaitingRoomOptions {
    after: Duration::from_secs(2),
    hold: Duration::from_secs(30),
};

/// Five places, all taken, with none waiting for them.
const FULL: RoomLoad = RoomLoad {
    waiting: 0,
    free: 0,
    places: 5,
    start: None,
    departed: 0,
    stay: Duration::from_secs(1),
};

fn at(millis: u64) -> Instant {
    Instant::START + Duration::from_millis(millis)
}

#[track_caller]
fn serial_of(entry: RoomEntry) -> u64 {
    match entry {
        RoomEntry::Turn { serial, .. } => serial,
        RoomEntry::Wait(place) => panic!("it waits: {place:?}"),
    }
}

#[track_caller]
fn place_of(entry: RoomEntry) -> RoomPlace {
    match entry {
        RoomEntry::Wait(place) => place,
        turn => panic!("it need not wait: {turn:?}"),
    }
}

#[test]
fn a_visitor_that_would_not_wait_for_long_comes_in() {
    let mut room = WaitingRoom::new(OPTIONS);
    let free = RoomLoad { free: 1, ..FULL };
    for now in 0..10 {
        let serial = serial_of(room.come(None, &free, at(now)));
        room.enter(serial);
    }
    // Five leave a second, and the eleventh would wait for more than two.
    let long = RoomLoad { waiting: 9, ..FULL };
    let serial = serial_of(room.come(None, &long, at(10)));
    room.enter(serial);
    let longer = RoomLoad {
        waiting: 10,
        ..FULL
    };
    let place = place_of(room.come(None, &longer, at(10)));
    assert_eq!((place.place, room.stats().len), (1, 1));
    assert_eq!(place.expected, Duration::from_millis(2_200));
    assert_eq!(place.back_in, Duration::from_secs(2));
    // From now on nobody overtakes it, however short the wait inside is.
    let place = place_of(room.come(None, &long, at(11)));
    assert_eq!(place.place, 2);
    assert_eq!(room.stats().entered, 11);
}

#[test]
fn turns_come_in_order_and_each_is_used_once() {
    let mut room = WaitingRoom::new(OPTIONS);
    let long = RoomLoad {
        waiting: 20,
        ..FULL
    };
    let serials: Vec<_> = (0..20)
        .map(|_| place_of(room.come(None, &long, at(0))).serial)
        .collect();
    assert!(serials.is_sorted());
    // Nine or ten leave until those visitors are back.
    let last = place_of(room.come(Some(serials[19]), &FULL, at(100)));
    assert_eq!((last.place, room.stats().turns), (11, 9));
    for serial in &serials[..9] {
        assert_eq!(serial_of(room.come(Some(*serial), &FULL, at(200))), *serial);
        // The same in another window of the browser.
        let again = place_of(room.come(Some(*serial), &FULL, at(200)));
        assert_eq!(
            (again.serial, again.back_in),
            (*serial, Duration::from_secs(2))
        );
        room.enter(*serial);
        let after = place_of(room.come(Some(*serial), &long, at(200)));
        assert!(after.serial > serials[19], "it is at the end of the line");
    }
    assert_eq!(room.stats().entered, 9);
}

#[test]
fn others_that_never_were_in_the_line_do_not_stop_it() {
    let mut room = WaitingRoom::new(OPTIONS);
    // Programs see to it that sixty wait at all times: for twelve seconds each.
    let flooded = |second: u64| RoomLoad {
        waiting: 60,
        departed: 5 * second,
        ..FULL
    };
    let serials: Vec<_> = (0..30)
        .map(|_| place_of(room.come(None, &flooded(0), at(0))).serial)
        .collect();
    for second in 1..12 {
        let now = at(second * 1_000);
        let places = serials
            .iter()
            .map(|it| place_of(room.come(Some(*it), &flooded(second), now)));
        assert!(
            places.last().is_some_and(|last| last.place == 30),
            "{second}"
        );
    }
    // No turn came for as long as one waits inside: one visitor is let in for each that leaves
    // until they are back, and no more while these wait inside.
    let mut turns = 0;
    for second in 12..24 {
        let now = at(second * 1_000);
        for serial in &serials[turns..] {
            match room.come(Some(*serial), &flooded(second), now) {
                RoomEntry::Turn { .. } => turns += 1,
                RoomEntry::Wait(_) => break,
            }
        }
        assert!(turns <= 10, "{turns} at {second}");
    }
    assert!(turns >= 8, "{turns}");
    for serial in &serials[..turns] {
        room.enter(*serial);
    }
    let next = serials[turns];
    assert_eq!(
        serial_of(room.come(Some(next), &flooded(26), at(26_000))),
        next
    );
}

#[test]
fn a_turn_that_is_not_used_is_lost_after_a_while() {
    let mut room = WaitingRoom::new(OPTIONS);
    let long = RoomLoad {
        waiting: 20,
        ..FULL
    };
    let first = place_of(room.come(None, &long, at(0))).serial;
    let second = place_of(room.come(None, &long, at(0))).serial;
    assert_eq!(serial_of(room.come(Some(first), &FULL, at(1_000))), first);
    // It left while it waited inside, and is back.
    let kept = room.keep(first, &FULL, at(2_000));
    assert_eq!((kept.serial, kept.place), (first, 1));
    assert_eq!(serial_of(room.come(Some(first), &FULL, at(31_999))), first);
    room.keep(first, &FULL, at(32_000));
    let late = place_of(room.come(Some(second), &long, at(33_000)));
    assert!(late.serial > second, "its turn came at 1 s");
    let late = place_of(room.come(Some(first), &long, at(62_000)));
    assert!(late.serial > second);
    // For the one that came at 33 s no turn had come for long enough.
    assert_eq!((room.stats().lost, room.stats().turns), (2, 1));
}

#[test]
fn a_start_is_waited_for_by_those_that_are_served_at_once_then() {
    let mut room = WaitingRoom::new(OPTIONS);
    let starting = |waiting| RoomLoad {
        waiting,
        free: 0,
        start: Some(Duration::from_secs(9)),
        ..FULL
    };
    for waiting in 0..5 {
        serial_of(room.come(None, &starting(waiting), at(0)));
    }
    let place = place_of(room.come(None, &starting(5), at(0)));
    assert_eq!(place.expected, Duration::from_millis(9_200));
}

/// How a crowd behaves.
struct Crowd {
    visitors: u64,
    /// A new one comes so often.
    every: u64,
    /// One in this many waits till it is served.
    staying: u64,
}

/// What became of a crowd: the serials that were served, in their order, and when the last
/// of them left, in milliseconds.
struct Outcome {
    served: Vec<u64>,
    over: u64,
    refused: u64,
}

/// Let a crowd come to five places that are taken for a second each. Time goes in steps.
fn play(crowd: &Crowd, seed: u64) -> Outcome {
    const STEP: u64 = 10;
    let mut rng = Rng::new(seed);
    let mut room = WaitingRoom::new(OPTIONS);
    let mut inside: Vec<u64> = Vec::new();
    let mut queue: VecDeque<u64> = VecDeque::new();
    let mut outside: Vec<(u64, Option<u64>)> = Vec::new();
    let (mut departed, mut came) = (0, 0);
    let mut outcome = Outcome {
        served: Vec::new(),
        over: 0,
        refused: 0,
    };
    for now in (0..3_600_000).step_by(STEP as usize) {
        let before = inside.len();
        inside.retain(|until| *until > now);
        departed += (before - inside.len()) as u64;
        while inside.len() < 5
            && let Some(serial) = queue.pop_front()
        {
            inside.push(now + 1_000);
            room.enter(serial);
            outcome.served.push(serial);
            outcome.over = now + 1_000;
        }
        if came < crowd.visitors && now % crowd.every == 0 {
            came += 1;
            outside.push((now, None));
        }
        let due: Vec<_> = outside.extract_if(.., |(due, _)| *due <= now).collect();
        for (_, serial) in due {
            let load = RoomLoad {
                waiting: queue.len(),
                free: 5 - inside.len(),
                departed,
                ..FULL
            };
            match room.come(serial, &load, at(now)) {
                RoomEntry::Turn { serial, .. } => queue.push_back(serial),
                RoomEntry::Wait(place) => {
                    outcome.refused += 1;
                    let has_left = serial.is_none() && rng.below(crowd.staying) > 0;
                    if !has_left {
                        let back = u64::try_from(place.back_in.as_millis()).unwrap();
                        outside.push((now + back + rng.below(300), Some(place.serial)));
                    }
                }
            }
        }
        if came == crowd.visitors && outside.is_empty() && queue.is_empty() && inside.is_empty() {
            break;
        }
    }
    outcome
}

#[test]
fn a_crowd_is_served_in_order_and_no_place_is_idle_for_long() {
    for seed in 0..20 {
        let crowd = Crowd {
            visitors: 300,
            every: 10,
            staying: 1,
        };
        let outcome = play(&crowd, seed);
        assert_eq!(outcome.served.len(), 300, "seed {seed}");
        // A minute's work takes little more than a minute.
        assert!(outcome.over < 65_000, "seed {seed}: {} ms", outcome.over);
        for (at, serial) in outcome.served.iter().enumerate() {
            let before = outcome.served[..at].iter().max().copied().unwrap_or(0);
            assert!(
                before < serial + 20,
                "seed {seed}: {serial} came after {before}"
            );
        }
    }
}

#[test]
fn places_are_not_kept_for_visitors_that_have_left() {
    for seed in 0..20 {
        let crowd = Crowd {
            visitors: 3_000,
            every: 20,
            staying: 8,
        };
        let outcome = play(&crowd, seed);
        let served = outcome.served.len() as u64;
        assert!(served > 250, "seed {seed}: {served} of 3000");
        let idle = outcome.over - served * 1_000 / 5;
        assert!(
            idle < outcome.over * 2 / 5,
            "seed {seed}: {idle} of {} ms for {served}",
            outcome.over
        );
    }
}
