//! How often a request is tried, which is twice at most.
//!
//! A try is a connection that was asked for, or a request that a live process
//! got. A process that turns out to have died is passed over without either,
//! so that processes may die under reads and none of these fails; but no request
//! is given to more than three, dead or not.

/// Processes that a request is tried on.
const TRIES_MAX: u32 = 2;
/// The same with those that had died.
const PROCESSES_MAX: u32 = 3;

/// The tries of a request so far.
#[derive(Default, Debug)]
pub(super) struct Retries {
    processes: u32,
    /// How many processes it was tried on.
    tried: u32,
    /// New connections that were asked for.
    connects: u32,
}

impl Retries {
    /// It is the first process, and all is well so far.
    pub(super) fn is_first(&self) -> bool {
        self.processes == 0
    }

    /// A connection is asked for.
    pub(super) fn connect(&mut self) {
        self.connects += 1;
        debug_assert!(self.connects <= TRIES_MAX, "one for each try");
    }

    /// A process gave no answer; says whether another may be asked.
    pub(super) fn failed(&mut self, was_dead: bool) -> bool {
        self.processes += 1;
        self.tried += u32::from(!was_dead);
        self.tried < TRIES_MAX && self.processes < PROCESSES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant I8, whatever becomes of each process.
    #[test]
    fn no_request_asks_for_more_than_two_connections() {
        for fates in 0..1 << 6 {
            let mut tries = Retries::default();
            let mut asked = 0;
            loop {
                let was_dead = fates >> asked & 1 == 1;
                asked += 1;
                if !was_dead {
                    tries.connect();
                }
                if !tries.failed(was_dead) {
                    break;
                }
            }
            assert!(tries.connects <= 2, "{tries:?}");
            assert!(asked <= 3, "{tries:?}");
        }
    }

    #[test]
    fn one_that_was_dead_already_costs_no_try() {
        for dead_at in 0..2 {
            let mut tries = Retries::default();
            assert!((0..2).all(|at| tries.failed(at == dead_at)));
            assert!(!tries.failed(false));
        }
        let mut tries = Retries::default();
        assert!(tries.failed(false));
        assert!(!tries.failed(false));
    }
}
