//! Where a member lies while nobody has it.

use std::fmt;

#[cfg(not(rideau_loom))]
use crossbeam_utils::atomic::AtomicCell;

#[cfg(rideau_loom)]
use crate::sync::{Mutex, lock};

/// A place for one boxed member. Whoever has its index from the shelf, or has
/// the pool's lock, is alone with it; that it is atomic is for the compiler.
pub(crate) struct Place<T> {
    #[cfg(not(rideau_loom))]
    member: AtomicCell<Option<Box<T>>>,
    #[cfg(rideau_loom)]
    member: Mutex<Option<Box<T>>>,
}

impl<T> Place<T> {
    pub(crate) fn new() -> Self {
        #[cfg(not(rideau_loom))]
        let member = AtomicCell::new(None);
        #[cfg(rideau_loom)]
        let member = Mutex::new(None);
        Self { member }
    }

    /// Lay a member down where none is.
    #[inline]
    pub(crate) fn put(&self, member: Box<T>) {
        #[cfg(not(rideau_loom))]
        let before = self.member.swap(Some(member));
        #[cfg(rideau_loom)]
        let before = lock(&self.member).replace(member);
        debug_assert!(before.is_none(), "a place has room for one member");
    }

    /// Take the member away, if one is here.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        #[cfg(not(rideau_loom))]
        return self.member.take();
        #[cfg(rideau_loom)]
        return lock(&self.member).take();
    }
}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    use std::rc::Rc;

    #[test]
    fn a_member_is_moved_without_a_lock() {
        assert!(AtomicCell::<Option<Box<String>>>::is_lock_free());
        assert!(AtomicCell::<Option<Box<[u8; 1000]>>>::is_lock_free());
    }

    #[test]
    fn a_member_that_was_put_is_taken_once() {
        let place = Place::new();
        assert_eq!(place.take(), None);
        place.put(Box::new(7));
        assert_eq!(place.take(), Some(Box::new(7)));
        assert_eq!(place.take(), None);
    }

    #[test]
    fn what_is_left_in_its_place_is_dropped_with_it() {
        let member = Rc::new(());
        let place = Place::new();
        place.put(Box::new(Rc::clone(&member)));
        assert_eq!(Rc::strong_count(&member), 2);
        drop(place);
        assert_eq!(Rc::strong_count(&member), 1);
    }
}
