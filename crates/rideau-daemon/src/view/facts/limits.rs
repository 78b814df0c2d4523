//! Facts of the limits on what clients can use up.

use std::sync::atomic::{AtomicU64, Ordering};

use super::facts;
use crate::state::daemon::Daemon;

/// Something that outsiders can fill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Its key, without `limits.`; of one of another section, all of it; of one that no config
    /// changes, all of its name.
    pub name: &'static str,
    /// The most there may be.
    pub max: u64,
    /// How much there is; none if that is counted for each connection or
    /// holder on its own.
    pub now: Option<u64>,
    /// How often it turned a client away.
    pub refused: u64,
    /// `[limits]` has it.
    pub is_config: bool,
}

impl Limit {
    /// Every limit of the config and how far it is filled.
    pub(crate) fn all(daemon: &Daemon) -> Vec<Self> {
        let mut all = of_server(daemon);
        all.extend(of_logins(daemon));
        all.extend(of_ranges(daemon));
        all.extend(of_front(daemon));
        all
    }

    fn path(&self) -> String {
        let section = if self.is_config { "limits." } else { "" };
        format!("{section}{}", self.name)
    }

    fn unit(&self) -> &'static str {
        if SIZES.contains(&self.name) {
            "bytes"
        } else {
            ""
        }
    }
}

fn of_server(daemon: &Daemon) -> Vec<Limit> {
    let (config, counts) = (daemon.config.load(), &daemon.counts);
    let limits = &config.limits;
    let wide = |max: usize| max as u64;
    let waiting = counts.waiting.load(Ordering::Relaxed);
    let (clients, sessions) = (daemon.clients.len(), daemon.sessions.len());
    let (keys, names) = (daemon.lock_keys(), daemon.catalog.load().len());
    vec![
        limit(
            "connections_max",
            wide(limits.connections_max),
            Some(clients),
            &counts.turned_away,
        ),
        limit("frame_max", limits.frame_max, None, &counts.frames_refused),
        limit(
            "input_max",
            limits.input_max,
            Some(daemon.input.used() as usize),
            &counts.inputs_refused,
        ),
        limit(
            "pipeline_max",
            limits.pipeline_max,
            None,
            &counts.pipelines_refused,
        ),
        limit("output_max", limits.output_max, None, &counts.slow),
        limit(
            "keys_max",
            wide(limits.keys_max),
            Some(keys),
            &counts.keys_refused,
        ),
        limit(
            "waiters_max",
            wide(limits.waiters_max),
            Some(waiting),
            &counts.waits_refused,
        ),
        limit(
            "held_max",
            wide(limits.held_max),
            None,
            &counts.held_refused,
        ),
        limit(
            "sessions_max",
            wide(limits.sessions_max),
            Some(sessions),
            &counts.sessions_refused,
        ),
        limit(
            "names_max",
            wide(limits.names_max),
            Some(names),
            &counts.names_refused,
        ),
        limit(
            "name_len_max",
            wide(limits.name_len_max),
            None,
            &counts.long_names,
        ),
    ]
}

fn of_logins(daemon: &Daemon) -> [Limit; 2] {
    let (config, counts) = (daemon.config.load(), &daemon.counts);
    let limits = &config.limits;
    let wide = |max: usize| max as u64;
    [
        limit(
            "before_login_max",
            wide(limits.before_login_max),
            Some(daemon.logins.most_before_login()),
            &counts.logins_crowded,
        ),
        limit(
            "password_checks_max",
            wide(limits.password_checks_max),
            Some(daemon.password_checks.used()),
            &counts.checks_delayed,
        ),
    ]
}

fn of_ranges(daemon: &Daemon) -> [Limit; 5] {
    let (config, counts) = (daemon.config.load(), &daemon.counts);
    let limits = &config.limits;
    let wide = |max: usize| max as u64;
    [
        limit(
            "reservations_max",
            wide(limits.reservations_max),
            Some(daemon.values.ranges.bytes().records_len),
            &counts.reservations_refused,
        ),
        limit(
            "ranges_max",
            wide(limits.ranges_max),
            Some(config.ranges.len()),
            &counts.ranges_refused,
        ),
        limit(
            "range_keys_max",
            wide(limits.range_keys_max),
            None,
            &counts.range_keys_refused,
        ),
        limit(
            "range_data_max",
            limits.range_data_max,
            None,
            &counts.range_data_refused,
        ),
        Limit {
            name: "views_max",
            max: wide(limits.views_max),
            now: Some(wide(config.views.len())),
            // They come with the config alone, which is not used if they are too many.
            refused: 0,
            is_config: true,
        },
    ]
}

/// Those of the front of applications, if there is one. It counts them itself.
fn of_front(daemon: &Daemon) -> Vec<Limit> {
    let config = daemon.config.load();
    let (front, stats) = (&config.front, daemon.front.stats());
    if front.listen.is_empty() && front.tls_listen.is_empty() {
        return Vec::new();
    }
    let of_clients = front.client_connections_max.map(|max| Limit {
        name: "front.client_connections_max",
        max: max as u64,
        now: None,
        refused: stats.clients_turned_away,
        is_config: false,
    });
    // Lines that wait to be written; those for which there was no room are lost.
    let of_log = Limit {
        name: "front.access_log",
        max: stats.log_waiting_max as u64,
        now: Some(stats.log_waiting as u64),
        refused: stats.log_lost,
        is_config: false,
    };
    of_clients.into_iter().chain([of_log]).collect()
}

fn limit(name: &'static str, max: u64, now: Option<usize>, refused: &AtomicU64) -> Limit {
    Limit {
        name,
        max,
        now: now.map(|now| now as u64),
        refused: refused.load(Ordering::Relaxed),
        is_config: true,
    }
}

/// The limits that are sizes.
const SIZES: [&str; 5] = [
    "frame_max",
    "input_max",
    "pipeline_max",
    "output_max",
    "range_data_max",
];

facts! { Limit: "limits" by "limit", joined {};
    name: Text, [SHOW], |it| it.name, "Its key in `[limits]`, or the whole key of another section.";
    name: Text, [JSON], |it| it.path(), "Its key in the config.";
    max: Count, [SHOW, JSON], |it| it.max, "The most there may be.";
    now: Count|null, [SHOW, JSON], |it| it.now,
        "How much there is; null if each connection or holder counts for itself.";
    refused: Count, [SHOW, JSON, COUNTER],
        |it| it.refused, "How often the limit refused something.";
    unit: Text, [SHOW], |it| it.unit(), "The unit: bytes if it is a size.";
}
