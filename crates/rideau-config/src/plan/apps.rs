//! The effect of changes of applications and of their front.

use super::Live;
use crate::config::Config;
use crate::human::count;
use crate::key::Effect;

/// The effect of a changed number of an app or of the front on processes and requests.
pub(super) fn meaning(key: &str, is_less: bool) -> &'static str {
    match key {
        "min" if is_less => "Processes above it go when they were not used for `idle_after`.",
        "min" => "What is missing is started at once.",
        "max" if is_less => {
            "Processes above the new limit finish their requests and are stopped; no request is \
             interrupted."
        }
        "max" => "More processes are started when needed.",
        "concurrency" if is_less => {
            "Requests that are served go on; a process gets no others until it has room."
        }
        "concurrency" => "Waiting requests are let in at once.",
        "requests_max" | "life_max" | "memory_soft" => {
            "Processes above it are replaced; no request is interrupted."
        }
        "memory_hard" => "Processes above it are killed, with the requests they serve.",
        "connections_max" if is_less => "What is over it stays; nothing is added to it.",
        _ => Effect::Live.sentence(),
    }
}

/// The same of an upstream.
pub(super) fn upstream_meaning(key: &str, is_less: bool) -> &'static str {
    match key {
        "servers" => {
            "New servers get requests as soon as their addresses are known; those that are gone \
             finish theirs."
        }
        "tls" | "connect_timeout" => "For new connections.",
        "concurrency" if is_less => {
            "Requests that are served go on; a server gets no others until it has room."
        }
        key => meaning(key, is_less),
    }
}

pub(super) fn arrival(name: &str, new: &Config) -> String {
    let app = new.apps.iter().find(|app| app.name == name);
    match app.map_or(0, |app| app.options.min) {
        0 => "Started when a request comes.".into(),
        min => format!("{} started.", count(min, "process")),
    }
}

pub(super) fn departure(live: Option<Live>) -> String {
    match live {
        Some(Live { held, waiting }) => format!(
            "{waiting} that wait are refused; {held} served to their end, and its \
             processes stopped."
        ),
        None => "Waiting requests are refused; its processes finish their requests and are \
                 stopped."
            .into(),
    }
}

pub(super) fn upstream_departure(live: Option<Live>) -> String {
    match live {
        Some(Live { held, waiting }) => {
            format!("{waiting} that wait are refused; {held} served to their end.")
        }
        None => "Waiting requests are refused; what is served goes on to its end.".into(),
    }
}
