//! Programs that tests start, and that end with them.
//!
//! A test builds a command with [`command`] and [starts](Start) it as [`Running`]. The
//! program and its process group end when the guard is dropped, also by a panic,
//! and the kernel ends the program when the test process is killed. `./test` runs
//! each test program under `rideau-test-runner`, which ends whatever is left
//! after that and reports it as a failure.

#[cfg(feature = "certificates")]
pub mod certificates;
pub mod etcd_model;
pub mod fuzz;
pub mod http2;
mod panic_log;
mod running;
mod scratch;
mod signal;
mod skip;

pub use panic_log::PanicLog;
pub use running::{Running, Start, TEST_NAME, command};
pub use rustix::process::Signal;
pub use scratch::{Scratch, memory_folder};
pub use signal::{signal, try_signal};
pub use skip::{is_root, skipped};
