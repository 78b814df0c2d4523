//! Laws and meters that the users of the library bring.

use std::fmt;
use std::sync::Arc;

use crate::time::Instant;

/// A law or a meter of your own, as an option: its name, and how one is made.
///
/// Two of these are equal if one is a clone of the other. A machine that gets
/// an equal one again keeps what its law knows; another one starts anew.
pub struct Custom<T: ?Sized> {
    name: &'static str,
    make: Arc<Make<T>>,
}

type Make<T> = dyn Fn(Instant) -> Box<T> + Send + Sync;

impl<T: ?Sized> Custom<T> {
    pub(crate) fn new(
        name: &'static str,
        make: impl Fn(Instant) -> Box<T> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            make: Arc::new(make),
        }
    }

    /// The name it was given.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn make(&self, now: Instant) -> Box<T> {
        (self.make)(now)
    }
}

impl<T: ?Sized> Clone for Custom<T> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            make: Arc::clone(&self.make),
        }
    }
}

impl<T: ?Sized> PartialEq for Custom<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }
}

impl<T: ?Sized> Eq for Custom<T> {}

impl<T: ?Sized> fmt::Debug for Custom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.name)
    }
}
