//! The log of one machine is dealt out to partitions, and says the same there.

use std::time::Duration;

use rideau_core::Rng;
use rideau_core::allocator::{
    Ask, Change, Class, Effects, Entry, Fields, Key, LogSplit, Options, RangeOptions, RestoreParts,
    Seen, SnapshotAt, Which,
};
use rideau_core::cluster::Partitions;

use crate::bench::{Bench, options};

fn ranges() -> Vec<(String, RangeOptions)> {
    let claimed = RangeOptions {
        class: Class::Claimed,
        cool: Duration::from_secs(60),
        ..options("100-149")
    };
    let sync = options("0-49");
    vec![("sync".into(), sync), ("claimed".into(), claimed)]
}

/// A machine after random asks.
fn used(seed: u64) -> Bench {
    let mut rng = Rng::new(seed);
    let mut bench = Bench::new(&[]);
    for (name, options) in ranges() {
        bench.add(&name, options);
    }
    let mut held = Vec::new();
    for step in 0..300_u64 {
        bench.after(rng.below(5));
        let name = ["sync", "claimed"][rng.below(2) as usize];
        match rng.below(4) {
            0 | 1 => {
                let prefer = [bench.prefer(name, 0)];
                let text = step.to_string();
                let keys = [Key {
                    unique: true,
                    bytes: text.as_bytes(),
                }];
                let ask = Ask {
                    keys: &keys,
                    ..Ask::new(&prefer)
                };
                held.extend(bench.reserve(&ask).unwrap_or_default());
            }
            2 if !held.is_empty() => {
                let at = rng.below(held.len() as u64) as usize;
                let _ = bench.release(held.swap_remove(at));
            }
            _ if !held.is_empty() => {
                let one = held[rng.below(held.len() as u64) as usize];
                let fields = Fields::new();
                let change = Change {
                    ttl: Some(Duration::from_secs(rng.below(4_000))),
                    ..Change::new(&fields)
                };
                let (now, effects) = (bench.now, &mut bench.effects);
                let _ = bench
                    .machine
                    .update(Which::Value(one.value), &change, now, effects);
            }
            _ => (),
        }
        bench.sweep();
    }
    bench
}

#[test]
fn each_partition_is_told_what_happened_to_its_values() {
    for seed in 0..40 {
        let bench = used(seed);
        // As a snapshot, or as all that was logged; stopped in order or not.
        let mut log = bench.effects.log.clone();
        if seed % 2 == 0 {
            log.clear();
            let mut at = SnapshotAt::default();
            while bench.machine.snapshot(&mut at, 1_000, &mut log) {}
        }
        if seed % 3 == 0 {
            Entry::Stopped.put(&mut log);
        }
        let partitions = Partitions::new(16, 0).unwrap();
        let mut split = LogSplit::new(partitions);
        split.read(&log).unwrap();
        let fence = split.fence();
        let logs = split.finish();
        let (mut effects, now) = (Effects::new(), bench.now);
        let mut read = |partitions: Partitions, logs: &[Vec<u8>]| {
            let mut restore = RestoreParts::new(partitions, &Options::default(), ranges()).unwrap();
            for (part, log) in logs.iter().enumerate() {
                restore.read(part, log).unwrap();
            }
            restore.finish(now, &mut effects)
        };
        let mut one = read(Partitions::ONE, &[log]);
        let mut many = read(partitions, &logs);
        let mut held = 0;
        for value in (0..50).chain(100..150) {
            let stands = one.stands(value, now, &mut effects);
            assert_eq!(
                stands,
                many.stands(value, now, &mut effects),
                "{seed}: {value}"
            );
            let seen = one.lookup(Which::Value(value), now, &mut effects);
            let same = many.lookup(Which::Value(value), now, &mut effects);
            let plain = |seen: Vec<Seen>| -> Vec<_> {
                let seen = seen.into_iter();
                seen.map(|it| (it.value, it.fence, it.until, it.keys))
                    .collect()
            };
            held += seen.len();
            assert!(seen.iter().all(|it| it.fence <= fence));
            assert_eq!(plain(seen), plain(same), "{seed}: {value}");
        }
        assert!(held > 0, "{seed}: something is held");
    }
}
