//! The machines of the core under a load that is made up, on a virtual clock.
//!
//! [`simulate`] runs one [`Scenario`] and says what became of its requests. The queue, the
//! pool, the broker or the regulator in it is the very code that serves: only the clients and
//! the time are made up. All chance comes from the seed of the scenario.

mod arrivals;
mod chance;
mod clients;
mod goal;
mod outcome;
mod run;
mod scenario;
mod search;
mod service;
mod site;
pub mod suite;
mod waits;

pub use arrivals::{Arrivals, RateStep};
pub use clients::{Patience, Retries};
pub use goal::{Bound, Goal, GoalFault, Measure};
pub use outcome::RunOutcome;
pub use run::simulate;
pub use scenario::{Place, RunEnd, Scenario, Stalls};
pub use search::{Found, fewest_servers};
pub use service::{Service, ServiceBucket};
pub use waits::Waits;
