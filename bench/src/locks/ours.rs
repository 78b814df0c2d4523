//! Rideau's locks as people get them, by key and by handle.

use rideau::{Lock, LockHandle, Locks};

use super::Counter;
use super::goals::HANDLE;
use crate::report::OURS;

/// Looks the key up every time.
pub(super) struct ByKey(Locks<String>);

impl Counter for ByKey {
    const NAME: &'static str = OURS;
    type Handle<'a> = &'a str;
    type Held<'a> = Lock<'a, String>;

    fn start(_keys: &[String]) -> Self {
        Self(Locks::new())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<Lock<'a, String>> {
        self.0.acquire(*key, capacity).ok()
    }

    fn forget_idle(&self) {
        self.0.forget_idle();
    }
}

/// Looks each key up once.
pub(super) struct ByHandle(Locks<String>);

impl Counter for ByHandle {
    const NAME: &'static str = HANDLE;
    type Handle<'a> = LockHandle<String>;
    type Held<'a> = Lock<'a, String>;

    fn start(_keys: &[String]) -> Self {
        Self(Locks::new())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> LockHandle<String> {
        self.0.handle(key)
    }

    fn acquire<'a, 'd: 'a>(
        &'a self,
        handle: &'a LockHandle<String>,
        capacity: u64,
    ) -> Option<Lock<'a, String>> {
        handle.acquire(capacity).ok()
    }

    fn forget_idle(&self) {
        self.0.forget_idle();
    }
}
