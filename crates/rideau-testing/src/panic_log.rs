//! The log of panics that a test plants.

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// What is logged while the tests run, panics among it.
#[derive(Clone)]
pub struct PanicLog(Arc<Mutex<Vec<u8>>>);

impl PanicLog {
    /// The log of this process. Panics are logged by this, and told as before.
    ///
    /// # Panics
    ///
    /// If something else logs already.
    pub fn begin(log_panic: fn(&PanicHookInfo<'_>)) -> Self {
        static BEGUN: Once = Once::new();
        static LOG: Mutex<Option<PanicLog>> = Mutex::new(None);
        BEGUN.call_once(|| {
            let log = Self(Arc::default());
            *lock(&LOG) = Some(log.clone());
            let layer = tracing_subscriber::fmt::layer();
            let layer = layer.with_writer(move || log.clone()).with_ansi(false);
            let all = tracing_subscriber::registry().with(LevelFilter::ERROR);
            tracing::subscriber::set_global_default(all.with(layer)).expect("nothing else logs");
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                log_panic(panic);
                usual(panic);
            }));
        });
        lock(&LOG).clone().expect("it has begun")
    }

    /// Whether what a client was told names a panic that is in the log. Behind these
    /// words is its id.
    ///
    /// # Panics
    ///
    /// If it tells of no panic.
    pub fn has_id_of(&self, words: &str, said: &str) -> bool {
        let (_, rest) = said.split_once(words).expect("it tells of a panic");
        let id = rest.get(..8).expect("it has an id");
        let log = lock(&self.0);
        let log = String::from_utf8_lossy(&log);
        log.contains(&format!("id={id}")) && log.contains("panicked: planted")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Write for PanicLog {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
