//! Views of apps and their processes.

use std::time::Duration;

use crate::ledger::Reply;
use crate::queue::Overflow;
use crate::refusal::{Reason, Refusal};
use crate::time::{Brief, Instant};
use crate::waiting::Account;

use super::app::App;
use super::effect::{AppId, ProcessId};
use super::process::Process;
use super::stats::{AppLoad, AppStats, Deploy, ProcessStats, Stats};
use super::{Apps, Mode, come_back};

/// The words in which apps speak of themselves.
const ACCOUNT: Account<'static> = Account {
    served: "given a place",
    scarce: "Allow for more processes, or more requests at a time in each.",
    machine: "app",
};

/// The same if others start the processes.
const SERVERS_ACCOUNT: Account<'static> = Account {
    served: "given a place",
    scarce: "Add servers, or allow for more requests at a time in each.",
    machine: "upstream",
};

impl<R: Reply> Apps<R> {
    /// Numbers over all apps.
    pub fn stats(&self, _now: Instant) -> Stats {
        let processes = self.processes.all();
        Stats {
            used: self.counts.used(),
            live: self.counts.live(),
            starting: self.counts.starting,
            active: processes
                .filter(|(_, it)| it.server.is_none() && !it.is_unused())
                .count(),
            starved: self.room.len(),
            losses: self.worth.losses(),
            what_if: self.worth.what_if(),
        }
    }

    /// The apps that are there, also those that are being removed.
    pub fn ids(&self) -> impl Iterator<Item = AppId> {
        self.all().map(|(at, _)| AppId(at))
    }

    /// Numbers of one app. None if there is no such app.
    pub fn app_stats(&self, app: AppId, now: Instant) -> Option<AppStats> {
        let at = app.0;
        let app = self.apps.get(at as usize)?.as_ref()?;
        let asides = app.aside.values().map(|aside| aside.terms.sent);
        let oldest = app.waiting.oldest().into_iter().chain(asides).min();
        let slots = app.slots.iter();
        let streams = slots.clone().map(|slot| self.processes.at(*slot).streams);
        let failing = app.failures.is_failing();
        Some(AppStats {
            app: AppId(at),
            generation: app.generation,
            deploy: app.deploy,
            trial: app.trial.as_ref().map(|trial| trial.stats(now)),
            last_trial: app.last_trial,
            processes: slots
                .map(|slot| stats_of(app, self.processes.at(*slot), now))
                .collect(),
            waiting: app.waiting.len() + app.aside.len(),
            oldest: oldest.map_or(Duration::ZERO, |sent| now.since(sent)),
            wants_room: self.wants_room(at, now),
            sessions: app.sessions,
            tally: app.waiting.tally().clone(),
            finished: app.finished,
            cold: app.tallies.cold,
            starts: app.tallies.starts,
            start_failures: app.tallies.start_failures,
            start_times: app.tallies.start_times.clone(),
            left: app.tallies.left,
            failing: failing.then(|| (app.failures.count(), app.failures.wait(now))),
            start_time: app.pace.start(),
            service_time: app.pace.service(),
            concurrency: app.limit(),
            concurrency_moves: app.learnt.moves() + app.server_moves,
            streams: streams.sum(),
        })
    }

    /// How busy an app is. None if there is no such app, or an ask would be refused whatever
    /// it waits.
    pub fn load(&self, app: AppId, now: Instant) -> Option<AppLoad> {
        let at = app.0;
        let app = self.apps.get(at as usize)?.as_ref()?;
        if app.is_removed || app.hopeless(now).is_some() {
            return None;
        }
        let slots = app.slots.iter().map(|slot| self.processes.at(*slot));
        let ready = slots.filter(|process| process.is_ready());
        let (places, free) = ready.fold((0, 0), |(places, free), process| {
            let limit = app.limit_in(process);
            (
                places + limit,
                free + limit.saturating_sub(process.sessions),
            )
        });
        let start = match app.options.servers {
            // They are known soon.
            Some(_) => Duration::ZERO,
            None => app.pace.start(),
        };
        let is_ready = app.counts.ready > 0;
        Some(AppLoad {
            waiting: app.waiting.len() + app.aside.len(),
            free,
            places: if is_ready { places } else { app.limit() },
            start: (!is_ready).then_some(start),
            finished: app.finished,
            service_time: app.pace.service(),
        })
    }

    /// The last starts of an app have failed.
    pub fn is_failing(&self, app: AppId) -> bool {
        let app = self.apps.get(app.0 as usize);
        app.is_some_and(|app| app.as_ref().is_some_and(|app| app.failures.is_failing()))
    }

    /// Why an ask would be refused at once if it came now, and nothing is counted; none if
    /// it would be granted, or would wait.
    pub fn would_refuse(&self, app: AppId, now: Instant) -> Option<Refusal> {
        let at = app.0;
        let Some(Some(app)) = self.apps.get(at as usize) else {
            return Some(Refusal {
                reason: Reason::Closed,
                waited: Duration::ZERO,
                len: 0,
                retry_after: Duration::ZERO,
            });
        };
        let refusal = |reason| Some(app.waiting.queue().refusal(reason, now, now));
        if self.mode != Mode::Running || app.is_removed {
            return refusal(Reason::Closed);
        }
        if app.waiting.len() == 0 && !app.places.is_empty() {
            return None;
        }
        if let Some(reason) = app.hopeless(now) {
            let refusal = refusal(reason)?;
            return Some(come_back(refusal, self.comes_back_in(at, now)));
        }
        let queue = &app.options.queue;
        let most = queue.max.map_or(usize::MAX, |max| max as usize);
        let goes_itself = queue.overflow == Overflow::Newest && queue.fair.is_none();
        match goes_itself && app.waiting.len() >= most {
            true => refusal(Reason::Full),
            false => None,
        }
    }

