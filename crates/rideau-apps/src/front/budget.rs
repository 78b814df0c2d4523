//! What all bodies that wait for slow clients may take together: memory, and files in one
//! folder.

use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rideau_config::FrontConfig;
use rideau_core::{BufferLimits, BufferPlace, Buffers};

use super::client::one_of;

/// What bodies may take.
pub(super) struct BufferBudget(Mutex<Shares>);

struct Shares {
    buffers: Buffers<IpAddr>,
    /// Where files are.
    folder: Arc<Path>,
}

/// What one body has taken of it, until this is dropped.
pub(super) struct Reserved {
    budget: Arc<BufferBudget>,
    client: IpAddr,
    memory: u64,
    disk: u64,
}

impl BufferBudget {
    pub(super) fn new(config: &FrontConfig) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Shares {
            buffers: Buffers::new(limits(config)),
            folder: folder(config).into(),
        })))
    }

    /// This many of something.
    pub(super) fn of_count(max: u64) -> Arc<Self> {
        Self::new(&FrontConfig {
            buffer_memory: max,
            buffer_disk: 0,
            ..FrontConfig::default()
        })
    }

    /// From now on as this config says.
    pub(super) fn follow(&self, config: &FrontConfig) {
        let mut shares = self.0.lock();
        shares.buffers.set_limits(limits(config));
        shares.folder = folder(config).into();
    }

    /// Where files are.
    pub(super) fn folder(&self) -> Arc<Path> {
        Arc::clone(&self.0.lock().folder)
    }

    /// Nothing yet for a body of this client.
    pub(super) fn reserve(self: &Arc<Self>, client: IpAddr) -> Reserved {
        Reserved {
            budget: Arc::clone(self),
            client: one_of(client),
            memory: 0,
            disk: 0,
        }
    }

    /// Bytes that were taken, in memory and in files.
    #[cfg(test)]
    pub(super) fn used(&self) -> (u64, u64) {
        let buffers = &self.0.lock().buffers;
        let of = |place| buffers.used(place);
        (of(BufferPlace::Memory), of(BufferPlace::Disk))
    }
}

impl Reserved {
    /// Have this many bytes more in memory; says whether it may.
    pub(super) fn take_memory(&mut self, bytes: u64) -> bool {
        let is_taken = self.take(BufferPlace::Memory, bytes);
        self.memory += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// This many of them are in memory no more.
    pub(super) fn leave_memory(&mut self, bytes: u64) {
        self.memory -= bytes;
        self.give_back(BufferPlace::Memory, bytes);
    }

    /// Have a file of this many bytes; says whether it may.
    pub(super) fn take_file(&mut self, len: u64) -> bool {
        let more = len.saturating_sub(self.disk);
        let is_taken = more == 0 || self.take(BufferPlace::Disk, more);
        self.disk += if is_taken { more } else { 0 };
        is_taken
    }

    /// The file is gone.
    pub(super) fn leave_file(&mut self) {
        let bytes = std::mem::take(&mut self.disk);
        self.give_back(BufferPlace::Disk, bytes);
    }

    /// Where its file is.
    pub(super) fn folder(&self) -> Arc<Path> {
        self.budget.folder()
    }

    fn take(&self, place: BufferPlace, bytes: u64) -> bool {
        let mut shares = self.budget.0.lock();
        shares.buffers.take(self.client, place, bytes)
    }

    fn give_back(&self, place: BufferPlace, bytes: u64) {
        if bytes > 0 {
            let mut shares = self.budget.0.lock();
            shares.buffers.give_back(self.client, place, bytes);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give_back(BufferPlace::Memory, self.memory);
        self.give_back(BufferPlace::Disk, self.disk);
    }
}

const fn limits(config: &FrontConfig) -> BufferLimits {
    BufferLimits {
        memory: config.buffer_memory,
        disk: config.buffer_disk,
    }
}

/// The folder that the config names; or the system's for files that are too long for its
/// memory.
fn folder(config: &FrontConfig) -> PathBuf {
    if let Some(folder) = &config.buffer_dir {
        return folder.clone();
    }
    let usual = Path::new("/var/tmp");
    match env::var_os("TMPDIR").is_none() && usual.is_dir() {
        true => usual.to_owned(),
        false => env::temp_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<BufferBudget> {
        BufferBudget::new(&FrontConfig {
            buffer_memory: 400,
            buffer_disk: 4000,
            ..FrontConfig::default()
        })
    }

    #[test]
    fn what_a_body_took_comes_back_when_it_is_dropped() {
        let budget = budget();
        let client = IpAddr::from([10, 0, 0, 1]);
        let mut one = budget.reserve(client);
        assert!(one.take_memory(60));
        assert!(one.take_file(500) && one.take_file(700) && one.take_file(600));
        let mut two = budget.reserve(client);
        assert!(!two.take_memory(41) && two.take_memory(40));
        assert!(!two.take_file(301));
        assert_eq!(budget.used(), (100, 700));
        one.leave_memory(10);
        one.leave_file();
        assert_eq!(budget.used(), (90, 0));
        drop((one, two));
        assert_eq!(budget.used(), (0, 0));
    }

    #[test]
    fn addresses_of_one_network_share_what_a_client_may_have() {
        let budget = budget();
        let reserve = |address: &str| budget.reserve(address.parse().expect("an address"));
        let (mut one, mut two) = (reserve("2001:db8::1"), reserve("2001:db8::ffff:2"));
        assert!(one.take_memory(100) && !two.take_memory(1));
        let (mut mapped, mut plain) = (reserve("::ffff:10.0.0.1"), reserve("10.0.0.1"));
        assert!(mapped.take_memory(100) && !plain.take_memory(1));
        assert!(reserve("10.0.0.2").take_memory(100));
    }
}
