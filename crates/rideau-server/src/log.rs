//! The log: to standard error, as the config wants it.
//!
//! How much is written follows the config while the server runs; in which form,
//! only its start.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{Log, LogFormat, LogLevel};
use crate::panics;

/// How much is written; none if nothing is.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Write the log from now on. Whoever does so a second time is not heard.
pub fn start(log: Log, has_colours: bool) {
    let (level, handle) = reload::Layer::new(filter(log.level));
    let all = tracing_subscriber::registry().with(level);
    let colours = has_colours && io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(colours);
    let begun = match log.format {
        LogFormat::Text => tracing::subscriber::set_global_default(all.with(lines)),
        LogFormat::Json => tracing::subscriber::set_global_default(all.with(lines.json())),
    };
    if begun.is_ok() {
        let _ = LEVEL.set(handle);
        panics::log_all();
    }
}

/// Write so much from now on.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get() {
        let set = handle.reload(filter(level));
        debug_assert!(set.is_ok(), "the log lasts as long as the program");
    }
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
