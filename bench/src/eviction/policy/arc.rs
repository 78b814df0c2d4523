//! Policy: ARC, which splits its places between apps that were asked for once
//! and apps that were asked for again, and learns from those it gave up.

use super::{Ask, Policy};

pub(super) struct Arc {
    max: usize,
    /// Places that those asked for once should have.
    target: usize,
    /// Asked for once and again; the apps here, and the ghosts of those that
    /// were. Oldest first.
    once: Vec<u32>,
    again: Vec<u32>,
    once_ghosts: Vec<u32>,
    again_ghosts: Vec<u32>,
}

impl Arc {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            target: 0,
            once: Vec::new(),
            again: Vec::new(),
            once_ghosts: Vec::new(),
            again_ghosts: Vec::new(),
        }
    }

    fn replace(&mut self, in_again_ghosts: bool) {
        let once = self.once.len();
        let over = once > self.target || (in_again_ghosts && once == self.target);
        if once > 0 && over || self.again.is_empty() {
            self.once_ghosts.push(self.once.remove(0));
        } else {
            self.again_ghosts.push(self.again.remove(0));
        }
    }

    /// Make room for an app of which not even a ghost is left.
    fn admit(&mut self) {
        let ones = self.once.len() + self.once_ghosts.len();
        let all = ones + self.again.len() + self.again_ghosts.len();
        if ones == self.max {
            if self.once_ghosts.is_empty() {
                self.once.remove(0);
            } else {
                self.once_ghosts.remove(0);
                self.replace(false);
            }
        } else if all >= self.max {
            if all == 2 * self.max {
                self.again_ghosts.remove(0);
            }
            if self.once.len() + self.again.len() == self.max {
                self.replace(false);
            }
        }
    }
}

impl Policy for Arc {
    fn ask(&mut self, ask: &Ask) -> bool {
        let app = ask.app;
        if take(&mut self.once, app) || take(&mut self.again, app) {
            self.again.push(app);
            return false;
        }
        let (once, again) = (self.once_ghosts.len(), self.again_ghosts.len());
        if take(&mut self.once_ghosts, app) {
            self.target = (self.target + (again / once).max(1)).min(self.max);
            self.replace(false);
            self.again.push(app);
        } else if take(&mut self.again_ghosts, app) {
            self.target = self.target.saturating_sub((once / again).max(1));
            self.replace(true);
            self.again.push(app);
        } else {
            self.admit();
            self.once.push(app);
        }
        true
    }
}

fn take(list: &mut Vec<u32>, app: u32) -> bool {
    let found = list.iter().position(|known| *known == app);
    found.map(|at| list.remove(at)).is_some()
}
