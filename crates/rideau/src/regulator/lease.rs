//! A lease that ends with its guard.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rideau_core::regulator::Renewal;
use rideau_core::{Lead, Ticket};

use super::RegulatorDriver;

/// One of the leases of a regulator, for as long as it is kept.
///
/// Dropping it releases it: as one whose work went well, unless the thread
/// panics.
#[must_use = "dropping a lease releases it at once"]
pub struct Lease {
    driver: Arc<RegulatorDriver>,
    ticket: Ticket,
    lead: Lead,
    waited: Duration,
    held: bool,
}

/// A lease that was not renewed: it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// How long the answer took.
    pub waited: Duration,
}

impl Lease {
    pub(crate) fn new(
        driver: Arc<RegulatorDriver>,
        ticket: Ticket,
        lead: Lead,
        waited: Duration,
    ) -> Self {
        Self {
            driver,
            ticket,
            lead,
            waited,
            held: true,
        }
    }

    /// How much earlier its ask came than the valve opened for it: positive if
    /// it waited. After a renewal, how long the valve had been open for that.
    pub fn lead(&self) -> Lead {
        self.lead
    }

    /// How long the grant took in all, or the last renewal.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The name of the lease, and of the wait before it.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Ask to keep the lease. The answer comes at once, before any that waits.
    ///
    /// # Errors
    ///
    /// If there are leases enough without this one; then it is over.
    pub fn renew(mut self) -> Result<Self, Stopped> {
        let ticket = self.ticket;
        let renewal = self.driver.step(|step| {
            step.machine
                .renew(ticket, step.sent, step.now, step.effects)
        });
        match renewal {
            Renewal::Go { lead, waited } => {
                self.lead = lead;
                self.waited = waited;
                Ok(self)
            }
            Renewal::Stop { waited } => {
                self.held = false;
                Err(Stopped { waited })
            }
            Renewal::NotFound { .. } => unreachable!("only its guard ends a lease"),
        }
    }

    /// Give the lease back; its work went well.
    pub fn release(mut self) {
        self.end(true);
    }

    /// Give the lease back; its work did not go well. Valves learn from that.
    pub fn fail(mut self) {
        self.end(false);
    }

    fn end(&mut self, ok: bool) {
        if !self.held {
            return;
        }
        self.held = false;
        let ticket = self.ticket;
        self.driver.step(|step| {
            step.machine
                .release(ticket, ok, step.sent, step.now, step.effects)
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end(!thread::panicking());
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("ticket", &self.ticket)
            .field("lead", &self.lead)
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there are leases enough without this one")
    }
}

impl std::error::Error for Stopped {}