    /// A request had an answer from a process that is there.
    pub fn has_answered(&self, process: ProcessId) -> bool {
        let found = self.find(process);
        found.is_some_and(|(slot, _)| self.processes.at(slot).has_answered)
    }

    /// Why asks for an app wait or were refused, in plain words.
    pub fn explain(&self, app: AppId, now: Instant) -> Vec<String> {
        let at = app.0;
        let Some(Some(app)) = self.apps.get(at as usize) else {
            return vec!["There is no such app.".into()];
        };
        let mut words = Vec::new();
        if app.waiting.len() > 0 {
            words.push(match app.options.servers {
                Some(_) => self.why_wait_for_servers(at),
                None => self.why_wait(at, now),
            });
        }
        words.extend(self.why_down(at, now));
        if !app.aside.is_empty() {
            let (waiting, longest) = (app.aside.len(), Brief(app.options.sticky_wait));
            let member = if app.options.servers.is_some() {
                "server"
            } else {
                "process"
            };
            words.push(format!(
                "{waiting} wait for the very {member} they were with before, each for at most \
                 {longest}."
            ));
        }
        if app.failures.is_failing() {
            let (count, wait) = (app.failures.count(), Brief(app.failures.wait(now)));
            let times = if count == 1 { "time" } else { "times in a row" };
            words.push(format!(
                "Its starts failed {count} {times}; the next is tried in {wait}."
            ));
        }
        let trial = app.trial.as_ref();
        if let Some(seen) = trial.map(|trial| trial.stats(now)) {
            let generation = app.generation;
            words.push(format!(
                "Generation {generation} is on trial beside the old one, for {seen}."
            ));
        }
        if app.deploy == Deploy::Failed {
            let rejected = app
                .last_trial
                .filter(|last| last.generation == app.generation);
            words.push(match rejected {
                Some(ended) => format!("The old code is kept: {ended}."),
                None => "The new code does not start, so the old one is kept.".into(),
            });
        }
        let account = match app.options.servers {
            Some(_) => &SERVERS_ACCOUNT,
            None => &ACCOUNT,
        };
        words.extend(app.waiting.explain(account, app.waiting.tally()));
        words
    }

    fn why_wait_for_servers(&self, at: u32) -> String {
        let app = self.app(at);
        let (waiting, ready) = (app.waiting.len(), app.counts.ready);
        match ready {
            0 if app.awaits_servers => {
                format!("{waiting} wait until the addresses of the servers are known.")
            }
            0 => format!("{waiting} wait because every server that answers was disabled."),
            1 => format!(
                "{waiting} wait because the server gets no more than {} at a time.",
                app.server_places
            ),
            ready => format!(
                "{waiting} wait because {ready} servers get no more than {} at a time together.",
                app.server_places
            ),
        }
    }

    /// How many servers are down, if some are.
    fn why_down(&self, at: u32, now: Instant) -> Option<String> {
        let app = self.app(at);
        let (down, all) = (app.counts.down, app.slots.len());
        let next = Brief(self.comes_back_in(at, now));
        match (down, all) {
            (0, 0) if app.options.servers.is_some() && !app.awaits_servers => {
                Some("It has no servers.".into())
            }
            (0, _) => None,
            (1, 1) => Some(format!("The server is down; it is asked again in {next}.")),
            (down, all) => Some(format!(
                "{down} of {all} servers are down; the next is asked again in {next}."
            )),
        }
    }

    fn why_wait(&self, at: u32, now: Instant) -> String {
        let app = self.app(at);
        let (waiting, counts) = (app.waiting.len(), app.counts);
        let start = Brief(app.pace.start());
        if counts.ready == 0 && counts.starting > 0 {
            return format!("{waiting} wait for a start, which takes about {start}.");
        }
        if let Some(since) = self.wants_room(at, now) {
            let (live, max) = (self.counts.live(), self.limits.max);
            let (since, live) = (Brief(since), processes(live));
            return format!(
                "{waiting} wait for one more process, which has waited for room for {since}: \
                 all apps have {live}, and {max} may be."
            );
        }
        let (ready, places) = (counts.ready, app.limit());
        let why = if counts.starting > 0 {
            "one more starts".into()
        } else if counts.taken() >= app.max(self.limits.max) {
            format!("the app may have {}", processes(app.max(self.limits.max)))
        } else {
            let wait = Brief(Duration::from_nanos(app.expected_wait(now)));
            format!("they will wait about {wait}, less than a start takes ({start})")
        };
        let which = match ready {
            1 => "the process".into(),
            ready => format!("each of {ready} processes"),
        };
        format!("{waiting} wait because {which} serves no more than {places} at a time; {why}.")
    }
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".into(),
        count => format!("{count} processes"),
    }
}

fn stats_of<R: Reply>(app: &App<R>, process: &Process, now: Instant) -> ProcessStats {
    ProcessStats {
        process: process.id,
        generation: process.generation,
        state: process.state(),
        sessions: process.sessions,
        streams: process.streams,
        concurrency: app.limit_in(process),
        finished: process.finished,
        age: now.since(process.since),
        unused: now.since(process.used),
        memory: process.memory,
    }
}
