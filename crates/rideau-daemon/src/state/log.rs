//! The log: to standard error, as the config wants it.
//!
//! How much is written follows the config while the server runs; in which form,
//! only its start. Text of others cannot begin a line of it, nor command a terminal:
//! names are checked when they are given, see [`label`](rideau_config::label), and what is
//! written is looked at once more here.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_config::human::is_wild;
use rideau_config::{Log, LogFormat, LogLevel};
use rideau_process::panics;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// How much is written; none if nothing is.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// How much is to be written as the config says, and whether more is for a while.
struct Wanted {
    level: LogLevel,
    debugs: bool,
}

static WANTED: Mutex<Wanted> = Mutex::new(Wanted {
    level: LogLevel::Info,
    debugs: false,
});

/// Write the log from now on. A second call is not heard.
pub fn start(log: Log, has_colours: bool) {
    let (level, handle) = reload::Layer::new(filter(log.level));
    WANTED.lock().level = log.level;
    let all = tracing_subscriber::registry().with(level);
    let colours = has_colours && io::stderr().is_terminal();
    let lines = fmt::layer()
        .with_writer(move || Lines { colours })
        .with_ansi(colours);
    let lines = match (log.format, log.has_times) {
        (LogFormat::Text, true) => lines.boxed(),
        (LogFormat::Text, false) => lines.without_time().boxed(),
        (LogFormat::Json, true) => lines.json().boxed(),
        (LogFormat::Json, false) => lines.json().without_time().boxed(),
    };
    if tracing::subscriber::set_global_default(all.with(lines)).is_ok() {
        let _ = LEVEL.set(handle);
        panics::log_all();
    }
}

/// Standard error, one event at a time.
struct Lines {
    /// Some controls are ours, and those in texts are escaped before.
    colours: bool,
}

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(tame(event, self.colours).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// An event in one line; further lines are indented, so that none is taken for another
/// event.
fn tame(event: &[u8], colours: bool) -> Cow<'_, str> {
    let event = String::from_utf8_lossy(event);
    let (text, end) = match event.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (&*event, ""),
    };
    let is_bad = |letter| is_wild(letter) && !(colours && letter == '\u{1b}');
    if !text.contains(is_bad) {
        return event;
    }
    let mut tame = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        match letter {
            '\n' => tame.push_str("\n    "),
            bad if is_bad(bad) => tame.extend(bad.escape_default()),
            letter => tame.push(letter),
        }
    }
    Cow::Owned(tame + end)
}

/// Write so much from now on.
pub fn set_level(level: LogLevel) {
    let mut wanted = WANTED.lock();
    wanted.level = level;
    apply(&wanted);
}

/// Write every decision for so long, and then what the config says by then.
pub async fn debug_for(span: Duration) {
    set_debugs(true);
    tracing::info!("every decision is logged for {span:?} (log.debug_for)");
    tokio::time::sleep(span).await;
    tracing::info!("decisions are no longer logged: log.debug_for has passed");
    set_debugs(false);
}

fn set_debugs(debugs: bool) {
    let mut wanted = WANTED.lock();
    wanted.debugs = debugs;
    apply(&wanted);
}

fn apply(wanted: &Wanted) {
    let level = match wanted.debugs {
        true => wanted.level.max(LogLevel::Debug),
        false => wanted.level,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_begins_a_line_or_commands_a_terminal() {
        let tamed = |text: &str| tame(text.as_bytes(), false).into_owned();
        assert_eq!(tamed("as it is: größe\n"), "as it is: größe\n");
        assert_eq!(
            tamed("a\r\nINFO b\x1b[2J\n"),
            "a\\r\n    INFO b\\u{1b}[2J\n"
        );
        assert_eq!(tame(b"\x1b[31mred\x07\n", true), "\u{1b}[31mred\\u{7}\n");
    }
}
