//! Metrics of this process, with the names that all exporters use.

use std::fmt;
use std::fs;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::page::Page;
use crate::view::resources;

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
    if let Some((user, system)) = resources::processor_time() {
        page.span_counter(
            "process_cpu_seconds",
            "Processor time that the process used",
            (user + system).as_secs_f64(),
        )?;
    }
    let status = resources::Status::now();
    let rows = [
        ("VmRSS", "process_resident_memory_bytes", "Memory in use"),
        ("VmSize", "process_virtual_memory_bytes", "Memory reserved"),
        ("Threads", "process_threads", "Threads"),
    ];
    for (key, name, help) in rows {
        if let Some(value) = status.value(key) {
            page.gauge(name, help, value as f64)?;
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

fn files_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines();
    let line = line
        .into_iter()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
