//! Random steps against the model, with crashes at every moment.
//!
//! A seed that fails is printed. To see it again alone, and nothing else:
//! `RIDEAU_SEED=the seed cargo test -p rideau-core --test ranges laws`.

use std::env;
use std::panic::{self, AssertUnwindSafe};

use crate::steps::Deed;
use crate::world::World;

const SEEDS: u64 = 130;
const STEPS: u64 = 1_000;

#[test]
fn no_holder_loses_or_shares_a_value_whatever_happens() {
    let soak = env::var_os("RIDEAU_SOAK").map_or(1, |_| 32);
    let only = env::var("RIDEAU_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(0..SEEDS * soak, |seed: u64| seed..seed + 1);
    let mut crashes = 0;
    for seed in seeds {
        let run = panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
        match run {
            Ok(some) => crashes += some,
            Err(why) => {
                eprintln!("RIDEAU_SEED={seed} cargo test -p rideau-core --test ranges laws");
                panic::resume_unwind(why);
            }
        }
    }
    assert!(
        only.is_some() || crashes > SEEDS,
        "it crashed {crashes} times"
    );
}

fn run(seed: u64) -> u64 {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.pass();
        if world.chance(80) {
            world.sweep();
        }
        step(&mut world);
        world.check_counts();
        if world.chance(10) {
            world.check_values();
            world.check_holds();
        }
    }
    world.crashes
}

fn step(world: &mut World) {
    match world.below(200) {
        0..70 => world.reserve(),
        70..78 => world.alter(Deed::Claim),
        78..90 => world.alter(Deed::Write),
        90..105 => world.alter(Deed::Update),
        105..120 => world.alter(Deed::Refresh),
        120..126 => world.cancel(),
        126..142 => world.release(),
        142..143 => world.release_some(),
        143..150 => world.lookup(),
        150..155 => world.set_range(),
        155..157 => world.remove_range(),
        157..172 => world.write(),
        172..187 => {
            world.sync();
        }
        187..196 => world.snapshot(),
        196..198 => world.restart(true),
        _ => world.restart(false),
    }
}
