//! Killed at any moment under load.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rideau::Ranges;
use rideau::allocator::Which;

use crate::child::{Role, THREADS, open_folder, written};
use crate::rig::{check_counts, held};
use crate::stage::{Folder, Rng};

const KILLS: u64 = 200;

/// What a caller was told of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    fence: u64,
    who: String,
    count: i64,
}

/// What a thread had begun when it was killed.
#[derive(Clone, Debug)]
enum Begun {
    Nothing,
    Reserve { who: String },
    Update { value: u128, fence: u64, count: i64 },
    Release { value: u128, fence: u64 },
}

/// What must be there, and what may.
pub(crate) struct Model {
    told: BTreeMap<u128, Told>,
    begun: Vec<Begun>,
    pub(crate) answers: usize,
}

impl Model {
    /// What is there already is as it should be.
    pub(crate) fn of(ranges: &Ranges) -> Self {
        let told = held(ranges).into_iter().map(|seen| {
            let (who, count) = written(&seen.data);
            let fence = seen.fence;
            (seen.value, Told { fence, who, count })
        });
        Self {
            told: told.collect(),
            begun: vec![Begun::Nothing; THREADS],
            answers: 0,
        }
    }

    /// A child said this. A line that was cut off was not said.
    pub(crate) fn hear(&mut self, line: &str) {
        let Some(line) = line.strip_suffix(" .") else {
            return;
        };
        let words: Vec<&str> = line.split(' ').collect();
        let thread: usize = words[1].parse().unwrap();
        if words[0] == "try" {
            self.begun[thread] = match words[2..] {
                ["reserve", who] => Begun::Reserve { who: who.into() },
                ["update", value, fence, count] => Begun::Update {
                    value: value.parse().unwrap(),
                    fence: fence.parse().unwrap(),
                    count: count.parse().unwrap(),
                },
                ["release", value, fence] => Begun::Release {
                    value: value.parse().unwrap(),
                    fence: fence.parse().unwrap(),
                },
                _ => panic!("{line}"),
            };
            return;
        }
        self.answers += 1;
        match words[2..] {
            ["reserve", who, value, fence] => {
                self.reserved(who, value.parse().unwrap(), fence.parse().unwrap());
            }
            ["update", value, fence, count] => {
                let told = self.told.get_mut(&value.parse().unwrap()).unwrap();
                assert_eq!(told.fence, fence.parse::<u64>().unwrap());
                told.count = count.parse().unwrap();
            }
            ["release", value, fence] => {
                let (value, fence) = (value.parse().unwrap(), fence.parse::<u64>().unwrap());
                // Its next holder may have been told before we were.
                if self
                    .told
                    .get(&value)
                    .is_some_and(|told| told.fence == fence)
                {
                    self.told.remove(&value);
                }
            }
            _ => panic!("{line}"),
        }
        self.begun[thread] = Begun::Nothing;
    }

    /// No caller gets what another has, unless that one is giving it back.
    fn reserved(&mut self, who: &str, value: u128, fence: u64) {
        if let Some(other) = self.told.get(&value) {
            assert!(self.is_released(value, other.fence), "{value} twice");
            assert!(fence > other.fence, "fences of {value} grow");
        }
        let told = Told {
            fence,
            who: who.to_owned(),
            count: 0,
        };
        self.told.insert(value, told);
    }

    fn is_released(&self, at: u128, of: u64) -> bool {
        self.begun.iter().any(|begun| {
            matches!(begun, Begun::Release { value, fence }
                if (*value, *fence) == (at, of))
        })
    }

    fn is_updated(&self, at: u128, to: &Told) -> bool {
        self.begun.iter().any(|begun| {
            matches!(begun, Begun::Update { value, fence, count }
                if (*value, *fence, *count) == (at, to.fence, to.count))
        })
    }

    fn is_reserved(&self, by: &str) -> bool {
        let mut begun = self.begun.iter();
        begun.any(|begun| matches!(begun, Begun::Reserve { who } if who == by))
    }

    /// All that was told is there, and no more than what was on its way.
    pub(crate) fn check(&self, ranges: &Ranges) {
        let found = Self::of(ranges).told;
        for (value, told) in &self.told {
            match found.get(value) {
                Some(seen) if seen == told => (),
                // It was written to, and no caller was told.
                Some(seen) if seen.fence == told.fence => {
                    assert!(
                        self.is_updated(*value, seen),
                        "{value}: {told:?} is {seen:?}"
                    );
                }
                // It was given back, and perhaps to another.
                other => {
                    let is_right = self.is_released(*value, told.fence)
                        && other.is_none_or(|seen| self.is_reserved(&seen.who));
                    assert!(is_right, "{value}: {told:?} is {other:?}");
                }
            }
        }
        for (value, seen) in &found {
            let is_known = self.told.contains_key(value);
            assert!(
                is_known || self.is_reserved(&seen.who),
                "{value}: no call asked for {seen:?}"
            );
            let key = Which::Key(seen.who.as_bytes());
            let by_key = ranges.lookup(key).wait().unwrap();
            assert_eq!(by_key.len(), 1, "the unique key of {value}");
            assert_eq!((by_key[0].value, by_key[0].fence), (*value, seen.fence));
            assert_eq!(by_key[0].keys.len(), 2, "{:?}", by_key[0]);
        }
        check_counts(ranges);
    }
}

#[test]
fn what_was_told_before_a_kill_is_there_after_it() {
    let folder = Folder::new();
    let mut rng = Rng(4_711);
    let mut model = Model::of(&open_folder(&folder));
    let (mut answers, mut from_snapshots) = (0, 0);
    for kill in 0..KILLS {
        let role = Role {
            name: "busy",
            folder: &folder.0,
            seed: kill,
        };
        let mut process = role.start(&[]);
        assert_eq!(process.hear().as_deref(), Some("ready"), "kill {kill}");
        for _ in 0..rng.below(300) {
            model.hear(&process.hear().unwrap());
        }
        // Not only right after an answer.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(rng.below(2_000)) {}
        process.child.kill().unwrap();
        while let Some(line) = process.hear() {
            model.hear(&line);
        }
        process.child.wait().unwrap();
        answers += model.answers;
        let ranges = open_folder(&folder);
        from_snapshots += u64::from(ranges.loaded().chunks > 0);
        model.check(&ranges);
        model = Model::of(&ranges);
    }
    assert!(answers > 20 * KILLS as usize, "the children did work");
    assert!(from_snapshots > KILLS / 2, "they took snapshots too");
}
