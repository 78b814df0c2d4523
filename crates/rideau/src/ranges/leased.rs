//! A value that is given back when its guard is dropped.

use std::time::Duration;

use rideau_core::allocator::{Reservation, Which};

use super::{Failed, Ranges};

/// A value of a range, held until this is dropped or its time runs out.
#[must_use = "dropping it gives the value back"]
#[derive(Debug)]
pub struct Leased {
    ranges: Ranges,
    reservation: Option<Reservation>,
}

impl Leased {
    pub(super) fn new(ranges: Ranges, reservation: Reservation) -> Self {
        Self {
            ranges,
            reservation: Some(reservation),
        }
    }

    /// The reservation, as of its last renewal.
    pub fn reservation(&self) -> &Reservation {
        self.reservation
            .as_ref()
            .expect("it is held until the drop")
    }

    /// Hold it from now on for this long.
    ///
    /// # Errors
    ///
    /// If its time has run out, or the store failed.
    pub async fn renew(&mut self, ttl: Duration) -> Result<(), Failed> {
        let Reservation { value, fence, .. } = *self.reservation();
        let held = self
            .ranges
            .refresh(Which::Value(value), Some(fence), Some(ttl));
        let until = held.await?.until;
        if let Some(reservation) = &mut self.reservation {
            reservation.until = until;
        }
        Ok(())
    }

    /// Keep it until its time runs out, without a guard.
    pub fn keep(mut self) -> Reservation {
        self.reservation.take().expect("it is held until the drop")
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(Reservation { value, fence, .. }) = self.reservation {
            // A holder that has lost it has nothing to give back.
            let _ = self.ranges.release(value, Some(fence)).into_parts();
        }
    }
}
