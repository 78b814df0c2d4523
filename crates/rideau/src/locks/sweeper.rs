//! Forgets the keys that are not held, now and then.
//!
//! One thread does it for the whole process, and sleeps while there is nothing
//! to forget. It works a fiftieth of the time: where there are millions of keys it
//! comes round less often, but often enough to forget each within a minute.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::keys::Keys;
use crate::keyed::Key;

/// How long a key is idle at least before it is forgotten.
const PERIOD: Duration = Duration::from_millis(50);
const REST: u32 = 50;
const REST_MAX: Duration = Duration::from_secs(10);

/// A map that is swept.
trait Sweep: Send + Sync {
    /// True if there is more to do next time.
    fn sweep(&self) -> bool;
}

struct Sweeper {
    wanted: Mutex<Vec<Weak<dyn Sweep>>>,
    timer: Condvar,
}

static SWEEPER: LazyLock<Sweeper> = LazyLock::new(|| {
    thread::Builder::new()
        .name("rideau-locks".into())
        .spawn(|| SWEEPER.run())
        .expect("a process can start one more thread");
    Sweeper {
        wanted: Mutex::new(Vec::new()),
        timer: Condvar::new(),
    }
});

impl<K: Key> Sweep for Keys<K> {
    fn sweep(&self) -> bool {
        self.sweep()
    }
}

/// Sweep these keys until there is nothing left to forget.
pub(super) fn add<K: Key>(keys: Weak<Keys<K>>) {
    SWEEPER.wanted.lock().push(keys);
    SWEEPER.timer.notify_one();
}

impl Sweeper {
    fn run(&self) {
        let mut busy: Vec<Weak<dyn Sweep>> = Vec::new();
        loop {
            {
                let mut wanted = self.wanted.lock();
                while wanted.is_empty() && busy.is_empty() {
                    self.timer.wait(&mut wanted);
                }
                busy.append(&mut wanted);
            }
            let start = Instant::now();
            busy.retain(|keys| {
                let sweep = || keys.upgrade().is_some_and(|keys| keys.sweep());
                // Keys end here, and what they do then is not ours.
                catch_unwind(AssertUnwindSafe(sweep)).unwrap_or(true)
            });
            thread::sleep((start.elapsed() * REST).clamp(PERIOD, REST_MAX));
        }
    }
}
