//! Facts of an application, and of a process.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::{Answered, App, AppShown, Apps, ProcessShown};
use rideau_core::WaitingRoomStats;
use rideau_core::apps::{Deploy, Leaving, State};
use serde_json::{Value as Json, json};

use super::{Columns, facts, in_unit};
use crate::state::viewer::Viewer;

/// The states of a process, by their words.
const STATES: [&str; 6] = [
    "starting", "ready", "disabled", "down", "draining", "stopping",
];

/// An application at one moment, as a user sees it.
pub(crate) struct AppNow {
    app: Arc<App>,
    shown: AppShown,
    /// Whether the viewer may see the output of its programs.
    sees_output: bool,
    answered: OnceCell<Vec<Answered>>,
}

impl AppNow {
    pub(crate) fn of(apps: &Apps, app: &Arc<App>, viewer: Viewer<'_>) -> Option<Self> {
        Some(Self {
            shown: apps.shown(app)?,
            sees_output: viewer.sees_output("app", &app.name),
            app: Arc::clone(app),
            answered: OnceCell::new(),
        })
    }

    /// The applications that one may see.
    pub(crate) fn all(apps: &Apps, viewer: Viewer<'_>) -> Vec<Self> {
        let all = apps.all();
        let seen = all.iter().filter(|app| viewer.sees("app", &app.name));
        seen.filter_map(|app| Self::of(apps, app, viewer)).collect()
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = ProcessNow> {
        self.shown.processes.iter().map(|shown| ProcessNow {
            app: Arc::clone(&self.shown.name),
            shown: shown.clone(),
            sees_output: self.sees_output,
        })
    }

    /// Why its last start failed, for a user that may read that.
    pub(crate) fn report(&self) -> Option<&rideau_process::StartReport> {
        let report = self.shown.report.as_deref();
        report.filter(|_| self.sees_output)
    }

    fn why(&self) -> Option<String> {
        let stats = &self.shown.stats;
        let last = stats.last_trial.as_ref();
        let rejected = last.filter(|last| last.generation == stats.generation);
        match (&stats.trial, stats.deploy, rejected) {
            (Some(seen), ..) => Some(format!("on trial for {seen}")),
            (None, Deploy::Failed, Some(ended)) => Some(ended.to_string()),
            _ => self.report().map(|report| report.summary.clone()),
        }
    }

    fn count(&self, wanted: impl Fn(State) -> bool) -> usize {
        let states = self.shown.stats.processes.iter();
        states.filter(|process| wanted(process.state)).count()
    }

    fn by_state(&self) -> Vec<(&'static str, u64)> {
        let count = |word: &'static str| (word, self.count(|state| state.word() == word) as u64);
        STATES.map(count).to_vec()
    }

    fn memory(&self) -> u64 {
        let processes = self.shown.stats.processes.iter();
        processes.map(|process| process.memory).sum()
    }

    fn places(&self) -> usize {
        let processes = self.shown.stats.processes.iter();
        let ready = processes.filter(|process| process.state == State::Ready);
        ready.map(|process| process.concurrency).sum()
    }

    /// What serves its requests comes from here, or from others.
    fn kind(&self) -> &'static str {
        match self.shown.has_servers {
            true => "upstream",
            false => "app",
        }
    }

    fn room(&self) -> WaitingRoomStats {
        self.shown.room.unwrap_or_default()
    }

    fn answered(&self) -> &[Answered] {
        self.answered.get_or_init(|| self.app.counts.classes())
    }

    fn codes(&self) -> Vec<(&'static str, u64)> {
        let classes = self.answered().iter();
        classes.map(|class| (class.code, class.count)).collect()
    }

    fn took(&self) -> Vec<Columns> {
        let classes = self.answered().iter().map(|class| Columns {
            of: class.code.into(),
            sum: class.sum,
            counts: class.columns.clone(),
        });
        classes.collect()
    }

    fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.app.counts.refusals()
    }

    fn left(&self) -> Vec<(&'static str, u64)> {
        let left = &self.shown.stats.left;
        Leaving::ALL
            .map(|why| (why.word(), left[why.index()]))
            .to_vec()
    }

    fn is_broken(&self) -> bool {
        let failing = self.shown.stats.failing;
        failing.is_some_and(|(_, wait)| wait > Duration::ZERO)
    }

    fn failing(&self) -> Option<Json> {
        let (failures, wait) = self.shown.stats.failing?;
        let wait = in_unit(wait, "retry_after_us");
        Some(json!({ "failures": failures, "retry_after_us": wait }))
    }
}

