//! What the system knows of this process, by the names that all exporters use.

use std::fmt;
use std::fs;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::page::Page;

/// The unit of `/proc/self/stat`: the same on all Linux systems.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn encode(page: &mut Page<'_, '_>, started: Instant) -> fmt::Result {
    let since = SystemTime::now()
        .checked_sub(started.elapsed())
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    if let Some(since) = since {
        page.gauge(
            "process_start_time_seconds",
            "When the server began, in seconds since 1970",
            since.as_secs_f64(),
        )?;
    }
    if let Some(seconds) = cpu_seconds() {
        page.span_counter(
            "process_cpu_seconds",
            "Processor time that the process used",
            seconds,
        )?;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rows = [
        ("VmRSS", "process_resident_memory_bytes", "Memory in use"),
        ("VmSize", "process_virtual_memory_bytes", "Memory reserved"),
        ("Threads", "process_threads", "Threads"),
    ];
    for (key, name, help) in rows {
        if let Some(value) = status_value(&status, key) {
            page.gauge(name, help, value)?;
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open files", open.count() as f64)?;
    }
    if let Some(max) = files_max() {
        page.gauge("process_max_fds", "Files that may be open", max)?;
    }
    Ok(())
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// A value of `/proc/self/status`, in bytes if it has a unit.
fn status_value(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?;
        rest.strip_prefix(':')
    })?;
    let mut words = line.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => Some(number * 1024.0),
        _ => Some(number),
    }
}

fn files_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines();
    let line = line
        .into_iter()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
