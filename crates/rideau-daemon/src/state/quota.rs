//! What each user has of what all share: connections, sessions, streams, and commands
//! that wait.
//!
//! A [`Counted`] counts for as long as it lives, so whatever ends the thing it belongs
//! to, a panic included, uncounts it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rideau_config::{Limits, User};

pub(crate) use rideau_config::Quota;

/// The usage of each user. Users are never forgotten.
#[derive(Default)]
pub(crate) struct Quotas(Mutex<HashMap<Arc<str>, Arc<Usage>>>);

/// The usage of one user.
#[derive(Debug, Default)]
pub(crate) struct Usage([AtomicUsize; Quota::ALL.len()]);

/// One thing of a user, counted until this is dropped. Where there are no users nothing
/// is, and it costs nothing.
#[derive(Debug)]
#[must_use]
pub(crate) struct Counted {
    usage: Option<Arc<Usage>>,
    quota: Quota,
}

/// A user has as much as it may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    user: String,
    quota: Quota,
    most: usize,
}

impl Quotas {
    /// The usage of this user.
    pub(crate) fn of(&self, user: &str) -> Arc<Usage> {
        let mut all = self.0.lock();
        if let Some(usage) = all.get(user) {
            return Arc::clone(usage);
        }
        let usage: Arc<Usage> = Arc::default();
        all.insert(user.into(), Arc::clone(&usage));
        usage
    }
}

impl Usage {
    /// How much of this the user has.
    pub(crate) fn now(&self, quota: Quota) -> usize {
        self.0[quota as usize].load(Ordering::Relaxed)
    }

    /// Whether one more may be, without counting it. Where there are no users, only
    /// `[limits]` bound what they have together.
    ///
    /// # Errors
    ///
    /// If the user has as much as it may.
    #[inline]
    pub(crate) fn check(
        &self,
        quota: Quota,
        user: Option<&User>,
        limits: &Limits,
    ) -> Result<(), Over> {
        match user {
            Some(user) if self.now(quota) >= user.most(quota, limits) => {
                Err(over(user, quota, limits))
            }
            _ => Ok(()),
        }
    }

    /// Count one more.
    ///
    /// # Errors
    ///
    /// If the user has as much as it may.
    pub(crate) fn take(
        self: &Arc<Self>,
        quota: Quota,
        user: Option<&User>,
        limits: &Limits,
    ) -> Result<Counted, Over> {
        let Some(user) = user else {
            return Ok(Counted { usage: None, quota });
        };
        let (counted, before) = self.add(quota);
        match before < user.most(quota, limits) {
            true => Ok(counted),
            false => Err(over(user, quota, limits)),
        }
    }

    /// Count something that is there anyway.
    pub(crate) fn count(self: &Arc<Self>, quota: Quota) -> Counted {
        self.add(quota).0
    }

    /// Says how many there were before.
    fn add(self: &Arc<Self>, quota: Quota) -> (Counted, usize) {
        let before = self.0[quota as usize].fetch_add(1, Ordering::Relaxed);
        let usage = Some(Arc::clone(self));
        (Counted { usage, quota }, before)
    }
}

impl Counted {
    /// It counts as one of these.
    pub(crate) fn is_of(&self, usage: &Arc<Usage>) -> bool {
        let own = self.usage.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, usage))
    }
}

#[cold]
fn over(user: &User, quota: Quota, limits: &Limits) -> Over {
    Over {
        user: user.name.clone(),
        quota,
        most: user.most(quota, limits),
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(usage) = &self.usage {
            usage.0[self.quota as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, quota, most } = self;
        let key = toml_edit::Key::new(user);
        write!(
            f,
            "user.{}.{} ({most}) reached: {} or raise it",
            key.display_repr(),
            quota.key(),
            quota.advice()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rideau_config::Config;

    fn user(more: &str) -> (User, Limits) {
        let text = format!("[user.anna]\nuids = [1]\nallow = [\"@all\"]\n{more}");
        let config = Config::parse(&text, "test.toml", &|_| None).unwrap();
        (config.users[0].clone(), config.limits)
    }

    #[test]
    fn as_many_are_counted_as_are_there() {
        let (anna, limits) = user("streams_max = 2");
        let quotas = Quotas::default();
        let usage = quotas.of("anna");
        let take = || quotas.of("anna").take(Quota::Streams, Some(&anna), &limits);
        let (one, two) = (take().unwrap(), take().unwrap());
        let no = take().unwrap_err().to_string();
        assert_eq!(
            no,
            "user.anna.streams_max (2) reached: close some streams or raise it"
        );
        assert_eq!(usage.now(Quota::Streams), 2);
        drop(one);
        let three = take().unwrap();
        let panicked = rideau_process::panics::contain(move || {
            let _three = three;
            panic!("planted");
        });
        assert!(panicked.is_err());
        assert_eq!(usage.now(Quota::Streams), 1);
        drop(two);
        assert_eq!(usage.now(Quota::Streams), 0);
        assert_eq!(quotas.of("bert").now(Quota::Streams), 0);
    }

    #[test]
    fn a_user_that_says_nothing_leaves_something_to_others() {
        let (anna, limits) = user("");
        let most = Quota::ALL.map(|quota| anna.most(quota, &limits));
        assert_eq!(most, [9_000, 231, 9_000, 1_000, 90_000]);
        let (anna, limits) = user("[limits]\nconnections_max = 2\nsessions_max = 1\n");
        let most = Quota::ALL.map(|quota| anna.most(quota, &limits));
        assert_eq!(most, [2, 231, 1, 16, 90_000]);
    }
}
