//! Where a member lies while the machine has it.

use std::fmt;
#[cfg(not(rideau_loom))]
use std::mem::ManuallyDrop;

#[cfg(not(rideau_loom))]
use crossbeam_utils::atomic::AtomicCell;

#[cfg(rideau_loom)]
use crate::sync::{Mutex, lock};

/// A place for one boxed member. The thread that was given it, or has the
/// pool's lock while the machine has it, is alone with it; that it is atomic is
/// for the compiler.
pub(crate) struct Place<T> {
    /// A cell whose content is never dropped is written to with a plain store,
    /// where it would be an exchange else.
    #[cfg(not(rideau_loom))]
    member: AtomicCell<Option<ManuallyDrop<Box<T>>>>,
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
        if cfg!(debug_assertions) {
            let before = self.exchange(Some(member));
            assert!(before.is_none(), "a place has room for one member");
            return;
        }
        #[cfg(not(rideau_loom))]
        self.member.store(Some(ManuallyDrop::new(member)));
        #[cfg(rideau_loom)]
        self.exchange(Some(member));
    }

    /// Take the member away, if one is here.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.exchange(None)
    }

    #[cfg(not(rideau_loom))]
    #[inline]
    fn exchange(&self, member: Option<Box<T>>) -> Option<Box<T>> {
        let before = self.member.swap(member.map(ManuallyDrop::new));
        before.map(ManuallyDrop::into_inner)
    }

    #[cfg(rideau_loom)]
    fn exchange(&self, member: Option<Box<T>>) -> Option<Box<T>> {
        std::mem::replace(&mut lock(&self.member), member)
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        drop(self.take());
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
        assert!(AtomicCell::<Option<ManuallyDrop<Box<String>>>>::is_lock_free());
        assert!(AtomicCell::<Option<ManuallyDrop<Box<[u8; 1000]>>>>::is_lock_free());
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
