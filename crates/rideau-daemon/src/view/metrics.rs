//! The server's numbers for Prometheus, read when a client asks for them.
//!
//! Labels are names that the config has, never keys, tickets or addresses: how
//! many series there are is known from the file.

mod apps;
mod form;
mod page;
mod process;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::state::command_stats::Timing;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::values::Values;
use crate::state::viewer::Viewer;
use crate::view::facts::{
    AppNow, BrokerNow, CertificateNow, ClusterNow, Limit, NodeNow, PoolNow, RangeNow, RegulatorNow,
    RuleNow, ViewNow,
};
pub(crate) use form::Form;
use page::Page;
use rideau_process::panics;

/// All of the server's numbers as text.
pub(crate) fn render(daemon: &Arc<Daemon>, more: Vec<Limit>, form: Form) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Numbers {
        daemon: Arc::clone(daemon),
        more,
    }));
    let mut out = String::new();
    let written = text::encode(&mut out, &registry);
    debug_assert!(written.is_ok(), "a string takes all that is written");
    form.written(page::without_sums(&out))
}

struct Numbers {
    daemon: Arc<Daemon>,
    /// Limits of the front of the server, which counts them itself.
    more: Vec<Limit>,
}

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page::new(&mut encoder);
        server(&mut page, &self.daemon)?;
        commands(&mut page, &self.daemon)?;
        counts(&mut page, &self.daemon)?;
        let limits = Limit::all(&self.daemon);
        page.facts(&[limits.as_slice(), &self.more].concat())?;
        let catalog = self.daemon.catalog.load();
        page.facts(&PoolNow::all(&catalog))?;
        page.facts(&BrokerNow::all(&catalog))?;
        page.facts(&RegulatorNow::all(&catalog))?;
        page.facts(&RuleNow::counted(&self.daemon, false))?;
        let values = &self.daemon.values;
        page.facts(&RangeNow::all(&self.daemon, false))?;
        page.facts(&ViewNow::all(&catalog, values, Viewer::ALL))?;
        store(&mut page, values)?;
        let cluster = self.daemon.cluster.as_deref();
        page.facts(&ClusterNow::all(cluster))?;
        page.facts(&NodeNow::all(cluster))?;
        page.facts(&AppNow::all(&self.daemon.apps, Viewer::ALL))?;
        page.facts(&CertificateNow::all(&self.daemon.certificates))?;
        alarms(&mut page, &self.daemon)?;
        apps::room(&mut page, &self.daemon.apps, &self.daemon.config.load())?;
        process::encode(&mut page, self.daemon.started)
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

fn server(page: &mut Page<'_, '_>, daemon: &Daemon) -> fmt::Result {
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", option_env!("RIDEAU_COMMIT").unwrap_or("unknown")),
    ];
    page.build("rideau_build", "The version of this server", &build)?;
    let waiting = daemon.counts.waiting.load(Ordering::Relaxed);
    let gauges = [
        (
            "rideau_up_seconds",
            "How long the server has run",
            daemon.started.elapsed().as_secs_f64(),
        ),
        (
            "rideau_clients",
            "Connections of the Redis protocol",
            daemon.clients.len() as f64,
        ),
        (
            "rideau_sessions",
            "Sessions that are open",
            daemon.sessions.len() as f64,
        ),
        (
            "rideau_blocked_clients",
            "Commands that wait for their answer",
            waiting as f64,
        ),
        (
            "rideau_draining",
            "Whether the server is stopping and serves no new client",
            f64::from(u8::from(daemon.is_draining())),
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value)?;
    }
    Ok(())
}

fn commands(page: &mut Page<'_, '_>, daemon: &Daemon) -> fmt::Result {
    let all = daemon.timings.all();
    let command = |one: &Timing| ("command", one.command.to_owned());
    let counts = all.iter().flat_map(|one| {
        let outcomes = [("ok", one.done), ("error", one.failed)];
        outcomes.map(|(outcome, count)| {
            let outcome = ("outcome", outcome.to_owned());
            (vec![command(one), outcome], count)
        })
    });
    page.counters("rideau_commands", "Commands that were executed", counts)?;
    page.columns(
        "rideau_command_seconds",
        "How long commands took; commands of one batch share its time",
        all.iter()
            .map(|one| (vec![command(one)], one.sum, one.columns.clone())),
    )
}

fn counts(page: &mut Page<'_, '_>, daemon: &Daemon) -> fmt::Result {
    let counts = &daemon.counts;
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counters = [
        (
            "rideau_connections",
            "Connections in all",
            load(&counts.connections),
        ),
        (
            "rideau_protocol_errors",
            "Requests that could not be parsed",
            load(&counts.protocol_errors),
        ),
        (
            "rideau_internal_errors",
            "Faults of the server itself: its log has each",
            panics::count(),
        ),
        (
            "rideau_denied_logins",
            "Failed attempts to log in",
            load(&counts.denied),
        ),
        (
            "rideau_refusals",
            "Asks that were refused or shed, of any kind",
            daemon.refusals.total(),
        ),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, value)?;
    }
    let causes = [
        EndReason::Lost,
        EndReason::Silent,
        EndReason::Quit,
        EndReason::Expired,
        EndReason::Revoked,
        EndReason::Broken,
        EndReason::Died,
    ];
    let reclaims = causes.iter().flat_map(|why| {
        let row = |(kind, count): (&str, u64)| {
            let cause = ("cause", why.word().to_owned());
            (vec![("kind", kind.to_owned()), cause], count)
        };
        counts.reclaims.by_kind(*why).map(row)
    });
    page.counters(
        "rideau_reclaims",
        "Leases taken back because their holder ended, or by an operator",
        reclaims,
    )?;
    let foreign = counts.foreign_releases.all().into_iter();
    page.counters(
        "rideau_foreign_releases",
        "Leases released on another connection than they were taken on, outside a session",
        foreign.map(|(user, lib, count)| {
            let labels = vec![("user", user.to_string()), ("lib", lib.to_owned())];
            (labels, count)
        }),
    )?;
    let changes = load(&counts.changes);
    page.gauge(
        "rideau_config_generation",
        "How often the config was changed since the start",
        changes as f64,
    )
}

/// Each alarm, and whether it is on.
fn alarms(page: &mut Page<'_, '_>, daemon: &Daemon) -> fmt::Result {
    let all = daemon.alarms.all().into_iter();
    let rows = all.map(|alarm| {
        let is_on = f64::from(u8::from(alarm.is_on()));
        (vec![("alarm", alarm.name)], is_on)
    });
    page.gauges("rideau_alarm", "Whether the alarm is on", rows)
}

/// Metrics of all ranges together.
fn store(page: &mut Page<'_, '_>, values: &Values) -> fmt::Result {
    page.gauge(
        "rideau_range_waiting",
        "Asks that wait for a value of any range",
        values.ranges.waiting().0 as f64,
    )?;
    page.gauge(
        "rideau_range_store_failed",
        "Whether the store has failed, so that no range answers",
        f64::from(u8::from(values.ranges.failed().is_some())),
    )
}
