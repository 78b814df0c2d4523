//! Panics, contained at the border of a command, a request or a task.
//!
//! A panic is a fault of the server. It costs whatever it came from and nothing
//! else: the client is told an id, and the log has the message, the place and the
//! stack under the same id.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;

/// A task that panicked is begun again after this.
const PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    /// The id of the last panic of this thread, until it is contained.
    static LAST: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Panics that were contained.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A panic that was contained. Its text is for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked {
    id: u32,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        write!(f, "{TOLD}{id:08x}: the server's log has it by this id")
    }
}

/// The beginning of the message for clients.
pub const TOLD: &str = "internal error ";

impl Panicked {
    /// Whether a text tells a client of a panic.
    pub fn is_told_in(text: &str) -> bool {
        text.starts_with(TOLD)
    }

    /// The panic that this thread has just caught.
    fn caught() -> Self {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // Without the hook, as in a program that links the server, it has none.
        let id = LAST.take().unwrap_or_else(new_id);
        Self { id }
    }
}

/// How many panics this process has contained.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Log every panic of this process with an id from now on.
pub fn log_all() {
    std::panic::set_hook(Box::new(log_panic));
}

/// Log a panic with its id.
pub fn log_panic(panic: &PanicHookInfo<'_>) {
    let id = new_id();
    LAST.set(Some(id));
    let payload = panic.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let message = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let message = message.unwrap_or("no message");
    let place = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let stack = Backtrace::force_capture();
    tracing::error!(
        id = format_args!("{id:08x}"),
        place,
        "panicked: {message}\n{stack}"
    );
}

fn new_id() -> u32 {
    getrandom::u32().unwrap_or_default()
}

/// Run this, and contain its panic.
///
/// # Errors
///
/// If it panicked. Whatever it borrowed stays as the panic left it.
#[inline]
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Panicked::caught())
}

/// Await this, and contain its panic. There is one of these around each connection,
/// so it has no more room than the future itself.
///
/// # Errors
///
/// If it panicked.
pub fn contain_async<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    let caught = AssertUnwindSafe(future).catch_unwind();
    caught.map(|done| done.map_err(|_| Panicked::caught()))
}

/// Do something that takes a while away from the threads that serve others, and contain
/// its panic.
///
/// # Errors
///
/// If it panicked.
pub async fn away<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    // The id of a panic is known on the thread that has it.
    let done = tokio::task::spawn_blocking(|| contain(work)).await;
    // None is done only if the server ends.
    done.unwrap_or_else(|_| Err(Panicked { id: new_id() }))
}

/// Do what the server needs for as long as it runs, again after a panic.
pub async fn keep<F: Future>(name: &str, begin: impl Fn() -> F) {
    while let Err(panicked) = contain_async(begin()).await {
        tracing::error!("{name} is begun again after an {panicked}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test]
    async fn what_does_not_panic_is_as_without() {
        assert_eq!(contain(|| 7), Ok(7));
        assert_eq!(contain_async(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn each_panic_has_an_id() {
        let before = count();
        let one = contain(|| panic!("planted")).err();
        let other = contain_async(async { panic!("planted") }).await.err();
        assert!(one.is_some() && other.is_some());
        assert_ne!(one, other);
        // Other tests may panic meanwhile.
        assert!(count() >= before + 2);
        let text = one.map(|panicked| panicked.to_string());
        assert!(text.is_some_and(|text| text.starts_with("internal error ")));
    }

    #[tokio::test]
    async fn a_panic_on_another_thread_has_an_id() {
        assert_eq!(away(|| 7).await, Ok(7));
        let panicked = away(|| -> u8 { panic!("planted") }).await;
        let text = panicked.map_err(|panicked| panicked.to_string());
        assert!(text.is_err_and(|text| text.starts_with("internal error ")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_needs_is_begun_again() {
        let times = AtomicU32::new(0);
        keep("a task", async || {
            assert!(times.fetch_add(1, Ordering::Relaxed) > 1, "planted");
        })
        .await;
        assert_eq!(times.into_inner(), 3);
    }
}
