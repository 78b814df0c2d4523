//! How many bytes may wait for slow clients, in memory and in files, and how many of them
//! for one client.
//!
//! It knows no bytes, only how many there are: its driver keeps them.

use std::collections::BTreeMap;

/// A client has this part of each budget at most.
const SHARE: u64 = 4;
/// This part of a file system stays free.
const FREE_SHARE: u64 = 10;

/// How many bytes may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferLimits {
    /// In memory.
    pub memory: u64,
    /// In files.
    pub disk: u64,
}

/// Where bytes wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferPlace {
    /// In memory.
    Memory,
    /// In a file.
    Disk,
}

/// How full a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    /// Bytes that it has.
    pub total: u64,
    /// Bytes of it that are free for us.
    pub free: u64,
}

/// The bytes that wait, all of them and those of each client.
///
/// Invariant: in each place all clients together have as many as are counted, and no
/// client without a byte is listed.
#[derive(Debug)]
pub struct Buffers<C> {
    limits: BufferLimits,
    used: Used,
    clients: BTreeMap<C, Used>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Used {
    memory: u64,
    disk: u64,
}

impl<C: Ord + Copy> Buffers<C> {
    /// Nothing waits.
    pub fn new(limits: BufferLimits) -> Self {
        Self {
            limits,
            used: Used::default(),
            clients: BTreeMap::new(),
        }
    }

    /// From now on others; what waits already goes on waiting.
    pub fn set_limits(&mut self, limits: BufferLimits) {
        self.limits = limits;
    }

    /// Have this many bytes of a client wait there; says whether they may.
    #[must_use]
    pub fn take(&mut self, client: C, place: BufferPlace, bytes: u64) -> bool {
        let limit = self.limits.of(place);
        let theirs = self.clients.get(&client).copied().unwrap_or_default();
        let fits = |used: u64, most: u64| used.checked_add(bytes).is_some_and(|all| all <= most);
        if !fits(self.used.of(place), limit) || !fits(theirs.of(place), limit / SHARE) {
            return false;
        }
        if bytes > 0 {
            *self.used.of_mut(place) += bytes;
            *self.clients.entry(client).or_default().of_mut(place) += bytes;
        }
        true
    }

    /// This many bytes of a client that were taken wait no more.
    pub fn give_back(&mut self, client: C, place: BufferPlace, bytes: u64) {
        let Some(theirs) = self.clients.get_mut(&client) else {
            debug_assert!(bytes == 0, "it has none");
            return;
        };
        *theirs.of_mut(place) -= bytes;
        if *theirs == Used::default() {
            self.clients.remove(&client);
        }
        *self.used.of_mut(place) -= bytes;
        self.check();
    }

    /// How many bytes wait there.
    pub fn used(&self, place: BufferPlace) -> u64 {
        self.used.of(place)
    }

    fn check(&self) {
        if cfg!(debug_assertions) && self.clients.len() < 64 {
            for place in [BufferPlace::Memory, BufferPlace::Disk] {
                let sum: u64 = self.clients.values().map(|used| used.of(place)).sum();
                assert_eq!(sum, self.used.of(place));
            }
        }
    }
}

impl BufferLimits {
    const fn of(self, place: BufferPlace) -> u64 {
        match place {
            BufferPlace::Memory => self.memory,
            BufferPlace::Disk => self.disk,
        }
    }
}

impl DiskSpace {
    /// A tenth of it stays free if this many bytes are written.
    pub const fn has_room(self, bytes: u64) -> bool {
        match self.free.checked_sub(bytes) {
            Some(left) => left >= self.total / FREE_SHARE,
            None => false,
        }
    }
}

impl Used {
    const fn of(self, place: BufferPlace) -> u64 {
        match place {
            BufferPlace::Memory => self.memory,
            BufferPlace::Disk => self.disk,
        }
    }

    const fn of_mut(&mut self, place: BufferPlace) -> &mut u64 {
        match place {
            BufferPlace::Memory => &mut self.memory,
            BufferPlace::Disk => &mut self.disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use BufferPlace::{Disk, Memory};

    fn buffers(memory: u64, disk: u64) -> Buffers<u64> {
        Buffers::new(BufferLimits { memory, disk })
    }

    #[test]
    fn a_client_has_a_quarter_of_each_budget_at_most() {
        let mut buffers = buffers(100, 400);
        assert!(buffers.take(1, Memory, 20));
        assert!(!buffers.take(1, Memory, 6), "that would be over a quarter");
        assert!(buffers.take(1, Memory, 5));
        assert!(!buffers.take(1, Memory, 1));
        assert!(buffers.take(1, Disk, 100), "files are counted apart");
        assert!(!buffers.take(1, Disk, 1));
        assert!(buffers.take(2, Memory, 25), "others have their own");
        buffers.give_back(1, Memory, 10);
        assert!(buffers.take(1, Memory, 10));
        assert_eq!((buffers.used(Memory), buffers.used(Disk)), (50, 100));
    }

    #[test]
    fn all_clients_together_have_no_more_than_there_is() {
        let mut buffers = buffers(100, 0);
        for client in 0..4 {
            assert!(buffers.take(client, Memory, 25));
        }
        assert!(!buffers.take(4, Memory, 1));
        buffers.give_back(2, Memory, 25);
        assert!(buffers.take(4, Memory, 25));
        assert!(!buffers.take(5, Disk, 1), "there is no room for files");
        assert!(buffers.take(5, Disk, 0));
    }

    #[test]
    fn lower_limits_take_nothing_away() {
        let mut buffers = buffers(100, 100);
        assert!(buffers.take(1, Memory, 20));
        buffers.set_limits(BufferLimits { memory: 8, disk: 8 });
        assert_eq!(buffers.used(Memory), 20);
        assert!(!buffers.take(2, Memory, 1));
        buffers.give_back(1, Memory, 20);
        assert!(buffers.take(2, Memory, 2));
    }

    #[test]
    fn no_client_is_remembered_that_has_nothing() {
        let mut buffers = buffers(1 << 20, 1 << 20);
        let mut rng = Rng::new(7);
        let mut taken = Vec::new();
        for _ in 0..10_000 {
            let place = [Memory, Disk][rng.below(2) as usize];
            let (client, bytes) = (rng.below(50), rng.below(20_000));
            if buffers.take(client, place, bytes) {
                taken.push((client, place, bytes));
            }
            if taken.len() > 30 {
                let at = rng.below(taken.len() as u64) as usize;
                let (client, place, bytes) = taken.swap_remove(at);
                buffers.give_back(client, place, bytes);
            }
        }
        for (client, place, bytes) in taken {
            buffers.give_back(client, place, bytes);
        }
        assert_eq!((buffers.used(Memory), buffers.used(Disk)), (0, 0));
        assert!(buffers.clients.is_empty());
    }

    #[test]
    fn a_tenth_of_a_file_system_stays_free() {
        let space = |free| DiskSpace { total: 1000, free };
        assert!(space(150).has_room(50));
        assert!(!space(150).has_room(51));
        assert!(!space(99).has_room(0));
        assert!(!space(150).has_room(151));
    }
}
