//! Applications behind a front: their processes are started, scaled and recycled, and
//! requests are led to them.
//!
//! Beside it is what the rest of the server needs as well: threads that serve
//! connections, sockets, events, and the folders of running programs.

mod apps;
pub mod bind;
mod events;
mod front;
mod http1;
pub mod inherited;
mod io_threads;
mod io_timeout;
mod last_answer;
mod run_dirs;
pub mod run_places;
mod upstream;

pub use apps::{
    Answered, App, AppCounters, AppHandover, AppLine, AppShown, Apps, Output, ProcessShown,
    Refused, Request, RequestShown, Running, Session, Wanted,
};
pub use events::{Event, Events, KINDS};
pub use front::{Front, FrontCertificate, FrontListener, FrontStats, StickyKey, Tls};
pub use inherited::{ListenOption, PassedListener, Role};
pub use io_threads::IoThreads;
pub use io_timeout::IoTimeout;
pub use last_answer::answer_and_close;
pub use run_dirs::{Presence, RunDirs};
