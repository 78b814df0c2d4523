//! A waiting room against what its visitors were told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use rideau_core::{Instant, RoomEntry, RoomLoad, WaitingRoom, WaitingRoomOptions};

#[derive(Clone, Copy, Debug)]
enum Input {
    /// A visitor with the serial of this number among those that were told, or a new one.
    Come(usize, RoomLoad),
    /// The asks inside end: this one of them, so.
    End(usize, u8),
    Pause(u64),
}

proptest! {
    #![proptest_config(crate::cases(2_000))]

    #[test]
    fn no_turn_is_used_twice_and_none_waits_behind_a_later_one(
        inputs in prop::collection::vec(input(), 1..200),
    ) {
        let hold = Duration::from_secs(30);
        let mut room = WaitingRoom::new(WaitingRoomOptions { after: Duration::from_secs(2), hold });
        let mut now = Instant::START;
        // Serials as they were told, each with its last place.
        let mut told: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut inside, mut entered) = (BTreeSet::new(), BTreeSet::new());
        let mut last_turn = 0;
        for input in inputs {
            match input {
                Input::Pause(millis) => now = now + Duration::from_millis(millis),
                Input::Come(at, load) => {
                    let known = told.keys().nth(at).copied();
                    let first_new = told.keys().chain(&inside).chain(&entered).max().copied();
                    match room.come(known, &load, now) {
                        RoomEntry::Turn { serial, is_new } => {
                            prop_assert!(!entered.contains(&serial), "{serial} is used twice");
                            prop_assert!(inside.insert(serial), "{serial} is in use");
                            prop_assert!(is_new || known == Some(serial));
                            last_turn = last_turn.max(serial);
                        }
                        RoomEntry::Wait(place) => {
                            prop_assert!(!entered.contains(&place.serial));
                            if !inside.contains(&place.serial) {
                                prop_assert!(place.serial > last_turn, "it was overtaken");
                            }
                            if known != Some(place.serial) {
                                prop_assert!(first_new.is_none_or(|last| last < place.serial));
                            }
                            let before = told.insert(place.serial, place.place);
                            prop_assert!(before.is_none_or(|before| place.place <= before));
                            let back = place.back_in.as_secs_f64();
                            prop_assert!(place.place > 0 && (2.0..=20.0).contains(&back));
                        }
                    }
                }
                Input::End(at, how) => {
                    let Some(serial) = inside.iter().nth(at).copied() else {
                        continue;
                    };
                    inside.remove(&serial);
                    match how {
                        0 => {
                            room.enter(serial);
                            entered.insert(serial);
                        }
                        1 => {
                            let place = room.keep(serial, &BUSY, now);
                            prop_assert_eq!((place.serial, place.place), (serial, 1));
                            told.insert(serial, 1);
                        }
                        _ => {
                            room.forget(serial);
                            entered.insert(serial);
                        }
                    }
                }
            }
            let stats = room.stats();
            prop_assert!(stats.turns >= inside.len());
        }
    }
}

const BUSY: RoomLoad = RoomLoad {
    waiting: 30,
    free: 0,
    places: 5,
    start: None,
    departed: 0,
    stay: Duration::from_secs(1),
};

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        6 => (0_usize..60, load()).prop_map(|(at, load)| Input::Come(at, load)),
        3 => (0_usize..5, 0_u8..4).prop_map(|(at, how)| Input::End(at, how)),
        2 => (0_u64..20_000).prop_map(Input::Pause),
    ]
}

fn load() -> impl Strategy<Value = RoomLoad> {
    let start = prop::option::weighted(0.1, Just(Duration::from_secs(3)));
    (0_usize..40, 0_usize..3, 0_u64..100, start).prop_map(|(waiting, free, departed, start)| {
        RoomLoad {
            waiting: if free > 0 { 0 } else { waiting },
            free,
            departed,
            start,
            ..BUSY
        }
    })
}
