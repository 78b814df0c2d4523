//! Whatever happens, nothing that was promised is broken, and in the end all is served.
//!
//! A seed that fails is run again, and its last steps are printed. To see it alone:
//! `RIDEAU_SEED=the seed cargo test -p rideau-core --profile sim --features planted --test
//! cluster laws`. To run more: `RIDEAU_SEEDS=50000`; `RIDEAU_SOAK` means 100,000. To see more
//! steps: `RIDEAU_STEPS=10000`. Seeds share all cores.

use std::collections::BTreeMap;
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::bugs::Bug;
use crate::faults::KINDS;
use crate::holders::LockClient;
use crate::host::Host;
use crate::locks::LockLease;
use crate::register::VALUES;
use crate::world::{PARTITIONS, SECOND, World};

/// How many seeds are run unless more are wanted, and where `RIDEAU_SOAK` is set.
const SEEDS: u64 = 10_000;
const SOAK_SEEDS: u64 = 100_000;
/// How many seeds are run with wild clocks.
const WILD_SEEDS: u64 = 60;
/// How many seeds are run of each number of many nodes.
const MANY_SEEDS: u64 = 4;
/// How long things go wrong.
const TROUBLE: u64 = 15 * SECOND;
/// A node reports within this many seconds, if nothing goes wrong.
const REPORT_WAIT: u32 = 4;
/// How long it may take until all is well again: requests may be late by 30 s.
const RECOVERY: u64 = 60 * SECOND;

#[test]
fn nothing_promised_is_broken_whatever_happens() {
    let number = |name| env::var(name).ok().map(|number| number.parse().unwrap());
    match number("RIDEAU_SEED") {
        Some(from) => _ = Seeds { from, count: 1 }.pass(),
        None => {
            let usual = env::var_os("RIDEAU_SOAK").map_or(SEEDS, |_| SOAK_SEEDS);
            let count = number("RIDEAU_SEEDS").unwrap_or(usual);
            let counts = Seeds::first(count).pass();
            println!("{counts:?}");
            let missing: Vec<_> = KINDS
                .iter()
                .filter(|kind| !counts.contains_key(*kind))
                .collect();
            assert!(missing.is_empty(), "no fault of these kinds: {missing:?}");
        }
    }
}

/// Durable state rests on no clock, so it survives clocks that are beyond all promises.
#[test]
fn what_is_written_survives_clocks_of_half_and_double_rate() {
    for seed in 0..WILD_SEEDS {
        let mut world = World::new(seed, None, false);
        world.wild = true;
        world.oracle.wild = true;
        let rng = &mut world.rng;
        for host in &mut world.hosts {
            host.rate = 500 + rng.below(1_501);
        }
        world.etcd_rate = 500 + rng.below(1_501);
        // A node whose lease ends before each keepalive owns nothing for long: how soon all
        // is served is not promised then.
        let broken = drive(&mut world)
            .err()
            .filter(|why| !why.starts_with("G10"));
        assert_eq!(broken, None, "seed {seed}");
    }
}

/// The same of more nodes than the usual three to nine.
#[test]
fn nothing_promised_is_broken_among_many_nodes() {
    let sizes: &[usize] = match env::var_os("RIDEAU_SOAK") {
        Some(_) => &[12, 24, 40, 70, 100],
        None => &[12, 24, 40],
    };
    for size in sizes {
        for seed in 0..MANY_SEEDS {
            let mut world = World::new(seed, None, false);
            while world.hosts.len() < *size {
                world.add_host();
            }
            let broken = drive(&mut world).err();
            assert_eq!(broken, None, "{size} nodes, seed {seed}");
        }
    }
}

/// Seeds in a row.
pub(crate) struct Seeds {
    from: u64,
    count: u64,
}

impl Seeds {
    pub(crate) const fn first(count: u64) -> Self {
        Self { from: 0, count }
    }

