//! The numbers of applications and their processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::{Answered, App, AppShown, Apps};
use rideau_config::Config;
use rideau_core::apps::{Deploy, Leaving, State};

use super::page::{Labels, Page, tally};

/// The states of a process, by their words.
const STATES: [&str; 5] = ["starting", "ready", "disabled", "draining", "stopping"];

/// One application, with what it answered.
struct Row {
    app: Arc<App>,
    shown: AppShown,
    classes: Vec<Answered>,
}

pub(super) fn apps(page: &mut Page<'_, '_>, apps: &Apps, config: &Config) -> fmt::Result {
    let all = apps.all();
    let row = |app: &Arc<App>| {
        Some(Row {
            app: Arc::clone(app),
            shown: apps.shown(app)?,
            classes: app.counts.classes(),
        })
    };
    let rows: Vec<_> = all.iter().filter_map(row).collect();
    processes(page, &rows)?;
    load(page, &rows)?;
    requests(page, &rows)?;
    waits(page, &rows)?;
    comings(page, &rows)?;
    trouble(page, &rows)?;
    room(page, apps, config)
}

/// How many processes there are, and what they use.
fn processes(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let counts = rows.iter().flat_map(|row| {
        STATES.map(|state| {
            let all = row.shown.stats.processes.iter();
            let count = all.filter(|process| process.state.word() == state);
            (row.with("state", state), count.count() as f64)
        })
    });
    page.gauges(
        "rideau_app_processes",
        "Processes, also those on their way out",
        counts,
    )?;
    let memory = rows.iter().map(|row| {
        let all = row.shown.stats.processes.iter();
        (row.name(), all.map(|process| process.memory as f64).sum())
    });
    page.gauges(
        "rideau_app_memory_bytes",
        "What its processes use of memory, with all they have started",
        memory,
    )?;
    page.counters(
        "rideau_app_cpu_seconds",
        "Processor time that its processes used, with all they have started",
        rows.iter()
            .map(|row| (row.name(), row.app.processor().as_secs_f64())),
    )
}

/// How much it serves, and how much it could.
fn load(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    page.gauges(
        "rideau_app_sessions",
        "Requests that are being served",
        rows.iter()
            .map(|row| (row.name(), row.shown.stats.sessions as f64)),
    )?;
    let places = rows.iter().map(|row| {
        let all = row.shown.stats.processes.iter();
        let ready = all.filter(|process| process.state == State::Ready).count();
        let each = row.app.config.load().options.concurrency;
        (row.name(), (ready * each) as f64)
    });
    page.gauges(
        "rideau_app_places",
        "Requests that its ready processes serve at a time, if there are as many",
        places,
    )?;
    page.gauges(
        "rideau_app_queue_length",
        "Requests that wait for a place",
        rows.iter()
            .map(|row| (row.name(), row.shown.stats.waiting as f64)),
    )?;
    page.gauges(
        "rideau_app_oldest_wait_seconds",
        "How long the oldest waiting ask has waited",
        rows.iter()
            .map(|row| (row.name(), row.shown.stats.oldest.as_secs_f64())),
    )
}

/// What clients were answered, and by what.
fn requests(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let answered = rows.iter().flat_map(|row| {
        let classes = row.classes.iter();
        classes.map(|class| (row.with("code", class.code), class.count))
    });
    page.counters(
        "rideau_app_requests",
        "Requests that the application answered",
        answered,
    )?;
    let refused = rows.iter().flat_map(|row| {
        let words = row.app.counts.refusals();
        words.map(|(word, count)| (row.with("error", word), count))
    });
    page.counters(
        "rideau_app_errors",
        "Requests that the front answered instead, by X-Rideau-Error",
        refused,
    )?;
    let took = rows.iter().flat_map(|row| {
        let classes = row.classes.iter();
        classes.map(|class| {
            (
                row.with("code", class.code),
                class.sum,
                class.columns.clone(),
            )
        })
    });
    page.columns(
        "rideau_app_request_seconds",
        "From the grant of a place to the head of the answer",
        took,
    )?;
    let asks = rows.iter().flat_map(|row| {
        let outcomes = tally(&row.shown.stats.tally);
        outcomes.map(|(outcome, count)| (row.with("outcome", outcome), count))
    });
    page.counters(
        "rideau_app_asks",
        "What became of asks for a place, of the front and of APP.GET",
        asks,
    )
}

