//! Looks at the places now and then, and reports what would not be noticed otherwise:
//! which holder keeps a member too long, where asks are shed, where members do not
//! start.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau::{Circuit, Reason, Tally};
use rideau_core::Brief;

use crate::state::daemon::Daemon;
use crate::state::grant::Grant;
use crate::state::ticket::Ticket;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(250);
/// A place that has shed no ask for this long does not shed any more.
const CALM: Duration = Duration::from_secs(10);

/// Reasons by which a place sheds, and not the asker's own ones.
const SHED: [Reason; 9] = [
    Reason::Full,
    Reason::Timeout,
    Reason::CoDel,
    Reason::Bound,
    Reason::MinDelay,
    Reason::Standing,
    Reason::Custom,
    Reason::Hopeless,
    Reason::Protected,
];

/// The observations so far.
#[derive(Default)]
pub(crate) struct Watcher {
    /// By kind and name.
    catalog: HashMap<(&'static str, Arc<str>), Seen>,
    /// Leases that were reported.
    leaks: HashSet<Ticket>,
}

/// The observations of one pool, broker or regulator.
#[derive(Default)]
struct Seen {
    shed: [u64; Reason::ALL.len()],
    shedding: Option<Shedding>,
    is_failing: bool,
    /// It was there at the last look.
    is_there: bool,
}

/// A place sheds.
struct Shedding {
    since: Instant,
    last: Instant,
    count: u64,
}

/// Look for ever.
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut watcher = Watcher::default();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        watcher.look(&daemon, now);
        daemon.logins.look(now);
    }
}

impl Watcher {
    /// Look once, and report what is new.
    pub(crate) fn look(&mut self, daemon: &Daemon, now: Instant) {
        self.catalog
            .values_mut()
            .for_each(|seen| seen.is_there = false);
        let catalog = daemon.catalog.load();
        for place in catalog.pools.values() {
            let stats = place.stats();
            let seen = self.seen("pool", &place.name);
            seen.shed(daemon, "pool", &place.name, &[&stats.takes], now);
            let is_failing = stats.circuit != Circuit::Closed;
            if is_failing != seen.is_failing {
                seen.is_failing = is_failing;
                let name = &place.name;
                let (text, detail) = if is_failing {
                    let why = place.members.failure().map_or_else(
                        || last_fault(&place.explain()),
                        |failure| failure.to_string(),
                    );
                    (
                        format!("members of pool {name} do not start"),
                        format!(": {why}"),
                    )
                } else {
                    (format!("members of pool {name} start again"), String::new())
                };
                daemon.events.add_with("pool", name, text, detail, None);
            }
        }
        for place in catalog.brokers.values() {
            let stats = place.broker.stats();
            let seen = self.seen("broker", &place.name);
            let tallies = [&stats.asks, &stats.offers];
            seen.shed(daemon, "broker", &place.name, &tallies, now);
        }
        for place in catalog.regulators.values() {
            let stats = place.regulator.stats();
            let seen = self.seen("regulator", &place.name);
            seen.shed(daemon, "regulator", &place.name, &[&stats.asks], now);
        }
        self.catalog.retain(|_, seen| seen.is_there);
        self.look_for_leaks(daemon);
    }

    fn seen(&mut self, kind: &'static str, name: &Arc<str>) -> &mut Seen {
        let seen = self.catalog.entry((kind, Arc::clone(name))).or_default();
        seen.is_there = true;
        seen
    }

    /// Report each lease that is held longer than its pool likes, once.
    fn look_for_leaks(&mut self, daemon: &Daemon) {
        let catalog = daemon.catalog.load();
        let mut pools = catalog.pools.values();
        if pools.all(|place| place.config.load().leak_after.is_none()) {
            self.leaks.clear();
            return;
        }
        let late = daemon.lease_table.late(|grant, held| {
            let Grant::Member { pool, .. } = grant else {
                return false;
            };
            let after = pool.config.load().leak_after;
            after.is_some_and(|after| held > after)
        });
        let mut leaks = HashSet::with_capacity(late.len());
        for row in late {
            if !self.leaks.contains(&row.ticket) {
                let note = row
                    .note
                    .map_or(String::new(), |note| format!(" ({note:?})"));
                let holder = row.card.name.lock().clone();
                let text = format!(
                    "{holder}{note} has held {} of pool {} for {}, longer than leak_after",
                    row.value,
                    row.name,
                    Brief(row.held)
                );
                daemon.events.add("leak", &row.name, text, None);
            }
            leaks.insert(row.ticket);
        }
        self.leaks = leaks;
    }
}

impl Seen {
    /// Report when shedding begins and when it is over, not each ask that is shed.
    fn shed(
        &mut self,
        daemon: &Daemon,
        kind: &'static str,
        name: &str,
        tallies: &[&Tally],
        now: Instant,
    ) {
        let mut more: Vec<(u64, &str)> = Vec::new();
        for reason in SHED {
            let at = reason.index();
            let count: u64 = tallies.iter().map(|tally| tally.shed[at]).sum();
            let before = std::mem::replace(&mut self.shed[at], count);
            if count > before {
                more.push((count - before, reason.word()));
            }
        }
        let count: u64 = more.iter().map(|(count, _)| count).sum();
        match &mut self.shedding {
            Some(shedding) if count > 0 => {
                shedding.last = now;
                shedding.count += count;
            }
            Some(shedding) if now.duration_since(shedding.last) >= CALM => {
                let took = shedding.last.duration_since(shedding.since);
                let all = shedding.count;
                let text = match all {
                    1 => format!("{kind} {name} has stopped shedding: 1 was shed"),
                    _ if took.is_zero() => {
                        format!("{kind} {name} has stopped shedding: {all} were shed at once")
                    }
                    _ => format!(
                        "{kind} {name} has stopped shedding: {all} were shed in {}",
                        Brief(took)
                    ),
                };
                self.shedding = None;
                daemon.events.add("shed", name, text, None);
            }
            Some(_) => (),
            None if count > 0 => {
                let by = more.iter().max().map_or("", |(_, word)| word);
                let text = format!("{kind} {name} begins to shed, {count} so far ({by})");
                self.shedding = Some(Shedding {
                    since: now,
                    last: now,
                    count,
                });
                daemon.events.add("shed", name, text, None);
            }
            None => (),
        }
    }
}

/// The sentence of a pool about its last failed start.
fn last_fault(explained: &str) -> String {
    let mut lines = explained.lines();
    let line = lines.find_map(|line| line.strip_prefix("The last start failed: "));
    line.unwrap_or("EXPLAIN says more").to_owned()
}
