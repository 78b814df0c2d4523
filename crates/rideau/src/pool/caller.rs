//! Where in a program its members were taken.
//!
//! A slot has room for a number alone. So each place where members are taken is kept once,
//! and found again by its address.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr;
use std::sync::{PoisonError, RwLock};

/// The number of a place in the program; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallerId(pub(super) usize);

/// A thread knows about this many places that are kept already.
const KNOWN: usize = 32;

thread_local! {
    static KEPT: [Cell<usize>; KNOWN] = const { [const { Cell::new(0) }; KNOWN] };
}

/// As many as there are lines of the program that take members.
static CALLERS: RwLock<BTreeMap<usize, &'static Location<'static>>> = RwLock::new(BTreeMap::new());

impl CallerId {
    /// The number of this place, from which it can be found.
    #[inline]
    pub(super) fn of(at: &'static Location<'static>) -> Self {
        let address = ptr::from_ref(at).addr();
        // A place takes three words.
        let is_kept = KEPT.try_with(|kept| {
            let last = &kept[address / 8 % KNOWN];
            last.replace(address) == address
        });
        if !is_kept.unwrap_or(false) {
            keep(address, at);
        }
        Self(address)
    }

    pub(super) fn location(self) -> Option<&'static Location<'static>> {
        let callers = CALLERS.read().unwrap_or_else(PoisonError::into_inner);
        callers.get(&self.0).copied()
    }
}

#[cold]
fn keep(address: usize, at: &'static Location<'static>) {
    let is_there = {
        let callers = CALLERS.read().unwrap_or_else(PoisonError::into_inner);
        callers.contains_key(&address)
    };
    if !is_there {
        let mut callers = CALLERS.write().unwrap_or_else(PoisonError::into_inner);
        callers.insert(address, at);
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_by_its_number_on_every_thread() {
        let here = Location::caller();
        let id = CallerId::of(here);
        assert_eq!(CallerId::of(here), id);
        assert_eq!(id.location(), Some(here));
        let elsewhere = std::thread::spawn(move || id.location());
        assert_eq!(elsewhere.join().ok().flatten(), Some(here));
        assert_eq!(CallerId(0).location(), None);
    }
}