facts! { AppNow: "app" by "app", joined { "spawns": "Starts of processes." };
    name: Text, [NARROW, JSON], |it| &*it.shown.name, "The name of the app.";
    state: Text, [NARROW, JSON], |it| it.shown.state(), "Its state, in one word.";
    ready: Count, [NARROW],
        |it| it.count(|state| matches!(state, State::Ready | State::Disabled)),
        "Processes that have started and do not end.";
    ready: Count, [JSON, HISTORY],
        |it| it.count(|state| state == State::Ready), "Processes that serve.";
    disabled: Count, [JSON],
        |it| it.count(|state| state == State::Disabled), "Processes that get no more requests.";
    starting: Count, [BRIEF, JSON, HISTORY],
        |it| it.count(|state| state == State::Starting), "Processes that are starting.";
    leaving: Count, [SHOW, JSON],
        |it| it.count(|state| matches!(state, State::Draining(_) | State::Stopping(_))),
        "Processes that are stopping.";
    processes: Count, [HISTORY], |it| it.shown.stats.processes.len(), "All its processes.";
    processes: Counts, [GAUGE.with(&[("state", "*")])],
        |it| it.by_state(), "All processes, with those that are stopping.";
    memory: Bytes, [GAUGE],
        |it| it.memory(), "Memory of its processes and of all they have started.";
    cpu_us: Span, [COUNTER], |it| it.app.processor(),
        "Processor time of its processes and of all they have started.";
    max: Count|null, [SHOW, JSON],
        |it| it.shown.max, "The most processes it may have, if it has a limit of its own.";
    sessions: Count, [NARROW, JSON, HISTORY.named("held"), GAUGE],
        |it| it.shown.stats.sessions, "Requests that are being served.";
    places: Count, [GAUGE], |it| it.places(),
        "How many requests its ready processes can serve at a time.";
    waiting: Count, [NARROW, JSON, HISTORY, GAUGE.named("queue_length")],
        |it| it.shown.stats.waiting, "Requests that wait for a place.";
    oldest_wait_us: Span, [BRIEF, JSON, HISTORY, GAUGE],
        |it| it.shown.stats.oldest, "How long the oldest waiting ask has waited.";
    wait_p99_us: Span, [PAGE],
        |it| it.shown.stats.tally.waits.quantile(0.99), "99 of 100 requests waited no longer.";
    wait: Spans, [HISTORY, HISTOGRAM.named("queue")],
        |it| &it.shown.stats.tally.waits, "How long requests waited that got a place.";
    answered: Counts, [JSON, COUNTER.named("requests").with(&[("code", "*")])],
        |it| it.codes(), "Requests that the application answered.";
    request_seconds: Columns, [HISTOGRAM.with(&[("code", "*")])],
        |it| it.took(), "Time from the grant of a place to the head of the answer.";
    errors: Counts, [COUNTER.with(&[("error", "*")])], |it| it.errors().collect::<Vec<_>>(),
        "Requests that the front answered instead, by X-Rideau-Error.";
    errors: Counts, [JSON], |it| it.errors().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
        "Requests that the front answered instead, by X-Rideau-Error.";
    files: Count, [JSON, COUNTER], |it| it.app.counts.files(),
        "Requests that the front answered with a file.";
    ask: Tally, [JSON, COUNTER.named("asks").with(&[("outcome", "*")])], |it| &it.shown.stats.tally,
        "What became of asks for a place, of the front and of APP.GET.";
    served: Count, [RATE.named("grants")],
        |it| it.shown.stats.tally.served, "Asks that got a place.";
    finished: Count, [NARROW, JSON], |it| it.shown.stats.finished, "Requests that are over.";
    refused: Count, [BRIEF, RATE.named("refusals")],
        |it| it.shown.stats.tally.shed_total(), "Asks that got no place.";
    cold: Count, [SHOW, JSON, COUNTER.named("cold_starts")],
        |it| it.shown.stats.cold, "Requests that waited for a process to start.";
    starts: Count, [BRIEF, JSON, RATE, COUNTER.named("spawns").with(&[("outcome", "ok")])],
        |it| it.shown.stats.starts, "Starts that succeeded.";
    starts_failed: Count, [BRIEF, JSON, COUNTER.named("spawns").with(&[("outcome", "failed")])],
        |it| it.shown.stats.start_failures, "Starts that failed.";
    start_us: Span, [SHOW],
        |it| it.shown.stats.start_time, "How long a start is expected to take.";
    start: Spans, [JSON, HISTOGRAM.named("spawn")],
        |it| &it.shown.stats.start_times, "How long successful starts took.";
    service_us: Span, [SHOW],
        |it| it.shown.stats.service_time, "How long a request is expected to take.";
    left: Counts, [JSON, COUNTER.named("exits").with(&[("cause", "*")])],
        |it| it.left(), "Processes that ended.";
    generation: Count, [SHOW, JSON, GAUGE], |it| it.shown.stats.generation,
        "The generation of its code: one more with each restart.";
    failures: Count, [GAUGE],
        |it| it.shown.stats.failing.map_or(0, |(count, _)| count), "Starts that failed in a row.";
    breaker_open: Flag, [GAUGE], |it| it.is_broken(),
        "Whether no start is tried for a while, because the last ones failed.";
    failing: Shape("Failing")|null, [JSON],
        |it| it.failing(), "How many starts failed in a row, and when the next is tried.";
    deploy_failed: Flag, [GAUGE], |it| it.shown.stats.deploy == Deploy::Failed,
        "Whether new code failed to start and the old code goes on.";
    why: Text|null, [NARROW, JSON],
        |it| it.why(), "Why its last start failed, or how new code does or did on trial.";
    room_wait_us: Span, [SHOW, JSON, GAUGE],
        |it| it.shown.stats.wants_room.unwrap_or_default(),
        "How long it has waited for room for a process; zero if it does not wait.";
    concurrency: Count, [BRIEF, JSON, HISTORY, GAUGE], |it| it.shown.stats.concurrency,
        "Requests at a time in one process, as the config says or as was learnt.";
    concurrency_moves: Count, [JSON, COUNTER], |it| it.shown.stats.concurrency_moves,
        "How often what was learnt of that changed.";
    streams: Count, [SHOW, JSON, GAUGE], |it| it.shown.stats.streams,
        "Streams that take no place, such as events and WebSockets.";
    kind: Text, [SHOW, JSON], |it| it.kind(), "`app`, or `upstream` if others start its servers.";
    down: Count, [SHOW, JSON, HISTORY], |it| it.count(|state| matches!(state, State::Down(_))),
        "Servers that get no requests until they answer again.";
    room_len: Count, [SHOW, JSON, HISTORY, GAUGE], |it| it.room().len,
        "Browsers in the waiting room whose turn has not come.";
    room_turns: Count, [JSON, GAUGE], |it| it.room().turns,
        "Browsers whose turn has come and that have no place yet.";
    room_entered: Count, [SHOW, JSON, COUNTER], |it| it.room().entered,
        "Requests of browsers that came in through the waiting room, at once or after a wait.";
    room_lost: Count, [SHOW, JSON, COUNTER], |it| it.room().lost,
        "Turns that were lost, because their browsers did not come back in time.";
}