    /// Run all of them, each core the next. Returns how often each kind of fault happened.
    pub(crate) fn pass(self) -> BTreeMap<&'static str, u64> {
        let next = AtomicU64::new(self.from);
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let all = thread::scope(|scope| {
            let workers = (0..cores.min(self.count)).map(|_| scope.spawn(|| self.pass_some(&next)));
            let workers: Vec<_> = workers.collect();
            let all = workers.into_iter().map(|worker| worker.join().unwrap());
            all.fold(Passed::default(), Passed::plus)
        });
        if let Some((seed, why)) = all.failure {
            explain(seed, None);
            panic!("RIDEAU_SEED={seed}: {why}");
        }
        let (seeds, steps, served, batches) = (self.count, all.steps, all.served, all.batches);
        println!("{seeds} seeds, {steps} steps, {served} asks served, {batches} batches");
        all.counts
    }

    /// Run the seeds that no other thread runs, until one fails.
    fn pass_some(&self, next: &AtomicU64) -> Passed {
        let end = self.from + self.count;
        let mut passed = Passed::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return passed;
            }
            match run(seed, None) {
                Ok(world) => passed.count(&world),
                Err(why) => {
                    // The other threads end with the seeds that they have begun.
                    next.fetch_max(end, Ordering::Relaxed);
                    passed.failure = Some((seed, why));
                    return passed;
                }
            }
        }
    }
}

/// What came of some seeds.
#[derive(Default)]
struct Passed {
    counts: BTreeMap<&'static str, u64>,
    steps: u64,
    served: u64,
    batches: u64,
    /// The lowest seed that failed.
    failure: Option<(u64, String)>,
}

impl Passed {
    fn count(&mut self, world: &World) {
        self.steps += world.steps;
        self.served += world.served;
        self.batches += world.oracle.batches;
        for (kind, count) in world.faults.counts() {
            *self.counts.entry(*kind).or_default() += count;
        }
    }

    fn plus(mut self, other: Self) -> Self {
        self.steps += other.steps;
        self.served += other.served;
        self.batches += other.batches;
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        let failures = self.failure.into_iter().chain(other.failure);
        self.failure = failures.min();
        self
    }
}

/// The first seed that finds a bug, and what it found.
pub(crate) fn first_failure(bug: Bug, seeds: u64) -> Option<(u64, String)> {
    let fails = |seed| run(seed, Some(bug)).err().map(|why| (seed, why));
    (0..seeds).find_map(fails)
}

/// Run a seed again, and print its last steps.
fn explain(seed: u64, bug: Option<Bug>) {
    let mut world = World::new(seed, bug, true);
    let why = panic::catch_unwind(AssertUnwindSafe(|| drive(&mut world)));
    for line in world.traced() {
        println!("{line}");
    }
    println!("{why:?}");
}

fn run(seed: u64, bug: Option<Bug>) -> Result<World, String> {
    let run = panic::catch_unwind(|| {
        let mut world = World::new(seed, bug, false);
        drive(&mut world)?;
        Ok(world)
    });
    run.unwrap_or_else(|_| Err("an invariant of one node is broken".to_owned()))
}

fn drive(world: &mut World) -> Result<(), String> {
    world.run_until(TROUBLE)?;
    world.heal();
    let healed = world.now;
    let mut waits = BTreeMap::new();
    loop {
        let next = world.now + SECOND;
        world.run_until(next)?;
        check_reports(world, &mut waits)?;
        let unwell = unwell(world);
        if unwell.is_none() && world.now > healed + 3 * SECOND {
            break;
        }
        if let Some(why) = unwell
            && world.now > healed + RECOVERY
        {
            return Err(format!("G10: {why}"));
        }
    }
    world.faults.quiet = true;
    let next = world.now + 6 * SECOND;
    world.run_until(next)?;
    if let Some(ask) = world.oracle.open.first() {
        return Err(format!("G6: ask {ask} has no answer"));
    }
    check_registers(world)?;
    check_leases(world)
}

/// G10: a node that has seen the new owner is waited for in vain. `waits` has for how many
/// seconds each has been waited for.
fn check_reports(
    world: &World,
    waits: &mut BTreeMap<(u32, u64, String), u32>,
) -> Result<(), String> {
    let mut now = BTreeMap::new();
    for host in &world.hosts {
        let Some(process) = host.process.as_ref() else {
            continue;
        };
        for partition in (0..PARTITIONS).filter(|_| host.paused_until <= world.now) {
            let Some(epoch) = process.machine.open_in(partition) else {
                continue;
            };
            for node in process.machine.awaited_reports(partition) {
                let is_well = |other: &Host| {
                    let Some(process) = &other.process else {
                        return false;
                    };
                    let record = process.machine.table().owner(partition).record.as_ref();
                    process.machine.incarnation() == Some(node)
                        && record.is_some_and(|record| record.epoch == epoch)
                        && other.paused_until + SECOND <= world.now
                };
                if world.hosts.iter().any(is_well) {
                    let key = (partition, epoch, node.to_string());
                    let count = waits.get(&key).map_or(1, |count| count + 1);
                    now.insert(key, count);
                }
            }
        }
    }
    *waits = now;
    let stuck = waits.iter().find(|(_, count)| **count >= REPORT_WAIT);
    stuck.map_or(Ok(()), |(key, _)| {
        Err(format!("G10: a report is waited for in vain: {key:?}"))
    })
}

