//! The count of a key as threads see it: a holder gives units back at any
//! moment, and comes to the lines only if it saw the mark.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use rideau_core::Rng;
use rideau_core::locks::{Claim, Count, Full, Grant};

/// What is one atomic word in earnest, and the holders of what it counts.
pub(crate) struct Word {
    pub(crate) held: u64,
    pub(crate) fence: u64,
    pub(crate) marked: bool,
    /// The units of each holder.
    pub(crate) holders: Vec<u32>,
    /// Releases that saw the mark and have not come to the lines yet.
    pub(crate) notes: u32,
    /// How often of ten times a holder gives back between two looks.
    pub(crate) restless: u64,
    pub(crate) rng: Rng,
}

/// A handle of the word, one for the lines and one for the test.
#[derive(Clone)]
pub(crate) struct Tap(Rc<RefCell<Word>>);

impl Word {
    /// One of the holders gives its units back.
    pub(crate) fn give_back(&mut self, which: usize) {
        let units = self.holders.swap_remove(which);
        self.held -= u64::from(units);
        self.notes += u32::from(self.marked);
    }

    /// Between any two steps of one thread, others take theirs.
    fn stir(&mut self) {
        while !self.holders.is_empty() && self.rng.below(10) < self.restless {
            let which = self.rng.below(self.holders.len() as u64);
            self.give_back(which as usize);
        }
    }
}

impl Tap {
    pub(crate) fn new(restless: u64, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Word {
            held: 0,
            fence: 0,
            marked: false,
            holders: Vec::new(),
            notes: 0,
            restless,
            rng: Rng::new(seed),
        })))
    }

    pub(crate) fn word(&self) -> RefMut<'_, Word> {
        self.0.borrow_mut()
    }
}

impl Count for Tap {
    type Units = ();

    fn held(&self) -> u64 {
        let mut word = self.word();
        word.stir();
        word.held
    }

    fn take(&mut self, claim: Claim) -> Result<(Grant, ()), Full> {
        let mut word = self.word();
        word.stir();
        let units = u64::from(claim.units);
        if units == 0 || u128::from(word.held) + u128::from(units) > claim.capacity.units().into() {
            return Err(claim.full(word.held));
        }
        word.held += units;
        word.fence += 1;
        let grant = Grant {
            units: claim.units,
            ordinal: word.held,
            fence: word.fence,
        };
        Ok((grant, ()))
    }

    fn mark_waiting(&mut self, waiting: bool) {
        let mut word = self.word();
        word.stir();
        word.marked = waiting;
        word.stir();
    }
}
