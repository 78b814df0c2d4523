//! Where memory goes that others may still be reading, until none of them can.
//!
//! Every reader has a [`Pin`]. What is buried cannot be found by a reader that
//! comes from now on; a reader that found it, or still knows where to, has a pin
//! that is older. So it is freed when all pins are gone that were there at some
//! time after the burial.

#![allow(unsafe_code)]

#[cfg(rideau_loom)]
use std::ptr;
#[cfg(not(rideau_loom))]
use std::{
    marker::PhantomData,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

#[cfg(not(rideau_loom))]
use super::readers::{self, Look, Slot};
use crate::sync::{AtomicPtr, Ordering};
#[cfg(not(rideau_loom))]
use crate::sync::{AtomicU64, Mutex, lock};

/// With this many bytes it is time to tidy up.
#[cfg(not(rideau_loom))]
const PLENTY: u64 = 64 * 1024;

/// Where nodes and tables go that are out of use.
#[cfg(not(rideau_loom))]
pub(super) struct Grave {
    /// How many bytes there are, for a look without the lock.
    bytes: AtomicU64,
    buried: Mutex<Buried>,
}

/// In two parts, so that one wait is enough however much is buried meanwhile.
#[cfg(not(rideau_loom))]
#[derive(Default)]
struct Buried {
    fresh: Vec<Body>,
    /// These wait for the end of some looks.
    waiting: Vec<Body>,
    looks: Vec<Look<'static>>,
}

/// A box that is freed with this.
#[cfg(not(rideau_loom))]
struct Body {
    memory: *mut (),
    free: unsafe fn(*mut ()),
    bytes: usize,
}

// SAFETY: it is the only one that has the memory, which is of keys, and those
// are sent to other threads anyway.
#[cfg(not(rideau_loom))]
unsafe impl Send for Body {}

/// The thread that has this may read what is buried from now on.
#[cfg(not(rideau_loom))]
pub(super) struct Pin<'a> {
    slot: &'static Slot,
    /// Pins are of one grave, and stay with their thread.
    _grave: PhantomData<(&'a Grave, *const ())>,
}

#[cfg(not(rideau_loom))]
impl Grave {
    pub(super) fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            buried: Mutex::default(),
        }
    }

    #[inline(always)]
    pub(super) fn pin(&self) -> Pin<'_> {
        Pin {
            slot: readers::begin(),
            _grave: PhantomData,
        }
    }

    /// Free a box of about so many bytes when no thread can be reading it.
    ///
    /// # Safety
    ///
    /// No thread that pins from now on can load it, it is buried once, and it
    /// may be freed on any thread.
    pub(super) unsafe fn bury<T>(&self, buried: *mut T, bytes: usize) {
        /// Made of a box of a `T`, and called once.
        unsafe fn free<T>(memory: *mut ()) {
            // SAFETY: as promised by the caller.
            drop(unsafe { Box::from_raw(memory.cast::<T>()) });
        }
        let mut all = lock(&self.buried);
        all.fresh.push(Body {
            memory: buried.cast(),
            free: free::<T>,
            bytes,
        });
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// There is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    /// There is a lot in it.
    pub(super) fn is_crowded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > PLENTY
    }

    /// Free what no thread can be reading. False if there is more, which is to
    /// be freed later. Keys end here, so without any lock.
    pub(super) fn tidy(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut buried = lock(&self.buried);
        let mut free = buried.over();
        if buried.waiting.is_empty() && buried.seal() {
            free.append(&mut buried.over());
        }
        let bytes: usize = free.iter().map(|body| body.bytes).sum();
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        drop(buried);
        drop(free);
        self.is_empty()
    }
}

#[cfg(not(rideau_loom))]
impl Buried {
    /// Those that wait no longer.
    fn over(&mut self) -> Vec<Body> {
        self.looks.retain(|look| !look.is_over());
        if self.looks.is_empty() {
            mem::take(&mut self.waiting)
        } else {
            Vec::new()
        }
    }

    /// Have the fresh ones wait for all looks that go on. False if it is not
    /// known which do.
    fn seal(&mut self) -> bool {
        let Some(looks) = readers::looks() else {
            return false;
        };
        self.looks = looks;
        self.waiting = mem::take(&mut self.fresh);
        true
    }
}

#[cfg(not(rideau_loom))]
impl Drop for Body {
    fn drop(&mut self) {
        let free = || {
            // SAFETY: it was made with what frees it, and is dropped once: when all
            // threads that could read it are gone, or the grave is, which every pin
            // borrows.
            unsafe { (self.free)(self.memory) };
        };
        // A key that panics at its end has said so, and is no reason for the
        // thread that frees it not to free the others: a second one would end the
        // process.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(free)) {
            mem::forget(panic);
        }
    }
}

#[cfg(not(rideau_loom))]
impl Pin<'_> {
    #[inline(always)]
    pub(super) fn load<T>(&self, pointer: &AtomicPtr<T>) -> *mut T {
        pointer.load(Ordering::Acquire)
    }
}

#[cfg(not(rideau_loom))]
impl Drop for Pin<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        readers::end(self.slot);
    }
}

/// Loom has a model of looks alone: here nothing is freed before the end.
#[cfg(rideau_loom)]
pub(super) struct Grave(std::sync::Mutex<Vec<Box<dyn FnOnce() + Send>>>);
#[cfg(rideau_loom)]
pub(super) struct Pin<'a>(std::marker::PhantomData<&'a Grave>);

#[cfg(rideau_loom)]
impl Grave {
    pub(super) fn new() -> Self {
        Self(std::sync::Mutex::default())
    }