/// What is not well yet.
fn unwell(world: &World) -> Option<String> {
    for partition in 0..PARTITIONS {
        let mut servers = (0..world.hosts.len()).filter(|host| {
            let serves = world.serves(*host, partition);
            serves.is_some()
        });
        if servers.next().is_none() {
            return Some(format!("no node serves {partition}"));
        }
        if !(0..world.hosts.len()).any(|host| world.serves_names(host, partition)) {
            return Some(format!("no node serves the names of {partition}"));
        }
    }
    let mut tables = Vec::new();
    for (at, host) in world.hosts.iter().enumerate() {
        let Some(process) = &host.process else {
            if host.stopped {
                continue;
            }
            return Some(format!("n{at} does not run"));
        };
        if host.paused_until > world.now {
            return Some(format!("n{at} is paused"));
        }
        if host.stopped {
            continue;
        }
        if host.drains {
            return Some(format!("n{at} has not drained"));
        }
        let machine = &process.machine;
        if machine.incarnation().is_none() {
            return Some(format!("n{at} is no member"));
        }
        if machine.parked() > 0 {
            return Some(format!("n{at} has parked asks"));
        }
        if process.config.version() != world.oracle.config.version() {
            return Some(format!("n{at} does not know the newest config"));
        }
        if machine.is_moving() {
            return Some(format!("n{at} moves a partition"));
        }
        let owners: Vec<_> = (0..PARTITIONS).map(|it| machine.owner(it)).collect();
        tables.push(owners);
    }
    let differ = tables.windows(2).any(|pair| pair[0] != pair[1]);
    differ.then(|| "nodes differ about owners".to_owned())
}

/// G7: every value is free or reserved once, and owners have what is written.
fn check_registers(world: &World) -> Result<(), String> {
    for (at, host) in world.hosts.iter().enumerate() {
        let parts = host.process.iter().flat_map(|process| &process.parts);
        for (partition, part) in parts {
            if world.serves(at, *partition).is_some() {
                world.oracle.loaded(*partition, &part.register)?;
                let held = part.register.holds.len() as u64;
                if held > VALUES {
                    return Err(format!("G7: {held} of {VALUES} values are held"));
                }
            }
        }
    }
    Ok(())
}

/// G8: what clients hold, what their nodes have in rows, and what owners have, is the same.
fn check_leases(world: &World) -> Result<(), String> {
    let mut rows = Vec::new();
    let mut owned = Vec::new();
    for (at, host) in world.hosts.iter().enumerate() {
        let Some(process) = &host.process else {
            continue;
        };
        let Some(node) = process.machine.incarnation() else {
            continue;
        };
        if process.rows.unheard() > 0 {
            return Err(format!("G8: n{at} repeats what no owner hears"));
        }
        for (ticket, _, fence) in process.rows.leases() {
            let node = node.clone();
            rows.push(LockLease {
                node,
                ticket,
                fence,
            });
            let holds = |client: &LockClient| client.held() == Some((at, ticket));
            if !world.holders.iter().any(holds) {
                return Err(format!(
                    "G8: n{at} has a row of {ticket}, and no client has"
                ));
            }
        }
        for (partition, part) in &process.locks {
            if world.serves_names(at, *partition) {
                owned.extend(part.leases().cloned());
                if part.waiting() > 0 {
                    return Err(format!("G6: n{at} has asks without answer"));
                }
            }
        }
    }
    let by_ticket = |lease: &LockLease| lease.ticket;
    rows.sort_by_key(by_ticket);
    owned.sort_by_key(by_ticket);
    if rows != owned {
        return Err(format!("G8: entry nodes have {rows:?}, owners {owned:?}"));
    }
    let waits = world.holders.iter().position(LockClient::waits);
    waits.map_or(Ok(()), |client| {
        Err(format!("G6: holder {client} has no answer"))
    })
}
