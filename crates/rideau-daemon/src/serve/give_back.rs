//! Gives memory back to the system that nothing uses any more.
//!
//! An allocator keeps what was freed for the task that wants something next. In a
//! server that has nothing to do no task does, so after a crowd the process would stay
//! as large as the crowd was. One safe call makes an allocator give back all of it: a
//! request that no system can serve.

use std::hint::black_box;
use std::time::Duration;

use rideau_apps::IoThreads;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How often a thread gives back what it keeps.
const EVERY: Duration = Duration::from_secs(10);
/// I/O threads do so a little later than others: there is little left then, and their
/// connections wait for it.
const LATER: Duration = Duration::from_secs(1);

/// Have every thread that serves clients give back what it keeps, now and then.
pub(crate) fn keep_small(io_threads: &[&IoThreads]) {
    tokio::spawn(keep(Duration::ZERO));
    for runtime in io_threads
        .iter()
        .flat_map(|io_threads| io_threads.runtimes())
    {
        runtime.spawn(keep(LATER));
    }
}

/// Give back what the thread keeps that runs this, for ever.
async fn keep(later: Duration) {
    let mut ticks = interval_at(Instant::now() + EVERY + later, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        give_back();
    }
}

/// Have the allocator give back what it keeps for this thread and for none. Mimalloc does
/// so before it says no, which takes microseconds where there is nothing to give back.
fn give_back() {
    let mut nothing: Vec<u8> = Vec::new();
    let refused = nothing.try_reserve_exact(isize::MAX as usize);
    // The compiler could otherwise do without the request.
    drop(black_box((nothing, refused.is_err())));
}