fn waits(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    page.histograms(
        "rideau_app_queue_seconds",
        "How long requests waited that got a place",
        rows.iter()
            .map(|row| (row.name(), &row.shown.stats.tally.waits)),
    )?;
    page.histograms(
        "rideau_app_spawn_seconds",
        "How long starts took that went well",
        rows.iter()
            .map(|row| (row.name(), &row.shown.stats.start_times)),
    )?;
    page.counters(
        "rideau_app_cold_starts",
        "Requests that waited for a start",
        rows.iter().map(|row| (row.name(), row.shown.stats.cold)),
    )
}

/// How processes come and go.
fn comings(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let spawns = rows.iter().flat_map(|row| {
        let stats = &row.shown.stats;
        let outcomes = [("ok", stats.starts), ("failed", stats.start_failures)];
        outcomes.map(|(outcome, count)| (row.with("outcome", outcome), count))
    });
    page.counters("rideau_app_spawns", "Starts of processes", spawns)?;
    let exits = rows.iter().flat_map(|row| {
        Leaving::ALL.map(|why| {
            let count = row.shown.stats.left[why.index()];
            (row.with("cause", why.word()), count)
        })
    });
    page.counters("rideau_app_exits", "Processes that went", exits)?;
    page.gauges(
        "rideau_app_generation",
        "The number of the code it is to run: one more with each restart",
        rows.iter()
            .map(|row| (row.name(), row.shown.stats.generation as f64)),
    )
}

/// Whether starts fail.
fn trouble(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    page.gauges(
        "rideau_app_failures",
        "Starts that failed in a row",
        rows.iter().map(|row| {
            let failing = row.shown.stats.failing;
            (row.name(), failing.map_or(0.0, |(count, _)| count.into()))
        }),
    )?;
    let open = rows.iter().map(|row| {
        let failing = row.shown.stats.failing;
        (
            row.name(),
            flag(failing.is_some_and(|(_, wait)| wait > Duration::ZERO)),
        )
    });
    page.gauges(
        "rideau_app_breaker_open",
        "Whether no start is tried for a while, because the last ones failed",
        open,
    )?;
    let kept = rows.iter();
    let kept = kept.map(|row| (row.name(), flag(row.shown.stats.deploy == Deploy::Failed)));
    page.gauges(
        "rideau_app_deploy_failed",
        "Whether new code does not start and the old goes on",
        kept,
    )
}

/// Whether all of them together have room, and what more of it would save.
fn room(page: &mut Page<'_, '_>, apps: &Apps, config: &Config) -> fmt::Result {
    let stats = apps.stats();
    let limits = config.front.limits;
    let bounds = [("max", limits.max), ("headroom", limits.headroom)];
    page.gauges(
        "rideau_app_processes_limit",
        "How many processes all applications may have, and how many more while others end",
        bounds.map(|(bound, count)| (vec![("bound", bound.to_owned())], count as f64)),
    )?;
    page.gauge(
        "rideau_app_starved",
        "Applications that wait for room",
        stats.starved as f64,
    )?;
    let losses = stats.losses.iter();
    let losses = losses.map(|(policy, loss)| (vec![("policy", (*policy).to_owned())], *loss));
    page.gauges(
        "rideau_app_eviction_loss",
        "What each way to choose the process to stop would have cost for each ask of late: \
         seconds of \
         starts, or starts",
        losses,
    )?;
    let chosen = stats.losses.iter().enumerate();
    let chosen = chosen.map(|(at, (policy, _))| {
        let labels = vec![("policy", (*policy).to_owned())];
        (labels, flag(at == 0))
    });
    page.gauges(
        "rideau_app_eviction_policy",
        "Which way is used now",
        chosen,
    )?;
    let sizes = stats.what_if.iter();
    let sizes = sizes.map(|(max, loss)| (vec![("max", max.to_string())], *loss));
    page.gauges(
        "rideau_app_what_if_loss",
        "The same for other values of front.max, and for the one it has",
        sizes,
    )
}

impl Row {
    fn name(&self) -> Labels {
        vec![("app", self.shown.name.to_string())]
    }

    fn with(&self, label: &'static str, value: &str) -> Labels {
        vec![
            ("app", self.shown.name.to_string()),
            (label, value.to_owned()),
        ]
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