/// A process at one moment, as a user sees it.
pub(crate) struct ProcessNow {
    app: Arc<str>,
    shown: ProcessShown,
    sees_output: bool,
}

impl ProcessNow {
    /// Why it is to end, if it is.
    const fn why(&self) -> Option<&'static str> {
        match self.shown.stats.state {
            State::Down(why) | State::Draining(why) | State::Stopping(why) => Some(why.word()),
            State::Starting | State::Ready | State::Disabled => None,
        }
    }

    fn pid(&self) -> Option<u64> {
        self.shown.pid.map(|pid| i64::from(pid).unsigned_abs())
    }
}

facts! { ProcessNow: "process" by "process", joined {};
    name: Text, [BRIEF], |it| &*it.app, "The application that it belongs to.";
    id: Count, [SHOW, JSON], |it| it.shown.stats.process.0, "Its number in Rideau.";
    pid: Count|null, [BRIEF, JSON], |it| it.pid(), "Its process id, once it is ready.";
    state: Text, [BRIEF, JSON], |it| it.shown.stats.state.word(), "Its state, in one word.";
    why: Text|null, [JSON], |it| it.why(), "Why it is to end, if it is.";
    generation: Count, [BRIEF, JSON], |it| it.shown.stats.generation, "The generation of the code \
        that it runs.";
    sessions: Count, [BRIEF, JSON], |it| it.shown.stats.sessions, "Requests that it serves now.";
    streams: Count, [SHOW, JSON],
        |it| it.shown.stats.streams, "Streams that take no place, such as events and WebSockets.";
    finished: Count, [BRIEF, JSON], |it| it.shown.stats.finished, "Requests that are over.";
    age_us: Span, [BRIEF, JSON], |it| it.shown.stats.age, "Its age.";
    unused_us: Span, [BRIEF, JSON], |it| it.shown.stats.unused, "How long it has served nothing.";
    memory: Bytes, [BRIEF, JSON],
        |it| it.shown.stats.memory, "Its memory, with all it has started.";
    cpu_us: Span, [BRIEF, JSON],
        |it| it.shown.processor, "Its processor time, with all it has started.";
    address: Text|null, [SHOW, JSON], |it| it.shown.address.as_deref(), "The address where it is \
        reached.";
    server: Text|null, [SHOW, JSON], |it| it.shown.server.as_deref(),
        "What the config calls it, if others start it.";
    concurrency: Count, [SHOW, JSON], |it| it.shown.stats.concurrency,
        "Requests that it gets at a time, as the config says or as was learnt.";
    requests: Shape("[AppRequest]")|null, [JSON],
        |it| it.sees_output.then(|| json!(it.shown.requests)),
        "The requests that it serves now, for users that may read its log.";
}
