//! Policy: SIEVE, a queue with a hand that spares apps that were asked for
//! since it last came by.

use super::{Ask, Policy};

pub(super) struct Sieve {
    max: usize,
    /// Oldest first, and whether it was asked for.
    here: Vec<(u32, bool)>,
    hand: usize,
}

impl Sieve {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            here: Vec::new(),
            hand: 0,
        }
    }

    fn evict(&mut self) {
        loop {
            let asked = &mut self.here[self.hand].1;
            if !*asked {
                break;
            }
            *asked = false;
            self.hand = (self.hand + 1) % self.here.len();
        }
        // The app that follows comes to where the hand is, but not a new one.
        self.here.remove(self.hand);
        self.hand %= self.here.len().max(1);
    }
}

impl Policy for Sieve {
    fn ask(&mut self, ask: &Ask) -> bool {
        if let Some((_, asked)) = self.here.iter_mut().find(|(app, _)| *app == ask.app) {
            *asked = true;
            return false;
        }
        if self.here.len() == self.max {
            self.evict();
        }
        self.here.push((ask.app, false));
        true
    }
}
