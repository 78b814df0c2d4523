//! The `Date` field of answers.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fields;

thread_local! {
    /// The date as it is written, and the second it is good for.
    static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Now, since 1970.
pub(crate) fn now() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock that is so wrong says nothing better.
    since.unwrap_or_default()
}

/// Say that it was then.
pub(crate) fn put(out: &mut Vec<u8>, date: Duration) {
    WRITTEN.with_borrow_mut(|(known, text)| {
        if *known != date.as_secs() || text.is_empty() {
            *known = date.as_secs();
            *text = httpdate::fmt_http_date(UNIX_EPOCH + date);
        }
        fields::put(out, "Date", text.as_bytes());
    });
}
