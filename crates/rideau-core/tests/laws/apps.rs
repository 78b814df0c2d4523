//! What apps and their processes obey whatever happens around them.

mod inputs;
mod model;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::run::Run;

/// This many inputs in each case.
const STEPS: usize = 400;

/// A million inputs at random: I1 to I9 after each of them, and at the end that
/// every ask is answered and everything goes.
#[test]
fn apps_are_their_model() {
    let cases = u64::from(crate::cases(2_500).cases);
    for seed in 0..cases {
        let play = |is_told| {
            let mut run = Run::new(seed, is_told);
            (0..STEPS).for_each(|_| run.step());
            run.come_to_rest();
            run.end();
        };
        if catch_unwind(AssertUnwindSafe(|| play(false))).is_err() {
            println!("seed {seed}, told step by step:");
            play(true);
        }
    }
}
