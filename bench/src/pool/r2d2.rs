//! r2d2: a mutex and a condition variable, for threads.
//!
//! Every task is a thread here, and holds its member over a yield to the
//! kernel. By default it tests a member at every take, and so it does here.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;

use r2d2::{ManageConnection, Pool};
use tokio::task::JoinSet;

use super::{Crowd, Hold, MEMBERS, Maker, Member, both_passes};
use crate::measure::{Pass, Plan, Sample, Stall};

pub(super) const NAME: &str = "r2d2";

pub(super) fn lend(crowd: Crowd, plan: &Plan) -> Result<Sample, Stall> {
    both_passes(crowd, plan, send_off)
}

fn send_off(crowd: Crowd, pass: &Arc<Pass>, tasks: &mut JoinSet<()>) {
    let pool = start();
    let pass = Arc::clone(pass);
    // One for all: the runtime would not start a thousand.
    tasks.spawn_blocking(move || {
        thread::scope(|threads| {
            for thread in 0..crowd.tasks {
                let (pool, pass) = (&pool, &*pass);
                threads.spawn(move || take_turns(thread, crowd.hold, pool, pass));
            }
        });
    });
}

fn take_turns(thread: usize, hold: Hold, pool: &Pool<Maker>, pass: &Pass) {
    while pass.goes_on() {
        let taken = pass.turn_blocking(thread, || pool.get());
        let mut held = taken.expect("waits are short here");
        held.uses += 1;
        if hold == Hold::Yield {
            thread::yield_now();
        }
    }
}

/// Returns when all members have been started.
fn start() -> Pool<Maker> {
    let pool = Pool::builder().max_size(MEMBERS as u32).build(Maker);
    pool.expect("every start succeeds")
}

impl ManageConnection for Maker {
    type Connection = Member;
    type Error = Infallible;

    fn connect(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }

    fn is_valid(&self, _: &mut Member) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Member) -> bool {
        false
    }
}
