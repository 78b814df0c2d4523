//! Processor time: what this process used, and what others used meanwhile.

use std::fs;
use std::process::id;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::family::{Family, Stat};

/// Processor time of all threads of this process so far, to the nanosecond.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime)
        .try_into()
        .expect("processor time counts up from zero")
}

/// The machine's counters when a run began.
pub(super) struct Load {
    since: Instant,
    own: Duration,
    busy: Duration,
}

impl Load {
    pub(super) fn start() -> Self {
        Self {
            since: Instant::now(),
            own: cpu_time() + children_time(),
            busy: busy_time(),
        }
    }

    /// Cores that other processes, and other guests of the host, used since.
    ///
    /// The kernel counts in ticks of 10 ms, so a quiet machine may read as
    /// slightly less than nothing; that is nothing.
    pub(super) fn foreign(&self) -> f64 {
        let own = (cpu_time() + children_time()).saturating_sub(self.own);
        let busy = busy_time() - self.busy;
        busy.saturating_sub(own).as_secs_f64() / self.since.elapsed().as_secs_f64()
    }
}

/// Time in which any core of the machine was not idle.
fn busy_time() -> Duration {
    let stat = fs::read_to_string("/proc/stat").expect("Linux has /proc/stat");
    let cores = stat.lines().next().expect("its first line sums all cores");
    let ticks: Vec<u32> = cores
        .split_whitespace()
        .skip(1)
        .map(|ticks| ticks.parse().expect("ticks are numbers"))
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        panic!("the line of all cores has eight counts: {cores}");
    };
    TICK * (user + nice + system + irq + softirq + steal)
}

/// Processor time of children: of those that have ended, and of those that
/// still run, with theirs.
fn children_time() -> Duration {
    let ended = 2;
    let own = Stat::read(id()).expect("Linux has /proc/self/stat");
    let run = Family::of(id());
    let run = run.others().filter_map(Stat::read);
    let ticks = own.ticks(ended) + run.map(|stat| stat.ticks(0)).sum::<u32>();
    TICK * ticks
}

/// What the kernel counts processor time in.
const TICK: Duration = Duration::from_millis(10);
