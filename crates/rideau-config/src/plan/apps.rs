//! What changes of applications and of their front mean.

use super::Live;
use crate::Config;
use crate::human::count;

/// What a change of an app's key means to its processes and requests.
pub(super) fn meaning(key: &str, is_less: bool) -> &'static str {
    match key {
        "exec" | "root" | "env" | "user" | "group" | "umask" | "new_privileges" | "files_max"
        | "processes_max" | "listen" | "watchdog" => {
            "New processes are started one after the other; requests go on."
        }
        "ready" | "warm_up" | "log" | "start_timeout" | "stop_timeout" | "stop_signal" => {
            "For processes that are started from then on."
        }
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
        "hosts" | "paths" | "strip" | "request_timeout" | "body_max" | "buffer_requests"
        | "buffer_responses" | "retry" | "sticky" | "timing" => "From the next request on.",
        _ => "At once.",
    }
}

/// What a change of the front's key means.
pub(super) fn front_meaning(key: &str, is_less: bool) -> &'static str {
    match key {
        "max" => meaning(key, is_less),
        "connections_max" if is_less => "What is over it stays; nothing is added to it.",
        "header_max" | "headers_max" | "header_timeout" | "idle_timeout" => "For new connections.",
        "trust" | "error_pages" => "From the next request on.",
        _ => "At once.",
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