    pub(super) fn pin(&self) -> Pin<'_> {
        Pin(std::marker::PhantomData)
    }

    pub(super) unsafe fn bury<T: 'static>(&self, buried: *mut T, _bytes: usize) {
        let mut all = self.0.lock().expect("no model panics here");
        let buried = buried.expose_provenance();
        // SAFETY: as promised by the caller.
        all.push(Box::new(move || {
            drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<T>(buried)) });
        }));
    }

    pub(super) fn is_empty(&self) -> bool {
        true
    }

    pub(super) fn is_crowded(&self) -> bool {
        false
    }

    pub(super) fn tidy(&self) -> bool {
        true
    }
}

#[cfg(rideau_loom)]
impl Pin<'_> {
    pub(super) fn load<T>(&self, pointer: &AtomicPtr<T>) -> *mut T {
        pointer.load(Ordering::SeqCst)
    }
}

#[cfg(rideau_loom)]
impl Drop for Grave {
    fn drop(&mut self) {
        let all = self.0.get_mut().expect("no model panics here");
        all.drain(..).for_each(|free| free());
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const ALIVE: u64 = 0x1234_5678_9abc_def0;

    /// Says how many are gone, and that it is no more.
    struct Thing {
        alive: u64,
        gone: Arc<AtomicUsize>,
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            assert_eq!(self.alive, ALIVE, "it is freed once");
            self.alive = 0;
            self.gone.fetch_add(1, SeqCst);
        }
    }

    fn thing(gone: &Arc<AtomicUsize>) -> *mut Thing {
        Box::into_raw(Box::new(Thing {
            alive: ALIVE,
            gone: Arc::clone(gone),
        }))
    }

    fn bury(grave: &Grave, thing: *mut Thing) {
        // SAFETY: each was made for this, and nothing else has it.
        unsafe { grave.bury(thing, size_of::<Thing>()) };
    }

    /// Other tests look as well, at what they have.
    fn tidy_up(grave: &Grave) {
        while !grave.tidy() {
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_buried_stays_until_the_last_pin_of_that_time_is_gone() {
        let (grave, gone) = (Grave::new(), Arc::new(AtomicUsize::new(0)));
        let outer = grave.pin();
        let inner = grave.pin();
        bury(&grave, thing(&gone));
        assert!(!grave.tidy());
        drop(outer);
        assert!(!grave.tidy());
        assert_eq!(gone.load(SeqCst), 0);
        drop(inner);
        // A reader that comes later does not matter.
        let later = grave.pin();
        while gone.load(SeqCst) == 0 {
            assert!(!grave.tidy() || gone.load(SeqCst) == 1);
            thread::yield_now();
        }
        bury(&grave, thing(&gone));
        assert!(!grave.tidy());
        drop(later);
        tidy_up(&grave);
        assert_eq!(gone.load(SeqCst), 2);
    }

    #[test]
    fn pins_of_other_threads_count() {
        let (grave, gone) = (Grave::new(), Arc::new(AtomicUsize::new(0)));
        thread::scope(|threads| {
            let (go, wait) = mpsc::channel::<()>();
            let (here, is_here) = mpsc::channel();
            let grave = &grave;
            threads.spawn(move || {
                let _pin = grave.pin();
                here.send(()).unwrap();
                let _ = wait.recv();
            });
            is_here.recv().unwrap();
            bury(grave, thing(&gone));
            for _ in 0..10 {
                assert!(!grave.tidy());
            }
            assert_eq!(gone.load(SeqCst), 0);
            drop(go);
            tidy_up(grave);
            assert_eq!(gone.load(SeqCst), 1);
        });
    }

    #[test]
    fn a_grave_that_goes_frees_all() {
        let (grave, gone) = (Grave::new(), Arc::new(AtomicUsize::new(0)));
        let pin = grave.pin();
        bury(&grave, thing(&gone));
        grave.tidy();
        bury(&grave, thing(&gone));
        drop(pin);
        drop(grave);
        assert_eq!(gone.load(SeqCst), 2);
    }

    /// Counts, and panics.
    struct Rude(Arc<AtomicUsize>);

    impl Drop for Rude {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("a test wants it");
        }
    }

    #[test]
    fn keys_that_panic_at_their_end_keep_nobody_from_theirs() {
        let (grave, gone) = (Grave::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let rude = Box::into_raw(Box::new(Rude(Arc::clone(&gone))));
            // SAFETY: nothing else has it.
            unsafe { grave.bury(rude, 1) };
        }
        tidy_up(&grave);
        assert_eq!(gone.load(SeqCst), 3);
    }

    #[test]
    fn nobody_reads_what_was_freed() {
        const THINGS: usize = 20_000;
        let (grave, gone) = (Grave::new(), Arc::new(AtomicUsize::new(0)));
        let place = AtomicPtr::new(thing(&gone));
        let done = AtomicUsize::new(0);
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while done.load(SeqCst) < 2 {
                        let pin = grave.pin();
                        let found = pin.load(&place);
                        // SAFETY: it was loaded by a pin, and is buried after it
                        // was replaced.
                        assert_eq!(unsafe { &*found }.alive, ALIVE);
                    }
                });
            }
            for _ in 0..2 {
                threads.spawn(|| {
                    for turn in 0..THINGS / 2 {
                        bury(&grave, place.swap(thing(&gone), SeqCst));
                        if turn % 16 == 0 {
                            grave.tidy();
                        }
                    }
                    done.fetch_add(1, SeqCst);
                });
            }
        });
        tidy_up(&grave);
        assert_eq!(gone.load(SeqCst), THINGS);
        bury(&grave, place.into_inner());
    }
}
